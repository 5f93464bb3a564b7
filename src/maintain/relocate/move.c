/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Moves a store. All files are copied to the new place, under the lock of the old one; then one file, the signpost
 * in the old place, makes the new one the store (directory/signpost.h); then files that cannot be copied are renamed,
 * and the rest of the old place is removed. After an interruption at any point, the next mount knows which one is
 * the store.
 */
#include "wayback/move.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "base/xattr.h"
#include "capture/recovery/recover.h"
#include "maintain/relocate/move_parts.h"
#include "store/inflight/spans.h"
#include "store/parts.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>

static int open_tree(const char *tree, struct wb_error *why)
{
    int fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? wb_error_set(why, -errno, "%s; TREE must be a source tree", g_strerror(errno)) : fd;
}

int wb_move_read_header(int dir_fd, struct wb_header *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    size_t length = 0;
    int r = fd < 0 ? fd : wb_pread_full(fd, data, sizeof(data), 0, &length);

    if (r >= 0)
        r = wb_header_decode(data, length, ret);
    return MIN(r, 0);
}

static int read_uuid(int dir_fd, uint8_t uuid[16], struct wb_error *why)
{
    struct wb_header header;
    int r = wb_move_read_header(dir_fd, &header);

    if (r < 0)
        return wb_error_set(why, r, "the header of the store cannot be read: %s; run vfsck", g_strerror(-r));
    memcpy(uuid, header.uuid, sizeof(header.uuid));
    return 0;
}

/* Opens it as a mount does, so that what a crash left is dealt with and all is on the disk. */
static int settle(struct wb_move_places *places, struct wb_error *why)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, places->src_fd, places->store, WB_STORE_WRITE | WB_STORE_IN_SPANS, why);

    if (r < 0)
        return r;
    r = wb_move_check_readers(store, why);
    if (r < 0) {
        wb_store_free(store);
        return r;
    }
    r = wb_recover(store, NULL);
    wb_store_free(store);
    return r < 0 ? wb_error_set(why, r, "the recovery of the store after a crash failed: %s", g_strerror(-r)) : 0;
}

static int open_from(struct wb_move_places *places, unsigned flags, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    const char *home = places->store ? places->store : WB_STORE_NAME;
    int r = flags ? 0 : settle(places, why);

    if (r < 0)
        return r;
    r = moving->from_fd = wb_store_dir_open(places->src_fd, places->store, 0, home, why);
    if (r >= 0 && !flags)
        r = places->from_lock = wb_store_dir_lock(moving->from_fd, home, why);
    if (r >= 0)
        r = read_uuid(moving->from_fd, moving->coming.uuid, why);
    if (r >= 0 && (r = wb_move_path(moving->from_fd, moving->result->from)) < 0)
        wb_error_set(why, r, "cannot determine the place of the store %s", home);
    return r < 0 ? r : 0;
}

/* ---- the move ------------------------------------------------------------------------------------ */

/* What a move left in the old place, once the store is to_fd for good. */
static int clear_remains(struct wb_move_places *places, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    struct wb_signpost here, there;
    _cleanup_close_ int old = -1, grave = -1;
    struct stat before;
    int r = wb_signpost_read(moving->to_fd, &here);

    if (r <= 0 || here.kind != WB_SIGNPOST_REMAINS)
        return r < 0 ? r : 0;
    if (fstat(places->src_fd, &before) < 0)
        return wb_error_set(why, -errno, "the root of the tree: %s", g_strerror(errno));
    r = wb_move_lead_from_tree(places);
    if (r < 0)
        return wb_error_set(why, r, "the store is in %s now, but its new place cannot be recorded in the tree: %s",
                            moving->result->to, g_strerror(-r));
    old = open(here.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 && errno != ENOENT)
        return wb_error_set(why, -errno, "the store is in %s now; its remaining files in %s cannot be removed: %s",
                            moving->result->to, here.path, g_strerror(errno));
    /* Only where the signpost says so: anything else may be there by now. */
    if (old >= 0 && wb_signpost_read(old, &there) > 0 && there.kind == WB_SIGNPOST_LEADS &&
        memcmp(there.uuid, here.uuid, sizeof(here.uuid)) == 0)
        r = wb_moving_clear(old, false);
    if (r < 0)
        return wb_error_set(why, r, "the store is in %s now; its remaining files in %s cannot be removed: %s",
                            moving->result->to, here.path, g_strerror(-r));
    wb_move_remove_staging(places);
    /* What was cleared may go on as the graveyard: whole, as who checks it expects. */
    r = grave = wb_store_dir_grave(places->src_fd, moving->to_fd, true);
    if (r >= 0)
        r = wb_store_dir_fill(grave);
    if (r < 0)
        return wb_error_set(why, r, "cannot keep deleted files of the tree: %s", g_strerror(-r));
    /* The root keeps its times: nothing of the user's has changed. A courtesy only. */
    if (futimens(places->src_fd, (struct timespec[]){before.st_atim, before.st_mtim}) < 0)
        errno = 0;
    r = wb_signpost_remove(moving->to_fd);
    return r < 0 ? wb_error_set(why, r, "%s: %s", moving->result->to, g_strerror(-r)) : 0;
}

/* Where it cannot be written, changes that others make before the next mount go unnoticed. */
static void end_offline(int dir_fd)
{
    if (wb_spans_end_offline(dir_fd) < 0)
        errno = 0;
}

static int make_move(struct wb_move_places *places, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    int r = wb_move_announce(places, why);

    if (r == 0)
        r = wb_moving_copy(moving, why);
    if (r < 0 || places->from_lock < 0)
        return r;
    /* The copy becomes the store, and the next call makes it durable. */
    r = wb_spans_begin_offline(moving->to_fd);
    if (r == 0)
        r = wb_moving_copy_as(moving, WB_HEADER_NAME, WB_ARRIVING_NAME);
    if (r < 0)
        return wb_error_set(why, r, "cannot copy the store to %s: %s; it was not moved", moving->result->to,
                            g_strerror(-r));
    /* This makes it the store. */
    r = wb_move_lead(moving->from_fd, moving);
    if (r < 0)
        return wb_error_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    r = wb_store_arrive(places->src_fd, moving->to_fd, moving->result->to, why);
    if (r < 0)
        return r;
    moving->result->moved = true;
    r = clear_remains(places, why);
    end_offline(moving->to_fd);
    return r;
}

/* The directory, which may be made in the tree. */
static int open_to(struct wb_move_places *places, const char *to, unsigned flags, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    int r = flags ? 0 : wb_spans_begin_offline(moving->from_fd);

    if (r < 0)
        return wb_error_set(why, r, "cannot write to %s: %s", moving->result->from, g_strerror(-r));
    r = wb_move_open_to(places, to, why);
    if (!flags)
        end_offline(moving->from_fd);
    return r;
}

/* What an earlier call left. */
static int finish_move(struct wb_move_places *places, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    int r = wb_spans_begin_offline(moving->to_fd);

    if (r < 0)
        return wb_error_set(why, r, "cannot write to %s: %s", moving->result->to, g_strerror(-r));
    r = clear_remains(places, why);
    end_offline(moving->to_fd);
    return r;
}

static int move(struct wb_move_places *places, const char *tree, const char *to, unsigned flags, struct wb_error *why)
{
    struct wb_moving *moving = &places->moving;
    int r = places->src_fd = open_tree(tree, why);

    if (r >= 0)
        r = open_from(places, flags, why);
    if (r >= 0)
        r = open_to(places, to, flags, why);
    if (r < 0)
        return r;
    if (wb_move_same_dir(moving->from_fd, moving->to_fd)) {
        moving->result->moved = true;
        return flags ? 0 : finish_move(places, why);
    }
    r = wb_move_check_room(moving, why);
    return r < 0 || moving->look_only ? r : make_move(places, why);
}

int wb_store_move(const char *tree, const char *store, const char *to, unsigned flags, wb_move_progress progress,
                  void *data, struct wb_move_result *ret, struct wb_error *why)
{
    struct wb_move_places places = {
        .src_fd = -1, .from_lock = -1, .to_lock = -1, .store = store,
        .moving = {.from_fd = -1, .to_fd = -1, .look_only = flags & WB_MOVE_DRY_RUN, .result = ret,
                   .progress = progress, .data = data},
    };
    int r;

    *ret = (struct wb_move_result){.moved = false};
    r = move(&places, tree, to, flags, why);
    wb_close_fd(&places.to_lock);
    wb_close_fd(&places.from_lock);
    wb_close_fd(&places.moving.to_fd);
    wb_close_fd(&places.moving.from_fd);
    wb_close_fd(&places.src_fd);
    return r;
}

int wb_store_where(const char *tree, const char *store, struct wb_move_result *ret, struct wb_error *why)
{
    _cleanup_close_ int src_fd = open_tree(tree, why), dir_fd = -1, inside = -1;
    struct wb_signpost here;
    int r;

    *ret = (struct wb_move_result){.moved = false};
    if (src_fd < 0)
        return src_fd;
    r = dir_fd = wb_store_dir_open(src_fd, store, WB_STORE_WRITE, store ? store : WB_STORE_NAME, why);
    if (r >= 0)
        r = wb_move_path(dir_fd, ret->from);
    if (r < 0)
        return r;
    inside = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    ret->apart = inside < 0 || !wb_move_same_dir(inside, dir_fd);
    r = wb_signpost_read(dir_fd, &here);
    if (r > 0) {
        ret->coming = here.kind == WB_SIGNPOST_COMING;
        g_strlcpy(ret->to, here.path, sizeof(ret->to));
    }
    return 0;
}

/*
 * ---- one file of a store that moves ----
 *
 * Copies content with its holes, extended attributes, owner, mode and times. A copy has
 * the mtime of its original, by which logs are judged after a power cut. The atime of the copy is the ctime of the
 * original: the atime of a file of the store has no other use, and so it shows, whenever the move is continued, whether
 * the original was changed since.
 */

#define BLOCK (1 << 20)

static int copy_range(int from, int to, off_t at, off_t end, uint8_t *block)
{
    while (at < end) {
        size_t length = (size_t)MIN(end - at, (off_t)BLOCK), got;
        int r = wb_pread_full(from, block, length, (uint64_t)at, &got);

        if (r == 0)
            r = wb_pwrite_full(to, block, got, (uint64_t)at);
        if (r < 0)
            return r;
        if (got < length)
            return 0; /* it is being cut by somebody; it will be copied again */
        at += (off_t)got;
    }
    return 0;
}

static int copy_content(int from, int to, off_t size)
{
    g_autofree uint8_t *block = NULL;
    off_t at = 0, end;
    int r = 0;

    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    block = g_try_malloc(BLOCK);
    if (!block)
        return -ENOMEM;
    while (r == 0 && at < size) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0 && errno == ENXIO)
            break;
        end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return -errno;
        r = copy_range(from, to, at, MIN(end, size), block);
        at = end;
    }
    return r == 0 && ftruncate(to, size) < 0 ? -errno : r;
}

static int copy_xattrs(int from, int to)
{
    char names[XATTR_LIST_MAX];
    g_autofree char *value = NULL;
    ssize_t length = wb_listxattr_fd(from, names, sizeof(names));

    if (length < 0)
        return length == -EOPNOTSUPP ? 0 : (int)length;
    for (const char *name = names; name < names + length; name += strlen(name) + 1) {
        ssize_t size;
        int r;

        value = value ? value : g_try_malloc(XATTR_SIZE_MAX);
        if (!value)
            return -ENOMEM;
        size = wb_getxattr_fd(from, name, value, XATTR_SIZE_MAX);
        r = size < 0 ? (int)size : wb_setxattr_fd(to, name, value, (size_t)size, 0);
        /* What is of this machine (labels) comes by itself there, or not. */
        if (size < 0 || (r < 0 && strncmp(name, "user.", 5) == 0))
            return r;
    }
    return 0;
}

static int copy_into(int from, int to, const struct stat *st)
{
    struct timespec times[2] = {st->st_ctim, st->st_mtim};
    int r = copy_content(from, to, st->st_size);

    if (r == 0)
        r = copy_xattrs(from, to);
    if (r == 0 && (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0))
        r = -errno;
    return r == 0 && futimens(to, times) < 0 ? -errno : r;
}

/* from_dir/from becomes to_dir/to, whole or not at all. 0 or -errno. */
static int moving_copy_file(struct wb_moving *moving, int from_dir, const char *from, int to_dir, const char *to)
{
    _cleanup_close_ int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
    struct stat st;
    int r;

    if (in < 0 || fstat(in, &st) < 0)
        return -errno;
    out = wb_create_own(moving->to_fd, WB_MOVING_TEMPORARY, O_RDWR);
    if (out < 0)
        return out;
    r = copy_into(in, out, &st);
    /* After the clock was set back, the time of the copy does not say that it came after the last sync. */
    if (r == 0 && wb_when_now() <= moving->coming.synced && fdatasync(out) < 0)
        r = -errno;
    if (r == 0 && renameat(moving->to_fd, WB_MOVING_TEMPORARY, to_dir, to) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(moving->to_fd, WB_MOVING_TEMPORARY, 0);
    return r;
}

static int moving_copy_other(int from_dir, int to_dir, const char *name, const struct stat *st)
{
    struct timespec times[2] = {st->st_ctim, st->st_mtim};
    char target[PATH_MAX];
    ssize_t length;

    if (unlinkat(to_dir, name, 0) < 0 && errno != ENOENT)
        return -errno;
    if (S_ISLNK(st->st_mode)) {
        length = readlinkat(from_dir, name, target, sizeof(target) - 1);
        if (length < 0)
            return -errno;
        target[length] = '\0';
        if (symlinkat(target, to_dir, name) < 0)
            return -errno;
    } else if (mknodat(to_dir, name, st->st_mode, st->st_rdev) < 0) {
        return -errno;
    }
    return fchownat(to_dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
                   utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}

/*
 * Copies the files of a store to its new place, in a walk through both. A file that is there already and has not
 * changed since is not copied again when the move goes on, unless it may not have reached the disk.
 */

/* After so much, what was copied is brought to the disk, so that an interruption costs no more. */
#define UNSYNCED_BYTES (UINT64_C(256) << 20)
#define UNSYNCED_FILES 8192
/* More than file systems are behind the clock with the times they give. */
#define SLACK WB_WHEN_SECOND
/* Left free where a store goes to, as it grows. */
#define ROOM_MIN (UINT64_C(16) << 20)

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int64_t when_of(struct timespec time)
{
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* What is no part of the copy: on its way by itself, or each directory's own. */
static bool stays(const char *name, unsigned depth)
{
    static const char *const names[] = {WB_SIGNPOST_NAME, "." WB_SIGNPOST_NAME ".new", WB_LOCK_NAME, WB_HEADER_NAME,
                                        WB_ARRIVING_NAME, "." WB_HEADER_NAME ".new", ".probe", "lost+found",
                                        WB_MOVING_TEMPORARY};

    if (depth == 0)
        for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
            if (strcmp(name, names[i]) == 0)
                return true;
    return false;
}

static bool is_copied(const char *top, const char *name, unsigned depth)
{
    return !stays(name, depth) && !(strcmp(top, WB_LOST_NAME) != 0 && wb_grave_is_body(name));
}

/* ---- files ------------------------------------------------------------------------------------- */

int wb_moving_copy_as(struct wb_moving *moving, const char *from, const char *to)
{
    int r = moving_copy_file(moving, moving->from_fd, from, moving->to_fd, to);

    return r == 0 && syncfs(moving->to_fd) < 0 ? -errno : r;
}

/* All that was copied to stable storage, and that this is so to the signpost. 0 or -errno. */
static int moving_sync(struct wb_moving *moving)
{
    int64_t now = wb_when_now();
    int r = syncfs(moving->to_fd) < 0 ? -errno : 0;

    moving->unsynced_files = moving->unsynced_bytes = 0;
    moving->coming.synced = now;
    return r < 0 ? r : wb_signpost_write(moving->to_fd, &moving->coming);
}

static bool is_there(const struct wb_moving *moving, int to_dir, const char *name, const struct stat *st)
{
    struct stat there;

    return to_dir >= 0 && fstatat(to_dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_mode == st->st_mode &&
           there.st_size == st->st_size && same_time(there.st_mtim, st->st_mtim) &&
           same_time(there.st_atim, st->st_ctim) && when_of(there.st_ctim) < moving->coming.synced;
}

/* The last pass copied it or found it there, and it did not change since. After the clock was set, that is unknown. */
static bool is_known(const struct wb_moving *moving, const struct stat *st)
{
    return moving->done > 0 && when_of(st->st_ctim) < moving->done - SLACK &&
           ABS(moving->shift - moving->done_shift) < SLACK / 10;
}

/* A file that has several names in the store is copied once, and its copy has them. Whether it was copied before. */
static bool is_linked(struct wb_moving *moving, const struct stat *st, const char **ret)
{
    guint64 ino = st->st_ino;

    *ret = NULL;
    if (!S_ISREG(st->st_mode) || st->st_nlink < 2)
        return false;
    if (!moving->links)
        moving->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    return g_hash_table_lookup_extended(moving->links, &ino, NULL, (gpointer *)ret);
}

static int note_link(struct wb_moving *moving, const struct stat *st, int to_dir, const char *name)
{
    guint64 ino = st->st_ino;
    char link[32];
    g_autofree char *parent = NULL;

    if (!moving->links || st->st_nlink < 2 || !S_ISREG(st->st_mode))
        return 0;
    parent = to_dir < 0 ? g_strdup("") : g_file_read_link(wb_fd_path(to_dir, link), NULL);
    if (!parent)
        return -EIO;
    g_hash_table_insert(moving->links, g_memdup2(&ino, sizeof(ino)), g_build_filename(parent, name, NULL));
    return 0;
}

static int link_copy(struct wb_moving *moving, const char *copy, int to_dir, const char *name)
{
    struct stat a, b;

    if (stat(copy, &a) == 0 && fstatat(to_dir, name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
        a.st_ino == b.st_ino)
        return 0;
    if (unlinkat(moving->to_fd, WB_MOVING_TEMPORARY, 0) < 0 && errno != ENOENT)
        return -errno;
    return linkat(AT_FDCWD, copy, moving->to_fd, WB_MOVING_TEMPORARY, 0) < 0 ||
                   renameat(moving->to_fd, WB_MOVING_TEMPORARY, to_dir, name) < 0
               ? -errno
               : 0;
}

static int take_file(struct wb_moving *moving, int from_dir, int to_dir, const char *name, const struct stat *st)
{
    uint64_t bytes = (uint64_t)st->st_blocks * 512;
    const char *copy;
    int r = 0;

    if (to_dir != moving->to_fd && is_known(moving, st)) {
        moving->result->there++;
        return 0;
    }
    if (is_linked(moving, st, &copy))
        return moving->look_only ? 0 : link_copy(moving, copy, to_dir, name);
    /* The ctime does not show stores into a mapping, as of `inflight`; the files beside it are small. */
    if (to_dir != moving->to_fd && is_there(moving, to_dir, name, st)) {
        moving->result->there++;
        return note_link(moving, st, to_dir, name);
    }
    moving->result->files++;
    moving->result->bytes += bytes;
    if (moving->look_only)
        return note_link(moving, st, to_dir, name);
    r = S_ISREG(st->st_mode) ? moving_copy_file(moving, from_dir, name, to_dir, name)
                             : moving_copy_other(from_dir, to_dir, name, st);
    /* Beside a daemon: it was renamed or removed just now. */
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = note_link(moving, st, to_dir, name);
    if (r == 0 && moving->progress && !moving->progress(1, bytes, moving->data))
        return -ECANCELED;
    moving->unsynced_bytes += bytes;
    moving->unsynced_files++;
    if (r == 0 && (moving->unsynced_bytes > UNSYNCED_BYTES || moving->unsynced_files > UNSYNCED_FILES))
        r = moving_sync(moving);
    return r;
}

/* ---- directories ------------------------------------------------------------------------------- */

/* Whether it is `objects`, or a directory in it. */
static bool is_of_grave(const char *top, unsigned depth)
{
    return depth <= 1 && strcmp(top, WB_OBJECTS_NAME) == 0;
}

/* Of those that are copied. */
static int count_entries(int dir_fd, const char *top, unsigned depth, uint64_t *ret)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(dir_fd, ".");
    struct dirent *entry;
    int r = 0;

    *ret = 0;
    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r))
        *ret += is_copied(depth ? top : entry->d_name, entry->d_name, depth);
    return r;
}

/* Removes what `is_copied` says of a directory; with `from_fd`, only what is not there. */
static int sweep(int dir_fd, int from_fd, const char *top, unsigned depth, bool is_grave)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(dir_fd, ".");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        const char *name = entry->d_name;
        _cleanup_close_ int inner = -1;

        if (!is_copied(depth ? top : name, name, depth) ||
            (from_fd >= 0 && fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0))
            continue;
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
            continue;
        inner = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = inner < 0 ? -errno : sweep(inner, -1, depth ? top : name, depth + 1, is_grave);
        /* Where deleted files stay, their directory does. */
        if (r < 0 || (is_grave && is_of_grave(depth ? top : name, depth)))
            continue;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST)
            r = -errno;
    }
    return r;
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth);

static int take_directory(struct wb_moving *moving, int from_fd, int to_fd, const char *name, const char *top,
                          unsigned depth)
{
    _cleanup_close_ int from = openat(from_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), to = -1;

    if (from < 0)
        return -errno;
    if (!moving->look_only && mkdirat(to_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (to_fd >= 0)
        to = openat(to_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0 && !moving->look_only)
        return -errno;
    return walk(moving, from, to, depth ? top : name, depth + 1);
}

static int walk(struct wb_moving *moving, int from_fd, int to_fd, const char *top, unsigned depth)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(from_fd, ".");
    struct dirent *entry;
    uint64_t count = 0, there = 0;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        const char *name = entry->d_name;

        if (!is_copied(depth ? top : name, name, depth))
            continue;
        count++;
        if (fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? 0 : -errno;
        else if (S_ISDIR(st.st_mode))
            r = take_directory(moving, from_fd, to_fd, name, top, depth);
        else
            r = take_file(moving, from_fd, to_fd, name, &st);
    }
    if (r < 0 || moving->look_only)
        return r;
    /* All that is here is there: only if there is more there, something of it is not here. */
    r = count_entries(to_fd, top, depth, &there);
    return r == 0 && there != count ? sweep(to_fd, from_fd, top, depth, false) : r;
}

static int64_t since_boot(void)
{
    struct timespec now;

    return clock_gettime(CLOCK_BOOTTIME, &now) < 0 ? 0 : when_of(now);
}

int wb_moving_copy(struct wb_moving *moving, struct wb_error *why)
{
    int r;

    moving->begun = wb_when_now();
    moving->shift = moving->begun - since_boot();
    g_clear_pointer(&moving->links, g_hash_table_unref);
    r = walk(moving, moving->from_fd, moving->to_fd, "", 0);
    g_clear_pointer(&moving->links, g_hash_table_unref);
    if (r == -ECANCELED)
        return wb_error_set(why, r, "stopped; the store was not moved, and the next attempt uses the copied files");
    if (r == 0 && !moving->look_only)
        r = moving_sync(moving);
    moving->done = r == 0 && !moving->look_only ? moving->begun : 0;
    moving->done_shift = moving->shift;
    return r < 0 ? wb_error_set(why, r, "cannot copy the store to %s: %s; it was not moved", moving->result->to,
                                g_strerror(-r))
                 : 0;
}

int wb_move_check_room(struct wb_moving *moving, struct wb_error *why)
{
    g_autofree char *wanted = NULL, *free_text = NULL;
    struct statvfs space;
    bool look_only = moving->look_only;
    int r;

    moving->look_only = true;
    r = wb_moving_copy(moving, why);
    moving->look_only = look_only;
    if (r < 0)
        return r;
    if (fstatvfs(moving->to_fd, &space) < 0)
        return wb_error_set(why, -errno, "%s: %s", moving->result->to, g_strerror(errno));
    moving->result->room = (uint64_t)space.f_bavail * space.f_frsize;
    if (moving->result->bytes + ROOM_MIN > moving->result->room) {
        wanted = g_format_size_full(moving->result->bytes + ROOM_MIN, G_FORMAT_SIZE_IEC_UNITS);
        free_text = g_format_size_full(moving->result->room, G_FORMAT_SIZE_IEC_UNITS);
        return wb_error_set(why, -ENOSPC, "there is no room in %s: %s are needed, %s are free; nothing was copied",
                            moving->result->to, wanted, free_text);
    }
    if (!look_only)
        moving->result->files = moving->result->bytes = moving->result->there = 0;
    return 0;
}

int wb_moving_clear(int dir_fd, bool is_grave)
{
    int r;

    /* The header first: without it, an older program does not take this for a store either. */
    if ((unlinkat(dir_fd, WB_HEADER_NAME, 0) < 0 && errno != ENOENT) ||
        (unlinkat(dir_fd, WB_ARRIVING_NAME, 0) < 0 && errno != ENOENT))
        return -errno;
    r = sweep(dir_fd, -1, "", 0, is_grave);
    if (r == 0 && ((unlinkat(dir_fd, WB_LOCK_NAME, 0) < 0 && errno != ENOENT) ||
                   (unlinkat(dir_fd, WB_MOVING_TEMPORARY, 0) < 0 && errno != ENOENT)))
        r = -errno;
    return r;
}

/* What leads to a store that was moved: from where it was, and from the tree. */

int wb_move_lead(int dir_fd, const struct wb_moving *moving)
{
    struct wb_signpost signpost = {.kind = WB_SIGNPOST_LEADS};

    memcpy(signpost.uuid, moving->coming.uuid, sizeof(signpost.uuid));
    g_strlcpy(signpost.path, moving->result->to, sizeof(signpost.path));
    return wb_signpost_write(dir_fd, &signpost);
}

/*
 * The tree itself says where its store is, unless there is another one in it. A graveyard in SRC becomes the directory
 * with the signpost, so that there is one directory of ours in SRC as before, and the root has as many links.
 */
int wb_move_lead_from_tree(const struct wb_move_places *places)
{
    const struct wb_moving *moving = &places->moving;
    _cleanup_close_ int fd = openat(places->src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int staging = -1;
    struct wb_signpost there;
    int r;

    if (fd >= 0)
        return wb_move_same_dir(fd, moving->to_fd) || wb_signpost_read(fd, &there) <= 0 ? 0 : wb_move_lead(fd, moving);
    staging = openat(places->src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (staging < 0) {
        r = staging = wb_store_dir_make_inside(places->src_fd);
        return r < 0 ? r : wb_move_lead(staging, moving);
    }
    r = wb_move_lead(staging, moving);
    if (r == 0 && renameat(places->src_fd, WB_STAGING_NAME, places->src_fd, WB_STORE_NAME) < 0)
        r = -errno;
    return r == 0 ? wb_fsync_dir(places->src_fd) : r;
}

/* The graveyard in SRC that nothing is in any more. */
void wb_move_remove_staging(const struct wb_move_places *places)
{
    _cleanup_close_ int grave = wb_store_dir_grave(places->src_fd, places->moving.to_fd, false);
    _cleanup_close_ int staging = openat(places->src_fd, WB_STAGING_NAME,
                                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[sizeof(WB_OBJECTS_NAME) + 3];

    if (staging < 0 || grave < 0 || wb_move_same_dir(grave, staging))
        return;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", i);
        unlinkat(staging, path, AT_REMOVEDIR);
    }
    unlinkat(staging, WB_OBJECTS_NAME, AT_REMOVEDIR);
    unlinkat(places->src_fd, WB_STAGING_NAME, AT_REMOVEDIR);
}
