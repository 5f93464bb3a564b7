/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file `stages`: slots that are written with one pwrite when a stage begins and freed with another when it
 * has ended. Within a page, a pwrite is there as a whole or not at all, also for SIGKILL; the checksum tells
 * what a power cut made of it.
 */
#include "store/stages.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "store/parts.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "WBSTAGES"
/* Nobody has more files open for writing; a file that pretends to is not believed. */
#define SLOTS_MAX (1u << 20)

struct wb_stages {
    pthread_mutex_t lock;
    int fd;          /* -1: there is no such file yet */
    GArray *entries; /* struct wb_stage_entry, by slot; begin == 0: free */
    GHashTable *by_object; /* &entry.object of its own -> slot + 1 */
    unsigned free_hint;    /* no slot below is free */
};

static guint hash_object(gconstpointer key)
{
    const struct wb_object *object = key;

    return (guint)(object->ino ^ (uint64_t)object->birth ^ (uint64_t)object->birth >> 32);
}

static gboolean same_object(gconstpointer a, gconstpointer b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

static void note(struct wb_stages *stages, struct wb_object object, unsigned slot)
{
    g_hash_table_insert(stages->by_object, g_memdup2(&object, sizeof(object)), GUINT_TO_POINTER(slot + 1));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* All slots of the file, free ones with begin == 0. */
static int read_slots(int fd, GArray *entries)
{
    struct wb_stage_entry entry;
    uint8_t data[WB_STAGE_SIZE];
    size_t length;
    int r;

    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0 || length < sizeof(data) || memcmp(data, MAGIC, strlen(MAGIC)) != 0)
        return r;
    for (unsigned slot = 0; slot < SLOTS_MAX; slot++) {
        r = wb_pread_full(fd, data, sizeof(data), WB_STAGE_SIZE * (slot + UINT64_C(1)), &length);
        if (r < 0 || length < sizeof(data))
            return r;
        if (wb_stage_decode(data, &entry) < 0)
            entry = (struct wb_stage_entry){0};
        g_array_append_val(entries, entry);
    }
    return 0;
}

int wb_stages_open(struct wb_store *store)
{
    struct wb_stages *stages = g_try_new0(struct wb_stages, 1);
    int r = 0;

    if (!stages)
        return -ENOMEM;
    pthread_mutex_init(&stages->lock, NULL);
    stages->entries = g_array_new(FALSE, TRUE, sizeof(struct wb_stage_entry));
    stages->by_object = g_hash_table_new_full(hash_object, same_object, g_free, NULL);
    stages->fd = wb_open_own(store->dir_fd, WB_STAGES_NAME, O_RDWR, 0);
    store->stages = stages;
    if (stages->fd < 0)
        return stages->fd == -ENOENT ? 0 : stages->fd;
    r = read_slots(stages->fd, stages->entries);
    for (guint i = 0; i < stages->entries->len; i++) {
        const struct wb_stage_entry *entry = &g_array_index(stages->entries, struct wb_stage_entry, i);

        if (entry->begin == 0)
            continue;
        note(stages, entry->object, i);
        /* No record may be older: the clock goes on above it. */
        wb_inflight_raise(store->inflight, entry->begin);
    }
    return r;
}

struct wb_stages *wb_stages_free(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;

    if (!stages)
        return NULL;
    if (stages->fd >= 0) {
        /* With nothing under way the file is as good as none, and shorter to read. */
        if (g_hash_table_size(stages->by_object) == 0 && ftruncate(stages->fd, WB_STAGE_SIZE) < 0)
            errno = 0;
        close(stages->fd);
    }
    g_array_unref(stages->entries);
    g_hash_table_unref(stages->by_object);
    pthread_mutex_destroy(&stages->lock);
    g_free(stages);
    return NULL;
}

/* Another process writes the table: it is read anew each time. */
static int find_from_outside(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret)
{
    _cleanup_close_ int fd = openat(store->dir_fd, WB_STAGES_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    g_autoptr(GArray) entries = NULL;
    struct stat st;
    int r;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size <= WB_STAGE_SIZE)
        return 0;
    entries = g_array_new(FALSE, TRUE, sizeof(struct wb_stage_entry));
    r = read_slots(fd, entries);
    if (r < 0)
        return r;
    for (guint i = 0; i < entries->len; i++) {
        const struct wb_stage_entry *entry = &g_array_index(entries, struct wb_stage_entry, i);

        if (entry->begin > 0 && wb_object_equal(entry->object, object)) {
            *ret = *entry;
            return 1;
        }
    }
    return 0;
}

int wb_stages_find(const struct wb_store *store, struct wb_object object, struct wb_stage_entry *ret, int *ret_slot)
{
    struct wb_stages *stages = store->stages;
    unsigned known;

    if (!stages)
        return find_from_outside(store, object, ret);
    pthread_mutex_lock(&stages->lock);
    known = GPOINTER_TO_UINT(g_hash_table_lookup(stages->by_object, &object));
    if (known > 0)
        *ret = g_array_index(stages->entries, struct wb_stage_entry, known - 1);
    pthread_mutex_unlock(&stages->lock);
    if (known > 0 && ret_slot)
        *ret_slot = (int)known - 1;
    return known > 0;
}

int wb_stages_each(struct wb_store *store, int (*callback)(int slot, const struct wb_stage_entry *entry, void *data),
                   void *data)
{
    struct wb_stages *stages = store->stages;
    struct wb_stage_entry entry;
    guint count = stages ? stages->entries->len : 0;
    int r = 0;

    for (guint i = 0; r == 0 && i < count; i++) {
        pthread_mutex_lock(&stages->lock);
        entry = g_array_index(stages->entries, struct wb_stage_entry, i);
        pthread_mutex_unlock(&stages->lock);
        if (entry.begin > 0)
            r = callback((int)i, &entry, data);
    }
    return r;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* With `lock` held: makes the file at the first stage ever. */
static int make_file(struct wb_store *store)
{
    struct wb_stages *stages = store->stages;
    uint8_t head[WB_STAGE_SIZE] = MAGIC;
    int fd, r;

    if (stages->fd >= 0)
        return 0;
    fd = wb_open_own(store->dir_fd, WB_STAGES_NAME, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return fd;
    r = wb_pwrite_full(fd, head, sizeof(head), 0);
    if (r < 0) {
        close(fd);
        return r;
    }
    stages->fd = fd;
    return 0;
}

/* With `lock` held: the lowest free slot, so that the file stays short. */
static unsigned free_slot(struct wb_stages *stages)
{
    unsigned slot = stages->free_hint;
    const struct wb_stage_entry none = {0};

    while (slot < stages->entries->len && g_array_index(stages->entries, struct wb_stage_entry, slot).begin > 0)
        slot++;
    if (slot == stages->entries->len)
        g_array_append_val(stages->entries, none);
    stages->free_hint = slot;
    return slot;
}

int wb_stages_add(struct wb_store *store, const struct wb_stage_entry *entry)
{
    struct wb_stages *stages = store->stages;
    uint8_t data[WB_STAGE_SIZE];
    unsigned slot = 0;
    int r;

    wb_stage_encode(entry, data);
    pthread_mutex_lock(&stages->lock);
    r = make_file(store);
    if (r == 0) {
        slot = free_slot(stages);
        r = slot < SLOTS_MAX ? wb_pwrite_full(stages->fd, data, sizeof(data), WB_STAGE_SIZE * (slot + UINT64_C(1)))
                             : -ENFILE;
    }
    if (r == 0) {
        g_array_index(stages->entries, struct wb_stage_entry, slot) = *entry;
        stages->free_hint = slot + 1;
        note(stages, entry->object, slot);
    }
    pthread_mutex_unlock(&stages->lock);
    return r < 0 ? r : (int)slot;
}

void wb_stages_remove(struct wb_store *store, int slot)
{
    struct wb_stages *stages = store->stages;
    struct wb_stage_entry *entry;
    uint8_t zeros[sizeof(uint64_t)] = {0};

    pthread_mutex_lock(&stages->lock);
    entry = &g_array_index(stages->entries, struct wb_stage_entry, slot);
    g_hash_table_remove(stages->by_object, &entry->object);
    *entry = (struct wb_stage_entry){0};
    stages->free_hint = MIN(stages->free_hint, (unsigned)slot);
    /* If this cannot be written, recovery looks for the end of the stage, and finds it. */
    if (wb_pwrite_full(stages->fd, zeros, sizeof(zeros), WB_STAGE_SIZE * ((unsigned)slot + UINT64_C(1))) < 0)
        errno = 0;
    pthread_mutex_unlock(&stages->lock);
}
