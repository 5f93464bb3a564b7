/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file that was replaced by one with the same content, as many programs save it and many tools copy it: where the
 * file system can share extents, it takes no room of its own then. The kernel compares before it shares, with both
 * files locked for as long; that is short, since both were just read here.
 */
#include "maintain/bundle/bundle.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/inflight/spans.h"
#include "store/object/locate.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

/* Smaller ones are packed. */
#define WORTH (64u << 10)
#define STEP (256u << 10)
#define EXTENTS 16u

/* ---- whether they are one already ------------------------------------------------------------- */

struct map {
    struct fiemap head;
    struct fiemap_extent extents[EXTENTS];
};

static bool get_map(int fd, struct map *map)
{
    memset(map, 0, sizeof(*map));
    map->head.fm_length = FIEMAP_MAX_OFFSET;
    map->head.fm_extent_count = EXTENTS;
    return ioctl(fd, FS_IOC_FIEMAP, map) == 0 && map->head.fm_mapped_extents > 0;
}

/* As far as the first extents tell. */
static bool are_one(int a_fd, int b_fd)
{
    struct map a, b;

    if (!get_map(a_fd, &a) || !get_map(b_fd, &b) || a.head.fm_mapped_extents != b.head.fm_mapped_extents)
        return false;
    for (unsigned i = 0; i < a.head.fm_mapped_extents; i++)
        if (!(a.extents[i].fe_flags & FIEMAP_EXTENT_SHARED) || a.extents[i].fe_physical != b.extents[i].fe_physical ||
            a.extents[i].fe_logical != b.extents[i].fe_logical)
            return false;
    return true;
}

/* ---- sharing ----------------------------------------------------------------------------------- */


/* More than 0: so many bytes; 0: they differ; or -errno. */
static int64_t share_step(int from, int to, uint64_t offset, size_t length, uint8_t *a, uint8_t *b)
{
    uint64_t data[(sizeof(struct file_dedupe_range) + sizeof(struct file_dedupe_range_info)) / 8] = {0};
    struct file_dedupe_range *range = (void *)data;
    int r = wb_pread_exact(from, a, length, offset);

    if (r == 0)
        r = wb_pread_exact(to, b, length, offset);
    if (r < 0)
        return r;
    if (memcmp(a, b, length) != 0)
        return 0;
    range->src_offset = offset;
    range->src_length = length;
    range->dest_count = 1;
    range->info[0].dest_fd = to;
    range->info[0].dest_offset = offset;
    if (ioctl(from, FIDEDUPERANGE, range) < 0)
        return -errno;
    if (range->info[0].status < 0)
        return range->info[0].status;
    return range->info[0].status == FILE_DEDUPE_RANGE_SAME ? (int64_t)range->info[0].bytes_deduped : 0;
}

static int share_all(const struct wb_bundle_share *share, int from, int to, uint64_t size)
{
    g_autofree uint8_t *a = g_try_malloc(STEP), *b = g_try_malloc(STEP);
    uint64_t offset = 0;

    if (!a || !b)
        return -ENOMEM;
    while (offset < size) {
        int64_t step;

        if (share->stop(share->stop_data))
            return -ECANCELED;
        step = share_step(from, to, offset, (size_t)MIN(size - offset, (uint64_t)STEP), a, b);
        if (step <= 0)
            return (int)step;
        offset += (uint64_t)step;
    }
    return 1;
}

/* 1: the body is one with the present; 0: it is not. */
static int share_body(const struct wb_bundle_share *share, int present, const struct stat *st,
                      const struct wb_bundle_body *body)
{
    WB_IN_SPAN(share->gather->store);
    _cleanup_close_ int fd = -1;
    struct wb_object found;
    struct stat is;

    if (body->bundle != 0 || body->member.size != (uint64_t)st->st_size || body->taken == 0)
        return 0;
    fd = wb_grave_open(share->gather->store, body->member.object, false, O_RDWR);
    if (fd < 0 || wb_object_stat(share->gather->store, fd, NULL, &found, NULL, &is) < 0 ||
        !wb_object_equal(found, body->member.object) || is.st_size != st->st_size || is.st_dev != st->st_dev)
        return 0;
    return are_one(present, fd) ? 1 : share_all(share, present, fd, body->member.size);
}

/* What has the row's name now: WB_ABSENT: nothing that could be shared with. */
static int open_present(int dir_fd, const char *name, struct stat *st)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode) || st->st_size < (off_t)WORTH))
        wb_close_fd(&fd);
    return fd;
}

int wb_bundle_share(const struct wb_bundle_share *share)
{
    _cleanup_close_ int dir_fd = -1;
    int r = 0;

    if (wb_store_locate_dir(share->gather->store, share->gather->dir, &dir_fd) != 0)
        return 0;
    for (guint i = 0; r >= 0 && i < share->gather->rows->len; i++) {
        struct wb_bundle_row *row = share->gather->rows->pdata[i];
        _cleanup_close_ int present = -1;
        struct stat st;

        if (row->fresh > 0)
            present = open_present(dir_fd, row->name, &st);
        for (guint j = 0; r >= 0 && present >= 0 && j < row->bodies->len; j++) {
            struct wb_bundle_body *body = &g_array_index(row->bodies, struct wb_bundle_body, j);

            r = share_body(share, present, &st, body);
            body->shared = r > 0;
            row->fresh -= body->shared;
        }
    }
    /* A file system that cannot. */
    return r == -ECANCELED ? r : 0;
}
