/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of one object take, and what its log tells. A log is read backward through its INDEX records, so that
 * payloads are not touched; whatever lies between two records that count (an INDEX, what was aborted) belongs to the
 * older of them, so that the ages add up to the length of the log.
 */
#include "maintain/usage/usage_parts.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"

#include "base/cleanup.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#define BLOCK 512
/* Extents of an image asked for at once. */
#define EXTENTS 64

static int64_t in_ns(struct timespec time)
{
    return time.tv_sec * WB_WHEN_SECOND + time.tv_nsec;
}

void wb_usage_age(struct wb_usage_total *total, int64_t now, int64_t when, uint64_t bytes)
{
    static const int64_t ends[WB_USAGE_AGES - 1] = {3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400};
    unsigned age = 0;

    while (age < WB_USAGE_AGES - 1 && when <= now - ends[age] * WB_WHEN_SECOND)
        age++;
    total->ages[age] += bytes;
}

static void note_time(struct wb_usage_total *total, int64_t when)
{
    if (when <= 0)
        return;
    total->newest = MAX(total->newest, when);
    total->oldest = total->oldest == 0 ? when : MIN(total->oldest, when);
}

/* ---- records ----------------------------------------------------------------------------------------- */

static void note_named(struct wb_usage_thing *thing, struct wb_object dir, int64_t when)
{
    if (when > thing->named && !wb_object_is_none(dir)) {
        thing->named = when;
        thing->dir = dir;
    }
}

/* What lost a name here: where it is named last, from now on. */
static void note_names(struct wb_usage *usage, struct wb_object self, const struct wb_record *record)
{
    for (uint32_t i = 0; i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];
        struct wb_usage_thing *thing;

        if (!slot->present)
            continue;
        if (S_ISDIR(slot->attrs.mode) && slot->fate == WB_FATE_KEPT) {
            struct wb_usage_dir *dir = wb_usage_dir(usage, slot->object);

            if (dir)
                dir->gone = MAX(dir->gone, record->when);
        }
        thing = g_hash_table_lookup(usage->things, &slot->object);
        if (!thing)
            continue;
        note_named(thing, slot->fate == WB_FATE_MOVED ? slot->to_dir : self, record->when);
        if (slot->fate == WB_FATE_KEPT)
            thing->lost = MAX(thing->lost, record->when);
    }
}

static void note_place(struct wb_usage_dir *dir, const struct wb_rec_place *place)
{
    if (dir->name || !wb_object_equal(place->self, dir->self))
        return;
    dir->parent = place->parent;
    dir->name = g_strndup(place->name, place->name_length);
}

/* The object is counted once, whatever it has of these; but not for what a user erased. */
static void note_gap(struct wb_usage_total *total, const struct wb_record *record, bool *has_gap)
{
    if (record->gap.since < 0 || record->gap.reason == WB_GAP_ERASED)
        return;
    total->gaps_since = total->gaps == 0 ? record->gap.since : MIN(total->gaps_since, record->gap.since);
    total->gaps += !*has_gap;
    *has_gap = true;
    total->gaps_until = MAX(total->gaps_until, MAX(record->when, record->gap.since));
}

static uint64_t image_bytes(const struct wb_record *record)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++)
        if (record->data.extents[i].kind == WB_EXTENT_IMAGE)
            bytes += record->data.extents[i].length;
    return bytes;
}

/* A log as it is walked: `upper` is where what has no owner yet ends. */
struct walk {
    struct wb_usage_total *total; /* NULL: only what it tells is wanted */
    int64_t now, last;
    int64_t horizon; /* what is before it was forgotten */
    uint64_t upper;
    enum wb_usage_kind kind;
    bool has_gap;
};

static void take_record(struct walk *walk, const struct wb_record *record)
{
    int64_t when = MIN(record->when, walk->now); /* a stage under way is of now */
    uint64_t image = image_bytes(record);

    if (!walk->total)
        return;
    /* It takes nothing, but the place of what was forgotten; of which an INDEX may have a copy still. */
    if (record->type == WB_REC_FILLER || (walk->kind == WB_USAGE_UNDO && when < walk->horizon)) {
        wb_usage_age(walk->total, walk->now, when, walk->upper - record->offset - record->total);
        walk->total->kinds[walk->kind].bytes -= record->total;
        walk->upper = record->offset;
        walk->last = when;
        return;
    }
    wb_usage_age(walk->total, walk->now, when, walk->upper - record->offset + image);
    walk->total->kinds[WB_USAGE_IMAGE].bytes += image;
    walk->upper = record->offset;
    walk->last = when;
    note_time(walk->total, when);
    if (record->type == WB_REC_GAP)
        note_gap(walk->total, record, &walk->has_gap);
}

/*
 * Something could not be read. True: it is no damage, since all from there on was forgotten, and a filler stands for
 * records that an INDEX has copies of and others before them: behind the copies, the walk is in the middle of it.
 */
static bool is_where_all_is_forgotten(struct walk *walk)
{
    if (!walk->total || walk->last == 0 || walk->last >= walk->horizon)
        return false;
    walk->total->kinds[walk->kind].bytes -= walk->upper;
    walk->upper = 0;
    return true;
}

/* What is before the oldest record that counts. */
static void end_walk(struct walk *walk)
{
    if (walk->total)
        wb_usage_age(walk->total, walk->now, walk->last ? walk->last : walk->now, walk->upper);
}

/* ---- logs -------------------------------------------------------------------------------------------- */

static int measure(const struct wb_object_log *log, struct wb_usage_total *total, enum wb_usage_kind kind)
{
    struct wb_usage_sum *sum = &total->kinds[kind];
    struct stat st;

    if (fstat(log->fd, &st) < 0)
        return -errno;
    sum->files++;
    sum->bytes += log->reader.end;
    sum->stored += MIN((uint64_t)st.st_size, (uint64_t)st.st_blocks * BLOCK); /* what was forgotten may be a hole */
    sum->disk += (uint64_t)st.st_blocks * BLOCK;
    total->packed += wb_log_bytes_unpacked(&log->reader.bytes) > 0;
    return 0;
}

int wb_usage_catalog(struct wb_usage *usage, struct wb_object self, bool names_only)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_usage_dir *dir = names_only ? NULL : wb_usage_dir(usage, self);
    struct walk walk = {.total = names_only ? NULL : dir ? &dir->total : &usage->unplaced, .now = usage->now,
                        .horizon = wb_store_horizon(usage->store), .kind = WB_USAGE_CATALOG};
    struct wb_log_skip skip = {0};
    struct wb_record record;
    bool damaged = false;
    int r = wb_object_log_open(&log, usage->store, self, WB_FILE_CATALOG);

    if (r <= 0)
        return r;
    walk.upper = log.reader.end;
    if (walk.total)
        r = measure(&log, walk.total, WB_USAGE_CATALOG);
    while (r >= 0 && ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED)) {
        if (r == WB_DAMAGED && is_where_all_is_forgotten(&walk))
            break;
        damaged |= r == WB_DAMAGED;
        if (r == WB_DAMAGED)
            continue;
        take_record(&walk, &record);
        if (record.type == WB_REC_NAME)
            note_names(usage, self, &record);
        else if (record.type == WB_REC_PLACE && dir)
            note_place(dir, &record.place);
    }
    end_walk(&walk);
    usage->damaged += !names_only && (damaged || r == -EBADMSG);
    return r < 0 && r != -EBADMSG ? r : 0;
}

int wb_usage_undo(struct wb_store *store, int64_t now, struct wb_usage_thing *thing, uint64_t *damaged)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct walk walk = {.total = &thing->total, .now = now, .horizon = wb_store_horizon(store), .kind = WB_USAGE_UNDO};
    struct wb_log_skip skip = {0};
    struct wb_record record;
    bool holes = false;
    int r = wb_object_log_open(&log, store, thing->object, WB_FILE_UNDO);

    if (r <= 0)
        return r;
    walk.upper = log.reader.end;
    r = measure(&log, walk.total, WB_USAGE_UNDO);
    while (r >= 0 && ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED)) {
        if (r == WB_DAMAGED && is_where_all_is_forgotten(&walk))
            break;
        holes |= r == WB_DAMAGED;
        if (r == WB_DAMAGED)
            continue;
        take_record(&walk, &record);
        if (record.via.length > 0)
            note_named(thing, record.via.dir, MIN(record.when, now));
    }
    end_walk(&walk);
    *damaged += holes || r == -EBADMSG;
    return r < 0 && r != -EBADMSG ? r : 0;
}

/* ---- images and bodies ------------------------------------------------------------------------------- */

uint64_t wb_usage_shared(int fd)
{
    uint64_t data[(sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)) / sizeof(uint64_t)];
    struct fiemap *map = (struct fiemap *)(void *)data;
    uint64_t shared = 0, start = 0;
    bool last = false;

    while (!last) {
        memset(data, 0, sizeof(data));
        map->fm_start = start;
        map->fm_length = FIEMAP_MAX_OFFSET - start;
        map->fm_extent_count = EXTENTS;
        if (ioctl(fd, FS_IOC_FIEMAP, map) < 0 || map->fm_mapped_extents == 0)
            break;
        for (unsigned i = 0; i < MIN(map->fm_mapped_extents, EXTENTS); i++) {
            const struct fiemap_extent *extent = &map->fm_extents[i];

            if (extent->fe_flags & FIEMAP_EXTENT_SHARED)
                shared += extent->fe_length;
            last |= extent->fe_flags & FIEMAP_EXTENT_LAST || extent->fe_logical + extent->fe_length <= start;
            start = extent->fe_logical + extent->fe_length;
        }
    }
    return shared;
}

int wb_usage_image(struct wb_store *store, struct wb_usage_thing *thing)
{
    _cleanup_close_ int fd = wb_store_open_file(store, thing->object, WB_FILE_IMAGE, O_RDONLY | O_CLOEXEC);
    struct wb_usage_sum *sum = &thing->total.kinds[WB_USAGE_IMAGE];
    struct stat st;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    sum->files++;
    sum->stored += (uint64_t)st.st_size;
    sum->disk += (uint64_t)st.st_blocks * BLOCK;
    if (st.st_blocks > 0)
        sum->shared += MIN(wb_usage_shared(fd), (uint64_t)st.st_blocks * BLOCK);
    return 0;
}

int wb_usage_body(int dir_fd, const char *path, struct wb_usage_thing *thing)
{
    struct wb_usage_sum *sum = &thing->total.kinds[WB_USAGE_BODY];
    struct stat st;

    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    sum->files++;
    thing->buried = in_ns(st.st_ctim);
    /* With another name, in the tree, it takes nothing here. */
    if (!S_ISDIR(st.st_mode) && st.st_nlink > 1)
        return 0;
    thing->body += (uint64_t)st.st_size;
    sum->bytes += (uint64_t)st.st_size;
    sum->stored += (uint64_t)st.st_size;
    sum->disk += (uint64_t)st.st_blocks * BLOCK;
    return 0;
}

int wb_usage_bundle(struct wb_store *store, enum wb_object_file file, struct wb_usage_thing *thing)
{
    struct wb_usage_sum *sum = &thing->total.kinds[WB_USAGE_BODY];
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    struct stat st;
    int r = wb_bundle_open(store, thing->object, file, &bundle);

    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    member = wb_bundle_find(bundle, thing->object);
    if (!member || fstat(bundle->fd, &st) < 0 || st.st_nlink == 0) {
        wb_bundle_free(bundle);
        return 0;
    }
    if (file == WB_FILE_BUNDLE) {
        thing->body += member->size;
        sum->bytes += member->size;
    }
    /* All that are in it share what it takes. */
    sum->stored += (uint64_t)st.st_size / st.st_nlink;
    sum->disk += (uint64_t)st.st_blocks * BLOCK / st.st_nlink;
    wb_bundle_free(bundle);
    return 0;
}

void wb_usage_settle(struct wb_usage_thing *thing, int64_t now)
{
    wb_usage_age(&thing->total, now, thing->lost ? thing->lost : thing->buried, thing->body);
}
