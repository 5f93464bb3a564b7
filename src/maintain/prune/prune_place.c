/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Forgetting in place, where there is no room to write what stays of a log beside it: records become fillers where they
 * lie, and the fillers' payloads become holes.
 *
 * One filler stands for as many whole records as it can be long. Its trailer is that of the last of them, its head that
 * of the first, and both cannot be written at once. So the trailer comes first: it leads to a head that does not match
 * it, and who walks back finds the last record by searching, as he does where a trailer is damaged. When all trailers
 * are on the disk, the heads are written; when they are, what lies between is punched out.
 *
 * A record that is longer than a filler can be becomes two of them. The second is written into its payload, which
 * nobody reads any more, and here the head comes first: its trailer leads to a head that does not match, and the search
 * finds the second filler.
 */
#include "maintain/prune/prune_parts.h"

#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* So many fillers are made at a time: what is between the syncs. */
#define BATCH 512
/* Of a record that becomes two fillers, the second is so long. */
#define SECOND 8192u
/* A filler that is there stays as it is, unless it is shorter: then it becomes part of another. */
#define FILLER_LEAST (64u << 10)
/* What a power cut leaves as it was, or as it is to be. */
#define SECTOR 512u

struct piece {
    struct wb_prune_run run;
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
    return record->total > WB_PRUNE_FILLER_MAX ||
           (record->type == WB_REC_FILLER && record->payload_length >= FILLER_LEAST);
}

/*
 * A head of which only a part got to the disk is neither the one nor the other, and nothing mends it: where it would
 * lie in two sectors, no piece begins.
 */
static bool may_begin(const struct wb_log_bytes *bytes, const struct wb_record *record)
{
    uint64_t at = record->offset - wb_log_bytes_unpacked(bytes) + wb_log_bytes_packed(bytes);

    return at % SECTOR <= SECTOR - WB_PRUNE_FILLER_HEAD;
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
            record->offset + record->total - piece->run.from <= WB_PRUNE_FILLER_MAX);
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
    struct wb_prune_step step = {.kind = WB_PRUNE_PUNCH, .at = from + WB_PRUNE_FILLER_HEAD};

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
    const struct wb_prune_run *run = &piece->run;
    uint8_t head[WB_PRUNE_FILLER_HEAD], end[WB_TRAILER_SIZE], both[WB_FILLER_SIZE];
    bool two = run->to - run->from > WB_PRUNE_FILLER_MAX;
    uint64_t between = two ? run->to - SECOND : run->to;

    if (piece->filler) {
        /* Of the second of two, it may still be the one of the record it was. */
        wb_prune_encode_filler(run, run->from, run->to, piece->more, head, end);
        if (part == 0)
            add_write(steps, run->to - WB_TRAILER_SIZE, end, sizeof(end));
        if (part == 2)
            add_punch(steps, run->from, run->to);
        return;
    }
    if (two)
        wb_prune_encode_filler(run, between, run->to, piece->more, both + WB_TRAILER_SIZE, end);
    wb_prune_encode_filler(run, run->from, between, two || piece->more, head, two ? both : end);
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

/* The log's time of modification stays that of its newest record: what is appended waits as long. */
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
    wb_log_stamp(log->fd, log->last_when);
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
    wb_log_stamp(log->fd, log->last_when);
    pthread_mutex_unlock(&log->lock);
    return r == 0;
}

int wb_prune_place(struct wb_prune *prune, struct wb_log *log, uint64_t from, uint64_t to)
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
