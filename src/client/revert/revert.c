/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "client/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* A deleted directory above PATH, which is restored first. */
struct parent {
    char *path, *source;
    struct stat brought;
};

static void parent_free(void *data)
{
    struct parent *parent = data;

    g_free(parent->path);
    g_free(parent->source);
    g_free(parent);
}

static int bring_parent(struct revert *revert, struct parent *parent)
{
    int root = revert->mount->root_fd;
    struct revision revision = {.source = parent->source, .path = parent->path, .found_dir = -1};
    _cleanup_fd_ int past_dir = wb_fd_open_parent(root, parent->source, &revision.past_name);
    _cleanup_fd_ int dir = wb_fd_open_parent(root, parent->path, &revision.name);
    int r;

    if (past_dir < 0)
        return past_dir;
    revision.past_dir = past_dir;
    revision.dir = dir;
    r = revert_look(revert, &revision);
    if (r == 0)
        r = revert_bring(revert, &revision);
    parent->brought = revision.have;
    revert_leave(&revision);
    return r;
}

/* Restores deleted directories above PATH, without their other entries. 0, or -errno, which was reported. */
static int bring_parents(struct revert *revert, GPtrArray *parents)
{
    const char *path = revert->path;

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        struct parent *parent;
        struct stat st;
        g_autofree char *prefix = g_strndup(path, (gsize)(slash - path));
        int r;

        if (fstatat(revert->mount->root_fd, prefix, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            g_autofree char *what = NULL;

            if (S_ISDIR(st.st_mode))
                continue;
            what = g_strdup_printf("%s is not a directory now; revert that first", prefix);
            revert_fail(revert, revert->path, what, 0);
            return -ENOTDIR;
        }
        parent = g_new0(struct parent, 1);
        g_ptr_array_add(parents, parent);
        parent->path = g_steal_pointer(&prefix);
        r = wb_moment_path(revert->mount, parent->path, revert->when, &parent->source);
        if (r == 0)
            r = bring_parent(revert, parent);
        if (r < 0) {
            revert_fail(revert, parent->path, "cannot be restored", r);
            return r;
        }
    }
    return 0;
}

static void finish_parents(struct revert *revert, const GPtrArray *parents)
{
    int root = revert->mount->root_fd;

    for (guint i = revert->dry ? 0 : parents->len; i-- > 0;) {
        const struct parent *parent = parents->pdata[i];
        struct revision revision = {.path = parent->path};
        _cleanup_fd_ int past_dir = wb_fd_open_parent(root, parent->source, &revision.past_name);
        _cleanup_fd_ int dir = wb_fd_open_parent(root, parent->path, &revision.name);
        _cleanup_fd_ int held = dir < 0 ? -1 : wb_hold(dir, revision.name, &parent->brought);

        revision.past_dir = past_dir;
        if (past_dir < 0 || held < 0 || fstatat(past_dir, revision.past_name, &revision.want, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        revert_directory_attrs(revert, &revision, held);
        revert_sync(revert, dir, revision.name);
    }
}

/* Restores the state of PATH, which existed then. */
static void revert_to(struct revert *revert, const char *source)
{
    int root = revert->mount->root_fd;
    g_autoptr(GPtrArray) parents = g_ptr_array_new_with_free_func(parent_free);
    g_autofree char *parent_path = wb_path_parent(revert->path, NULL);
    struct revision revision = {.source = source, .path = revert->path, .found_dir = -1};
    _cleanup_fd_ int past_dir = -1;
    _cleanup_fd_ int dir = -1;
    int r = bring_parents(revert, parents);

    if (r < 0)
        return;
    past_dir = wb_fd_open_parent(root, source, &revision.past_name);
    dir = wb_fd_open_parent(root, revert->path, &revision.name);
    if (past_dir < 0 || (dir < 0 && !revert->dry)) {
        revert_fail(revert, revert->path, NULL, past_dir < 0 ? past_dir : dir);
        return;
    }
    revision.past_dir = past_dir;
    revision.dir = dir < 0 ? -1 : dir;
    r = revert_walk(revert, &revision);
    if (r == 0)
        r = revert_sweep(revert, &revision);
    if (r == 0 && dir >= 0 && *revert->path)
        r = revert_sweep_beside(revert, dir, parent_path);
    if (r == 0)
        r = revert_sweep_aside(revert);
    if (r == 0)
        finish_parents(revert, parents);
    if (dir >= 0)
        revert_sync(revert, dir, ".");
}

/* Removes PATH, which did not exist then. */
static void revert_to_nothing(struct revert *revert)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(revert->mount->root_fd, revert->path, &name);

    if (dir < 0) {
        if (dir == -EXDEV)
            revert_fail_mount(revert, revert->path);
        else if (dir != -ENOENT && dir != -ENOTDIR)
            revert_fail(revert, revert->path, NULL, dir);
        return;
    }
    if (revert_remove(revert, dir, name, revert->path) == 0 && revert->sync && !revert->dry) {
        _cleanup_fd_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
            fsync(fd);
    }
}

static void begin(struct revert *revert, const struct revert_request *request)
{
    struct stat st;

    *revert = (struct revert){.mount = request->mount, .path = request->path, .set = request->set,
                              .source = request->source, .when = request->when, .dry = request->dry,
                              .sync = request->sync, .all_links = request->all_links,
                              .listener = request->listener, .extent = request->extent,
                              .extent_data = request->extent_data};
    revert->touched = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->walked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    revert->moved = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->done = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->aside_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    revert->broken = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->dev = fstat(request->mount->root_fd, &st) == 0 ? st.st_dev : 0;
    revert_aside_prefix(request->path, revert->aside);
}

static void end(struct revert *revert)
{
    g_hash_table_unref(revert->touched);
    if (revert->directories)
        g_hash_table_unref(revert->directories);
    g_hash_table_unref(revert->walked);
    g_hash_table_unref(revert->moved);
    g_hash_table_unref(revert->done);
    g_hash_table_unref(revert->aside_of);
    g_hash_table_unref(revert->broken);
}

void wb_revert_run(const struct revert_request *request, struct revert_result *ret)
{
    struct revert revert;

    begin(&revert, request);
    if (request->source)
        revert_to(&revert, request->source);
    else
        revert_to_nothing(&revert);
    revert.result.interrupted = wb_watch_stopped();
    *ret = revert.result;
    end(&revert);
}
