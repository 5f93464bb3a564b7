/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The walk over the store. First its folders are counted; then, for as many folders as fit into the table of things,
 * their files are measured, and all catalogs are read for where these things were named last; at the end of such a
 * pass, each thing is added to its directory. The catalogs' own bytes are taken in the first pass.
 */
#include "maintain/usage/usage_parts.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/object_key.h"
#include "store/graveyard/bundle.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK 512

/*
 * The sizes of the files of one object, and the facts in its log. A log is read backward through its INDEX records, so
 * that payloads are not touched; all bytes between two records that count (an INDEX, aborted records) are attributed to
 * the older of the two, so that the ages add up to the length of the log.
 */

/* Extents of an image asked for at once. */
#define EXTENTS 64

static int64_t in_ns(struct timespec time)
{
    return time.tv_sec * WB_WHEN_SECOND + time.tv_nsec;
}

/* Bytes of a change at `when`. */
static void usage_age(struct wb_usage_total *total, int64_t now, int64_t when, uint64_t bytes)
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

static void note_named(struct wb_usage_thing *thing, struct wb_object dir, const char *name, size_t length,
                       int64_t when)
{
    if (when > thing->named && !wb_object_is_none(dir)) {
        thing->named = when;
        thing->dir = dir;
        g_free(thing->name);
        thing->name = g_strndup(name, length);
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
        if (S_ISDIR(slot->attrs.mode) && slot->unbind == WB_UNBIND_KEPT) {
            struct wb_usage_dir *dir = wb_usage_dir(usage, slot->object);

            if (dir)
                dir->gone = MAX(dir->gone, record->when);
        }
        thing = g_hash_table_lookup(usage->things, &slot->object);
        if (!thing)
            continue;
        if (slot->unbind == WB_UNBIND_RENAMED)
            note_named(thing, slot->to_dir, slot->to_name, slot->to_length, record->when);
        else
            note_named(thing, self, slot->name, slot->name_length, record->when);
        if (slot->unbind == WB_UNBIND_KEPT && record->when > thing->lost) {
            thing->lost = record->when;
            thing->lost_by = record->actor;
        }
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

/* The walk of a log: `upper` is the end of the bytes that are not attributed to a record yet. */
struct walk {
    struct wb_usage_total *total; /* NULL: only the facts are wanted, no sizes */
    struct wb_usage_shares *shares;
    struct wb_usage_programs *programs;
    int64_t now, last;
    int64_t horizon; /* records before it were pruned */
    uint64_t upper;
    enum wb_usage_kind kind;
    int program; /* of the record last met; -1: unknown */
    bool has_gap;
};

static void attribute(struct walk *walk, int program, int64_t when, uint64_t bytes)
{
    usage_age(walk->total, walk->now, when, bytes);
    wb_usage_share(walk->programs, walk->shares, program, when, bytes);
}

static void take_record(struct walk *walk, const struct wb_record *record)
{
    int64_t when = MIN(record->when, walk->now); /* a stage under way is of now */
    uint64_t image = image_bytes(record);

    if (!walk->total)
        return;
    /* It uses no space, but stands in place of pruned records; an INDEX may still have a copy of such a record. */
    if (record->type == WB_REC_FILLER || (walk->kind == WB_USAGE_UNDO && when < walk->horizon)) {
        attribute(walk, -1, when, walk->upper - record->offset - record->total);
        walk->total->kinds[walk->kind].bytes -= record->total;
        walk->upper = record->offset;
        walk->last = when;
        return;
    }
    walk->program = wb_usage_program_of(walk->programs, record->actor, record->written);
    attribute(walk, walk->program, when, walk->upper - record->offset + image);
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

/* Attributes the bytes before the oldest record that counts. */
static void end_walk(struct walk *walk)
{
    if (walk->total)
        attribute(walk, walk->last ? walk->program : -1, walk->last ? walk->last : walk->now, walk->upper);
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
    sum->stored += MIN((uint64_t)st.st_size, (uint64_t)st.st_blocks * BLOCK); /* pruned records may be a hole */
    sum->disk += (uint64_t)st.st_blocks * BLOCK;
    total->packed += wb_log_bytes_unpacked(&log->reader.bytes) > 0;
    return 0;
}

/*
 * Reads a catalog: its bytes (unless `names_only`: another pass has them), its place, and its records of things. 0,
 * also if it does not exist any more, or -errno.
 */
static int usage_catalog(struct wb_usage *usage, struct wb_object self, bool names_only)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_usage_dir *dir = names_only ? NULL : wb_usage_dir(usage, self);
    struct walk walk = {.total = names_only ? NULL : dir ? &dir->total : &usage->unplaced,
                        .shares = dir ? &dir->shares : &usage->unplaced_shares, .programs = &usage->programs,
                        .now = usage->now, .horizon = wb_store_horizon(usage->store), .kind = WB_USAGE_CATALOG};
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

/* An undo log, into `thing`. 0, also if it does not exist any more, or -errno. */
static int usage_undo(struct wb_usage *usage, struct wb_usage_thing *thing)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct walk walk = {.total = &thing->total, .shares = &thing->shares, .programs = &usage->programs,
                        .now = usage->now, .horizon = wb_store_horizon(usage->store), .kind = WB_USAGE_UNDO};
    struct wb_log_skip skip = {0};
    struct wb_record record;
    bool holes = false;
    int r = wb_object_log_open(&log, usage->store, thing->object, WB_FILE_UNDO);

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
            note_named(thing, record.via.dir, record.via.name, record.via.length, MIN(record.when, usage->now));
    }
    end_walk(&walk);
    usage->damaged += holes || r == -EBADMSG;
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

/* An image, a buried file. `dir_fd`: where `path` is. 0 or -errno. */
static int usage_image(struct wb_store *store, struct wb_usage_thing *thing)
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

static int usage_body(int dir_fd, const char *path, struct wb_usage_thing *thing)
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

/* Its part of the bundle that its content is packed in, if it is. */
static int usage_bundle(struct wb_store *store, enum wb_object_file file, struct wb_usage_thing *thing)
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

/* The age of a deleted file is known when all names are. */
static void usage_settle(struct wb_usage *usage, struct wb_usage_thing *thing)
{
    int64_t when = thing->lost ? thing->lost : thing->buried;

    usage_age(&thing->total, usage->now, when, thing->body);
    if (thing->body > 0)
        wb_usage_share(&usage->programs, &thing->shares,
                       wb_usage_program_of(&usage->programs, thing->lost_by, when), when, thing->body);
}

#define FOLDERS 256
#define THINGS_MAX (1u << 17)
#define DIRS_MAX (1u << 18)

enum stage { COUNT, MEASURE, NAMES, TREE, REST, DONE };
/* The graveyard is the store, or a directory of its own. */
enum area { STORE, GRAVEYARD };

static void thing_free(void *data)
{
    struct wb_usage_thing *thing = data;

    g_free(thing->name);
    g_free(thing->shares.list);
    g_free(thing);
}

static void dir_free(void *data)
{
    struct wb_usage_dir *dir = data;

    g_free(dir->name);
    g_free(dir->shares.list);
    g_free(dir);
}

void wb_usage_init(struct wb_usage *usage, struct wb_store *store, int64_t now)
{
    *usage = (struct wb_usage){.store = store, .now = now, .things_most = THINGS_MAX, .dirs_most = DIRS_MAX};
    usage->things = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, thing_free);
    usage->dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, dir_free);
    usage->expected = 1;
    wb_usage_programs_init(&usage->programs, store);
}

void wb_usage_deinit(struct wb_usage *usage)
{
    if (usage->stream)
        closedir(usage->stream);
    if (usage->levels)
        g_array_unref(usage->levels);
    if (usage->largest)
        g_ptr_array_unref(usage->largest);
    g_hash_table_unref(usage->things);
    g_hash_table_unref(usage->dirs);
    wb_usage_shares_clear(&usage->programs, &usage->unplaced_shares);
    wb_usage_programs_deinit(&usage->programs);
}

/* ---- tables ------------------------------------------------------------------------------------------ */

static void add_sum(struct wb_usage_sum *to, const struct wb_usage_sum *one)
{
    to->files += one->files;
    to->bytes += one->bytes;
    to->stored += one->stored;
    to->disk += one->disk;
    to->shared += one->shared;
}

void wb_usage_add(struct wb_usage_total *to, const struct wb_usage_total *one)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(to->kinds); i++)
        add_sum(&to->kinds[i], &one->kinds[i]);
    for (unsigned i = 0; i < WB_USAGE_AGES; i++)
        to->ages[i] += one->ages[i];
    to->packed += one->packed;
    if (one->gaps > 0)
        to->gaps_since = to->gaps > 0 ? MIN(to->gaps_since, one->gaps_since) : one->gaps_since;
    to->gaps += one->gaps;
    to->gaps_until = MAX(to->gaps_until, one->gaps_until);
    to->newest = MAX(to->newest, one->newest);
    if (one->oldest && (!to->oldest || one->oldest < to->oldest))
        to->oldest = one->oldest;
}

struct wb_usage_dir *wb_usage_dir(struct wb_usage *usage, struct wb_object self)
{
    struct wb_usage_dir *dir = g_hash_table_lookup(usage->dirs, &self);

    if (dir || g_hash_table_size(usage->dirs) >= usage->dirs_most || wb_object_is_none(self))
        return dir;
    dir = g_try_new0(struct wb_usage_dir, 1);
    if (!dir)
        return NULL;
    dir->self = self;
    g_hash_table_insert(usage->dirs, &dir->self, dir);
    return dir;
}

static struct wb_usage_thing *thing_of(struct wb_usage *usage, struct wb_object object)
{
    struct wb_usage_thing *thing = g_hash_table_lookup(usage->things, &object);

    if (thing)
        return thing;
    thing = g_try_new0(struct wb_usage_thing, 1);
    if (!thing)
        return NULL;
    thing->object = object;
    g_hash_table_insert(usage->things, &thing->object, thing);
    return thing;
}

static void note_file(struct wb_usage *usage, struct wb_usage_thing *thing)
{
    const struct wb_usage_total *total = &thing->total;
    bool is_deleted = total->kinds[WB_USAGE_BODY].files > 0;
    struct wb_usage_file file = {.object = thing->object, .dir = thing->dir,
                                 .lost = !is_deleted ? 0 : thing->lost ? thing->lost : thing->buried,
                                 .oldest = total->oldest, .newest = total->newest};

    if (!usage->largest || !thing->name || !*thing->name)
        return;
    for (unsigned i = 0; i < G_N_ELEMENTS(total->kinds); i++) {
        file.files += total->kinds[i].files;
        file.bytes += total->kinds[i].bytes;
        file.disk += total->kinds[i].disk;
        file.shared += total->kinds[i].shared;
    }
    if (is_deleted) {
        file.newest = MAX(file.newest, file.lost);
        file.oldest = file.oldest ? file.oldest : file.lost;
    }
    file.name = g_steal_pointer(&thing->name);
    wb_usage_largest_add(usage->largest, file, usage->largest_most);
}

static void settle_things(struct wb_usage *usage)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, usage->things);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_usage_thing *thing = value;
        struct wb_usage_dir *dir = wb_usage_dir(usage, thing->dir);

        /* All catalogs were read by now. */
        if (dir && !dir->name)
            dir->wanted = true;
        usage_settle(usage, thing);
        note_file(usage, thing);
        wb_usage_add(dir ? &dir->total : &usage->unplaced, &thing->total);
        wb_usage_shares_add(&usage->programs, dir ? &dir->shares : &usage->unplaced_shares, &thing->shares);
        wb_usage_shares_clear(&usage->programs, &thing->shares);
    }
    g_hash_table_remove_all(usage->things);
}

bool wb_usage_chain(const struct wb_usage *usage, const struct wb_usage_dir *dir, struct wb_object scope,
                    const struct wb_usage_dir **chain, unsigned *ret_depth)
{
    unsigned depth = 0;

    while (!wb_object_equal(dir->self, scope)) {
        if (depth == WB_USAGE_DEPTH_MAX || !dir->name || !*dir->name)
            return false;
        chain[WB_USAGE_DEPTH_MAX - ++depth] = dir;
        dir = g_hash_table_lookup(usage->dirs, &dir->parent);
        if (!dir)
            return false;
    }
    memmove(chain, chain + WB_USAGE_DEPTH_MAX - depth, depth * sizeof(chain[0]));
    *ret_depth = depth;
    return true;
}

/* ---- files ------------------------------------------------------------------------------------------- */

static bool apart(const struct wb_store *store)
{
    struct stat a, b;

    return store->grave_fd >= 0 && fstat(store->grave_fd, &a) == 0 && fstat(store->dir_fd, &b) == 0 &&
           (a.st_dev != b.st_dev || a.st_ino != b.st_ino);
}

static int area_fd(const struct wb_usage *usage)
{
    return usage->area == GRAVEYARD ? usage->store->grave_fd : usage->store->dir_fd;
}

/* A file or directory that is of no object; nothing where it has gone. */
static void take_other(struct wb_usage *usage, int dir_fd, const char *name, enum wb_usage_kind kind)
{
    struct wb_usage_sum *sum = &usage->rest[kind];
    struct stat st;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    sum->disk += (uint64_t)st.st_blocks * BLOCK;
    if (S_ISDIR(st.st_mode))
        return;
    sum->files++;
    sum->bytes += (uint64_t)st.st_size;
    sum->stored += (uint64_t)st.st_size;
}

static int measure_file(struct wb_usage *usage, struct wb_object object, enum wb_object_file file)
{
    struct wb_usage_thing *thing = thing_of(usage, object);
    char path[WB_OBJECT_PATH_MAX];

    if (!thing)
        return -ENOMEM;
    switch (file) {
    case WB_FILE_UNDO:
        return usage_undo(usage, thing);
    case WB_FILE_IMAGE:
        return usage_image(usage->store, thing);
    case WB_FILE_BUNDLE:
    case WB_FILE_BUNDLE_OLD:
        return usage_bundle(usage->store, file, thing);
    default:
        wb_object_path(object, file, path);
        return usage_body(area_fd(usage), path, thing);
    }
}

static int take_entry(struct wb_usage *usage, const char *name)
{
    struct wb_object object;
    enum wb_object_file file;
    int r = 0;

    if (wb_object_file_parse(name, &object, &file) < 0 || file == WB_FILE_GONE) {
        if (usage->stage == COUNT)
            take_other(usage, dirfd(usage->stream), name, WB_USAGE_OTHER);
        return 0;
    }
    if (usage->stage == COUNT) {
        usage->catalogs += file == WB_FILE_CATALOG;
        usage->counts[usage->shard] += file != WB_FILE_CATALOG;
        return 0;
    }
    if ((file == WB_FILE_CATALOG) != (usage->stage == NAMES))
        return 0;
    if (file == WB_FILE_CATALOG)
        r = usage_catalog(usage, object, usage->first > 0);
    else
        r = measure_file(usage, object, file);
    usage->looked++;
    /* Unreadable logs are counted, and do not stop the pass. */
    if (r < 0 && r != -ENOMEM && r != -EMFILE && r != -ENFILE) {
        usage->damaged++;
        r = 0;
    }
    return r;
}

/* ---- stages ------------------------------------------------------------------------------------------ */

/* Things of the folders from `first` on, as many as the table holds. */
static void choose_range(struct wb_usage *usage)
{
    uint64_t sum = usage->counts[usage->first];

    usage->last = usage->first;
    while (usage->last + 1 < FOLDERS && sum + usage->counts[usage->last + 1] <= usage->things_most)
        sum += usage->counts[++usage->last];
    usage->shard = usage->first;
    usage->stage = MEASURE;
}

static void expect_passes(struct wb_usage *usage)
{
    uint64_t files = 0, passes = 0;

    for (usage->first = 0; usage->first < FOLDERS; usage->first = usage->last + 1) {
        choose_range(usage);
        passes++;
    }
    for (unsigned i = 0; i < FOLDERS; i++)
        files += usage->counts[i];
    usage->expected = MAX(files + passes * usage->catalogs, 1);
    usage->first = 0;
    choose_range(usage);
}

/* The folders of one area are done: the other one, or the next stage. */
static void next_stage(struct wb_usage *usage)
{
    if (usage->area == STORE && usage->stage != NAMES && apart(usage->store)) {
        usage->area = GRAVEYARD;
        usage->shard = usage->stage == COUNT ? 0 : usage->first;
        return;
    }
    usage->area = STORE;
    usage->shard = 0;
    if (usage->stage == COUNT) {
        expect_passes(usage);
    } else if (usage->stage == MEASURE) {
        usage->stage = NAMES;
    } else {
        settle_things(usage);
        usage->first = usage->last + 1;
        if (usage->first < FOLDERS)
            choose_range(usage);
        else
            usage->stage = TREE;
    }
}

static int open_folder(struct wb_usage *usage)
{
    char path[sizeof(WB_OBJECTS_NAME) + 4];

    snprintf(path, sizeof(path), "%s/%02x", WB_OBJECTS_NAME, usage->shard);
    usage->stream = wb_opendir_at(area_fd(usage), path);
    if (!usage->stream)
        return errno == ENOENT ? 0 : -errno;
    if (usage->stage == COUNT)
        take_other(usage, area_fd(usage), path, WB_USAGE_OTHER);
    return 0;
}

static void close_folder(struct wb_usage *usage)
{
    unsigned last = usage->stage == MEASURE ? usage->last : FOLDERS - 1;

    if (usage->stream)
        closedir(usage->stream);
    usage->stream = NULL;
    if (usage->shard++ == last)
        next_stage(usage);
}

/* All files of a directory, and below; no deeper than the store's own are. */
static int take_below(struct wb_usage *usage, int dir_fd, const char *name, enum wb_usage_kind kind, unsigned depth)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(dir_fd, name);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return errno == ENOTDIR || errno == ENOENT || errno == ELOOP ? 0 : -errno;
    while (wb_next_entry(stream, &entry, &r)) {
        take_other(usage, dirfd(stream), entry->d_name, kind);
        if (depth > 0)
            r = take_below(usage, dirfd(stream), entry->d_name, kind, depth - 1);
    }
    return r;
}

static int take_rest(struct wb_usage *usage)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(usage->store->dir_fd, ".");
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return -errno;
    take_other(usage, dirfd(stream), ".", WB_USAGE_OTHER);
    while (wb_next_entry(stream, &entry, &r)) {
        const char *name = entry->d_name;
        enum wb_usage_kind kind = strcmp(name, WB_TIMELINE_NAME) == 0    ? WB_USAGE_TIMELINE
                                  : strcmp(name, WB_SNAPSHOTS_NAME) == 0 ? WB_USAGE_SNAPSHOTS
                                                                         : WB_USAGE_OTHER;

        take_other(usage, dirfd(stream), name, kind);
        if (strcmp(name, WB_OBJECTS_NAME) != 0)
            r = take_below(usage, dirfd(stream), name, kind, 4);
    }
    if (apart(usage->store)) {
        take_other(usage, usage->store->grave_fd, ".", WB_USAGE_OTHER);
        take_other(usage, usage->store->grave_fd, WB_OBJECTS_NAME, WB_USAGE_OTHER);
    }
    return r;
}

int wb_usage_step(struct wb_usage *usage, int64_t deadline)
{
    struct dirent *entry;
    int r;

    while (usage->stage != DONE) {
        if (usage->stop && usage->stop(usage->stop_data))
            return -ECANCELED;
        if (usage->stage == TREE) {
            r = wb_usage_tree(usage, deadline);
            if (r != 0)
                return r;
            usage->stage = REST;
        }
        if (usage->stage == REST) {
            r = take_rest(usage);
            if (r < 0)
                return r;
            usage->stage = DONE;
            break;
        }
        if (!usage->stream) {
            r = open_folder(usage);
            if (r < 0)
                return r;
        }
        r = 0;
        if (usage->stream && wb_next_entry(usage->stream, &entry, &r))
            r = take_entry(usage, entry->d_name);
        else if (r == 0)
            close_folder(usage);
        if (r < 0)
            return r;
        if (g_get_monotonic_time() > deadline)
            return 1;
    }
    return 0;
}

/* ---- one object ---------------------------------------------------------------------------------------- */

int wb_usage_of(struct wb_usage *usage, struct wb_object object, struct wb_usage_total *ret,
                struct wb_usage_shares *shares)
{
    struct wb_usage_thing thing = {.object = object};
    struct wb_store *store = usage->store;
    char path[WB_OBJECT_PATH_MAX];
    int r = usage_undo(usage, &thing);

    wb_object_path(object, WB_FILE_DATA, path);
    if (r == 0)
        r = usage_image(store, &thing);
    if (r == 0 && store->grave_fd >= 0)
        r = usage_body(store->grave_fd, path, &thing);
    if (r == 0)
        r = usage_bundle(store, WB_FILE_BUNDLE, &thing);
    usage_settle(usage, &thing);
    g_free(thing.name);
    *shares = thing.shares;
    *ret = thing.total;
    return r;
}

/*
 * Directories that have no catalog, since no name in them ever changed, are found only in the tree: records of files
 * there have the inode of the directory, but not its name. SRC is searched for these directories until all are found.
 */

/* Each level takes a descriptor. */
#define LEVELS_MAX 64

struct level {
    DIR *stream;
    struct wb_object object;
    char *name;
};

static void level_clear(void *data)
{
    struct level *level = data;

    closedir(level->stream);
    g_free(level->name);
}

/* How many directories nothing has placed yet. */
static unsigned count_unplaced(const struct wb_usage *usage)
{
    GHashTableIter iter;
    unsigned count = 0;
    void *value;

    g_hash_table_iter_init(&iter, usage->dirs);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        count += ((const struct wb_usage_dir *)value)->wanted;
    return count;
}

/*
 * Not what is mounted there: it might be our own mount, and wait for us. Looking must not change the times of the
 * user's directories, where that can be helped.
 */
static int open_dir(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME,
                           .resolve = RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    if (fd < 0 && errno == EPERM) {
        how.flags &= ~(uint64_t)O_NOATIME;
        fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
    }
    return fd;
}

/* Goes down into a directory, if it is one that can be looked into. */
static void enter(struct wb_usage *usage, int dir_fd, const char *name)
{
    struct level level = {0};
    int fd = open_dir(dir_fd, name);

    if (fd < 0)
        return;
    if (wb_object_stat(usage->store, fd, NULL, &level.object, NULL, NULL) < 0 || !(level.stream = fdopendir(fd))) {
        close(fd);
        return;
    }
    level.name = g_strdup(name);
    g_array_append_val(usage->levels, level);
}

/* The directory that was just entered, if it is wanted, or all are, and those above it: placed. */
static void place(struct wb_usage *usage)
{
    const struct level *levels = (const struct level *)(const void *)usage->levels->data;
    guint depth = usage->levels->len - 1;
    struct wb_usage_dir *dir = usage->all ? wb_usage_dir(usage, levels[depth].object)
                                          : g_hash_table_lookup(usage->dirs, &levels[depth].object);

    if (!dir || !(dir->wanted || usage->all))
        return;
    usage->unplaced_dirs -= dir->wanted;
    dir->wanted = false;
    for (guint i = depth; i > 0; i--) {
        dir = wb_usage_dir(usage, levels[i].object);
        if (!dir || dir->name)
            return;
        dir->name = g_strdup(levels[i].name);
        dir->parent = levels[i - 1].object;
    }
}

static void step(struct wb_usage *usage)
{
    struct level *level = &g_array_index(usage->levels, struct level, usage->levels->len - 1);
    guint depth = usage->levels->len;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    /* An unreadable directory places nothing, like one that cannot be entered: directories in it remain unplaced. */
    if (!wb_next_entry(level->stream, &entry, &r)) {
        g_array_set_size(usage->levels, depth - 1);
        return;
    }
    if (depth == LEVELS_MAX ||
        (depth == 1 && (strcmp(entry->d_name, WB_STORE_NAME) == 0 || strcmp(entry->d_name, WB_STAGING_NAME) == 0)))
        return;
    if (entry->d_type != DT_DIR &&
        (entry->d_type != DT_UNKNOWN ||
         fstatat(dirfd(level->stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)))
        return;
    enter(usage, dirfd(level->stream), entry->d_name);
    if (usage->levels->len > depth)
        place(usage);
}

int wb_usage_tree(struct wb_usage *usage, int64_t deadline)
{
    if (!usage->levels) {
        usage->levels = g_array_new(FALSE, FALSE, sizeof(struct level));
        g_array_set_clear_func(usage->levels, level_clear);
        usage->unplaced_dirs = count_unplaced(usage);
        if (usage->unplaced_dirs > 0 || usage->all)
            enter(usage, usage->store->src_fd, ".");
    }
    while (usage->levels->len > 0 && (usage->unplaced_dirs > 0 || usage->all)) {
        if (usage->stop && usage->stop(usage->stop_data))
            return -ECANCELED;
        if (g_get_monotonic_time() > deadline)
            return 1;
        step(usage);
    }
    return 0;
}
