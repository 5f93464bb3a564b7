/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/inflight/spans.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/inflight/inflight_parts.h"
#include "store/inflight/lost_slots.h"
#include "time/ctime_clock.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* After a pause this long a new span begins; a multiple of the tick of the clock that ctime comes from. */
#define PAUSE (50 * WB_WHEN_SECOND / 1000)
/* After SIGKILL: a change may have been made whose end was not stored. One tick. */
#define KILL_SLACK (5 * WB_WHEN_SECOND / 1000)
/* The end of a span that is open until the next opening of the store. */
#define OPEN_END (WB_CLOCK_MAX - 1)
/* The maximum time for a change that recovery examines. */
#define CHANGE_MAX (10 * WB_WHEN_SECOND)

#define FILE_MAX ((1 + WB_SPANS_MAX) * WB_SPAN_SIZE)

struct table {
    struct wb_spans_head head; /* `cut`: as in struct wb_log_mtimes */
    unsigned count;
    struct wb_span spans[WB_SPANS_MAX + 1];
};

struct wb_spans {
    pthread_mutex_t lock; /* of the table */
    struct table table;
    struct wb_lost_slots slots;
    _Atomic int64_t slots_end; /* no file with this ctime or a later one has lost its slot */
    bool writes, lost;
    bool absent; /* a reader found no table: the store has an older version, and nothing is known */
    bool opening; /* from wb_spans_begin to wb_spans_end_opening; counts as one that is active */
    bool moving;  /* between wb_spans_begin_moving and wb_spans_end_moving */
    bool fresh;   /* no change since then: the next one begins a span, however soon */
    atomic_bool appended; /* to the table since it was written to the disk */
    /* The span that is growing; for a reader: as of its last read. */
    _Atomic int64_t floor, begin, end;
    _Atomic int64_t synced; /* all records before this are on stable storage */
    atomic_uint active;
};

/* ---- the table ------------------------------------------------------------------------------- */

static int compare_begins(const void *a, const void *b)
{
    const struct wb_span *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int compare_lengths(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Joins neighbours with at most `gap` between them; the spans ascend. */
static void join(struct table *table, int64_t gap)
{
    unsigned kept = 0;

    for (unsigned i = 1; i < table->count; i++) {
        struct wb_span *last = &table->spans[kept], *next = &table->spans[i];

        if (next->begin - last->end <= gap)
            last->end = MAX(last->end, next->end);
        else
            table->spans[++kept] = *next;
    }
    table->count = MIN(table->count, kept + 1);
}

/* Joins half of the spans with their neighbours: those with the smallest gaps. */
static void make_room(struct table *table)
{
    int64_t gaps[WB_SPANS_MAX + 1];
    unsigned count = 0;

    qsort(table->spans, table->count, sizeof(table->spans[0]), compare_begins);
    join(table, 0);
    for (unsigned i = 1; i < table->count; i++)
        gaps[count++] = table->spans[i].begin - table->spans[i - 1].end;
    qsort(gaps, count, sizeof(gaps[0]), compare_lengths);
    if (count > WB_SPANS_MAX / 2)
        join(table, gaps[count / 2]);
}

static void drop_below_floor(struct table *table)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < table->count; i++)
        if (table->spans[i].end > table->head.floor)
            table->spans[kept++] = table->spans[i];
    table->count = kept;
}

static bool table_has(const struct table *table, int64_t ctime)
{
    if (ctime <= table->head.floor)
        return true;
    for (unsigned i = table->count; i-- > 0;)
        if (wb_ctime_end(ctime) >= table->spans[i].begin && ctime <= table->spans[i].end)
            return true;
    return false;
}

static int64_t table_before(const struct table *table, int64_t ctime)
{
    int64_t before = table->head.floor < ctime ? table->head.floor : 0;

    for (unsigned i = 0; i < table->count; i++)
        if (table->spans[i].end < ctime)
            before = MAX(before, table->spans[i].end);
    return before;
}

static int64_t table_after(const struct table *table, int64_t ctime)
{
    int64_t after = INT64_MAX;

    for (unsigned i = 0; i < table->count; i++)
        if (table->spans[i].begin > ctime)
            after = MIN(after, table->spans[i].begin);
    return after;
}

/* 0, -ENOENT, -EBADMSG or another -errno. */
static int read_table(int dir_fd, struct table *table)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_SPANS_NAME, O_RDONLY, 0);
    g_autofree uint8_t *data = g_try_malloc(FILE_MAX);
    size_t length = 0;
    int r = fd < 0 ? fd : !data ? -ENOMEM : wb_pread_full(fd, data, FILE_MAX, 0, &length);

    *table = (struct table){0};
    if (r == 0)
        r = length < WB_SPAN_SIZE ? -EBADMSG : wb_spans_decode_head(data, &table->head);
    /* Unused entries are zeros, which are not valid as spans. */
    for (size_t at = WB_SPAN_SIZE; r == 0 && at + WB_SPAN_SIZE <= length; at += WB_SPAN_SIZE)
        if (wb_span_decode(data + at, &table->spans[table->count]) == 0)
            table->count++;
    return r;
}

static int sync_bytes(int fd, const uint8_t *data, size_t length, uint64_t at)
{
    int r = wb_pwrite_full(fd, data, length, at);

    return r == 0 && fdatasync(fd) < 0 ? -errno : r;
}

/*
 * Writes in place: a full disk has room for that. A power cut leaves each span either new or old, or invalid. So the
 * head is written first if it claims more than the spans before it (a higher floor), and last if it says that less is
 * recorded: until then the next opening repeats the work.
 */
static int write_in_place(int fd, const uint8_t *data, int64_t floor)
{
    uint8_t head[WB_SPAN_SIZE];
    struct wb_spans_head there;
    size_t length = 0;
    int r = wb_pread_full(fd, head, sizeof(head), 0, &length);

    if (r < 0)
        return r;
    if (length == sizeof(head) && wb_spans_decode_head(head, &there) == 0 && floor > there.floor)
        r = sync_bytes(fd, data, WB_SPAN_SIZE, 0);
    if (r == 0)
        r = sync_bytes(fd, data + WB_SPAN_SIZE, FILE_MAX - WB_SPAN_SIZE, WB_SPAN_SIZE);
    return r < 0 ? r : sync_bytes(fd, data, WB_SPAN_SIZE, 0);
}

/* Atomic and durable. */
static int write_table(int dir_fd, const struct table *table)
{
    g_autofree uint8_t *data = g_try_malloc0(FILE_MAX);
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (!data)
        return -ENOMEM;
    wb_spans_encode_head(&table->head, data);
    for (unsigned i = 0; i < table->count; i++)
        wb_span_encode(table->spans[i], data + (1 + i) * WB_SPAN_SIZE);
    fd = wb_open_own(dir_fd, WB_SPANS_NAME, O_RDWR, 0);
    if (fd < 0 && fd != -ENOENT)
        return fd;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size != FILE_MAX)
        return wb_replace_file_no_cow(dir_fd, WB_SPANS_NAME, data, FILE_MAX, 0600);
    return write_in_place(fd, data, table->head.floor);
}

/* Into the page cache, which survives a kill. */
static int append_to_file(int dir_fd, const struct table *table)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_SPANS_NAME, O_WRONLY, 0);
    uint8_t data[WB_SPAN_SIZE];

    if (fd < 0)
        return fd;
    wb_span_encode(table->spans[table->count - 1], data);
    return wb_pwrite_full(fd, data, sizeof(data), (uint64_t)table->count * WB_SPAN_SIZE);
}

/* To the disk, though perhaps only to its cache: a sync of `inflight` follows. */
static int write_out(int dir_fd)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_SPANS_NAME, O_RDWR, 0);

    if (fd < 0)
        return fd;
    return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                         SYNC_FILE_RANGE_WAIT_AFTER) < 0 ? -errno : 0;
}

/* With the lock held, or without other threads. */
static void add(struct wb_store *store, struct wb_span span)
{
    struct table *table = &store->spans->table;
    bool full = table->count == WB_SPANS_MAX;
    int r;

    if (span.end <= table->head.floor)
        return;
    /* One without length would be an opening. */
    span.end = MAX(span.end, span.begin + 1);
    table->spans[table->count++] = span;
    if (full)
        make_room(table);
    r = full ? write_table(store->dir_fd, table) : append_to_file(store->dir_fd, table);
    store->spans->appended = true;
    /* Then recovery treats changes that it does not find as unseen: reads are refused, not wrong. The process that
     * closes the store writes it again. */
    if (r < 0)
        errno = 0;
}

/* Whether the store is on another disk: nothing orders its records and the changes of SRC in a power cut. */
static bool is_apart(const struct wb_store *store)
{
    struct stat st;

    return fstat(store->dir_fd, &st) < 0 || st.st_dev != store->src_dev;
}

/* ---- the span that is growing ------------------------------------------------------------------ */

static void write_word(struct wb_store *store, unsigned at, int64_t value)
{
    uint64_t data = htole64((uint64_t)value);

    if (wb_pwrite_full(store->inflight->fd, &data, sizeof(data), at * sizeof(uint64_t)) < 0)
        errno = 0;
}

#define TAIL_WORD(field) ((unsigned)((offsetof(struct wb_inflight_file, tail) + \
                                      offsetof(struct wb_inflight_tail, field)) / sizeof(uint64_t)))

/* With the lock held, or without other threads. The begin first: until it is stored, the pause before it must not count
 * as recorded. */
static void begin_at(struct wb_store *store, int64_t begin, int64_t end)
{
    struct wb_spans *spans = store->spans;
    const struct wb_inflight_word words[] = {{TAIL_WORD(begin), false, htole64((uint64_t)begin)},
                                             {TAIL_WORD(end), false, htole64((uint64_t)end)},
                                             {TAIL_WORD(synced), false, htole64((uint64_t)spans->synced)}};

    spans->begin = begin;
    spans->end = end;
    if (wb_inflight_store(store->inflight, words, 3))
        return;
    write_word(store, TAIL_WORD(begin), begin);
    write_word(store, TAIL_WORD(end), end);
    write_word(store, TAIL_WORD(synced), spans->synced);
}

/* Without the lock: the mapping is raised like the value here. If there is no mapping, under the lock. */
static void raise_word(struct wb_store *store, _Atomic int64_t *here, unsigned at, int64_t value)
{
    const struct wb_inflight_word word = {at, true, htole64((uint64_t)value)};
    int64_t there = *here;

    while (there < value && !atomic_compare_exchange_weak(here, &there, value))
        ;
    if (wb_inflight_store(store->inflight, &word, 1))
        return;
    pthread_mutex_lock(&store->spans->lock);
    write_word(store, at, *here);
    pthread_mutex_unlock(&store->spans->lock);
}

/* Closes the growing span and begins another. With the lock held. */
static void begin_another(struct wb_store *store, int64_t begin)
{
    add(store, (struct wb_span){store->spans->begin, store->spans->end});
    begin_at(store, begin, begin);
}

/* If another thread is active: the span that is growing continues. */
static bool join_others(struct wb_spans *spans)
{
    unsigned active = spans->active;

    while (active > 0)
        if (atomic_compare_exchange_weak(&spans->active, &active, active + 1))
            return true;
    return false;
}

/* Continues the growing span, or begins another after a pause. */
static void enter_span(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    int64_t now;

    /* A thread becomes active only after its span exists: changes during the pause belong to no recorder. */
    pthread_mutex_lock(&spans->lock);
    /* A write to bare SRC a moment ago may have the ctime of this tick. */
    now = spans->fresh ? wb_ctime_next_tick() : wb_ctime_clock();
    if (spans->active == 0 && (spans->fresh || now > spans->end + PAUSE || now < spans->begin)) {
        begin_another(store, now);
        spans->fresh = false;
    }
    atomic_fetch_add(&spans->active, 1);
    pthread_mutex_unlock(&spans->lock);
}

void wb_spans_enter(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    int64_t now;

    if (!spans || !spans->writes)
        return;
    if (!join_others(spans))
        enter_span(store);
    /* If the process is killed amid the change, the change counts as recorded unless it came later than KILL_SLACK. */
    now = wb_ctime_clock();
    if (now > spans->end)
        raise_word(store, &spans->end, TAIL_WORD(end), now);
}

void wb_spans_reach(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    int64_t now;

    if (!spans || !spans->writes || spans->active == 0)
        return;
    now = wb_ctime_latest();
    /* The clock was set back during a change. */
    if (now < spans->begin) {
        pthread_mutex_lock(&spans->lock);
        if (now < spans->begin)
            begin_another(store, now - WB_WHEN_SECOND);
        pthread_mutex_unlock(&spans->lock);
    }
    raise_word(store, &spans->end, TAIL_WORD(end), now);
}

void wb_spans_leave(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;

    if (!spans || !spans->writes)
        return;
    wb_spans_reach(store);
    /* Last: a thread that finds none active reads the end after this. */
    atomic_fetch_sub(&spans->active, 1);
}

void wb_spans_end_opening(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;

    if (!spans || !spans->opening)
        return;
    spans->opening = false;
    pthread_mutex_lock(&spans->lock);
    begin_at(store, spans->begin, wb_ctime_latest());
    pthread_mutex_unlock(&spans->lock);
    atomic_fetch_sub(&spans->active, 1);
}

void wb_spans_begin_fresh(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;

    if (!spans || !spans->writes)
        return;
    pthread_mutex_lock(&spans->lock);
    spans->fresh = true;
    wb_ctime_next_tick();
    pthread_mutex_unlock(&spans->lock);
}

int64_t wb_spans_begin_sync(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    /* A change in this same tick may be made after this. */
    int64_t until = wb_ctime_clock() - 1;
    bool written = false;

    if (!spans || !spans->writes)
        return 0;
    pthread_mutex_lock(&spans->lock);
    /* What follows is not in the table yet. Records of a store elsewhere are known to be on the disk up to now. */
    if (!is_apart(store))
        until = MIN(until, spans->begin);
    written = atomic_exchange(&spans->appended, false);
    pthread_mutex_unlock(&spans->lock);
    if (written && write_out(store->dir_fd) < 0) {
        spans->appended = true;
        return 0;
    }
    return until;
}

void wb_spans_synced(struct wb_store *store, int64_t until)
{
    struct wb_spans *spans = store->spans;

    if (spans && spans->writes)
        raise_word(store, &spans->synced, TAIL_WORD(synced), until);
}

/* ---- opening ----------------------------------------------------------------------------------- */

/* After that moment records of existing changes may be lost. */
static void forget_later(struct table *table, int64_t synced)
{
    unsigned kept = 0;

    table->head.floor = MIN(table->head.floor, synced);
    table->head.from = 0; /* marks may be lost as well */
    for (unsigned i = 0; i < table->count; i++) {
        struct wb_span span = {table->spans[i].begin, MIN(table->spans[i].end, synced)};

        if (span.begin <= span.end)
            table->spans[kept++] = span;
    }
    table->count = kept;
}

/*
 * Until when changes may have been recorded before a power cut, if they were until `known`: until the machine booted,
 * or now if only a file system failed. A later change than the mark of the clock was not synced by anybody.
 */
static int64_t end_of_lost_time(int64_t known, int64_t mark)
{
    struct timespec up;
    int64_t now = wb_ctime_latest(), boot;

    clock_gettime(CLOCK_BOOTTIME, &up);
    boot = now - (up.tv_sec * WB_WHEN_SECOND + up.tv_nsec);
    return MIN(boot > known ? boot : now, MAX(mark, known));
}

/* The newest opening that is in the table, and with it everything from before it; 0: none. */
static int64_t newest_opening(const struct table *table)
{
    int64_t newest = 0;

    for (unsigned i = 0; i < table->count; i++)
        if (table->spans[i].begin == table->spans[i].end)
            newest = MAX(newest, table->spans[i].begin);
    return newest;
}

/* The time in which spans may have been lost in a power cut: all older ones are in the table. */
static struct wb_span find_lost_time(const struct table *table, const struct wb_inflight_file *file)
{
    int64_t begin = wb_inflight_clock(file->tail.begin), end = wb_inflight_clock(file->tail.end);
    int64_t opening = newest_opening(table), from = MAX(wb_inflight_clock(file->tail.synced), opening);

    /* An opening after the tail was stored has put it into the table. */
    if (begin < opening)
        begin = end = 0;
    if (from == 0)
        from = table_before(table, INT64_MAX);
    if (begin > 0)
        from = MIN(from, begin);
    /* What seems to be a power cut may have been a kill. */
    end = end == 0 || end == OPEN_END ? from : MAX(from, end + KILL_SLACK);
    return (struct wb_span){from, end_of_lost_time(end, wb_inflight_clock(file->head.mark))};
}

/*
 * Uses the tail of `inflight` that the last writer left, if it did not close the store. `lost_power`: the power failed
 * since the table was last written as a whole.
 */
static void take_tail(const struct wb_store *store, struct table *table, const struct wb_inflight_file *file,
                      bool lost_power)
{
    int64_t begin = wb_inflight_clock(file->tail.begin), end = wb_inflight_clock(file->tail.end);
    int64_t synced = wb_inflight_clock(file->tail.synced);
    struct wb_span left = {begin, end == OPEN_END ? wb_ctime_latest() : MAX(begin, end) + KILL_SLACK};

    /* An opening that ended before it came to the head of `inflight`, hence before any change. */
    if (lost_power && table->head.cut > wb_inflight_clock(file->head.cut))
        return;
    if (lost_power && synced > 0 && is_apart(store)) {
        forget_later(table, synced);
        left = (struct wb_span){table_before(table, INT64_MAX), begin > 0 ? MIN(end, synced) : 0};
    } else if (lost_power) {
        left = find_lost_time(table, file);
    }
    if (left.begin <= 0 || left.begin > left.end)
        return;
    if (table->count == WB_SPANS_MAX)
        make_room(table);
    table->spans[table->count++] = left;
}

/*
 * `end`: when the store was opened, if the power failed since the table was last written as a whole; else 0. With the
 * store on another disk, everything after *synced* counts as lost, with or without a slot. 1: found some that are not
 * in the file, 0 or -errno.
 */
static int read_lost_slots(const struct wb_store *store, int64_t end)
{
    struct wb_spans *spans = store->spans;
    int64_t since, last = 0;
    int r = wb_lost_slots_read(store->dir_fd, &spans->slots, &since);

    wb_lost_slots_forget(&spans->slots, spans->table.head.floor);
    if (r == 0 && since < end && !is_apart(store)) {
        wb_lost_slots_add(&spans->slots, (struct wb_span){since, end});
        r = 1;
    }
    for (unsigned i = 0; i < spans->slots.count; i++)
        last = MAX(last, spans->slots.spans[i].end);
    spans->slots_end = last;
    return r;
}

static int read_tail(int dir_fd, struct wb_inflight_file *file)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    size_t length = 0;

    *file = (struct wb_inflight_file){0};
    return fd < 0 ? fd : wb_pread_full(fd, file, sizeof(*file), 0, &length);
}

/*
 * The process that opens the store may uncover SRC next (an ordinary user's dead mount is detached, to be mounted
 * again): writes to it must come after the time that counts as the dead daemon's.
 */
static void outwait_dead(const struct wb_inflight_tail *tail)
{
    int64_t begin = wb_inflight_clock(tail->begin), end = wb_inflight_clock(tail->end);
    int64_t until = MAX(begin, end) + KILL_SLACK;

    if (begin <= 0 || end == OPEN_END || until > wb_ctime_clock() + 2 * KILL_SLACK) /* or the clock was set back */
        return;
    while (wb_ctime_clock() <= until)
        wb_ctime_next_tick();
}

/*
 * The second since which the ctimes of objects show all renames by other processes: the one in the table, else the
 * next second. 0: on this file system a rename may leave the ctime as it is.
 */
static uint32_t marks_from(const struct wb_store *store, const struct table *table, int64_t begin)
{
    /* A new store has no records from before, which a rename could contradict: the present second is early enough. */
    int64_t second = begin / WB_WHEN_SECOND + !store->is_new;

    if (store->exchange_hides || second > UINT32_MAX)
        return 0;
    return table->head.from > 0 ? table->head.from : (uint32_t)second;
}

static int open_writer(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    struct table *table = &spans->table;
    struct wb_inflight_file file;
    int64_t begin = store->opened > 0 ? store->opened : wb_ctime_next_tick();
    int r = read_table(store->dir_fd, table), tail = read_tail(store->dir_fd, &file);
    bool lost_power, missing = r == -ENOENT;

    if (r == -ENOENT || r == -EBADMSG) {
        /* The time up to now is treated as before spans existed: changes by others are not detected. */
        spans->lost = !store->is_new && !store->raised;
        *table = (struct table){.head = {.floor = begin, .cut = store->stamps.cut}};
        r = 0;
    }
    if (r < 0 || tail < 0)
        return r < 0 ? r : tail;
    outwait_dead(&file.tail);
    lost_power = table->head.cut != store->stamps.cut;
    take_tail(store, table, &file, lost_power);
    table->head.cut = store->stamps.cut;
    table->head.from = marks_from(store, table, begin);
    r = read_lost_slots(store, lost_power ? begin : 0);
    if (r > 0)
        r = wb_lost_slots_write(store->dir_fd, &spans->slots);
    if (r < 0)
        return r;
    /* A mark that a power cut leaves intact: times before this opening are separate from those after it. */
    if (table->count == WB_SPANS_MAX)
        make_room(table);
    table->spans[table->count++] = (struct wb_span){begin, begin};
    /* Atomic and durable, before the tail that it was read from is overwritten. */
    r = write_table(store->dir_fd, table);
    /* There is no room for a first table. Until there is, the store works as before spans existed. */
    if (missing && (r == -ENOSPC || r == -EDQUOT)) {
        store->spans = NULL;
        pthread_mutex_destroy(&spans->lock);
        g_free(spans);
        return 0;
    }
    if (r < 0)
        return r;
    spans->floor = table->head.floor;
    spans->begin = begin;
    /* After a kill only records that were synced before are on stable storage. */
    spans->synced = file.tail.begin != 0 && !lost_power ? wb_inflight_clock(file.tail.synced) : begin;
    return 0;
}

void wb_spans_begin(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;

    if (!spans)
        return;
    spans->writes = true;
    /* Without that, it may change anything at any time. */
    spans->opening = !store->in_spans;
    spans->active = spans->opening;
    begin_at(store, spans->begin, spans->opening ? OPEN_END : wb_ctime_latest());
}

/* Reads as much as the writer has written. The tail first: its content may be in the table by then. With the lock
 * held. */
static void look(const struct wb_store *store)
{
    struct wb_spans *spans = store->spans;
    struct wb_inflight_file file;
    struct wb_log_mtimes stamps;
    bool held = wb_store_is_held(store), lost_power = false;
    int tail = read_tail(store->dir_fd, &file), r = read_table(store->dir_fd, &spans->table);

    spans->absent = r == -ENOENT;
    spans->begin = spans->end = 0;
    if (r < 0 || tail < 0)
        spans->table = (struct table){0};
    else if (held) {
        spans->begin = wb_inflight_clock(file.tail.begin);
        spans->end = wb_inflight_clock(file.tail.end);
    } else {
        wb_inflight_peek_log_mtimes(store->dir_fd, held, &stamps);
        lost_power = stamps.cut != spans->table.head.cut;
        take_tail(store, &spans->table, &file, lost_power);
    }
    /* Valid until a process opens the store for writing. */
    if (read_lost_slots(store, lost_power ? WB_CLOCK_MAX : 0) < 0)
        errno = 0;
    spans->floor = spans->table.head.floor;
}

int wb_spans_open(struct wb_store *store)
{
    struct wb_spans *spans = g_try_new0(struct wb_spans, 1);
    int r = 0;

    if (!spans)
        return -ENOMEM;
    pthread_mutex_init(&spans->lock, NULL);
    store->spans = spans;
    if (store->writable)
        r = open_writer(store);
    else {
        pthread_mutex_lock(&spans->lock);
        look(store);
        pthread_mutex_unlock(&spans->lock);
    }
    return r;
}

struct wb_spans *wb_spans_free(struct wb_store *store)
{
    struct wb_spans *spans = store->spans;

    if (!spans)
        return NULL;
    if (spans->writes && store->inflight) {
        wb_spans_end_opening(store);
        add(store, (struct wb_span){spans->begin, spans->end});
        spans->synced = wb_ctime_clock();
        if (write_table(store->dir_fd, &spans->table) == 0)
            begin_at(store, 0, 0);
    }
    pthread_mutex_destroy(&spans->lock);
    g_free(spans);
    return NULL;
}

int wb_spans_follow(struct wb_store *store)
{
    int r;

    if (!store->spans)
        return 0;
    pthread_mutex_lock(&store->spans->lock);
    r = write_table(store->dir_fd, &store->spans->table);
    begin_at(store, store->spans->begin, store->spans->opening || store->spans->moving ? OPEN_END : wb_ctime_latest());
    pthread_mutex_unlock(&store->spans->lock);
    return r;
}

int wb_spans_copy(const struct wb_store *store, int dir_fd)
{
    int r;

    if (!store->spans || !store->spans->writes)
        return 0;
    pthread_mutex_lock(&store->spans->lock);
    r = write_table(dir_fd, &store->spans->table);
    pthread_mutex_unlock(&store->spans->lock);
    return r;
}

void wb_spans_begin_moving(struct wb_store *store)
{
    if (!store->spans || !store->spans->writes)
        return;
    wb_spans_enter(store);
    pthread_mutex_lock(&store->spans->lock);
    store->spans->moving = true;
    begin_at(store, store->spans->begin, OPEN_END);
    pthread_mutex_unlock(&store->spans->lock);
}

void wb_spans_end_moving(struct wb_store *store)
{
    if (!store->spans || !store->spans->writes)
        return;
    pthread_mutex_lock(&store->spans->lock);
    store->spans->moving = false;
    begin_at(store, store->spans->begin, wb_ctime_latest());
    pthread_mutex_unlock(&store->spans->lock);
    wb_spans_leave(store);
}

void wb_spans_abandon(struct wb_store *store)
{
    if (store->spans)
        store->spans->writes = false;
}

/* For a store whose file has a tail; others get their table at the next opening. `change`: 1, 0 (it is as it was) or
 * -errno. */
static int change_tail(int dir_fd, int (*change)(int dir_fd, struct wb_inflight_tail *tail))
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDWR, 0);
    struct wb_inflight_tail tail;
    size_t length = 0;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_full(fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail), &length);
    if (r < 0 || length < sizeof(tail))
        return r;
    r = change(dir_fd, &tail);
    return r <= 0 ? r : wb_pwrite_full(fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail));
}

static int open_end(int dir_fd, struct wb_inflight_tail *tail)
{
    (void)dir_fd;
    if (tail->begin == 0)
        tail->begin = htole64((uint64_t)wb_ctime_clock());
    tail->end = htole64((uint64_t)OPEN_END);
    return 1;
}

/* Into the table, so that another span can begin. */
static int close_end(int dir_fd, struct wb_inflight_tail *tail)
{
    struct wb_span span = {wb_inflight_clock(tail->begin), wb_ctime_latest()};
    struct table table;
    int r;

    if (wb_inflight_clock(tail->end) != OPEN_END)
        return 0;
    tail->end = htole64((uint64_t)span.end);
    r = read_table(dir_fd, &table);
    if (r < 0 || span.begin > span.end)
        return 1;
    if (table.count == WB_SPANS_MAX)
        make_room(&table);
    table.spans[table.count++] = span;
    if (write_table(dir_fd, &table) == 0)
        tail->begin = tail->end = 0;
    return 1;
}

int wb_spans_begin_offline(int dir_fd)
{
    return change_tail(dir_fd, open_end);
}

int wb_spans_end_offline(int dir_fd)
{
    return change_tail(dir_fd, close_end);
}

int wb_spans_begin_anew(int dir_fd)
{
    struct table old, table = {.head = {.floor = wb_ctime_latest()}};

    /* A power cut that the table does not account for concerns times before the floor. */
    if (read_table(dir_fd, &old) == 0)
        table.head.cut = old.head.cut;

    return write_table(dir_fd, &table);
}

/* ---- queries ----------------------------------------------------------------------------------- */

static bool is_in(const struct wb_spans *spans, int64_t ctime)
{
    return table_has(&spans->table, ctime) ||
           (spans->begin > 0 && wb_ctime_end(ctime) >= spans->begin && (spans->active > 0 || ctime <= spans->end));
}

static bool writer_has(struct wb_spans *spans, int64_t ctime)
{
    int64_t begin = spans->begin;
    bool found = ctime <= spans->floor ||
                 (begin > 0 && wb_ctime_end(ctime) >= begin && (spans->active > 0 || ctime <= spans->end));

    /* An active thread is in the span that existed before it became active: so all of that time belongs to one span. */
    if (found && spans->begin == begin)
        return true;
    pthread_mutex_lock(&spans->lock);
    found = is_in(spans, ctime);
    pthread_mutex_unlock(&spans->lock);
    return found;
}

/* A reader does not know whether a change is under way: it waits until the change has ended and is written. Without a
 * writer, none is. */
#define LOOKS 50
static bool reader_has(const struct wb_store *store, int64_t ctime)
{
    static const struct timespec pause = {.tv_nsec = 1000 * 1000};
    struct wb_spans *spans = store->spans;
    bool found;

    pthread_mutex_lock(&spans->lock);
    found = !spans->absent && is_in(spans, ctime);
    for (int i = 0; !found && i < LOOKS; i++) {
        look(store);
        found = spans->absent || is_in(spans, ctime);
        if (found || wb_ctime_end(ctime) < wb_ctime_latest() - WB_WHEN_SECOND)
            break;
        if (i == 0 && !wb_store_is_held(store)) {
            look(store); /* it may just have ended */
            found = spans->absent || is_in(spans, ctime);
            break;
        }
        nanosleep(&pause, NULL);
    }
    pthread_mutex_unlock(&spans->lock);
    return found;
}

/* False: no slot of a file with that ctime was lost. */
static bool find_lost(const struct wb_store *store, int64_t ctime, bool is_dir, struct wb_span *ret)
{
    struct wb_spans *spans = store->spans;
    const struct wb_span *found;

    if (!spans || is_dir || ctime >= spans->slots_end)
        return false;
    pthread_mutex_lock(&spans->lock);
    found = wb_lost_slots_find(&spans->slots, ctime);
    if (found)
        *ret = *found;
    pthread_mutex_unlock(&spans->lock);
    return found;
}

bool wb_spans_lost_slot(const struct wb_store *store, int64_t ctime, bool is_dir)
{
    struct wb_span lost;

    return find_lost(store, ctime, is_dir, &lost);
}

bool wb_spans_has(const struct wb_store *store, int64_t ctime, bool is_dir)
{
    struct wb_spans *spans = store->spans;

    if (wb_spans_lost_slot(store, ctime, is_dir))
        return false;
    /* Nothing is known of a future time: some clock was wrong. */
    return !spans || (spans->writes ? writer_has(spans, ctime) : reader_has(store, ctime)) ||
           ctime > wb_ctime_latest() + WB_WHEN_SECOND;
}

int64_t wb_spans_before(const struct wb_store *store, int64_t ctime, bool is_dir)
{
    struct wb_spans *spans = store->spans;
    struct wb_span lost;
    int64_t before;

    if (find_lost(store, ctime, is_dir, &lost))
        return lost.begin;
    pthread_mutex_lock(&spans->lock);
    before = table_before(&spans->table, ctime);
    if (spans->end < ctime)
        before = MAX(before, spans->end);
    pthread_mutex_unlock(&spans->lock);
    return before;
}

/* Spans may overlap and are in no order. */
static int64_t table_pause(const struct table *table, int64_t seen)
{
    int64_t pause = MAX(seen, table->head.floor), before;

    do {
        before = pause;
        for (unsigned i = 0; i < table->count; i++)
            if (table->spans[i].begin <= pause)
                pause = MAX(pause, table->spans[i].end);
    } while (pause > before);
    return pause;
}

int64_t wb_spans_pause(const struct wb_store *store, int64_t seen)
{
    struct wb_spans *spans = store->spans;
    int64_t pause;

    pthread_mutex_lock(&spans->lock);
    pause = table_pause(&spans->table, seen);
    if (spans->begin > 0 && spans->begin <= pause)
        pause = MAX(pause, spans->end);
    pthread_mutex_unlock(&spans->lock);
    return pause;
}

int64_t wb_spans_after(const struct wb_store *store, int64_t ctime, bool is_dir)
{
    struct wb_spans *spans = store->spans;
    struct wb_span lost;
    int64_t after;

    if (find_lost(store, ctime, is_dir, &lost))
        return lost.end;
    pthread_mutex_lock(&spans->lock);
    after = table_after(&spans->table, ctime);
    if (spans->begin > ctime)
        after = MIN(after, spans->begin);
    pthread_mutex_unlock(&spans->lock);
    return after;
}

void wb_spans_extend(struct wb_store *store, int64_t when, int64_t ctime)
{
    struct wb_spans *spans = store->spans;

    if (!spans || !spans->writes || wb_ctime_end(ctime) < when - PAUSE || ctime > when + CHANGE_MAX ||
        writer_has(spans, ctime))
        return;
    pthread_mutex_lock(&spans->lock);
    /* Nothing from `when` on: others may have changed other objects since. */
    add(store, (struct wb_span){ctime - 1, ctime});
    pthread_mutex_unlock(&spans->lock);
}

int wb_spans_raise_floor(struct wb_store *store, int64_t floor)
{
    struct wb_spans *spans = store->spans;
    int r;

    if (!spans)
        return 0;
    pthread_mutex_lock(&spans->lock);
    spans->table.head.floor = MAX(spans->table.head.floor, floor);
    spans->floor = spans->table.head.floor;
    drop_below_floor(&spans->table);
    r = write_table(store->dir_fd, &spans->table);
    /* The process that reads the file next removes it there. */
    wb_lost_slots_forget(&spans->slots, floor);
    pthread_mutex_unlock(&spans->lock);
    return r;
}

struct hole {
    int64_t before, after; /* wb_spans_before, wb_spans_after */
    bool lost_slot;
};

/* The clock of records may be ahead: the GAP of a later change would begin later. */
static bool covers(const struct wb_record *record, const struct hole *hole)
{
    unsigned reason = record->type == WB_REC_GAP ? record->gap.reason : 0;

    return reason == WB_GAP_EXTERNAL || ((reason == WB_GAP_UNSEEN || (hole->lost_slot && reason == WB_GAP_POWER)) &&
                                         record->gap.since >= hole->before);
}

/* The same by its end, if that is the begin of a span: only if the record before it is older. */
static bool may_cover(const struct wb_record *record, const struct hole *hole)
{
    return record->type == WB_REC_GAP && record->gap.reason == WB_GAP_UNSEEN && record->gap.until >= hole->after &&
           record->gap.until < record->when;
}

int wb_spans_is_marked(const struct wb_store *store, int log_fd, int64_t ctime, bool is_dir)
{
    const struct hole hole = {wb_spans_before(store, ctime, is_dir), wb_spans_after(store, ctime, is_dir),
                              wb_spans_lost_slot(store, ctime, is_dir)};
    struct wb_log_reader reader;
    struct wb_record record;
    const int64_t latest = wb_ctime_end(ctime);
    int64_t until = 0; /* of a GAP that is of this change if the record before the GAP is older */
    bool marked = false;
    int r = wb_log_reader_init(&reader, log_fd);

    if (r < 0)
        return r;
    /* The floor may have risen above it meanwhile: the thread that raised it has marked it. */
    marked = wb_spans_has(store, ctime, is_dir);
    while (!marked && (r = wb_log_reader_prev(&reader, &record)) == 0 && (record.when > latest || until > 0)) {
        if (record.type == WB_REC_PLACE)
            continue;
        marked = until > record.when || (record.when > latest && covers(&record, &hole));
        until = record.when > latest && may_cover(&record, &hole) ? record.gap.until : 0;
    }
    marked |= r == WB_END && until > 0;
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : marked;
}

bool wb_spans_was_lost(const struct wb_store *store)
{
    return store->spans && store->spans->lost;
}
