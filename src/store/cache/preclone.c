/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/cache/preclone.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* A clone, and the state of each unit of it; it is removed from its slot before any part of the image is punched. */
struct clone {
    int image;
    uint64_t from, to, source, unit;
    uint8_t *touched;  /* a bit for each unit: some byte of it changed since the clone */
    uint8_t *referred; /* a record may refer to some byte of it */
};

/* An object's number selects its slot: two objects with the same slot take turns (`used`). */
struct slot {
    pthread_mutex_t lock;
    struct wb_object object;
    uint64_t next, run; /* the end of the last large change, and the length of the consecutive changes up to it */
    bool used;          /* there were consecutive changes since wb_preclone_age last checked */
    struct clone *clone;
};

struct wb_preclone {
    struct slot slots[WB_PRECLONE_SLOTS];
};

static struct slot *slot_of(struct wb_preclone *ahead, struct wb_object object)
{
    uint64_t mixed = (object.ino ^ (uint64_t)object.birth * 31) * UINT64_C(0x9e3779b97f4a7c15);

    return &ahead->slots[(mixed >> 40) % WB_PRECLONE_SLOTS];
}

/* ---- a clone --------------------------------------------------------------------------------- */

static bool bit(const uint8_t *map, uint64_t i)
{
    return map[i / 8] >> (i % 8) & 1;
}

static void set_bits(uint8_t *map, uint64_t from, uint64_t to)
{
    for (; from < to && from % 8; from++)
        map[from / 8] |= (uint8_t)(1u << from % 8);
    if (to - from >= 8) {
        memset(map + from / 8, 0xff, (to - from) / 8);
        from += (to - from) / 8 * 8;
    }
    for (; from < to; from++)
        map[from / 8] |= (uint8_t)(1u << from % 8);
}

static bool any_bit(const uint8_t *map, uint64_t from, uint64_t to)
{
    while (from < to) {
        if (from % 8 == 0 && to - from >= 8 && map[from / 8] == 0)
            from += 8;
        else if (bit(map, from++))
            return true;
    }
    return false;
}

static uint64_t units(const struct clone *clone)
{
    return (clone->to - clone->from + clone->unit - 1) / clone->unit;
}

static struct clone *clone_free(struct clone *clone)
{
    if (clone) {
        if (clone->image >= 0)
            close(clone->image);
        g_free(clone->touched);
        g_free(clone->referred);
        g_free(clone);
    }
    return NULL;
}

static struct clone *clone_new(int image, uint64_t from, uint64_t to, uint64_t source, uint64_t block)
{
    struct clone *clone = g_try_new0(struct clone, 1);
    uint64_t bytes;

    if (!clone)
        return NULL;
    clone->from = from;
    clone->to = to;
    clone->source = source;
    clone->unit = MAX(block, WB_PRECLONE_UNIT);
    bytes = (units(clone) + 7) / 8;
    clone->touched = g_try_malloc0(bytes);
    clone->referred = g_try_malloc0(bytes);
    clone->image = fcntl(image, F_DUPFD_CLOEXEC, 3);
    return clone->image >= 0 && clone->touched && clone->referred ? clone : clone_free(clone);
}

/* Punches the parts of the image that no record refers to; a failure only wastes space. Returns NULL. */
static struct clone *clone_settle(struct clone *clone)
{
    uint64_t count = clone ? units(clone) : 0;

    for (uint64_t i = 0, end; i < count; i = end) {
        bool referred = bit(clone->referred, i);
        uint64_t from = i * clone->unit, to;

        for (end = i + 1; end < count && bit(clone->referred, end) == referred; end++)
            ;
        to = MIN(end * clone->unit, clone->to - clone->from);
        if (!referred && fallocate(clone->image, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   (off_t)(clone->source + from), (off_t)(to - from)) < 0)
            break;
    }
    return clone_free(clone);
}

/* ---- slots ----------------------------------------------------------------------------------- */

struct wb_preclone *wb_preclone_new(void)
{
    struct wb_preclone *ahead = g_try_new0(struct wb_preclone, 1);

    for (unsigned i = 0; ahead && i < WB_PRECLONE_SLOTS; i++)
        pthread_mutex_init(&ahead->slots[i].lock, NULL);
    return ahead;
}

struct wb_preclone *wb_preclone_free(struct wb_preclone *ahead)
{
    for (unsigned i = 0; ahead && i < WB_PRECLONE_SLOTS; i++) {
        clone_settle(ahead->slots[i].clone);
        pthread_mutex_destroy(&ahead->slots[i].lock);
    }
    g_free(ahead);
    return NULL;
}

int wb_preclone_consume(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, bool refer,
                        uint64_t *ret_source)
{
    struct clone *clone;
    struct slot *slot;
    int found = 0;

    if (!store->preclone)
        return 0;
    slot = slot_of(store->preclone, object);
    pthread_mutex_lock(&slot->lock);
    clone = wb_object_equal(slot->object, object) ? slot->clone : NULL;
    if (clone && from < clone->to && to > clone->from && from < to) {
        uint64_t first = (MAX(from, clone->from) - clone->from) / clone->unit;
        uint64_t last = (MIN(to, clone->to) - clone->from + clone->unit - 1) / clone->unit;

        if (refer && from >= clone->from && to <= clone->to && !any_bit(clone->touched, first, last)) {
            set_bits(clone->referred, first, last);
            *ret_source = clone->source + (from - clone->from);
            slot->used = slot->used || from == slot->next;
            slot->run = from == slot->next ? slot->run + (to - from) : to - from;
            slot->next = to;
            found = 1;
        }
        set_bits(clone->touched, first, last);
    }
    pthread_mutex_unlock(&slot->lock);
    return found;
}

uint64_t wb_preclone_plan(struct wb_store *store, struct wb_object object, uint64_t from, uint64_t to, uint64_t size)
{
    struct clone *old = NULL;
    uint64_t end = to, more;
    struct slot *slot;

    if (!store->preclone)
        return to;
    slot = slot_of(store->preclone, object);
    pthread_mutex_lock(&slot->lock);
    if (!wb_object_equal(slot->object, object) && slot->clone && slot->used) {
        slot->used = false; /* another object may replace it next time, unless it is used again */
    } else if (!wb_object_equal(slot->object, object)) {
        old = slot->clone;
        slot->clone = NULL;
        slot->object = object;
        slot->run = to - from;
        slot->next = to;
    } else {
        slot->run = from == slot->next ? slot->run + (to - from) : 0;
        more = MIN(slot->run * WB_PRECLONE_TIMES, WB_PRECLONE_MAX);
        if (to < size && to - from < WB_PRECLONE_MAX)
            end = to + MIN(size - to, MIN(more, WB_PRECLONE_MAX - (to - from)));
        slot->run = MAX(slot->run, to - from);
        slot->next = to;
    }
    pthread_mutex_unlock(&slot->lock);
    clone_settle(old);
    return end;
}

void wb_preclone_keep(struct wb_store *store, struct wb_object object, int image, uint64_t from, uint64_t to,
                      uint64_t source, uint64_t used, uint64_t block)
{
    struct slot *slot = slot_of(store->preclone, object);
    struct clone *clone = clone_new(image, from, to, source, block), *old = clone;
    uint64_t done;

    if (!clone)
        return; /* no memory: the space is freed with the image */
    done = (MIN(used, to) - from + clone->unit - 1) / clone->unit;
    set_bits(clone->touched, 0, done);
    set_bits(clone->referred, 0, done);
    pthread_mutex_lock(&slot->lock);
    if (wb_object_equal(slot->object, object)) {
        old = slot->clone;
        slot->clone = clone;
        slot->used = true;
    }
    pthread_mutex_unlock(&slot->lock);
    clone_settle(old);
}

void wb_preclone_release(struct wb_store *store, struct wb_object object)
{
    struct clone *old = NULL;
    struct slot *slot;

    if (!store->preclone)
        return;
    slot = slot_of(store->preclone, object);
    pthread_mutex_lock(&slot->lock);
    if (wb_object_equal(slot->object, object)) {
        old = slot->clone;
        slot->clone = NULL;
        slot->object = WB_OBJECT_NONE;
    }
    pthread_mutex_unlock(&slot->lock);
    clone_settle(old);
}

void wb_preclone_age(struct wb_store *store)
{
    for (unsigned i = 0; store->preclone && i < WB_PRECLONE_SLOTS; i++) {
        struct slot *slot = &store->preclone->slots[i];
        struct clone *old = NULL;

        pthread_mutex_lock(&slot->lock);
        if (!slot->used) {
            old = slot->clone;
            slot->clone = NULL;
        }
        slot->used = false;
        pthread_mutex_unlock(&slot->lock);
        clone_settle(old);
    }
}
