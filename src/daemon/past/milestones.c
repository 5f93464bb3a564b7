/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/milestones.h"

#include <glib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define STEP 1024
/* Lists, and milestones of each: 64 MiB versions, 1 MiB of memory for each list. */
#define LISTS_MAX 16
#define LENGTH_MAX (64u * 1024)

struct milestone {
    int64_t when;
    int64_t position;
    struct wb_save_mark mark; /* `save` counts from that of the list's first milestone */
};

struct list {
    atomic_uint references;
    struct wb_object dir, object;
    char *name;
    GArray *milestones; /* of struct milestone, newest first; under the lock of all lists */
};

struct wb_milestones {
    pthread_mutex_t lock;
    GQueue lists; /* the one used last comes first */
    uint64_t epoch;
};

struct wb_milestone_walk {
    struct wb_milestones *all;
    uint64_t epoch;
    struct wb_object dir;
    char *name;
    int64_t settled;        /* later versions are not counted from */
    struct list *list;      /* NULL: no version was met yet */
    struct milestone first; /* the list's when the walk met the first version */
    bool has_place;         /* the walk has met `first` */
    int64_t base;           /* number of a version minus its position */
    uint32_t save_base;     /* the same of its save, modulo 2^32 */
    GArray *ahead;          /* of struct milestone, with numbers as positions: met before `first` */
};

struct wb_milestones *wb_milestones_new(void)
{
    struct wb_milestones *all = g_try_new0(struct wb_milestones, 1);

    if (!all)
        return NULL;
    pthread_mutex_init(&all->lock, NULL);
    g_queue_init(&all->lists);
    return all;
}

static void list_unref(struct list *list)
{
    if (list && atomic_fetch_sub(&list->references, 1) == 1) {
        g_array_unref(list->milestones);
        g_free(list->name);
        g_free(list);
    }
}

void wb_milestones_drop(struct wb_milestones *all)
{
    struct list *list;

    pthread_mutex_lock(&all->lock);
    while ((list = g_queue_pop_head(&all->lists)))
        list_unref(list);
    all->epoch++;
    pthread_mutex_unlock(&all->lock);
}

struct wb_milestones *wb_milestones_free(struct wb_milestones *all)
{
    if (!all)
        return NULL;
    wb_milestones_drop(all);
    pthread_mutex_destroy(&all->lock);
    g_free(all);
    return NULL;
}

/* ---- lists, with the lock held ------------------------------------------------------------------ */

static GList *find(struct wb_milestones *all, const struct wb_milestone_walk *walk, struct wb_object object)
{
    for (GList *link = all->lists.head; link; link = link->next) {
        const struct list *list = link->data;

        if (wb_object_equal(list->object, object) && wb_object_equal(list->dir, walk->dir) &&
            strcmp(list->name, walk->name) == 0)
            return link;
    }
    return NULL;
}

/* A list that begins with the version `met`, in the place of the one there may be. */
static struct list *make(struct wb_milestones *all, const struct wb_milestone_walk *walk, struct wb_object object,
                         const struct milestone *met)
{
    struct milestone first = {.when = met->when, .mark = met->mark};
    struct list *list = g_new0(struct list, 1);
    GList *link = find(all, walk, object);

    if (link) {
        list_unref(link->data);
        g_queue_delete_link(&all->lists, link);
    }
    first.mark.save = 0;
    list->references = 1;
    list->dir = walk->dir;
    list->object = object;
    list->name = g_strdup(walk->name);
    list->milestones = g_array_new(FALSE, FALSE, sizeof(struct milestone));
    g_array_append_val(list->milestones, first);
    g_queue_push_head(&all->lists, list);
    if (all->lists.length > LISTS_MAX)
        list_unref(g_queue_pop_tail(&all->lists));
    return list;
}

/* The walk goes by `list` from now on. */
static void use(struct wb_milestone_walk *walk, struct list *list)
{
    atomic_fetch_add(&list->references, 1);
    list_unref(walk->list);
    walk->list = list;
    walk->first = g_array_index(list->milestones, struct milestone, 0);
}

static void add(struct list *list, struct milestone one)
{
    const struct milestone *first = &g_array_index(list->milestones, struct milestone, 0);
    const struct milestone *last = first + list->milestones->len - 1;

    if (list->milestones->len == LENGTH_MAX)
        return;
    if (one.position >= last->position + STEP && one.when < last->when)
        g_array_append_val(list->milestones, one);
    else if (one.position <= first->position - STEP && one.when > first->when)
        g_array_prepend_val(list->milestones, one);
}

/* ---- walks -------------------------------------------------------------------------------------- */

struct wb_milestone_walk *wb_milestone_walk_new(struct wb_milestones *all, struct wb_object dir, const char *name,
                                                int64_t settled)
{
    struct wb_milestone_walk *walk = g_new0(struct wb_milestone_walk, 1);

    walk->all = all;
    walk->dir = dir;
    walk->name = g_strdup(name);
    walk->settled = settled;
    walk->ahead = g_array_new(FALSE, FALSE, sizeof(struct milestone));
    pthread_mutex_lock(&all->lock);
    walk->epoch = all->epoch;
    pthread_mutex_unlock(&all->lock);
    return walk;
}

struct wb_milestone_walk *wb_milestone_walk_free(struct wb_milestone_walk *walk)
{
    if (!walk)
        return NULL;
    list_unref(walk->list);
    g_array_unref(walk->ahead);
    g_free(walk->name);
    g_free(walk);
    return NULL;
}

/* The first version that counts: of whichever list there is. */
static void begin(struct wb_milestone_walk *walk, struct wb_object object, const struct milestone *met)
{
    GList *link = find(walk->all, walk, object);

    if (!link) {
        use(walk, make(walk->all, walk, object, met));
        return;
    }
    g_queue_unlink(&walk->all->lists, link);
    g_queue_push_head_link(&walk->all->lists, link);
    use(walk, link->data);
}

/* The version with that number is the list's first one: those that were met before it precede it. */
static void take_place(struct wb_milestone_walk *walk, const struct milestone *met)
{
    walk->has_place = true;
    walk->base = met->position - walk->first.position;
    walk->save_base = met->mark.save - walk->first.mark.save;
    for (guint i = walk->ahead->len; i-- > 0;) {
        struct milestone one = g_array_index(walk->ahead, struct milestone, i);

        one.position -= walk->base;
        one.mark.save -= walk->save_base;
        add(walk->list, one);
    }
    g_array_set_size(walk->ahead, 0);
}

/* With the lock held. */
static void met(struct wb_milestone_walk *walk, struct wb_object object, struct milestone one)
{
    int64_t when = one.when;

    if (!walk->list)
        begin(walk, object, &one);
    if (!wb_object_equal(object, walk->list->object))
        return;
    /* The version that the list begins with is none any more: the change failed after all. */
    if (!walk->has_place && when < walk->first.when)
        use(walk, make(walk->all, walk, object, &one));
    if (!walk->has_place && when == walk->first.when)
        take_place(walk, &one);
    if (walk->has_place) {
        one.position -= walk->base;
        one.mark.save -= walk->save_base;
        add(walk->list, one);
    } else if (walk->ahead->len == 0 ||
               one.position >= g_array_index(walk->ahead, struct milestone, walk->ahead->len - 1).position + STEP) {
        g_array_append_val(walk->ahead, one);
    }
}

void wb_milestone_walk_met(struct wb_milestone_walk *walk, struct wb_object object, const struct wb_version *version,
                           const struct wb_save_mark *mark)
{
    if (version->when > walk->settled || version->save == 0)
        return;
    pthread_mutex_lock(&walk->all->lock);
    if (walk->epoch == walk->all->epoch)
        met(walk, object, (struct milestone){version->when, version->change, *mark});
    pthread_mutex_unlock(&walk->all->lock);
}

bool wb_milestone_walk_leap(struct wb_milestone_walk *walk, uint32_t at, uint32_t until, int64_t later,
                            int64_t *ret_when, uint32_t *ret_change, struct wb_save_mark *ret_mark)
{
    struct milestone found = {0};
    guint low = 0;

    if (!walk->has_place)
        return false;
    pthread_mutex_lock(&walk->all->lock);
    for (guint high = walk->epoch == walk->all->epoch ? walk->list->milestones->len : 0; low < high;) {
        guint middle = low + (high - low) / 2;
        const struct milestone *one = &g_array_index(walk->list->milestones, struct milestone, middle);

        if (one->position + walk->base <= until && one->when > later)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        found = g_array_index(walk->list->milestones, struct milestone, low - 1);
    pthread_mutex_unlock(&walk->all->lock);
    if (low == 0 || found.position + walk->base <= at)
        return false;
    *ret_when = found.when;
    *ret_change = (uint32_t)(found.position + walk->base);
    *ret_mark = found.mark;
    ret_mark->save += walk->save_base;
    return true;
}
