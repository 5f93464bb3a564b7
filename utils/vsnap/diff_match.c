/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What was at one of the two moments only, and what became of it. */
#include "diff_parts.h"

#include "common/cli.h"
#include "client/fd.h"
#include <string.h>
#include <sys/stat.h>

static guint object_hash(gconstpointer data)
{
    const struct wb_control_entry *entry = ((const struct found *)data)->entry;

    return (guint)(entry->ino ^ entry->ino >> 32 ^ (guint64)entry->birth);
}

static gboolean object_equal(gconstpointer a, gconstpointer b)
{
    return diff_is_same(((const struct found *)a)->entry, ((const struct found *)b)->entry);
}

static void join(struct found *before, struct found *after)
{
    before->partner = after;
    after->partner = before;
}

/* The name that `after` had in the directory which its own directory was before; else any free one; else NULL. */
static struct found *choose(GQueue *queue, const struct found *after, bool any)
{
    const struct found *parent = after->parent ? after->parent->partner : NULL;

    for (GList *link = queue ? queue->head : NULL; link; link = link->next) {
        struct found *before = link->data;

        if (before->partner)
            continue;
        if (any || (parent && before->parent == parent && strcmp(before->entry->name, after->entry->name) == 0))
            return before;
    }
    return NULL;
}

/*
 * Names of one object on both lists belong together. Directories, which have one name, come first: with
 * them, names in them are found again. Other names of files follow in the order of the lists.
 */
static void find_partners(struct diff *diff)
{
    g_autoptr(GHashTable) table =
        g_hash_table_new_full(object_hash, object_equal, NULL, (GDestroyNotify)g_queue_free);

    for (guint i = 0; i < diff->only[0]->len; i++) {
        struct found *found = diff->only[0]->pdata[i];
        GQueue *queue = g_hash_table_lookup(table, found);

        if (!queue) {
            queue = g_queue_new();
            g_hash_table_insert(table, found, queue);
        }
        g_queue_push_tail(queue, found);
    }
    for (unsigned pass = 0; pass < 2; pass++) {
        for (guint i = 0; i < diff->only[1]->len; i++) {
            struct found *after = diff->only[1]->pdata[i];
            struct found *before = after->partner ? NULL
                                                  : choose(g_hash_table_lookup(table, after), after,
                                                           pass > 0 || S_ISDIR(after->entry->mode));

            if (before)
                join(before, after);
        }
    }
}

/* Where the directory around both was renamed and the name is as it was, that says it all. */
static bool goes_without_saying(const struct found *before, const struct found *after)
{
    return before->parent && after->parent && before->parent->partner == after->parent &&
           strcmp(before->entry->name, after->entry->name) == 0;
}

/* diff_same() for things of the lists, whose directories are closed by now. */
static void compare_found(struct diff *diff, const struct found *before, const struct found *after)
{
    struct there a = {.entry = before->entry}, b = {.entry = after->entry};
    _cleanup_fd_ int one = wb_fd_open_parent(diff->root[0], before->path, &a.name);
    _cleanup_fd_ int other = wb_fd_open_parent(diff->root[1], after->path, &b.name);

    if (one < 0 || other < 0) {
        diff_fail(diff, after->path, one < 0 ? one : other);
        return;
    }
    a.dir_fd = one;
    b.dir_fd = other;
    diff_same(diff, &a, &b, after->path);
}

void diff_match(struct diff *diff)
{
    g_autoptr(GHashTable) lost = g_hash_table_new(g_str_hash, g_str_equal);

    find_partners(diff);
    for (guint i = 0; i < diff->only[0]->len; i++) {
        struct found *found = diff->only[0]->pdata[i];

        if (!found->partner)
            g_hash_table_insert(lost, found->path, found);
    }
    for (guint i = 0; i < diff->only[1]->len && !wb_cli_interrupted(); i++) {
        struct found *after = diff->only[1]->pdata[i];
        struct found *before = g_hash_table_lookup(lost, after->path);

        /* What had the name before was replaced, not removed. */
        if (before)
            before->settled = true;
        if (after->partner) {
            if (!goes_without_saying(after->partner, after))
                diff_tell(diff, CHANGE_RENAMED, after->path, after->partner->path, after->partner->entry,
                     after->entry);
            compare_found(diff, after->partner, after);
        } else if (before) {
            compare_found(diff, before, after);
        } else {
            diff_tell(diff, CHANGE_ADDED, after->path, NULL, NULL, after->entry);
        }
    }
    for (guint i = 0; i < diff->only[0]->len; i++) {
        struct found *before = diff->only[0]->pdata[i];

        if (!before->partner && !before->settled)
            diff_tell(diff, CHANGE_REMOVED, before->path, NULL, before->entry, NULL);
    }
}
