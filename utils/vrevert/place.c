/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "revert.h"
#include "common/cli.h"
#include "common/control.h"
#include "common/copy.h"
#include "common/fd.h"
#include "common/moment.h"
#include "common/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/*
 * Giving a name the object it had. Whatever has the name now is never lost on the way: a file is
 * replaced atomically (it goes into history), anything else changes places with the newcomer and
 * stays under a temporary or its old name until it is called for or swept away.
 */

char *revert_relative(const struct revert *revert, const char *path)
{
    const char *rest;

    if (!wb_path_below(path, revert->place->mount->prefix, &rest))
        return NULL;
    return g_strdup(rest);
}

bool revert_inside(const struct revert *revert, const char *path, char **ret)
{
    g_autofree char *relative = revert_relative(revert, path);
    g_autofree char *parent = NULL;
    const char *rest;

    *ret = NULL;
    if (!relative)
        return false;
    if (!wb_path_below(relative, revert->place->path, &rest) || !*rest) {
        /* Put aside beside the path itself, by this run or by one that was interrupted. */
        parent = wb_path_parent(revert->place->path, NULL);
        if (!*revert->place->path || !wb_path_below(relative, parent, &rest) ||
            !g_str_has_prefix(rest, revert->aside))
            return false;
    }
    *ret = g_steal_pointer(&relative);
    return true;
}

/* dir/name; by its whole path where the directory may be searched but not read (no ioctl then). */
static int identify(const struct revert *revert, int dir, const char *name, const char *path,
                    struct wb_control_identity *ret)
{
    int r = wb_control_identify(dir, name, ret);

    return r == -EBADF ? wb_control_identify(revert->place->mount->root_fd, path, ret) : r;
}

int revert_look(struct revert *revert, struct spot *spot)
{
    int r;

    spot->found_dir = -1;
    if (fstatat(spot->past_dir, spot->past_name, &spot->want, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    r = identify(revert, spot->past_dir, spot->past_name, spot->source, &spot->identity);
    if (r < 0)
        return r;
    spot->exists = spot->dir >= 0 && fstatat(spot->dir, spot->name, &spot->have, AT_SYMLINK_NOFOLLOW) == 0 &&
                   !(spot->have.st_ino & WB_PAST_INODE);
    /* A living inode number is one object: no need to ask for its birth. */
    spot->same = spot->exists && spot->identity.state == WB_CONTROL_ALIVE &&
                 spot->have.st_ino == spot->identity.number &&
                 (spot->have.st_mode & S_IFMT) == (spot->want.st_mode & S_IFMT);
    /* The root is always the root. */
    if (!*spot->path && spot->exists)
        spot->same = true;
    return 0;
}

void revert_leave(struct spot *spot)
{
    if (spot->found_dir >= 0)
        close(spot->found_dir);
    spot->found_dir = -1;
    g_clear_pointer(&spot->found_name, g_free);
}

static void temporary_name(const struct revert *revert, char name[48])
{
    snprintf(name, 48, "%s%08x", revert->aside, g_random_int());
}

/* What has the name now loses it and will be found under `temporary` (with `dry`: where it is). */
static void note_aside(struct revert *revert, const struct spot *spot, const char *temporary)
{
    g_autofree char *parent = wb_path_parent(spot->path, NULL);

    g_hash_table_insert(revert->aside_of, revert->dry ? g_strdup(spot->path) : wb_path_join(parent, temporary),
                        g_strdup(spot->path));
}

/*
 * The newcomer is at dir/temporary, in its directory; now it gets the name. A file replaces a file;
 * otherwise what was there takes the temporary name.
 */
static int put(struct revert *revert, const struct spot *spot, const char *temporary)
{
    bool aside = spot->exists && (S_ISDIR(spot->want.st_mode) || S_ISDIR(spot->have.st_mode));
    unsigned flags = aside ? RENAME_EXCHANGE : spot->exists ? 0 : RENAME_NOREPLACE;

    if (aside)
        note_aside(revert, spot, temporary);
    if (revert->dry)
        return 0;
    return renameat2(spot->dir, temporary, spot->dir, spot->name, flags) < 0 ? -errno : 0;
}

/* ---- out of the graveyard ---------------------------------------------------------------------- */

static int restore(struct revert *revert, struct spot *spot)
{
    int root = revert->place->mount->root_fd;
    g_autofree char *parent = wb_path_parent(spot->path, NULL);
    g_autofree char *aside = NULL;
    char temporary[48], key[48];
    const char *first;
    int r;

    temporary_name(revert, temporary);
    aside = wb_path_join(parent, temporary);
    if (revert->dry)
        r = put(revert, spot, temporary);
    else if (!spot->exists || (!S_ISDIR(spot->want.st_mode) && !S_ISDIR(spot->have.st_mode)))
        r = wb_control_restore(root, spot->path, spot->source);
    else
        r = wb_control_restore(root, aside, spot->source) ?: put(revert, spot, temporary);
    if (r < 0)
        return r;
    revert_key(&spot->identity, key);
    first = revert->dry ? g_hash_table_lookup(revert->placed, key) : NULL;
    revert_report(revert, first ? REVERT_LINK : REVERT_RESTORE, spot->path, first, 0);
    if (revert->dry && !first)
        g_hash_table_insert(revert->placed, g_strdup(key), g_strdup(spot->path));
    return 0;
}

/* ---- from where it lives ----------------------------------------------------------------------- */

static int link_from(struct revert *revert, struct spot *spot, const char *living)
{
    const char *name;
    _cleanup_fd_ int from = -1;
    char temporary[48];
    int r;

    if (!revert->dry) {
        from = wb_fd_open_parent(revert->place->mount->root_fd, living, &name);
        if (from < 0)
            return from;
        temporary_name(revert, temporary);
        if (linkat(from, name, spot->dir, spot->exists ? temporary : spot->name, 0) < 0)
            return -errno;
        r = spot->exists ? put(revert, spot, temporary) : 0;
        if (r < 0)
            return r;
    }
    revert_report(revert, REVERT_LINK, spot->path, living, 0);
    return 0;
}

static int rename_from(struct revert *revert, struct spot *spot, const char *living)
{
    const char *name;
    _cleanup_fd_ int from = wb_fd_open_parent(revert->place->mount->root_fd, living, &name);
    unsigned flags = spot->exists ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    char temporary[48] = "";

    if (from < 0)
        return from;
    if (!revert->dry && renameat2(from, name, spot->dir, spot->name, flags) < 0) {
        if (errno != EINVAL || !spot->exists)
            return -errno;
        /* It lives below what has its name now: out of there first. */
        temporary_name(revert, temporary);
        if (renameat2(from, name, spot->dir, temporary, RENAME_NOREPLACE) < 0 ||
            renameat2(spot->dir, temporary, spot->dir, spot->name, RENAME_EXCHANGE) < 0)
            return -errno;
        note_aside(revert, spot, temporary);
    } else if (revert->dry && spot->exists) {
        note_aside(revert, spot, "");
    }
    revert_touch_directory(revert, from);
    revert_report(revert, REVERT_RENAME, spot->path, living, 0);
    if (!revert->dry && spot->exists && !*temporary)
        g_hash_table_insert(revert->aside_of, g_strdup(living), g_strdup(spot->path));
    return 0;
}

/* ---- a new object ------------------------------------------------------------------------------ */

/* Whether what has the name now may become the copy: made after T, of that kind, nobody else's. */
static bool is_stand_in(const struct revert *revert, const struct spot *spot)
{
    struct wb_control_identity now;
    char want[PATH_MAX], have[PATH_MAX];
    ssize_t n;

    if (!spot->exists || (spot->have.st_mode & S_IFMT) != (spot->want.st_mode & S_IFMT) ||
        (!S_ISDIR(spot->have.st_mode) && spot->have.st_nlink > 1) ||
        identify(revert, spot->dir, spot->name, spot->path, &now) < 0 || now.birth <= revert->when)
        return false;
    if (S_ISLNK(spot->want.st_mode)) {
        n = readlinkat(spot->past_dir, spot->past_name, want, sizeof(want));
        return n >= 0 && readlinkat(spot->dir, spot->name, have, sizeof(have)) == n &&
               memcmp(want, have, (size_t)n) == 0;
    }
    return spot->have.st_rdev == spot->want.st_rdev;
}

static int make_copy(const struct spot *spot, const char *temporary)
{
    _cleanup_fd_ int from = -1;
    _cleanup_fd_ int to = -1;

    if (S_ISDIR(spot->want.st_mode))
        return mkdirat(spot->dir, temporary, 0700) < 0 ? -errno : 0;
    if (!S_ISREG(spot->want.st_mode))
        return wb_copy_special(spot->past_dir, spot->past_name, &spot->want, spot->dir, temporary);
    from = openat(spot->past_dir, spot->past_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0)
        return -errno;
    to = openat(spot->dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return to < 0 ? -errno : wb_copy_data(from, to);
}

static int copy(struct revert *revert, struct spot *spot)
{
    char temporary[48], key[48];
    const char *first;
    int r;

    revert_key(&spot->identity, key);
    first = g_hash_table_lookup(revert->placed, key);
    if (first && !S_ISDIR(spot->want.st_mode))
        return link_from(revert, spot, first);
    g_hash_table_insert(revert->placed, g_strdup(key), g_strdup(spot->path));
    if (is_stand_in(revert, spot)) {
        spot->same = true;
        return 0;
    }
    temporary_name(revert, temporary);
    r = revert->dry ? 0 : make_copy(spot, temporary);
    if (r == 0)
        r = put(revert, spot, temporary);
    if (r < 0) {
        unlinkat(spot->dir, temporary, S_ISDIR(spot->want.st_mode) ? AT_REMOVEDIR : 0);
        return r;
    }
    spot->fresh = !revert->dry;
    revert_report(revert, REVERT_COPY, spot->path, NULL,
                  S_ISREG(spot->want.st_mode) ? (uint64_t)spot->want.st_size : 0);
    return 0;
}

/* ---- which of them ----------------------------------------------------------------------------- */

/* With `dry` nothing moves: the walk goes on where the object is now. */
static void go_on_there(struct revert *revert, struct spot *spot, const char *living)
{
    const char *name;
    char key[48];

    revert_key(&spot->identity, key);
    g_hash_table_insert(revert->placed, g_strdup(key), g_strdup(living));
    revert_add(revert->moved, spot->identity.number);
    spot->found_dir = wb_fd_open_parent(revert->place->mount->root_fd, living, &name);
    spot->found_name = g_strdup(name);
}

static int bring_living(struct revert *revert, struct spot *spot)
{
    g_autofree char *inside = NULL;
    g_autofree char *relative = revert_relative(revert, spot->identity.path);
    bool is_dir = S_ISDIR(spot->want.st_mode);
    int r;

    if (!is_dir && relative && revert_is_own(revert, spot, relative)) {
        r = link_from(revert, spot, relative);
        if (r != -EMLINK && r != -EPERM && r != -EXDEV && r != -EOPNOTSUPP)
            goto there;
        return copy(revert, spot);
    }
    /* Outside it stays where it is: the user did not name it. */
    if (!revert_inside(revert, spot->identity.path, &inside))
        return copy(revert, spot);
    if (revert->dry && !is_dir) {
        char key[48];

        revert_key(&spot->identity, key);
        if (g_hash_table_contains(revert->placed, key)) {
            r = link_from(revert, spot, relative);
            goto there;
        }
    }
    r = rename_from(revert, spot, inside);
there:
    if (r == 0 && revert->dry)
        go_on_there(revert, spot, relative);
    return r;
}

/* After this there is no other way than to say so. */
static bool is_final(int error)
{
    return error == -EACCES || error == -EPERM || error == -ENOSPC || error == -EDQUOT || error == -EROFS ||
           error == -ENOTCONN || error == -EINTR;
}

int revert_bring(struct revert *revert, struct spot *spot)
{
    int r;

    if (wb_cli_interrupted())
        return -EINTR;
    switch (spot->identity.state) {
    case WB_CONTROL_ALIVE:
        r = bring_living(revert, spot);
        break;
    case WB_CONTROL_BURIED:
        r = restore(revert, spot);
        if (r < 0 && !is_final(r))
            r = copy(revert, spot);
        break;
    default:
        r = copy(revert, spot);
    }
    if (r == 0 && spot->dir >= 0)
        revert_touch_directory(revert, spot->dir);
    if (r == 0 && !revert->dry) {
        if (fstatat(spot->dir, spot->name, &spot->have, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        spot->exists = spot->same = true;
        revert_add(revert->touched, spot->have.st_ino);
    }
    return r;
}
