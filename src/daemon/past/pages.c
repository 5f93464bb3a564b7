/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/pages.h"

#include "daemon/past/milestones.h"

#define IDLE (30 * G_USEC_PER_SEC)

void wb_pages_init(struct wb_pages *pages, unsigned most)
{
    pthread_mutex_init(&pages->lock, NULL);
    g_queue_init(&pages->kept);
    pages->most = most;
}

struct wb_paged *wb_pages_take(struct wb_pages *pages, const struct wb_paged *wanted,
                               bool (*continues)(const struct wb_paged *paged, const struct wb_paged *wanted))
{
    GQueue stale = G_QUEUE_INIT;
    struct wb_paged *found = NULL, *old;
    int64_t now = g_get_monotonic_time();

    pthread_mutex_lock(&pages->lock);
    for (GList *link = pages->kept.head, *next; link; link = next) {
        struct wb_paged *paged = link->data;

        next = link->next;
        if (!found && paged->generation == wanted->generation && continues(paged, wanted))
            found = paged;
        else if (now - paged->used <= IDLE)
            continue;
        else
            g_queue_push_tail(&stale, paged);
        g_queue_delete_link(&pages->kept, link);
    }
    pthread_mutex_unlock(&pages->lock);
    while ((old = g_queue_pop_head(&stale)))
        old->destroy(old);
    return found;
}

void wb_pages_keep(struct wb_pages *pages, struct wb_paged *paged, void (*destroy)(struct wb_paged *paged))
{
    struct wb_paged *oldest = NULL;

    paged->used = g_get_monotonic_time();
    paged->destroy = destroy;
    pthread_mutex_lock(&pages->lock);
    g_queue_push_tail(&pages->kept, paged);
    if (pages->kept.length > pages->most)
        oldest = g_queue_pop_head(&pages->kept);
    pthread_mutex_unlock(&pages->lock);
    if (oldest)
        oldest->destroy(oldest);
}

void wb_pages_drop(struct wb_pages *pages)
{
    struct wb_paged *paged;

    do {
        pthread_mutex_lock(&pages->lock);
        paged = g_queue_pop_head(&pages->kept);
        pthread_mutex_unlock(&pages->lock);
        if (paged)
            paged->destroy(paged);
    } while (paged);
}

uint64_t wb_pages_generation(struct wb_past *past)
{
    uint64_t generation;

    pthread_mutex_lock(&past->lock);
    generation = past->generation;
    pthread_mutex_unlock(&past->lock);
    return generation;
}

/* How many of each: a walk is small, a list holds all names of a directory; two trees that are compared are walked
 * side by side, a directory of each at a time. */
void wb_control_pages_init(struct wb_past *past)
{
    wb_pages_init(&past->walks, 16);
    wb_pages_init(&past->lists, 4);
    wb_pages_init(&past->entries, 8);
    wb_pages_init(&past->usages, 4);
    wb_pages_init(&past->edits, 4);
}

void wb_control_pages_drop(struct wb_past *past)
{
    wb_milestones_drop(past->milestones);
    wb_pages_drop(&past->walks);
    wb_pages_drop(&past->lists);
    wb_pages_drop(&past->entries);
    wb_pages_drop(&past->usages);
    wb_pages_drop(&past->edits);
}
