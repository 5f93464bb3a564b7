/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Identifies the object of an inode in SRC.
 *
 * The file system reuses an inode number after its file is gone. The number with the birth time is never reused,
 * because no two births of one number fall on the same nanosecond. If the file system reports no birth, the file's
 * handle takes its place: it contains the inode's generation, and is available for any descriptor whatever the file's
 * mode, so that a chmod never changes the object of a file (FS_IOC_GETVERSION would need the file to be readable). Its
 * checksum is cut to 32 bits: as a time that is the beginning of 1970, so an object is never dated later than its real
 * birth.
 *
 * In a tree that was copied with its store, inodes stand for the inodes they were copied from (identities.h).
 */
#include "store/store.h"

#include "base/checksum.h"
#include "store/identity/identities.h"
#include "store/identity/layers.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

static int64_t when_of(const struct statx_timestamp *time)
{
    return time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

uint64_t wb_object_handle(int dir_fd, const char *name)
{
    union {
        struct file_handle handle;
        char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } buffer;
    int mount;

    memset(&buffer, 0, sizeof(buffer));
    buffer.handle.handle_bytes = MAX_HANDLE_SZ;
    if (name_to_handle_at(dir_fd, name, &buffer.handle, &mount, AT_EMPTY_PATH) < 0)
        return 0;
    return wb_checksum(buffer.handle.f_handle, buffer.handle.handle_bytes);
}

static int64_t birth_from_handle(int dir_fd, const char *name)
{
    return (int64_t)(wb_object_handle(dir_fd, name) & 0xffffffff);
}

/*
 * A file system in user space invents handles that last while the kernel remembers a file, and then others. If it
 * reports no births either, a file could not be identified an hour later, let alone after the next mount. Some, such as
 * 9p, have neither births nor handles.
 */
bool wb_object_lasts(int dir_fd)
{
    struct statfs fs;
    struct statx stx;

    if (statx(dir_fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) == 0 && stx.stx_mask & STATX_BTIME)
        return true;
    if (birth_from_handle(dir_fd, "") == 0)
        return false;
    return fstatfs(dir_fd, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC;
}

static void fill_attrs(const struct statx *stx, struct wb_attrs *attrs)
{
    bool is_device = S_ISCHR(stx->stx_mode) || S_ISBLK(stx->stx_mode);

    *attrs = (struct wb_attrs){
        .mode = stx->stx_mode,
        .uid = stx->stx_uid,
        .gid = stx->stx_gid,
        .nlink = stx->stx_nlink,
        .size = stx->stx_size,
        .rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor),
        .blocks = is_device ? 0 : stx->stx_blocks + 1,
        .atime = when_of(&stx->stx_atime),
        .mtime = when_of(&stx->stx_mtime),
        .ctime = when_of(&stx->stx_ctime),
    };
}

static struct timespec timespec_of(const struct statx_timestamp *time)
{
    return (struct timespec){.tv_sec = time->tv_sec, .tv_nsec = time->tv_nsec};
}

static void fill_stat(const struct statx *stx, struct stat *st)
{
    memset(st, 0, sizeof(*st));
    st->st_dev = makedev(stx->stx_dev_major, stx->stx_dev_minor);
    st->st_ino = stx->stx_ino;
    st->st_mode = stx->stx_mode;
    st->st_nlink = stx->stx_nlink;
    st->st_uid = stx->stx_uid;
    st->st_gid = stx->stx_gid;
    st->st_rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor);
    st->st_size = (off_t)stx->stx_size;
    st->st_blksize = stx->stx_blksize;
    st->st_blocks = (blkcnt_t)stx->stx_blocks;
    st->st_atim = timespec_of(&stx->stx_atime);
    st->st_mtim = timespec_of(&stx->stx_mtime);
    st->st_ctim = timespec_of(&stx->stx_ctime);
}

int wb_object_stat(const struct wb_store *store, int dir_fd, const char *name, struct wb_object *object,
                   struct wb_attrs *attrs, struct stat *st)
{
    struct statx stx;

    if (!name)
        name = "";
    if (statx(dir_fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
              STATX_BASIC_STATS | STATX_BTIME, &stx) < 0)
        return -errno;
    if (store && makedev(stx.stx_dev_major, stx.stx_dev_minor) != store->src_dev)
        return -EXDEV;
    if (store && store->layered && wb_layers_merge(stx.stx_mode, stx.stx_nlink))
        return -EXDEV;
    if (object) {
        object->ino = stx.stx_ino;
        object->birth = stx.stx_mask & STATX_BTIME ? when_of(&stx.stx_btime) : 0;
        if (object->birth == 0)
            object->birth = birth_from_handle(dir_fd, name);
        if (store && wb_identities_map(store->identities, object) < 0)
            return -EIO;
    }
    if (attrs)
        fill_attrs(&stx, attrs);
    if (st)
        fill_stat(&stx, st);
    return 0;
}
