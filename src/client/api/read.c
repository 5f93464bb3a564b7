/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/api/api.h"

#include "client/fd.h"
#include "client/path.h"
#include "client/saves.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- versions ------------------------------------------------------------------------------------ */

struct wb_version_iter {
    struct wb_save_walk *walk;
    struct wb_version_info info;
    char *path; /* as the caller gave it */
};

int wb_version_begin(struct wb_client *client, const char *path, int64_t since, int64_t until,
                      struct wb_version_iter **ret)
{
    g_autofree char *inside = NULL;
    int r = wb_client_path(client, path, false, &inside);

    *ret = NULL;
    if (r < 0)
        return r;
    *ret = g_new0(struct wb_version_iter, 1);
    (*ret)->walk = wb_save_walk_new(client->mount->root_fd, inside, since, until);
    (*ret)->path = g_strdup(path);
    return 0;
}

static void fill_version(struct wb_version_info *info, const struct wb_save *save)
{
    const struct wb_control_version *version = &save->newest;

    *info = (struct wb_version_info){.when = version->when, .number = save->number, .operation = "", .command = "",
                                     .name = "", .other = "", .detail = "", .began = save->oldest.when,
                                     .operations = save->operations};
    if (version->flags & WB_CONTROL_VERSION_WITHHELD) {
        info->flags = WB_VERSION_WITHHELD;
        return;
    }
    info->operation = wb_save_operation(save);
    info->existed = save->oldest.existed_before;
    info->exists = version->exists_after;
    info->size_before = save->oldest.size_before;
    info->size = version->size_after;
    info->uid = version->uid;
    info->gid = version->gid;
    info->pid = version->pid;
    info->command = version->command;
    info->name = version->name;
    info->other = version->other;
    info->detail = version->detail;
    /* Of several changes: the name after them. */
    if (save->operations > 1 && version->exists_after) {
        info->name = strcmp(version->op_name, "rename") == 0 && *version->other ? version->other : version->name;
        info->other = "";
    }
    if (version->flags & WB_CONTROL_VERSION_GAP) {
        info->flags = WB_VERSION_GAP | (version->flags & WB_CONTROL_VERSION_OPEN ? WB_VERSION_GAP_OPEN : 0);
        info->operation = "gap";
        info->since = (int64_t)version->offset;
    } else if (version->flags & WB_CONTROL_VERSION_THINNED) {
        info->flags = WB_VERSION_THINNED;
        info->since = version->thinned_since;
    }
    info->offset = save->from;
    info->length = save->to - save->from;
}

int wb_version_next(struct wb_version_iter *iter, const struct wb_version_info **ret)
{
    const struct wb_save *save;
    int r = wb_save_walk_next(iter->walk, &save);

    if (r < 0)
        return wb_client_fail(iter->path, r, r == -ENOENT ? "no such file or directory, now or at any time recorded"
                                                          : NULL);
    if (r > 0)
        return 1;
    fill_version(&iter->info, save);
    *ret = &iter->info;
    return 0;
}

struct wb_version_iter *wb_version_end(struct wb_version_iter *iter)
{
    if (iter) {
        wb_save_walk_free(iter->walk);
        g_free(iter->path);
        g_free(iter);
    }
    return NULL;
}

/* ---- the past as files --------------------------------------------------------------------------- */

int wb_name_at(struct wb_client *client, const char *path, int64_t when, char **ret)
{
    g_autofree char *past = NULL;
    g_autofree char *whole = NULL;
    int r = wb_client_past(client, path, when, &past);

    *ret = NULL;
    if (r < 0)
        return r;
    whole = wb_client_whole(client, past);
    *ret = strdup(whole);
    return *ret ? 0 : wb_client_fail(path, -ENOMEM, NULL);
}

int wb_open_at(struct wb_client *client, const char *path, int64_t when)
{
    g_autofree char *past = NULL;
    const char *name;
    _cleanup_fd_ int dir = -1;
    _cleanup_fd_ int held = -1;
    struct stat st;
    int r = wb_client_past(client, path, when, &past);

    if (r < 0)
        return r;
    dir = wb_fd_open_parent(client->mount->root_fd, past, &name);
    held = dir < 0 ? dir : wb_hold(dir, name, NULL);
    if (held < 0 || fstat(held, &st) < 0)
        return wb_client_fail(path, held < 0 ? held : -errno, NULL);
    if (S_ISLNK(st.st_mode))
        return wb_client_fail(path, -ELOOP, "was a symbolic link at that time; use wb_name_at and readlink(2)");
    /* Opening a FIFO or a device can block, or have effects. */
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return wb_client_fail(path, -ENXIO, "was neither a file nor a directory at that time");
    r = wb_held_open(held, O_RDONLY);
    return r < 0 ? wb_client_fail(path, r, NULL) : r;
}

struct wb_list_iter {
    int fd;
    GPtrArray *names;
    guint next;
    struct wb_list_entry entry;
    char *path; /* as the caller gave it */
};

int wb_list_at(struct wb_client *client, const char *path, int64_t when, struct wb_list_iter **ret)
{
    _cleanup_fd_ int fd = wb_open_at(client, path, when);
    GPtrArray *names;
    struct stat st;

    *ret = NULL;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return wb_client_fail(path, -errno, NULL);
    if (!S_ISDIR(st.st_mode))
        return wb_client_fail(path, -ENOTDIR, "was not a directory at that time");
    names = wb_fd_names(fd);
    if (!names)
        return wb_client_fail(path, -errno, NULL);
    *ret = g_new0(struct wb_list_iter, 1);
    (*ret)->fd = wb_fd_steal(&fd);
    (*ret)->names = names;
    (*ret)->path = g_strdup(path);
    return 0;
}

int wb_list_next(struct wb_list_iter *iter, const struct wb_list_entry **ret)
{
    struct stat st;
    const char *name;

    if (iter->next >= iter->names->len)
        return 1;
    name = iter->names->pdata[iter->next++];
    if (fstatat(iter->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        int r = -errno;
        g_autofree char *path = wb_path_join(iter->path, name);

        return wb_client_fail(path, r, NULL);
    }
    iter->entry = (struct wb_list_entry){.name = name, .mode = st.st_mode, .uid = st.st_uid, .gid = st.st_gid,
                                         .size = (uint64_t)st.st_size,
                                         .mtime = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec};
    *ret = &iter->entry;
    return 0;
}

struct wb_list_iter *wb_list_end(struct wb_list_iter *iter)
{
    if (iter) {
        close(iter->fd);
        g_ptr_array_unref(iter->names);
        g_free(iter->path);
        g_free(iter);
    }
    return NULL;
}
