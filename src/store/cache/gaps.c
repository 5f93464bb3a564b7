/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/cache/gaps.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_SIZE ((1 + WB_GAPS_MAX) * WB_GAP_SIZE)

struct place {
    struct wb_open_gap gap;
    bool taken;
    bool damaged;     /* its object is not known: it counts for all objects, and remains taken */
    unsigned changes; /* under way: the gap cannot end before they do */
};

struct wb_gaps {
    pthread_mutex_t lock;
    int fd;
    _Atomic unsigned count; /* of places that belong to a known object */
    bool damaged;           /* there are damaged places     */
    struct place places[WB_GAPS_MAX];
};

/* ---- the file -------------------------------------------------------------------------------- */

/*
 * Writes the whole file at once, so that later writes need no new space, and under a temporary name first, so that the
 * final name only ever shows a complete file.
 */
static int start_anew(int dir_fd)
{
    g_autofree uint8_t *data = g_try_malloc0(FILE_SIZE);

    if (!data)
        return -ENOMEM;
    wb_gap_encode_head(data);
    return wb_replace_file(dir_fd, WB_GAPS_NAME, data, FILE_SIZE, 0600);
}

/* Reads the whole file; missing bytes count as zeros. */
static int read_file(int fd, uint8_t data[FILE_SIZE])
{
    size_t length;

    memset(data, 0, FILE_SIZE);
    return wb_pread_full(fd, data, FILE_SIZE, 0, &length);
}

/* The file was never completed: no change was permitted yet. */
static bool is_unfinished(int fd, const uint8_t data[FILE_SIZE])
{
    struct stat st;

    return wb_is_zero(data + WB_GAP_SIZE, FILE_SIZE - WB_GAP_SIZE) &&
           (fstat(fd, &st) < 0 || st.st_size < (off_t)FILE_SIZE || wb_gap_check_head(data) < 0);
}

static uint64_t offset_of(unsigned place)
{
    return (uint64_t)(1 + place) * WB_GAP_SIZE;
}

/* Decodes a place: free, taken, or damaged. */
static void take_in(struct place *place, const uint8_t data[WB_GAP_SIZE])
{
    place->taken = !wb_is_zero(data, WB_GAP_SIZE);
    place->damaged = place->taken && wb_gap_decode(data, &place->gap) < 0;
}

static struct wb_gaps *gaps_new(const uint8_t data[FILE_SIZE])
{
    struct wb_gaps *gaps = g_try_new0(struct wb_gaps, 1);

    if (!gaps)
        return NULL;
    pthread_mutex_init(&gaps->lock, NULL);
    for (unsigned i = 0; i < WB_GAPS_MAX; i++) {
        take_in(&gaps->places[i], data + offset_of(i));
        gaps->damaged |= gaps->places[i].damaged;
        gaps->count += gaps->places[i].taken && !gaps->places[i].damaged;
    }
    return gaps;
}

static int open_file(const struct wb_store *store)
{
    return wb_open_own(store->dir_fd, WB_GAPS_NAME, O_RDWR, 0);
}

int wb_gaps_open(struct wb_store *store, bool make)
{
    _cleanup_close_ int fd = -1;
    g_autofree uint8_t *data = NULL;
    int r;

    if (store->gaps)
        return 0;
    data = g_try_malloc(FILE_SIZE);
    if (!data)
        return -ENOMEM;
    fd = open_file(store);
    r = fd < 0 ? fd : read_file(fd, data);
    if (r < 0 && (r != -ENOENT || !make))
        return r == -ENOENT ? 0 : r;
    if (r == -ENOENT || (make && is_unfinished(fd, data))) {
        wb_close_fd(&fd);
        r = start_anew(store->dir_fd);
        fd = r < 0 ? r : open_file(store);
        r = fd < 0 ? fd : read_file(fd, data);
    }
    if (r < 0)
        return r;
    store->gaps = gaps_new(data);
    if (!store->gaps)
        return -ENOMEM;
    store->gaps->fd = wb_steal_fd(&fd);
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

        if (place->taken && !place->damaged && place->gap.file == file && wb_object_equal(place->gap.object, object))
            return place;
    }
    return NULL;
}

/* Durable before the change is made: otherwise a power cut could leave the change without the gap. */
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
        /* It may have been written in spite of the error: then the next start finds a gap in which nothing is
         * missing. */
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

/* Only code that knows the directory's place creates a catalog (capture/place.c): until then the gap remains open. */
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
        if (r == 0)
            wb_timeline_note(store, log, place->gap.object, place->gap.file);
    }
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    /* The record is durable before its place is freed. */
    if (r == 0)
        r = wb_store_sync_log(store, place->gap.object, place->gap.file);
    if (r < 0)
        return r;
    place->taken = false;
    r = write_place(store->gaps, place);
    if (r < 0)
        place->taken = true; /* a second GAP with the same content is harmless */
    return r;
}

void wb_gaps_flush(struct wb_store *store)
{
    struct wb_gaps *gaps = store->gaps;
    int r = 0;

    if (!gaps || gaps->count == 0)
        return;
    pthread_mutex_lock(&gaps->lock);
    for (unsigned i = 0; i < WB_GAPS_MAX && gaps->count > 0; i++) {
        if (!gaps->places[i].taken || gaps->places[i].damaged || gaps->places[i].changes > 0)
            continue;
        r = settle_one(store, &gaps->places[i]);
        if (r == 0)
            gaps->count--;
        else if (r != -ENOENT)
            break; /* the store accepts no record yet */
    }
    pthread_mutex_unlock(&gaps->lock);
}

/* ---- queries --------------------------------------------------------------------------------- */

static enum wb_gap_state look_on_disk(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    _cleanup_close_ int fd = openat(store->dir_fd, WB_GAPS_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    g_autofree uint8_t *data = fd < 0 ? NULL : g_try_malloc(FILE_SIZE);
    enum wb_gap_state state = WB_GAP_NONE;

    if (fd < 0)
        return errno == ENOENT ? WB_GAP_NONE : WB_GAP_UNKNOWN;
    if (!data || read_file(fd, data) < 0)
        return WB_GAP_UNKNOWN;
    for (unsigned i = 0; i < WB_GAPS_MAX; i++) {
        struct place place = {0};

        take_in(&place, data + offset_of(i));
        if (place.damaged)
            state = WB_GAP_UNKNOWN;
        else if (place.taken && place.gap.file == file && wb_object_equal(place.gap.object, object))
            return WB_GAP_OPEN;
    }
    return state;
}

enum wb_gap_state wb_gap_state(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_gaps *gaps = store->gaps;
    enum wb_gap_state state;

    if (!store->writable)
        return look_on_disk(store, object, file);
    if (!gaps || (gaps->count == 0 && !gaps->damaged))
        return WB_GAP_NONE;
    pthread_mutex_lock(&gaps->lock);
    state = find(gaps, object, file) ? WB_GAP_OPEN : gaps->damaged ? WB_GAP_UNKNOWN : WB_GAP_NONE;
    pthread_mutex_unlock(&gaps->lock);
    return state;
}

unsigned wb_gaps_count(const struct wb_store *store)
{
    return store->gaps ? store->gaps->count : 0;
}
