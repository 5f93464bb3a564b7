/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A file's content at T: for each byte the earliest record after T that has it, else the present file.
 *
 * The records up to the moment of opening are gathered (view_gather.c). A byte read from the present file is right if
 * the log, checked after the read, still has no record of it: if it had been changed before it was read, its record
 * would be there.
 */
#include "history/content/view_parts.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The present file is read in steps of at most this size, each followed by a check of the log. */
#define STEP (1u << 20)

/* ---- open and close -------------------------------------------------------------------------- */

int wb_file_view_fail_bundle(const struct wb_file_view *view)
{
    char path[WB_OBJECT_PATH_MAX];

    if (!view->present.bundle && view->present.summed) {
        wb_object_path(view->revision->object, WB_FILE_DATA, path);
        return wb_history_fail(-EIO, "\"%s\": %s is damaged (checksum); run vfsck", view->revision->name, path);
    }
    wb_object_path(view->revision->object, WB_FILE_BUNDLE, path);
    return wb_history_fail(-EIO, "the content of \"%s\" was packed, and %s is damaged", view->revision->name, path);
}

struct wb_file_view *wb_file_view_free(struct wb_file_view *view)
{
    if (!view)
        return NULL;
    wb_file_view_forget(view);
    wb_extent_map_deinit(&view->map);
    wb_body_deinit(&view->present);
    wb_revision_unref(view->revision);
    pthread_mutex_destroy(&view->lock);
    free(view->why_absent);
    g_free(view);
    return NULL;
}

/* Opens attributes and content of one version, all from the same log file even if it is replaced meanwhile by
 * thinning. */
static int open_version(struct wb_file_view *view)
{
    struct wb_attrs attrs;
    int r;

    do {
        wb_file_view_forget(view);
        view->gathered = false;
        r = view->revision->when != WB_WHEN_PRESENT ? wb_file_view_gather(view) : 0;
        if (r == 0)
            r = wb_revision_attrs(view->history, view->revision, &attrs);
    } while (r == 0 && wb_file_view_is_replaced(view));
    if (r == 0)
        view->size = attrs.size;
    return r;
}

int wb_file_view_open(struct wb_history *history, struct wb_revision *file, struct wb_file_view **ret)
{
    struct wb_file_view *view;
    int fd, r;

    if (file->type != S_IFREG)
        return file->type == S_IFDIR ? -EISDIR : -EINVAL;
    view = g_try_new0(struct wb_file_view, 1);
    if (!view)
        return -ENOMEM;
    view->history = history;
    view->revision = wb_revision_ref(file);
    view->log = view->image = -1;
    pthread_mutex_init(&view->lock, NULL);
    wb_extent_map_init(&view->map);
    fd = wb_revision_open_present(history, file, O_RDONLY);
    /* Records may have all bytes, or a later read by another thread may need the file: keep the reason why it is
     * absent. */
    if (fd == -EIO)
        view->why_absent = strdup(wb_history_error());
    r = wb_body_init(&view->present, history->store, file->object, fd);
    if (r == -EBADMSG)
        r = wb_file_view_fail_bundle(view);
    if (r == 0)
        r = open_version(view);
    r = (int)wb_history_end(history, file->when, r);
    if (r < 0) {
        wb_file_view_free(view);
        return r;
    }
    *ret = view;
    return 0;
}

bool wb_file_view_is_good(struct wb_file_view *view)
{
    unsigned logs;
    bool good;

    pthread_mutex_lock(&view->lock);
    logs = view->logs;
    good = !view->why_absent && wb_file_view_refresh(view) == 0 && logs == view->logs &&
           !wb_file_view_is_replaced(view);
    pthread_mutex_unlock(&view->lock);
    return good && wb_history_end(view->history, view->revision->when, 0) == 0;
}

uint64_t wb_file_view_size(const struct wb_file_view *view)
{
    return view->size;
}

bool wb_file_view_is_present(struct wb_file_view *view)
{
    uint64_t until, size;
    bool same;

    /* Read the present first, then the records of the log. */
    if (wb_body_size(&view->present, &size) < 0 || size != view->size)
        return false;
    pthread_mutex_lock(&view->lock);
    same = wb_file_view_refresh(view) == 0 && !wb_extent_map_find(&view->map, 0, &until) && until >= view->size;
    pthread_mutex_unlock(&view->lock);
    return same && wb_history_end(view->history, view->revision->when, 0) == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int fail_blob(const struct wb_file_view *view, const struct wb_piece *piece)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(view->revision->object, piece->kind == WB_EXTENT_IMAGE ? WB_FILE_IMAGE : WB_FILE_UNDO, path);
    return wb_history_fail(-EIO, "bytes at %" PRIu64 " of %s are damaged (checksum)", piece->blob, path);
}

/* Inline bytes are in a log, bytes of an image in a plain file. */
static int read_bytes(const struct wb_piece *piece, int fd, void *data, size_t length, uint64_t offset)
{
    return piece->kind == WB_EXTENT_INLINE ? wb_log_pread_exact(fd, data, length, offset)
                                           : wb_pread_exact(fd, data, length, offset);
}

/* Reads the whole blob into `data` and verifies its checksum. */
static int read_blob(struct wb_file_view *view, const struct wb_piece *piece, int fd, void *data)
{
    int r = read_bytes(piece, fd, data, piece->blob_length, piece->blob);

    if (r < 0)
        return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
    /* An image of shared blocks has no checksum: it is as reliable as the file itself. */
    if ((piece->kind == WB_EXTENT_INLINE || piece->check != 0) &&
        wb_checksum(data, piece->blob_length) != piece->check)
        return fail_blob(view, piece);
    wb_bits_set(&view->verified, piece->number); /* if this fails, the blob is verified again */
    return 0;
}

static int verify_blob(struct wb_file_view *view, const struct wb_piece *piece, int fd)
{
    g_autofree uint8_t *data = NULL;

    if (wb_bits_has(&view->verified, piece->number) || (piece->kind == WB_EXTENT_IMAGE && piece->check == 0))
        return 0;
    data = wb_alloc_transfer(piece->blob_length);
    return data ? read_blob(view, piece, fd, data) : -ENOMEM;
}

int wb_file_view_open_image(struct wb_file_view *view, const struct wb_piece *piece)
{
    if (view->image < 0)
        view->image = wb_store_open_file(view->history->store, view->revision->object, WB_FILE_IMAGE, O_RDONLY);
    return view->image == -ENOENT ? fail_blob(view, piece) : view->image;
}

static int read_piece(struct wb_file_view *view, const struct wb_piece *piece, void *data, size_t length,
                      uint64_t offset)
{
    int fd = view->log, r;

    if (piece->kind == WB_PIECE_UNKNOWN)
        return wb_history_fail_gap((unsigned)piece->check);
    if (piece->kind == WB_EXTENT_ZERO) {
        memset(data, 0, length);
        return 0;
    }
    if (piece->kind == WB_EXTENT_IMAGE) {
        fd = wb_file_view_open_image(view, piece);
        if (fd < 0)
            return fd;
    }
    offset = offset - piece->offset + piece->within;
    if (offset + length > piece->blob_length)
        return fail_blob(view, piece);
    /* Usually the whole blob is requested: it is read once. */
    if (length == piece->blob_length)
        return read_blob(view, piece, fd, data);
    r = verify_blob(view, piece, fd);
    if (r == 0)
        r = read_bytes(piece, fd, data, length, piece->blob + offset);
    return r == -ENODATA || r == -EBADMSG ? fail_blob(view, piece) : r;
}

/* Reads from the present file: `length` bytes that no record has; otherwise it returns no bytes. *ret_done: the number
 * of bytes. */
static int read_present(struct wb_file_view *view, void *data, size_t length, uint64_t offset, size_t *ret_done)
{
    uint64_t until = UINT64_MAX;
    size_t got = 0;
    int r;

    *ret_done = 0;
    length = MIN(length, STEP);
    r = wb_body_pread(&view->present, data, length, offset, &got);
    if (r == -EBADMSG)
        return wb_file_view_fail_bundle(view);
    if (r == -EIO && view->why_absent)
        return wb_history_fail(r, "%s", view->why_absent);
    if (r == 0)
        r = wb_file_view_refresh(view);
    if (r < 0)
        return r;
    if (wb_extent_map_find(&view->map, offset, &until))
        return 0;
    length = (size_t)MIN(length, until - offset);
    *ret_done = MIN(got, length);
    if (got < length && view->revision->when != WB_WHEN_PRESENT)
        return wb_history_fail(-EIO, "\"%s\" is shorter than it was, and no record has the removed part",
                               view->revision->name);
    return 0;
}

static ssize_t read_locked(struct wb_file_view *view, uint8_t *data, size_t length, uint64_t offset)
{
    size_t done = 0, step;
    int r = wb_file_view_refresh(view);

    while (r == 0 && done < length) {
        uint64_t at = offset + done, until;
        const struct wb_piece *piece = wb_extent_map_find(&view->map, at, &until);

        step = piece ? (size_t)MIN(length - done, piece->offset + piece->length - at)
                     : (size_t)MIN(length - done, until - at);
        r = piece ? read_piece(view, piece, data + done, step, at)
                  : read_present(view, data + done, step, at, &step);
        if (r == 0)
            done += step;
        if (step == 0 && view->revision->when == WB_WHEN_PRESENT) /* truncated meanwhile */
            break;
    }
    return r < 0 ? r : (ssize_t)done;
}

ssize_t wb_file_view_pread(struct wb_file_view *view, void *data, size_t length, uint64_t offset)
{
    unsigned logs;
    ssize_t n;

    if (offset >= view->size || length == 0)
        return 0;
    length = (size_t)MIN(length, view->size - offset);
    pthread_mutex_lock(&view->lock);
    do {
        logs = view->logs;
        n = read_locked(view, data, length, offset);
    } while (n >= 0 && (logs != view->logs || wb_file_view_is_replaced(view)));
    pthread_mutex_unlock(&view->lock);
    return wb_history_end(view->history, view->revision->when, n);
}
