/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "publish.h"
#include "common/cli.h"
#include "client/fd.h"
#include "client/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int refuse_existing(const struct target *target, const struct stat *st)
{
    /* Inside a mount the default name is a name of the past already. */
    if (st->st_ino & WB_PAST_INODE)
        return wb_cli_fail(target->out, "in the mount this name means a past state, so it cannot be created; give "
                                        "another name with -o");
    return wb_cli_fail(target->out, "exists; use --force to replace it, or another name with -o");
}

int target_open(struct target *target, const char *out, bool force)
{
    const char *name;
    g_autofree char *dir = wb_path_parent(out, &name);
    struct stat st;

    target->out = out;
    target->force = force;
    target->name = g_strdup(name);
    target->dir_fd = wb_open_named_dir(*dir ? dir : name == out ? "." : "/");
    if (target->dir_fd < 0)
        return wb_cli_fail(out, "%s: %s", *dir ? dir : ".",
                           target->dir_fd == -ENOENT ? "no such directory; create it first"
                           : target->dir_fd == -ELOOP
                               ? "the path contains a symbolic link of another user (or too many links); use the real "
                                 "path"
                               : wb_errno_text(target->dir_fd));
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return wb_cli_fail(out, "cannot be the name of a new file; give another one with -o");
    if (fstatat(target->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (!force || (st.st_ino & WB_PAST_INODE)))
        return refuse_existing(target, &st);
    snprintf(target->temporary, sizeof(target->temporary), ".vextract-%08x%08x", g_random_int(), g_random_int());
    return 0;
}

/* Where the file system has no RENAME_NOREPLACE. */
static int publish_plainly(const struct target *target, int held)
{
    struct stat st;

    if (wb_held_link(held, target->dir_fd, target->name) == 0) {
        unlinkat(target->dir_fd, target->temporary, 0);
        return 0;
    }
    if (fstatat(target->dir_fd, target->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return wb_held_rename(held, target->dir_fd, target->temporary, target->dir_fd, target->name, 0);
}

/* With --force: over whatever is there, which goes away only when the new one is in its place. */
static int replace(const struct target *target, int held)
{
    int dir = target->dir_fd, r;

    /* The present directory is removed; a file system mounted below it is no part of it. */
    if (wb_fd_has_mount(dir, target->name))
        return -EXDEV;
    r = wb_held_rename(held, dir, target->temporary, dir, target->name, 0);

    if (r != -ENOTEMPTY && r != -EEXIST && r != -EISDIR && r != -ENOTDIR)
        return r;
    r = wb_held_rename(held, dir, target->temporary, dir, target->name, RENAME_EXCHANGE);
    if (r == 0)
        return wb_fd_remove_all(dir, target->temporary);
    if (r != -EINVAL && r != -ENOSYS)
        return r;
    r = wb_fd_remove_all(dir, target->name);
    return r < 0 ? r : wb_held_rename(held, dir, target->temporary, dir, target->name, 0);
}

int target_publish(struct target *target, int held)
{
    int r;

    if (target->force) {
        r = replace(target, held);
    } else {
        r = wb_held_rename(held, target->dir_fd, target->temporary, target->dir_fd, target->name, RENAME_NOREPLACE);
        if (r == -EINVAL || r == -ENOSYS)
            r = publish_plainly(target, held);
    }
    if (r == -ESTALE)
        return wb_cli_fail(target->out, "another process renamed the copy before it was complete; extract into a "
                                        "directory where other users cannot rename files");
    if (r == -EEXIST)
        return wb_cli_fail(target->out, "was created in the meantime; use --force to replace it");
    if (r == -EXDEV)
        return wb_cli_fail(target->out, "another file system is mounted there or below it; unmount it, or use another "
                                        "name with -o");
    if (r < 0)
        return wb_cli_fail(target->out, "%s", wb_errno_text(r));
    target->temporary[0] = '\0';
    return 0;
}

/* The descriptor holds our own copy; its temporary name may lead to something else by now. */
void target_discard(struct target *target, int held)
{
    bool is_there = held >= 0 && target->temporary[0];
    _cleanup_fd_ int dir = is_there ? openat(held, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    g_autoptr(GPtrArray) names = dir < 0 ? NULL : wb_fd_names(dir);

    if (!is_there)
        return;
    for (guint i = 0; names && i < names->len; i++)
        wb_fd_remove_all(dir, names->pdata[i]);
    unlinkat(target->dir_fd, target->temporary, dir < 0 ? 0 : AT_REMOVEDIR);
    target->temporary[0] = '\0';
}

void target_close(struct target *target)
{
    if (target->dir_fd >= 0)
        close(target->dir_fd);
    g_free(target->name);
}
