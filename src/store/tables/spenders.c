/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/tables/spenders.h"

#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <stdlib.h>

#define SLOTS_LEAST 64u

struct slot {
    uint32_t uid; /* 0: free */
    bool stuck;
    uint64_t measured, grown;
    uint64_t found, before; /* while it is measured: bytes found, and `grown` when that began */
};

/* A table by uid, open to the next slot: a write may not fail for want of memory, as a GHashTable makes it. */
struct wb_spenders {
    pthread_mutex_t lock;
    struct slot *slots;
    unsigned room, used; /* room is a power of two */
    bool known;
};

struct wb_spenders *wb_spenders_new(void)
{
    struct wb_spenders *spenders = g_try_new0(struct wb_spenders, 1);

    if (spenders)
        pthread_mutex_init(&spenders->lock, NULL);
    return spenders;
}

struct wb_spenders *wb_spenders_free(struct wb_spenders *spenders)
{
    if (!spenders)
        return NULL;
    pthread_mutex_destroy(&spenders->lock);
    g_free(spenders->slots);
    g_free(spenders);
    return NULL;
}

void wb_spenders_limit(struct wb_store *store, uint64_t limit)
{
    struct wb_spenders *spenders = store->spenders;

    if (!spenders)
        return;
    pthread_mutex_lock(&spenders->lock);
    /* What was recorded without a limit was not counted. */
    if (limit == 0)
        spenders->known = false;
    atomic_store(&store->user_limit, limit);
    pthread_mutex_unlock(&spenders->lock);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The slot of the user, or the free one where it would be. There is a free one. */
static struct slot *find(struct slot *slots, unsigned room, uint32_t uid)
{
    unsigned at = uid * 2654435761u & (room - 1);

    while (slots[at].uid != 0 && slots[at].uid != uid)
        at = (at + 1) & (room - 1);
    return &slots[at];
}

static bool grow(struct wb_spenders *spenders)
{
    unsigned room = MAX(2 * spenders->room, SLOTS_LEAST);
    struct slot *slots = g_try_new0(struct slot, room);

    if (!slots)
        return false;
    for (unsigned i = 0; i < spenders->room; i++)
        if (spenders->slots[i].uid != 0)
            *find(slots, room, spenders->slots[i].uid) = spenders->slots[i];
    g_free(spenders->slots);
    spenders->slots = slots;
    spenders->room = room;
    return true;
}

/* With the lock held. NULL: there is none, and no memory for it: it is counted when it is measured next. */
static struct slot *slot_of(struct wb_spenders *spenders, uint32_t uid, bool make)
{
    struct slot *slot = spenders->room > 0 ? find(spenders->slots, spenders->room, uid) : NULL;

    if (slot && slot->uid == uid)
        return slot;
    if (!make || (2 * spenders->used >= spenders->room && !grow(spenders)))
        return NULL;
    slot = find(spenders->slots, spenders->room, uid);
    *slot = (struct slot){.uid = uid};
    spenders->used++;
    return slot;
}

/* ---- what is recorded ------------------------------------------------------------------------ */

uint32_t wb_spenders_uid(struct wb_store *store, uint32_t actor, int64_t when, uint32_t owner)
{
    uint32_t uid;

    return wb_store_actor_uid(store, actor, when, &uid) == 0 ? uid : owner;
}

uint32_t wb_spenders_owner(const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_DATA:
        return record->data.attrs.uid;
    case WB_REC_ATTR:
        return record->attr.attrs.uid;
    case WB_REC_XATTR:
        return record->xattr.attrs.uid;
    case WB_REC_NAME:
        return record->name.dir.uid;
    default:
        return 0;
    }
}

void wb_store_note_growth(struct wb_store *store, uint32_t actor, uint32_t owner, uint64_t bytes)
{
    struct wb_spenders *spenders = store->spenders;
    struct slot *slot;
    uint32_t uid;

    atomic_fetch_add_explicit(&store->grown, bytes, memory_order_relaxed);
    if (atomic_load_explicit(&store->user_limit, memory_order_relaxed) == 0)
        return;
    uid = wb_spenders_uid(store, actor, WB_WHEN_PRESENT, owner);
    if (uid == 0)
        return;
    pthread_mutex_lock(&spenders->lock);
    slot = slot_of(spenders, uid, true);
    if (slot)
        slot->grown += bytes;
    pthread_mutex_unlock(&spenders->lock);
}

/* ---- what was measured ----------------------------------------------------------------------- */

void wb_spenders_begin(struct wb_store *store)
{
    struct wb_spenders *spenders = store->spenders;

    pthread_mutex_lock(&spenders->lock);
    for (unsigned i = 0; i < spenders->room; i++) {
        spenders->slots[i].found = 0;
        spenders->slots[i].before = spenders->slots[i].grown;
    }
    pthread_mutex_unlock(&spenders->lock);
}

void wb_spenders_set(struct wb_store *store, uint32_t uid, uint64_t bytes)
{
    struct wb_spenders *spenders = store->spenders;
    struct slot *slot;

    if (uid == 0)
        return;
    pthread_mutex_lock(&spenders->lock);
    slot = slot_of(spenders, uid, true);
    if (slot)
        slot->found = bytes;
    pthread_mutex_unlock(&spenders->lock);
}

void wb_spenders_end(struct wb_store *store)
{
    struct wb_spenders *spenders = store->spenders;

    pthread_mutex_lock(&spenders->lock);
    for (unsigned i = 0; i < spenders->room; i++) {
        struct slot *slot = &spenders->slots[i];

        slot->measured = slot->found;
        slot->grown -= slot->before;
        slot->before = 0;
    }
    spenders->known = atomic_load(&store->user_limit) > 0;
    pthread_mutex_unlock(&spenders->lock);
}

static struct wb_spender spender_of(const struct slot *slot)
{
    return (struct wb_spender){slot->uid, slot->stuck, slot->measured + slot->grown};
}

bool wb_spenders_get(struct wb_store *store, uint32_t uid, struct wb_spender *ret)
{
    struct wb_spenders *spenders = store->spenders;
    const struct slot *slot;
    bool known;

    *ret = (struct wb_spender){.uid = uid};
    if (!spenders || atomic_load_explicit(&store->user_limit, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&spenders->lock);
    slot = slot_of(spenders, uid, false);
    known = spenders->known;
    if (slot)
        *ret = spender_of(slot);
    pthread_mutex_unlock(&spenders->lock);
    return known;
}

void wb_spenders_set_stuck(struct wb_store *store, uint32_t uid, bool stuck)
{
    struct wb_spenders *spenders = store->spenders;
    struct slot *slot;

    pthread_mutex_lock(&spenders->lock);
    slot = slot_of(spenders, uid, false);
    if (slot)
        slot->stuck = stuck;
    pthread_mutex_unlock(&spenders->lock);
}

static int by_uid(const void *a, const void *b)
{
    uint32_t x = ((const struct wb_spender *)a)->uid, y = ((const struct wb_spender *)b)->uid;

    return x < y ? -1 : x > y;
}

int64_t wb_spenders_list(struct wb_store *store, struct wb_spender **ret)
{
    struct wb_spenders *spenders = store->spenders;
    int64_t count = 0;

    *ret = NULL;
    if (!spenders)
        return 0;
    pthread_mutex_lock(&spenders->lock);
    *ret = g_try_new(struct wb_spender, spenders->used + 1);
    for (unsigned i = 0; *ret && spenders->known && i < spenders->room; i++)
        if (spenders->slots[i].uid != 0 && spenders->slots[i].measured + spenders->slots[i].grown > 0)
            (*ret)[count++] = spender_of(&spenders->slots[i]);
    pthread_mutex_unlock(&spenders->lock);
    if (!*ret)
        return -ENOMEM;
    qsort(*ret, (size_t)count, sizeof(**ret), by_uid);
    return count;
}
