/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "restores.h"
#include "client/control.h"
#include "client/path.h"
#include "common/cli.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* The changes of one process are nearer to each other, even while it compares a large tree. Later ones with the same
 * number and command line are of another process. */
#define PAUSE_MAX (3600 * WB_WHEN_SECOND)
/* Digits of an ID without decimals. */
#define SECONDS_DIGITS 10

static const char *const commands[] = {"vrevert", "vundo", "vweb", "wayback", NULL};

/* A path, by its first and its last change. */
struct name {
    bool existed_before, exists_after;
};

static void restore_free(void *data)
{
    struct restore *restore = data;

    g_free(restore->command);
    wb_changed_free(restore->paths);
    g_hash_table_unref(restore->objects);
    g_hash_table_unref(restore->linked);
    g_free(restore->top);
    g_free(restore->inverts_text);
    if (restore->names)
        g_hash_table_unref(restore->names);
    g_free(restore);
}

/* ---- command lines ------------------------------------------------------------------------------- */

/* Whether a command line is that of a restore (0), or of an undo or redo (1); -1: of neither. */
static int kind_of(const char *command)
{
    g_auto(GStrv) parts = g_strsplit(command, " ", 3);
    const char *program, *verb;
    size_t length;

    if (!parts[0])
        return -1;
    program = strrchr(parts[0], '/') ? strrchr(parts[0], '/') + 1 : parts[0];
    verb = parts[1] ? parts[1] : "";
    length = strlen(program);
    /* "[vrevert] /path with blanks/vrevert ...": the name by which the kernel knows it. */
    if (program[0] == '[' && length > 2 && program[length - 1] == ']') {
        program = g_strndup(program + 1, length - 2);
        g_free(parts[0]);
        parts[0] = (char *)program;
    }
    /* Each restore in the page of vweb is a process of its own. */
    if (strcmp(program, "vrevert") == 0 || strcmp(program, "vweb") == 0)
        return 0;
    if (strcmp(program, "vundo") == 0)
        return 1;
    if (strcmp(program, "wayback") != 0)
        return -1;
    if (strcmp(verb, "restore") == 0 || strcmp(verb, "web") == 0)
        return 0;
    return strcmp(verb, "undo") == 0 || strcmp(verb, "redo") == 0 ? 1 : -1;
}

/* The value of --op; g_free. NULL: there is none, or the caller may not see the arguments. */
static char *op_of(const char *command)
{
    const char *at = strstr(command, " --op");

    if (!at || (at[5] != '=' && at[5] != ' '))
        return NULL;
    at += 6;
    return g_strndup(at, strcspn(at, " "));
}

/* ---- one restore --------------------------------------------------------------------------------- */

static void note_name(struct restore *restore, const char *path, bool existed_before, bool exists_after)
{
    struct name *name = g_hash_table_lookup(restore->names, path);

    /* From the newest change to the oldest. */
    if (name) {
        name->existed_before = existed_before;
        return;
    }
    name = g_new(struct name, 1);
    *name = (struct name){existed_before, exists_after};
    g_hash_table_insert(restore->names, g_strdup(path), name);
}

char *restore_path(const char *path, bool *ret_unknown)
{
    const char *name;
    g_autofree char *parent = NULL;

    *ret_unknown = false;
    if (*path == '/' || strcmp(path, ".") == 0)
        return *path == '/' ? NULL : g_strdup("");
    parent = wb_path_parent(path, &name);
    *ret_unknown = strcmp(name, "?") == 0;
    return *ret_unknown ? g_steal_pointer(&parent) : g_strdup(path);
}

static void add_path(struct restore *restore, const char *given, bool names, bool existed, bool exists)
{
    bool unknown;
    g_autofree char *path = restore_path(given, &unknown);

    if (!path) {
        restore->outside = true;
        return;
    }
    wb_changed_add(restore->paths, path, names || unknown);
    if (!unknown)
        note_name(restore, path, existed, exists);
}

bool restore_object(uint64_t inode, int64_t birth, char text[RESTORE_OBJECT_MAX])
{
    g_snprintf(text, RESTORE_OBJECT_MAX, "%" G_GUINT64_FORMAT "-%" G_GINT64_FORMAT, inode, birth);
    return inode != 0;
}

static void add_change(struct restore *restore, const struct wb_change *change)
{
    const struct wb_control_change *entry = change->entry;
    bool moves = strcmp(change->op, "rename") == 0 || strcmp(change->op, "exchange") == 0;
    bool swaps = strcmp(change->op, "exchange") == 0;
    bool names = entry->existed_before != entry->exists_after || moves;
    char object[RESTORE_OBJECT_MAX];

    restore->changes++;
    restore->first = entry->when;
    if (restore_object(entry->ino, entry->birth, object)) {
        g_hash_table_add(restore->objects, g_strdup(object));
        if (entry->flags & WB_CONTROL_CHANGE_LINKED)
            g_hash_table_replace(restore->linked, g_strdup(object), g_new0(uint64_t, 1));
    }
    if (entry->flags & WB_CONTROL_CHANGE_UNKNOWN && !(entry->flags & WB_CONTROL_CHANGE_LINKED))
        return; /* of a file without names */
    add_path(restore, change->path, names, moves || entry->existed_before, moves ? swaps : entry->exists_after);
    if (moves && *change->other)
        add_path(restore, change->other, true, swaps, true);
}

/* Files that were put aside had no name before and have none afterwards. */
static void finish(struct restore *restore)
{
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, restore->names);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct name *name = value;

        restore->added += !name->existed_before && name->exists_after;
        restore->removed += name->existed_before && !name->exists_after;
        restore->changed += name->existed_before && name->exists_after;
    }
    g_clear_pointer(&restore->names, g_hash_table_unref);
    restore->top = wb_changed_top(restore->paths);
    restore->effective = restore->first;
}

static struct restore *find_open(const GPtrArray *restores, const struct wb_change *change)
{
    for (guint i = restores->len; i-- > 0;) {
        struct restore *restore = restores->pdata[i];

        if (restore->uid == change->uid && restore->pid == change->pid &&
            restore->first - change->entry->when < PAUSE_MAX && strcmp(restore->command, change->command) == 0)
            return restore;
    }
    return NULL;
}

static struct restore *begin(GPtrArray *restores, const struct wb_change *change, int kind)
{
    struct restore *restore = g_new0(struct restore, 1);

    restore->last = change->entry->when;
    restore->uid = change->uid;
    restore->pid = change->pid;
    restore->command = g_strdup(change->command);
    restore->paths = wb_changed_new();
    restore->linked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    restore->objects = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    restore->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    restore->by_undo = kind == 1;
    if (restore->by_undo)
        restore->inverts_text = op_of(change->command);
    g_ptr_array_add(restores, restore);
    return restore;
}

/* ---- which has an effect ------------------------------------------------------------------------- */

/* An undo that has an effect takes one of the restore that it undid away, and so on down to the first of them. */
static void take_effect(struct restore *restore, int64_t when)
{
    bool has = true;

    for (struct restore *at = restore; at; at = at->inverts, has = !has) {
        if (has)
            at->effective = when;
        if (at->inverts)
            at->inverts->undone_by = has ? at : NULL;
    }
}

/* A restore among the earlier ones, which follow in the array. */
static struct restore *find_earlier(const GPtrArray *restores, guint from, const char *text)
{
    char id[WB_WHEN_TEXT_MAX];

    for (guint i = from; i < restores->len; i++) {
        if (strcmp(restore_id(restores->pdata[i], id), text) == 0)
            return restores->pdata[i];
    }
    return NULL;
}

/* An undo that was interrupted, and another process that finished it, are one. */
static void join(struct restore *first, struct restore *second)
{
    GHashTableIter iter;
    void *object;

    first->last = second->last;
    first->effective = second->first;
    first->changes += second->changes;
    first->added += second->added;
    first->removed += second->removed;
    first->changed += second->changed;
    first->outside |= second->outside;
    wb_changed_add_all(first->paths, second->paths);
    g_hash_table_iter_init(&iter, second->objects);
    while (g_hash_table_iter_next(&iter, &object, NULL))
        g_hash_table_add(first->objects, g_strdup(object));
    g_hash_table_iter_init(&iter, second->linked);
    while (g_hash_table_iter_next(&iter, &object, NULL))
        g_hash_table_replace(first->linked, g_strdup(object), g_new0(uint64_t, 1));
    g_free(first->top);
    first->top = wb_changed_top(first->paths);
}

/* An undo of a restore takes the effect of its redo away, too, if it was redone before. */
static void end_redos(const GPtrArray *restores, guint from, struct restore *undo)
{
    if (!undo->inverts)
        return;
    for (guint i = from + 1; i < restores->len && restores->pdata[i] != undo->inverts; i++) {
        struct restore *restore = restores->pdata[i];

        for (struct restore *at = restore; at->inverts && at->inverts->inverts && !restore->undone_by;
             at = at->inverts->inverts) {
            if (at->inverts->inverts == undo->inverts)
                restore->undone_by = undo;
        }
    }
}

static void relate(GPtrArray *restores)
{
    for (guint i = restores->len; i-- > 0;) {
        struct restore *restore = restores->pdata[i];
        struct restore *inverts =
            restore->inverts_text ? find_earlier(restores, i + 1, restore->inverts_text) : NULL;

        if (inverts && inverts->undone_by) {
            join(inverts->undone_by, restore);
            g_ptr_array_remove_index(restores, i);
            continue;
        }
        restore->inverts = inverts;
        take_effect(restore, restore->first);
        end_redos(restores, i, restore);
    }
}

/* ---- all of them ---------------------------------------------------------------------------------- */

static int compare_newest(const void *a, const void *b)
{
    const struct restore *one = *(const struct restore *const *)a, *other = *(const struct restore *const *)b;

    return (one->first < other->first) - (one->first > other->first);
}

GPtrArray *restores_read(const struct wb_mount *mount, int *error)
{
    g_autoptr(GPtrArray) restores = g_ptr_array_new_with_free_func(restore_free);
    struct wb_change_walk_options options = {.commands = commands};
    _cleanup_change_walk_ struct wb_change_walk *walk = wb_change_walk_new(mount, "", &options);
    struct wb_change change;
    uint64_t held = 0;
    int r;

    while ((r = wb_change_walk_next(walk, &change)) == 0 && held <= WB_HELD_MAX) {
        int kind = change.entry->flags & WB_CONTROL_CHANGE_GAP ? -1 : kind_of(change.command);
        struct restore *restore;

        if (kind < 0)
            continue;
        restore = find_open(restores, &change);
        add_change(restore ? restore : begin(restores, &change, kind), &change);
        held += change.entry->size;
    }
    *error = wb_cli_interrupted() ? -EINTR : r == 0 ? -EOVERFLOW : MIN(r, 0);
    if (*error < 0)
        return NULL;
    g_ptr_array_foreach(restores, (GFunc)(void *)finish, NULL);
    g_ptr_array_sort(restores, compare_newest);
    relate(restores);
    return g_steal_pointer(&restores);
}

const char *restore_id(const struct restore *restore, char text[WB_WHEN_TEXT_MAX])
{
    return wb_when_print_epoch(restore->first, text);
}

const char *restore_short_id(const GPtrArray *restores, const struct restore *restore, char text[WB_WHEN_TEXT_MAX])
{
    size_t length = SECONDS_DIGITS, whole = strlen(restore_id(restore, text));
    char other[WB_WHEN_TEXT_MAX];

    for (guint i = 0; i < restores->len; i++) {
        size_t same = 0;

        restore_id(restores->pdata[i], other);
        while (restores->pdata[i] != restore && text[same] && text[same] == other[same])
            same++;
        length = MAX(length, same + 1);
    }
    /* Not the point alone. */
    length = length == SECONDS_DIGITS + 1 ? length + 1 : length;
    text[MIN(length, whole)] = '\0';
    return text;
}

/* Of an undo that one process began and another one finished. A restore between the two is not a part of it. */
static bool inverts_the_same(const struct restore *restore, const struct wb_change *change)
{
    g_autofree char *text = restore->inverts_text ? op_of(change->command) : NULL;

    return text && kind_of(change->command) == 1 && strcmp(text, restore->inverts_text) == 0;
}

struct restore *restore_of(const GPtrArray *restores, const struct wb_change *change)
{
    for (guint i = 0; kind_of(change->command) >= 0 && i < restores->len; i++) {
        struct restore *restore = restores->pdata[i];

        if (restore->first <= change->entry->when && change->entry->when <= restore->last &&
            restore->uid == change->uid && (restore->pid == change->pid || inverts_the_same(restore, change)))
            return restore;
    }
    return NULL;
}

unsigned restore_depth(const struct restore *restore)
{
    unsigned depth = 0;

    for (; restore->inverts; restore = restore->inverts)
        depth++;
    return depth;
}

const struct restore *restore_base(const struct restore *restore)
{
    while (restore->inverts)
        restore = restore->inverts;
    return restore;
}

const char *restore_state(const struct restore *restore)
{
    if (restore->undone_by)
        return "undone";
    return !restore->inverts ? (restore->by_undo ? "undo?" : "restore") : restore_depth(restore) % 2 ? "undo" : "redo";
}
