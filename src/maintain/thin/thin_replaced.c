/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files go that were versions of a name. What the catalog tells of them becomes nothing: where they were made and
 * where they took the name, only the directory's own attributes are told still; and where the last of several in a row
 * lost the name, the file that was there before all of them did. No record gets another place, and the catalog takes
 * its name as in packing. What goes is noted before (ID.gone), and taken away after: so whatever a crash leaves is
 * either a file that is told of as before, or one with a note, which the next thinning takes away.
 */
#include "maintain/thin/thin_replaced.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "maintain/prune/prune_parts.h"
#include "maintain/thin/thin_parts.h"
#include "store/log/log_scan.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include "store/timeline/timeline.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ATTR_SIZE 152u /* of a record that tells a directory's own attributes */

struct replacing {
    struct wb_thinner *thinner;
    struct wb_thin_saves saves;
    struct wb_thin_plan plan;
    struct wb_thin_patches patches;
    GArray *indexes;
    int fd;
    uint8_t data[WB_SCAN_BUFFER];
};

/* ---- other bytes ----------------------------------------------------------------------------- */

/* A FILLER or THINNED, which is [from, to) of the log. */
static int patch_with_zeros(struct replacing *work, struct wb_record *record, uint64_t from, uint64_t to)
{
    uint8_t head[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    g_autofree uint8_t *zeros = g_try_malloc0(to - from);
    int length;

    if (!zeros)
        return -ENOMEM;
    record->payload_length = (uint32_t)(to - from) - WB_FILLER_SIZE;
    record->payload_check = record->payload_length > 0 ? wb_checksum(zeros, record->payload_length) : 0;
    length = wb_record_encode(record, head);
    if (length < 0)
        return length;
    wb_record_encode_end(record, end);
    wb_thin_patch_bytes(&work->patches, from, head, (size_t)length, to - from);
    wb_thin_patch_zeros(&work->patches, from + (uint64_t)length, record->payload_length);
    wb_thin_patch_bytes(&work->patches, to - WB_TRAILER_SIZE, end, WB_TRAILER_SIZE, WB_TRAILER_SIZE);
    return 0;
}

/* Nothing is told there; but `until`, not 0: up to that change, nothing that was is kept. */
static int patch_away(struct replacing *work, const struct wb_record *was, uint64_t from, int64_t until)
{
    struct wb_record record = {.type = until ? WB_REC_THINNED : WB_REC_FILLER, .op = WB_OP_NONE, .when = was->when,
                               .flags = was->flags & WB_RECORD_MORE};

    if (until) {
        /* Others, which went some other time, ended there. */
        record.flags |= was->flags & WB_RECORD_THINNED;
        record.thinned.until = until;
    }
    return patch_with_zeros(work, &record, from, was->offset + was->total);
}

/* Of a change of names, the directory's attributes stay. */
static int patch_names(struct replacing *work, uint64_t offset, int64_t until)
{
    uint8_t bytes[WB_HEAD_SIZE + WB_BODY_MAX + 16];
    struct wb_record record, attr = {.type = WB_REC_ATTR, .op = WB_OP_NONE, .flags = WB_RECORD_MORE};
    int length, r = wb_log_probe(work->fd, offset, work->data, &record);

    if (r < 0)
        return r;
    if (record.type != WB_REC_NAME || record.total < ATTR_SIZE + WB_FILLER_SIZE)
        return -EBADMSG;
    attr.when = record.when;
    attr.actor = record.actor;
    attr.attr.object = work->saves.dir;
    attr.attr.attrs = record.name.dir;
    attr.attr.size_after = record.name.dir.size;
    length = wb_record_encode(&attr, bytes);
    if (length < 0)
        return length;
    length += wb_record_encode_end(&attr, bytes + length);
    if (length != ATTR_SIZE)
        return -EBADMSG;
    wb_thin_patch_bytes(&work->patches, offset, bytes, ATTR_SIZE, ATTR_SIZE);
    return patch_away(work, &record, offset + ATTR_SIZE, until);
}

/* Where a record tells that `was` lost a name, it was `now`. */
static int patch_loss(struct replacing *work, uint64_t offset, struct wb_object was, struct wb_object now,
                      const struct wb_attrs *attrs)
{
    struct wb_record record;
    int r = wb_log_probe(work->fd, offset, work->data, &record);

    if (r < 0)
        return r;
    for (uint32_t i = 0; record.type == WB_REC_NAME && i < record.name.count; i++) {
        struct wb_slot *slot = &record.name.slots[i];

        if (!slot->present || !wb_object_equal(slot->object, was))
            continue;
        slot->object = now;
        slot->attrs = *attrs;
        record.flags |= WB_RECORD_THINNED;
        return wb_thin_patch_record(&work->patches, &record);
    }
    return -EBADMSG;
}

/* What the last of them went through, the file before them did: it lost the name, and perhaps was removed elsewhere. */
static int patch_end(struct replacing *work, const struct wb_thin_save *first, const struct wb_thin_save *last)
{
    const struct wb_attrs *attrs = first->in_place ? &first->before_removed_attrs : &first->before_attrs;
    int r = patch_loss(work, last->lost_at, last->object, first->before, &first->before_attrs);

    if (r == 0 && last->moved)
        r = patch_loss(work, last->removed_at, last->object, first->before, attrs);
    return r;
}

static int patch_save(struct replacing *work, const struct wb_thin_save *save, int64_t until)
{
    const struct wb_thin_told_attr *attrs = wb_thin_saves_attrs(&work->saves, save->object);
    int r = patch_names(work, save->born_at, 0);

    if (r == 0)
        r = patch_names(work, save->took_at, until);
    if (r == 0 && save->in_place)
        r = patch_names(work, save->before_removed_at, 0);
    for (guint i = 0; r == 0 && i < save->told; i++) {
        struct wb_record record;

        r = wb_log_probe(work->fd, attrs[i].offset, work->data, &record);
        if (r == 0)
            r = record.type == WB_REC_ATTR ? patch_away(work, &record, record.offset, 0) : -EBADMSG;
    }
    return r;
}

/* Saves [newest, oldest] of the list. */
static int patch_run(struct replacing *work, guint newest, guint oldest)
{
    const struct wb_thin_save *all = (const struct wb_thin_save *)(const void *)work->saves.list->data;
    int r = patch_end(work, &all[oldest], &all[newest]);

    for (guint i = newest; r == 0 && i <= oldest; i++)
        r = patch_save(work, &all[i], i == oldest ? all[newest].lost : 0);
    return r;
}

/* What was planned, as it is found in the catalog now: who erases a name has written it anew in between, perhaps.
 * `ends` leads from `lost` to the save. */
static int patch_planned(struct replacing *work, struct wb_thin_run *run, GHashTable *ends)
{
    const struct wb_thin_save *all = (const struct wb_thin_save *)(const void *)work->saves.list->data;
    const struct wb_thin_save *last = g_hash_table_lookup(ends, &run->lost);
    guint newest, i;

    if (!last)
        return 0;
    for (i = newest = (guint)(last - all); all[i].took > run->took; i++)
        if (i + 1 == work->saves.list->len || all[i + 1].name != last->name || all[i + 1].lost_at != all[i].took_at)
            return 0;
    run->done = all[i].took == run->took && wb_object_equal(all[i].before, run->before);
    return run->done ? patch_run(work, newest, i) : 0;
}

static int patch_all(struct replacing *work)
{
    g_autoptr(GHashTable) ends = g_hash_table_new(g_int64_hash, g_int64_equal);
    const struct wb_thin_options *options = &work->thinner->options;
    int r = 0;

    for (guint i = 0; i < work->saves.list->len; i++) {
        struct wb_thin_save *save = &g_array_index(work->saves.list, struct wb_thin_save, i);

        g_hash_table_insert(ends, &save->lost, save);
    }
    for (guint i = 0; r == 0 && i < work->plan.runs->len; i++)
        r = options->stop(options->data) ? -ECANCELED
                                         : patch_planned(work, &g_array_index(work->plan.runs, struct wb_thin_run, i),
                                                         ends);
    return r;
}

/* ---- in the compaction's hands --------------------------------------------------------------- */

static bool is_over(void *data)
{
    const struct wb_thinner *thinner = data;

    return thinner->options.stop(thinner->options.data);
}

/* INDEX records have copies of what is changed, where a catalog has such. */
static int find_indexes(struct replacing *work)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, work->fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0)
        if (record.type == WB_REC_INDEX)
            g_array_append_val(work->indexes, record);
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

static int look(void *data, struct wb_object object, enum wb_object_file file, int fd, uint64_t *ret_end)
{
    struct replacing *work = data;
    struct wb_store *store = work->thinner->store;
    int r;

    work->fd = fd;
    wb_thin_saves_deinit(&work->saves);
    wb_thin_saves_init(&work->saves, object);
    r = wb_thin_saves_find(&work->saves, fd, is_over, work->thinner);
    if (r == 0)
        r = patch_all(work);
    if (r == 0 && work->patches.list->len > 0)
        r = find_indexes(work);
    if (r == 0 && work->patches.list->len > 0)
        r = wb_thin_patch_indexes(&work->patches, fd, work->indexes);
    if (r < 0 || work->patches.list->len == 0)
        return r;
    wb_thin_patches_settle(&work->patches);
    *ret_end = work->patches.end;
    if (!work->thinner->options.dry_run)
        r = wb_erased_mark_thinned(store->dir_fd, wb_store_tick(store));
    return r < 0 ? r : 1;
}

static void overlay(void *data, uint8_t *bytes, size_t length, uint64_t offset)
{
    const struct replacing *work = data;

    wb_thin_overlay(&work->patches, bytes, length, offset);
}

static int rewrite_catalog(struct replacing *work)
{
    struct wb_thinner *thinner = work->thinner;
    const struct wb_thin_options *options = &thinner->options;
    struct wb_compact_forget forget = {.look = look, .overlay = overlay, .data = work};
    struct wb_compact compact = {.flags = options->dry_run ? WB_COMPACT_DRY : 0, .before = WB_WHEN_PRESENT,
                                 .stop = options->stop, .stop_data = options->data, .forget = &forget};
    int r = wb_compact_log(thinner->store, &compact, work->saves.dir, WB_FILE_CATALOG);

    if (r < 0 || compact.changed == 0)
        return r;
    /* It leads to changes that are told of no more. */
    if (!options->dry_run)
        wb_timeline_drop(thinner->store, work->saves.dir, WB_FILE_CATALOG);
    thinner->count->changed += work->plan.names;
    if (compact.old_size > compact.new_size)
        thinner->count->log_bytes += compact.old_size - compact.new_size;
    return 1;
}

/* ---- one directory --------------------------------------------------------------------------- */

static void each_body(const struct replacing *work, void (*tell)(void *data, struct wb_object object))
{
    const struct wb_thin_options *options = &work->thinner->options;

    for (guint i = 0; tell && !options->dry_run && i < work->plan.bodies->len; i++)
        tell(options->data, g_array_index(work->plan.bodies, struct wb_prune_body, i).object);
}

/* Those that are told of still are needed. */
static void count_run(struct replacing *work, const struct wb_thin_run *run)
{
    if (run->done)
        work->thinner->count->dropped += run->count;
    for (guint i = run->first; !run->done && i < run->first + run->count; i++)
        g_array_index(work->plan.bodies, struct wb_prune_body, i).needed = true;
}

static int carry_out(struct replacing *work)
{
    const struct wb_thin_options *options = &work->thinner->options;
    int r = 0;

    for (guint i = 0; r == 0 && !options->dry_run && i < work->plan.bodies->len; i++)
        r = wb_grave_note_gone(work->thinner->store, g_array_index(work->plan.bodies, struct wb_prune_body, i).object);
    /* The catalog may be on the disk before them. */
    if (r == 0 && !options->dry_run && syncfs(work->thinner->store->dir_fd) < 0)
        r = -errno;
    each_body(work, options->begin);
    if (r == 0)
        r = rewrite_catalog(work);
    each_body(work, options->end);
    if (r <= 0)
        return r;
    for (guint i = 0; i < work->plan.runs->len; i++)
        count_run(work, &g_array_index(work->plan.runs, struct wb_thin_run, i));
    return wb_thin_remove_bodies(work->thinner, work->plan.bodies);
}

static int find_and_plan(struct replacing *work)
{
    _cleanup_close_ int fd =
        wb_store_open_file(work->thinner->store, work->saves.dir, WB_FILE_CATALOG, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? fd : wb_thin_saves_find(&work->saves, fd, is_over, work->thinner);

    return r == 0 && work->saves.list->len > 0 ? wb_thin_plan(work->thinner, &work->saves, &work->plan) : r;
}

int wb_thin_replaced(struct wb_thinner *thinner, struct wb_object dir)
{
    g_autofree struct replacing *work = NULL;
    unsigned hold;
    int r;

    r = wb_store_hold_pins(thinner->store, &hold);
    if (r < 0)
        return r;
    work = g_new0(struct replacing, 1);
    work->thinner = thinner;
    wb_thin_saves_init(&work->saves, dir);
    wb_thin_patches_init(&work->patches);
    work->plan = (struct wb_thin_plan){g_array_new(FALSE, FALSE, sizeof(struct wb_thin_run)),
                                       g_array_new(FALSE, FALSE, sizeof(struct wb_prune_body))};
    work->indexes = g_array_new(FALSE, FALSE, sizeof(struct wb_record));
    r = find_and_plan(work);
    if (r == 0 && work->plan.runs->len > 0)
        r = carry_out(work);
    wb_store_release_pins(thinner->store, hold);
    g_array_unref(work->indexes);
    g_array_unref(work->plan.runs);
    g_array_unref(work->plan.bodies);
    wb_thin_patches_deinit(&work->patches);
    wb_thin_saves_deinit(&work->saves);
    /* It went meanwhile, or what it tells is a lack by now. */
    return r == -ENOENT || r == -EBADMSG ? 0 : r;
}
