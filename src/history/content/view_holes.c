/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The holes of a file's content at T: SEEK_DATA and SEEK_HOLE. */
#include "history/content/view_parts.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same in an image: holes in cloned blocks are holes. If the image is too short, reading it fails. */
static int look_at_image(struct wb_file_view *view, const struct wb_piece *piece, uint64_t offset, bool *ret_hole,
                         uint64_t *ret_end)
{
    uint64_t end = piece->offset + piece->length;
    off_t start = (off_t)(piece->blob + piece->within + (offset - piece->offset)), data, hole = -1;
    int fd = wb_file_view_open_image(view, piece);
    struct stat st;

    *ret_hole = false;
    *ret_end = end;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size < (uint64_t)start + (end - offset))
        return 0;
    data = lseek(fd, start, SEEK_DATA);
    *ret_hole = data > start || (data < 0 && errno == ENXIO);
    if (data == start)
        hole = lseek(fd, start, SEEK_HOLE);
    if (*ret_hole ? data > start : hole > start)
        *ret_end = MIN(end, offset + (uint64_t)((*ret_hole ? data : hole) - start));
    return 0;
}

/* Whether the bytes from `offset` on are a hole, and the end of that hole or data. */
static int look_at_run(struct wb_file_view *view, uint64_t offset, bool *ret_hole, uint64_t *ret_end)
{
    const struct wb_piece *piece = wb_extent_map_find(&view->map, offset, ret_end);
    uint64_t end;
    int r;

    if (piece && piece->kind == WB_EXTENT_IMAGE)
        return look_at_image(view, piece, offset, ret_hole, ret_end);
    if (piece) {
        *ret_hole = piece->kind == WB_EXTENT_ZERO;
        *ret_end = piece->offset + piece->length;
        return piece->kind == WB_PIECE_UNKNOWN ? wb_history_fail_gap((unsigned)piece->check) : 0;
    }
    r = wb_body_run(&view->present, offset, ret_hole, &end);
    /* As for reading: a result from the present file is valid if no record has these bytes by now. */
    r = r == -EBADMSG ? wb_file_view_fail_bundle(view) : r < 0 ? r : wb_file_view_refresh(view);
    if (r < 0)
        return r;
    if (wb_extent_map_find(&view->map, offset, ret_end))
        return look_at_run(view, offset, ret_hole, ret_end);
    *ret_end = MIN(*ret_end, end);
    return 0;
}

static int seek_locked(struct wb_file_view *view, uint64_t offset, bool hole, uint64_t *ret)
{
    int r = wb_file_view_refresh(view);

    while (r == 0 && offset < view->size) {
        uint64_t end = 0;
        bool is_hole = false;

        r = look_at_run(view, offset, &is_hole, &end);
        if (r == 0 && is_hole == hole) {
            *ret = offset;
            return 0;
        }
        offset = end;
    }
    *ret = view->size; /* the end of a file is a hole */
    return r < 0 ? r : hole ? 0 : -ENXIO;
}

int wb_file_view_seek(struct wb_file_view *view, uint64_t offset, bool hole, uint64_t *ret)
{
    int r;

    if (offset >= view->size)
        return -ENXIO;
    pthread_mutex_lock(&view->lock);
    r = seek_locked(view, offset, hole, ret);
    pthread_mutex_unlock(&view->lock);
    return (int)wb_history_end(view->history, view->revision->when, r);
}
