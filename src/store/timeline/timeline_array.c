/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/timeline/timeline_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define ENTRY ((uint64_t)WB_TIMES_ENTRY_SIZE)
#define BATCH 512

int wb_timeline_temporary(int dir_fd)
{
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = open(g_get_tmp_dir(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        fd = memfd_create("timeline", MFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int wb_array_open(struct wb_array *array, int dir_fd, const char *name, bool write)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, name, write ? O_RDWR : O_RDONLY, 0);
    uint8_t head[WB_TIMES_ENTRY_SIZE];
    struct wb_times_entry last = {0};
    struct stat st;
    uint64_t count;
    int r;

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    r = wb_pread_exact(fd, head, sizeof(head), 0);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    r = wb_times_check_head(head);
    if (r < 0)
        return r;
    count = (uint64_t)st.st_size / ENTRY - 1;
    if (count > 0) {
        r = wb_array_read(fd, count - 1, &last, 1);
        if (r < 0)
            return r;
        if (wb_object_is_none(last.object))
            return -EBADMSG;
    }
    *array = (struct wb_array){wb_steal_fd(&fd), count, last.when};
    return 0;
}

int wb_array_create(struct wb_array *array, int dir_fd, const char *name)
{
    _cleanup_close_ int fd = -1;
    uint8_t head[WB_TIMES_ENTRY_SIZE];
    int r;

    if (name)
        fd = wb_open_own(dir_fd, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    else
        fd = wb_timeline_temporary(dir_fd);
    if (fd < 0)
        return fd;
    wb_times_encode_head(head);
    r = wb_pwrite_full(fd, head, sizeof(head), 0);
    if (r < 0)
        return r;
    *array = (struct wb_array){.fd = wb_steal_fd(&fd)};
    return 0;
}

void wb_array_close(struct wb_array *array)
{
    wb_close_fd(&array->fd);
    *array = (struct wb_array)WB_ARRAY_INIT;
}

int wb_array_append(struct wb_array *array, const struct wb_times_entry *entries, size_t count)
{
    uint8_t data[BATCH * WB_TIMES_ENTRY_SIZE];
    uint64_t offset = (array->count + 1) * ENTRY;
    int r;

    while (count > 0) {
        size_t n = MIN(count, BATCH);

        for (size_t i = 0; i < n; i++)
            wb_times_encode(&entries[i], data + i * ENTRY);
        r = wb_pwrite_full(array->fd, data, n * ENTRY, offset);
        if (r < 0) {
            wb_array_cut(array, array->count, array->last);
            return r;
        }
        array->count += n;
        array->last = entries[n - 1].when;
        offset += n * ENTRY;
        entries += n;
        count -= n;
    }
    return 0;
}

int wb_array_cut(struct wb_array *array, uint64_t count, int64_t last)
{
    array->count = count;
    array->last = last;
    return ftruncate(array->fd, (off_t)((count + 1) * ENTRY)) < 0 ? -errno : 0;
}

int wb_array_read(int fd, uint64_t index, struct wb_times_entry *entries, size_t count)
{
    uint8_t data[BATCH * WB_TIMES_ENTRY_SIZE];
    int r;

    while (count > 0) {
        size_t n = MIN(count, BATCH);

        r = wb_pread_exact(fd, data, n * ENTRY, (index + 1) * ENTRY);
        if (r < 0)
            return r == -ENODATA ? -EBADMSG : r;
        for (size_t i = 0; i < n; i++)
            if (wb_times_decode(data + i * ENTRY, &entries[i]) < 0)
                entries[i] = (struct wb_times_entry){0};
        index += n;
        entries += n;
        count -= n;
    }
    return 0;
}

/* ---- queries --------------------------------------------------------------------------------------- */

/* The `when` of an entry; if it is damaged, of the next valid one below `end`, INT64_MAX if there is none. */
static int when_near(int fd, uint64_t index, uint64_t end, int64_t *ret, uint64_t *ret_index)
{
    struct wb_times_entry entry;

    for (; index < end; index++) {
        int r = wb_array_read(fd, index, &entry, 1);

        if (r < 0)
            return r;
        if (!wb_object_is_none(entry.object)) {
            *ret = entry.when;
            *ret_index = index;
            return 0;
        }
    }
    *ret = INT64_MAX;
    *ret_index = end;
    return 0;
}

static int find(int fd, uint64_t count, int64_t when, uint64_t *ret)
{
    uint64_t low = 0, high = count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2, at;
        int64_t there;
        int r = when_near(fd, middle, high, &there, &at);

        if (r < 0)
            return r;
        if (there < when)
            low = at + 1;
        else
            high = middle;
    }
    *ret = low;
    return 0;
}

int wb_times_find(const struct wb_times *times, int64_t when, uint64_t *ret)
{
    return find(times->fd, times->count, when, ret);
}

int wb_times_read(const struct wb_times *times, uint64_t index, struct wb_times_entry *entries, size_t count)
{
    return wb_array_read(times->fd, index, entries, count);
}

int wb_times_move(const struct wb_times *times, struct wb_object dir, int64_t until, struct wb_times_entry *ret)
{
    struct wb_times_entry entries[BATCH];
    uint64_t end;
    int r = until == INT64_MAX ? 0 : find(times->moves_fd, times->moves_count, until + 1, &end);

    if (r < 0)
        return r;
    if (until == INT64_MAX)
        end = times->moves_count;
    while (end > 0) {
        uint64_t begin = end > BATCH ? end - BATCH : 0;

        r = wb_array_read(times->moves_fd, begin, entries, end - begin);
        if (r < 0)
            return r;
        for (uint64_t i = end - begin; i-- > 0;) {
            if (wb_object_equal(entries[i].object, dir)) {
                *ret = entries[i];
                return 0;
            }
        }
        end = begin;
    }
    return WB_ABSENT;
}
