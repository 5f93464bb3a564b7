/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/snapshots.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct wb_control_snapshot *copy_entry(const void *at)
{
    return g_memdup2(at, ((const struct wb_control_snapshot *)at)->size);
}

/* The entries of a reply. How many bytes they take. */
static size_t take_page(const struct wb_control *reply, GPtrArray *to)
{
    size_t used = 0;

    for (uint32_t i = 0; i < reply->count; i++) {
        struct wb_control_snapshot *entry = copy_entry(reply->data + used);

        used += entry->size;
        g_ptr_array_add(to, entry);
    }
    return used;
}

int wb_request_snapshot_list(int dir_fd, const char *path, const char *name, GPtrArray **ret)
{
    g_autoptr(GPtrArray) all = g_ptr_array_new_with_free_func(g_free);
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    uint64_t cursor = 0, held = 0;
    int r;

    do {
        r = wb_request_prepare(request, WB_CONTROL_SNAPSHOT_LIST, path);
        if (r == 0 && name && g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
            r = -ENAMETOOLONG;
        request->cursor = cursor;
        if (r == 0)
            r = wb_request_call(dir_fd, request);
        if (r == 0)
            held += take_page(request, all);
        if (r == 0 && held > WB_HELD_MAX)
            r = -EOVERFLOW;
        cursor = request->cursor;
    } while (r == 0 && request->count > 0);
    if (r == 0)
        *ret = g_steal_pointer(&all);
    return r;
}

const struct wb_control_snapshot *wb_snapshot_meant(const GPtrArray *found)
{
    for (guint i = 0; i < found->len; i++) {
        const struct wb_control_snapshot *snapshot = found->pdata[i];

        if (snapshot->flags & WB_CONTROL_SNAPSHOT_MEANT)
            return snapshot;
    }
    return found->pdata[0];
}

const struct wb_control_snapshot *wb_snapshot_to_change(const GPtrArray *found)
{
    for (guint i = 0; i < found->len; i++) {
        const struct wb_control_snapshot *snapshot = found->pdata[i];

        if (snapshot->uid == geteuid() && !(snapshot->flags & WB_CONTROL_SNAPSHOT_AUTOMATIC))
            return snapshot;
    }
    return wb_snapshot_meant(found);
}

int wb_request_snapshot_create(int dir_fd, const char *path, const char *name, const char *text,
                       struct wb_control_snapshot **ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_snapshot_new *wanted = (struct wb_control_snapshot_new *)(void *)request->data;
    int r = wb_request_prepare(request, WB_CONTROL_SNAPSHOT_CREATE, path);

    if (r < 0)
        return r;
    if (g_strlcpy(wanted->name, name, sizeof(wanted->name)) >= sizeof(wanted->name) ||
        g_strlcpy(wanted->text, text, sizeof(wanted->text)) >= sizeof(wanted->text))
        return -EINVAL;
    r = wb_request_call(dir_fd, request);
    if (r < 0)
        return r;
    *ret = copy_entry(request->data);
    return 0;
}

int wb_request_snapshot_rename(int dir_fd, const char *name, const char *new_name)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_snapshot_names *names = (struct wb_control_snapshot_names *)(void *)request->data;
    int r = wb_request_prepare(request, WB_CONTROL_SNAPSHOT_RENAME, "");

    if (r < 0)
        return r;
    if (g_strlcpy(names->name, name, sizeof(names->name)) >= sizeof(names->name))
        return -ENOENT;
    if (g_strlcpy(names->new_name, new_name, sizeof(names->new_name)) >= sizeof(names->new_name))
        return -EINVAL;
    return wb_request_call(dir_fd, request);
}

int wb_request_snapshot_delete(int dir_fd, const char *name)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_SNAPSHOT_DELETE, "");

    if (r < 0)
        return r;
    if (g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
        return -ENOENT;
    return wb_request_call(dir_fd, request);
}

int wb_request_snapshot_files(int dir_fd, const char *name, char ***ret, uint64_t *ret_unnamed)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    const struct wb_control_open_files *reply = (const void *)request->data;
    uint64_t cursor = 0, hidden = 0, held = 0;
    bool over = false;

    while (!over) {
        size_t used = 0;
        int r = wb_request_prepare(request, WB_CONTROL_SNAPSHOT_FILES, "");

        if (r == 0 && g_strlcpy(request->source, name, sizeof(request->source)) >= sizeof(request->source))
            r = -ENOENT;
        request->cursor = cursor;
        if (r == 0)
            r = wb_request_call(dir_fd, request);
        if (r < 0)
            return r;
        for (uint32_t i = 0; i < request->count; i++) {
            g_ptr_array_add(paths, g_strdup(reply->paths + used));
            used += strlen(reply->paths + used) + 1;
        }
        held += used + request->count * sizeof(char *);
        if (held > WB_HELD_MAX)
            return -EOVERFLOW;
        hidden += reply->hidden;
        over = request->cursor == cursor;
        cursor = request->cursor;
    }
    *ret_unnamed = hidden + reply->more;
    g_ptr_array_add(paths, NULL);
    *ret = (char **)g_ptr_array_free(g_steal_pointer(&paths), FALSE);
    return 0;
}
