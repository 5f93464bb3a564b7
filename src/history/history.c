/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What all ways into the past share: the thread's line about what could not be rebuilt, and the
 * walk over the records of one log that are newer than a moment.
 */
#include "history/internal.h"
#include "history/resolve/departures.h"
#include "history/state/rights.h"
#include "store/cache/gaps.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "wayback/at_name.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

static _Thread_local char problem[256];

const char *wb_history_error(void)
{
    return problem;
}

void wb_history_clear_error(void)
{
    problem[0] = '\0';
}

int wb_history_fail(int error, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    g_vsnprintf(problem, sizeof(problem), format, list);
    va_end(list);
    return error;
}

int wb_history_open(struct wb_history **ret, struct wb_store *store)
{
    struct wb_history *history = g_try_new0(struct wb_history, 1);

    if (!history)
        return -ENOMEM;
    history->store = store;
    history->at_sign = WB_AT_SIGN;
    history->listings = wb_listing_cache_new();
    history->departures = wb_departures_cache_new();
    history->rights = wb_rights_cache_new();
    history->dirfd_cache = wb_dirfd_cache_new();
    *ret = history;
    return 0;
}

struct wb_history *wb_history_free(struct wb_history *history)
{
    if (history) {
        wb_listing_cache_free(history->listings);
        wb_departures_cache_free(history->departures);
        wb_rights_cache_free(history->rights);
        wb_dirfd_cache_free(history->dirfd_cache);
    }
    g_free(history);
    return NULL;
}

void wb_history_set_at_sign(struct wb_history *history, char mark)
{
    history->at_sign = mark;
}

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

void wb_history_wait_inflight(struct wb_history *history, int64_t when)
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

int64_t wb_history_has_waited(const struct wb_history *history)
{
    int64_t when = wb_store_now(history->store) - UNANNOUNCED;

    return wb_inflight_is_under_way(history->store, when) ? 0 : when;
}

int wb_history_await(struct wb_history *history, int64_t when)
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

/* ---- traces ---------------------------------------------------------------------------------- */

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

int wb_log_scan_open(struct wb_log_scan *scan, const struct wb_history *history, struct wb_object object,
                     enum wb_object_file file, int64_t when)
{
    int r = when == WB_WHEN_PRESENT ? 0 : wb_history_check_gaps(history, object, file, when);

    *scan = (struct wb_log_scan){.object = object, .file = file, .when = when};
    scan->source = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    if (r == 0 && when != WB_WHEN_PRESENT)
        r = check_tail(history, object, file, when);
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

/* What a gap of that reason says happened after the state that was asked for. */
static const char *gap_words(unsigned reason)
{
    switch (reason) {
    case WB_GAP_REFUSED:
        return "changes that could not be recorded (onfull=continue) came after it";
    case WB_GAP_ERASED:
        return "its history was erased (vrm)";
    case WB_GAP_POWER:
        return "a power cut took the records of changes that came after it";
    case WB_GAP_UNSEEN:
        return "it was changed while Wayback did not record";
    case WB_GAP_DAMAGE:
        return "records of changes that came after it were lost to damage";
    case WB_GAP_POLICY:
        return "wayback.conf leaves changes that came after it unrecorded";
    default:
        return "changes that came after it are not known";
    }
}

int wb_history_fail_damaged(struct wb_object object, enum wb_object_file file)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, file, path);
    return wb_history_fail(-EIO, "%s: records were lost (the file is missing or too short, or the list in `"
                           WB_MANIFEST_NAME "` that it is compared with is damaged); run vfsck", path);
}

int wb_history_fail_gap(unsigned reason)
{
    return wb_history_fail(-EIO, "%s", gap_words(reason));
}

int wb_log_scan_next(struct wb_log_scan *scan, const struct wb_record **ret)
{
    struct wb_log_cursor *source = &scan->source;
    int r;

    /* A record that was too old stays in view: a caller that lowers trace->when meets it. */
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
