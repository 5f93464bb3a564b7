/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which records of one log only states before the horizon need.
 *
 * A record tells of the moments before its `when`. So it is needed if that is later than the horizon, and not
 * otherwise. These stay all the same:
 *
 *  - of PLACEs, the first record of a catalog, and the newest that is not later: they tell where the thing is, also
 *    after the horizon; with the other records of their change;
 *  - what a catalog has of the minute before the horizon, by which births are judged;
 *  - content of a stage that ended later, or has not ended: it counts from its end;
 *  - what counts together with a change that is later (WB_RECORD_JOINED).
 *
 * An INDEX that has copies of what goes, goes. A log with a damaged record is left alone.
 */
#include "maintain/prune/prune_parts.h"

#include "wayback/when.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Far more than there are as a rule: a few. */
#define RUNS_MAX 65536u
/* What is written beside as soon as it is made a hole. */
#define SOON_LEAST (1u << 20)

struct sifting {
    struct wb_prune *prune;
    const struct wb_compact *compact;
    struct wb_object object;
    enum wb_object_file file;
    const struct wb_log_reader *reader;
    int64_t horizon;    /* of this log                                                */
    int64_t before;     /* records up to then may go                                  */
    GArray *runs;       /* of struct wb_prune_run; newest first while they are found  */
    struct wb_prune_run run; /* that grows; from == to: there is none                 */
    int64_t group;      /* `when` of the records met last                             */
    uint64_t group_end; /* behind the newest of them                                  */
    int64_t place;      /* `when` of the PLACE that stays; 0: not met yet             */
    uint64_t guard;     /* where the newest record of the run is that ends all walks  */
    GArray *indexes;    /* of struct wb_prune_run: what each INDEX covers, and itself */
    uint64_t gone;      /* bytes that go and are no fillers                           */
    bool packed;        /* and some of them are packed, and do not go in their place  */
    bool changed;       /* something goes that is not a filler                        */
    bool changed_before; /* and did so before the records met last                    */
    bool doubt;         /* a change from before the horizon failed, and has no ABORT yet */
    bool odd;           /* the log does not begin as ours do: it is left alone        */
    bool whole;         /* all of it was read: what deleted things it tells of is known */
    struct wb_prune_image image;
};

static void end_run(struct sifting *sifting)
{
    if (sifting->run.from < sifting->run.to)
        g_array_append_val(sifting->runs, sifting->run);
    sifting->run = (struct wb_prune_run){0};
}

static void drop(struct sifting *sifting, const struct wb_record *record, bool counts)
{
    struct wb_prune_run *run = &sifting->run;
    /* What tells nothing of its own may lie amid records of a stage that stay: nobody's walk may end with it. */
    int64_t until = record->type == WB_REC_FILLER              ? record->filler.until
                    : record->type == WB_REC_INDEX || !counts ? 0
                                                              : record->written;

    if (run->from == run->to) {
        *run = (struct wb_prune_run){.to = record->offset + record->total, .when = record->written};
        sifting->guard = 0;
    }
    run->from = record->offset;
    run->until = MAX(run->until, until);
    if (until > 0 && sifting->guard == 0)
        sifting->guard = record->offset;
    if (record->type != WB_REC_FILLER) {
        sifting->gone += record->total;
        sifting->packed |= record->offset < wb_log_bytes_unpacked(&sifting->reader->bytes);
    }
    /* Who made it one in its place was killed before it was a hole. */
    sifting->changed |= record->type != WB_REC_FILLER ||
                        !wb_prune_is_hole(sifting->reader->fd, &sifting->reader->bytes, record);
}

/* The record stays; and so do those of its change that were met before. */
static void keep(struct sifting *sifting, bool with_change)
{
    struct wb_prune_run *run = &sifting->run;

    if (with_change && run->from < run->to)
        run->from = MIN(MAX(run->from, sifting->group_end), run->to);
    if (with_change)
        sifting->changed = sifting->changed_before;
    end_run(sifting);
}

/*
 * A record tells of deleted things: they are needed by states that are. The catalog may be kept for something else that
 * was in the directory: then a file is needed as far as its own history is kept. A directory always is, since one of
 * which nothing is left would look as if it had been empty; it takes next to nothing.
 */
static void need_named(struct sifting *sifting, const struct wb_record *record)
{
    if (record->type != WB_REC_NAME || record->when <= sifting->horizon)
        return;
    for (uint32_t i = 0; i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];

        if (S_ISDIR(slot->attrs.mode) || record->when > wb_prune_before(sifting->prune, slot->object))
            wb_prune_need(sifting->prune, slot->object);
    }
}

/* Whether the record may go. `counts`: it was not aborted, and `when` is that of its stage's end. */
static bool may_go(struct sifting *sifting, const struct wb_record *record, bool counts)
{
    if (record->written > sifting->before && record->type != WB_REC_INDEX)
        return false;
    switch (record->type) {
    case WB_REC_INDEX:
        return record->index.first <= sifting->before;
    case WB_REC_DATA:
    case WB_REC_ATTR:
    case WB_REC_XATTR:
        return !counts || record->when <= sifting->before;
    case WB_REC_PLACE:
        return (sifting->place > 0 || !counts) && record->offset > 0;
    case WB_REC_GAP:
        /* As long as it is the newest record, it is of now. */
        return !(record->flags & WB_RECORD_OPEN);
    case WB_REC_NAME:
    case WB_REC_ABORT:
    case WB_REC_FILLER:
        return true;
    default:
        return false; /* of a later version */
    }
}

static void sift(struct sifting *sifting, const struct wb_record *record, bool counts)
{
    bool goes = may_go(sifting, record, counts), place = record->type == WB_REC_PLACE;

    if (record->written != sifting->group) {
        sifting->group = record->written;
        sifting->group_end = record->offset + record->total;
        sifting->changed_before = sifting->changed;
    }
    if (record->type == WB_REC_INDEX)
        g_array_append_vals(sifting->indexes,
                            &(struct wb_prune_run){.from = record->index.from, .to = record->offset}, 1);
    need_named(sifting, record);
    if (counts || !goes)
        wb_prune_image_note(&sifting->image, record, !goes);
    if (place && !goes && sifting->place == 0 && record->written <= sifting->before)
        sifting->place = record->written;
    /* The ABORT of a record that stays would have gone. */
    sifting->odd |= place && !goes && !counts && record->written <= sifting->before;
    /* Nor is it known which PLACE is the newest while one may be taken back. */
    sifting->odd |= place && !goes && record->offset > 0 && sifting->doubt && record->written <= sifting->before;
    /* Older records of the same change as a PLACE that stays. */
    if (goes && sifting->place > 0 && record->written == sifting->place)
        goes = false;
    if (goes)
        drop(sifting, record, counts);
    else
        keep(sifting, place);
}

/* From the tail to the beginning. WB_END, WB_DAMAGED or -errno. */
static int walk(struct sifting *sifting, int fd)
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    sifting->reader = &reader;
    while (sifting->runs->len < RUNS_MAX && (r = wb_log_reader_prev(&reader, &record)) == 0) {
        r = wb_log_skip_judge(&skip, &record);
        if (r < 0)
            break;
        sift(sifting, &record, r > 0);
        if (sifting->prune->options.stop(sifting->prune->options.data)) {
            r = -ECANCELED;
            break;
        }
    }
    end_run(sifting);
    wb_log_reader_deinit(&reader);
    /* More runs than can be: the oldest have their turn the next time. */
    return r == 0 ? WB_END : r;
}

static void reverse(GArray *runs)
{
    for (guint i = 0, k = runs->len; k > 0 && i < --k; i++) {
        struct wb_prune_run *a = &g_array_index(runs, struct wb_prune_run, i);
        struct wb_prune_run *b = &g_array_index(runs, struct wb_prune_run, k), between = *a;

        *a = *b;
        *b = between;
    }
}

/* ---- in the compaction's hands ---------------------------------------------------------------- */

/* Whether the log is forgotten beyond the horizon that was published. */
static bool is_beyond(const struct sifting *sifting)
{
    return sifting->horizon > sifting->prune->options.before;
}

static int punch(struct sifting *sifting, struct wb_object object)
{
    struct wb_prune *prune = sifting->prune;

    return prune->options.dry_run ? 0 : wb_prune_image_punch(prune->store, &sifting->image, object,
                                                             &prune->count->image_bytes);
}

static int look(void *data, struct wb_object object, enum wb_object_file file, int fd, uint64_t *ret_end)
{
    struct sifting *sifting = data;
    int r;

    /* Since the horizon was published nothing that old is under way. */
    sifting->doubt = wb_inflight_has_aside(sifting->prune->store, sifting->horizon);
    r = walk(sifting, fd);

    if (r != WB_END)
        return r == WB_DAMAGED ? -EBADMSG : r;
    sifting->whole = true;
    if (!sifting->changed || sifting->odd || sifting->runs->len == 0)
        return 0;
    reverse(sifting->runs);
    *ret_end = g_array_index(sifting->runs, struct wb_prune_run, sifting->runs->len - 1).to;
    /* Before the records go: afterwards nobody knows where it was. */
    if (!is_beyond(sifting))
        r = punch(sifting, object);
    return r < 0 ? r : 1;
}

/* Where nobody was told of a horizon before, who reads an image finds out by the log. */
static int punch_beyond(void *data, struct wb_object object)
{
    struct sifting *sifting = data;

    return is_beyond(sifting) && sifting->compact->changed > 0 ? punch(sifting, object) : 0;
}

static void overlay(void *data, uint8_t *bytes, size_t length, uint64_t offset)
{
    const struct sifting *sifting = data;

    wb_prune_fill(sifting->runs, bytes, length, offset);
}

/*
 * How far the log can be made fillers from its beginning, while others read it. The newest record up to the horizon
 * stays, which ends the walk of everybody who tells of a later moment; and so does all that an INDEX which stays has
 * copies of, since they are taken for what the log has.
 */
static uint64_t end_of_place(const struct sifting *sifting)
{
    uint64_t end = sifting->guard;

    /* The newest one first. */
    for (guint i = 0; i < sifting->indexes->len; i++) {
        const struct wb_prune_run *index = &g_array_index(sifting->indexes, struct wb_prune_run, i);

        if (index->to >= end)
            end = MIN(end, index->from);
    }
    return end;
}

/* What stays, in bytes, and how much room there is to write it beside. */
static int look_at_room(const struct sifting *sifting, int fd, uint64_t *stays, uint64_t *room)
{
    struct statvfs device;
    struct stat st;
    uint64_t taken;

    if (fstat(fd, &st) < 0 || fstatvfs(fd, &device) < 0)
        return -errno;
    taken = (uint64_t)st.st_blocks * 512;
    *stays = taken - MIN(taken, sifting->gone);
    *room = (uint64_t)(geteuid() == 0 ? device.f_bfree : device.f_bavail) * device.f_frsize;
    return 0;
}

/* Where there is no room for the note either, a power cut in between may make a gap; but nothing could be forgotten. */
static int suspend(const struct sifting *sifting)
{
    struct wb_store *store = sifting->prune->store;
    int r = wb_stamp_prepare(store);

    if (r == -ENOSPC || r == -EDQUOT)
        return 0;
    return r < 0 ? r : wb_stamp_suspend(store, sifting->object);
}

/*
 * Where the room beside the log does not suffice, with as much left for others, or did not (`full`), as with a quota.
 * In a hurry, also where most of a large log would have to be written anew.
 */
static int in_place(void *data, struct wb_log *log, bool full)
{
    struct sifting *sifting = data;
    const struct wb_prune_run *oldest = &g_array_index(sifting->runs, struct wb_prune_run, 0);
    uint64_t end = end_of_place(sifting), stays = 0, room = 0;
    struct wb_store *store = sifting->prune->store;
    struct stat before, after;
    bool soon;
    int resumed, r = full ? 0 : look_at_room(sifting, log->fd, &stays, &room);

    soon = sifting->prune->options.hurry && !sifting->packed && stays > MAX(sifting->gone, SOON_LEAST);
    if (r < 0 || (!full && !soon && stays <= room / 2))
        return r;
    /* Whoever reads a catalog may need its oldest records; and what is packed has no holes. */
    if (sifting->file != WB_FILE_UNDO || oldest->from > log->unpacked || end <= log->unpacked)
        return stays > room ? -ENOSPC : 0;
    if (fstat(log->fd, &before) < 0)
        return -errno;
    r = suspend(sifting);
    if (r < 0)
        return soon && stays <= room / 2 ? 0 : r;
    r = wb_prune_place(sifting->prune, log, log->unpacked, end);
    resumed = wb_stamp_resume(store);
    r = r >= 0 && resumed < 0 ? resumed : r;
    if (fstat(log->fd, &after) == 0 && after.st_blocks < before.st_blocks)
        sifting->prune->count->log_bytes += (uint64_t)(before.st_blocks - after.st_blocks) * 512;
    return r;
}

int wb_prune_log(struct wb_prune *prune, struct wb_object object, enum wb_object_file file)
{
    int64_t horizon = wb_prune_before(prune, object);
    struct sifting sifting = {.prune = prune, .object = object, .file = file, .horizon = horizon,
                              .before = horizon - (file == WB_FILE_CATALOG ? prune->options.slack : 0)};
    struct wb_compact_forget forget = {.look = look, .overlay = overlay, .done = punch_beyond, .data = &sifting};
    struct wb_compact compact = {.flags = prune->options.dry_run ? WB_COMPACT_DRY : 0, .before = WB_WHEN_PRESENT,
                                 .stop = prune->options.stop, .stop_data = prune->options.data, .forget = &forget};
    int r;

    sifting.compact = &compact;
    /* In its place, a log is forgotten beneath its readers: they must have been told before. */
    if (!is_beyond(&sifting))
        forget.in_place = in_place;
    sifting.runs = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_run));
    sifting.indexes = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_run));
    wb_prune_image_init(&sifting.image);
    r = wb_compact_log(prune->store, &compact, object, file);
    /* What is not known of a catalog may be about any deleted thing. Where only the disk is full, all is known. */
    prune->blind |= file == WB_FILE_CATALOG && r < 0 && !sifting.whole;
    prune->count->logs += compact.logs;
    prune->count->changed += r == 0 ? compact.changed : 0;
    if (r == 0 && compact.changed > 0 && compact.old_size > compact.new_size)
        prune->count->log_bytes += compact.old_size - compact.new_size;
    wb_prune_image_deinit(&sifting.image);
    g_array_unref(sifting.runs);
    g_array_unref(sifting.indexes);
    return r;
}
