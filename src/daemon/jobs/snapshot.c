/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/jobs/snapshot.h"

#include "base/cleanup.h"
#include "capture/capture.h"
#include "daemon/core/handle.h"
#include "daemon/live/mutation.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is open for writing ---------------------------------------------------------------- */

/* The path of a node from the root, if it has one in `scope`; with nodes.lock held. `names` is room
 * for the way. */
static char *path_of(const struct wb_session *session, const struct wb_inode *inode, struct wb_object scope,
                     GPtrArray *names)
{
    const struct wb_inode *root = session->nodes.root;
    bool within = false;
    GString *path;

    g_ptr_array_set_size(names, 0);
    for (; inode != root; inode = inode->parent) {
        if (!inode->parent || !inode->name || inode->dead)
            return NULL;
        within = within || wb_object_equal(inode->node.object, scope);
        g_ptr_array_add(names, inode->name);
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
        char *path = path_of(session, handle->inode, scope, names);

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

/* An early check, before anything waits; wb_snapshots_add makes the final decision. */
static int is_free(struct wb_session *session, const struct wb_snapshot *wanted)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshot_name_check(wanted->name, NULL);

    if (r == 0)
        r = wb_snapshots_get(session->store, &all);
    return r < 0 ? r : wb_snapshots_is_taken(all, wanted, NULL) ? -EEXIST : 0;
}

/* Nobody waits for a snapshot of a schedule, so it waits for a moment at which nothing is under way, and does not
 * stop others to get one; unless there is none for so long. */
#define WB_PATIENCE_TRIES 5000
#define WB_PATIENCE_PAUSE_US 1000

static void own_tree(struct wb_session *session, bool patient)
{
    for (int i = 0; patient && i < WB_PATIENCE_TRIES; i++) {
        if (wb_ns_try_write_lock(session))
            return;
        g_usleep(WB_PATIENCE_PAUSE_US);
    }
    wb_ns_write_lock(session);
}

/* Fills dirs[1..] with the way `names` from the root in dirs[0]. How many, or -errno. */
static int way_of(struct wb_session *session, struct wb_dir *dirs, char *names)
{
    _cleanup_close_ int fd = fcntl(session->src_fd, F_DUPFD_CLOEXEC, 0);
    int count = 0, r;
    char *save;

    for (char *name = strtok_r(names, "/", &save); name && fd >= 0; name = strtok_r(NULL, "/", &save)) {
        int below = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = errno;
        struct wb_dir *dir = &dirs[++count];
        struct stat st;

        wb_close_fd(&fd);
        fd = below;
        if (fd < 0)
            return error == ENOENT || error == ENOTDIR || error == ELOOP ? -ESTALE : -error;
        *dir = (struct wb_dir){.parent = dir - 1, .name = name, .fd = -1};
        r = wb_object_stat(session->store, fd, NULL, &dir->object, NULL, &st);
        if (r < 0 || st.st_dev != session->src_dev)
            return r < 0 ? r : -EXDEV;
    }
    return fd < 0 ? -errno : count;
}

/*
 * Without a record that says where the directory is, nobody can say in a copy of the tree which of its directories the
 * snapshot is of (vfsck --rebind). With ns_lock held exclusively, so that no name changes. -ESTALE: it has moved.
 */
static int place_scope(struct wb_session *session, const struct wb_snapshot *snapshot)
{
    g_autofree struct wb_dir *dirs = NULL;
    char names[WB_SNAPSHOT_PATH_MAX + 1];
    int count;

    if (wb_object_equal(snapshot->scope, session->store->header.root))
        return 0;
    if (g_strlcpy(names, snapshot->path, sizeof(names)) >= sizeof(names))
        return -ENAMETOOLONG;
    dirs = g_try_new0(struct wb_dir, strlen(names) / 2 + 2);
    if (!dirs)
        return -ENOMEM;
    dirs[0] = (struct wb_dir){.object = session->store->header.root, .fd = -1};
    count = way_of(session, dirs, names);
    if (count >= 0 && !wb_object_equal(dirs[count].object, snapshot->scope))
        count = -ESTALE;
    return count < 0 ? count : wb_capture_ensure_catalog(session->store, &dirs[count]);
}

int wb_snapshot_take(struct wb_session *session, struct wb_snapshot *snapshot)
{
    g_auto(GStrv) files = NULL;
    int r = is_free(session, snapshot);

    if (r < 0)
        return r;
    own_tree(session, snapshot->automatic);
    r = place_scope(session, snapshot);
    snapshot->when = wb_store_tick(session->store);
    files = r < 0 ? NULL : files_open(session, snapshot->scope);
    wb_ns_unlock(session);
    if (r < 0)
        return r;

    /* History before what it is the history of; the name last, so that it never promises too much. */
    r = wb_sync_history(session);
    if (r == 0)
        r = wb_store_sync_content(session->store);
    return r < 0 ? r : wb_snapshots_add(session->store, snapshot, (const char *const *)files);
}
