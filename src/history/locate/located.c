/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Directories that were found lately, by a descriptor of each. A descriptor stays with its inode wherever
 * that moves, to the graveyard too, so it never becomes wrong; a directory that was removed for good is one
 * without links. Who walks a tree of the past finds each entry through the directory found before, instead of
 * from the root: what has moved would cost a search for each of its ancestors each time.
 */
#include "history/internal.h"

#include <fcntl.h>
#include <unistd.h>

#define LOCATED_MAX 16

struct located {
    struct wb_object object;
    int fd;
    uint64_t used;
};

struct wb_located {
    pthread_mutex_t lock;
    uint64_t clock;
    unsigned count;
    struct located entries[LOCATED_MAX];
};

struct wb_located *wb_located_new(void)
{
    struct wb_located *located = g_new0(struct wb_located, 1);

    pthread_mutex_init(&located->lock, NULL);
    return located;
}

struct wb_located *wb_located_free(struct wb_located *located)
{
    if (!located)
        return NULL;
    while (located->count > 0)
        close(located->entries[--located->count].fd);
    pthread_mutex_destroy(&located->lock);
    g_free(located);
    return NULL;
}

static struct located *find(struct wb_located *located, struct wb_object object)
{
    for (unsigned i = 0; i < located->count; i++)
        if (wb_object_equal(located->entries[i].object, object))
            return &located->entries[i];
    return NULL;
}

int wb_located_get(struct wb_located *located, struct wb_object object)
{
    struct located *entry;
    struct stat st;
    int fd = -1;

    pthread_mutex_lock(&located->lock);
    entry = find(located, object);
    if (entry && (fstat(entry->fd, &st) < 0 || st.st_nlink == 0)) {
        close(entry->fd);
        *entry = located->entries[--located->count];
    } else if (entry) {
        entry->used = ++located->clock;
        fd = fcntl(entry->fd, F_DUPFD_CLOEXEC, 3);
    }
    pthread_mutex_unlock(&located->lock);
    return fd;
}

/* The one to be given up: a free one, or the one used longest ago. */
static struct located *make_room(struct wb_located *located)
{
    struct located *oldest = &located->entries[0];

    if (located->count < LOCATED_MAX)
        return &located->entries[located->count++];
    for (unsigned i = 1; i < located->count; i++)
        if (located->entries[i].used < oldest->used)
            oldest = &located->entries[i];
    close(oldest->fd);
    return oldest;
}

void wb_located_put(struct wb_located *located, struct wb_object object, int fd)
{
    int own;

    pthread_mutex_lock(&located->lock);
    own = find(located, object) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own >= 0)
        *make_room(located) = (struct located){object, own, ++located->clock};
    pthread_mutex_unlock(&located->lock);
}
