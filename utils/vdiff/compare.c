/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdiff.h"
#include "common/cli.h"
#include "client/control.h"
#include "client/fd.h"
#include "client/path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void compare(struct diff *diff, struct pair *pair);

void diff_fail(const struct diff *diff, const char *path, int error)
{
    g_autofree char *name = diff_name(diff, path);

    wb_cli_fail(name, "%s", wb_errno_text(error));
}

char *diff_target(const struct pair *pair, int side)
{
    char text[4097];
    ssize_t n = readlinkat(pair->dir[side], pair->name[side], text, sizeof(text) - 1);

    return g_strndup(text, n > 0 ? (gsize)n : 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Whether both are one object. Its answers are kept: they are asked for twice. */
static bool is_one(const struct diff *diff, struct pair *pair)
{
    struct wb_control_identity *identity = pair->identity;

    for (int side = OLD; side <= NEW && !pair->identified; side++) {
        g_autofree char *path = wb_path_join(diff->side[side].path, pair->path);

        if (wb_request_identify(diff->place->mount->root_fd, path, &identity[side]) < 0)
            return false;
    }
    pair->identified = true;
    return identity[OLD].ino == identity[NEW].ino && identity[OLD].birth == identity[NEW].birth;
}

/* Whether both are one object that has lost nothing since either moment: then nothing needs to be read. */
static bool is_untouched(const struct diff *diff, struct pair *pair)
{
    return is_one(diff, pair) && pair->identity[OLD].unchanged && pair->identity[NEW].unchanged;
}

static bool content_differs(struct diff *diff, struct pair *pair)
{
    struct difference difference;
    int fds[2], r = 0;

    if (pair->st[OLD].st_size != pair->st[NEW].st_size)
        return true;
    if (is_untouched(diff, pair))
        return false;
    fds[OLD] = diff_open(diff, OLD, pair->path);
    fds[NEW] = diff_open(diff, NEW, pair->path);
    r = fds[OLD] < 0 ? fds[OLD] : fds[NEW] < 0 ? fds[NEW] : diff_bytes(fds, &difference);
    for (int side = OLD; side <= NEW; side++)
        if (fds[side] >= 0)
            close(fds[side]);
    if (r < 0) {
        diff_fail(diff, pair->path, r);
        return false;
    }
    return difference.bytes > 0 || difference.size[OLD] != difference.size[NEW];
}

/* A change of flags sets ctime, from a clock that may be a tick (at most 10 ms) behind that of records. */
#define TICKS_NS 1000000000

/* Whether both are one object of which nothing was changed since the earlier moment. */
static bool same_ctime(const struct diff *diff, struct pair *pair)
{
    const struct timespec *old = &pair->st[OLD].st_ctim, *new = &pair->st[NEW].st_ctim;

    return old->tv_sec == new->tv_sec && old->tv_nsec == new->tv_nsec &&
           (int64_t)old->tv_sec * 1000000000 + old->tv_nsec < diff->side[OLD].when - TICKS_NS && is_one(diff, pair);
}

/* Flags that the user may not read are no difference. */
static bool flags_differ(const struct diff *diff, struct pair *pair)
{
    int fds[2] = {-1, -1}, r = 0;

    if (same_ctime(diff, pair))
        return false;
    for (int side = OLD; side <= NEW && r == 0; side++) {
        fds[side] = openat(pair->dir[side], pair->name[side], O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        r = fds[side] < 0 ? -errno : 0;
    }
    if (r == 0)
        r = wb_flags_differ(fds[OLD], fds[NEW], pair->flags[OLD], pair->flags[NEW]);
    for (int side = OLD; side <= NEW; side++)
        if (fds[side] >= 0)
            close(fds[side]);
    if (r < 0 && r != -EACCES && r != -EPERM)
        diff_fail(diff, pair->path, r);
    return r > 0;
}

/* What differs between two things of one type. */
static unsigned changes_of(struct diff *diff, struct pair *pair)
{
    const struct stat *old = &pair->st[OLD], *new = &pair->st[NEW];
    unsigned changes = 0;

    if ((old->st_mode & 07777) != (new->st_mode & 07777))
        changes |= CHANGE_MODE;
    if (old->st_uid != new->st_uid || old->st_gid != new->st_gid)
        changes |= CHANGE_OWNER;
    if (S_ISREG(old->st_mode) && content_differs(diff, pair))
        changes |= CHANGE_CONTENT;
    if ((S_ISREG(old->st_mode) || S_ISDIR(old->st_mode)) && flags_differ(diff, pair))
        changes |= CHANGE_FLAGS;
    if ((S_ISCHR(old->st_mode) || S_ISBLK(old->st_mode)) && old->st_rdev != new->st_rdev)
        changes |= CHANGE_DEVICE;
    if (S_ISLNK(old->st_mode)) {
        g_autofree char *old_target = diff_target(pair, OLD);
        g_autofree char *new_target = diff_target(pair, NEW);

        if (strcmp(old_target, new_target) != 0)
            changes |= CHANGE_TARGET;
    }
    return changes;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* The names on one side; empty where there is no directory. */
static GPtrArray *open_side(struct diff *diff, const struct pair *pair, int side, int *ret_fd)
{
    GPtrArray *names = NULL;

    *ret_fd = -1;
    if (!pair->there[side] || !S_ISDIR(pair->st[side].st_mode))
        return g_ptr_array_new();
    *ret_fd = openat(pair->dir[side], pair->name[side], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd >= 0)
        names = wb_fd_names(*ret_fd);
    if (!names)
        diff_fail(diff, pair->path, errno);
    return names;
}

static bool may_differ(const struct diff *diff, const char *path)
{
    g_autofree char *whole = diff->changed ? wb_path_join(diff->place->path, path) : NULL;

    return wb_changed_has(diff->changed, whole);
}

/* A directory that is on one side only is a removed, or an added, tree. */
static void descend(struct diff *diff, const struct pair *pair)
{
    _cleanup_fd_ int old_fd = -1;
    _cleanup_fd_ int new_fd = -1;
    g_autoptr(GPtrArray) old = open_side(diff, pair, OLD, &old_fd);
    g_autoptr(GPtrArray) new = open_side(diff, pair, NEW, &new_fd);

    /* One that cannot be read is no empty one. */
    if (!old || !new)
        return;
    for (guint i = 0, j = 0; (i < old->len || j < new->len) && !wb_cli_interrupted();) {
        int order = i == old->len ? 1 : j == new->len ? -1 : strcmp(old->pdata[i], new->pdata[j]);
        const char *name = order <= 0 ? old->pdata[i] : new->pdata[j];
        g_autofree char *path = wb_path_join(pair->path, name);
        struct pair below = {.path = path, .dir = {order <= 0 ? old_fd : -1, order >= 0 ? new_fd : -1},
                             .name = {name, name}};

        i += order <= 0;
        j += order >= 0;
        /* A name that only one side has was changed, whatever the list says. */
        if (order != 0 || may_differ(diff, path))
            compare(diff, &below);
    }
}

static void compare(struct diff *diff, struct pair *pair)
{
    unsigned changes = 0;

    for (int side = OLD; side <= NEW; side++) {
        if (pair->dir[side] < 0)
            continue;
        pair->there[side] = fstatat(pair->dir[side], pair->name[side], &pair->st[side], AT_SYMLINK_NOFOLLOW) == 0;
        if (!pair->there[side] && errno != ENOENT) {
            diff_fail(diff, pair->path, errno);
            return;
        }
    }
    if (!pair->there[OLD] && !pair->there[NEW])
        return;
    if (!pair->there[OLD])
        changes = CHANGE_ADDED;
    else if (!pair->there[NEW])
        changes = CHANGE_REMOVED;
    else if ((pair->st[OLD].st_mode & S_IFMT) != (pair->st[NEW].st_mode & S_IFMT))
        changes = CHANGE_TYPE;
    else
        changes = changes_of(diff, pair);
    if (changes) {
        diff->differs = true;
        diff_show(diff, pair, changes);
        diff->count++;
        if ((changes & (CHANGE_CONTENT | CHANGE_ADDED | CHANGE_REMOVED | CHANGE_TYPE)) &&
            ((pair->there[OLD] && S_ISREG(pair->st[OLD].st_mode)) ||
             (pair->there[NEW] && S_ISREG(pair->st[NEW].st_mode))))
            g_ptr_array_add(diff->files, g_strdup(pair->path));
    }
    if (diff->differs && diff->detail == DETAIL_NONE)
        return;
    if ((pair->there[OLD] && S_ISDIR(pair->st[OLD].st_mode)) || (pair->there[NEW] && S_ISDIR(pair->st[NEW].st_mode)))
        descend(diff, pair);
}

void diff_compare(struct diff *diff)
{
    struct pair pair = {.path = "", .dir = {-1, -1}};

    for (int side = OLD; side <= NEW; side++) {
        if (!diff->side[side].path)
            continue;
        pair.dir[side] = wb_fd_open_parent(diff->place->mount->root_fd, diff->side[side].path, &pair.name[side]);
        if (pair.dir[side] < 0) {
            diff_fail(diff, "", pair.dir[side]);
            return;
        }
    }
    if (may_differ(diff, ""))
        compare(diff, &pair);
    for (int side = OLD; side <= NEW; side++)
        if (pair.dir[side] >= 0)
            close(pair.dir[side]);
}
