/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "publish.h"
#include "common/cli.h"
#include "common/fd.h"
#include "common/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int refuse_existing(const struct target *target, const struct stat *st)
{
    /* Inside a mount the default name is a name of the past already. */
    if (st->st_ino & WB_PAST_INODE)
        return wb_cli_fail(target->out, "names a moment of the past here, inside the mount, so nothing can be "
                                        "made under it; give another name with -o");
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
    target->dir_fd = open(*dir ? dir : name == out ? "." : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (target->dir_fd < 0)
        return wb_cli_fail(out, "%s: %s", *dir ? dir : ".",
                           errno == ENOENT ? "no such directory; make it first" : wb_cli_errno(errno));
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return wb_cli_fail(out, "is no name for something new; -o needs one");
    if (fstatat(target->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        (!force || (st.st_ino & WB_PAST_INODE)))
        return refuse_existing(target, &st);
    snprintf(target->temporary, sizeof(target->temporary), ".vextract-%08x%08x", g_random_int(), g_random_int());
    return 0;
}

/* Where the file system has no RENAME_NOREPLACE. */
static int publish_plainly(const struct target *target)
{
    struct stat st;

    if (linkat(target->dir_fd, target->temporary, target->dir_fd, target->name, 0) == 0) {
        unlinkat(target->dir_fd, target->temporary, 0);
        return 0;
    }
    if (errno == EEXIST || fstatat(target->dir_fd, target->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return renameat(target->dir_fd, target->temporary, target->dir_fd, target->name) < 0 ? -errno : 0;
}

/* With --force: over whatever is there, which goes away only when the new one is in its place. */
static int replace(const struct target *target)
{
    if (renameat(target->dir_fd, target->temporary, target->dir_fd, target->name) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EISDIR && errno != ENOTDIR)
        return -errno;
    if (renameat2(target->dir_fd, target->temporary, target->dir_fd, target->name, RENAME_EXCHANGE) == 0)
        return wb_fd_remove_all(target->dir_fd, target->temporary);
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    {
        int r = wb_fd_remove_all(target->dir_fd, target->name);

        if (r < 0)
            return r;
    }
    return renameat(target->dir_fd, target->temporary, target->dir_fd, target->name) < 0 ? -errno : 0;
}

int target_publish(struct target *target)
{
    int r;

    if (target->force) {
        r = replace(target);
    } else {
        r = renameat2(target->dir_fd, target->temporary, target->dir_fd, target->name, RENAME_NOREPLACE) < 0
                ? -errno
                : 0;
        if (r == -EINVAL || r == -ENOSYS)
            r = publish_plainly(target);
    }
    if (r == -EEXIST)
        return wb_cli_fail(target->out, "appeared in the meantime; use --force to replace it");
    if (r < 0)
        return wb_cli_fail(target->out, "%s", wb_cli_errno(r));
    target->temporary[0] = '\0';
    return 0;
}

void target_close(struct target *target)
{
    if (target->dir_fd >= 0 && target->temporary[0])
        wb_fd_remove_all(target->dir_fd, target->temporary);
    if (target->dir_fd >= 0)
        close(target->dir_fd);
    g_free(target->name);
}
