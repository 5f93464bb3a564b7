/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/gaps.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#define FILE_SIZE ((1 + WB_GAPS_MAX) * WB_GAP_SIZE)

struct place {
    struct wb_open_gap gap;
    bool taken;
    unsigned changes; /* under way: their end is the earliest that the gap's may be */
};

struct wb_gaps {
    pthread_mutex_t lock;
    int fd;
    _Atomic unsigned count;
    struct place places[WB_GAPS_MAX];
};

/* ---- the file -------------------------------------------------------------------------------- */

/* All of it is written at once, so that later writes need no new space. */
static int start_anew(int fd)
{
    g_autofree uint8_t *data = g_try_malloc0(FILE_SIZE);
    int r;

    if (!data)
        return -ENOMEM;
    wb_gap_encode_head(data);
    r = wb_pwrite_full(fd, data, FILE_SIZE, 0);
    return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* Reads the whole file: 0, -EBADMSG where it is not ours, or -errno. */
static int read_file(int fd, uint8_t data[FILE_SIZE])
{
    size_t length;
    int r = wb_pread_full(fd, data, FILE_SIZE, 0, &length);

    if (r < 0)
        return r;
    return length < FILE_SIZE || wb_gap_check_head(data) < 0 ? -EBADMSG : 0;
}

static uint64_t offset_of(unsigned place)
{
    return (uint64_t)(1 + place) * WB_GAP_SIZE;
}

int wb_gaps_open(struct wb_store *store, bool make)
{
    _cleanup_close_ int fd = -1;
    g_autofree uint8_t *data = NULL;
    struct wb_gaps *gaps;
    int r;

    if (store->gaps)
        return 0;
    fd = openat(store->dir_fd, WB_GAPS_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    if (fd < 0)
        return errno == ENOENT && !make ? 0 : -errno;
    data = g_try_malloc(FILE_SIZE);
    if (!data)
        return -ENOMEM;
    r = read_file(fd, data);
    if (r == -EBADMSG) {
        /* Made only by halves: then nothing was let through yet. */
        r = start_anew(fd);
        memset(data, 0, FILE_SIZE);
    }
    if (r == 0)
        r = wb_fsync_dir(store->dir_fd);
    if (r < 0)
        return r;
    gaps = g_try_new0(struct wb_gaps, 1);
    if (!gaps)
        return -ENOMEM;
    pthread_mutex_init(&gaps->lock, NULL);
    for (unsigned i = 0; i < WB_GAPS_MAX; i++) {
        struct place *place = &gaps->places[i];

        place->taken = wb_gap_decode(data + offset_of(i), &place->gap) == 0;
        gaps->count += place->taken;
    }
    gaps->fd = wb_steal_fd(&fd);
    store->gaps = gaps;
    return 0;
}

struct wb_gaps *wb_gaps_free(struct wb_gaps *gaps)
{
    if (!gaps)
        return NULL;
    close(gaps->fd);
    pthread_mutex_destroy(&gaps->lock);
    g_free(gaps);
    return NULL;
}

/* ---- beginning and ending -------------------------------------------------------------------- */

static struct place *find(struct wb_gaps *gaps, struct wb_object object, enum wb_object_file file)
{
    for (unsigned i = 0; i < WB_GAPS_MAX; i++) {
        struct place *place = &gaps->places[i];

        if (place->taken && place->gap.file == file && wb_object_equal(place->gap.object, object))
            return place;
    }
    return NULL;
}

/* Durable before the change is: after a power cut the change may be there without it otherwise. */
static int write_place(struct wb_gaps *gaps, const struct place *place)
{
    uint8_t data[WB_GAP_SIZE] = {0};
    int r;

    if (place->taken)
        wb_gap_encode(&place->gap, data);
    r = wb_pwrite_full(gaps->fd, data, sizeof(data), offset_of((unsigned)(place - gaps->places)));
    return r == 0 && fdatasync(gaps->fd) < 0 ? -errno : r;
}

static int take_place(struct wb_store *store, struct wb_object object, enum wb_object_file file, struct place **ret)
{
    struct wb_gaps *gaps = store->gaps;
    struct place *place = NULL;
    int r;

    for (unsigned i = 0; i < WB_GAPS_MAX && !place; i++)
        if (!gaps->places[i].taken)
            place = &gaps->places[i];
    if (!place)
        return -ENOSPC;
    *place = (struct place){.gap = {object, wb_store_tick(store), file}, .taken = true};
    r = write_place(gaps, place);
    if (r < 0) {
        /* It may have been written all the same: then the next start finds a gap where nothing is missing. */
        place->taken = false;
        return r;
    }
    gaps->count++;
    *ret = place;
    return 0;
}

int wb_gap_begin(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_gaps *gaps = store->gaps;
    struct place *place;
    int r = 0;

    if (!gaps)
        return -ENOSPC;
    pthread_mutex_lock(&gaps->lock);
    place = find(gaps, object, file);
    if (!place)
        r = take_place(store, object, file, &place);
    if (r == 0)
        place->changes++;
    pthread_mutex_unlock(&gaps->lock);
    return r;
}

void wb_gap_end(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_gaps *gaps = store->gaps;
    struct place *place;

    pthread_mutex_lock(&gaps->lock);
    place = find(gaps, object, file);
    if (place && place->changes > 0)
        place->changes--;
    pthread_mutex_unlock(&gaps->lock);
}

/* ---- records --------------------------------------------------------------------------------- */

/* A catalog is made by who knows where the directory is (capture/place.c): until then the gap stays open. */
static int settle_one(struct wb_store *store, struct place *place)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {place->gap.since, WB_GAP_REFUSED}};
    struct wb_log *log;
    int r;

    r = wb_store_get_log(store, place->gap.object, place->gap.file, place->gap.file == WB_FILE_UNDO, &log);
    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    r = -ENOENT;
    if (place->gap.file == WB_FILE_UNDO || log->tail > 0) {
        record.when = wb_store_tick(store);
        r = wb_log_append_locked(log, &record, NULL, 0);
    }
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    /* The record is safe before its place is given up. */
    if (r == 0)
        r = wb_store_sync_log(store, place->gap.object, place->gap.file);
    if (r < 0)
        return r;
    place->taken = false;
    r = write_place(store->gaps, place);
    if (r < 0)
        place->taken = true; /* one GAP more will tell the same */
    return r;
}

void wb_gaps_settle(struct wb_store *store)
{
    struct wb_gaps *gaps = store->gaps;
    int r = 0;

    if (!gaps || gaps->count == 0)
        return;
    pthread_mutex_lock(&gaps->lock);
    for (unsigned i = 0; i < WB_GAPS_MAX && gaps->count > 0; i++) {
        if (!gaps->places[i].taken || gaps->places[i].changes > 0)
            continue;
        r = settle_one(store, &gaps->places[i]);
        if (r == 0)
            gaps->count--;
        else if (r != -ENOENT)
            break; /* the store takes nothing yet */
    }
    pthread_mutex_unlock(&gaps->lock);
}

/* ---- looking --------------------------------------------------------------------------------- */

static bool is_open_on_disk(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    _cleanup_close_ int fd = openat(store->dir_fd, WB_GAPS_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    g_autofree uint8_t *data = fd < 0 ? NULL : g_try_malloc(FILE_SIZE);
    struct wb_open_gap gap;

    if (fd < 0)
        return errno != ENOENT;
    if (!data)
        return true;
    if (read_file(fd, data) < 0)
        return false;
    for (unsigned i = 0; i < WB_GAPS_MAX; i++)
        if (wb_gap_decode(data + offset_of(i), &gap) == 0 && gap.file == file && wb_object_equal(gap.object, object))
            return true;
    return false;
}

bool wb_gap_is_open(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_gaps *gaps = store->gaps;
    bool open;

    if (!store->writable)
        return is_open_on_disk(store, object, file);
    if (!gaps || gaps->count == 0)
        return false;
    pthread_mutex_lock(&gaps->lock);
    open = find(gaps, object, file) != NULL;
    pthread_mutex_unlock(&gaps->lock);
    return open;
}

unsigned wb_gaps_count(const struct wb_store *store)
{
    return store->gaps ? store->gaps->count : 0;
}
