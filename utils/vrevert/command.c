/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A path is reverted if all its changes since the moment were made by the commands: then its state at the moment is its
 * state before them. A path that something else changed as well is kept, and so are the other end of a rename of it by
 * the commands, other names of the same file, everything below a path that something else made, removed or renamed, and
 * a directory that the commands made or renamed if something else changed anything below it.
 */
#include "vrevert.h"
#include "client/path.h"
#include "common/changes.h"
#include "common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct state {
    bool ours, others; /* the commands changed it, something else did */
    bool named;        /* others made, removed or renamed what has this name */
    bool whole;        /* the commands renamed this directory: everything below it is concerned */
    bool holds;        /* the commands made or renamed this: to revert it removes or moves everything below it */
    bool existed;      /* before the oldest change */
};

/* Two paths that are reverted or kept together: of a rename by the commands, or names of one file. */
struct pair {
    struct state *from, *to;
};

struct reading {
    const struct wb_place *place;
    const char *const *commands;
    bool is_file;       /* PATH is one: all changes are of it, through any of its names */
    GHashTable *states; /* path relative to the root -> struct state */
    GArray *pairs;      /* struct pair */
    GHashTable *objects; /* inode and birth -> the state of a path of it; borrowed */
    int64_t first;
};

static bool is_ours(const struct reading *reading, const struct wb_change *change)
{
    for (const char *const *command = reading->commands; *command; command++)
        if (strstr(change->command, *command))
            return !(change->entry->flags & WB_CONTROL_CHANGE_GAP);
    return false;
}

static struct state *note(struct reading *reading, const char *path, const struct wb_change *change, bool ours)
{
    const struct wb_control_change *entry = change->entry;
    bool is_dir = S_ISDIR(entry->mode_before) || strcmp(change->op, "mkdir") == 0;
    g_autofree char *whole = reading->is_file || strcmp(path, ".") == 0 ? g_strdup(reading->place->path)
                             : *path == '/'                              ? g_strdup(path + 1)
                                                : wb_path_join(reading->place->path, path);
    struct state *state = g_hash_table_lookup(reading->states, whole);

    if (!state) {
        state = g_new0(struct state, 1);
        state->existed = true;
        g_hash_table_insert(reading->states, g_steal_pointer(&whole), state);
    }
    state->ours |= ours;
    state->others |= !ours;
    state->named |= !ours && (*change->other || entry->existed_before != entry->exists_after);
    state->holds |= ours && (*change->other || (!entry->existed_before && entry->exists_after));
    state->whole |= is_dir && ours && *change->other;
    if (path == change->path)
        state->existed = entry->existed_before;
    return state;
}

/* A file with several names may be changed through any of them. */
static void note_object(struct reading *reading, const struct wb_control_change *entry, struct state *state)
{
    g_autofree char *object = g_strdup_printf("%" G_GUINT64_FORMAT " %" G_GINT64_FORMAT, entry->ino, entry->birth);
    struct pair pair = {state, g_hash_table_lookup(reading->objects, object)};

    if (entry->ino == 0)
        return;
    if (pair.to && pair.to != state)
        g_array_append_val(reading->pairs, pair);
    else
        g_hash_table_insert(reading->objects, g_steal_pointer(&object), state);
}

static int read_changes(struct reading *reading, int64_t since)
{
    const struct wb_change_walk_options wanted = {.since = since};
    _cleanup_change_walk_ struct wb_change_walk *walk =
        wb_change_walk_new(reading->place->mount, reading->place->path, &wanted);
    struct wb_change change;
    struct pair pair;
    int r = 0;

    while (!wb_cli_interrupted() && (r = wb_change_walk_next(walk, &change)) == 0) {
        bool ours = is_ours(reading, &change);

        if (change.entry->flags & WB_CONTROL_CHANGE_UNKNOWN)
            continue;
        if (ours)
            reading->first = change.entry->when;
        pair.from = note(reading, change.path, &change, ours);
        note_object(reading, change.entry, pair.from);
        if (!*change.other)
            continue;
        pair.to = note(reading, change.other, &change, ours);
        if (ours)
            g_array_append_val(reading->pairs, pair);
    }
    return r < 0 ? r : 0;
}

/* The state of the nearest path above `path` for which `is` returns true; NULL: none. */
static struct state *above(const struct reading *reading, const char *path, bool (*is)(const struct state *state))
{
    g_autofree char *at = g_strdup(path);
    char *slash;

    while ((slash = strrchr(at, '/'))) {
        struct state *state;

        *slash = '\0';
        state = g_hash_table_lookup(reading->states, at);
        if (state && is(state))
            return state;
    }
    return NULL;
}

static bool is_left(const struct state *state)
{
    return state->named || (state->holds && state->others);
}

static bool holds(const struct state *state)
{
    return state->holds && !state->others;
}

static bool mark(struct state *state)
{
    bool was = state->others;

    state->others = true;
    return !was;
}

/* One step from paths that are kept to those that depend on them. True: it marked one. */
static bool spread(const struct reading *reading)
{
    GHashTableIter iter;
    void *key, *value;
    bool more = false;

    g_hash_table_iter_init(&iter, reading->states);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        struct state *state = value, *holder = state->others ? above(reading, key, holds) : NULL;

        if (holder)
            more |= mark(holder);
        if (!state->others && above(reading, key, is_left))
            more |= mark(state);
    }
    for (guint i = 0; i < reading->pairs->len; i++) {
        const struct pair *pair = &g_array_index(reading->pairs, struct pair, i);

        if (pair->from->others || pair->to->others)
            more |= mark(pair->from) | mark(pair->to);
    }
    return more;
}

static bool exists(const struct reading *reading, const char *path)
{
    struct stat st;

    return fstatat(reading->place->mount->root_fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void decide(const struct reading *reading, struct by_command *ret)
{
    size_t length = strlen(reading->place->path);
    GHashTableIter iter;
    void *key, *value;

    while (spread(reading))
        ;
    g_hash_table_iter_init(&iter, reading->states);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        const struct state *state = value;
        const char *path = key, *below = path + (g_str_has_prefix(path, reading->place->path) ? length : 0);

        if (!state->ours)
            continue;
        if (!state->others)
            wb_changed_add(ret->changed, path, state->whole);
        /* The other end of a rename may be outside. */
        else if ((length == 0 || (below > path && (!*below || *below == '/'))) &&
                 (state->existed || exists(reading, path)))
            g_ptr_array_add(ret->kept, g_strdup(*below == '/' ? below + 1 : below));
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int by_command_find(const struct wb_place *place, int64_t since, const char *const *commands, struct by_command *ret)
{
    g_autoptr(GHashTable) states = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_autoptr(GHashTable) objects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autoptr(GArray) pairs = g_array_new(FALSE, FALSE, sizeof(struct pair));
    struct reading reading = {.place = place, .commands = commands, .states = states, .pairs = pairs,
                              .objects = objects};
    struct stat st;
    int r;

    reading.is_file = wb_place_stat(place, &st) == 0 && !S_ISDIR(st.st_mode);
    *ret = (struct by_command){.changed = wb_changed_new(), .kept = g_ptr_array_new_with_free_func(g_free)};
    r = read_changes(&reading, since);
    if (r < 0)
        return wb_cli_fail(place->given, "the list of changes cannot be read (%s)", wb_errno_text(r));
    decide(&reading, ret);
    g_ptr_array_sort(ret->kept, compare);
    ret->first = reading.first;
    return 0;
}

void by_command_clear(struct by_command *by_command)
{
    wb_changed_free(by_command->changed);
    g_clear_pointer(&by_command->kept, g_ptr_array_unref);
    by_command->changed = NULL;
}
