/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records go to the logs they came from, each at its end. */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/held.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/graveyard/bundle.h"
#include "store/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int wb_apply_each(struct wb_applying *applying, int (*each)(const struct wb_stream_body *body, void *data), void *data)
{
    struct wb_stream_body body;
    struct wb_frames frames;
    int r = wb_frames_init(&frames, applying->spool_fd, NULL);

    if (r == 0 && lseek(applying->spool_fd, 0, SEEK_SET) < 0)
        r = -errno;
    while (r == 0) {
        r = wb_frames_read(&frames, &body, NULL, NULL);
        if (r == 0 && body.type == WB_FRAME_END)
            break;
        if (r == 0)
            r = each(&body, data);
    }
    wb_frames_deinit(&frames);
    return r == -ENODATA ? -EBADMSG : r;
}

/*
 * What a record lacks since it was thinned out at the sender, after the copy got the changes before it: content as it
 * was when the copy was brought up to date last. The copy's own file is that, until its tree is touched.
 */

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

/*
 * Fills a record of WB_STREAM_FILL with the content that the copy's file has, in `payload` and in the image, before the
 * tree is changed. 0 or -errno.
 */
static int wb_apply_fill(struct wb_applying *applying, const struct wb_stream_record *body, struct wb_record *record,
                         uint8_t *payload)
{
    _cleanup_close_ int fd = -1, image_fd = -1;
    char path[WB_OBJECT_PATH_MAX];
    int r = 0;

    if (body->flags & WB_STREAM_APART)
        record->flags &= ~WB_RECORD_COALESCED;
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

/* The slot of the file that was lost. The other one, of a file that was moved there, is right as it is. */
static struct wb_slot *thinned_slot(struct wb_record *record)
{
    struct wb_slot *slots = record->name.slots;

    for (uint32_t i = 0; i < record->name.count; i++)
        if (slots[i].present && (slots[i].unbind == WB_UNBIND_KEPT || record->name.count == 1 || !slots[!i].present))
            return &slots[i];
    return NULL;
}

/* 0; WB_ABSENT: the copy has the object of the slot at that name, or no such name; or -errno. */
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

static int apply_fill_name(struct wb_applying *applying, struct wb_object dir, struct wb_record *record,
                           GHashTable *filled)
{
    struct wb_slot *slot = thinned_slot(record);
    const struct wb_filled *found = slot ? g_hash_table_lookup(filled, &slot->object) : NULL;
    struct wb_filled one;
    int r;

    /* The name was removed because the file was moved away, and the record of that move came before. */
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

struct appending {
    struct wb_applying *applying;
    struct wb_object object; /* whose log is open */
    uint32_t kind;
    struct wb_log *log;
    int64_t had;             /* the newest record that was there before... */
    unsigned had_count;      /* ...and how many have that `when`           */
    int image_fd;
    struct wb_object image;
    GHashTable *thinned;     /* `when`s of changes to whose beginning the log leads back in this stream */
    GHashTable *filled;      /* see apply_fill_name */
};

/* How many records at the end of the log belong to its last change. An INDEX was not received: who packed made it. */
static int count_last(struct appending *appending)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, appending->log->fd);

    if (r < 0)
        return r;
    appending->had = 0;
    appending->had_count = 0;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0) {
        if (record.type == WB_REC_INDEX)
            continue;
        if (appending->had_count > 0 && record.when != appending->had)
            break;
        appending->had = record.when;
        appending->had_count++;
    }
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

void wb_apply_log_path(const struct wb_stream_record *body, char path[WB_OBJECT_PATH_MAX])
{
    if (body->log >= WB_STREAM_ACTORS)
        strcpy(path, body->log == WB_STREAM_ACTORS ? WB_ACTORS_NAME : WB_SNAPSHOTS_NAME);
    else
        wb_object_path(body->object, body->log == WB_STREAM_UNDO ? WB_FILE_UNDO : WB_FILE_CATALOG, path);
}

static int open_log(struct appending *appending, const struct wb_stream_record *body)
{
    char path[WB_OBJECT_PATH_MAX];
    int r;

    if (appending->log && appending->kind == body->log && wb_object_equal(appending->object, body->object))
        return 0;
    appending->log = wb_log_free(appending->log);
    appending->kind = body->log;
    appending->object = body->object;
    g_hash_table_remove_all(appending->thinned);
    g_hash_table_remove_all(appending->filled);
    wb_apply_log_path(body, path);
    r = wb_log_open(&appending->log, appending->applying->tree.dir_fd, path, true);
    return r < 0 ? r : count_last(appending);
}

/* Whether the log has it already. */
static bool is_there(struct appending *appending, const struct wb_stream_record *body, const struct wb_record *record)
{
    if (body->log == WB_STREAM_ACTORS)
        return body->offset < appending->log->tail;
    /* Whoever sends cannot know which of the last names of moments are here. */
    if (body->log != WB_STREAM_SNAPSHOTS && !appending->applying->again)
        return false;
    if (record->when != appending->had)
        return record->when < appending->had;
    return appending->had_count > 0 && appending->had_count--;
}

/* Where it goes on from others, they have to have begun here as well. */
static void note_thinned(struct appending *appending, const struct wb_record *record)
{
    if (record->type == WB_REC_THINNED && (!(record->flags & WB_RECORD_THINNED) ||
                                           g_hash_table_contains(appending->thinned, &record->when)))
        g_hash_table_add(appending->thinned, g_memdup2(&record->thinned.until, sizeof(record->thinned.until)));
}

/* What was thinned out and began later than all that the copy has, is what it was before in the copy, too. */
static int fill_names(struct appending *appending, const struct wb_stream_record *body, struct wb_record *record)
{
    if (record->type != WB_REC_NAME || !(record->flags & WB_RECORD_THINNED) ||
        g_hash_table_contains(appending->thinned, &record->when))
        return 0;
    return apply_fill_name(appending->applying, body->object, record, appending->filled);
}

static int append(struct appending *appending, const struct wb_stream_record *body)
{
    g_autofree uint8_t *filled = NULL;
    struct wb_record record;
    struct iovec payload;
    int r = open_log(appending, body);

    if (r == 0)
        r = wb_record_decode(body->data, body->length, 0, &record);
    if (r < 0)
        return r;
    note_thinned(appending, &record);
    if (is_there(appending, body, &record))
        return 0;
    if (body->log == WB_STREAM_ACTORS && body->offset != appending->log->tail)
        return wb_error_set(appending->applying->why, -EXDEV,
                            "the stream does not begin where the copy ends: "
                            "records of users and processes are missing in between");
    payload = (struct iovec){(void *)(body->data + record.payload_offset), record.payload_length};
    if (body->flags & WB_STREAM_FILL) {
        filled = g_try_malloc(MAX(record.payload_length, 1));
        if (!filled)
            return -ENOMEM;
        memcpy(filled, payload.iov_base, record.payload_length);
        payload.iov_base = filled;
        r = wb_apply_fill(appending->applying, body, &record, filled);
        if (r < 0)
            return r;
    }
    r = fill_names(appending, body, &record);
    if (r < 0)
        return r;
    pthread_mutex_lock(&appending->log->lock);
    r = wb_log_append_locked(appending->log, &record, &payload, record.payload_length > 0);
    pthread_mutex_unlock(&appending->log->lock);
    return r;
}

static int open_image(struct appending *appending, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];

    if (appending->image_fd < 0 || !wb_object_equal(appending->image, object)) {
        wb_close_fd(&appending->image_fd);
        wb_object_path(object, WB_FILE_IMAGE, path);
        appending->image_fd = wb_open_own(appending->applying->tree.dir_fd, path, O_RDWR | O_CREAT, 0600);
        appending->image = object;
    }
    return MIN(appending->image_fd, 0);
}

static int write_image(struct appending *appending, const struct wb_stream_bytes *body)
{
    int r = open_image(appending, body->object);

    return r < 0 ? r : wb_pwrite_full(appending->image_fd, body->data, body->length, body->offset);
}

static int write_image_hole(struct appending *appending, const struct wb_stream_hole *hole)
{
    int r = open_image(appending, hole->object);
    struct stat st;

    if (r == 0)
        r = wb_apply_zeros(appending->image_fd, hole->offset, hole->length);
    if (r == 0 && fstat(appending->image_fd, &st) < 0)
        r = -errno;
    if (r == 0 && (uint64_t)st.st_size < hole->offset + hole->length &&
        ftruncate(appending->image_fd, (off_t)(hole->offset + hole->length)) < 0)
        r = -errno;
    return r;
}

static int each(const struct wb_stream_body *body, void *data)
{
    struct appending *appending = data;

    switch (body->type) {
    case WB_FRAME_RECORD:
        return append(appending, &body->record);
    case WB_FRAME_IMAGE:
        return write_image(appending, &body->bytes);
    case WB_FRAME_IMAGE_HOLE:
        return write_image_hole(appending, &body->hole);
    default:
        return 0;
    }
}

int wb_apply_records(struct wb_applying *applying)
{
    struct appending appending = {.applying = applying, .image_fd = -1,
                                  .thinned = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
                                  .filled = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free)};
    int r = wb_apply_each(applying, each, &appending);

    wb_log_free(appending.log);
    g_hash_table_unref(appending.thinned);
    g_hash_table_unref(appending.filled);
    wb_close_fd(&appending.image_fd);
    return r;
}

/* Makes a range of a file read as zeros. Holes and zeros that are there already are left alone. */

static int make_zero(int fd, uint8_t *data, size_t length, uint64_t offset)
{
    int r = wb_pread_exact(fd, data, length, offset);

    if (r < 0 || wb_is_zero(data, length))
        return r;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    memset(data, 0, length);
    return wb_pwrite_full(fd, data, length, offset);
}

/* The data at or behind `from`, until where it goes; both `end` when there is none. 0 or -errno. */
static int find_data(int fd, uint64_t from, uint64_t end, uint64_t *ret_data, uint64_t *ret_until)
{
    off_t data = lseek(fd, (off_t)from, SEEK_DATA), hole;

    *ret_data = *ret_until = end;
    if (data < 0 && errno == ENXIO)
        return 0;
    if (data < 0 && errno != EINVAL)
        return -errno;
    /* A file system without holes: everything is data. */
    *ret_data = data < 0 ? from : MIN((uint64_t)data, end);
    hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole > 0)
        *ret_until = MIN((uint64_t)hole, end);
    return 0;
}

int wb_apply_zeros(int fd, uint64_t offset, uint64_t length)
{
    g_autofree uint8_t *data = g_try_malloc(WB_FRAME_BYTES_MAX);
    uint64_t at = offset, end, until;
    struct stat st;
    int r = data ? 0 : -ENOMEM;

    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r < 0)
        return r;
    end = MIN(offset + length, (uint64_t)st.st_size);
    while (r == 0 && at < end) {
        r = find_data(fd, at, end, &at, &until);
        for (; r == 0 && at < until; at += MIN(WB_FRAME_BYTES_MAX, until - at))
            r = make_zero(fd, data, (size_t)MIN(WB_FRAME_BYTES_MAX, until - at), at);
    }
    return r;
}
