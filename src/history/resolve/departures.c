/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/resolve/departures.h"

#include "format/object_key.h"
#include "history/internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* So many names of one object are kept: 64 MiB, without the names. */
#define DEPARTURES_MAX (1u << 20)
/* Of all objects: so many of one directory, and of all that are kept. */
#define SHARED_MAX (128u * 1024)
#define KEPT_MAX 16
#define ASKED_MAX 16

/* The catalog as it was read. */
struct version {
    struct wb_object log;
    uint64_t size;
    struct timespec mtime;
};

struct wb_departures {
    atomic_uint references;
    struct wb_object dir;
    struct version version;
    int64_t since;       /* later ones are complete */
    GArray *list;        /* of wb_departure, by object, name and time */
    GStringChunk *names;
};

struct asked {
    struct wb_object dir;
    struct version version;
    int64_t since;
    bool too_many; /* to be kept */
};

struct wb_departures_cache {
    pthread_mutex_t lock;
    GQueue kept; /* the one used last comes first */
    size_t count;
    struct asked asked[ASKED_MAX]; /* of which one object was asked, lately */
    unsigned next_asked;
};

struct wb_departures_cache *wb_departures_cache_new(void)
{
    struct wb_departures_cache *cache = g_new0(struct wb_departures_cache, 1);

    pthread_mutex_init(&cache->lock, NULL);
    g_queue_init(&cache->kept);
    return cache;
}

static void drop(struct wb_departures_cache *cache, GList *link)
{
    struct wb_departures *departures = link->data;

    cache->count -= departures->list->len;
    g_queue_delete_link(&cache->kept, link);
    wb_departures_unref(departures);
}

struct wb_departures_cache *wb_departures_cache_free(struct wb_departures_cache *cache)
{
    if (!cache)
        return NULL;
    while (cache->kept.head)
        drop(cache, cache->kept.head);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
    return NULL;
}

struct wb_departures *wb_departures_unref(struct wb_departures *departures)
{
    if (departures && atomic_fetch_sub(&departures->references, 1) == 1) {
        g_array_unref(departures->list);
        g_string_chunk_free(departures->names);
        g_free(departures);
    }
    return NULL;
}

size_t wb_departures_count(const struct wb_departures *departures)
{
    return departures->list->len;
}

/* ---- one pass over a catalog ------------------------------------------------------------------ */

static gint compare(gconstpointer a, gconstpointer b)
{
    const struct wb_departure *x = a, *y = b;
    int r = wb_object_compare(x->object, y->object);

    if (r == 0)
        r = strcmp(x->name, y->name);
    return r != 0 ? r : x->when < y->when ? -1 : x->when > y->when;
}

static const char *keep_name(struct wb_departures *departures, const char *name, size_t length)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, name, length);
    text[length] = '\0';
    return g_string_chunk_insert_const(departures->names, text);
}

/* `object`: the only one that counts, NULL: all. 0, or -E2BIG: there are more than `most`. */
static int note(struct wb_departures *departures, const struct wb_object *object, size_t most,
                const struct wb_record *record)
{
    for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];
        struct wb_departure one = {.object = slot->object, .when = record->when, .links = slot->attrs.nlink};

        if (!slot->present || (object && !wb_object_equal(slot->object, *object)))
            continue;
        if (departures->list->len == most)
            return -E2BIG;
        one.name = keep_name(departures, slot->name, slot->name_length);
        if (slot->unbind == WB_UNBIND_RENAMED) {
            one.to_dir = slot->to_dir;
            one.to_name = keep_name(departures, slot->to_name, slot->to_length);
        }
        g_array_append_val(departures->list, one);
    }
    return 0;
}

static int version_of(int fd, struct version *ret)
{
    struct stat st;
    int r;

    *ret = (struct version){.log = WB_OBJECT_NONE};
    if (fd < 0)
        return 0;
    r = wb_object_stat(NULL, fd, NULL, &ret->log, NULL, NULL);
    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r < 0)
        return r;
    ret->size = (uint64_t)st.st_size;
    ret->mtime = st.st_mtim;
    return 0;
}

static int gather(struct wb_history *history, struct wb_object dir, const struct wb_object *object, size_t most,
                  int64_t since, struct wb_departures **ret)
{
    struct wb_departures *departures;
    const struct wb_record *record;
    struct wb_log_scan scan;
    int r = wb_log_scan_open(&scan, history, dir, WB_FILE_CATALOG, since);

    if (r < 0)
        return r;
    departures = g_new0(struct wb_departures, 1);
    departures->references = 1;
    departures->dir = dir;
    departures->since = since;
    departures->list = g_array_new(FALSE, FALSE, sizeof(struct wb_departure));
    departures->names = g_string_chunk_new(4096);
    scan.through = true; /* what is found is compared with what is looked for */
    while (r == 0 && (r = wb_log_scan_next(&scan, &record)) == 0)
        r = note(departures, object, most, record);
    wb_log_scan_close(&scan);
    if (r < 0) {
        wb_departures_unref(departures);
        return r;
    }
    g_array_sort(departures->list, compare);
    *ret = departures;
    return 0;
}

/* ---- those that are kept ------------------------------------------------------------------------ */

static bool is_version(const struct version *a, const struct version *b)
{
    return wb_object_equal(a->log, b->log) && a->size == b->size && a->mtime.tv_sec == b->mtime.tv_sec &&
           a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* With the lock held. */
static GList *find(struct wb_departures_cache *cache, struct wb_object dir)
{
    for (GList *link = cache->kept.head; link; link = link->next)
        if (wb_object_equal(((struct wb_departures *)link->data)->dir, dir))
            return link;
    return NULL;
}

/* With the lock held: whether that was asked before, and has not been too much; it is noted. */
static bool was_asked(struct wb_departures_cache *cache, const struct asked *asked)
{
    for (unsigned i = 0; i < ASKED_MAX; i++) {
        struct asked *other = &cache->asked[i];

        if (!wb_object_equal(other->dir, asked->dir))
            continue;
        if (is_version(&other->version, &asked->version) && asked->since >= other->since)
            return !other->too_many;
        *other = *asked;
        return false;
    }
    cache->asked[cache->next_asked] = *asked;
    cache->next_asked = (cache->next_asked + 1) % ASKED_MAX;
    return false;
}

static void note_too_many(struct wb_departures_cache *cache, struct wb_object dir)
{
    pthread_mutex_lock(&cache->lock);
    for (unsigned i = 0; i < ASKED_MAX; i++)
        if (wb_object_equal(cache->asked[i].dir, dir))
            cache->asked[i].too_many = true;
    pthread_mutex_unlock(&cache->lock);
}

static void keep(struct wb_departures_cache *cache, struct wb_departures *departures)
{
    GList *link;

    pthread_mutex_lock(&cache->lock);
    link = find(cache, departures->dir);
    if (link)
        drop(cache, link);
    atomic_fetch_add(&departures->references, 1);
    g_queue_push_head(&cache->kept, departures);
    cache->count += departures->list->len;
    while (cache->kept.length > KEPT_MAX || cache->count > SHARED_MAX)
        drop(cache, cache->kept.tail);
    pthread_mutex_unlock(&cache->lock);
}

/* Those that are kept, referenced, or NULL: *ret_worthwhile: they had better be gathered. */
static struct wb_departures *kept(struct wb_departures_cache *cache, const struct asked *asked, bool *ret_worthwhile)
{
    struct wb_departures *found = NULL;
    GList *link;

    pthread_mutex_lock(&cache->lock);
    link = find(cache, asked->dir);
    if (link) {
        found = link->data;
        if (!is_version(&found->version, &asked->version)) {
            drop(cache, link);
            found = NULL;
        } else if (asked->since < found->since) {
            found = NULL;
        } else {
            g_queue_unlink(&cache->kept, link);
            g_queue_push_head_link(&cache->kept, link);
            atomic_fetch_add(&found->references, 1);
        }
    }
    *ret_worthwhile = !found && was_asked(cache, asked);
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static int look_at_catalog(const struct wb_history *history, struct wb_object dir, struct version *ret)
{
    int fd = wb_store_open_file(history->store, dir, WB_FILE_CATALOG, O_PATH | O_CLOEXEC);
    int r = fd < 0 && fd != -ENOENT ? fd : version_of(fd, ret);

    if (fd >= 0)
        close(fd);
    return r;
}

int wb_departures_of(struct wb_history *history, struct wb_object dir, struct wb_object object, int64_t since,
                     bool alone, struct wb_departures **ret)
{
    struct wb_departures_cache *cache = history->departures;
    struct asked asked = {.dir = dir, .since = since};
    bool worthwhile = false;
    int r;

    /* If it cannot be looked at, the pass says why. Records appended from now on make another version of it. */
    if (!alone && look_at_catalog(history, dir, &asked.version) == 0) {
        *ret = kept(cache, &asked, &worthwhile);
        if (*ret)
            return 0;
    }
    if (worthwhile) {
        r = gather(history, dir, NULL, SHARED_MAX, since, ret);
        if (r == 0) {
            (*ret)->version = asked.version;
            keep(cache, *ret);
        }
        if (r != -E2BIG)
            return r;
        note_too_many(cache, dir);
    }
    r = gather(history, dir, &object, DEPARTURES_MAX, since, ret);
    return r == -E2BIG ? wb_history_fail(-EIO, "an object was renamed more than %u times", DEPARTURES_MAX) : r;
}

const struct wb_departure *wb_departures_find(const struct wb_departures *departures, struct wb_object object,
                                              const char *name, int64_t when)
{
    struct wb_departure key = {.object = object, .name = name, .when = when};
    const struct wb_departure *found;
    guint low = 0;

    for (guint high = departures->list->len; low < high;) {
        guint middle = low + (high - low) / 2;

        if (compare(&g_array_index(departures->list, struct wb_departure, middle), &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == departures->list->len)
        return NULL;
    found = &g_array_index(departures->list, struct wb_departure, low);
    return wb_object_equal(found->object, object) && strcmp(found->name, name) == 0 ? found : NULL;
}
