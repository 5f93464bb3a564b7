/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/wire/table.h"

#include "base/checksum.h"
#include <errno.h>
#include <glib.h>
#include <stdalign.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define FIRST_PLACES 64
#define GROWTH 4
#define AT_ONCE 8 /* read at a time: as a rule what is sought, or a free place, is among the first */

static int make(struct wb_table *table, int dir_fd, size_t size, uint64_t place_count, uint64_t seed)
{
    *table = (struct wb_table){.size = size, .place_count = place_count, .seed = seed};
    return wb_scratch_init(&table->places, dir_fd, place_count * size);
}

int wb_table_init(struct wb_table *table, int dir_fd, size_t size)
{
    uint64_t seed = 0;

    g_assert(size <= WB_TABLE_ITEM_MAX);
    if (getrandom(&seed, sizeof(seed), 0) < 0)
        return -errno;
    return make(table, dir_fd, size, FIRST_PLACES, seed);
}

void wb_table_deinit(struct wb_table *table)
{
    wb_scratch_deinit(&table->places);
    table->count = 0;
}

int wb_table_clear(struct wb_table *table)
{
    int dir_fd = table->places.dir_fd;

    if (table->count == 0)
        return 0;
    wb_table_deinit(table);
    return make(table, dir_fd, table->size, FIRST_PLACES, table->seed);
}

struct wb_object wb_table_key(const struct wb_table *table, const void *data, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, length, table->seed);

    return (struct wb_object){hash.low64 | 1, (int64_t)hash.high64};
}

static struct wb_object key_of(const void *item)
{
    struct wb_object key;

    memcpy(&key, item, sizeof(key));
    return key;
}

/* 1: *ret_place has the item of that key, which is in `item` now; 0: it is free, and the key would be there; -errno. */
static int find(const struct wb_table *table, struct wb_object key, uint64_t *ret_place, void *item)
{
    const uint64_t parts[] = {key.ino, (uint64_t)key.birth, table->seed};
    uint64_t place = wb_checksum(parts, sizeof(parts)) % table->place_count;
    uint8_t data[AT_ONCE * WB_TABLE_ITEM_MAX];

    /* There always is a free one. */
    for (;;) {
        size_t count = (size_t)MIN(AT_ONCE, table->place_count - place);
        int r = wb_scratch_read(&table->places, data, count * table->size, place * table->size);

        if (r < 0)
            return r;
        for (size_t i = 0; i < count; i++) {
            const uint8_t *here = data + i * table->size;

            *ret_place = place + i;
            if (wb_object_is_none(key_of(here)))
                return 0;
            if (wb_object_equal(key_of(here), key)) {
                memcpy(item, here, table->size);
                return 1;
            }
        }
        place = (place + count) % table->place_count;
    }
}

int wb_table_get(const struct wb_table *table, struct wb_object key, void *ret)
{
    uint64_t place;

    return find(table, key, &place, ret);
}

static int put_into(const void *item, void *larger)
{
    return wb_table_put(larger, item);
}

static int grow(struct wb_table *table)
{
    struct wb_table larger;
    int r = make(&larger, table->places.dir_fd, table->size, table->place_count * GROWTH, table->seed);

    if (r == 0)
        r = wb_table_each(table, put_into, &larger);
    wb_table_deinit(r == 0 ? table : &larger);
    if (r == 0)
        *table = larger;
    return r;
}

int wb_table_put(struct wb_table *table, const void *item)
{
    uint8_t there[WB_TABLE_ITEM_MAX];
    uint64_t place;
    int found = find(table, key_of(item), &place, there), r;

    if (found == 0 && table->count >= table->place_count / 3 * 2) {
        r = grow(table);
        found = r < 0 ? r : find(table, key_of(item), &place, there);
    }
    if (found < 0)
        return found;
    r = wb_scratch_write(&table->places, item, table->size, place * table->size);
    table->count += r == 0 && found == 0;
    return r;
}

int wb_table_each(struct wb_table *table, int (*each)(const void *item, void *data), void *data)
{
    alignas(max_align_t) uint8_t item[WB_TABLE_ITEM_MAX];
    uint8_t batch[AT_ONCE * WB_TABLE_ITEM_MAX];
    int r = 0;

    for (uint64_t place = 0; r == 0 && place < table->place_count; place += AT_ONCE) {
        r = wb_scratch_read(&table->places, batch, AT_ONCE * table->size, place * table->size);
        for (size_t i = 0; r == 0 && i < AT_ONCE; i++) {
            memcpy(item, batch + i * table->size, table->size);
            if (!wb_object_is_none(key_of(item)))
                r = each(item, data);
        }
    }
    return r;
}
