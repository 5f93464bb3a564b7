/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of snapshots, and changes of it: one more record for each, on stable storage when the
 * function returns.
 */
#include "store/tables/snapshots.h"

#include "store/parts.h"
#include "store/tables/snapshot_table.h"
#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(WB_SNAPSHOT_NAME_MAX < WB_NAME_MAX, "a name fits into a record");
_Static_assert(WB_SNAPSHOT_TEXT_BYTES == WB_SNAPSHOT_TEXT_MAX, "tools know how long a text may be");

/* Room for the "/N" behind the last path. */
#define MORE_MAX 24

/* ---- the table ------------------------------------------------------------------------------- */

/* Opens the log for appending; the clock goes on above all it has. */
static int open_log(struct wb_store *store, bool create)
{
    struct wb_snapshot_table *table = store->snapshots;
    int r;

    if (table->log)
        return 0;
    r = wb_log_open(&table->log, store->dir_fd, WB_SNAPSHOTS_NAME, create);
    if (r == 0)
        wb_inflight_raise(store->inflight, table->log->last_when);
    return r == -ENOENT && !create ? 0 : r;
}

int wb_snapshot_table_open(struct wb_store *store)
{
    struct wb_snapshot_table *table = g_try_new0(struct wb_snapshot_table, 1);

    if (!table)
        return -ENOMEM;
    pthread_mutex_init(&table->lock, NULL);
    store->snapshots = table;
    return store->writable ? open_log(store, false) : 0;
}

struct wb_snapshot_table *wb_snapshot_table_free(struct wb_snapshot_table *table)
{
    if (!table)
        return NULL;
    wb_log_free(table->log);
    wb_snapshots_unref(table->known);
    pthread_mutex_destroy(&table->lock);
    g_free(table);
    return NULL;
}

static struct wb_snapshots *snapshots_ref(struct wb_snapshots *snapshots)
{
    atomic_fetch_add_explicit(&snapshots->references, 1, memory_order_relaxed);
    return snapshots;
}

struct wb_snapshots *wb_snapshots_unref(struct wb_snapshots *snapshots)
{
    if (snapshots && atomic_fetch_sub_explicit(&snapshots->references, 1, memory_order_acq_rel) == 1)
        g_free(snapshots);
    return NULL;
}

int wb_snapshots_get(struct wb_store *store, struct wb_snapshots **ret)
{
    struct wb_snapshot_table *table = store->snapshots;
    int r;

    pthread_mutex_lock(&table->lock);
    r = wb_snapshot_table_refresh(store);
    if (r == 0)
        *ret = snapshots_ref(table->known);
    pthread_mutex_unlock(&table->lock);
    return r;
}

bool wb_snapshot_is_keepers(const struct wb_snapshot *snapshot)
{
    return snapshot->automatic || snapshot->uid == 0 || snapshot->uid == geteuid();
}

const struct wb_snapshot *wb_snapshots_find(const struct wb_snapshots *snapshots, const char *name, unsigned nth)
{
    size_t low = 0, high = snapshots->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(snapshots->by_name[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    low += nth;
    return low < snapshots->count && strcmp(snapshots->by_name[low]->name, name) == 0 ? snapshots->by_name[low] : NULL;
}

bool wb_snapshots_is_taken(const struct wb_snapshots *snapshots, const struct wb_snapshot *wanted,
                           const struct wb_snapshot *but)
{
    const struct wb_snapshot *other;

    for (unsigned nth = 0; (other = wb_snapshots_find(snapshots, wanted->name, nth)); nth++)
        if (other != but && (wb_snapshot_is_keepers(other) || other->uid == wanted->uid))
            return true;
    return false;
}

static int compare_when(const void *key, const void *element)
{
    int64_t when = *(const int64_t *)key, other = ((const struct wb_snapshot *)element)->when;

    return when < other ? -1 : when > other;
}

const struct wb_snapshot *wb_snapshots_at(const struct wb_snapshots *snapshots, int64_t when)
{
    return snapshots->count == 0 ? NULL
                                 : bsearch(&when, snapshots->list, snapshots->count,
                                           sizeof(snapshots->list[0]), compare_when);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* With the table's lock held: one more record. `when` of the record is given out here. */
static int append(struct wb_store *store, const struct wb_snapshot *snapshot, bool present,
                  const void *payload, size_t length)
{
    struct wb_log *log = store->snapshots->log;
    struct iovec piece = {.iov_base = (void *)payload, .iov_len = length};
    struct wb_record record = {
        .type = WB_REC_SNAPSHOT,
        .snapshot = {
            .moment = snapshot->when,
            .scope = snapshot->scope,
            .uid = snapshot->uid,
            .present = present,
            .automatic = snapshot->automatic,
            .name = snapshot->name,
            .name_length = (uint8_t)strlen(snapshot->name),
            .text = snapshot->text,
            .text_length = (uint16_t)strlen(snapshot->text),
            .path = snapshot->path,
            .path_length = (uint16_t)strlen(snapshot->path),
        },
    };
    int r;

    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    r = wb_log_append_locked(log, &record, &piece, length > 0 ? 1 : 0);
    pthread_mutex_unlock(&log->lock);
    return r;
}

static int append_durably(struct wb_store *store, const struct wb_snapshot *snapshot, bool present,
                          const void *payload, size_t length)
{
    int r = append(store, snapshot, present, payload, length);

    return r < 0 ? r : wb_log_sync(store->snapshots->log, store->dir_fd, WB_SNAPSHOTS_NAME);
}

/* With the lock held: ready for a change. */
static int prepare(struct wb_store *store)
{
    int r;

    if (!store->writable)
        return -EROFS;
    r = open_log(store, true);
    return r < 0 ? r : wb_snapshot_table_refresh(store);
}

/* The payload: as many of the paths as it holds, and how many more there are. */
static GByteArray *join(const char *const *paths)
{
    GByteArray *joined = g_byte_array_new();
    size_t more = 0;

    for (; paths && *paths; paths++) {
        size_t length = strlen(*paths) + 1;

        if (joined->len + length <= WB_PAYLOAD_MAX - MORE_MAX && more == 0)
            g_byte_array_append(joined, (const guint8 *)*paths, (guint)length);
        else
            more++;
    }
    if (more > 0) {
        char text[MORE_MAX];
        int length = snprintf(text, sizeof(text), "/%zu", more);

        g_byte_array_append(joined, (const guint8 *)text, (guint)length + 1);
    }
    return joined;
}

bool wb_snapshots_are_all(const struct wb_snapshots *known)
{
    size_t bytes = 0;

    for (size_t i = 0; i < known->count; i++)
        bytes += strlen(known->list[i].name) + strlen(known->list[i].text) + strlen(known->list[i].path) + 3;
    return known->count >= WB_SNAPSHOTS_MAX ||
           bytes + WB_NAME_MAX + WB_SNAPSHOT_TEXT_MAX + WB_SNAPSHOT_PATH_MAX > WB_SNAPSHOTS_BYTES_MAX;
}

/* With the lock held: whether the table has room for it. */
static int check_new(const struct wb_snapshots *known, const struct wb_snapshot *snapshot)
{
    if (wb_snapshots_is_taken(known, snapshot, NULL) || wb_snapshots_at(known, snapshot->when))
        return -EEXIST;
    return wb_snapshots_are_all(known) ? -ENOSPC : 0;
}

int wb_snapshots_add(struct wb_store *store, const struct wb_snapshot *snapshot,
                     const char *const *open_files)
{
    g_autoptr(GByteArray) payload = NULL;
    int r = wb_snapshot_name_check(snapshot->name, NULL);

    if (r < 0)
        return r;
    if (strlen(snapshot->text) > WB_SNAPSHOT_TEXT_MAX || strlen(snapshot->path) > WB_SNAPSHOT_PATH_MAX)
        return -EINVAL;
    payload = join(open_files);
    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    if (r == 0)
        r = check_new(store->snapshots->known, snapshot);
    if (r == 0) {
        r = append_durably(store, snapshot, true, payload->data, payload->len);
        /* Whoever is told that there is none shall not meet it later. */
        if (r < 0)
            append(store, snapshot, false, NULL, 0);
    }
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

int wb_snapshots_rename(struct wb_store *store, int64_t when, const char *name)
{
    const struct wb_snapshot *old;
    g_autofree char *payload = NULL;
    struct wb_snapshot renamed = {0};
    size_t length = 0;
    int r = wb_snapshot_name_check(name, NULL);

    if (r < 0)
        return r;
    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    old = r == 0 ? wb_snapshots_at(store->snapshots->known, when) : NULL;
    if (r == 0 && !old)
        r = WB_ABSENT;
    if (r == 0) {
        renamed = *old;
        renamed.name = name;
        if (wb_snapshots_is_taken(store->snapshots->known, &renamed, old))
            r = -EEXIST;
    }
    if (r == 0 && strcmp(old->name, name) != 0) {
        /* The record that counts has the list of open files, too. Where that is damaged it is lost already. */
        r = wb_snapshot_payload(store, old, &payload, &length);
        if (r == 0 || r == -EIO) {
            r = append_durably(store, &renamed, true, payload, length);
        }
    }
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

int wb_snapshots_delete(struct wb_store *store, int64_t when)
{
    const struct wb_snapshot *old;
    int r;

    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    old = r == 0 ? wb_snapshots_at(store->snapshots->known, when) : NULL;
    if (old)
        r = append_durably(store, old, false, NULL, 0);
    else if (r == 0)
        r = WB_ABSENT;
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

/* ---- what was open --------------------------------------------------------------------------- */

int wb_snapshots_open_files(struct wb_store *store, int64_t when, char ***ret, uint64_t *ret_more)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    const struct wb_snapshot *snapshot;
    g_autofree char *payload = NULL;
    size_t length = 0;
    int r = wb_snapshots_get(store, &all);

    if (r < 0)
        return r;
    snapshot = wb_snapshots_at(all, when);
    r = snapshot ? wb_snapshot_payload(store, snapshot, &payload, &length) : WB_ABSENT;
    if (r != 0)
        return r;
    *ret_more = 0;
    for (size_t at = 0; at < length; at += strlen(payload + at) + 1) {
        if (payload[at] == '/')
            *ret_more = g_ascii_strtoull(payload + at + 1, NULL, 10);
        else if (payload[at])
            g_ptr_array_add(paths, g_strdup(payload + at));
    }
    g_ptr_array_add(paths, NULL);
    *ret = (char **)g_ptr_array_free(g_steal_pointer(&paths), FALSE);
    return 0;
}
