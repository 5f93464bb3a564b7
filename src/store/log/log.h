/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A log: a file of framed, checksummed records that is appended to, read in both directions, and
 * cut. Undo logs, catalogs and actors are logs; they differ in the types of their records only.
 *
 * Writing: one writer (the holder of the store's lock), through `struct wb_log`, thread-safe by
 * the log's own mutex. Reading: any number of readers, in this or another process, through
 * `struct wb_log_reader`, with no lock at all: a record counts once all of its bytes are there,
 * and its change is made only after that, so a reader that ignores an unfinished tail misses
 * nothing that has happened.
 */

#include "format/format.h"
#include "store/log/log_bytes.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/uio.h>

/* ---- writing --------------------------------------------------------------------------------- */

struct wb_log {
    int fd;
    uint64_t tail;     /* end of the last whole record: where the next one goes   */
    uint64_t unpacked; /* below this, the log is packed, and cannot be cut         */
    uint64_t packed;   /* where in the file the bytes from `unpacked` on begin     */
    uint64_t synced;   /* everything below is on stable storage                   */
    bool name_synced;  /* the file's own name is on stable storage                */
    unsigned cuts;     /* how often records were taken away again                 */
    unsigned exchanges; /* how often another file took the place of this one       */
    int64_t last_when; /* of the newest record, 0 where there is none             */
    int64_t stamp;     /* when the file was opened: the newest record it ever had  */
    int64_t open_since; /* the newest record is a GAP that is open (WB_RECORD_OPEN): its `since` plus 1; 0: it is not */
    bool overwrites;   /* content changed in its place, and may not be on the disk (settling.c) */
    bool dirty;        /* appended to since it was last given to the disk         */
    bool tail_is_lost; /* records were lost, and no GAP says so yet (logs.c)      */
    bool damaged_tail; /* and it was not a power cut that took them               */
    bool listed_known; /* the manifest could be read where it lists the log       */
    bool unlisted;     /* has news for the manifest                               */
    uint64_t listed;   /* how far it reaches by the manifest, or will soon: never cut below that */
    bool mtime_untrusted; /* its time proves nothing: each record is synced when appended (log_mtime.c) */
    uint64_t noted;    /* timeline.c: the pass for which the log was noted        */
    pthread_mutex_t lock;
    struct wb_log *taken; /* logs.c: the next one that is given to the disk */
    void *cached;      /* logs.c: the entry of the cache that holds it            */
};

/* Ends the GAP that is open, just before `when`; without one, nothing. With log->lock held. 0 or -errno. */
int wb_log_end_gap_locked(struct wb_log *log, int64_t when);

/* How often an open GAP was ended, in any log of this process: a caller that knows of one looks again if this grew. */
uint64_t wb_log_gaps_ended(void);

/* Pieces a payload may consist of. */
#define WB_LOG_PIECES_MAX 66

/*
 * Opens dir_fd/path for appending, creating it where `create` says so (-ENOENT otherwise). A torn
 * tail (a record cut off by a crash) is cut away, a damaged record never is. The last record is
 * verified, not the whole log.
 */
int wb_log_open(struct wb_log **ret, int dir_fd, const char *path, bool create);
struct wb_log *wb_log_free(struct wb_log *log);
static inline void wb_log_freep(struct wb_log **log)
{
    wb_log_free(*log);
}

/*
 * Appends one record with its payload (which may be NULL/0) in one write. `record` is filled as for
 * wb_record_encode, payload_length and payload_check are computed here, `offset` is set.
 * The caller holds log->lock, because `when` must be given out and appended under one hold.
 * On a short or failed write the tail is cut back and the error returned: the record never was.
 * `payload` has at most WB_LOG_PIECES_MAX pieces and is left alone. Allocates nothing.
 */
int wb_log_append_locked(struct wb_log *log, struct wb_record *record, const struct iovec *payload,
                         int payload_count);

/*
 * A log's time of modification is the `when` of its newest record. It reaches the disk with the other metadata of the
 * file system, not later than whatever the change brings about in names, sizes and times, while the record itself may
 * lag behind: so after a power cut it reveals that records were lost. For code that changes a log by other means.
 * 0 or -errno: on an error the time is later than the record, and a power cut leads to a gap although nothing was lost.
 */
int wb_log_set_mtime(int fd, int64_t when);

struct wb_store;
/* Appends a GAP: records later than `since` were lost (tail_loss.c). The caller holds log->lock. 0 or -errno. */
int wb_log_record_lost_tail(struct wb_store *store, struct wb_log *log, int64_t since);

/* Where in the file an offset of the log is that is not packed. */
static inline uint64_t wb_log_physical(const struct wb_log *log, uint64_t offset)
{
    return offset - log->unpacked + log->packed;
}

/*
 * The log goes on in another file with the same bytes, which is on stable storage as far as `tail`: that one takes
 * the name dir_fd/path, and the place of log->fd. The caller holds log->lock. 0; -EAGAIN where the
 * log does not end at `tail` any more, or its name is another file's by now: then nothing happened; or -errno.
 */
int wb_log_exchange_locked(struct wb_log *log, int dir_fd, const char *path, const char *temporary, uint64_t tail);

/* The directory that holds the name dir_fd/path to stable storage. 0 or -errno. */
int wb_log_sync_name(int dir_fd, const char *path);

/* Everything appended so far to stable storage; the directory that holds the name, if need be. */
int wb_log_sync(struct wb_log *log, int dir_fd, const char *path);

/* ---- reading --------------------------------------------------------------------------------- */

/*
 * A walk over a log. The reader owns a window buffer; the strings of a record it returned stay
 * valid until the next call. Payloads are not read by walking.
 */
struct wb_log_reader {
    int fd;
    struct wb_log_bytes bytes;
    uint64_t position;  /* backward: end of the unread part; forward: its beginning        */
    uint64_t end;       /* the log as it was when the reader was opened (or refreshed)   */
    uint8_t *window;
    uint64_t window_offset;
    size_t window_length;
    size_t window_size; /* how much to load next time */
    uint64_t damaged_from, damaged_to; /* after WB_DAMAGED: the bytes that were skipped */

    /* Of wb_log_reader_prev_effective only (log_effective.c). `pass`, where set, says of an INDEX whether all
     * it covers may be passed over unread; it is not asked where aborted changes or gaps are concerned. */
    bool (*pass)(const struct wb_record *index, void *data);
    void *pass_data;
    uint8_t *copies; /* of an INDEX: heads and bodies of records before `position` */
    size_t copies_room, copies_at, copies_end;
    uint64_t known_from, known_to; /* bytes of which an INDEX says that they are one, too; 0, 0 */
};

/* Takes a descriptor opened for reading (not owned). Stands at the tail; 0 or -errno. */
int wb_log_reader_init(struct wb_log_reader *reader, int fd);
void wb_log_reader_deinit(struct wb_log_reader *reader);

/* The record before the present position: 0, WB_END, WB_DAMAGED (skipped to the next good one,
 * see damaged_*; call again), or -errno. An unfinished tail is passed over without a word; a record
 * with nothing but its trailer damaged is returned as any other. */
int wb_log_reader_prev(struct wb_log_reader *reader, struct wb_record *ret);

/* The record at the present position, moving forward; the same results. */
int wb_log_reader_next(struct wb_log_reader *reader, struct wb_record *ret);

void wb_log_reader_seek(struct wb_log_reader *reader, uint64_t position);

/* Looks whether the log has grown; moves `end`, not `position`. */
int wb_log_reader_refresh(struct wb_log_reader *reader);

/*
 * Backward, as replay needs it: aborted changes and their ABORT records are left out, and so are INDEX records, but
 * their content is used: payloads between the records they cover are not touched. The same
 * results as wb_log_reader_prev. `skip` remembers the aborts whose targets lie still further back
 * (never more than there are in-flight slots); zero it to begin, and begin at the tail.
 */
struct wb_log_skip {
    int64_t targets[64];
    unsigned count;
    int64_t stage_begin, stage_end; /* of the stage whose end was met last; 0: none was */
    int64_t stage_cut; /* where the end of one may be among what a GAP stands for: when it was, at the earliest */
    /* Changes that count together (WB_RECORD_COALESCED): from when on, 0: none do; the last one met with that flag; and
     * the one before it, 0: not met yet. */
    int64_t joined_when, joined_by, joined_to;
};

/*
 * The `when` of a DATA record of a stage is that of the stage's end, so that all of a stage counts as one change.
 * One that has no end yet is later than every moment there is a question for (only WB_WHEN_PRESENT is later still).
 */
#define WB_WHEN_UNDER_WAY (INT64_MAX - 1)
/* It counts together with newer ones, from their `when` on: a state after it is not kept. */
static inline bool wb_record_is_joined(const struct wb_record *record)
{
    return record->change < record->when;
}
static inline bool wb_record_is_staged(const struct wb_record *record)
{
    return record->type == WB_REC_DATA && record->flags & WB_RECORD_STAGE;
}
/*
 * For walks back with wb_log_reader_prev, record by record: whether this one counts, 1, with `when` as above; 0: it
 * was aborted, or is an ABORT. -EBADMSG if there are more ABORTs than there can be.
 */
int wb_log_skip_judge(struct wb_log_skip *skip, struct wb_record *record);
int wb_log_reader_prev_effective(struct wb_log_reader *reader, struct wb_log_skip *skip,
                                 struct wb_record *ret);

/* Reads a record's whole payload (payload_length bytes). -EBADMSG where its checksum does not match. */
int wb_log_read_payload(int fd, const struct wb_record *record, void *data);
int wb_log_bytes_payload(const struct wb_log_bytes *bytes, const struct wb_record *record, void *data);
