/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/snapshot.h"

#include "daemon/change.h"
#include "daemon/handle.h"
#include <errno.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is open for writing ---------------------------------------------------------------- */

/* The path of a node from the root, if it has one in `scope`; with nodes.lock held. `names` is room
 * for the way. */
static char *path_of(const struct wb_session *session, const struct wb_live *live, struct wb_object scope,
                     GPtrArray *names)
{
    const struct wb_live *root = session->nodes.root;
    bool within = false;
    GString *path;

    g_ptr_array_set_size(names, 0);
    for (; live != root; live = live->parent) {
        if (!live->parent || !live->name || live->dead)
            return NULL;
        within = within || wb_object_equal(live->node.object, scope);
        g_ptr_array_add(names, live->name);
    }
    if (!within && !wb_object_equal(root->node.object, scope))
        return NULL;
    path = g_string_new(NULL);
    for (guint i = names->len; i-- > 0;)
        g_string_append_printf(path, "%s%s", path->len > 0 ? "/" : "", (const char *)names->pdata[i]);
    return g_string_free(path, FALSE);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Each path once, in byte order, NULL-terminated. */
static char **files_open(struct wb_session *session, struct wb_object scope)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    GPtrArray *paths = g_ptr_array_new();
    guint kept = 0;

    pthread_mutex_lock(&session->nodes.lock);
    for (const struct wb_handle *handle = session->nodes.writers; handle; handle = handle->writers_next) {
        char *path = path_of(session, handle->live, scope, names);

        if (path)
            g_ptr_array_add(paths, path);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    g_ptr_array_sort(paths, compare_paths);
    for (guint i = 0; i < paths->len; i++) {
        if (kept > 0 && strcmp(paths->pdata[kept - 1], paths->pdata[i]) == 0)
            g_free(paths->pdata[i]);
        else
            paths->pdata[kept++] = paths->pdata[i];
    }
    g_ptr_array_set_size(paths, (gint)kept);
    g_ptr_array_add(paths, NULL);
    return (char **)g_ptr_array_free(paths, FALSE);
}

/* ---- the moment ------------------------------------------------------------------------------ */

/* Told before anything waits; wb_snapshots_add has the last word. */
static int is_free(struct wb_session *session, const char *name)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshot_name_check(name, NULL);

    if (r == 0)
        r = wb_snapshots_get(session->store, &all);
    return r < 0 ? r : wb_snapshots_find(all, name) ? -EEXIST : 0;
}

/* Nobody waits for a snapshot of a schedule, so it waits for a moment at which nothing is under way, and does not
 * stop others to get one; unless there is none for so long. */
#define WB_PATIENCE_TRIES 5000
#define WB_PATIENCE_PAUSE_US 1000

static void own_tree(struct wb_session *session, bool patient)
{
    for (int i = 0; patient && i < WB_PATIENCE_TRIES; i++) {
        if (pthread_rwlock_trywrlock(&session->tree) == 0)
            return;
        g_usleep(WB_PATIENCE_PAUSE_US);
    }
    wb_tree_own(session);
}

int wb_snapshot_take(struct wb_session *session, struct wb_snapshot *snapshot)
{
    g_auto(GStrv) files = NULL;
    int r = is_free(session, snapshot->name);

    if (r < 0)
        return r;
    own_tree(session, snapshot->automatic);
    snapshot->when = wb_store_tick(session->store);
    files = files_open(session, snapshot->scope);
    wb_tree_release(session);

    /* History before what it is the history of; the name last, so that it never promises too much. */
    r = wb_sync_history(session);
    if (r == 0)
        r = wb_store_sync_content(session->store, session->src_fd);
    return r < 0 ? r : wb_snapshots_add(session->store, snapshot, (const char *const *)files);
}
