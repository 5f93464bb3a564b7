/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The store as a directory: whether its place is permitted, whether other users could read it, and the features of its
 * file system.
 */
#include "format/stream.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/directory/signpost.h"
#include "store/directory/store_place.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static int open_place_inside(int src_fd)
{
    int fd = openat(src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static bool exists(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool same_dir(int a_fd, int b_fd)
{
    struct stat a, b;

    return fstat(a_fd, &a) == 0 && fstat(b_fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether a directory has no entries, or does not exist. 1, 0 or -errno. */
static int is_empty(int dir_fd, const char *path)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(dir_fd, path);
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return errno == ENOENT || errno == ENOTDIR ? 1 : -errno;
    if (wb_next_entry(dir, &entry, &r))
        return 0;
    return r < 0 ? r : 1;
}

/* Whether no shard has a file in it. 1, 0 or -errno. */
static int has_no_objects(int dir_fd)
{
    char path[sizeof(WB_OBJECTS_NAME) + 3];
    int r = 1;

    if (!exists(dir_fd, WB_OBJECTS_NAME))
        return 1;
    for (unsigned i = 0; r > 0 && i < 256; i++) {
        snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", i);
        r = is_empty(dir_fd, path);
    }
    return r;
}

int wb_store_is_bare(int dir_fd)
{
    /* None of these is created before the header. */
    static const char *const names[] = {
        WB_INFLIGHT_NAME, WB_STAGES_NAME,    WB_IDENTITIES_NAME, WB_WRITEBACK_NAME, WB_GAPS_NAME,     WB_CLOCK_NAME,
        WB_ACTORS_NAME,   WB_SNAPSHOTS_NAME, WB_ERASED_NAME,     WB_TIMELINE_NAME,  WB_ARRIVING_NAME, WB_MANIFEST_NAME,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        if (exists(dir_fd, names[i]))
            return 0;
    return has_no_objects(dir_fd);
}

static int look_at_staging(int src_fd, struct wb_store_traces *ret)
{
    _cleanup_close_ int fd = openat(src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? 1 : has_no_objects(fd);

    if (r == 0)
        ret->kind = WB_TRACE_STAGING;
    return r < 0 ? r : 0;
}

int wb_store_traces_read(int src_fd, struct wb_store_traces *ret)
{
    _cleanup_close_ int fd = open_place_inside(src_fd);
    int r;

    *ret = (struct wb_store_traces){.kind = WB_TRACE_NONE};
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return look_at_staging(src_fd, ret);
    if (fd < 0)
        return fd;
    r = wb_signpost_read(fd, &ret->signpost);
    if (r < 0)
        ret->kind = WB_TRACE_UNREADABLE;
    else if (r > 0)
        ret->kind = WB_TRACE_SIGNPOST;
    else if (exists(fd, WB_HEADER_NAME))
        ret->kind = WB_TRACE_STORE;
    if (ret->kind != WB_TRACE_NONE)
        return 0;
    r = wb_store_is_bare(fd);
    if (r == 0)
        ret->kind = WB_TRACE_REMNANTS;
    return r > 0 ? look_at_staging(src_fd, ret) : r;
}

bool wb_store_traces_are_of_a_copy(const struct wb_store_traces *traces, int src_fd)
{
    struct wb_object root;

    return traces->kind == WB_TRACE_SIGNPOST && traces->signpost.has_root &&
           wb_object_stat(NULL, src_fd, NULL, &root, NULL, NULL) == 0 && !wb_object_equal(root, traces->signpost.root);
}

int wb_store_place_missing(const struct wb_store_traces *traces, int src_fd, const char *home, struct wb_error *why)
{
    if (wb_store_traces_are_of_a_copy(traces, src_fd))
        return wb_error_set(why, -EXDEV,
                            "%s: this tree was copied or restored without its store (the signpost " WB_STORE_NAME
                            "/" WB_SIGNPOST_NAME " leads to the store %s of the original tree); create "
                            "a separate history with wayback --new-history, or, if the original tree does not exist "
                            "any more, bind its store to this one with vfsck --rebind --store=DIR",
                            home, traces->signpost.path);
    switch (traces->kind) {
    case WB_TRACE_NONE:
        return -ENOENT;
    case WB_TRACE_SIGNPOST:
        return wb_error_set(why, -ENODEV,
                            "%s: there is no store (the history of this tree is in %s); mount the file "
                            "system it is on, name its new place with store=DIR, or begin another history with "
                            "wayback --new-history",
                            home, traces->signpost.path);
    case WB_TRACE_UNREADABLE:
        return wb_error_set(why, -EBADMSG,
                            "%s: there is no store (the history of this tree is elsewhere, and the "
                            "signpost " WB_STORE_NAME "/" WB_SIGNPOST_NAME " is damaged); name its place with "
                            "store=DIR, or begin another history with wayback --new-history",
                            home);
    case WB_TRACE_STORE:
        return wb_error_set(why, -EEXIST,
                            "%s: there is no store (the history of this tree is in " WB_STORE_NAME
                            " in it); mount it without store=DIR, or move the history with vstore move",
                            home);
    case WB_TRACE_REMNANTS:
        return wb_error_set(why, -EBADMSG,
                            "%s: the store cannot be opened (" WB_STORE_NAME " has history, but its "
                            "file " WB_HEADER_NAME
                            " is missing); run vfsck -y to rebuild the header, or move " WB_STORE_NAME
                            " out of the tree to begin another history",
                            home);
    case WB_TRACE_STAGING:
        return wb_error_set(why, -ENODEV,
                            "%s: there is no store (" WB_STAGING_NAME " holds deleted files of a store "
                            "in another place); name that place with store=DIR, or begin another history with "
                            "wayback --new-history",
                            home);
    }
    return -ENOENT;
}

static int read_header(int dir_fd, struct wb_header *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    size_t length = 0;
    int r = fd < 0 ? fd : wb_pread_full(fd, data, sizeof(data), 0, &length);

    return r < 0 ? r : wb_header_decode(data, length, ret);
}

int wb_store_place_check(const struct wb_store *store, const struct wb_store_traces *traces, const char *home,
                         struct wb_error *why)
{
    _cleanup_close_ int inside = open_place_inside(store->src_fd);
    struct wb_header header, other;

    /* The code that reads the header next reports a missing or damaged one. */
    if (inside < 0 || same_dir(inside, store->dir_fd) || read_header(store->dir_fd, &header) < 0)
        return 0;
    if (traces->kind == WB_TRACE_SIGNPOST && traces->signpost.kind != WB_SIGNPOST_REMAINS)
        return memcmp(header.uuid, traces->signpost.uuid, sizeof(header.uuid)) == 0
                   ? 0
                   : wb_error_set(why, -EXDEV,
                                  "%s: this store is not the one of this tree (the signpost " WB_STORE_NAME
                                  "/" WB_SIGNPOST_NAME
                                  " names another, in %s); mount without store=DIR, or begin another "
                                  "history in an empty directory with wayback --new-history",
                                  home, traces->signpost.path);
    /* A copy of the store may be read, to inspect its contents, but not written. */
    if ((traces->kind == WB_TRACE_SIGNPOST || traces->kind == WB_TRACE_STORE) &&
        (store->writable ||
         (read_header(inside, &other) == 0 && memcmp(header.uuid, other.uuid, sizeof(header.uuid)) != 0)))
        return wb_error_set(why, -EXDEV,
                            "%s: this store is not the one of this tree (its history is in " WB_STORE_NAME
                            " in it); mount without store=DIR, or move that directory out of the tree",
                            home);
    return 0;
}

/* False for a store that was created and never opened for changes: a crash interrupted its creation. */
static bool was_used(int dir_fd)
{
    return wb_store_is_bare(dir_fd) <= 0;
}

int wb_store_place_may_begin(int src_fd, struct wb_error *why)
{
    _cleanup_close_ int fd = open_place_inside(src_fd);
    struct wb_signpost signpost;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0
                             : wb_error_set(why, fd,
                                            WB_STORE_NAME ": cannot be read (%s); remove it to "
                                                          "begin another history",
                                            g_strerror(-fd));
    r = wb_signpost_read(fd, &signpost);
    /* Beside a signpost that leads away there may only be deleted files of the history elsewhere. */
    if (r < 0 || (r > 0 && signpost.kind == WB_SIGNPOST_LEADS) || !was_used(fd))
        return 0;
    return wb_error_set(why, -EEXIST,
                        "--new-history: the tree has a history (" WB_STORE_NAME " in it is a store); "
                        "move that directory out of the tree, or delete it, to begin another");
}

/* The same for the directory that will hold it. */
static int store_place_is_free(int dir_fd, bool apart, const char *home, struct wb_error *why)
{
    if ((!apart && !exists(dir_fd, WB_INFLIGHT_NAME)) ||
        (apart && !was_used(dir_fd) && !exists(dir_fd, WB_SIGNPOST_NAME)))
        return 0;
    return wb_error_set(why, -EEXIST,
                        "--new-history: %s holds a history already; name an empty directory with "
                        "store=DIR, or leave --new-history (new_history) out",
                        home);
}

/* The canonical path of the store: without symbolic links, and independent of the name that the caller used. */
static int path_of(int dir_fd, char path[WB_SIGNPOST_PATH_MAX])
{
    char link[32];
    ssize_t length = readlink(wb_fd_path(dir_fd, link), path, WB_SIGNPOST_PATH_MAX - 1);

    if (length < 0)
        return -errno;
    if (length == WB_SIGNPOST_PATH_MAX - 1)
        return -ENAMETOOLONG;
    path[length] = '\0';
    return path[0] == '/' ? 0 : -ENOENT;
}

int wb_store_place_mark(const struct wb_store *store)
{
    _cleanup_close_ int fd = wb_store_dir_make_inside(store->src_fd);
    struct wb_signpost there, signpost = {.kind = WB_SIGNPOST_LEADS, .has_root = true};
    int r, stands;

    if (fd < 0)
        return fd;
    r = stands = wb_signpost_read(fd, &there);
    if (same_dir(fd, store->dir_fd))
        return stands != 0 && (stands < 0 || there.kind == WB_SIGNPOST_LEADS) ? wb_signpost_remove(fd) : 0;
    memcpy(signpost.uuid, store->header.uuid, sizeof(signpost.uuid));
    r = path_of(store->dir_fd, signpost.path);
    if (r == 0)
        r = wb_object_stat(NULL, store->src_fd, NULL, &signpost.root, NULL, NULL);
    if (r < 0)
        return r;
    if (stands > 0 && there.kind == signpost.kind && there.has_root && wb_object_equal(there.root, signpost.root) &&
        strcmp(there.path, signpost.path) == 0 && memcmp(there.uuid, signpost.uuid, sizeof(there.uuid)) == 0)
        return 0;
    if (fchmod(fd, 0700) < 0)
        return -errno;
    return wb_signpost_write(fd, &signpost);
}

/* Renames DIR/NAME to SRC/.wayback/lost/NAME-UUID. */
static int put_aside(int dir_fd, const char *name, int inside, const struct wb_store_traces *traces)
{
    char to[256];

    if (mkdirat(inside, WB_LOST_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    for (unsigned n = 0; n < 1000; n++) {
        snprintf(to, sizeof(to), WB_LOST_NAME "/%s-%02x%02x%02x%02x.%u", name[0] == '.' ? name + 1 : name,
                 traces->signpost.uuid[0], traces->signpost.uuid[1], traces->signpost.uuid[2],
                 traces->signpost.uuid[3], n);
        if (renameat2(dir_fd, name, inside, to, RENAME_NOREPLACE) == 0)
            return wb_fsync_dir(inside);
        if (errno != EEXIST)
            return errno == ENOENT ? 0 : -errno;
    }
    return -EEXIST;
}

int wb_store_place_put_aside(const struct wb_store *store, const struct wb_store_traces *traces)
{
    _cleanup_close_ int inside = wb_store_dir_make_inside(store->src_fd);
    int r;

    if (inside < 0)
        return inside;
    r = has_no_objects(inside);
    if (r == 0)
        r = put_aside(inside, WB_OBJECTS_NAME, inside, traces);
    if (r >= 0 && same_dir(inside, store->dir_fd))
        r = wb_store_dir_fill(inside);
    if (r >= 0 && exists(store->src_fd, WB_STAGING_NAME))
        r = put_aside(store->src_fd, WB_STAGING_NAME, inside, traces);
    return r < 0 ? r : 0;
}

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

bool wb_store_dir_owns(const char *name)
{
    return wb_store_dir_knows(name) || is_half_made(name);
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
        if (!wb_store_dir_owns(entry->d_name))
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
    r = flags & WB_STORE_ANOTHER ? store_place_is_free(fd, store_path != NULL, home, why)
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

static bool is_shard_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 2 && !name[2];
}

/*
 * A symbolic link among the directories of logs would lead out of the store. Each opening of a store comes here, so the
 * types are read with the names, where the file system gives them, rather than with 256 calls of stat(2).
 */
int wb_store_dir_check(int dir_fd)
{
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (fstatat(dir_fd, WB_OBJECTS_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    dir = wb_opendir_at(dir_fd, WB_OBJECTS_NAME);
    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        if (entry->d_type == DT_DIR || !is_shard_name(entry->d_name))
            continue;
        if (entry->d_type != DT_UNKNOWN)
            return -ENOTDIR;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? 0 : -errno;
        else if (!S_ISDIR(st.st_mode))
            return -ENOTDIR;
    }
    return r;
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
