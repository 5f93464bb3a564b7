/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store as a directory: whether its place is permitted, whether other users could read it, and the features of its
 * file system.
 */
#include "format/stream.h"
#include "base/dir.h"
#include "store/parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/signpost.h"
#include "store/directory/store_place.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

/* No path is deeper. */
#define PARENTS_MAX 4096

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether directory `fd` is that of `src`, or is inside it. 1, 0 or -errno. */
static int lies_inside(int fd, const struct stat *src)
{
    _cleanup_close_ int at = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st, last = {0};

    for (unsigned i = 0; i < PARENTS_MAX; i++) {
        int up;

        if (at < 0 || fstat(at, &st) < 0)
            return -errno;
        if (same_file(&st, src))
            return 1;
        if (same_file(&st, &last))
            return 0; /* the root is its own parent */
        last = st;
        up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = up;
    }
    return -ELOOP;
}

bool wb_store_dir_knows(const char *name)
{
    static const char *const names[] = {
        WB_HEADER_NAME,    WB_LOCK_NAME,     WB_INFLIGHT_NAME, WB_STAGES_NAME,     WB_IDENTITIES_NAME,
        WB_WRITEBACK_NAME, WB_GAPS_NAME,     WB_CLOCK_NAME,    WB_ACTORS_NAME,     WB_CONFIG_NAME,
        WB_SNAPSHOTS_NAME, WB_SIGNPOST_NAME, WB_SPANS_NAME,    WB_LOST_SLOTS_NAME, WB_RECEIVED_NAME,
        WB_RECEIVING_NAME, WB_ERASED_NAME,   WB_LOST_NAME,     WB_TIMELINE_NAME,   WB_OBJECTS_NAME,
        WB_MANIFEST_NAME,  "lost+found", /* of a file system that holds only a store */
    };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A crash may leave a replacement file without its final name. */
static bool is_half_made(const char *name)
{
    const char *plain = name[0] == '.' ? name + 1 : name;
    g_autofree char *whole = g_str_has_suffix(plain, ".new") ? g_strndup(plain, strlen(plain) - 4) : NULL;

    return (whole && wb_store_dir_knows(whole)) || strcmp(name, WB_PACK_NEW) == 0 ||
           strcmp(name, WB_BUNDLE_NEW) == 0 || strcmp(name, WB_BUNDLE_LINK_NEW) == 0 ||
           strcmp(name, WB_ARRIVING_NAME) == 0 || strcmp(name, ".probe") == 0;
}

/* Whether a directory is empty, or holds only entries of a store (perhaps an incomplete one). */
static int looks_like_store(int dir_fd)
{
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (fstatat(dir_fd, WB_HEADER_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    dir = wb_opendir_at(dir_fd, ".");
    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r))
        if (!wb_store_dir_knows(entry->d_name) && !is_half_made(entry->d_name))
            return 0;
    return r < 0 ? r : 1;
}

static int make_dir(int parent_fd, const char *name, const char *home, struct wb_error *why)
{
    struct timespec times[2];
    struct stat st;
    bool known = fstat(parent_fd, &st) == 0;

    if (mkdirat(parent_fd, name, 0700) < 0) {
        if (errno == EEXIST)
            return 0;
        return wb_error_set(why, -errno, "cannot create the store %s: %s", home, g_strerror(errno));
    }
    /* Restores the times of the parent directory, because no data of the user has changed. Failure is ignored. */
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    if (known && futimens(parent_fd, times) < 0)
        errno = 0;
    return wb_fsync_dir(parent_fd);
}

static int open_inside(int src_fd, unsigned flags, const char *home, struct wb_error *why)
{
    int fd, r;

    if (flags & WB_STORE_CREATE) {
        r = make_dir(src_fd, WB_STORE_NAME, home, why);
        if (r < 0)
            return r;
    }
    fd = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/*
 * A store inside SRC would record itself; only SRC/.wayback, which the mount hides, is permitted there. `name`: the
 * entry that will be created in directory `fd`, or NULL for the directory itself.
 */
static int check_outside(int src_fd, int fd, const char *name, const char *home, struct wb_error *why)
{
    struct stat src, at, inner;
    int r;

    if (fstat(src_fd, &src) < 0 || fstat(fd, &at) < 0)
        return -errno;
    r = lies_inside(fd, &src);
    if (r <= 0)
        return r;
    if (name && same_file(&at, &src) && strcmp(name, WB_STORE_NAME) == 0)
        return 0;
    if (!name && fstatat(src_fd, WB_STORE_NAME, &inner, AT_SYMLINK_NOFOLLOW) == 0 &&
        same_file(&at, &inner))
        return 0;
    return wb_error_set(why, -EINVAL, "the store %s is inside of the source directory; choose a place outside", home);
}

static int make_outside(int src_fd, const char *path, const char *home, struct wb_error *why)
{
    g_autofree char *parent = g_path_get_dirname(path);
    g_autofree char *name = g_path_get_basename(path);
    _cleanup_close_ int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (parent_fd < 0)
        return wb_error_set(why, -errno, "cannot create the store %s: %s: %s", home, parent, g_strerror(errno));
    r = check_outside(src_fd, parent_fd, name, home, why);
    return r < 0 ? r : make_dir(parent_fd, name, home, why);
}

static int open_outside(int src_fd, const char *path, unsigned flags, const char *home, struct wb_error *why)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (fd < 0 && errno == ENOENT && flags & WB_STORE_CREATE) {
        r = make_outside(src_fd, path, home, why);
        if (r < 0)
            return r;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    r = check_outside(src_fd, fd, NULL, home, why);
    return r < 0 ? r : wb_steal_fd(&fd);
}

/* The store holds former contents of all users: no other user may read it, let alone write. */
static int check_private(int fd, const char *home, struct wb_error *why)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return wb_error_set(why, -EPERM,
                            "the store %s is owned by user %u; run as that user, or change its owner with "
                            "chown -R %u %s",
                            home, st.st_uid, geteuid(), home);
    /* An existing directory may have been open to other users; a store must not be. */
    if (st.st_mode & 077 && fchmod(fd, 0700) < 0)
        return -errno;
    return 0;
}

/*
 * The graveyard in SRC of a store elsewhere. A tree whose store was once inside it still has SRC/.wayback with a
 * signpost: deleted files remain there, and new ones are added to them.
 */
int wb_store_dir_staging(int src_fd, bool create)
{
    _cleanup_close_ int fd = -1;
    struct wb_signpost signpost;
    struct stat st;
    int r;

    if (fstatat(src_fd, WB_STAGING_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        fd = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && wb_signpost_read(fd, &signpost) > 0) {
            r = create ? wb_store_dir_fill(fd) : 0;
            return r < 0 ? r : wb_steal_fd(&fd);
        }
        wb_close_fd(&fd);
    }
    if (create) {
        r = make_dir(src_fd, WB_STAGING_NAME, WB_STAGING_NAME, NULL);
        if (r < 0)
            return r;
    }
    fd = openat(src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = create ? check_private(fd, WB_STAGING_NAME, NULL) : 0;
    if (r == 0 && create)
        r = wb_store_dir_fill(fd);
    return r < 0 ? r : wb_steal_fd(&fd);
}

int wb_store_dir_grave(int src_fd, int dir_fd, bool create)
{
    int r = wb_store_dir_same_mount(src_fd, dir_fd), fd;

    if (r <= 0)
        return r < 0 ? r : wb_store_dir_staging(src_fd, create);
    fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int wb_store_dir_make(int src_fd, const char *path, struct wb_error *why)
{
    g_autofree char *name = g_path_get_basename(path);
    g_autofree char *parent = g_path_get_dirname(path);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int parent_fd = -1;
    int r = 0;

    if (fd < 0 && errno == ENOENT) {
        parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = parent_fd < 0 ? -errno : check_outside(src_fd, parent_fd, name, path, why);
        if (r == 0)
            r = make_dir(parent_fd, name, path, why);
        if (r < 0)
            return why->text[0] ? r : wb_error_set(why, r, "cannot create %s: %s", path, g_strerror(-r));
        fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return wb_error_set(why, -errno, "cannot open %s: %s", path, g_strerror(errno));
    r = check_outside(src_fd, fd, NULL, path, why);
    if (r == 0)
        r = check_private(fd, path, why);
    return r < 0 ? r : wb_steal_fd(&fd);
}

int wb_store_dir_make_inside(int src_fd)
{
    return open_inside(src_fd, WB_STORE_CREATE, WB_STORE_NAME, NULL);
}

int wb_store_dir_open(int src_fd, const char *store_path, unsigned flags, const char *home, struct wb_error *why)
{
    _cleanup_close_ int fd = -1;
    int r;

    wb_error_set(why, 0, "%s", "");
    fd = store_path ? open_outside(src_fd, store_path, flags, home, why)
                    : open_inside(src_fd, flags, home, why);
    if (fd < 0) {
        if (why && !why->text[0])
            wb_error_set(why, 0,
                         fd == -ENOENT ? "there is no store %s: nothing was recorded here yet"
                                       : "cannot open the store %s: %s",
                         home, g_strerror(-fd));
        return fd;
    }
    r = flags & WB_STORE_ANOTHER ? wb_store_place_is_free(fd, store_path != NULL, home, why)
                                 : wb_signpost_follow(&fd, flags & WB_STORE_WRITE, home, why);
    if (r > 0)
        r = check_outside(src_fd, fd, NULL, home, why);
    if (r < 0)
        return r;
    r = looks_like_store(fd);
    if (r == 0)
        r = wb_error_set(why, -ENOTEMPTY, "%s is neither a store nor empty; choose an empty or a new directory", home);
    else if (r < 0)
        wb_error_set(why, r, "cannot read %s: %s", home, g_strerror(-r));
    else
        r = flags & WB_STORE_WRITE ? check_private(fd, home, why) : 0;
    return r < 0 ? r : wb_steal_fd(&fd);
}

int wb_store_dir_fill(int dir_fd)
{
    _cleanup_close_ int fd = -1;
    char name[3];

    if (mkdirat(dir_fd, WB_OBJECTS_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(dir_fd, WB_OBJECTS_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(name, sizeof(name), "%02x", i);
        if (mkdirat(fd, name, 0700) < 0 && errno != EEXIST)
            return -errno;
    }
    return wb_fsync_dir(fd);
}

/* A symbolic link among the directories of logs would lead out of the store. */
int wb_store_dir_check(int dir_fd)
{
    char path[sizeof(WB_OBJECTS_NAME) + 3];
    struct stat st;

    for (int i = -1; i < 256; i++) {
        if (i < 0)
            snprintf(path, sizeof(path), WB_OBJECTS_NAME);
        else
            snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", (unsigned)i & 0xff);
        if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno != ENOENT)
                return -errno;
        } else if (!S_ISDIR(st.st_mode)) {
            return -ENOTDIR;
        }
    }
    return 0;
}

/* ---- features of the file system ------------------------------------------------------------- */

int wb_store_dir_same_mount(int a_fd, int b_fd)
{
    struct statx a, b;
    unsigned mask = STATX_BASIC_STATS | STATX_MNT_ID;

    if (statx(a_fd, "", AT_EMPTY_PATH, mask, &a) < 0 || statx(b_fd, "", AT_EMPTY_PATH, mask, &b) < 0)
        return -errno;
    /* rename(2) requires the same mount, not only the same device. */
    return a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor &&
           a.stx_mnt_id == b.stx_mnt_id;
}

static int nameless_file(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd >= 0)
        return fd;
    fd = openat(dir_fd, ".probe", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    unlinkat(dir_fd, ".probe", 0);
    return fd;
}

bool wb_store_dir_can_clone(int dir_fd)
{
    _cleanup_close_ int from = nameless_file(dir_fd);
    _cleanup_close_ int to = nameless_file(dir_fd);
    uint8_t data[4096] = {1};

    return from >= 0 && to >= 0 && wb_pwrite_full(from, data, sizeof(data), 0) == 0 &&
           ioctl(to, FICLONE, from) == 0;
}
