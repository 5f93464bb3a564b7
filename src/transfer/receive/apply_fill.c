/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a record lacks since it was thinned out at the sender, after the copy got the changes before it: content as it
 * was when the copy was brought up to date last. The copy's own file is that, until its tree is touched.
 */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/held.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/graveyard/bundle.h"
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
    _cleanup_close_ int dir_fd = -1, held = -1, fd = -1;

    if (r >= 0)
        r = r > 0 && !copied.staged ? wb_copy_tree_place(tree, &copied, &dir_fd, name) : -EXDEV;
    if (r == 0)
        r = held = wb_copy_tree_hold(tree, dir_fd, name, object);
    if (r >= 0)
        r = wb_copy_tree_unlock(held);
    if (r == 0)
        r = fd = wb_held_open(held, buried ? O_RDWR : O_RDONLY);
    r = MIN(r, 0);
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

/* Length of the hole at `offset`, at most `length`; 0: there is data. */
static uint64_t hole_at(int fd, uint64_t offset, uint64_t length)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);

    if (data < 0)
        return errno == ENXIO ? length : 0;
    return MIN((uint64_t)data - offset, length);
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
    for (uint64_t at = 0, step; r == 0 && at < useful; at += step) {
        step = hole_at(fd, extent->offset + at, useful - at);
        if (step > 0) {
            r = wb_apply_zeros(image_fd, extent->source + at, step);
            continue;
        }
        step = MIN(WB_FRAME_BYTES_MAX, useful - at);
        r = read_bytes(fd, data, (size_t)step, extent->offset + at);
        if (r == 0)
            r = wb_pwrite_full(image_fd, data, (size_t)step, extent->source + at);
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
                image_fd = r = wb_open_own(applying->tree.dir_fd, path, O_RDWR | O_CREAT, 0600);
            r = r < 0 ? r : fill_image(fd, image_fd, extent);
        }
    }
    return r;
}

/* The slot that tells what was lost: the other one, of a file that came, is as it was. */
static struct wb_slot *thinned_slot(struct wb_record *record)
{
    struct wb_slot *slots = record->name.slots;

    for (uint32_t i = 0; i < record->name.count; i++)
        if (slots[i].present && (slots[i].fate == WB_FATE_KEPT || record->name.count == 1 || !slots[!i].present))
            return &slots[i];
    return NULL;
}

/* 0; WB_ABSENT: the copy has what the slot tells, or nothing of that name; or -errno. */
static int find_lost(struct wb_applying *applying, struct wb_object dir, const struct wb_slot *slot,
                     struct wb_filled *ret)
{
    _cleanup_close_ int fd = wb_copy_tree_open_dir(&applying->tree, dir);
    g_autofree char *name = g_strndup(slot->name, slot->name_length);
    int r;

    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    ret->was = slot->object;
    r = wb_copy_tree_identify(&applying->tree, fd, name, &ret->now);
    if (r == -ENOENT || r == -EXDEV || (r == 0 && wb_object_equal(ret->now, slot->object)))
        return WB_ABSENT;
    return r < 0 ? r : wb_object_stat(NULL, fd, name, NULL, &ret->attrs, NULL);
}

int wb_apply_fill_name(struct wb_applying *applying, struct wb_object dir, struct wb_record *record,
                       GHashTable *filled)
{
    struct wb_slot *slot = thinned_slot(record);
    const struct wb_filled *found = slot ? g_hash_table_lookup(filled, &slot->object) : NULL;
    struct wb_filled one;
    int r;

    /* Where it was removed, it had been moved away, which was told before. */
    if (!slot || (!found && record->name.count == 1))
        return 0;
    if (!found) {
        r = find_lost(applying, dir, slot, &one);
        if (r != 0)
            return r == WB_ABSENT ? 0 : r;
        found = g_memdup2(&one, sizeof(one));
        g_hash_table_replace(filled, (void *)(uintptr_t)&found->was, (void *)(uintptr_t)found);
    }
    slot->object = found->now;
    slot->attrs = found->attrs;
    return 0;
}
