/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Compaction on request: of one object's log, or, a folder at a time, of the whole store.
 */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "daemon/past/past_access.h"
#include "history/history.h"
#include "maintain/rewrite/compact.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* us: for so long folders are gone through before the caller hears of it. */
#define AT_A_TIME 1000000

_Static_assert(sizeof(struct wb_control_compacted) <= WB_CONTROL_DATA_MAX, "a reply fits");

/* The files that were removed from a directory, or those that had a file's name before. */
static int compact_lost(const struct wb_request *request, struct wb_compact *compact, struct wb_revision *revision,
                        struct wb_revision *dir, uint32_t mode)
{
    if (S_ISDIR(mode))
        return wb_compact_bodies(request->session->store, compact, wb_revision_object(revision), NULL);
    return wb_compact_bodies(request->session->store, compact, wb_revision_object(dir), wb_revision_name(revision));
}

static int compact_object(const struct wb_request *request, struct wb_compact *compact)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    _cleanup_close_ int dir_fd = -1;
    struct wb_attrs attrs;
    int r;

    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r == 0)
        r = wb_control_entry(request, dir, name, &revision);
    if (r == 0)
        r = wb_revision_attrs(request->session->history, revision, &attrs);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    r = wb_control_is_keeper(request) ? 1 : wb_past_owns(request->session, request->req, revision);
    if (r <= 0)
        return r < 0 ? r : -EPERM;
    r = wb_compact_log(request->session->store, compact, wb_revision_object(revision),
                       S_ISDIR(attrs.mode) ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r < 0)
        return r;
    dir_fd = wb_revision_open_present(request->session->history, S_ISDIR(attrs.mode) ? revision : dir,
                                      O_PATH | O_CLOEXEC);
    compact->dir_fd = dir_fd < 0 ? NULL : &dir_fd;
    r = compact_lost(request, compact, revision, dir, attrs.mode);
    compact->dir_fd = NULL;
    return r;
}

/* What was given up is gone through once more: of this time counts only what it came to. */
static void take_back(struct wb_compact *compact)
{
    compact->old_size -= compact->new_size; /* less than nothing where something was unpacked: sums are modulo 2^64 */
    compact->logs = compact->packed = compact->new_size = compact->length = 0;
    memset(&compact->bodies, 0, sizeof(compact->bodies));
}

/* Some folders, so that what is packed of them is brought to the disk together; *cursor: the next one. */
static int compact_some(const struct wb_request *request, struct wb_compact *compact, uint64_t *cursor)
{
    struct wb_store *store = request->session->store;
    int64_t until = g_get_monotonic_time() + AT_A_TIME;
    uint64_t begun = *cursor;
    int r, ret = 0;

    compact->places = wb_catalog_places_new();
    wb_compact_begin(compact, store);
    do {
        r = wb_compact_shard(store, compact, (unsigned)*cursor, INT64_MIN, WB_WHEN_PRESENT);
        ret = r < 0 ? r : ret;
        ++*cursor;
    } while (r != -ECANCELED && *cursor < WB_SHARDS && g_get_monotonic_time() < until);
    ret = wb_compact_finish(compact, ret);
    g_clear_pointer(&compact->places, wb_catalog_places_free);
    if (ret == -ECANCELED) {
        *cursor = begun;
        take_back(compact);
    }
    return ret;
}

int wb_control_compact(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_compacted *reply = (struct wb_control_compacted *)(void *)out->data;
    const struct wb_control *in = request->in;
    struct wb_compact compact = {
        .before = in->until ? in->until : WB_WHEN_PRESENT, .stop = wb_control_is_over,
        .stop_data = (void *)(uintptr_t)request,
        .in_use = wb_compact_in_use, .in_use_data = request->session};
    uint64_t cursor = in->cursor;
    int r;

    if (in->flags & WB_CONTROL_COMPACT_UNDO)
        compact.flags |= WB_COMPACT_UNDO;
    if (in->flags & WB_CONTROL_COMPACT_DRY)
        compact.flags |= WB_COMPACT_DRY;
    if (in->flags & WB_CONTROL_COMPACT_STATS)
        compact.flags |= WB_COMPACT_STATS;
    if (!(in->flags & WB_CONTROL_COMPACT_ALL))
        r = compact_object(request, &compact);
    else if (!wb_control_is_keeper(request))
        r = -EPERM;
    else if (in->cursor >= WB_SHARDS)
        r = -EINVAL;
    else
        r = compact_some(request, &compact, &cursor);
    /* The reply contains the work that was done even if one of many logs or files failed. */
    reply->error = r < 0 ? (uint32_t)-r : 0;
    reply->logs = compact.logs;
    reply->changed = compact.changed;
    reply->packed = compact.packed;
    reply->old_size = compact.old_size;
    reply->new_size = compact.new_size;
    reply->length = compact.length;
    reply->files = compact.bodies.files;
    reply->files_changed = compact.bodies.changed;
    reply->files_packed = compact.bodies.packed;
    reply->files_old_size = compact.bodies.old_size;
    reply->files_new_size = compact.bodies.new_size;
    reply->files_length = compact.bodies.length;
    out->cursor = cursor;
    /* What was given up is asked for again; older tools then say that something was left. */
    out->count = in->flags & WB_CONTROL_COMPACT_ALL && out->cursor < WB_SHARDS && r != -ECANCELED;
    return in->flags & WB_CONTROL_COMPACT_ALL && r != -EPERM && r != -EINVAL ? 0 : r;
}
