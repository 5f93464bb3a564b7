/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Records go to the logs they came from, each at its end. */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    GHashTable *filled;      /* see wb_apply_fill_name */
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
    return wb_apply_fill_name(appending->applying, body->object, record, appending->filled);
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
        return wb_problem_set(appending->applying->why, -EXDEV, "the stream does not begin where the copy ends: "
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
