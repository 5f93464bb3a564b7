/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads the records of one log that are newer than a moment, from the newest backward: the step that every look into
 * the past consists of. It fails if a change may be missing among them.
 */
#include "history/internal.h"
#include "store/cache/gaps.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

/* ---- changes under way ----------------------------------------------------------------------- */

static bool is_under_way(const struct wb_history *history, int64_t when)
{
    _cleanup_close_ int fd = wb_open_own(history->store->dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    uint64_t slots[WB_INFLIGHT_SLOTS][WB_INFLIGHT_SLOT / 8];

    if (fd < 0 || wb_pread_exact(fd, slots, sizeof(slots), WB_INFLIGHT_HEAD) < 0)
        return false;
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++)
        if (slots[i][0] != 0 && (int64_t)le64toh(slots[i][1]) <= when)
            return true;
    return false;
}

void wb_history_wait_own(struct wb_history *history, int64_t when)
{
    static const struct timespec pause = {.tv_nsec = 200 * 1000};

    /* Without the lock, announced changes may be those of a process that was killed long ago. */
    if (!history->store->writable || when == WB_WHEN_PRESENT)
        return;
    for (unsigned tries = 0; tries < 5000 && wb_inflight_is_under_way(history->store, when); tries++)
        nanosleep(&pause, NULL);
}

/* From taking a `when` to announcing the change with it passes no time to speak of, but some. */
#define UNANNOUNCED (100 * INT64_C(1000000))
#define AWAIT_TRIES 30000

int64_t wb_history_quiet_since(const struct wb_history *history)
{
    int64_t when = wb_store_now(history->store) - UNANNOUNCED;

    return wb_inflight_is_under_way(history->store, when) ? 0 : when;
}

int wb_history_wait_daemon(struct wb_history *history, int64_t when)
{
    static const struct timespec pause = {.tv_nsec = 1000 * 1000};
    /* Where the wall clock was set back it may be long in coming; the store's clock has passed `when` all the same. */
    unsigned passed = wb_store_now(history->store) > when ? UNANNOUNCED / pause.tv_nsec : AWAIT_TRIES;

    for (unsigned tries = 0; tries < AWAIT_TRIES; tries++) {
        if ((tries > passed || wb_when_now() - when > UNANNOUNCED) && !is_under_way(history, when))
            return 0;
        if (!wb_store_is_held(history->store))
            return 0;
        nanosleep(&pause, NULL);
    }
    return -EBUSY;
}

/* ---- what was forgotten ---------------------------------------------------------------------- */

ssize_t wb_history_end(struct wb_history *history, int64_t when, ssize_t r)
{
    char text[WB_WHEN_TEXT_MAX];
    int64_t horizon;

    if (when == WB_WHEN_PRESENT)
        return r;
    horizon = wb_store_horizon(history->store);
    if (when >= horizon)
        return r;
    if (horizon == INT64_MAX - 1)
        return wb_history_fail(-EIO, "the header of the store, which has the beginning of the history, cannot be read");
    return wb_history_fail(-EIO, "history before %s was forgotten (vprune)", wb_when_print(horizon, 1, text));
}

/* ---- scans ----------------------------------------------------------------------------------- */

void wb_history_accept_gaps(struct wb_history *history, int64_t when, const struct wb_open_gap *gaps, size_t count)
{
    history->accepted_when = when;
    history->accepted = gaps;
    history->accepted_count = count;
}

static bool is_accepted(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                        int64_t when)
{
    for (size_t i = 0; when == history->accepted_when && i < history->accepted_count; i++)
        if (history->accepted[i].file == file && wb_object_equal(history->accepted[i].object, object))
            return true;
    return false;
}

static bool is_accepted_since(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                              int64_t when)
{
    for (size_t i = 0; i < history->accepted_count; i++) {
        const struct wb_open_gap *gap = &history->accepted[i];

        if (gap->since <= when && gap->file == file && wb_object_equal(gap->object, object))
            return true;
    }
    return false;
}

int wb_history_check_gaps(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                          int64_t when)
{
    switch (wb_gap_state(history->store, object, file)) {
    case WB_GAP_OPEN:
        if (is_accepted(history, object, file, when))
            return 0;
        return wb_history_fail(-EIO, "changes that could not be recorded (onfull=continue) came after it");
    case WB_GAP_UNKNOWN:
        return wb_history_fail(-EIO, "it is not known whether changes without a record came after it: the "
                               "file `" WB_GAPS_NAME "` of the store is damaged; run vfsck");
    case WB_GAP_NONE:
        break;
    }
    return 0;
}

static int check_tail(const struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t when)
{
    int r = wb_store_tail_is_lost(history->store, object, file);

    if (r == WB_TAIL_SOUND || (r == WB_TAIL_CUT && when >= history->store->stamps.cut))
        return 0;
    return r == WB_TAIL_DAMAGED || r == -EBADMSG ? wb_history_fail_damaged(object, file)
                                                 : wb_history_fail_gap(WB_GAP_POWER);
}

int wb_history_check_log(const struct wb_history *history, struct wb_object object, enum wb_object_file file,
                         int64_t when)
{
    int r = when == WB_WHEN_PRESENT ? 0 : wb_history_check_gaps(history, object, file, when);

    return r == 0 && when != WB_WHEN_PRESENT ? check_tail(history, object, file, when) : r;
}

int wb_log_scan_open(struct wb_log_scan *scan, const struct wb_history *history, struct wb_object object,
                     enum wb_object_file file, int64_t when)
{
    int r = wb_history_check_log(history, object, file, when);

    *scan = (struct wb_log_scan){.object = object, .file = file, .when = when};
    scan->source = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    if (r < 0)
        return r;
    r = wb_log_cursor_open(&scan->source, history->store, object, file);
    /* Accepted: what is not recorded until now is not asked for, but the state it led to, or that at a last unlink. */
    scan->source.begun = scan->source.begun || is_accepted_since(history, object, file, when);
    return r;
}

void wb_log_scan_close(struct wb_log_scan *scan)
{
    wb_log_cursor_close(&scan->source);
}

static int fail_at(const struct wb_log_scan *scan, uint64_t offset, const char *what)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(scan->object, scan->file, path);
    return wb_history_fail(-EIO, "record at %" PRIu64 " of %s %s", offset, path, what);
}

int wb_log_scan_next(struct wb_log_scan *scan, const struct wb_record **ret)
{
    struct wb_log_cursor *source = &scan->source;
    int r;

    /* A record that was too old stays in view: a caller that lowers scan->when meets it. */
    if (scan->given)
        wb_log_cursor_take(source);
    scan->given = false;
    r = wb_log_cursor_peek(source);
    if (r == WB_DAMAGED)
        return fail_at(scan, source->reader.damaged_from, "is damaged (checksum)");
    if (r != 0)
        return r;
    if (source->head.when <= scan->when)
        return WB_END;
    /* Before it was left out, all of its state was recorded (capture/unrecorded.c). */
    if (source->head.type == WB_REC_GAP && source->head.gap.reason == WB_GAP_POLICY &&
        scan->when < source->head.gap.since && !scan->doubts) {
        wb_log_cursor_take(source);
        scan->left_out++;
        return wb_log_scan_next(scan, ret);
    }
    /* What a gap left out is missing for all states before its end, whenever it began. */
    if (source->head.type == WB_REC_GAP && !(scan->through && wb_log_scan_is_cut(&source->head)))
        return wb_history_fail_gap(source->head.gap.reason);
    /* The header has said so before; where it is lost, the log itself does. */
    if (source->head.type == WB_REC_FILLER && source->head.filler.until > scan->when && scan->when > 0)
        return fail_at(scan, source->head.offset, "marks that earlier history was forgotten");
    *ret = &source->head;
    scan->given = true;
    return 0;
}

const struct wb_slot *wb_log_scan_slot(const struct wb_record *record, const char *name)
{
    size_t length = strlen(name);

    if (record->type != WB_REC_NAME)
        return NULL;
    for (uint32_t i = 0; i < record->name.count; i++)
        if (record->name.slots[i].name_length == length &&
            memcmp(record->name.slots[i].name, name, length) == 0)
            return &record->name.slots[i];
    return NULL;
}

int wb_catalog_identity(const struct wb_history *history, struct wb_object dir, struct wb_object *ret)
{
    _cleanup_close_ int fd =
        wb_store_open_file(history->store, dir, WB_FILE_CATALOG, O_PATH | O_CLOEXEC);

    *ret = WB_OBJECT_NONE;
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    return wb_object_stat(NULL, fd, NULL, ret, NULL, NULL);
}
