/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/usage/spent.h"

#include "format/object_key.h"
#include "store/directory/shard.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"
#include "store/tables/spenders.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK 512
/* Deleted files, and files of the user, that are kept in mind: some 80 bytes each. */
#define THINGS_MAX (1u << 20)

struct sum {
    uint32_t uid;
    uint64_t bytes;
};

struct thing {
    struct wb_object object;
    uint64_t body;   /* bytes of the deleted file */
    int64_t deleted; /* when it last was, by `by`; 0: not */
    uint32_t by;
    bool own;        /* something of it may go */
    int64_t others;  /* the first change that is not to go; 0: none */
};

struct walk {
    struct wb_spent *spent;
    struct wb_store *store;
    uint32_t uid;
    bool (*stop)(void *data);
    void *data;
    struct wb_room_ages *lengths; /* of one log: of prunable records, before their space is known */
    GArray *shares;               /* the same of each user: struct sum */
};

/* ---- tables ---------------------------------------------------------------------------------- */

static void add_to(struct wb_spent *spent, uint32_t uid, uint64_t bytes)
{
    struct sum *sum = g_hash_table_lookup(spent->sums, GUINT_TO_POINTER(uid));

    if (!sum) {
        sum = g_new0(struct sum, 1);
        sum->uid = uid;
        g_hash_table_insert(spent->sums, GUINT_TO_POINTER(uid), sum);
    }
    sum->bytes += bytes;
}

static void add_share(GArray *shares, uint32_t uid, uint64_t bytes)
{
    for (guint i = 0; i < shares->len; i++)
        if (g_array_index(shares, struct sum, i).uid == uid) {
            g_array_index(shares, struct sum, i).bytes += bytes;
            return;
        }
    g_array_append_val(shares, ((struct sum){uid, bytes}));
}

/* NULL: there are too many. */
static struct thing *thing_of(struct walk *walk, struct wb_object object)
{
    GHashTable *things = walk->spent->things;
    struct thing *thing = g_hash_table_lookup(things, &object);

    if (thing)
        return thing;
    if (g_hash_table_size(things) >= THINGS_MAX) {
        walk->spent->incomplete = true;
        return NULL;
    }
    thing = g_new0(struct thing, 1);
    thing->object = object;
    g_hash_table_insert(things, &thing->object, thing);
    return thing;
}

/* ---- deleted files --------------------------------------------------------------------------- */

/* Blocks of the file, or its part of the bundle that has its content; 0 where it has another name. */
static uint64_t body_bytes(const struct wb_store *store, struct wb_object object, bool is_dir)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st, bundle;

    wb_object_path(object, is_dir ? WB_FILE_DIR : WB_FILE_DATA, path);
    if (store->grave_fd < 0 || fstatat(store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        (!is_dir && st.st_nlink > 1))
        return 0;
    if (st.st_blocks == 0 && S_ISREG(st.st_mode) && wb_bundle_stat(store, object, WB_FILE_BUNDLE, &bundle) == 0)
        return (uint64_t)bundle.st_blocks * BLOCK / MAX(bundle.st_nlink, 1);
    return (uint64_t)st.st_blocks * BLOCK;
}

static void take_death(struct walk *walk, const struct wb_record *record, const struct wb_slot *slot, uint32_t uid)
{
    bool is_dir = S_ISDIR(slot->attrs.mode), own = walk->uid != 0 && uid == walk->uid && slot->attrs.uid == uid;
    struct thing *thing = thing_of(walk, slot->object);

    if (!thing) {
        add_to(walk->spent, uid, body_bytes(walk->store, slot->object, is_dir));
        return;
    }
    /* A file of several names is deleted as often; the last time counts. */
    if (record->written > thing->deleted) {
        if (thing->deleted == 0)
            thing->body = body_bytes(walk->store, slot->object, is_dir);
        thing->deleted = record->written;
        thing->by = uid;
    }
    thing->own |= own && !is_dir;
    if (!own && (thing->others == 0 || record->written < thing->others))
        thing->others = record->written;
}

/* ---- logs ------------------------------------------------------------------------------------ */

static uint64_t image_bytes(const struct wb_record *record)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++)
        if (record->data.extents[i].kind == WB_EXTENT_IMAGE)
            bytes += record->data.extents[i].length;
    return bytes;
}

/* Of an undo log, from the newest record to the oldest. */
static void take_own(struct walk *walk, struct wb_object object, const struct wb_record *record, uint32_t uid)
{
    bool own = uid == walk->uid && wb_spenders_owner(record) == walk->uid;
    struct thing *thing;

    if (record->type != WB_REC_DATA && record->type != WB_REC_ATTR && record->type != WB_REC_XATTR)
        return;
    thing = own ? thing_of(walk, object) : g_hash_table_lookup(walk->spent->things, &object);
    if (own && thing) {
        thing->own = true;
        wb_room_add(walk->lengths, record->when, record->total);
        return;
    }
    /* Newer records cannot be pruned either: a log is pruned up to a moment. */
    if (!thing)
        thing = thing_of(walk, object);
    if (thing)
        thing->others = thing->others == 0 ? record->written : MIN(thing->others, record->written);
    *walk->lengths = (struct wb_room_ages){.now = walk->spent->ages->now};
}

static void take_record(struct walk *walk, struct wb_object object, enum wb_object_file file,
                        const struct wb_record *record, uint64_t *sum)
{
    uint32_t uid = wb_spenders_uid(walk->store, record->actor, record->written, wb_spenders_owner(record));
    uint64_t image = image_bytes(record);

    *sum += record->total;
    add_share(walk->shares, uid, record->total);
    if (image > 0)
        add_to(walk->spent, uid, image);
    if (walk->uid != 0 && file == WB_FILE_UNDO)
        take_own(walk, object, record, uid);
    for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++)
        if (record->name.slots[i].present && record->name.slots[i].unbind == WB_UNBIND_KEPT)
            take_death(walk, record, &record->name.slots[i], uid);
}

/* It may have been anybody's. (Of a damaged catalog, wb_prune takes care.) */
static void take_damage(struct walk *walk, struct wb_object object, enum wb_object_file file)
{
    struct thing *thing = walk->uid != 0 && file == WB_FILE_UNDO ? thing_of(walk, object) : NULL;

    if (thing)
        thing->others = 1;
    *walk->lengths = (struct wb_room_ages){.now = walk->spent->ages->now};
}

/* The file's blocks are shared out to the records by their lengths. Fillers have none: they are packed, or holes. */
static int take_log(struct walk *walk, struct wb_object object, enum wb_object_file file, uint64_t disk)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    uint64_t sum = 0;
    double part;
    int r = wb_object_log_open(&log, walk->store, object, file);

    if (r <= 0)
        return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
    g_array_set_size(walk->shares, 0);
    if (walk->uid != 0)
        *walk->lengths = (struct wb_room_ages){.now = walk->spent->ages->now};
    while ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED)
        if (r == WB_DAMAGED)
            take_damage(walk, object, file);
        else if (record.type != WB_REC_FILLER)
            take_record(walk, object, file, &record, &sum);
    part = sum > 0 ? MIN((double)disk / (double)sum, 1) : 0;
    for (guint i = 0; i < walk->shares->len; i++) {
        const struct sum *share = &g_array_index(walk->shares, struct sum, i);

        add_to(walk->spent, share->uid, (uint64_t)((double)share->bytes * part));
    }
    for (unsigned i = 0; walk->uid != 0 && file == WB_FILE_UNDO && i < WB_ROOM_CLASSES; i++)
        walk->spent->ages->bytes[i] += (uint64_t)((double)walk->lengths->bytes[i] * part);
    return 0;
}

static int take(void *data, int dir_fd, const char *name)
{
    struct walk *walk = data;
    enum wb_object_file file;
    struct wb_object object;
    struct stat st;

    if (walk->stop(walk->data))
        return -ECANCELED;
    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    return take_log(walk, object, file, (uint64_t)st.st_blocks * BLOCK);
}

/* All logs were read. */
static void settle(struct walk *walk)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, walk->spent->things);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct thing *thing = value;

        if (thing->deleted == 0)
            continue;
        add_to(walk->spent, thing->by, thing->body);
        if (walk->uid != 0 && thing->own && thing->others == 0)
            wb_room_add(walk->spent->ages, thing->deleted, thing->body);
    }
}

int wb_spent_gather(struct wb_spent *ret, struct wb_store *store, uint32_t uid, int64_t now,
                    bool (*stop)(void *data), void *data)
{
    g_autofree struct wb_room_ages *lengths = g_try_new0(struct wb_room_ages, 1);
    g_autoptr(GArray) shares = g_array_new(FALSE, FALSE, sizeof(struct sum));
    struct walk walk = {.spent = ret, .store = store, .uid = uid, .stop = stop, .data = data, .lengths = lengths,
                        .shares = shares};
    int r = 0;

    *ret = (struct wb_spent){.ages = g_try_new0(struct wb_room_ages, 1)};
    ret->sums = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    ret->things = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    if (!lengths || !ret->ages)
        return -ENOMEM;
    ret->ages->now = now;
    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++)
        r = wb_shard_each(store->dir_fd, shard, take, &walk);
    if (r == 0)
        settle(&walk);
    return r;
}

void wb_spent_deinit(struct wb_spent *spent)
{
    g_clear_pointer(&spent->sums, g_hash_table_unref);
    g_clear_pointer(&spent->things, g_hash_table_unref);
    g_free(spent->ages);
    spent->ages = NULL;
}

uint64_t wb_spent_sum(const struct wb_spent *spent, uint32_t uid)
{
    const struct sum *sum = g_hash_table_lookup(spent->sums, GUINT_TO_POINTER(uid));

    return sum ? sum->bytes : 0;
}

void wb_spent_each(const struct wb_spent *spent, void (*each)(void *data, uint32_t uid, uint64_t bytes), void *data)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, spent->sums);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        each(data, ((const struct sum *)value)->uid, ((const struct sum *)value)->bytes);
}

int64_t wb_spent_limit(void *data, struct wb_object object)
{
    const struct wb_spent *spent = data;
    const struct thing *thing = g_hash_table_lookup(spent->things, &object);

    /* Of a thing that did not fit, it is not known who else changed it; and of one that did, everything. */
    if (!thing || !thing->own)
        return 0;
    return thing->others > 0 ? thing->others - 1 : WB_WHEN_PRESENT;
}
