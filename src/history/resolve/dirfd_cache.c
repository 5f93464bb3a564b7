/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Directories that were found lately, by a descriptor of each. A descriptor stays with its inode wherever
 * that moves, to the graveyard too, so it never becomes wrong; a directory that was removed for good is one
 * without links. A walk over a tree of the past finds each entry through the directory found before, instead of
 * from the root: a moved object would cost a search for each of its ancestors each time.
 */
#include "history/internal.h"

#include <fcntl.h>
#include <unistd.h>

#define DIRFD_CACHE_MAX 16

struct dirfd_entry {
    struct wb_object object;
    int fd;
    uint64_t used;
};

struct wb_dirfd_cache {
    pthread_mutex_t lock;
    uint64_t clock;
    unsigned count;
    struct dirfd_entry entries[DIRFD_CACHE_MAX];
};

struct wb_dirfd_cache *wb_dirfd_cache_new(void)
{
    struct wb_dirfd_cache *dirfd_cache = g_new0(struct wb_dirfd_cache, 1);

    pthread_mutex_init(&dirfd_cache->lock, NULL);
    return dirfd_cache;
}

struct wb_dirfd_cache *wb_dirfd_cache_free(struct wb_dirfd_cache *dirfd_cache)
{
    if (!dirfd_cache)
        return NULL;
    while (dirfd_cache->count > 0)
        close(dirfd_cache->entries[--dirfd_cache->count].fd);
    pthread_mutex_destroy(&dirfd_cache->lock);
    g_free(dirfd_cache);
    return NULL;
}

static struct dirfd_entry *find(struct wb_dirfd_cache *dirfd_cache, struct wb_object object)
{
    for (unsigned i = 0; i < dirfd_cache->count; i++)
        if (wb_object_equal(dirfd_cache->entries[i].object, object))
            return &dirfd_cache->entries[i];
    return NULL;
}

int wb_dirfd_cache_get(struct wb_dirfd_cache *dirfd_cache, struct wb_object object)
{
    struct dirfd_entry *entry;
    struct stat st;
    int fd = -1;

    pthread_mutex_lock(&dirfd_cache->lock);
    entry = find(dirfd_cache, object);
    if (entry && (fstat(entry->fd, &st) < 0 || st.st_nlink == 0)) {
        close(entry->fd);
        *entry = dirfd_cache->entries[--dirfd_cache->count];
    } else if (entry) {
        entry->used = ++dirfd_cache->clock;
        fd = fcntl(entry->fd, F_DUPFD_CLOEXEC, 3);
    }
    pthread_mutex_unlock(&dirfd_cache->lock);
    return fd;
}

/* The one to be given up: a free one, or the one used longest ago. */
static struct dirfd_entry *make_room(struct wb_dirfd_cache *dirfd_cache)
{
    struct dirfd_entry *oldest = &dirfd_cache->entries[0];

    if (dirfd_cache->count < DIRFD_CACHE_MAX)
        return &dirfd_cache->entries[dirfd_cache->count++];
    for (unsigned i = 1; i < dirfd_cache->count; i++)
        if (dirfd_cache->entries[i].used < oldest->used)
            oldest = &dirfd_cache->entries[i];
    close(oldest->fd);
    return oldest;
}

void wb_dirfd_cache_put(struct wb_dirfd_cache *dirfd_cache, struct wb_object object, int fd)
{
    int own;

    pthread_mutex_lock(&dirfd_cache->lock);
    own = find(dirfd_cache, object) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own >= 0)
        *make_room(dirfd_cache) = (struct dirfd_entry){object, own, ++dirfd_cache->clock};
    pthread_mutex_unlock(&dirfd_cache->lock);
}
