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
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLDERS 256
#define THINGS_MAX (1u << 17)
#define DIRS_MAX (1u << 18)
#define BLOCK 512

enum stage { COUNT, MEASURE, NAMES, TREE, REST, DONE };
/* The graveyard is the store, or a directory of its own. */
enum area { STORE, GRAVEYARD };

static void dir_free(void *data)
{
    struct wb_usage_dir *dir = data;

    g_free(dir->name);
    g_free(dir);
}

void wb_usage_init(struct wb_usage *usage, struct wb_store *store, int64_t now)
{
    *usage = (struct wb_usage){.store = store, .now = now, .things_most = THINGS_MAX, .dirs_most = DIRS_MAX};
    usage->things = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    usage->dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, dir_free);
    usage->expected = 1;
}

void wb_usage_deinit(struct wb_usage *usage)
{
    if (usage->stream)
        closedir(usage->stream);
    if (usage->levels)
        g_array_unref(usage->levels);
    g_hash_table_unref(usage->things);
    g_hash_table_unref(usage->dirs);
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
        wb_usage_settle(thing, usage->now);
        wb_usage_add(dir ? &dir->total : &usage->unplaced, &thing->total);
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
        return wb_usage_undo(usage->store, usage->now, thing, &usage->damaged);
    case WB_FILE_IMAGE:
        return wb_usage_image(usage->store, thing);
    case WB_FILE_BUNDLE:
    case WB_FILE_BUNDLE_OLD:
        return wb_usage_bundle(usage->store, file, thing);
    default:
        wb_object_path(object, file, path);
        return wb_usage_body(area_fd(usage), path, thing);
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
        usage->counts[usage->folder] += file != WB_FILE_CATALOG;
        return 0;
    }
    if ((file == WB_FILE_CATALOG) != (usage->stage == NAMES))
        return 0;
    if (file == WB_FILE_CATALOG)
        r = wb_usage_catalog(usage, object, usage->first > 0);
    else
        r = measure_file(usage, object, file);
    usage->looked++;
    /* What cannot be read is told, and keeps nobody from the rest. */
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
    usage->folder = usage->first;
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
        usage->folder = usage->stage == COUNT ? 0 : usage->first;
        return;
    }
    usage->area = STORE;
    usage->folder = 0;
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

    snprintf(path, sizeof(path), "%s/%02x", WB_OBJECTS_NAME, usage->folder);
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
    if (usage->folder++ == last)
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

int wb_usage_of(struct wb_store *store, struct wb_object object, int64_t now, struct wb_usage_total *ret)
{
    struct wb_usage_thing thing = {.object = object};
    char path[WB_OBJECT_PATH_MAX];
    uint64_t damaged = 0;
    int r = wb_usage_undo(store, now, &thing, &damaged);

    wb_object_path(object, WB_FILE_DATA, path);
    if (r == 0)
        r = wb_usage_image(store, &thing);
    if (r == 0 && store->grave_fd >= 0)
        r = wb_usage_body(store->grave_fd, path, &thing);
    if (r == 0)
        r = wb_usage_bundle(store, WB_FILE_BUNDLE, &thing);
    wb_usage_settle(&thing, now);
    *ret = thing.total;
    return r;
}
