/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thin_told.h"

#include "maintain/thin/thin_saves.h"
#include "format/object_key.h"
#include "store/cache/gaps.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>

/* What catalogs tell is held in memory, 24 bytes each: beyond this, nothing is thinned. */
#define MOMENTS_MAX (8u << 20)
/* Each is compared with each version. */
#define LACKS_MAX 4096u

void wb_thin_told_init(struct wb_thin_told *told, struct wb_store *store, bool by_path, bool (*stop)(void *data),
                       void *data)
{
    *told = (struct wb_thin_told){.store = store, .by_path = by_path,
                                  .moments = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_moment)),
                                  .lacks = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_lack)),
                                  .replacing = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL)};
    wb_thin_names_init(&told->names, store, stop, data);
}

void wb_thin_told_deinit(struct wb_thin_told *told)
{
    wb_thin_names_deinit(&told->names);
    g_array_unref(told->moments);
    g_array_unref(told->lacks);
    g_hash_table_unref(told->replacing);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void note(struct wb_thin_told *told, struct wb_object object, int64_t when)
{
    if (told->moments->len >= MOMENTS_MAX)
        told->blind = -E2BIG;
    else if (!wb_object_is_none(object))
        g_array_append_val(told->moments, ((struct wb_thin_moment){object, when}));
}

static void lack(struct wb_thin_told *told, struct wb_thin_lack lack)
{
    if (told->lacks->len >= LACKS_MAX)
        told->blind = -E2BIG;
    else
        g_array_append_val(told->lacks, lack);
    if (lack.damaged)
        told->blind = wb_thin_names_distrust(&told->names, lack.dir) < 0 ? -E2BIG : told->blind;
}

static int take(struct wb_thin_told *told, struct wb_object dir, const struct wb_record *record)
{
    if (record->type == WB_REC_NAME)
        for (uint32_t i = 0; i < record->name.count; i++)
            note(told, record->name.slots[i].object, record->when);
    else if (record->type == WB_REC_ATTR)
        note(told, record->attr.object, record->when);
    else if (record->type == WB_REC_XATTR)
        note(told, record->xattr.object, record->when);
    else if (record->type == WB_REC_GAP)
        lack(told, (struct wb_thin_lack){dir, record->gap.since, record->when, false});
    if (wb_thin_is_replacing(dir, record))
        g_hash_table_add(told->replacing, g_memdup2(&dir, sizeof(dir)));
    return told->by_path ? wb_thin_names_take(&told->names, dir, record) : 0;
}

static int walk(struct wb_thin_told *told, struct wb_object dir, struct wb_log_reader *reader)
{
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int64_t above = WB_WHEN_PRESENT;
    bool damaged = false;
    int r;

    do {
        r = wb_log_reader_prev_effective(reader, &skip, &record);
        /* A hole in the place of what was forgotten is no damage. */
        if (damaged && r != WB_DAMAGED && r >= 0 && above > wb_store_horizon(told->store))
            lack(told, (struct wb_thin_lack){dir, r == 0 ? record.written : INT64_MIN, above, true});
        damaged = r == WB_DAMAGED;
        if (r != 0)
            continue;
        above = record.written;
        r = take(told, dir, &record);
    } while (r == 0 || r == WB_DAMAGED);
    return MIN(r, 0);
}

static int read_catalog(struct wb_thin_told *told, struct wb_object dir)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    int r = wb_object_log_open(&log, told->store, dir, WB_FILE_CATALOG);

    return r > 0 ? walk(told, dir, &log.reader) : r;
}

/* A gap that is still open becomes a record some time: whoever asks before he reads finds one or the other. */
static bool has_open_gap(const struct wb_thin_told *told, struct wb_object dir)
{
    return wb_gap_state(told->store, dir, WB_FILE_CATALOG) != WB_GAP_NONE;
}

void wb_thin_told_read(struct wb_thin_told *told, struct wb_object dir)
{
    int r;

    if (has_open_gap(told, dir))
        lack(told, (struct wb_thin_lack){dir, INT64_MIN, WB_WHEN_PRESENT, false});
    r = read_catalog(told, dir);
    if (r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -E2BIG)
        told->blind = r;
    else if (r < 0)
        lack(told, (struct wb_thin_lack){dir, INT64_MIN, WB_WHEN_PRESENT, true});
}

/* ---- asking ---------------------------------------------------------------------------------- */

static gint by_object(const void *a, const void *b)
{
    const struct wb_thin_moment *one = a, *other = b;
    int r = wb_object_compare(one->object, other->object);

    if (r != 0)
        return r;
    return one->when < other->when ? -1 : one->when > other->when;
}

void wb_thin_told_settle(struct wb_thin_told *told)
{
    g_array_sort(told->moments, by_object);
    wb_thin_names_settle(&told->names);
}

const struct wb_thin_moment *wb_thin_told_of(const struct wb_thin_told *told, struct wb_object object,
                                             guint *ret_count)
{
    const struct wb_thin_moment *all = (const struct wb_thin_moment *)(void *)told->moments->data;
    const struct wb_thin_moment least = {object, INT64_MIN};
    guint low = 0, high = told->moments->len;

    *ret_count = 0;
    if (high == 0)
        return NULL;
    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (by_object(&all[middle], &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low + *ret_count < told->moments->len; ++*ret_count)
        if (!wb_object_equal(all[low + *ret_count].object, object))
            break;
    return all + low;
}

const struct wb_thin_lack *wb_thin_told_lacks(const struct wb_thin_told *told, struct wb_object one,
                                              struct wb_object other, int64_t from, int64_t until)
{
    bool anywhere = wb_object_is_none(one) || wb_object_is_none(other);
    static const struct wb_thin_lack open;
    const struct wb_thin_lack *found = NULL;

    for (guint i = 0; i < told->lacks->len && !(found && found->damaged); i++) {
        const struct wb_thin_lack *lack = &g_array_index(told->lacks, struct wb_thin_lack, i);

        if (lack->since <= until && lack->when >= from &&
            (anywhere || wb_object_equal(lack->dir, one) || wb_object_equal(lack->dir, other)))
            found = lack;
    }
    if (!found && (anywhere ? wb_gaps_count(told->store) > 0 : has_open_gap(told, one)))
        found = &open;
    return found;
}
