/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/branch/branch_check.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/system/detach.h"
#include "store/tables/received.h"
#include "wayback/control.h"
#include "wayback/when.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_within(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    return strcmp(directory, "/") == 0 ||
           (strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0'));
}

/* Whether nobody but root can get there: some directory on the way is closed. */
static bool is_closed(const char *point)
{
    g_autofree char *at = g_path_get_dirname(point);

    for (;;) {
        struct stat st;
        char *up;

        if (stat(at, &st) == 0 && st.st_uid == 0 && (st.st_mode & 011) == 0)
            return true;
        if (strcmp(at, "/") == 0)
            return false;
        up = g_path_get_dirname(at);
        g_free(at);
        at = up;
    }
}

int wb_branch_check_caller(const struct wb_options *options, const char *point, struct wb_problem *why)
{
    if (geteuid() != 0)
        return wb_problem_set(why, -EPERM, "a branch is an overlay, and only root may mount one; an ordinary user "
                              "can mount the past state itself (leave branch= out), and copy from it");
    if (options->allow_other || is_closed(point))
        return 0;
    return wb_problem_set(why, -EPERM, "an overlay is open to other users, who can read everything that the modes of "
                          "that time allow, even if access was removed since; use allow_other to accept this, or mount "
                          "below a directory that only root may search");
}

int wb_branch_resolve(char **ret, const char *path, const char *what, struct wb_problem *why)
{
    *ret = realpath(path, NULL);
    return *ret ? 0 : wb_problem_set(why, -errno, "%s: %s; %s must be a directory that exists", path,
                                     g_strerror(errno), what);
}

/* A branch's directory holds what we put there, and nothing else. */
static int check_content(const char *dir, bool known, struct wb_problem *why)
{
    static const char *const ours[] = {WB_STORE_NAME, WB_STAGING_NAME, WB_BRANCH_UPPER, WB_BRANCH_WORK,
                                       WB_BRANCH_FILE, "." WB_BRANCH_FILE ".new", "lost+found", NULL};
    g_autofree char *upper = g_build_filename(dir, WB_BRANCH_UPPER, NULL);
    _cleanup_closedir_ DIR *stream = opendir(dir);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return wb_problem_set(why, -errno, "%s: %s", dir, g_strerror(errno));
    while (wb_next_entry(stream, &entry, &r))
        if (!g_strv_contains(ours, entry->d_name))
            return wb_problem_set(why, -ENOTEMPTY, "%s is neither a branch nor empty; name an empty or a new "
                                  "directory", dir);
    if (r < 0)
        return wb_problem_set(why, r, "%s: %s", dir, g_strerror(-r));
    /* Without its memory it was never mounted: rmdir tells whether anything is in it all the same. */
    if (!known && rmdir(upper) < 0 && errno != ENOENT)
        return wb_problem_set(why, -errno, "%s has changes, but no time of the branch (its file %s is missing)", dir,
                              WB_BRANCH_FILE);
    return 0;
}

int wb_branch_recall(struct wb_branching *work, const char *dir, struct wb_problem *why)
{
    int r = wb_branch_read(dir, &work->memory);

    work->known = r == 0;
    return r >= 0 ? 0
                  : wb_problem_set(why, r, "%s/%s, which has the time of the branch, cannot be read: %s", dir,
                                   WB_BRANCH_FILE, g_strerror(-r));
}

static bool is_in_mount(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);

    control->version = WB_CONTROL_VERSION;
    control->command = WB_CONTROL_HELLO;
    return fd >= 0 && ioctl(fd, WB_CONTROL_IOCTL, control) == 0;
}

int wb_branch_check_apart(const char *dir, const char *other, struct wb_problem *why)
{
    if (!is_within(dir, other) && !is_within(other, dir))
        return 0;
    return wb_problem_set(why, -EINVAL, "branch=%s and %s are inside each other; choose a directory outside", dir,
                          other);
}

/* The store, by the descriptors of the layer: the mount may cover its own source. */
static int open_store(const struct wb_control_hello *lower, struct wb_store **ret, struct wb_problem *why)
{
    g_autofree char *source = g_strdup_printf("/proc/%u/fd/%d", lower->pid, lower->source_fd);
    g_autofree char *store = lower->store_fd < 0 ? NULL
                                                 : g_strdup_printf("/proc/%u/fd/%d", lower->pid, lower->store_fd);
    _cleanup_close_ int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? wb_problem_set(why, -errno, "%s: %s", lower->source, g_strerror(errno))
                  : wb_store_open(ret, fd, store, 0, why);
}

static int tell_thinned(const struct wb_branching *work, const struct wb_thinned *now, struct wb_problem *why)
{
    char text[WB_WHEN_TEXT_MAX];
    bool named = now->name[0] && work->memory.thinned.files == 0;

    return wb_problem_set(why, -ESTALE, "versions that the branch %s shows, as of %s, were thinned out of %s (vprune, "
                          "vrm) while it was not mounted%s%s%s, so unchanged files would show older content; its "
                          "changes are in %s/" WB_BRANCH_UPPER "; create a new branch at a snapshot (vsnap), which "
                          "protects its state", work->dir, wb_when_print(work->memory.when, 1, text),
                          work->memory.source, named ? ", one of '" : "", named ? now->name : "", named ? "'" : "",
                          work->dir);
}

int wb_branch_check_kept(struct wb_branching *work, const struct wb_control_hello *lower, struct wb_problem *why)
{
    struct wb_store *store = NULL;
    struct wb_thinned now = {0};
    int64_t erased = 0;
    int r = open_store(lower, &store, why);

    if (r == 0) {
        erased = wb_erased_read(store->dir_fd).last;
        /* What was thinned out before a moment is over is of earlier ones. */
        if (erased == INT64_MAX || erased > (work->known ? work->memory.erased : work->memory.when))
            r = wb_thinned_at(store, work->memory.when, &now);
        else
            now = work->memory.thinned;
        if (r < 0)
            wb_problem_set(why, r, "%s: cannot read whether the state of the branch is kept: %s", work->memory.source,
                           g_strerror(-r));
    }
    wb_store_free(store);
    if (r < 0)
        return r;
    if (work->known && !wb_thinned_equal(&now, &work->memory.thinned))
        return tell_thinned(work, &now, why);
    work->dated = erased != work->memory.erased;
    work->memory.erased = erased;
    work->memory.thinned = now;
    return 0;
}

int wb_branch_check_paths(struct wb_branching *work, struct wb_problem *why)
{
    const struct wb_options *options = work->options;
    int r = wb_branch_resolve(&work->source, options->source, "SRC", why);

    if (r < 0)
        return r;
    work->new_dir = mkdir(options->branch, 0700) == 0;
    if (!work->new_dir && errno != EEXIST)
        return wb_problem_set(why, -errno, "%s cannot be created: %s", options->branch, g_strerror(errno));
    r = wb_branch_resolve(&work->dir, options->branch, "the directory of a branch", why);
    if (r == 0)
        r = wb_branch_check_apart(work->dir, work->source, why);
    if (r == 0)
        r = wb_branch_check_apart(work->dir, work->point, why);
    if (r == 0 && is_in_mount(work->dir))
        r = wb_problem_set(why, -EINVAL, "branch=%s is in a Wayback mount; choose a directory outside", work->dir);
    if (r == 0)
        r = wb_branch_recall(work, work->dir, why);
    return r == 0 ? check_content(work->dir, work->known, why) : r;
}
