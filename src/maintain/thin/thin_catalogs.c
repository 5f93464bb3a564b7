/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thin_catalogs.h"

#include "maintain/thin/thin_saves.h"
#include "format/object_key.h"
#include "store/cache/gaps.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>

/* The moments in catalogs are held in memory, 24 bytes each: beyond this number, nothing is thinned. */
#define MOMENTS_MAX (8u << 20)
/* Each is compared with each version. */
#define UNKNOWN_SPANS_MAX 4096u

void wb_thin_catalogs_init(struct wb_thin_catalogs *catalogs, struct wb_store *store, bool by_path,
                           bool (*stop)(void *data), void *data)
{
    *catalogs = (struct wb_thin_catalogs){.store = store, .by_path = by_path,
                                  .moments = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_moment)),
                                  .unknown_spans = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_unknown_span)),
                                  .replacing = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL)};
    wb_thin_names_init(&catalogs->names, store, stop, data);
}

void wb_thin_catalogs_deinit(struct wb_thin_catalogs *catalogs)
{
    wb_thin_names_deinit(&catalogs->names);
    g_array_unref(catalogs->moments);
    g_array_unref(catalogs->unknown_spans);
    g_hash_table_unref(catalogs->replacing);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void note(struct wb_thin_catalogs *catalogs, struct wb_object object, int64_t when)
{
    if (catalogs->moments->len >= MOMENTS_MAX)
        catalogs->blind = -E2BIG;
    else if (!wb_object_is_none(object))
        g_array_append_val(catalogs->moments, ((struct wb_thin_moment){object, when}));
}

static void note_unknown_span(struct wb_thin_catalogs *catalogs, struct wb_thin_unknown_span unknown_span)
{
    if (catalogs->unknown_spans->len >= UNKNOWN_SPANS_MAX)
        catalogs->blind = -E2BIG;
    else
        g_array_append_val(catalogs->unknown_spans, unknown_span);
    if (unknown_span.damaged)
        catalogs->blind = wb_thin_names_distrust(&catalogs->names, unknown_span.dir) < 0 ? -E2BIG : catalogs->blind;
}

static int take(struct wb_thin_catalogs *catalogs, struct wb_object dir, const struct wb_record *record)
{
    if (record->type == WB_REC_NAME)
        for (uint32_t i = 0; i < record->name.count; i++)
            note(catalogs, record->name.slots[i].object, record->when);
    else if (record->type == WB_REC_ATTR)
        note(catalogs, record->attr.object, record->when);
    else if (record->type == WB_REC_XATTR)
        note(catalogs, record->xattr.object, record->when);
    else if (record->type == WB_REC_GAP)
        note_unknown_span(catalogs, (struct wb_thin_unknown_span){dir, record->gap.since, record->when, false});
    if (wb_thin_is_replacing(dir, record))
        g_hash_table_add(catalogs->replacing, g_memdup2(&dir, sizeof(dir)));
    return catalogs->by_path ? wb_thin_names_take(&catalogs->names, dir, record) : 0;
}

static int walk(struct wb_thin_catalogs *catalogs, struct wb_object dir, struct wb_log_reader *reader)
{
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int64_t above = WB_WHEN_PRESENT;
    bool damaged = false;
    int r;

    do {
        r = wb_log_reader_prev_effective(reader, &skip, &record);
        /* A hole in place of pruned records is no damage. */
        if (damaged && r != WB_DAMAGED && r >= 0 && above > wb_store_horizon(catalogs->store))
            note_unknown_span(catalogs,
                         (struct wb_thin_unknown_span){dir, r == 0 ? record.written : INT64_MIN, above, true});
        damaged = r == WB_DAMAGED;
        if (r != 0)
            continue;
        above = record.written;
        r = take(catalogs, dir, &record);
    } while (r == 0 || r == WB_DAMAGED);
    return MIN(r, 0);
}

static int read_catalog(struct wb_thin_catalogs *catalogs, struct wb_object dir)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    int r = wb_object_log_open(&log, catalogs->store, dir, WB_FILE_CATALOG);

    return r > 0 ? walk(catalogs, dir, &log.reader) : r;
}

/* An open gap later becomes a record: a caller that checks for it before it reads the log finds one of the two. */
static bool has_open_gap(const struct wb_thin_catalogs *catalogs, struct wb_object dir)
{
    return wb_gap_state(catalogs->store, dir, WB_FILE_CATALOG) != WB_GAP_NONE;
}

void wb_thin_catalogs_read(struct wb_thin_catalogs *catalogs, struct wb_object dir)
{
    int r;

    if (has_open_gap(catalogs, dir))
        note_unknown_span(catalogs, (struct wb_thin_unknown_span){dir, INT64_MIN, WB_WHEN_PRESENT, false});
    r = read_catalog(catalogs, dir);
    if (r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -E2BIG)
        catalogs->blind = r;
    else if (r < 0)
        note_unknown_span(catalogs, (struct wb_thin_unknown_span){dir, INT64_MIN, WB_WHEN_PRESENT, true});
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

void wb_thin_catalogs_sort(struct wb_thin_catalogs *catalogs)
{
    g_array_sort(catalogs->moments, by_object);
    wb_thin_names_settle(&catalogs->names);
}

const struct wb_thin_moment *wb_thin_catalogs_moments(const struct wb_thin_catalogs *catalogs, struct wb_object object,
                                                      guint *ret_count)
{
    const struct wb_thin_moment *all = (const struct wb_thin_moment *)(void *)catalogs->moments->data;
    const struct wb_thin_moment least = {object, INT64_MIN};
    guint low = 0, high = catalogs->moments->len;

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
    for (; low + *ret_count < catalogs->moments->len; ++*ret_count)
        if (!wb_object_equal(all[low + *ret_count].object, object))
            break;
    return all + low;
}

const struct wb_thin_unknown_span *wb_thin_catalogs_unknown_span(const struct wb_thin_catalogs *catalogs,
                                                                 struct wb_object one, struct wb_object other,
                                                                 int64_t from, int64_t until)
{
    bool anywhere = wb_object_is_none(one) || wb_object_is_none(other);
    static const struct wb_thin_unknown_span open;
    const struct wb_thin_unknown_span *found = NULL;

    for (guint i = 0; i < catalogs->unknown_spans->len && !(found && found->damaged); i++) {
        const struct wb_thin_unknown_span *unknown_span =
            &g_array_index(catalogs->unknown_spans, struct wb_thin_unknown_span, i);

        if (unknown_span->since <= until && unknown_span->when >= from &&
            (anywhere || wb_object_equal(unknown_span->dir, one) || wb_object_equal(unknown_span->dir, other)))
            found = unknown_span;
    }
    if (!found && (anywhere ? wb_gaps_count(catalogs->store) > 0 : has_open_gap(catalogs, one)))
        found = &open;
    return found;
}
