/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/directory/store_place.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "format/stream.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int open_inside(int src_fd)
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

static int look_at_staging(int src_fd, struct wb_log_scans *ret)
{
    _cleanup_close_ int fd = openat(src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? 1 : has_no_objects(fd);

    if (r == 0)
        ret->kind = WB_TRACE_STAGING;
    return r < 0 ? r : 0;
}

int wb_log_scans_read(int src_fd, struct wb_log_scans *ret)
{
    _cleanup_close_ int fd = open_inside(src_fd);
    int r;

    *ret = (struct wb_log_scans){.kind = WB_TRACE_NONE};
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

bool wb_log_scans_are_of_a_copy(const struct wb_log_scans *scans, int src_fd)
{
    struct wb_object root;

    return scans->kind == WB_TRACE_SIGNPOST && scans->signpost.has_root &&
           wb_object_stat(NULL, src_fd, NULL, &root, NULL, NULL) == 0 && !wb_object_equal(root, scans->signpost.root);
}

int wb_store_place_missing(const struct wb_log_scans *scans, int src_fd, const char *home, struct wb_error *why)
{
    if (wb_log_scans_are_of_a_copy(scans, src_fd))
        return wb_error_set(why, -EXDEV,
                            "%s: this tree was copied or restored without its store (the signpost " WB_STORE_NAME
                            "/" WB_SIGNPOST_NAME " leads to the store %s of the original tree); create "
                            "a separate history with wayback --new-history, or, if the original tree does not exist "
                            "any more, bind its store to this one with vfsck --rebind --store=DIR",
                            home, scans->signpost.path);
    switch (scans->kind) {
    case WB_TRACE_NONE:
        return -ENOENT;
    case WB_TRACE_SIGNPOST:
        return wb_error_set(why, -ENODEV,
                            "%s: there is no store (the history of this tree is in %s); mount the file "
                            "system it is on, name its new place with store=DIR, or begin another history with "
                            "wayback --new-history",
                            home, scans->signpost.path);
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

int wb_store_place_check(const struct wb_store *store, const struct wb_log_scans *scans, const char *home,
                         struct wb_error *why)
{
    _cleanup_close_ int inside = open_inside(store->src_fd);
    struct wb_header header, other;

    /* The code that reads the header next reports a missing or damaged one. */
    if (inside < 0 || same_dir(inside, store->dir_fd) || read_header(store->dir_fd, &header) < 0)
        return 0;
    if (scans->kind == WB_TRACE_SIGNPOST && scans->signpost.kind != WB_SIGNPOST_REMAINS)
        return memcmp(header.uuid, scans->signpost.uuid, sizeof(header.uuid)) == 0
                   ? 0
                   : wb_error_set(why, -EXDEV,
                                  "%s: this store is not the one of this tree (the signpost " WB_STORE_NAME
                                  "/" WB_SIGNPOST_NAME
                                  " names another, in %s); mount without store=DIR, or begin another "
                                  "history in an empty directory with wayback --new-history",
                                  home, scans->signpost.path);
    /* A copy of the store may be read, to inspect its contents, but not written. */
    if ((scans->kind == WB_TRACE_SIGNPOST || scans->kind == WB_TRACE_STORE) &&
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
    _cleanup_close_ int fd = open_inside(src_fd);
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

int wb_store_place_is_free(int dir_fd, bool apart, const char *home, struct wb_error *why)
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
static int put_aside(int dir_fd, const char *name, int inside, const struct wb_log_scans *scans)
{
    char to[256];

    if (mkdirat(inside, WB_LOST_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    for (unsigned n = 0; n < 1000; n++) {
        snprintf(to, sizeof(to), WB_LOST_NAME "/%s-%02x%02x%02x%02x.%u", name[0] == '.' ? name + 1 : name,
                 scans->signpost.uuid[0], scans->signpost.uuid[1], scans->signpost.uuid[2], scans->signpost.uuid[3], n);
        if (renameat2(dir_fd, name, inside, to, RENAME_NOREPLACE) == 0)
            return wb_fsync_dir(inside);
        if (errno != EEXIST)
            return errno == ENOENT ? 0 : -errno;
    }
    return -EEXIST;
}

int wb_store_place_put_aside(const struct wb_store *store, const struct wb_log_scans *scans)
{
    _cleanup_close_ int inside = wb_store_dir_make_inside(store->src_fd);
    int r;

    if (inside < 0)
        return inside;
    r = has_no_objects(inside);
    if (r == 0)
        r = put_aside(inside, WB_OBJECTS_NAME, inside, scans);
    if (r >= 0 && same_dir(inside, store->dir_fd))
        r = wb_store_dir_fill(inside);
    if (r >= 0 && exists(store->src_fd, WB_STAGING_NAME))
        r = put_aside(store->src_fd, WB_STAGING_NAME, inside, scans);
    return r < 0 ? r : 0;
}
