/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/control.h"
#include "client/copy/copy.h"
#include "client/copy/flags.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/*
 * Gives a name the object that it had. The object that has the name now is never lost: a file is replaced atomically
 * (and is kept in history), anything else is exchanged with the new object and keeps a temporary name, or the former
 * name of the new object, until another name needs it or pass 2 removes it.
 */

char *revert_relative(const struct revert *revert, const char *path)
{
    const char *rest;

    if (!wb_path_below(path, revert->mount->prefix, &rest))
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
    if (!wb_path_below(relative, revert->path, &rest) || !*rest) {
        /* Put aside beside the path itself, by this run or by one that was interrupted. */
        parent = wb_path_parent(revert->path, NULL);
        if (!*revert->path || !wb_path_below(relative, parent, &rest) ||
            !g_str_has_prefix(rest, revert->aside))
            return false;
    }
    *ret = g_steal_pointer(&relative);
    return true;
}

/* Identifies dir/name; by its whole path if the directory may be searched but not read, which excludes an ioctl. */
static int identify(const struct revert *revert, int dir, const char *name, const char *path,
                    struct wb_control_identity *ret)
{
    int r = wb_request_identify(dir, name, ret);

    return r == -EBADF ? wb_request_identify(revert->mount->root_fd, path, ret) : r;
}

int revert_look(struct revert *revert, struct revision *revision)
{
    int r;

    revision->found_dir = -1;
    if (fstatat(revision->past_dir, revision->past_name, &revision->want, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    r = identify(revert, revision->past_dir, revision->past_name, revision->source, &revision->identity);
    if (r < 0)
        return r;
    revision->exists = revision->dir >= 0 &&
                       fstatat(revision->dir, revision->name, &revision->have, AT_SYMLINK_NOFOLLOW) == 0 &&
                       !(revision->have.st_ino & WB_PAST_INODE);
    if (revision->exists && *revision->path &&
        revert_is_mount(revert, revision->dir, revision->name, &revision->have))
        return -EXDEV;
    /* An inode number that is in use belongs to one object, so its birth need not be compared. */
    revision->same = revision->exists && revision->identity.state == WB_CONTROL_ALIVE &&
                     revision->have.st_ino == revision->identity.number &&
                     (revision->have.st_mode & S_IFMT) == (revision->want.st_mode & S_IFMT);
    /* The root is always the root. */
    if (!*revision->path && revision->exists)
        revision->same = true;
    return 0;
}

void revert_leave(struct revision *revision)
{
    if (revision->found_dir >= 0)
        close(revision->found_dir);
    revision->found_dir = -1;
    g_clear_pointer(&revision->found_name, g_free);
}

static void temporary_name(const struct revert *revert, char name[48])
{
    snprintf(name, 48, "%s%08x", revert->aside, g_random_int());
}

/* Notes that the object that has the name now gets the name `temporary` (with `dry`: keeps its own). */
static void note_aside(struct revert *revert, const struct revision *revision, const char *temporary)
{
    g_autofree char *parent = wb_path_parent(revision->path, NULL);

    g_hash_table_insert(revert->aside_of, revert->dry ? g_strdup(revision->path) : wb_path_join(parent, temporary),
                        g_strdup(revision->path));
}

/*
 * Gives the name to the new object, which is dir/temporary. A file replaces a file; otherwise the old object gets the
 * temporary name.
 */
static int put(struct revert *revert, const struct revision *revision, const char *temporary)
{
    bool aside = revision->exists && (S_ISDIR(revision->want.st_mode) || S_ISDIR(revision->have.st_mode));
    unsigned flags = aside ? RENAME_EXCHANGE : revision->exists ? 0 : RENAME_NOREPLACE;

    if (aside)
        note_aside(revert, revision, temporary);
    if (revert->dry)
        return 0;
    return renameat2(revision->dir, temporary, revision->dir, revision->name, flags) < 0 ? -errno : 0;
}

/* ---- from the graveyard ------------------------------------------------------------------------ */

static int restore(struct revert *revert, struct revision *revision)
{
    int root = revert->mount->root_fd;
    g_autofree char *parent = wb_path_parent(revision->path, NULL);
    g_autofree char *aside = NULL;
    char temporary[48], key[48];
    const char *first;
    int r;

    temporary_name(revert, temporary);
    aside = wb_path_join(parent, temporary);
    if (revert->dry)
        r = put(revert, revision, temporary);
    else if (!revision->exists || (!S_ISDIR(revision->want.st_mode) && !S_ISDIR(revision->have.st_mode)))
        r = wb_request_restore(root, revision->path, revision->source);
    else
        r = wb_request_restore(root, aside, revision->source) ?: put(revert, revision, temporary);
    if (r < 0)
        return r;
    revert_key(&revision->identity, key);
    first = revert->dry ? g_hash_table_lookup(revert->set->placed, key) : NULL;
    revert_report(revert, first ? REVERT_LINK : REVERT_RESTORE, revision->path, first, 0);
    if (revert->dry && !first)
        g_hash_table_insert(revert->set->placed, g_strdup(key), g_strdup(revision->path));
    return 0;
}

/* ---- from its present name --------------------------------------------------------------------- */

/* Notes the object that is put there. Names may change at any time, so it is compared by its inode afterwards. */
static int mean(struct revision *revision, int held)
{
    revision->is_meant = fstat(held, &revision->meant) == 0;
    return revision->is_meant ? 0 : -errno;
}

/* Holds `living`, which must have that inode (0: any, because no inode is known). A descriptor or -errno. */
static int hold_living(const struct revert *revert, const char *living, uint64_t inode, int *ret_dir,
                       const char **ret_name)
{
    _cleanup_fd_ int held = -1;
    struct stat st;

    *ret_dir = wb_fd_open_parent(revert->mount->root_fd, living, ret_name);
    if (*ret_dir < 0)
        return *ret_dir;
    held = wb_hold(*ret_dir, *ret_name, NULL);
    if (held < 0)
        return held;
    if (fstat(held, &st) < 0)
        return -errno;
    if (st.st_dev != revert->dev)
        return -EXDEV;
    return inode == 0 || st.st_ino == inode ? wb_fd_steal(&held) : -ESTALE;
}

static int link_from(struct revert *revert, struct revision *revision, const char *living, uint64_t inode)
{
    const char *name;
    _cleanup_fd_ int from = -1;
    _cleanup_fd_ int held = -1;
    char temporary[48];
    int r;

    if (!revert->dry) {
        held = hold_living(revert, living, inode, &from, &name);
        if (held < 0)
            return held;
        temporary_name(revert, temporary);
        r = wb_held_link(held, revision->dir, revision->exists ? temporary : revision->name);
        if (r == 0 && revision->exists)
            r = put(revert, revision, temporary);
        if (r == 0)
            r = mean(revision, held);
        if (r < 0)
            return r;
    }
    revert_report(revert, REVERT_LINK, revision->path, living, 0);
    return 0;
}

static int rename_from(struct revert *revert, struct revision *revision, const char *living)
{
    const char *name;
    _cleanup_fd_ int from = -1;
    _cleanup_fd_ int held = hold_living(revert, living, revision->identity.number, &from, &name);
    unsigned flags = revision->exists ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    char temporary[48] = "";
    int r = held < 0 ? held : mean(revision, held);

    if (r < 0)
        return r;
    if (!revert->dry && renameat2(from, name, revision->dir, revision->name, flags) < 0) {
        if (errno != EINVAL || !revision->exists)
            return -errno;
        /* It is below the object that has its name now, so it is moved out of there first. */
        temporary_name(revert, temporary);
        if (renameat2(from, name, revision->dir, temporary, RENAME_NOREPLACE) < 0 ||
            renameat2(revision->dir, temporary, revision->dir, revision->name, RENAME_EXCHANGE) < 0)
            return -errno;
        note_aside(revert, revision, temporary);
    } else if (revert->dry && revision->exists) {
        note_aside(revert, revision, "");
    }
    revert_touch_directory(revert, from);
    revert_report(revert, REVERT_RENAME, revision->path, living, 0);
    if (!revert->dry && revision->exists && !*temporary)
        g_hash_table_insert(revert->aside_of, g_strdup(living), g_strdup(revision->path));
    return 0;
}

/* ---- a new object ------------------------------------------------------------------------------ */

/* Whether the object that has the name now may become the copy: it was made after T, is of that type, and has no other
 * names. */
static bool is_stand_in(struct revert *revert, const struct revision *revision)
{
    struct wb_control_identity now;
    char want[PATH_MAX], have[PATH_MAX];
    ssize_t n;

    if (!revision->exists || (revision->have.st_mode & S_IFMT) != (revision->want.st_mode & S_IFMT) ||
        revert_has_other_names(revert, &revision->have) ||
        identify(revert, revision->dir, revision->name, revision->path, &now) < 0 || now.birth <= revert->when)
        return false;
    if (S_ISLNK(revision->want.st_mode)) {
        n = readlinkat(revision->past_dir, revision->past_name, want, sizeof(want));
        return n >= 0 && readlinkat(revision->dir, revision->name, have, sizeof(have)) == n &&
               memcmp(want, have, (size_t)n) == 0;
    }
    return revision->have.st_rdev == revision->want.st_rdev;
}

/* A descriptor of the new object, or -errno. */
static int make_copy(const struct revision *revision, const char *temporary, bool sync)
{
    bool is_file = S_ISREG(revision->want.st_mode);
    _cleanup_fd_ int from =
        is_file ? openat(revision->past_dir, revision->past_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    _cleanup_fd_ int to = -1;
    int r;

    if (is_file && from < 0)
        return -errno;
    r = to = wb_copy_make(revision->past_dir, revision->past_name, &revision->want, revision->dir, temporary);
    if (r < 0 || !is_file)
        return r < 0 ? r : wb_fd_steal(&to);
    r = wb_copy_data(from, to);
    if (r == 0 && sync && fsync(to) < 0)
        r = -errno;
    /* Not the writable descriptor: a file that is open for writing cannot become immutable. */
    return r < 0 ? r : wb_held_open(to, O_PATH);
}

/* Whether the name already leads to the file that was placed at `path`. */
static bool is_linked(const struct revert *revert, const struct revision *revision, const char *path)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(revert->mount->root_fd, path, &name);
    struct stat st;

    return revision->exists && dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == revision->have.st_ino && st.st_dev == revision->have.st_dev;
}

/* Gives the name a new object. `complete`: it gets all attributes before it gets the name. */
static int put_copy(struct revert *revert, struct revision *revision, bool complete, const char **what)
{
    _cleanup_fd_ int held = -1;
    char temporary[48];
    int r;

    temporary_name(revert, temporary);
    held = revert->dry ? -1 : make_copy(revision, temporary, complete && revert->sync);
    r = revert->dry ? 0 : MIN(held, 0);
    if (r == 0 && complete && !revert->dry)
        r = MIN(wb_copy_attrs(revision->past_dir, revision->past_name, &revision->want, held,
                              WB_ATTRS_TOUCHED | WB_ATTRS_NO_FLAGS, what),
                0);
    if (r == 0)
        r = put(revert, revision, temporary);
    if (r < 0 && !revert->dry)
        unlinkat(revision->dir, temporary, S_ISDIR(revision->want.st_mode) ? AT_REMOVEDIR : 0);
    if (r == 0 && !revert->dry)
        r = mean(revision, held);
    if (r == 0)
        revision->fresh = !revert->dry;
    if (r == 0 && complete && !revert->dry) {
        *what = "the flags (chattr)";
        r = MIN(wb_copy_flags(revision->past_dir, revision->past_name, held, revision->want.st_mode, false), 0);
    }
    return r;
}

/* Notes a copy, so that further names which the object had at T become links to it. */
static void note_copy(struct revert *revert, const char *key, const struct revision *revision)
{
    uint64_t *inode;

    if (!revision->is_meant)
        return;
    inode = g_new(uint64_t, 1);
    *inode = revision->meant.st_ino;
    g_hash_table_insert(revert->set->inodes, g_strdup(key), inode);
}

static bool is_copied(const struct revert *revert, const struct revision *revision)
{
    char key[48];

    revert_key(&revision->identity, key);
    return g_hash_table_contains(revert->set->inodes, key);
}

static int link_copy(struct revert *revert, struct revision *revision, const char *key, const char *first)
{
    const uint64_t *inode = g_hash_table_lookup(revert->set->inodes, key);

    return link_from(revert, revision, first, inode ? *inode : 0);
}

static uint64_t copied_bytes(const struct revision *revision)
{
    return S_ISREG(revision->want.st_mode) ? (uint64_t)revision->want.st_size : 0;
}

static int copy(struct revert *revert, struct revision *revision)
{
    const char *first, *what = NULL;
    char key[48];
    int r;

    revert_key(&revision->identity, key);
    first = g_hash_table_lookup(revert->set->placed, key);
    if (first && !S_ISDIR(revision->want.st_mode)) {
        revision->same = is_linked(revert, revision, first);
        if (!revision->same)
            return link_copy(revert, revision, key, first);
        revision->meant = revision->have;
        revision->is_meant = true;
        return 0;
    }
    g_hash_table_insert(revert->set->placed, g_strdup(key), g_strdup(revision->path));
    if (is_stand_in(revert, revision)) {
        revision->same = revision->is_meant = true;
        revision->meant = revision->have;
        note_copy(revert, key, revision);
        return 0;
    }
    r = put_copy(revert, revision, false, &what);
    if (r == 0) {
        note_copy(revert, key, revision);
        revert_report(revert, REVERT_COPY, revision->path, NULL, copied_bytes(revision));
    }
    return r;
}

int revert_break(struct revert *revert, struct revision *revision, bool others, const char **what)
{
    g_autofree char *other = NULL;
    const char *first;
    char key[48];
    int r;

    *what = NULL;
    revert_key(&revision->identity, key);
    first = g_hash_table_lookup(revert->set->placed, key);
    /* The replacement that copy() accepted for this very path may be the file that has to be replaced. */
    if (first && strcmp(first, revision->path) != 0 && !S_ISDIR(revision->want.st_mode))
        return link_copy(revert, revision, key, first);
    g_hash_table_insert(revert->set->placed, g_strdup(key), g_strdup(revision->path));
    r = put_copy(revert, revision, true, what);
    if (r < 0) {
        g_hash_table_remove(revert->set->placed, key);
        return r;
    }
    note_copy(revert, key, revision);
    if (!others) {
        revert_report(revert, REVERT_COPY, revision->path, NULL, copied_bytes(revision));
        return 0;
    }
    other = revert_other_name(revert, revision);
    revert_report(revert, REVERT_BREAK, revision->path, other, copied_bytes(revision));
    return 0;
}

/* ---- choosing one of these --------------------------------------------------------------------- */

/* With `dry` nothing is moved: the walk continues at the present path of the object. */
static void go_on_there(struct revert *revert, struct revision *revision, const char *living)
{
    const char *name;
    char key[48];

    revert_key(&revision->identity, key);
    g_hash_table_insert(revert->set->placed, g_strdup(key), g_strdup(living));
    revert_add(revert->moved, revision->identity.number);
    revision->found_dir = wb_fd_open_parent(revert->mount->root_fd, living, &name);
    revision->found_name = g_strdup(name);
}

/* Whether the object at the present path `living` has names outside and would have to change: 1, 0 or -errno. */
static int is_others(struct revert *revert, const struct revision *revision, const char *living)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(revert->mount->root_fd, living, &name);
    g_autofree char *inside = NULL;
    struct stat st;

    if (dir < 0 || revert->all_links)
        return dir < 0 ? dir : 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if ((revert_set_has(revert->set, living) || revert_inside(revert, revision->identity.path, &inside)) &&
        !revert_has_other_names(revert, &st))
        return 0;
    return revert_differs(revision, dir, name);
}

/* The name was one of several of a file, which remains unchanged under the others: this name gets a copy. */
static int copy_broken(struct revert *revert, struct revision *revision, const char *living)
{
    uint64_t copies = revert->result.counts[REVERT_COPY];
    int r = copy(revert, revision);

    if (r == 0 && revert->result.counts[REVERT_COPY] > copies)
        revert_report(revert, REVERT_BREAK, revision->path,
                      living && !revert_set_has(revert->set, living) ? living : NULL, 0);
    return r;
}

/* Whether another method would fail as well, so that the error is reported. */
static bool is_final(int error)
{
    return error == -EACCES || error == -EPERM || error == -ENOSPC || error == -EDQUOT || error == -EROFS ||
           error == -ENOTCONN || error == -EINTR;
}

/*
 * Restores a deleted name of a file that still has others. The store has the file with its present content. It
 * gets a temporary name first, and is compared there, because that content must not be visible under this name.
 */
static int restore_shared(struct revert *revert, struct revision *revision)
{
    g_autofree char *parent = wb_path_parent(revision->path, NULL);
    g_autofree char *aside = NULL;
    char temporary[48];
    int r;

    if (S_ISREG(revision->want.st_mode) && !revision->identity.unchanged)
        return copy_broken(revert, revision, NULL);
    if (revert->dry)
        return restore(revert, revision);
    temporary_name(revert, temporary);
    aside = wb_path_join(parent, temporary);
    r = wb_request_restore(revert->mount->root_fd, aside, revision->source);
    if (r < 0)
        return is_final(r) ? r : copy(revert, revision);
    r = revert_differs(revision, revision->dir, temporary);
    if (r == 0)
        r = put(revert, revision, temporary);
    else if (unlinkat(revision->dir, temporary, 0) == 0 && r > 0)
        return copy_broken(revert, revision, NULL);
    if (r == 0)
        revert_report(revert, REVERT_RESTORE, revision->path, NULL, 0);
    return r;
}

static int bring_living(struct revert *revert, struct revision *revision)
{
    g_autofree char *inside = NULL;
    g_autofree char *relative = revert_relative(revert, revision->identity.path);
    bool is_dir = S_ISDIR(revision->want.st_mode);
    int r;

    if (!is_dir && relative && revert_is_own(revert, revision, relative)) {
        r = is_others(revert, revision, relative);
        if (r != 0)
            return r < 0 ? r : copy_broken(revert, revision, relative);
        r = link_from(revert, revision, relative, revision->identity.number);
        if (r != -EMLINK && r != -EPERM && r != -EXDEV && r != -EOPNOTSUPP)
            goto there;
        return copy(revert, revision);
    }
    /* An object outside of the path is not moved, because the user did not name it. */
    if (!revert_inside(revert, revision->identity.path, &inside))
        return copy(revert, revision);
    if (revert->dry && !is_dir) {
        char key[48];

        revert_key(&revision->identity, key);
        if (g_hash_table_contains(revert->set->placed, key)) {
            r = link_from(revert, revision, relative, revision->identity.number);
            goto there;
        }
    }
    r = rename_from(revert, revision, inside);
there:
    if (r == 0 && revert->dry)
        go_on_there(revert, revision, relative);
    return r;
}

/*
 * Whether the name has the object that the daemon restored from the graveyard: under its inode number, or, if it was
 * packed, under a new one.
 */
static bool is_restored(const struct revert *revert, const struct revision *revision)
{
    struct wb_control_identity now;

    return revision->have.st_ino == revision->identity.number ||
           (identify(revert, revision->dir, revision->name, revision->path, &now) == 0 &&
            now.ino == revision->identity.ino && now.birth == revision->identity.birth &&
            now.number == revision->have.st_ino);
}

/* Whether the name still leads to the object that was put there: another user may have replaced it by a rename. */
static bool is_brought(const struct revert *revert, const struct revision *revision)
{
    if (revision->is_meant)
        return revision->have.st_ino == revision->meant.st_ino && revision->have.st_dev == revision->meant.st_dev;
    return (revision->have.st_mode & S_IFMT) == (revision->want.st_mode & S_IFMT) && is_restored(revert, revision);
}

int revert_bring(struct revert *revert, struct revision *revision)
{
    int r;

    if (wb_watch_stopped())
        return -EINTR;
    switch (revision->identity.state) {
    case WB_CONTROL_ALIVE:
        r = bring_living(revert, revision);
        break;
    case WB_CONTROL_BURIED:
        if (revision->identity.others > 0 && !revert->all_links &&
            revert_lives_outside(revert, revision->identity.number)) {
            r = restore_shared(revert, revision);
            break;
        }
        /* For a program with power, an earlier run may have put a new file here (revert_break): copy() accepts it. If
         * another name of the object has a copy, this one becomes a link to that. */
        r = is_copied(revert, revision) ? 1
            : revision->exists ? wb_copy_has_power(revision->past_dir, revision->past_name, &revision->want)
                               : 0;
        if (r == 0)
            r = restore(revert, revision);
        if (r > 0 || (r < 0 && !is_final(r)))
            r = copy(revert, revision);
        break;
    default:
        r = copy(revert, revision);
    }
    if (r == 0 && revision->dir >= 0)
        revert_touch_directory(revert, revision->dir);
    if (r == 0 && !revert->dry) {
        if (fstatat(revision->dir, revision->name, &revision->have, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (!is_brought(revert, revision))
            return -ESTALE;
        revision->exists = revision->same = true;
        revert_add(revert->touched, revision->have.st_ino);
    }
    return r;
}
