/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Drops versions from one undo log. It is walked from the tail; changes next to each other between which no version
 * is kept are gathered, and judged when the oldest of them is known. Then the log is packed anew, with other bytes for
 * changed records, and replaces the log as in packing. The bytes in the image are punched afterwards: a reader that
 * finds them gone also finds the log replaced, and reads again.
 */
#include "maintain/thin/thin_parts.h"

#include "base/checksum.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <string.h>

/*
 * Changes that count together: a look-back to any moment undoes all of them, or none. So of each byte only the value in
 * the oldest of them is ever shown, and bytes at or past the size before the oldest are not shown at all: all other
 * recorded values of these bytes are dead.
 */

static void thin_group_init(struct wb_thin_group *group)
{
    group->parts = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_part));
    group->heads = g_byte_array_new();
}

static void thin_group_deinit(struct wb_thin_group *group)
{
    g_array_unref(group->parts);
    g_byte_array_unref(group->heads);
}

static void thin_group_clear(struct wb_thin_group *group)
{
    g_array_set_size(group->parts, 0);
    g_byte_array_set_size(group->heads, 0);
}

static int thin_group_add(struct wb_thin_group *group, const struct wb_record *record)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record copy = *record;
    struct wb_thin_part part = {.offset = record->offset, .change = record->change, .at = group->heads->len};
    int length;

    copy.when = record->written;
    length = wb_record_encode(&copy, data);
    if (length < 0 || copy.total != record->total || copy.body_length != record->body_length)
        return -EBADMSG;
    part.length = (uint32_t)length;
    part.joined = record->flags & WB_RECORD_COALESCED;
    g_byte_array_append(group->heads, data, (guint)length);
    g_array_append_val(group->parts, part);
    return 0;
}

static void thin_group_move(struct wb_thin_group *to, struct wb_thin_group *from)
{
    for (guint i = 0; i < from->parts->len; i++) {
        struct wb_thin_part part = g_array_index(from->parts, struct wb_thin_part, i);

        part.at += to->heads->len;
        g_array_append_val(to->parts, part);
    }
    g_byte_array_append(to->heads, from->heads->data, from->heads->len);
    thin_group_clear(from);
}

/* ---- what is dead in it ---------------------------------------------------------------------- */

struct judging {
    int fd;
    bool is_new;
    struct wb_log_edits *edits;
    struct wb_prune_image *image;
    uint64_t *dead_image;
    struct wb_extent_map covered; /* by older ones, or past the end */
    GHashTable *names;         /* of extended attributes in older ones */
    GArray *dead;              /* of one record: struct wb_extent, dead parts of its extents */
    uint8_t *payload;
};

static void note_image(struct judging *judging, const struct wb_extent *extent, uint64_t from, uint64_t length,
                       bool stays)
{
    struct wb_record record = {.type = WB_REC_DATA, .data.count = 1};

    record.data.extents[0] = *extent;
    record.data.extents[0].source += from - extent->offset;
    record.data.extents[0].length = length;
    wb_prune_image_note(judging->image, &record, stays);
    if (!stays)
        *judging->dead_image += length;
}

/* Adds the parts of an extent that older changes have, too, to judging->dead; returns how many bytes they are. */
static uint64_t find_dead(struct judging *judging, const struct wb_extent *extent)
{
    uint64_t at = extent->offset, end = at + extent->length, sum = 0, until;

    while (at < end) {
        const struct wb_piece *piece = wb_extent_map_find(&judging->covered, at, &until);
        uint64_t to = MIN(end, piece ? piece->offset + piece->length : until);

        if (piece) {
            struct wb_extent part = *extent;

            part.source += at - extent->offset;
            part.offset = at;
            part.length = to - at;
            g_array_append_val(judging->dead, part);
            sum += to - at;
        }
        at = to;
    }
    return sum;
}

static void judge_image(struct judging *judging, struct wb_extent *extent, guint first, uint64_t dead)
{
    if (dead == 0) {
        note_image(judging, extent, extent->offset, extent->length, true);
        return;
    }
    /* It is the checksum of all of it: what remains has none. */
    extent->check = 0;
    if (dead < extent->length) {
        uint64_t at = extent->offset;

        for (guint i = first; i < judging->dead->len; i++) {
            const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

            if (part->offset > at)
                note_image(judging, extent, at, part->offset - at, true);
            at = part->offset + part->length;
        }
        if (at < extent->offset + extent->length)
            note_image(judging, extent, at, extent->offset + extent->length - at, true);
    }
    for (guint i = first; i < judging->dead->len; i++) {
        const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

        note_image(judging, extent, part->offset, part->length, false);
    }
}

/* Finds the dead parts of a DATA; its ranges make newer records of the same bytes dead from now on. */
static int judge_data(struct judging *judging, struct wb_record *record, bool oldest)
{
    int r = 0;

    g_array_set_size(judging->dead, 0);
    for (uint32_t i = 0; r == 0 && i < record->data.count; i++) {
        struct wb_extent *extent = &record->data.extents[i];
        guint first = judging->dead->len;
        uint64_t dead = oldest ? 0 : find_dead(judging, extent);

        if (extent->kind == WB_EXTENT_IMAGE)
            judge_image(judging, extent, first, dead);
        if (extent->kind != WB_EXTENT_INLINE)
            g_array_set_size(judging->dead, first);
    }
    for (uint32_t i = 0; r == 0 && i < record->data.count; i++)
        r = wb_extent_map_fill(&judging->covered, &(struct wb_piece){.offset = record->data.extents[i].offset,
                                                                      .length = record->data.extents[i].length,
                                                                      .kind = WB_EXTENT_ZERO});
    return r;
}

/* The value of an extended attribute is dead if an older change has a value of it as well. */
static void judge_xattr(struct judging *judging, const struct wb_record *record, bool oldest)
{
    char *name = g_strndup(record->xattr.name, record->xattr.name_length);

    g_array_set_size(judging->dead, 0);
    if (!oldest && record->payload_length > 0 && g_hash_table_contains(judging->names, name))
        g_array_append_val(judging->dead, ((struct wb_extent){.length = record->payload_length}));
    g_hash_table_add(judging->names, name);
}

static int put_zeros(struct judging *judging, struct wb_record *record)
{
    int r;

    if (judging->dead->len == 0)
        return 0;
    if (!judging->payload)
        judging->payload = g_try_malloc(WB_PAYLOAD_MAX);
    if (!judging->payload)
        return -ENOMEM;
    r = wb_log_read_payload(judging->fd, record, judging->payload);
    if (r < 0)
        return r;
    for (guint i = 0; i < judging->dead->len; i++) {
        const struct wb_extent *part = &g_array_index(judging->dead, struct wb_extent, i);

        memset(judging->payload + part->source, 0, part->length);
        wb_log_edits_zeros(judging->edits, record->payload_offset + part->source, part->length);
    }
    record->payload_check = wb_checksum(judging->payload, record->payload_length);
    return 0;
}

static int judge_part(struct judging *judging, const struct wb_thin_group *group, const struct wb_thin_part *part,
                      int64_t oldest)
{
    struct wb_record record;
    int r = wb_record_decode(group->heads->data + part->at, part->length, part->offset, &record);

    if (r < 0)
        return r;
    g_array_set_size(judging->dead, 0);
    if (record.type == WB_REC_DATA)
        r = judge_data(judging, &record, part->change == oldest);
    else if (record.type == WB_REC_XATTR)
        judge_xattr(judging, &record, part->change == oldest);
    if (r < 0 || !judging->is_new || part->change == oldest)
        return r;
    record.flags |= WB_RECORD_COALESCED;
    r = put_zeros(judging, &record);
    return r == 0 ? wb_log_edits_replace(judging->edits, &record) : r;
}

/* The size before the oldest: nothing at or past it is ever shown. */
static int begin(struct judging *judging, const struct wb_thin_group *group)
{
    const struct wb_thin_part *part = &g_array_index(group->parts, struct wb_thin_part, group->parts->len - 1);
    const struct wb_attrs *attrs;
    struct wb_record record;
    int r = wb_record_decode(group->heads->data + part->at, part->length, part->offset, &record);

    if (r < 0)
        return r;
    attrs = record.type == WB_REC_DATA ? &record.data.attrs
            : record.type == WB_REC_ATTR ? &record.attr.attrs
                                         : &record.xattr.attrs;
    return wb_extent_map_fill(
        &judging->covered,
        &(struct wb_piece){.offset = attrs->size, .length = (uint64_t)INT64_MAX - attrs->size, .kind = WB_EXTENT_ZERO});
}

/* Finds the parts that older changes have as well, for the image and, if something is new in it, as edits. */
static int thin_group_judge(const struct wb_thin_group *group, int fd, bool is_new, struct wb_log_edits *edits,
                            struct wb_prune_image *image, uint64_t *dead_image)
{
    struct judging judging = {.fd = fd, .is_new = is_new, .edits = edits, .image = image,
                              .dead_image = dead_image};
    int64_t oldest;
    int r;

    if (group->parts->len == 0)
        return 0;
    wb_extent_map_init(&judging.covered);
    judging.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    judging.dead = g_array_new(FALSE, FALSE, sizeof(struct wb_extent));
    oldest = g_array_index(group->parts, struct wb_thin_part, group->parts->len - 1).change;
    r = begin(&judging, group);
    for (guint i = group->parts->len; r == 0 && i-- > 0;)
        r = judge_part(&judging, group, &g_array_index(group->parts, struct wb_thin_part, i), oldest);
    g_array_unref(judging.dead);
    g_hash_table_unref(judging.names);
    wb_extent_map_deinit(&judging.covered);
    g_free(judging.payload);
    return r;
}

/* The memory for changes that count together: more changes begin another group, and the state between is kept. */
#define GROUP_MAX (32u << 20)

struct thinning {
    struct wb_store *store;
    struct wb_thin *thin;
    int fd;
    size_t drop;                 /* those from here on are later than what is being read */
    struct wb_thin_group change; /* the records of one change, met last                  */
    int64_t change_begin;        /* when it began: as a stage, before its end            */
    bool plain;                  /* it records content and attributes only               */
    struct wb_thin_group group;  /* newer changes; the last of them may be joined to it  */
    int64_t group_begin;         /* when the oldest of them began                        */
    bool is_new;                 /* one of the group is joined that was not              */
    unsigned changes;            /* in the group                                         */
    struct wb_log_edits edits;
    struct wb_prune_image image;
    uint64_t dead_image, new_dead_image;
    uint64_t dropped;
    GArray *indexes;
};

/* ---- which records -------------------------------------------------------------------------- */

/*
 * Content and attributes of this file, by an operation that changes nothing else. What a stage lost counts from its
 * end, so that has to be there: it is met first.
 */
static bool is_plain(const struct thinning *thinning, const struct wb_record *record)
{
    bool ended = !wb_record_is_staged(record) || thinning->change.parts->len > 0;

    return (record->type == WB_REC_DATA || record->type == WB_REC_ATTR || record->type == WB_REC_XATTR) && ended &&
           wb_op_has(record->op, WB_EFFECT_CONTENT | WB_EFFECT_ATTRS);
}

/* Has no content of its own. */
static bool is_nothing(const struct wb_record *record, bool counts)
{
    return !counts || record->type == WB_REC_INDEX || (record->type == WB_REC_FILLER && record->filler.until == 0);
}

static int64_t oldest_of(const struct wb_thin_group *group)
{
    return g_array_index(group->parts, struct wb_thin_part, group->parts->len - 1).change;
}

/* Whether what showed between two changes that follow each other is to go. They come newest first. */
static bool is_dropped(struct thinning *thinning, int64_t from, int64_t until)
{
    const struct wb_thin *thin = thinning->thin;

    while (thinning->drop > 0 && thin->drops[thinning->drop - 1].from > from)
        thinning->drop--;
    return thinning->drop > 0 && until <= thin->drops[thinning->drop - 1].until;
}

/* ---- groups --------------------------------------------------------------------------------- */

static int judge_single(struct thinning *thinning)
{
    const struct wb_thin_group *group = &thinning->group;
    struct wb_record record;
    int r = 0;

    for (guint i = 0; r == 0 && i < group->parts->len; i++) {
        const struct wb_thin_part *part = &g_array_index(group->parts, struct wb_thin_part, i);

        r = wb_record_decode(group->heads->data + part->at, part->length, part->offset, &record);
        if (r == 0)
            wb_prune_image_note(&thinning->image, &record, true);
    }
    return r;
}

static int end_group(struct thinning *thinning)
{
    uint64_t dead = 0;
    int r = thinning->changes > 1 ? thin_group_judge(&thinning->group, thinning->fd, thinning->is_new,
                                                     &thinning->edits, &thinning->image, &dead)
                                  : judge_single(thinning);

    thinning->dead_image += dead;
    if (thinning->is_new)
        thinning->new_dead_image += dead;
    thin_group_clear(&thinning->group);
    thinning->is_new = false;
    thinning->changes = 0;
    return r;
}

/* Whether the oldest change of the group says that the state before it is not kept. */
static bool was_joined(const struct wb_thin_group *group)
{
    int64_t oldest = oldest_of(group);

    for (guint i = group->parts->len; i-- > 0;) {
        const struct wb_thin_part *part = &g_array_index(group->parts, struct wb_thin_part, i);

        if (part->change != oldest)
            break;
        if (part->joined)
            return true;
    }
    return false;
}

/* All records of a change were met: it counts together with the newer ones, or it is the first of others. */
static int end_change(struct thinning *thinning)
{
    bool old, drop;
    int r = 0;

    if (thinning->change.parts->len == 0)
        return 0;
    if (thinning->changes > 0) {
        old = was_joined(&thinning->group);
        /* Nothing else lies amid a stage; if it did, no state between them would be that of a moment. */
        drop = !old && thinning->plain && thinning->group.heads->len < GROUP_MAX &&
               oldest_of(&thinning->change) < thinning->group_begin &&
               is_dropped(thinning, oldest_of(&thinning->change), oldest_of(&thinning->group));
        thinning->is_new |= drop;
        thinning->dropped += drop;
        if (!old && !drop)
            r = end_group(thinning);
    }
    thin_group_move(&thinning->group, &thinning->change);
    thinning->group_begin = thinning->change_begin;
    thinning->changes++;
    return r == 0 && !thinning->plain ? end_group(thinning) : r;
}

static int take(struct thinning *thinning, const struct wb_record *record, bool counts)
{
    int r = 0;

    if (record->type == WB_REC_INDEX)
        g_array_append_vals(thinning->indexes, record, 1);
    if (is_nothing(record, counts)) {
        wb_prune_image_note(&thinning->image, record, true);
        return 0;
    }
    if (thinning->change.parts->len > 0 && oldest_of(&thinning->change) != record->change)
        r = end_change(thinning);
    if (thinning->change.parts->len == 0) {
        thinning->plain = true;
        thinning->change_begin = record->type == WB_REC_ATTR && record->flags & WB_RECORD_STAGE ? record->attr.begin
                                                                                               : record->written;
    }
    thinning->plain &= is_plain(thinning, record);
    if (record->type == WB_REC_DATA || record->type == WB_REC_ATTR || record->type == WB_REC_XATTR)
        return r < 0 ? r : thin_group_add(&thinning->change, record);
    /* Changes on the two sides of it do not count together. */
    if (r == 0)
        r = end_change(thinning);
    return r < 0 ? r : end_group(thinning);
}

/* From the tail to the beginning. 0, WB_DAMAGED or -errno. */
static int walk(struct thinning *thinning)
{
    struct wb_thin *thin = thinning->thin;
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, thinning->fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0) {
        r = wb_log_skip_judge(&skip, &record);
        if (r >= 0)
            r = take(thinning, &record, r > 0);
        if (r == 0 && thin->stop && thin->stop(thin->data))
            r = -ECANCELED;
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    if (r != WB_END)
        return r;
    thinning->plain = true;
    r = end_change(thinning);
    return r < 0 ? r : end_group(thinning);
}

/* ---- in the compaction's hands --------------------------------------------------------------- */

static int look(void *data, struct wb_object object, enum wb_object_file file, int fd)
{
    struct thinning *thinning = data;
    int r;

    thinning->fd = fd;
    thinning->drop = thinning->thin->count;
    r = walk(thinning);
    if (r != 0)
        return r == WB_DAMAGED ? -EBADMSG : r;
    if (thinning->edits.list->len == 0)
        return 0;
    r = wb_log_edits_indexes(&thinning->edits, fd, thinning->indexes);
    wb_log_edits_settle(&thinning->edits);
    /* What goes leaves its bytes to the record before it, which a copy may have got already. */
    if (r >= 0 && !thinning->thin->dry_run)
        r = wb_erased_mark_thinned(thinning->store->dir_fd, wb_store_tick(thinning->store));
    return r < 0 ? r : 1;
}

/* Also punches what a crash left there: the log shows which versions were dropped. Later, the image could be another
 * one (vrm), and its bytes could belong to records that are kept. */
static int punch(void *data, struct wb_object object)
{
    struct thinning *thinning = data;

    if (thinning->thin->dry_run || thinning->dead_image == 0)
        return 0;
    return wb_prune_image_punch(thinning->store, &thinning->image, object, &thinning->thin->image_bytes);
}

static void init(struct thinning *thinning)
{
    thin_group_init(&thinning->change);
    thin_group_init(&thinning->group);
    wb_log_edits_init(&thinning->edits);
    wb_prune_image_init(&thinning->image);
    thinning->indexes = g_array_new(FALSE, FALSE, sizeof(struct wb_record));
}

static void deinit(struct thinning *thinning)
{
    thin_group_deinit(&thinning->change);
    thin_group_deinit(&thinning->group);
    wb_log_edits_deinit(&thinning->edits);
    wb_prune_image_deinit(&thinning->image);
    g_array_unref(thinning->indexes);
}

int wb_thin_log(struct wb_store *store, struct wb_object object, struct wb_thin *thin)
{
    struct thinning thinning = {.store = store, .thin = thin};
    struct wb_compact_forget forget = {.look = look, .edits = &thinning.edits, .done = punch, .data = &thinning};
    struct wb_compact compact = {.flags = thin->dry_run ? WB_COMPACT_DRY : 0, .before = WB_WHEN_PRESENT,
                                 .stop = thin->stop, .stop_data = thin->data, .forget = &forget};
    int r;

    init(&thinning);
    r = wb_compact_log(store, &compact, object, WB_FILE_UNDO);
    if (r == 0 && thin->dry_run)
        thin->image_bytes += thinning.new_dead_image;
    if (r == 0 && compact.changed > 0) {
        thin->changed = true;
        thin->dropped += thinning.dropped;
        if (compact.old_size > compact.new_size)
            thin->log_bytes += compact.old_size - compact.new_size;
    }
    deinit(&thinning);
    return r;
}
