/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether versions can be erased one by one: nothing but content and attributes in one undo log tells of them. */
#include "maintain/erase/erase_versions_parts.h"

#include "maintain/rewrite/compact.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"
#include "store/tables/pins.h"
#include "store/tables/snapshots.h"
#include "wayback/when.h"
#include <errno.h>

/* Of one record that counts and is not outside. 0, or the refusal. */
static int judge(struct wb_erasing *erasing, const struct wb_record *record, int64_t newer)
{
    uint64_t size = record->type == WB_REC_DATA   ? record->data.size_after
                    : record->type == WB_REC_ATTR ? record->attr.size_after
                                                  : record->xattr.attrs.size;

    if (record->flags & WB_RECORD_STAGE)
        return WB_CONTROL_REFUSED_STAGE;
    if ((record->type != WB_REC_DATA && record->type != WB_REC_ATTR && record->type != WB_REC_XATTR) ||
        record->op < WB_OP_WRITE || record->op > WB_OP_REMOVEXATTR)
        return WB_CONTROL_REFUSED_KIND;
    if (erasing->what->by != 0 && wb_erasing_attrs(record)->uid != erasing->what->by)
        return -EPERM;
    if (newer != record->when)
        erasing->dropped += newer != 0;
    if (record->when != erasing->what->until && record->actor != 0)
        g_hash_table_add(erasing->erasure->actors, GUINT_TO_POINTER(record->actor));
    if (record->when == erasing->what->until && newer == 0) {
        erasing->size_after = size;
        erasing->actor = record->actor;
    }
    if (record->type == WB_REC_XATTR) {
        char *name = g_strndup(record->xattr.name, record->xattr.name_length);

        if (g_hash_table_contains(erasing->last_ops, name))
            g_free(name);
        else
            g_hash_table_insert(erasing->last_ops, name, GUINT_TO_POINTER(record->op));
    }
    return 0;
}

/* All records, from the tail. 0, a refusal, or -errno. */
static int look(struct wb_erasing *erasing)
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int64_t newer = 0;
    bool first = false;
    int refused = 0, r = wb_log_reader_init(&reader, erasing->fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0) {
        struct wb_erasing_entry entry = {.offset = record.offset};

        r = wb_log_skip_judge(&skip, &record);
        if (r < 0)
            break;
        entry.when = record.when;
        entry.counts = r > 0;
        entry.told = entry.counts && wb_erasing_has(erasing, record.when) && record.type != WB_REC_INDEX &&
                     !(record.type == WB_REC_FILLER && record.filler.until == 0);
        refused = entry.told ? judge(erasing, &record, newer) : 0;
        if (refused != 0)
            break;
        newer = entry.told ? record.when : newer;
        first |= entry.told && record.when == erasing->what->from;
        g_array_append_val(erasing->entries, entry);
    }
    wb_log_reader_deinit(&reader);
    if (refused != 0 || r < 0)
        return refused != 0 ? refused : r;
    if (r == WB_DAMAGED)
        return WB_CONTROL_REFUSED_DAMAGED;
    return first && erasing->size_after != UINT64_MAX ? 0 : WB_CONTROL_REFUSED_NONE;
}

static bool tells_of(const struct wb_record *record, struct wb_object object)
{
    if (record->type == WB_REC_NAME)
        for (uint32_t i = 0; i < record->name.count; i++)
            if (wb_object_equal(record->name.slots[i].object, object))
                return true;
    return record->type == WB_REC_GAP ||
           (record->type == WB_REC_ATTR && wb_object_equal(record->attr.object, object)) ||
           (record->type == WB_REC_XATTR && wb_object_equal(record->xattr.object, object));
}

static int look_at_catalog(struct wb_erasing *erasing, struct wb_object dir)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    int r = wb_object_log_open(&log, erasing->store, dir, WB_FILE_CATALOG);

    if (r <= 0)
        return r;
    while ((r = wb_log_reader_prev(&log.reader, &record)) == 0 && record.when >= erasing->what->from)
        if (wb_erasing_has(erasing, record.when) && tells_of(&record, erasing->what->object))
            return WB_CONTROL_REFUSED_CATALOG;
    return r == WB_DAMAGED ? WB_CONTROL_REFUSED_DAMAGED : MIN(r, 0);
}

static int look_at_catalogs(struct wb_erasing *erasing)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    int r = 0;

    for (unsigned folder = 0; r == 0 && folder < WB_FOLDERS; folder++)
        r = wb_compact_gather(erasing->store, folder, INT64_MIN, WB_WHEN_PRESENT, list);
    for (guint i = 0; r == 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        if (found->file == WB_FILE_CATALOG)
            r = look_at_catalog(erasing, found->object);
    }
    return r;
}

int wb_erase_versions_look(struct wb_store *store, struct wb_erase_versions *what)
{
    struct wb_erasing erasing = {.store = store, .what = what};
    int r = look_at_catalogs(&erasing);

    what->catalogs = r == -EBADMSG ? WB_CONTROL_REFUSED_DAMAGED : MAX(r, 0);
    return r == -EBADMSG ? 0 : MIN(r, 0);
}

static int look_at_snapshots(const struct wb_erasing *erasing)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshots_get(erasing->store, &all);

    for (size_t i = 0; r == 0 && i < all->count; i++)
        if (all->list[i].when >= erasing->what->from && all->list[i].when < erasing->what->until)
            return WB_CONTROL_REFUSED_SNAPSHOT;
    return r;
}

/* Who shows one of these states elsewhere would put it together with the one that takes its place. */
static int look_at_pins(const struct wb_erasing *erasing)
{
    g_autoptr(GArray) pins = g_array_new(FALSE, FALSE, sizeof(int64_t));
    int r = wb_store_pinned(erasing->store, pins);

    for (guint i = 0; r == 0 && i < pins->len; i++)
        if (g_array_index(pins, int64_t, i) >= erasing->what->from &&
            g_array_index(pins, int64_t, i) < erasing->what->until)
            return WB_CONTROL_REFUSED_SHOWN;
    return r == -EBUSY ? WB_CONTROL_REFUSED_SHOWN : r;
}

/* 0, a refusal, or -errno. */
int wb_erasing_look(struct wb_erasing *erasing)
{
    struct stat st;
    int r = look(erasing);

    /* Why it does not: mostly because the directory does. */
    if (r == WB_CONTROL_REFUSED_NONE)
        return erasing->what->catalogs == WB_CONTROL_REFUSED_CATALOG ? WB_CONTROL_REFUSED_CATALOG : r;
    if (r == 0)
        r = look_at_snapshots(erasing);
    if (r == 0)
        r = look_at_pins(erasing);
    if (r == 0 && (wb_bundle_stat(erasing->store, erasing->what->object, WB_FILE_BUNDLE_OLD, &st) != WB_ABSENT ||
                   wb_bundle_stat(erasing->store, erasing->what->object, WB_FILE_BUNDLE, &st) != WB_ABSENT))
        return WB_CONTROL_REFUSED_BUNDLE;
    return r == 0 ? erasing->what->catalogs : r;
}
