/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/api/api.h"

#include "client/snapshots.h"
#include "client/usage.h"
#include <errno.h>
#include <string.h>

/* ---- snapshots ----------------------------------------------------------------------------------- */

struct wb_snapshot_iter {
    GPtrArray *found;
    guint next;
    struct wb_snapshot_info info;
};

int wb_snapshots_begin(struct wb_client *client, const char *name, struct wb_snapshot_iter **ret)
{
    GPtrArray *found;
    int r = wb_request_snapshot_list(client->mount->root_fd, "", name, &found);

    *ret = NULL;
    if (r < 0)
        return wb_client_fail(name ? name : client->point, r, NULL);
    *ret = g_new0(struct wb_snapshot_iter, 1);
    (*ret)->found = found;
    return 0;
}

int wb_snapshots_next(struct wb_snapshot_iter *iter, const struct wb_snapshot_info **ret)
{
    const struct wb_control_snapshot *snapshot;

    if (iter->next >= iter->found->len)
        return 1;
    snapshot = iter->found->pdata[iter->next++];
    iter->info = (struct wb_snapshot_info){
        .name = wb_snapshot_name(snapshot), .text = wb_snapshot_text(snapshot), .path = wb_snapshot_path(snapshot),
        .when = snapshot->when, .uid = snapshot->uid,
        .flags = snapshot->flags & WB_CONTROL_SNAPSHOT_AUTOMATIC ? WB_SNAPSHOT_AUTOMATIC : 0};
    *ret = &iter->info;
    return 0;
}

struct wb_snapshot_iter *wb_snapshots_end(struct wb_snapshot_iter *iter)
{
    if (iter) {
        g_ptr_array_unref(iter->found);
        g_free(iter);
    }
    return NULL;
}

int wb_snapshots_create(struct wb_client *client, const char *path, const char *name, const char *text,
                    int64_t *ret_when)
{
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    g_autofree char *inside = NULL;
    struct wb_error why = {""};
    int r = wb_client_path(client, path, true, &inside);

    if (r < 0)
        return r;
    r = wb_request_snapshot_create(client->mount->root_fd, inside, name, text ? text : "", &snapshot);
    if (r == -EINVAL)
        wb_error_set(&why, r, "'%s' cannot be the name of a snapshot (1 to 254 bytes of UTF-8 without '/', '@' and "
                              "control characters, with no '-', '.' or '~' at the beginning, and no time), or its "
                              "description is longer than 1024 bytes", name);
    if (r == -EEXIST)
        wb_error_set(&why, r, "there is a snapshot named '%s' already; choose another name", name);
    if (r < 0)
        return wb_client_fail(path, r, why.text);
    if (ret_when)
        *ret_when = snapshot->when;
    return 0;
}

int wb_snapshots_remove(struct wb_client *client, const char *name)
{
    int r = wb_request_snapshot_delete(client->mount->root_fd, name);

    return r < 0 ? wb_client_fail(name, r, r == -ENOENT ? "there is no snapshot of this name" : NULL) : 0;
}

/* ---- usage --------------------------------------------------------------------------------------- */

int wb_usage_get(struct wb_client *client, const char *path, struct wb_usage_info *info)
{
    g_autofree char *inside = NULL;
    struct wb_usage_info known = {0};
    struct wb_control_usage sums;
    unsigned flags;
    int r = wb_client_path(client, path, false, &inside);

    if (r == 0) {
        r = wb_request_usage(client->mount->root_fd, inside, 0, 0, NULL, &sums, &flags);
        if (r < 0)
            wb_client_fail(path, r, NULL);
    }
    if (r < 0)
        return r;
    known.flags = flags & WB_CONTROL_USAGE_PART ? WB_USAGE_PARTIAL : 0;
    for (unsigned i = 0; i < WB_CONTROL_USAGE_KINDS; i++) {
        known.files += sums.kinds[i].files;
        known.bytes += sums.kinds[i].bytes;
        known.disk += sums.kinds[i].disk;
    }
    known.oldest = sums.oldest;
    known.newest = sums.newest;
    return wb_client_give(info, info->size, &known, sizeof(known));
}
