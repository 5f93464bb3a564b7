/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thin_changes.h"

#include "store/object/object_log.h"
#include <errno.h>

void wb_thin_changes_init(struct wb_thin_changes *changes, struct wb_object object)
{
    *changes = (struct wb_thin_changes){.object = object,
                                        .list = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_change)),
                                        .vias = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_name))};
}

void wb_thin_changes_deinit(struct wb_thin_changes *changes)
{
    g_array_unref(changes->list);
    g_array_unref(changes->vias);
}

/* ---- the undo log ---------------------------------------------------------------------------- */

static const struct wb_attrs *attrs_of(const struct wb_record *record)
{
    return record->type == WB_REC_DATA    ? &record->data.attrs
           : record->type == WB_REC_ATTR  ? &record->attr.attrs
           : record->type == WB_REC_XATTR ? &record->xattr.attrs
                                          : NULL;
}

/* Changes that count together were all made in the same directory: a catalog would have recorded a move. */
static void place(struct wb_thin_changes *changes, struct wb_thin_change *change, const struct wb_record *record)
{
    if (record->via.length > 0 && attrs_of(record))
        change->dir = record->via.dir;
    changes->lost |= record->type == WB_REC_PLACE;
}

static void take(struct wb_thin_changes *changes, struct wb_thin_catalogs *catalogs, const struct wb_record *record)
{
    GArray *list = changes->list;
    struct wb_thin_change *newest =
        list->len ? &g_array_index(list, struct wb_thin_change, list->len - 1) : NULL;
    const struct wb_attrs *attrs = attrs_of(record);

    changes->joined |= record->flags & WB_RECORD_COALESCED;
    if (attrs)
        changes->links = MAX(changes->links, attrs->nlink);
    if (catalogs->by_path)
        wb_thin_names_via(&catalogs->names, changes->vias, record);
    if (newest && newest->last == record->when) {
        newest->first = record->change;
    } else {
        changes->lost |= newest && wb_object_is_none(newest->dir);
        g_array_append_val(list, ((struct wb_thin_change){record->change, record->when, false, WB_OBJECT_NONE}));
        newest = &g_array_index(list, struct wb_thin_change, list->len - 1);
    }
    place(changes, newest, record);
}

static int read_undo(struct wb_thin_changes *changes, struct wb_thin_catalogs *catalogs)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_log_skip skip = {0};
    struct wb_record record = {.when = INT64_MAX};
    int64_t horizon = wb_store_horizon(catalogs->store);
    int r = wb_object_log_open(&log, catalogs->store, changes->object, WB_FILE_UNDO);

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    /* Earlier records were pruned, perhaps in place: there is a hole then, and an INDEX still lists the records. */
    while (record.when > horizon && (r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0)
        take(changes, catalogs, &record);
    if (changes->list->len > 0)
        changes->lost |= wb_object_is_none(
            g_array_index(changes->list, struct wb_thin_change, changes->list->len - 1).dir);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

/* ---- the catalogs ---------------------------------------------------------------------------- */

static gint by_last(const void *a, const void *b)
{
    const struct wb_thin_change *one = a, *other = b;

    return one->last < other->last ? -1 : one->last > other->last;
}

/* Sorted; parts of one change become one. */
static void join(GArray *list)
{
    guint n = 0;

    g_array_sort(list, by_last);
    for (guint i = 0; i < list->len; i++) {
        struct wb_thin_change *one = &g_array_index(list, struct wb_thin_change, i);
        struct wb_thin_change *before = n > 0 ? &g_array_index(list, struct wb_thin_change, n - 1) : NULL;

        if (before && before->last >= one->first) {
            before->first = MIN(before->first, one->first);
            before->last = one->last;
            before->in_catalog = true; /* never by itself: something is in two logs */
        } else {
            g_array_index(list, struct wb_thin_change, n++) = *one;
        }
    }
    g_array_set_size(list, n);
}

int wb_thin_changes_read(struct wb_thin_changes *changes, struct wb_thin_catalogs *catalogs)
{
    const struct wb_thin_moment *moments;
    guint count;
    int r = read_undo(changes, catalogs);

    if (r < 0 && r != -ENOENT)
        return r;
    moments = wb_thin_catalogs_moments(catalogs, changes->object, &count);
    for (guint i = 0; i < count; i++)
        g_array_append_val(changes->list, ((struct wb_thin_change){moments[i].when, moments[i].when, true,
                                                                   WB_OBJECT_NONE}));
    join(changes->list);
    return r;
}
