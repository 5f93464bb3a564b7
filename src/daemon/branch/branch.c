/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/branch/branch.h"

#include "base/cleanup.h"
#include "daemon/branch/branch_check.h"
#include "daemon/past/moment.h"
#include "daemon/session/run.h"
#include "daemon/system/detach.h"
#include "store/identity/flags.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_MAX 65536

static void work_deinit(struct wb_branching *work)
{
    wb_options_deinit(&work->lower);
    wb_options_deinit(&work->upper);
    wb_layers_deinit(&work->layers);
    wb_branch_clear(&work->memory);
    free(work->source);
    free(work->dir);
    free(work->point);
}

/* ---- the layers ------------------------------------------------------------------------------ */

static void layer_options(const struct wb_branching *work, struct wb_options *layer, const char *source)
{
    *layer = (struct wb_options){
        .source = g_strdup(source),
        .history = true,
        .foreground = work->options->foreground,
        .landlock = work->options->landlock,
        .noseccomp = work->options->noseccomp,
        .cover = work->point,
        .snapdir = WB_SNAPDIR_OFF,
        .fuse = g_string_new(NULL),
    };
}

static char *epoch_of(int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    return g_strdup(wb_when_print_epoch(when, text));
}

/* The tree as it was, and whether it is the one the branch is of. */
static int start_lower(struct wb_branching *work, struct wb_problem *why)
{
    g_autofree struct wb_control *data = g_new0(struct wb_control, 1);
    const struct wb_control_hello *hello = (const void *)data->data;
    const struct wb_control_identity *identity = (const void *)data->data;
    struct wb_object root;
    char uuid[33], then[WB_WHEN_TEXT_MAX], now[WB_WHEN_TEXT_MAX];
    int64_t when;
    int r;

    r = wb_layer_start(&work->layers, WB_LAYER_LOWER, &work->lower);
    if (r < 0)
        return r;
    r = wb_layer_ask(&work->layers, WB_LAYER_LOWER, WB_CONTROL_IDENTIFY, data->data);
    root = (struct wb_object){identity->ino, identity->birth};
    if (r == 0)
        r = wb_layer_ask(&work->layers, WB_LAYER_LOWER, WB_CONTROL_HELLO, data->data);
    if (r < 0)
        return wb_problem_set(why, r, "%s: %s", work->lower.source, g_strerror(-r));
    if (!hello->no_handles)
        return wb_problem_set(why, -EOPNOTSUPP, "a branch needs a kernel with FUSE without file handles (Linux 6.9 or "
                              "newer)");
    /* SRC may have been named by its mount. */
    r = wb_branch_check_apart(work->dir, hello->source, why);
    if (r < 0)
        return r;
    when = hello->moment;
    for (unsigned i = 0; i < 16; i++)
        g_snprintf(uuid + 2 * i, 3, "%02x", hello->uuid[i]);
    if (!work->known) {
        work->memory = (struct wb_branch){.when = when, .made = wb_when_now(), .root = root};
        work->memory.source = g_strdup(work->lower.source);
        work->memory.store = g_strdup(work->lower.store);
        g_strlcpy(work->memory.uuid, uuid, sizeof(work->memory.uuid));
        return wb_branch_check_kept(work, hello, why);
    }
    if (strcmp(uuid, work->memory.uuid) != 0 || !wb_object_equal(root, work->memory.root))
        return wb_problem_set(why, -EXDEV, "%s is a branch of another directory: of %s", work->dir,
                              work->memory.source);
    if (when != work->memory.when)
        return wb_problem_set(why, -EEXIST, "%s is already a branch as of %s, and at=%s is %s; leave at= out, or "
                              "name another directory", work->dir, wb_when_print(work->memory.when, 1, then),
                              work->options->at, wb_when_print(when, 1, now));
    return wb_branch_check_kept(work, hello, why);
}

static int copy_xattrs(int from, int to)
{
    g_autofree char *names = g_malloc(XATTR_MAX);
    g_autofree char *value = g_malloc(XATTR_MAX);
    ssize_t length = flistxattr(from, names, XATTR_MAX);

    for (char *name = names; length > 0 && name < names + length; name += strlen(name) + 1) {
        ssize_t n = fgetxattr(from, name, value, XATTR_MAX);

        /* What overlayfs wrote there, where the tree itself was its upper layer, is not for this one. */
        if (g_str_has_prefix(name, "trusted.overlay."))
            continue;
        if (n < 0 || (fsetxattr(to, name, value, (size_t)n, 0) < 0 && errno != EOPNOTSUPP))
            return -errno;
    }
    return length < 0 && errno != EOPNOTSUPP ? -errno : 0;
}

/*
 * As far as the file system of DIR has them. Not "immutable" and "append only": nothing could be changed in the branch.
 * Other files keep what overlayfs copies, which is S, A, i and a.
 */
static int copy_flags(int from, int to)
{
    struct wb_flags flags;
    int r = wb_flags_read(from, &flags);

    if (r == 0)
        r = wb_flags_set(to, &flags, false);
    return r == -EOPNOTSUPP || r == -EPERM || r == -EINVAL ? 0 : MIN(r, 0);
}

/* The upper layer's root is the root users see: like that of the moment. */
static int copy_root(int from, int to)
{
    struct stat st;
    struct timespec times[2];
    int r;

    if (fstat(from, &st) < 0 || fchown(to, st.st_uid, st.st_gid) < 0)
        return -errno;
    r = copy_xattrs(from, to);
    if (r == 0)
        r = copy_flags(from, to);
    if (r < 0)
        return r;
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    return fchmod(to, st.st_mode & 07777) < 0 || futimens(to, times) < 0 ? -errno : 0;
}

/* The memory is written last: before, the branch is not there. */
static int fill_upper(struct wb_branching *work)
{
    _cleanup_close_ int root = open(work->layers.points[WB_LAYER_UPPER], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int lower = open(work->layers.points[WB_LAYER_LOWER], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int upper = -1;
    int r;

    if (root < 0 || lower < 0)
        return -errno;
    if ((mkdirat(root, WB_BRANCH_UPPER, 0700) < 0 && errno != EEXIST) ||
        (mkdirat(root, WB_BRANCH_WORK, 0700) < 0 && errno != EEXIST))
        return -errno;
    upper = openat(root, WB_BRANCH_UPPER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = upper < 0 ? -errno : work->known ? 0 : copy_root(lower, upper);
    if (r < 0)
        return r;
    /* Trees move: where this one was last seen is kept up to date. */
    if (work->known && !work->dated && strcmp(work->memory.source, work->lower.source) == 0)
        return 0;
    g_free(work->memory.source);
    work->memory.source = g_strdup(work->lower.source);
    return wb_branch_write(root, &work->memory);
}

static int start_upper(struct wb_branching *work, struct wb_problem *why)
{
    int r = wb_layer_start(&work->layers, WB_LAYER_UPPER, &work->upper);

    if (r < 0)
        return r;
    r = fill_upper(work);
    return r < 0 ? wb_problem_set(why, r, "%s: the branch cannot be created: %s", work->dir, g_strerror(-r)) : 0;
}

/* ---- mounting -------------------------------------------------------------------------------- */

/* What is in DIR is exact only with these options:
 * - redirect_dir: directories of the moment can be renamed;
 * - no index: it keeps handles of lower inodes, which do not outlive a daemon. So a hard link of the moment is a
 *   file of its own once it is written to;
 * - no metacopy: a file whose attributes changed is copied whole, so that DIR alone can be read;
 * - no xino: inode numbers of the past have the bits that it would put the layer into. */
#define OVERLAY_OPTIONS "redirect_dir=on,index=off,metacopy=off,xino=off,nfs_export=off"

static char *branch_data(const struct wb_layers *layers)
{
    const char *lower = layers->points[WB_LAYER_LOWER], *upper = layers->points[WB_LAYER_UPPER];

    return g_strdup_printf("lowerdir=%s,upperdir=%s/" WB_BRANCH_UPPER ",workdir=%s/" WB_BRANCH_WORK
                           "," OVERLAY_OPTIONS, lower, upper, upper);
}

static char *label_of(const struct wb_options *options, const char *source, int64_t when)
{
    const char *given = strstr(options->fuse->str, "fsname=");

    if (given)
        return g_strndup(given + strlen("fsname="), strcspn(given + strlen("fsname="), ","));
    return wb_moment_name(options, source, when);
}

/* The end of both ways: tells what is wrong, lets the layers go, and stays with them in the foreground. */
static int conclude(struct wb_branching *work, int r, const struct wb_problem *why)
{
    int status = WB_RUN_DONE;

    if (r < 0)
        status = why->text[0] ? wb_run_complain(why, WB_RUN_FAILED) : WB_RUN_FAILED;
    wb_layers_detach(&work->layers);
    if (r < 0)
        wb_layers_wait(&work->layers, NULL);
    else if (work->options->foreground)
        status = wb_layers_wait(&work->layers, work->point);
    if (r < 0 && work->new_dir)
        rmdir(work->dir ? work->dir : work->options->branch);
    work_deinit(work);
    return status;
}

/* Signals are for whoever waits; the daemons take theirs themselves. */
static void hold_signals(void)
{
    sigset_t set;

    wb_run_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

int wb_branch_mount(const struct wb_options *options)
{
    struct wb_branching work = {.options = options};
    struct wb_problem why = {""};
    g_autofree char *data = NULL;
    g_autofree char *label = NULL;
    int r;

    hold_signals();
    wb_detach_if_dead(options->mountpoint);
    r = wb_branch_resolve(&work.point, options->mountpoint, "MNT", &why);
    if (r == 0)
        r = wb_branch_check_caller(options, work.point, &why);
    if (r == 0)
        r = wb_branch_check_paths(&work, &why);
    if (r == 0 && !options->at && !work.known)
        r = wb_problem_set(&why, -EINVAL, "%s is not a branch yet; give its time: at=TIME,branch=%s",
                           work.dir, options->branch);
    if (r == 0)
        r = wb_layers_init(&work.layers, &why);
    if (r == 0) {
        layer_options(&work, &work.lower, work.source);
        work.lower.at = options->at ? g_strdup(options->at) : epoch_of(work.memory.when);
        work.lower.store = options->store ? g_canonicalize_filename(options->store, NULL)
                                          : g_strdup(work.memory.store);
        work.lower.read_only = true;
        layer_options(&work, &work.upper, work.dir);
        r = start_lower(&work, &why);
    }
    if (r == 0)
        r = start_upper(&work, &why);
    if (r == 0) {
        data = branch_data(&work.layers);
        label = label_of(options, work.lower.source, work.memory.when);
        r = wb_overlay_mount(&work.layers, options, label, work.point, data, &why);
    }
    return conclude(&work, r, &why);
}

/* ---- a branch's own past --------------------------------------------------------------------- */

bool wb_branch_is_one(const char *dir)
{
    struct wb_branch memory;
    bool is = wb_branch_read(dir, &memory) <= 0;

    wb_branch_clear(&memory);
    return is;
}

/* The changes as they were: both layers are of the past now. */
static int start_changes(struct wb_branching *work, struct wb_problem *why)
{
    g_autofree char *root = g_build_filename(work->layers.points[WB_LAYER_UPPER], WB_BRANCH_UPPER, NULL);
    char text[WB_WHEN_TEXT_MAX];
    struct stat st;
    int r = wb_layer_start(&work->layers, WB_LAYER_UPPER, &work->upper);

    if (r < 0)
        return r;
    if (stat(root, &st) == 0)
        return 0;
    return wb_problem_set(why, -ENOENT, "at=%s: the branch %s was created later, at %s; for earlier states, name its "
                          "tree, %s", work->options->at, work->dir,
                          wb_when_print(work->memory.made, 1, text), work->memory.source);
}

int wb_branch_view(const struct wb_options *options)
{
    struct wb_branching work = {.options = options};
    struct wb_problem why = {""};
    struct wb_control_hello *hello;
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);
    g_autofree char *data = NULL;
    g_autofree char *label = NULL;
    int r;

    hold_signals();
    hello = (struct wb_control_hello *)(void *)control->data;
    wb_detach_if_dead(options->mountpoint);
    r = wb_branch_resolve(&work.point, options->mountpoint, "MNT", &why);
    if (r == 0)
        r = wb_branch_resolve(&work.dir, options->source, "SRC", &why);
    if (r == 0)
        r = wb_branch_check_caller(options, work.point, &why);
    if (r == 0)
        r = wb_branch_recall(&work, work.dir, &why);
    if (r == 0)
        r = wb_layers_init(&work.layers, &why);
    if (r == 0) {
        layer_options(&work, &work.upper, work.dir);
        work.upper.at = g_strdup(options->at);
        work.upper.store = g_strdup(options->store);
        work.upper.read_only = true;
        layer_options(&work, &work.lower, work.memory.source);
        work.lower.at = epoch_of(work.memory.when);
        work.lower.store = g_strdup(work.memory.store);
        work.lower.read_only = true;
        r = start_changes(&work, &why);
    }
    if (r == 0)
        r = start_lower(&work, &why);
    if (r == 0)
        r = wb_layer_ask(&work.layers, WB_LAYER_UPPER, WB_CONTROL_HELLO, control->data);
    if (r == 0) {
        data = g_strdup_printf("lowerdir=%s/" WB_BRANCH_UPPER ":%s," OVERLAY_OPTIONS,
                               work.layers.points[WB_LAYER_UPPER], work.layers.points[WB_LAYER_LOWER]);
        label = label_of(options, work.dir, hello->moment);
        r = wb_overlay_mount(&work.layers, options, label, work.point, data, &why);
    }
    return conclude(&work, r, &why);
}
