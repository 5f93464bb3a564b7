/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds the records of one log that only states before the horizon need.
 *
 * A record describes the moments before its `when`. So it is needed if that is later than the horizon, and not
 * otherwise. These are kept all the same:
 *
 *  - of PLACEs, the first record of a catalog, and the newest that is not later: they show where the thing is, also
 *    after the horizon; with the other records of their change;
 *  - the records of a catalog in the minute before the horizon, by which births are judged;
 *  - content of a stage that ended later, or has not ended: it counts from its end;
 *  - records that count together with a change that is later (WB_RECORD_COALESCED).
 *
 * An INDEX that has copies of pruned records is pruned, too. A log with a damaged record is left alone.
 */
#include "maintain/prune/prune_parts.h"

#include "base/io.h"
#include "store/inflight/stages.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/*
 * Pruning in place, if there is no space to write the remaining log beside the old one: records become fillers at their
 * offsets, and the fillers' payloads become holes.
 *
 * One filler stands for as many whole records as it can be long. Its trailer is that of the last of them, its head that
 * of the first, and both cannot be written at once. So the trailer comes first: it leads to a head that does not match
 * it, and a backward walk finds the last record by searching, as it does if a trailer is damaged. When all trailers
 * are on the disk, the heads are written; when the heads are, the bytes between are punched out.
 *
 * A record that is longer than a filler can be becomes two of them. The second is written into its payload, which
 * no process reads any more, and here the head comes first: its trailer leads to a head that does not match, and the
 * search finds the second filler.
 */

/* So many fillers are made at a time, between two syncs. */
#define BATCH 512
/* Of a record that becomes two fillers, the second is so long. */
#define SECOND 8192u
/* A filler that is there stays as it is, unless it is shorter: then it becomes part of another. */
#define FILLER_LEAST (64u << 10)
/* What a power cut leaves as it was, or as it is to be. */
#define SECTOR 512u

struct piece {
    struct wb_filler_run run;
    unsigned count; /* of records */
    bool alone, filler; /* one record, which nothing is joined with; a filler already */
    bool more;
};

/* ---- which pieces ---------------------------------------------------------------------------- */

bool wb_prune_is_hole(int fd, const struct wb_log_bytes *bytes, const struct wb_record *filler)
{
    uint64_t unpacked = wb_log_bytes_unpacked(bytes), from, to;
    off_t data;

    if (filler->offset < unpacked || filler->payload_length < FILLER_LEAST)
        return true;
    /* The blocks at both ends hold other bytes, too. */
    from = filler->payload_offset - unpacked + wb_log_bytes_packed(bytes);
    to = from + filler->payload_length - FILLER_LEAST / 4;
    data = lseek(fd, (off_t)(from + FILLER_LEAST / 4), SEEK_DATA);
    return data < 0 || (uint64_t)data >= to;
}

static bool is_alone(const struct wb_record *record)
{
    return record->total > WB_FILLER_MAX ||
           (record->type == WB_REC_FILLER && record->payload_length >= FILLER_LEAST);
}

/*
 * A head of which only a part got to the disk is neither the one nor the other, and nothing mends it: where it would
 * lie in two sectors, no piece begins.
 */
static bool may_begin(const struct wb_log_bytes *bytes, const struct wb_record *record)
{
    uint64_t at = record->offset - wb_log_bytes_unpacked(bytes) + wb_log_bytes_packed(bytes);

    return at % SECTOR <= SECTOR - WB_FILLER_HEAD;
}

static int64_t until_of(const struct wb_record *record)
{
    if (record->type == WB_REC_FILLER)
        return record->filler.until;
    return record->type == WB_REC_INDEX || record->type == WB_REC_ABORT ? 0 : record->when;
}

static bool fits(const struct piece *piece, const struct wb_record *record)
{
    return piece->count == 0 ||
           (!piece->alone && !is_alone(record) &&
            record->offset + record->total - piece->run.from <= WB_FILLER_MAX);
}

static void take(struct piece *piece, const struct wb_record *record)
{
    if (piece->count++ == 0)
        *piece = (struct piece){.run.from = record->offset, .count = 1};
    piece->run.to = record->offset + record->total;
    piece->run.when = record->when;
    piece->run.until = MAX(piece->run.until, until_of(record));
    piece->alone = is_alone(record);
    piece->filler = piece->count == 1 && record->type == WB_REC_FILLER;
}

/* The next pieces from *from on, which is where those after them begin. */
static int find_pieces(int fd, uint64_t *from, uint64_t to, GArray *pieces)
{
    struct piece piece = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, *from);
    while (pieces->len < BATCH && *from < to) {
        r = wb_log_reader_next(&reader, &record);
        if (r != 0 && r != WB_END)
            break;
        if (r == 0 && record.offset < to && fits(&piece, &record)) {
            /* A filler that is a hole has become what it is to be. */
            bool begins = piece.count > 0 || may_begin(&reader.bytes, &record);

            if (record.type == WB_REC_FILLER ? is_alone(&record) && wb_prune_is_hole(fd, &reader.bytes, &record)
                                             : !begins) {
                *from = record.offset + record.total;
                continue;
            }
            take(&piece, &record);
            piece.alone |= !begins;
            continue;
        }
        if (piece.count == 0)
            break;
        if (piece.run.until > piece.run.when) {
            r = -EBADMSG;
            break;
        }
        piece.more = r == 0 && record.when == piece.run.when;
        g_array_append_val(pieces, piece);
        *from = piece.run.to;
        piece = (struct piece){0};
        wb_log_reader_seek(&reader, *from);
    }
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

/* ---- what is to be done with them ------------------------------------------------------------ */

static void add_write(GArray *steps, uint64_t at, const uint8_t *data, size_t length)
{
    struct wb_prune_step step = {.kind = WB_PRUNE_WRITE, .at = at, .length = length};

    memcpy(step.data, data, length);
    g_array_append_val(steps, step);
}

static void add_punch(GArray *steps, uint64_t from, uint64_t to)
{
    struct wb_prune_step step = {.kind = WB_PRUNE_PUNCH, .at = from + WB_FILLER_HEAD};

    step.length = to - WB_TRAILER_SIZE - step.at;
    if (step.length > 0)
        g_array_append_val(steps, step);
}

static void add_sync(GArray *steps)
{
    struct wb_prune_step step = {.kind = WB_PRUNE_SYNC};

    g_array_append_val(steps, step);
}

/* What is done in the first, second or third part (0 to 2): before the next one, all of it is on the disk. */
static void add_part(GArray *steps, const struct piece *piece, unsigned part)
{
    const struct wb_filler_run *run = &piece->run;
    uint8_t head[WB_FILLER_HEAD], end[WB_TRAILER_SIZE], both[WB_FILLER_SIZE];
    bool two = run->to - run->from > WB_FILLER_MAX;
    uint64_t between = two ? run->to - SECOND : run->to;

    if (piece->filler) {
        /* Of the second of two, it may still be the one of the record it was. */
        wb_filler_encode(run, run->from, run->to, piece->more, head, end);
        if (part == 0)
            add_write(steps, run->to - WB_TRAILER_SIZE, end, sizeof(end));
        if (part == 2)
            add_punch(steps, run->from, run->to);
        return;
    }
    if (two)
        wb_filler_encode(run, between, run->to, piece->more, both + WB_TRAILER_SIZE, end);
    wb_filler_encode(run, run->from, between, two || piece->more, head, two ? both : end);
    if (part == 0 && two)
        add_write(steps, between - WB_TRAILER_SIZE, both, sizeof(both));
    if (part == (two ? 2 : 0))
        add_write(steps, run->to - WB_TRAILER_SIZE, end, sizeof(end));
    if (part == 1)
        add_write(steps, run->from, head, sizeof(head));
    if (part == 2)
        add_punch(steps, run->from, between);
    if (part == 2 && two)
        add_punch(steps, between, run->to);
}

int wb_prune_place_steps(int fd, uint64_t *from, uint64_t to, GArray *steps)
{
    g_autoptr(GArray) pieces = g_array_new(FALSE, FALSE, sizeof(struct piece));
    int r = find_pieces(fd, from, to, pieces);

    g_array_set_size(steps, 0);
    if (r < 0 || pieces->len == 0)
        return r;
    for (unsigned part = 0; part < 3; part++) {
        for (guint i = 0; i < pieces->len; i++)
            add_part(steps, &g_array_index(pieces, struct piece, i), part);
        /* After the last one, since blocks are free when it is known on the disk that they are. */
        add_sync(steps);
    }
    return 0;
}

/* ---- doing it -------------------------------------------------------------------------------- */

/* The log's mtime remains that of its newest record: appends wait until this is done. */
static int carry_out(struct wb_log *log, const struct wb_prune_step *step)
{
    int r = 0;

    if (step->kind == WB_PRUNE_SYNC)
        return fdatasync(log->fd) < 0 ? -errno : 0;
    pthread_mutex_lock(&log->lock);
    if (step->kind == WB_PRUNE_WRITE)
        r = wb_pwrite_full(log->fd, step->data, step->length, wb_log_physical(log, step->at));
    else if (fallocate(log->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)wb_log_physical(log, step->at),
                       (off_t)step->length) < 0)
        r = -errno;
    wb_log_set_mtime(log->fd, log->last_when);
    pthread_mutex_unlock(&log->lock);
    return r;
}

/* Asked where nothing is: far behind the end, which nobody moves meanwhile. */
static bool makes_holes(struct wb_log *log)
{
    int r;

    pthread_mutex_lock(&log->lock);
    r = fallocate(log->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(wb_log_physical(log, log->tail) + ((uint64_t)1 << 30)), 4096);
    wb_log_set_mtime(log->fd, log->last_when);
    pthread_mutex_unlock(&log->lock);
    return r == 0;
}

/* All of [from, to), with the right to write logs anew. 1; 0: the file system makes no holes; -ECANCELED; -errno. */
static int wb_prune_place(struct wb_prune *prune, struct wb_log *log, uint64_t from, uint64_t to)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_step));
    int r;

    if (!makes_holes(log))
        return 0;
    do {
        r = wb_prune_place_steps(log->fd, &from, to, steps);
        for (guint i = 0; r == 0 && i < steps->len; i++)
            r = carry_out(log, &g_array_index(steps, struct wb_prune_step, i));
        /* What waits for the right to write logs anew may be a change. */
        if (r == 0 && steps->len > 0 &&
            (atomic_load(&prune->store->rewrite_wanted) > 0 || prune->options.stop(prune->options.data)))
            r = -ECANCELED;
    } while (r == 0 && steps->len > 0);
    return r < 0 ? r : 1;
}

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
    const struct wb_log_skip *skip;
    int64_t horizon;    /* of this log                                                */
    int64_t before;     /* records up to then may go                                  */
    struct wb_log_edits edits; /* the runs that go                                    */
    struct wb_filler_run run; /* that grows; from == to: there is none                 */
    int64_t group;      /* `when` of the records met last                             */
    uint64_t group_end; /* behind the newest of them                                  */
    int64_t place;      /* `when` of the PLACE that stays; 0: not met yet             */
    uint64_t guard;     /* where the newest record of the run is that ends all walks  */
    GArray *indexes;    /* of struct wb_filler_run: what each INDEX covers, and itself */
    uint64_t gone;      /* bytes that go and are no fillers                           */
    bool packed;        /* and some of them are packed, and do not go in their place  */
    bool changed;       /* something goes that is not a filler                        */
    bool changed_before; /* and did so before the records met last                    */
    bool doubt;         /* a change from before the horizon failed, and has no ABORT yet */
    bool odd;           /* the log is not one as we write them: it is left alone      */
    bool whole;         /* all of it was read: the deleted things in it are known     */
    struct wb_prune_image image;
};

static void end_run(struct sifting *sifting)
{
    if (sifting->run.from < sifting->run.to)
        sifting->odd |= wb_log_edits_drop(&sifting->edits, &sifting->run) < 0;
    sifting->run = (struct wb_filler_run){0};
}

static void drop(struct sifting *sifting, const struct wb_record *record, bool counts)
{
    struct wb_filler_run *run = &sifting->run;
    /* A record without content may lie amid kept records of a stage: no reader's walk may end with it. */
    int64_t until = record->type == WB_REC_FILLER              ? record->filler.until
                    : record->type == WB_REC_INDEX || !counts ? 0
                                                              : record->written;

    if (run->from == run->to) {
        *run = (struct wb_filler_run){.to = record->offset + record->total, .when = record->written};
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
    struct wb_filler_run *run = &sifting->run;

    if (with_change && run->from < run->to)
        run->from = MIN(MAX(run->from, sifting->group_end), run->to);
    if (with_change)
        sifting->changed = sifting->changed_before;
    end_run(sifting);
}

static int64_t before_of(const struct wb_prune *prune, struct wb_object object)
{
    return wb_prune_limits_before(prune->limits, &prune->options, object);
}

/*
 * Marks the deleted things in a record that kept states need. The catalog may be kept for something else that was in
 * the directory: then a file is needed as far as its own history is kept. A directory is always needed, since without
 * its body and log it would look as if it had been empty; it takes next to no space.
 */
static void need_named(struct sifting *sifting, const struct wb_record *record)
{
    if (record->type != WB_REC_NAME || record->when <= sifting->horizon)
        return;
    for (uint32_t i = 0; i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];

        if (S_ISDIR(slot->attrs.mode) || record->when > before_of(sifting->prune, slot->object))
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
        return !(record->flags & WB_RECORD_OPEN) &&
               wb_stages_gap_when(sifting->prune->store, sifting->object, sifting->skip, record) <= sifting->before;
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
                            &(struct wb_filler_run){.from = record->index.from, .to = record->offset}, 1);
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
    sifting->skip = &skip;
    while (sifting->edits.list->len < RUNS_MAX && (r = wb_log_reader_prev(&reader, &record)) == 0) {
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

static int look(void *data, struct wb_object object, enum wb_object_file file, int fd)
{
    struct sifting *sifting = data;
    int r;

    /* Since the horizon was published nothing that old is under way. */
    sifting->doubt = wb_inflight_has_aside(sifting->prune->store, sifting->horizon);
    r = walk(sifting, fd);

    if (r != WB_END)
        return r == WB_DAMAGED ? -EBADMSG : r;
    sifting->whole = true;
    if (!sifting->changed || sifting->odd || sifting->edits.list->len == 0)
        return 0;
    wb_log_edits_settle(&sifting->edits);
    /* Before the records go: afterwards nobody knows where it was. */
    if (!is_beyond(sifting))
        r = punch(sifting, object);
    return r < 0 ? r : 1;
}

/* Beyond the published horizon, a process that reads an image sees by the replaced log that the bytes are gone. */
static int punch_beyond(void *data, struct wb_object object)
{
    struct sifting *sifting = data;

    return is_beyond(sifting) && sifting->compact->changed > 0 ? punch(sifting, object) : 0;
}

/*
 * How far the log can be made fillers from its beginning, while others read it. The newest record up to the horizon
 * is kept, since the walks of readers that show a later moment end at it. All records are kept of which a remaining
 * INDEX has copies, since readers take the copies for the content of the log.
 */
static uint64_t end_of_place(const struct sifting *sifting)
{
    uint64_t end = sifting->guard;

    /* The newest one first. */
    for (guint i = 0; i < sifting->indexes->len; i++) {
        const struct wb_filler_run *index = &g_array_index(sifting->indexes, struct wb_filler_run, i);

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
    int r = wb_log_mtime_prepare(store);

    if (r == -ENOSPC || r == -EDQUOT)
        return 0;
    return r < 0 ? r : wb_log_mtime_suspend(store, sifting->object);
}

/*
 * Where the room beside the log does not suffice, with as much left for others, or did not (`full`), as with a quota.
 * In a hurry, also where most of a large log would have to be written anew.
 */
static int in_place(void *data, struct wb_log *log, bool full)
{
    struct sifting *sifting = data;
    uint64_t first = g_array_index(sifting->edits.list, struct wb_log_edit, 0).offset;
    uint64_t end = end_of_place(sifting), stays = 0, room = 0;
    struct wb_store *store = sifting->prune->store;
    struct stat before, after;
    bool soon;
    int resumed, r = full ? 0 : look_at_room(sifting, log->fd, &stays, &room);

    soon = sifting->prune->options.hurry && !sifting->packed && stays > MAX(sifting->gone, SOON_LEAST);
    if (r < 0 || (!full && !soon && stays <= room / 2))
        return r;
    /* Readers of a catalog may need its oldest records; and packed bytes cannot become holes. */
    if (sifting->file != WB_FILE_UNDO || first > log->unpacked || end <= log->unpacked)
        return stays > room ? -ENOSPC : 0;
    if (fstat(log->fd, &before) < 0)
        return -errno;
    r = suspend(sifting);
    if (r < 0)
        return soon && stays <= room / 2 ? 0 : r;
    r = wb_prune_place(sifting->prune, log, log->unpacked, end);
    resumed = wb_log_mtime_resume(store);
    r = r >= 0 && resumed < 0 ? resumed : r;
    if (fstat(log->fd, &after) == 0 && after.st_blocks < before.st_blocks)
        sifting->prune->count->log_bytes += (uint64_t)(before.st_blocks - after.st_blocks) * 512;
    return r;
}

int wb_prune_log(struct wb_prune *prune, struct wb_object object, enum wb_object_file file)
{
    int64_t horizon = before_of(prune, object);
    struct sifting sifting = {.prune = prune, .object = object, .file = file, .horizon = horizon,
                              .before = horizon - (file == WB_FILE_CATALOG ? prune->options.slack : 0)};
    struct wb_compact_forget forget = {.look = look, .edits = &sifting.edits, .done = punch_beyond, .data = &sifting};
    struct wb_compact compact = {.flags = prune->options.dry_run ? WB_COMPACT_DRY : 0, .before = WB_WHEN_PRESENT,
                                 .stop = prune->options.stop, .stop_data = prune->options.data, .forget = &forget};
    int r;

    sifting.compact = &compact;
    /* Pruning in place changes a log while others read it: they must know of the horizon before. */
    if (!is_beyond(&sifting))
        forget.in_place = in_place;
    wb_log_edits_init(&sifting.edits);
    sifting.indexes = g_array_new(FALSE, FALSE, sizeof(struct wb_filler_run));
    wb_prune_image_init(&sifting.image);
    r = wb_compact_log(prune->store, &compact, object, file);
    /* What is not known of a catalog may be about any deleted thing. Where only the disk is full, all is known. */
    prune->blind |= file == WB_FILE_CATALOG && r < 0 && !sifting.whole;
    prune->count->logs += compact.logs;
    prune->count->changed += r == 0 ? compact.changed : 0;
    if (r == 0 && compact.changed > 0 && compact.old_size > compact.new_size)
        prune->count->log_bytes += compact.old_size - compact.new_size;
    wb_prune_image_deinit(&sifting.image);
    wb_log_edits_deinit(&sifting.edits);
    g_array_unref(sifting.indexes);
    return r;
}
