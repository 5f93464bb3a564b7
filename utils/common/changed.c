/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/changed.h"

#include "client/control.h"
#include "client/path.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>

/* With more changes than this the tree is compared as a whole: reading the list may take as long. */
#define CHANGES_MAX 200000
/* Pages in a row without progress. */
#define STANDING_STILL 100

/* A component of a path. */
struct wb_changed {
    GHashTable *below; /* of char * -> struct wb_changed *; NULL: none */
    bool itself;       /* it is one of the paths */
    bool whole;        /* everything below it may differ */
};

static void free_node(void *node)
{
    wb_changed_free(node);
}

struct wb_changed *wb_changed_free(struct wb_changed *changed)
{
    if (changed && changed->below)
        g_hash_table_unref(changed->below);
    g_free(changed);
    return NULL;
}

/* The node of the next component of *path, which is moved behind it; NULL if there is none and !`make`. */
static struct wb_changed *step(struct wb_changed *node, const char **path, bool make)
{
    size_t length = strcspn(*path, "/");
    g_autofree char *name = g_strndup(*path, length);
    struct wb_changed *child = node->below ? g_hash_table_lookup(node->below, name) : NULL;

    *path += length + ((*path)[length] == '/');
    if (child || !make)
        return child;
    if (!node->below)
        node->below = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_node);
    child = g_new0(struct wb_changed, 1);
    g_hash_table_insert(node->below, g_steal_pointer(&name), child);
    return child;
}

struct wb_changed *wb_changed_new(void)
{
    return g_new0(struct wb_changed, 1);
}

void wb_changed_add(struct wb_changed *changed, const char *path, bool whole)
{
    struct wb_changed *node = changed;

    if (strcmp(path, ".") == 0)
        path = "";
    while (*path && !node->whole)
        node = step(node, &path, true);
    node->itself = true;
    node->whole |= whole;
}

void wb_changed_add_all(struct wb_changed *changed, const struct wb_changed *others)
{
    GHashTableIter iter;
    void *name, *child;

    changed->itself |= others->itself;
    changed->whole |= others->whole;
    if (!others->below)
        return;
    g_hash_table_iter_init(&iter, others->below);
    while (g_hash_table_iter_next(&iter, &name, &child)) {
        const char *path = name;

        wb_changed_add_all(step(changed, &path, true), child);
    }
}

enum revert_extent wb_changed_extent(const void *changed, const char *path)
{
    const struct wb_changed *node = changed;

    while (node && !node->whole && *path)
        node = step((struct wb_changed *)node, &path, false);
    return !node ? REVERT_NOTHING : node->itself || node->whole ? REVERT_ITSELF : REVERT_BELOW;
}

static bool each_below(const struct wb_changed *node, const char *path, bool (*each)(void *data, const char *path),
                       void *data)
{
    GHashTableIter iter;
    void *name, *child;

    if (node->itself && each(data, path))
        return true;
    if (!node->below)
        return false;
    g_hash_table_iter_init(&iter, node->below);
    while (g_hash_table_iter_next(&iter, &name, &child)) {
        g_autofree char *below = wb_path_join(path, name);

        if (each_below(child, below, each, data))
            return true;
    }
    return false;
}

bool wb_changed_each(const struct wb_changed *changed, bool (*each)(void *data, const char *path), void *data)
{
    return each_below(changed, "", each, data);
}

char *wb_changed_top(const struct wb_changed *changed)
{
    GString *path = g_string_new(NULL);

    for (const struct wb_changed *node = changed;
         !node->itself && node->below && g_hash_table_size(node->below) == 1;) {
        GHashTableIter iter;
        void *name, *child;

        g_hash_table_iter_init(&iter, node->below);
        g_hash_table_iter_next(&iter, &name, &child);
        g_string_append_printf(path, "%s%s", path->len > 0 ? "/" : "", (char *)name);
        node = child;
    }
    return g_string_free(path, FALSE);
}

bool wb_changed_has(const struct wb_changed *changed, const char *path)
{
    const struct wb_changed *node = changed;

    while (node && !node->whole && *path)
        node = step((struct wb_changed *)node, &path, false);
    return !changed || node;
}

/* ---- the list of changes ------------------------------------------------------------------------- */

/* False: it is not certain which paths it concerns. */
static bool add_change(struct wb_changed *root, const struct wb_control_change *change)
{
    bool names = change->existed_before != change->exists_after || change->other;

    if (change->flags & WB_CONTROL_CHANGE_LINKED)
        return false;
    /* No path leads to it. */
    if (change->flags & WB_CONTROL_CHANGE_UNKNOWN)
        return true;
    /* A gap in the catalog of a directory: its names are not known. */
    names |= change->flags & WB_CONTROL_CHANGE_GAP && S_ISDIR(change->mode_before);
    wb_changed_add(root, change->strings + change->path, names);
    if (change->other)
        wb_changed_add(root, change->strings + change->other, true);
    return true;
}

/* A gap is in the list at its end, and concerns all of the time from its begin on. */
static bool is_concerned(const struct wb_control_change *change, int64_t until)
{
    return change->when <= until || (change->flags & WB_CONTROL_CHANGE_GAP && (int64_t)change->offset <= until);
}

/* A page. 0; 1: the list is of no use; or -errno. */
static int add_page(struct wb_changed *root, const struct wb_control *page, int64_t until, unsigned *count)
{
    size_t at = 0;

    if (page->flags & WB_CONTROL_CHANGES_BUILDING || !(page->flags & WB_CONTROL_CHANGES_WHOLE))
        return 1;
    *count += page->count;
    if (*count > CHANGES_MAX)
        return 1;
    for (uint32_t i = 0; i < page->count; i++) {
        const struct wb_control_change *change = (const void *)(page->data + at);

        at += change->size;
        if (is_concerned(change, until) && !add_change(root, change))
            return 1;
    }
    return 0;
}

int wb_changed_collect(int root_fd, int64_t since, int64_t until, struct wb_changed **ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    _cleanup_changed_ struct wb_changed *root = wb_changed_new();
    unsigned count = 0, still = 0;
    uint64_t cursor = 0;
    bool more = true;
    int r = 0;

    *ret = NULL;
    while (r == 0 && more) {
        r = wb_request_prepare(request, WB_CONTROL_CHANGES, "");
        if (r < 0)
            return r;
        request->since = since + 1;
        request->cursor = cursor;
        r = wb_request_call(root_fd, request);
        if (r < 0)
            return r;
        r = add_page(root, request, until, &count);
        more = request->flags & WB_CONTROL_CHANGES_MORE;
        still = request->cursor == cursor ? still + 1 : 0;
        cursor = request->cursor;
        if (r == 0 && still > STANDING_STILL)
            return -EPROTO;
    }
    if (r == 0)
        *ret = g_steal_pointer(&root);
    return r;
}
