/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a record lacks since it was thinned out at the sender, after the copy got the changes before it: content as it
 * was when the copy was brought up to date last. The copy's own file is that, until its tree is touched.
 */
#include "transfer/apply.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_file(struct wb_applying *applying, struct wb_object object)
{
    struct wb_copy_tree *tree = &applying->tree;
    struct wb_copied copied;
    int r = wb_copy_tree_know(tree, object, false, &copied);
    bool buried = r > 0 && !copied.names;
    char name[WB_OBJECT_PATH_MAX + WB_NAME_MAX];
    _cleanup_close_ int dir_fd = -1, fd = -1;
    struct wb_object found;

    if (r >= 0)
        r = r > 0 && !copied.staged ? wb_copy_tree_place(tree, &copied, &dir_fd, name) : -EXDEV;
    if (r == 0)
        r = wb_copy_tree_unlock(dir_fd, name);
    if (r < 0)
        return r;
    fd = openat(dir_fd, name, (buried ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = wb_copy_tree_identify(tree, fd, NULL, &found);
    if (r == 0 && !wb_object_equal(found, object))
        r = -EXDEV;
    if (r == 0 && buried)
        r = wb_bundle_unpack_into(tree->dir_fd, object, fd);
    return r < 0 ? r : wb_steal_fd(&fd);
}

/* Past its end there is nothing that is ever shown. */
static int read_bytes(int fd, uint8_t *data, size_t length, uint64_t offset)
{
    size_t got = 0;
    int r = wb_pread_full(fd, data, length, offset, &got);

    if (r == 0)
        memset(data + got, 0, length - got);
    return r;
}

/* Where the file ends before, zeros are written only over what the image has there: nobody says how far that goes. */
static int fill_image(int fd, int image_fd, struct wb_extent *extent)
{
    g_autofree uint8_t *data = g_try_malloc(WB_FRAME_BYTES_MAX);
    uint64_t end = extent->source + extent->length, useful;
    struct stat file, image;
    int r = data ? 0 : -ENOMEM;

    if (r == 0 && (fstat(fd, &file) < 0 || fstat(image_fd, &image) < 0))
        r = -errno;
    if (r < 0)
        return r;
    useful = MAX((uint64_t)file.st_size > extent->offset ? (uint64_t)file.st_size - extent->offset : 0,
                 (uint64_t)image.st_size > extent->source ? (uint64_t)image.st_size - extent->source : 0);
    useful = MIN(useful, extent->length);
    for (uint64_t at = 0; r == 0 && at < useful; at += WB_FRAME_BYTES_MAX) {
        size_t length = (size_t)MIN(WB_FRAME_BYTES_MAX, useful - at);

        r = read_bytes(fd, data, length, extent->offset + at);
        if (r == 0)
            r = wb_pwrite_full(image_fd, data, length, extent->source + at);
    }
    if (r == 0 && fstat(image_fd, &image) == 0 && (uint64_t)image.st_size < end && ftruncate(image_fd, (off_t)end) < 0)
        r = -errno;
    extent->check = 0;
    return r;
}

int wb_apply_fill(struct wb_applying *applying, const struct wb_stream_record *body, struct wb_record *record,
                  uint8_t *payload)
{
    _cleanup_close_ int fd = -1, image_fd = -1;
    char path[WB_OBJECT_PATH_MAX];
    int r = 0;

    if (body->flags & WB_STREAM_APART)
        record->flags &= ~WB_RECORD_JOINED;
    if (record->type != WB_REC_DATA)
        return 0;
    fd = open_file(applying, body->object);
    if (fd < 0)
        return fd;
    for (uint32_t i = 0; r == 0 && i < record->data.count; i++) {
        struct wb_extent *extent = &record->data.extents[i];

        if (extent->kind == WB_EXTENT_INLINE) {
            if (extent->source > record->payload_length || extent->length > record->payload_length - extent->source)
                return -EBADMSG;
            r = read_bytes(fd, payload + extent->source, (size_t)extent->length, extent->offset);
        } else if (extent->kind == WB_EXTENT_IMAGE) {
            wb_object_path(body->object, WB_FILE_IMAGE, path);
            if (image_fd < 0)
                image_fd = r = wb_open_own(applying->tree.dir_fd, path, O_WRONLY | O_CREAT, 0600);
            r = r < 0 ? r : fill_image(fd, image_fd, extent);
        }
    }
    return r;
}
