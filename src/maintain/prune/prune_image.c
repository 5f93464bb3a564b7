/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Punches out the bytes of pruned records in an image, except for blocks in which a remaining record has bytes. This is
 * done before the records are replaced, since only they show where the bytes are. No process shows them any more by
 * then: the horizon is published. Bytes that no record refers to are left alone, as a record may be about to refer to
 * them.
 */
#include "maintain/prune/prune_parts.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Of an image that is longer, or of more extents, the rest stays. */
#define IMAGE_MAX ((uint64_t)1 << 39)
#define EXTENTS_MAX 250000u

void wb_prune_image_init(struct wb_prune_image *image)
{
    *image = (struct wb_prune_image){.gone = g_array_new(FALSE, FALSE, sizeof(struct wb_extent)),
                                     .needed = g_byte_array_new()};
}

void wb_prune_image_deinit(struct wb_prune_image *image)
{
    g_array_unref(image->gone);
    g_byte_array_unref(image->needed);
}

static bool is_needed(const struct wb_prune_image *image, uint64_t block)
{
    return block / 8 < image->needed->len && image->needed->data[block / 8] & 1u << block % 8;
}

static void need(struct wb_prune_image *image, const struct wb_extent *extent)
{
    uint64_t end = extent->source + extent->length;
    guint old = image->needed->len, length;

    if (end < extent->source || end > IMAGE_MAX) {
        image->too_large = true;
        return;
    }
    length = (guint)((end - 1) / WB_PRUNE_BLOCK / 8 + 1);
    if (length > old) {
        g_byte_array_set_size(image->needed, length);
        memset(image->needed->data + old, 0, length - old);
    }
    for (uint64_t block = extent->source / WB_PRUNE_BLOCK; block <= (end - 1) / WB_PRUNE_BLOCK; block++)
        image->needed->data[block / 8] |= (uint8_t)(1u << block % 8);
}

void wb_prune_image_note(struct wb_prune_image *image, const struct wb_record *record, bool stays)
{
    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++) {
        const struct wb_extent *extent = &record->data.extents[i];

        if (extent->kind != WB_EXTENT_IMAGE)
            continue;
        if (stays)
            need(image, extent);
        else if (image->gone->len < EXTENTS_MAX)
            g_array_append_vals(image->gone, extent, 1);
    }
}

/* [from, to) as far as nobody needs it. */
static int punch(const struct wb_prune_image *image, int fd, uint64_t from, uint64_t to)
{
    uint64_t end;

    for (; from < to; from = end) {
        bool needed = is_needed(image, from / WB_PRUNE_BLOCK);

        end = (from / WB_PRUNE_BLOCK + 1) * WB_PRUNE_BLOCK;
        while (end < to && is_needed(image, end / WB_PRUNE_BLOCK) == needed)
            end += WB_PRUNE_BLOCK;
        end = MIN(end, to);
        if (!needed && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from)) < 0)
            return -errno;
    }
    return 0;
}

int wb_prune_image_punch(struct wb_store *store, const struct wb_prune_image *image, struct wb_object object,
                         uint64_t *freed)
{
    _cleanup_close_ int fd = -1;
    struct stat before, after;
    int r = 0;

    if (image->gone->len == 0 || image->too_large)
        return 0;
    fd = wb_store_open_file(store, object, WB_FILE_IMAGE, O_RDWR);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &before) < 0)
        return -errno;
    for (guint i = 0; r == 0 && i < image->gone->len; i++) {
        const struct wb_extent *extent = &g_array_index(image->gone, struct wb_extent, i);

        if (extent->source > IMAGE_MAX || extent->length > IMAGE_MAX)
            continue;
        r = punch(image, fd, extent->source, extent->source + extent->length);
    }
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (fstat(fd, &after) == 0 && after.st_blocks < before.st_blocks)
        *freed += (uint64_t)(before.st_blocks - after.st_blocks) * 512;
    return r == -EOPNOTSUPP ? 0 : r;
}
