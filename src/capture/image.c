/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Before-images that cost nothing: blocks shared with the file, in ID.image (FICLONERANGE).
 *
 * The extents carry no checksum (check == 0): computing one would read what the clone avoids
 * reading, 1 GiB for a truncated file of that size. The shared blocks are those of the file
 * itself, so they are verified by the file system exactly as well as the file ever was.
 *
 * A file rewritten in a row is cloned ahead (store/cache/preclone.h).
 */

#include "capture/undo.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "store/cache/preclone.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

static uint64_t align_down(uint64_t value, uint64_t block)
{
    return value - value % block;
}

static uint64_t align_up(uint64_t value, uint64_t block)
{
    return align_down(value + block - 1, block);
}

/* One FICLONERANGE to the end of the image: 0, WB_UNCHANGED (it must be copied), or -errno. */
static int share(int image, int fd, uint64_t from, uint64_t to, uint64_t block, uint64_t *ret_source)
{
    struct stat st;

    if (fstat(image, &st) < 0)
        return -errno;
    struct file_clone_range range = {
        .src_fd = fd,
        .src_offset = from,
        .src_length = to - from,
        .dest_offset = align_up((uint64_t)st.st_size, block),
    };
    if (ioctl(image, FICLONERANGE, &range) < 0) {
        /* what refuses to share (no data checksums, a swap file, another device) is copied; so is what
         * the kernel was interrupted in: only a full or broken disk is an error */
        return errno == ENOSPC || errno == EIO || errno == EDQUOT ? -errno : WB_UNCHANGED;
    }
    *ret_source = range.dest_offset;
    return 0;
}

int wb_undo_clone(struct wb_undo_writer *writer, uint64_t from, uint64_t to, struct wb_undo_image *ret)
{
    struct wb_store *store = writer->store;
    struct wb_object object = writer->target->object;
    bool large = to - from >= WB_LARGE_RANGE;
    _cleanup_close_ int image = -1;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    uint64_t block, ahead;
    int r;

    *ret = (struct wb_undo_image){.from = from, .to = to};
    /* a block that is in a clone is kept already: copying it would keep it twice */
    if (wb_preclone_consume(store, object, from, to, to - from >= WB_PRECLONE_UNIT, &ret->source))
        return 0;
    if (!store->can_clone || !large)
        return WB_UNCHANGED;
    if (fstat(writer->fd, &st) < 0)
        return -errno;
    block = (uint64_t)st.st_blksize;
    if (block < 512 || block > WB_LARGE_RANGE)
        return WB_UNCHANGED;
    ret->from = align_up(from, block);
    ret->to = align_down(to, block);
    if (ret->to <= ret->from || ret->to - ret->from < WB_LARGE_RANGE / 2)
        return WB_UNCHANGED;

    /* the log first: it makes the directory the image goes to */
    r = wb_undo_writer_open_log(writer);
    if (r < 0)
        return r;
    wb_object_path(object, WB_FILE_IMAGE, path);
    image = wb_open_own(store->dir_fd, path, O_RDWR | O_CREAT, 0600);
    if (image < 0)
        return image;
    ahead = align_down(wb_preclone_plan(store, object, from, to, (uint64_t)st.st_size), block);
    if (ahead > ret->to && share(image, writer->fd, ret->from, ahead, block, &ret->source) == 0) {
        ret->to = ahead < to ? ahead : to;
        wb_preclone_keep(store, object, image, ret->from, ahead, ret->source, ret->to, block);
        return 0;
    }
    return share(image, writer->fd, ret->from, ret->to, block, &ret->source);
}
