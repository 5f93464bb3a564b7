/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/prune/prune_limits.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/object_key.h"
#include "maintain/rewrite/compact.h"
#include "store/log/log.h"
#include "store/tables/snapshots.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Held in memory, some 100 bytes each. */
#define OBJECTS_MAX (1u << 20)
#define EDGES_MAX (2u << 20)
/* Each level takes a descriptor. */
#define LEVELS_MAX 256

/* A protected object. */
struct limit {
    struct wb_object object;
    int64_t limit; /* its logs keep what states from here on need */
    int64_t scope; /* the same, of a snapshot: it covers all that is in it, too; WB_WHEN_PRESENT: none does */
};

/* `child` was in `parent` under that name. */
struct edge {
    struct wb_object child, parent;
    const char *name; /* NULL where the rules by path are not asked */
    int64_t until;    /* WB_WHEN_PRESENT: it may be there still */
    bool is_dir;
    bool moved;       /* from there to another name */
};

/* The newest place of a directory. */
struct place {
    struct wb_object self, parent;
    const char *name;
};

struct wb_prune_limits {
    struct wb_store *store;
    const struct wb_prune_options *options;
    GHashTable *objects; /* of struct limit, by object */
    GHashTable *places;  /* of struct place, by object */
    GArray *edges;       /* of struct edge             */
    GStringChunk *names;
    GString *path;       /* where the walk through the tree is */
    unsigned level;
    bool widened;        /* a snapshot covers a directory of which that was not known when the tree was walked */
};

static bool is_stopped(const struct wb_prune_limits *limits)
{
    return limits->options->stop(limits->options->data);
}

/* What the rules say of a path. */
static int64_t limit_of_path(const struct wb_prune_limits *limits, const char *path, bool is_directory)
{
    const struct wb_prune_options *options = limits->options;

    return options->limit ? MIN(options->limit(options->data, path, is_directory), options->beyond) : options->beyond;
}

/* 1 where that is new, 0, or -E2BIG. */
static int protect(struct wb_prune_limits *limits, struct wb_object object, int64_t limit, int64_t scope)
{
    struct limit *known;

    if (limit >= limits->options->beyond)
        return 0;
    known = g_hash_table_lookup(limits->objects, &object);
    if (known && known->limit <= limit && known->scope <= scope)
        return 0;
    if (!known) {
        if (g_hash_table_size(limits->objects) >= OBJECTS_MAX)
            return -E2BIG;
        known = g_new(struct limit, 1);
        *known = (struct limit){object, WB_WHEN_PRESENT, WB_WHEN_PRESENT};
        g_hash_table_add(limits->objects, known);
    }
    known->limit = MIN(known->limit, limit);
    known->scope = MIN(known->scope, scope);
    return 1;
}

static int64_t scope_of(const struct wb_prune_limits *limits, struct wb_object object)
{
    const struct limit *known = g_hash_table_lookup(limits->objects, &object);

    return known ? known->scope : WB_WHEN_PRESENT;
}

/* At most `beyond`. */
static int64_t limit_of(const struct wb_prune_limits *limits, struct wb_object object)
{
    const struct limit *known = g_hash_table_lookup(limits->objects, &object);

    return known ? known->limit : limits->options->beyond;
}

int64_t wb_prune_limits_before(const struct wb_prune_limits *limits, const struct wb_prune_options *options,
                               struct wb_object object)
{
    int64_t limit = limits ? limit_of(limits, object) : options->before;

    if (options->own_limit && options->beyond > options->before)
        limit = MIN(limits ? limit : options->beyond, options->own_limit(options->own_data, object));
    return MAX(options->before, limit);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static int take_snapshots(struct wb_prune_limits *limits)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshots_get(limits->store, &all);

    for (size_t i = 0; r >= 0 && i < all->count; i++)
        r = protect(limits, all->list[i].scope, all->list[i].when, all->list[i].when);
    return MIN(r, 0);
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* Not what is mounted there; and without a trace in the times of the user's directories, where that can be had. */
static int open_dir(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME,
                           .resolve = RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    if (fd < 0 && errno == EPERM) {
        how.flags &= ~(uint64_t)O_NOATIME;
        fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
    }
    return fd < 0 ? -errno : fd;
}

/* Whether the error means that it was moved or deleted meanwhile (a catalog records that), or is on another mount. */
static bool is_elsewhere(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EXDEV;
}

static int walk_dir(struct wb_prune_limits *limits, int dir_fd, const char *name, int64_t scope, int64_t *ret_least);

/* An entry of a directory that is covered by snapshots from `scope` on. *least becomes at most its limit. */
static int walk_entry(struct wb_prune_limits *limits, int dir_fd, const char *name, bool is_dir, int64_t scope,
                      int64_t *least)
{
    int64_t limit = MIN(limit_of_path(limits, limits->path->str, is_dir), scope);
    struct wb_object object;
    int r;

    if (is_dir)
        return walk_dir(limits, dir_fd, name, scope, least);
    if (limit >= limits->options->beyond)
        return 0;
    r = wb_object_stat(limits->store, dir_fd, name, &object, NULL, NULL);
    if (r < 0)
        return is_elsewhere(r) ? 0 : r;
    *least = MIN(*least, limit);
    return MIN(protect(limits, object, limit, WB_WHEN_PRESENT), 0);
}

static bool is_hidden(const struct wb_prune_limits *limits, const char *name)
{
    return limits->level == 1 && (strcmp(name, WB_STORE_NAME) == 0 || strcmp(name, WB_STAGING_NAME) == 0);
}

static int walk_entries(struct wb_prune_limits *limits, DIR *stream, int64_t scope, int64_t *least)
{
    gsize length = limits->path->len;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    while (r == 0 && wb_next_entry(stream, &entry, &r)) {
        bool is_dir = entry->d_type == DT_DIR;

        if (is_hidden(limits, entry->d_name))
            continue;
        if (is_stopped(limits))
            return -ECANCELED;
        if (entry->d_type == DT_UNKNOWN && fstatat(dirfd(stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            is_dir = S_ISDIR(st.st_mode);
        g_string_append_printf(limits->path, "%s%s", length > 0 ? "/" : "", entry->d_name);
        r = walk_entry(limits, dirfd(stream), entry->d_name, is_dir, scope, least);
        g_string_truncate(limits->path, length);
    }
    return r;
}

static int walk_dir(struct wb_prune_limits *limits, int dir_fd, const char *name, int64_t scope, int64_t *ret_least)
{
    _cleanup_closedir_ DIR *stream = NULL;
    int64_t least = MIN(limit_of_path(limits, limits->path->str, true), scope);
    struct wb_object object;
    int fd = open_dir(dir_fd, name), r;

    if (fd < 0)
        return is_elsewhere(fd) ? 0 : fd;
    stream = wb_opendir_of(fd);
    if (!stream)
        return -errno;
    r = wb_object_stat(limits->store, dirfd(stream), NULL, &object, NULL, NULL);
    if (r < 0 || limits->level == LEVELS_MAX)
        return r == -EXDEV ? 0 : r < 0 ? r : -ELOOP;
    scope = MIN(scope, scope_of(limits, object));
    least = MIN(least, scope);
    limits->level++;
    r = walk_entries(limits, stream, scope, &least);
    limits->level--;
    if (r == 0)
        r = MIN(protect(limits, object, least, scope), 0);
    *ret_least = MIN(*ret_least, least);
    return r;
}

/* ---- the catalogs ---------------------------------------------------------------------------- */

static int add_edge(struct wb_prune_limits *limits, const struct edge *edge, const char *name, size_t length)
{
    char text[WB_NAME_MAX + 1];
    struct edge added = *edge;

    if (wb_object_is_none(edge->child) || wb_object_is_none(edge->parent))
        return 0;
    if (limits->edges->len >= EDGES_MAX)
        return -E2BIG;
    if (limits->options->limit && length > 0 && length <= WB_NAME_MAX) {
        memcpy(text, name, length);
        text[length] = '\0';
        added.name = g_string_chunk_insert_const(limits->names, text);
    }
    g_array_append_val(limits->edges, added);
    return 0;
}

/* *until: when the directory left the place in the record. */
static int take_place(struct wb_prune_limits *limits, const struct wb_record *record, int64_t *until)
{
    const struct wb_rec_place *from = &record->place;
    struct edge edge = {.child = from->self, .parent = from->parent, .until = *until, .is_dir = true,
                        .moved = *until != WB_WHEN_PRESENT};
    int r = add_edge(limits, &edge, from->name, from->name_length);

    if (r == 0 && from->name_length > 0 && !g_hash_table_contains(limits->places, &from->self)) {
        struct place *place = g_new(struct place, 1);
        g_autofree char *name = g_strndup(from->name, from->name_length);

        *place = (struct place){from->self, from->parent, g_string_chunk_insert_const(limits->names, name)};
        g_hash_table_add(limits->places, place);
    }
    *until = record->when;
    return r;
}

static int take_slot(struct wb_prune_limits *limits, struct wb_object dir, const struct wb_record *record,
                     const struct wb_slot *slot)
{
    struct edge edge = {.child = slot->object, .parent = dir, .until = record->when,
                        .is_dir = S_ISDIR(slot->attrs.mode), .moved = slot->unbind == WB_UNBIND_RENAMED};
    int r = 0;

    if (!slot->present)
        return 0;
    r = add_edge(limits, &edge, slot->name, slot->name_length);
    if (!edge.moved)
        return r;
    edge = (struct edge){.child = slot->object, .parent = slot->to_dir, .until = WB_WHEN_PRESENT,
                         .is_dir = edge.is_dir};
    return r < 0 ? r : add_edge(limits, &edge, slot->to_name, slot->to_length);
}

static int take(struct wb_prune_limits *limits, struct wb_object dir, const struct wb_record *record, int64_t *until)
{
    int r = 0;

    if (record->type == WB_REC_PLACE && wb_object_equal(record->place.self, dir))
        return take_place(limits, record, until);
    for (uint32_t i = 0; r == 0 && record->type == WB_REC_NAME && i < record->name.count; i++)
        r = take_slot(limits, dir, record, &record->name.slots[i]);
    return r;
}

static int read_catalog(struct wb_prune_limits *limits, struct wb_object dir)
{
    _cleanup_close_ int fd = wb_store_open_file(limits->store, dir, WB_FILE_CATALOG, O_RDONLY);
    int64_t until = WB_WHEN_PRESENT;
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    /* What was aborted protects more than it has to, and no less. */
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 && (r = take(limits, dir, &record, &until)) == 0)
        if (is_stopped(limits)) {
            r = -ECANCELED;
            break;
        }
    wb_log_reader_deinit(&reader);
    return r == WB_END ? 0 : r == WB_DAMAGED ? -EBADMSG : r;
}

static int read_catalogs(struct wb_prune_limits *limits)
{
    int r = 0;

    for (unsigned shard = 0; r >= 0 && shard < WB_SHARDS; shard++) {
        g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));

        r = wb_compact_gather(limits->store, shard, INT64_MIN, WB_WHEN_PRESENT, list);
        for (guint i = 0; r >= 0 && i < list->len; i++) {
            const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

            if (found->file == WB_FILE_CATALOG)
                r = read_catalog(limits, found->object);
        }
    }
    return MIN(r, 0);
}

/* ---- what follows ---------------------------------------------------------------------------- */

/* From the root of the tree; g_free. NULL: not known. */
static char *path_of(const struct wb_prune_limits *limits, const struct edge *edge)
{
    struct wb_object root = limits->store->header.root;
    GString *path = g_string_new(edge->name);
    struct wb_object at = edge->parent;

    for (unsigned level = 0; !wb_object_equal(at, root); level++) {
        const struct place *place = g_hash_table_lookup(limits->places, &at);

        if (!place || level == LEVELS_MAX) {
            g_string_free(path, TRUE);
            return NULL;
        }
        g_string_prepend_c(path, '/');
        g_string_prepend(path, place->name);
        at = place->parent;
    }
    return g_string_free(path, FALSE);
}

/*
 * Names that are gone have their rules, too; of which nobody knows where they were, all stays. A directory that moved
 * took along what had other paths before, and has its names since: the rule of its old one covers all that is in it.
 */
static int judge_names(struct wb_prune_limits *limits)
{
    int64_t limit, was;
    int r = 0;

    for (guint i = 0; r >= 0 && limits->options->limit && i < limits->edges->len; i++) {
        const struct edge *edge = &g_array_index(limits->edges, struct edge, i);
        g_autofree char *path = edge->name ? path_of(limits, edge) : NULL;

        if (!edge->name)
            continue;
        limit = path ? limit_of_path(limits, path, edge->is_dir) : 0;
        was = scope_of(limits, edge->child);
        r = protect(limits, edge->child, limit, edge->is_dir && edge->moved ? limit : WB_WHEN_PRESENT);
        limits->widened |= edge->is_dir && scope_of(limits, edge->child) < was;
    }
    return MIN(r, 0);
}

/* What a snapshot covers goes down, what a catalog leads to goes up. 1: something is new; 0; or -E2BIG. */
static int spread(struct wb_prune_limits *limits)
{
    bool is_new = false;
    int r = 0;

    for (guint i = 0; r >= 0 && i < limits->edges->len; i++) {
        const struct edge *edge = &g_array_index(limits->edges, struct edge, i);
        int64_t scope = scope_of(limits, edge->parent), was = scope_of(limits, edge->child);

        if (edge->until > scope)
            r = protect(limits, edge->child, scope, scope);
        is_new |= r > 0;
        limits->widened |= edge->is_dir && scope_of(limits, edge->child) < was;
        if (r >= 0)
            r = protect(limits, edge->parent, limit_of(limits, edge->child), WB_WHEN_PRESENT);
        is_new |= r > 0;
    }
    return r < 0 ? r : is_new;
}

/* ---- as a whole ------------------------------------------------------------------------------ */

/*
 * A directory that left the snapshot's directory may have what it had then still in it. So where one is found out to be
 * covered, all is looked at again, in the same order: each time, more is known to be.
 */
static int find_protected(struct wb_prune_limits *limits)
{
    int64_t least = WB_WHEN_PRESENT;
    int r;

    do {
        limits->widened = false;
        g_array_set_size(limits->edges, 0);
        r = walk_dir(limits, limits->store->src_fd, ".", WB_WHEN_PRESENT, &least);
        if (r == 0)
            r = read_catalogs(limits);
        if (r == 0)
            r = judge_names(limits);
        while (r == 0 && (r = spread(limits)) > 0)
            r = is_stopped(limits) ? -ECANCELED : 0;
    } while (r == 0 && limits->widened);
    return r;
}

int wb_prune_limits_make(struct wb_prune_limits **ret, struct wb_store *store, const struct wb_prune_options *options)
{
    struct wb_prune_limits *limits = g_new0(struct wb_prune_limits, 1);
    int r;

    limits->store = store;
    limits->options = options;
    limits->objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    limits->places = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    limits->edges = g_array_new(FALSE, FALSE, sizeof(struct edge));
    limits->names = g_string_chunk_new(4096);
    limits->path = g_string_new(NULL);
    r = take_snapshots(limits);
    if (r == 0)
        r = find_protected(limits);
    /* Only the objects are asked for from now on. */
    g_array_set_size(limits->edges, 0);
    if (r < 0) {
        wb_prune_limits_free(limits);
        return r;
    }
    *ret = limits;
    return 0;
}

struct wb_prune_limits *wb_prune_limits_free(struct wb_prune_limits *limits)
{
    if (limits) {
        g_hash_table_unref(limits->objects);
        g_hash_table_unref(limits->places);
        g_array_unref(limits->edges);
        g_string_chunk_free(limits->names);
        g_string_free(limits->path, TRUE);
    }
    g_free(limits);
    return NULL;
}
