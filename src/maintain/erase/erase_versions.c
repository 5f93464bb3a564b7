/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The changes from the first that is named to the last become two: for a moment before the first, or between them, both
 * are undone together (WB_RECORD_COALESCED), so that of each byte only the value in the oldest of them is needed.
 * Thinning leaves the heads of the records it drops, since no record may move; here the log is written anew while no
 * process writes, and the remaining records have the attributes, sizes and ranges of the state before the changes only.
 */
#include "maintain/erase/erase_versions.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "history/content/extent_map.h"
#include "maintain/erase/erase_set.h"
#include "maintain/rewrite/compact.h"
#include "maintain/rewrite/rewrite.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include "store/tables/snapshots.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <xxhash.h>

/* A record of the log, in the order of a walk back. */
struct wb_erasing_entry {
    uint64_t offset;
    int64_t when;
    bool counts, merged; /* not aborted; one of those that become two changes */
};

/* A record that is made, until it is known whether another of the same change follows. */
struct wb_erasing_made {
    struct wb_record record;
    char name[WB_NAME_MAX + 1], via[WB_NAME_MAX + 1];
    uint8_t *payload;
    bool pending;
};

struct wb_erasing {
    struct wb_store *store;
    const struct wb_erase_versions *what;
    struct wb_erasure *erasure;  /* for its actors                              */
    int fd, image_fd;
    GArray *entries;             /* of struct wb_erasing_entry, newest first               */
    GHashTable *last_ops;        /* of extended attributes: the last operation  */
    GHashTable *names;           /* of those that an older change records       */
    struct wb_extent_map map;    /* what older ones have, and all past the end  */
    bool begun;                  /* attrs are known, and the map                */
    struct wb_attrs attrs;       /* before the first change                     */
    uint64_t size_after;         /* the last one                                */
    uint32_t actor;              /* who made it                                 */
    int64_t last;                /* `when` of the record made last              */
    struct wb_erasing_made made;
    uint8_t *payload;            /* of the record being read                    */
    struct wb_rewrite rewrite;
    guint copied;                /* of the entries, from the oldest             */
    bool ended;                  /* all merged records are in the new log       */
    unsigned dropped;            /* states that go                              */
};

static inline const struct wb_attrs *wb_erasing_attrs(const struct wb_record *record)
{
    return record->type == WB_REC_DATA   ? &record->data.attrs
           : record->type == WB_REC_ATTR ? &record->attr.attrs
                                         : &record->xattr.attrs;
}

static inline bool wb_erasing_has(const struct wb_erasing *erasing, int64_t when)
{
    return when >= erasing->what->from && when <= erasing->what->until;
}

/* ---- what is left of them -------------------------------------------------------------------- */

/* Whether versions can be erased one by one: only content and attributes in one undo log record them. */

/* Of one record that counts and is not outside. 0, or the refusal. */
static int judge(struct wb_erasing *erasing, const struct wb_record *record, int64_t newer)
{
    uint64_t size = record->type == WB_REC_DATA   ? record->data.size_after
                    : record->type == WB_REC_ATTR ? record->attr.size_after
                                                  : record->xattr.attrs.size;

    if (record->flags & WB_RECORD_STAGE)
        return WB_CONTROL_REFUSED_STAGE;
    if ((record->type != WB_REC_DATA && record->type != WB_REC_ATTR && record->type != WB_REC_XATTR) ||
        !wb_op_has(record->op, WB_EFFECT_CONTENT | WB_EFFECT_ATTRS))
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
        entry.merged = entry.counts && wb_erasing_has(erasing, record.when) && record.type != WB_REC_INDEX &&
                       !(record.type == WB_REC_FILLER && record.filler.until == 0);
        refused = entry.merged ? judge(erasing, &record, newer) : 0;
        if (refused != 0)
            break;
        newer = entry.merged ? record.when : newer;
        first |= entry.merged && record.when == erasing->what->from;
        g_array_append_val(erasing->entries, entry);
    }
    wb_log_reader_deinit(&reader);
    if (refused != 0 || r < 0)
        return refused != 0 ? refused : r;
    if (r == WB_DAMAGED)
        return WB_CONTROL_REFUSED_DAMAGED;
    return first && erasing->size_after != UINT64_MAX ? 0 : WB_CONTROL_REFUSED_NONE;
}

static bool is_about(const struct wb_record *record, struct wb_object object)
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
        if (wb_erasing_has(erasing, record.when) && is_about(&record, erasing->what->object))
            return WB_CONTROL_REFUSED_CATALOG;
    return r == WB_DAMAGED ? WB_CONTROL_REFUSED_DAMAGED : MIN(r, 0);
}

static int look_at_catalogs(struct wb_erasing *erasing)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    int r = 0;

    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++)
        r = wb_compact_gather(erasing->store, shard, INT64_MIN, WB_WHEN_PRESENT, list);
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
static int erasing_look(struct wb_erasing *erasing)
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

/*
 * The records that stand for those of several changes. For each byte and each extended attribute, one of them has the
 * value from the oldest change; all have the attributes before the first, and the range and size of no erased record.
 */

/* Writes what waits. `more`: another record of the same change follows. */
static int erasing_put(struct wb_erasing *erasing, bool more)
{
    struct wb_erasing_made *made = &erasing->made;

    if (!made->pending)
        return 0;
    made->pending = false;
    made->record.flags |= more ? WB_RECORD_MORE : 0;
    return wb_rewrite_append_made(&erasing->rewrite, &made->record, made->payload);
}

/* The next record of one of the two changes, `type` of it. No remaining record names the actors of erased changes. */
static int begin_made(struct wb_erasing *erasing, const struct wb_record *from, uint8_t type)
{
    bool joined = from->when != erasing->what->from;
    int64_t when = joined ? erasing->what->until : erasing->what->from;
    struct wb_erasing_made *made = &erasing->made;
    int r = erasing_put(erasing, made->pending && made->record.when == when);

    made->record = (struct wb_record){.type = type, .op = WB_OP_WRITE, .when = when, .actor = erasing->actor,
                                      .flags = joined ? WB_RECORD_COALESCED : 0, .via = from->via};
    if (from->via.length > 0)
        memcpy(made->via, from->via.name, from->via.length);
    made->record.via.name = made->via;
    made->pending = true;
    erasing->last = when;
    return r;
}

/* Holds nothing but the attributes. */
static int erasing_make_attr(struct wb_erasing *erasing, const struct wb_record *from)
{
    int r = begin_made(erasing, from, WB_REC_ATTR);
    struct wb_rec_attr *attr = &erasing->made.record.attr;

    attr->object = erasing->what->object;
    attr->attrs = erasing->attrs;
    attr->size_after = erasing->size_after;
    return r;
}

static int check_of_image(const struct wb_erasing *erasing, uint64_t offset, uint64_t length, uint64_t *ret)
{
    g_autofree uint8_t *bytes = g_try_malloc(WB_PAYLOAD_MAX);
    XXH3_state_t *state = XXH3_createState();
    int r = state && bytes ? 0 : -ENOMEM;

    if (r == 0)
        XXH3_64bits_reset(state);
    for (size_t step; r == 0 && length > 0; offset += step, length -= step) {
        step = (size_t)MIN(length, (uint64_t)WB_PAYLOAD_MAX);
        r = wb_pread_exact(erasing->image_fd, bytes, step, offset);
        if (r == 0)
            XXH3_64bits_update(state, bytes, step);
    }
    if (r == 0)
        *ret = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return r;
}

/* A part of an extent that no older change has. An image with a checksum is verified before a part gets its own. */
static int make_part(struct wb_erasing *erasing, const struct wb_record *from, const struct wb_extent *extent,
                     uint64_t at, uint64_t end)
{
    struct wb_extent part = *extent;
    struct wb_rec_data *data = &erasing->made.record.data;
    bool whole = at == extent->offset && end == extent->offset + extent->length;
    uint64_t check;
    int r = 0;

    part.offset = at;
    part.length = end - at;
    if (!erasing->made.pending || erasing->made.record.type != WB_REC_DATA || data->count == WB_EXTENTS_MAX ||
        erasing->made.record.offset != from->offset) {
        r = begin_made(erasing, from, WB_REC_DATA);
        erasing->made.record.offset = from->offset;
        data->attrs = erasing->attrs;
        data->offset = at;
        data->size_after = erasing->size_after;
    }
    if (extent->kind == WB_EXTENT_INLINE) {
        memcpy(erasing->made.payload + erasing->made.record.payload_length,
               erasing->payload + extent->source + (at - extent->offset), part.length);
        part.source = erasing->made.record.payload_length;
        erasing->made.record.payload_length += (uint32_t)part.length;
    } else if (extent->kind == WB_EXTENT_IMAGE) {
        part.source += at - extent->offset;
        if (extent->check != 0 && !whole) {
            r = check_of_image(erasing, extent->source, extent->length, &check);
            if (r == 0 && check != extent->check)
                r = -EBADMSG;
            if (r == 0)
                r = check_of_image(erasing, part.source, part.length, &part.check);
        }
    }
    data->length = end - data->offset;
    data->extents[data->count++] = part;
    return r;
}

static int make_extent(struct wb_erasing *erasing, const struct wb_record *from, const struct wb_extent *extent)
{
    uint64_t at = extent->offset, end = at + extent->length, until;
    int r = 0;

    while (r == 0 && at < end) {
        const struct wb_piece *piece = wb_extent_map_find(&erasing->map, at, &until);
        uint64_t to = MIN(end, piece ? piece->offset + piece->length : until);

        if (!piece)
            r = make_part(erasing, from, extent, at, to);
        at = to;
    }
    return r;
}

static int mark_known(struct wb_erasing *erasing, uint64_t offset, uint64_t length)
{
    return wb_extent_map_fill(&erasing->map,
                              &(struct wb_piece){.offset = offset, .length = length, .kind = WB_EXTENT_ZERO});
}

static int make_data(struct wb_erasing *erasing, const struct wb_record *record)
{
    const struct wb_rec_data *data = &record->data;
    int r = 0;

    if (record->payload_length > 0)
        r = wb_log_read_payload(erasing->fd, record, erasing->payload);
    for (uint32_t i = 0; r == 0 && i < data->count; i++)
        r = make_extent(erasing, record, &data->extents[i]);
    for (uint32_t i = 0; r == 0 && i < data->count; i++)
        r = mark_known(erasing, data->extents[i].offset, data->extents[i].length);
    return r;
}

static int make_xattr(struct wb_erasing *erasing, const struct wb_record *record)
{
    char *name = g_strndup(record->xattr.name, record->xattr.name_length);
    struct wb_erasing_made *made = &erasing->made;
    int r;

    if (g_hash_table_contains(erasing->names, name) ||
        (!record->xattr.present &&
         GPOINTER_TO_UINT(g_hash_table_lookup(erasing->last_ops, name)) == WB_OP_REMOVEXATTR)) {
        /* It was not there before, and is not there afterwards: nobody needs to know that there was such a name. */
        g_hash_table_add(erasing->names, name);
        return 0;
    }
    r = begin_made(erasing, record, WB_REC_XATTR);
    made->record.op = record->op;
    made->record.xattr = record->xattr;
    made->record.xattr.attrs = erasing->attrs;
    memcpy(made->name, record->xattr.name, record->xattr.name_length);
    made->record.xattr.name = made->name;
    made->record.payload_length = record->payload_length;
    if (r == 0 && record->payload_length > 0)
        r = wb_log_read_payload(erasing->fd, record, made->payload);
    g_hash_table_add(erasing->names, name);
    return r;
}

/* Each of the two changes has a record at least. */
static int erasing_make(struct wb_erasing *erasing, const struct wb_record *record)
{
    bool begins = !erasing->begun;
    int r = 0;

    if (begins) {
        erasing->begun = true;
        erasing->attrs = *wb_erasing_attrs(record);
        r = mark_known(erasing, erasing->attrs.size, (uint64_t)INT64_MAX - erasing->attrs.size);
    }
    if (r == 0 && record->type == WB_REC_DATA)
        r = make_data(erasing, record);
    else if (r == 0 && record->type == WB_REC_XATTR)
        r = make_xattr(erasing, record);
    if (r == 0 && begins && erasing->last == 0)
        r = erasing_make_attr(erasing, record);
    return r;
}

/* Records that never counted may hold what goes, too. */
static bool is_dead(const struct wb_erasing *erasing, const struct wb_erasing_entry *entry,
                    const struct wb_record *record)
{
    if (entry->counts)
        return record->type == WB_REC_FILLER && record->filler.until == 0;
    return wb_erasing_has(erasing, record->type == WB_REC_ABORT ? record->abort.target : record->written);
}

/* Of the last of the merged changes: attributes, where none of its records remains. */
static int end_merged(struct wb_erasing *erasing)
{
    struct wb_record until = {.when = erasing->what->until};
    int r = erasing->last == until.when ? 0 : erasing_make_attr(erasing, &until);

    erasing->ended = true;
    return r < 0 ? r : erasing_put(erasing, false);
}

/* For wb_rewrite_copy: the entries are there from the newest to the oldest, and the log is read from its beginning. */
static int edit_record(void *data, struct wb_record *record)
{
    struct wb_erasing *erasing = data;
    const struct wb_erasing_entry *entry =
        erasing->copied < erasing->entries->len
            ? &g_array_index(erasing->entries, struct wb_erasing_entry, erasing->entries->len - ++erasing->copied)
            : NULL;
    int r = 0;

    if (!entry || record->offset != entry->offset)
        return -EBADMSG;
    if (erasing->begun && !erasing->ended && record->written > erasing->what->until)
        r = end_merged(erasing);
    if (r < 0 || (!entry->merged && is_dead(erasing, entry, record)))
        return r;
    if (entry->merged) {
        record->when = entry->when;
        return erasing_make(erasing, record);
    }
    r = erasing_put(erasing, false);
    return r < 0 ? r : 1;
}

static int copy(struct wb_erasing *erasing)
{
    int r = wb_rewrite_copy(&erasing->rewrite, erasing->fd,
                            &(struct wb_rewrite_copy){.count = erasing->entries->len, .edit = edit_record,
                                                      .data = erasing});

    if (r == 0 && erasing->copied < erasing->entries->len)
        r = -EBADMSG;
    if (r == 0 && !erasing->ended)
        r = end_merged(erasing);
    return r < 0 ? r : erasing_put(erasing, false);
}

static int write_anew(struct wb_erasing *erasing, uint64_t *bytes)
{
    struct stat before, after;
    int r = fstat(erasing->fd, &before) < 0 ? -errno : 0;

    erasing->payload = g_try_malloc(WB_PAYLOAD_MAX);
    erasing->made.payload = g_try_malloc(WB_PAYLOAD_MAX);
    if (r == 0 && (!erasing->payload || !erasing->made.payload))
        r = -ENOMEM;
    if (r == 0)
        r = wb_rewrite_begin(&erasing->rewrite, erasing->store, erasing->what->object, WB_FILE_UNDO);
    if (r == 0)
        r = copy(erasing);
    if (r == 0)
        r = wb_erasure_rewrite_actors(erasing->erasure);
    if (r == 0 && fstat(erasing->rewrite.log->fd, &after) == 0 && after.st_size < before.st_size)
        *bytes += (uint64_t)(before.st_size - after.st_size);
    if (r == 0)
        r = wb_rewrite_commit(&erasing->rewrite);
    wb_rewrite_abandon(&erasing->rewrite);
    g_free(erasing->payload);
    g_free(erasing->made.payload);
    return r;
}

static int erase(struct wb_erasing *erasing, struct wb_control_erased_versions *ret)
{
    const struct wb_erase_versions *what = erasing->what;
    struct wb_store *store = erasing->store;
    int r;

    erasing->fd = wb_store_open_file(store, what->object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    erasing->image_fd = wb_store_open_file(store, what->object, WB_FILE_IMAGE, O_RDONLY | O_CLOEXEC);
    if (erasing->fd < 0)
        return erasing->fd == -ENOENT ? WB_CONTROL_REFUSED_NONE : erasing->fd;
    /* Also what an earlier attempt was kept from, whatever is asked for now. */
    r = what->dry_run ? 0 : wb_erasure_clean_image(store, what->object, &ret->bytes);
    if (r == 0)
        r = erasing_look(erasing);
    if (r != 0)
        return r;
    ret->versions = erasing->dropped;
    if (what->dry_run)
        return 0;
    /* A copy that was sent before still has the records. */
    r = wb_erased_mark(store->dir_fd, wb_store_tick(store));
    if (r == 0)
        r = write_anew(erasing, &ret->bytes);
    if (r == 0)
        r = wb_erasure_clean_image(store, what->object, &ret->bytes);
    return r == 0 ? wb_erased_mark(store->dir_fd, wb_store_tick(store)) : r;
}

int wb_erase_versions(struct wb_store *store, const struct wb_erase_versions *what,
                      struct wb_control_erased_versions *ret)
{
    struct wb_erasure erasure = {.store = store, .actors = g_hash_table_new(NULL, NULL)};
    struct wb_erasing erasing = {.store = store, .what = what, .erasure = &erasure, .fd = -1, .image_fd = -1,
                              .size_after = UINT64_MAX,
                              .entries = g_array_new(FALSE, FALSE, sizeof(struct wb_erasing_entry)),
                              .last_ops = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                              .names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};
    unsigned hold;
    int r;

    wb_extent_map_init(&erasing.map);
    /* As in wb_erase: a compaction under way gives up. */
    wb_rewriting_own(store);
    if (store->writable)
        wb_store_note_forgotten(store, wb_store_tick(store));
    r = store->writable ? wb_store_hold_pins(store, &hold) : -EROFS;
    if (r == 0) {
        r = erase(&erasing, ret);
        wb_store_release_pins(store, hold);
    }
    wb_log_chunks_forget();
    pthread_mutex_unlock(&store->rewriting);
    wb_close_fd(&erasing.fd);
    wb_close_fd(&erasing.image_fd);
    wb_extent_map_deinit(&erasing.map);
    g_hash_table_unref(erasing.names);
    g_hash_table_unref(erasing.last_ops);
    g_array_unref(erasing.entries);
    g_hash_table_unref(erasure.actors);
    return r == -EBADMSG ? WB_CONTROL_REFUSED_DAMAGED : r;
}
