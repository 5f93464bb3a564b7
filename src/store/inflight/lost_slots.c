/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/inflight/lost_slots.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/inflight/inflight_parts.h"
#include "store/inflight/lost_content.h"
#include "store/log/log.h"
#include "store/parts.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_SIZE (WB_LOST_SLOTS_MAX * WB_SPAN_SIZE)

static int compare(const void *a, const void *b)
{
    const struct wb_span *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Joins the two neighbours with the shortest time between them. */
static void join_nearest(struct wb_lost_slots *slots)
{
    unsigned nearest = 1;

    qsort(slots->spans, slots->count, sizeof(slots->spans[0]), compare);
    for (unsigned i = 2; i < slots->count; i++)
        if (slots->spans[i].begin - slots->spans[i - 1].end <
            slots->spans[nearest].begin - slots->spans[nearest - 1].end)
            nearest = i;
    slots->spans[nearest - 1].end = MAX(slots->spans[nearest - 1].end, slots->spans[nearest].end);
    slots->count--;
    memmove(&slots->spans[nearest], &slots->spans[nearest + 1],
            (slots->count - nearest) * sizeof(slots->spans[0]));
}

void wb_lost_slots_add(struct wb_lost_slots *slots, struct wb_span span)
{
    if (span.begin >= span.end)
        return;
    if (slots->count == WB_LOST_SLOTS_MAX)
        join_nearest(slots);
    slots->spans[slots->count++] = span;
}

void wb_lost_slots_forget(struct wb_lost_slots *slots, int64_t floor)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < slots->count; i++)
        if (slots->spans[i].end > floor)
            slots->spans[kept++] = slots->spans[i];
    slots->count = kept;
}

const struct wb_span *wb_lost_slots_find(const struct wb_lost_slots *slots, int64_t ctime)
{
    for (unsigned i = 0; i < slots->count; i++)
        if (wb_ctime_end(ctime) >= slots->spans[i].begin && ctime < slots->spans[i].end)
            return &slots->spans[i];
    return NULL;
}

int wb_lost_slots_read(int dir_fd, struct wb_lost_slots *ret, int64_t *ret_since)
{
    _cleanup_close_ int fd = -1;
    uint8_t data[FILE_SIZE];
    size_t length = 0;
    struct stat st;
    int r;

    ret->count = 0;
    *ret_since = WB_LOST_SLOTS_NONE;
    fd = wb_open_own_stat(dir_fd, WB_LOST_SLOTS_NAME, O_RDONLY, 0, &st);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return r;
    /* Unused entries are zeros, which are not valid as spans. */
    for (size_t at = 0; at + WB_SPAN_SIZE <= length; at += WB_SPAN_SIZE)
        if (wb_span_decode(data + at, &ret->spans[ret->count]) == 0)
            ret->count++;
    if (st.st_mtim.tv_sec > 0)
        *ret_since = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    return 0;
}

/* Writes the whole file at once, so that later writes need no new space. */
static int allocate(int fd, int dir_fd)
{
    static const uint8_t zeros[FILE_SIZE];
    int r = wb_pwrite_full(fd, zeros, sizeof(zeros), 0);

    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r < 0 ? r : wb_fsync_dir(dir_fd);
}

int wb_lost_slots_open(int dir_fd)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r = 0;

    fd = wb_open_own_stat(dir_fd, WB_LOST_SLOTS_NAME, O_RDWR | O_CREAT, 0600, &st);
    if (fd >= 0 && st.st_size < FILE_SIZE)
        r = allocate(fd, dir_fd);
    return r < 0 ? r : wb_steal_fd(&fd);
}

int wb_lost_slots_mark(int fd, int64_t since)
{
    return wb_log_set_mtime(fd, since == WB_LOST_SLOTS_NONE ? 0 : since);
}

int wb_lost_slots_write(int dir_fd, const struct wb_lost_slots *slots)
{
    _cleanup_close_ int fd = wb_lost_slots_open(dir_fd);
    uint8_t data[FILE_SIZE] = {0};
    int r = MIN(fd, 0);

    for (unsigned i = 0; i < slots->count; i++)
        wb_span_encode(slots->spans[i], data + (size_t)i * WB_SPAN_SIZE);
    if (r == 0)
        r = wb_pwrite_full(fd, data, sizeof(data), 0);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    return r < 0 ? r : wb_lost_slots_mark(fd, WB_LOST_SLOTS_NONE);
}

static int read_tail(int dir_fd, struct wb_inflight_tail *tail)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    size_t length = 0;

    *tail = (struct wb_inflight_tail){0};
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    return wb_pread_full(fd, tail, sizeof(*tail), offsetof(struct wb_inflight_file, tail), &length);
}

/* The fields from `content` on lie in one sector: either all or none of them reach the disk. */
static int write_tail(struct wb_store *store, int64_t cut)
{
    const uint64_t words[] = {htole64((uint64_t)store->content_synced), htole64((uint64_t)store->lost_since),
                              htole64((uint64_t)store->lost_until), htole64((uint64_t)cut)};

    _Static_assert(sizeof(words) == sizeof(struct wb_inflight_tail) - offsetof(struct wb_inflight_tail, content) -
                                        sizeof(uint64_t), "four words of the tail");
    return wb_pwrite_full(store->inflight->fd, words, sizeof(words),
                          offsetof(struct wb_inflight_file, tail) + offsetof(struct wb_inflight_tail, content));
}

static void take(struct wb_store *store, const struct wb_inflight_tail *tail)
{
    store->content_synced = wb_inflight_clock(tail->content);
    store->lost_since = wb_inflight_clock(tail->lost_since);
    store->lost_until = wb_inflight_clock(tail->lost_until);
}

/* After a power failure: the present content is on stable storage. */
static void note_cut(struct wb_store *store, int64_t now)
{
    if (store->content_synced > 0) {
        if (store->lost_until == 0 || store->content_synced < store->lost_since)
            store->lost_since = store->content_synced;
        store->lost_until = now;
    }
    store->content_synced = now;
}

static int open_reader(struct wb_store *store)
{
    bool held = wb_store_is_held(store);
    struct wb_inflight_tail tail;
    struct wb_log_mtimes stamps;
    int r = read_tail(store->dir_fd, &tail);

    if (r < 0)
        return r;
    take(store, &tail);
    wb_inflight_peek_log_mtimes(store->dir_fd, held, &stamps);
    if (!held && stamps.cut != wb_inflight_clock(tail.content_cut))
        note_cut(store, WB_CLOCK_MAX);
    return 0;
}

int wb_lost_content_open(struct wb_store *store)
{
    struct wb_inflight_tail tail;
    int r;

    if (!store->writable)
        return open_reader(store);
    r = read_tail(store->dir_fd, &tail);
    if (r < 0)
        return r;
    take(store, &tail);
    if (!store->ordered)
        store->content_synced = 0;
    else if (store->stamps.cut != wb_inflight_clock(tail.content_cut))
        note_cut(store, wb_ctime_clock());
    else if (store->is_new)
        store->content_synced = wb_ctime_clock();
    else
        return 0;
    r = write_tail(store, store->stamps.cut);
    return r == 0 && fdatasync(store->inflight->fd) < 0 ? -errno : r;
}

void wb_lost_content_synced(struct wb_store *store, int64_t until)
{
    if (!store->ordered || until <= store->content_synced)
        return;
    store->content_synced = until;
    /* If the write fails, more content counts as lost after a power cut. */
    if (write_tail(store, store->stamps.cut) < 0)
        errno = 0;
}

void wb_lost_content_forget(struct wb_store *store, int64_t floor)
{
    if (store->lost_until == 0 || floor < store->lost_until)
        return;
    store->lost_until = 0;
    if (write_tail(store, store->stamps.cut) < 0)
        errno = 0;
}

static int64_t nanoseconds(struct statx_timestamp time)
{
    return time.tv_sec * WB_WHEN_SECOND + time.tv_nsec;
}

/* Whether a GAP covers it. 1, 0 or -errno. */
static int has_gap(int log_fd, int64_t since, int64_t ctime)
{
    struct wb_log_reader reader;
    struct wb_record record;
    bool found = false;
    int r = log_fd < 0 ? WB_END : wb_log_reader_init(&reader, log_fd);

    if (r != 0)
        return MIN(r, 0);
    while (!found && (r = wb_log_reader_prev(&reader, &record)) == 0 && record.when > ctime)
        found = record.type == WB_REC_GAP && record.gap.reason == WB_GAP_POWER && record.gap.since <= since;
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : found;
}

int wb_lost_content_find(const struct wb_store *store, int fd, int log_fd, int64_t *ret_since)
{
    int64_t since = store->lost_since, until = store->lost_until, ctime;
    struct statx stx;
    struct stat log;
    int r;

    if (until == 0)
        return 0;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &stx) < 0)
        return -errno;
    ctime = nanoseconds(stx.stx_ctime);
    /* A file with a name besides that in the graveyard can be synced, and its content is as recovery found it. */
    if (!S_ISREG(stx.stx_mode) || stx.stx_nlink > 1 || wb_ctime_end(ctime) <= since || ctime > until)
        return 0;
    /* It was moved to the graveyard in that period. The modification time does not prove whether it was written as well
     * (utimes). */
    if (wb_ctime_end(nanoseconds(stx.stx_mtime)) <= since && nanoseconds(stx.stx_btime) <= since &&
        (log_fd < 0 || fstat(log_fd, &log) < 0 ||
         wb_ctime_end(log.st_mtim.tv_sec * WB_WHEN_SECOND + log.st_mtim.tv_nsec) <= since))
        return 0;
    r = has_gap(log_fd, since, ctime);
    *ret_since = since;
    return r < 0 ? r : r == 0;
}
