/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/inflight/lost_slots.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log.h"
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
        if (ctime >= slots->spans[i].begin && ctime < slots->spans[i].end)
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
