/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/branch/branch.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/branch/branch_memory.h"
#include "daemon/branch/overlay.h"
#include "daemon/options/options.h"
#include "daemon/past/moment.h"
#include "daemon/session/daemonize.h"
#include "daemon/system/detach.h"
#include "store/identity/flags.h"
#include "store/tables/received.h"
#include "wayback/control.h"
#include "wayback/when.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Everything is freed at the end, whatever happened. */
struct wb_branching {
    const struct wb_options *options;
    char *source; /* SRC, absolute */
    char *dir;    /* DIR, absolute */
    bool new_dir; /* we made it */
    char *point;  /* MNT, absolute */
    bool known;   /* `memory` was read, not made */
    bool dated;   /* it is to be written, since something was erased in the store */
    struct wb_branch memory;
    struct wb_layers layers;
    struct wb_options lower, upper;
};

/* All return 0, or -errno with a line in `why`. */

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

/* Who may mount an overlay, and who may then read in it. */
static int branch_check_caller(const struct wb_options *options, const char *point, struct wb_error *why)
{
    if (geteuid() != 0)
        return wb_error_set(why, -EPERM,
                            "a branch is an overlay, and only root may mount one; an ordinary user "
                            "can mount the past state itself (leave branch= out), and copy from it");
    if (options->allow_other || is_closed(point))
        return 0;
    return wb_error_set(why, -EPERM,
                        "an overlay is open to other users, who can read everything that the modes of "
                        "that time allow, even if access was removed since; use allow_other to accept this, or mount "
                        "below a directory that only root may search");
}

/* `path` without links and made absolute; it is a directory. `what`: what it is for. */
static int branch_resolve(char **ret, const char *path, const char *what, struct wb_error *why)
{
    *ret = realpath(path, NULL);
    return *ret
               ? 0
               : wb_error_set(why, -errno, "%s: %s; %s must be a directory that exists", path, g_strerror(errno), what);
}

/* A branch's directory holds what we put there, and nothing else. */
static int check_content(const char *dir, bool known, struct wb_error *why)
{
    static const char *const ours[] = {WB_STORE_NAME, WB_STAGING_NAME, WB_BRANCH_UPPER, WB_BRANCH_WORK,
                                       WB_BRANCH_FILE, "." WB_BRANCH_FILE ".new", "lost+found", NULL};
    g_autofree char *upper = g_build_filename(dir, WB_BRANCH_UPPER, NULL);
    _cleanup_closedir_ DIR *stream = opendir(dir);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return wb_error_set(why, -errno, "%s: %s", dir, g_strerror(errno));
    while (wb_next_entry(stream, &entry, &r))
        if (!g_strv_contains(ours, entry->d_name))
            return wb_error_set(why, -ENOTEMPTY,
                                "%s is neither a branch nor empty; name an empty or a new "
                                "directory",
                                dir);
    if (r < 0)
        return wb_error_set(why, r, "%s: %s", dir, g_strerror(-r));
    /* A branch without its file was never mounted. rmdir checks that there are no changes in it nevertheless. */
    if (!known && rmdir(upper) < 0 && errno != ENOENT)
        return wb_error_set(why, -errno, "%s has changes, but no time of the branch (its file %s is missing)", dir,
                            WB_BRANCH_FILE);
    return 0;
}

/* What the branch in `dir` is of, if it is one: `memory` and `known`. */
static int branch_recall(struct wb_branching *work, const char *dir, struct wb_error *why)
{
    int r = wb_branch_read(dir, &work->memory);

    work->known = r == 0;
    return r >= 0 ? 0
                  : wb_error_set(why, r, "%s/%s, which has the time of the branch, cannot be read: %s", dir,
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

/* Neither directory is, or is in, the other. */
static int branch_check_apart(const char *dir, const char *other, struct wb_error *why)
{
    if (!is_within(dir, other) && !is_within(other, dir))
        return 0;
    return wb_error_set(why, -EINVAL, "branch=%s and %s are inside each other; choose a directory outside", dir, other);
}

/* The store, by the descriptors of the layer: the mount may cover its own source. */
static int open_store(const struct wb_control_hello *lower, struct wb_store **ret, struct wb_error *why)
{
    g_autofree char *source = g_strdup_printf("/proc/%u/fd/%d", lower->pid, lower->source_fd);
    g_autofree char *store = lower->store_fd < 0 ? NULL
                                                 : g_strdup_printf("/proc/%u/fd/%d", lower->pid, lower->store_fd);
    _cleanup_close_ int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? wb_error_set(why, -errno, "%s: %s", lower->source, g_strerror(errno))
                  : wb_store_open(ret, fd, store, 0, why);
}

static int fail_thinned(const struct wb_branching *work, const struct wb_thinned *now, struct wb_error *why)
{
    char text[WB_WHEN_TEXT_MAX];
    bool named = now->name[0] && work->memory.thinned.files == 0;

    return wb_error_set(why, -ESTALE,
                        "versions that the branch %s shows, as of %s, were thinned out of %s (vprune, "
                        "vrm) while it was not mounted%s%s%s, so unchanged files would show older content; its "
                        "changes are in %s/" WB_BRANCH_UPPER "; create a new branch at a snapshot (vsnap), which "
                        "protects its state",
                        work->dir, wb_when_print(work->memory.when, 1, text), work->memory.source,
                        named ? ", one of '" : "", named ? now->name : "", named ? "'" : "", work->dir);
}

/*
 * Whether the moment, which the lower layer pins by now, shows what it showed when the branch was made; `memory` gets
 * to know as of when that is so.
 */
static int branch_check_kept(struct wb_branching *work, const struct wb_control_hello *lower, struct wb_error *why)
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
            wb_error_set(why, r, "%s: cannot read whether the state of the branch is kept: %s", work->memory.source,
                         g_strerror(-r));
    }
    wb_store_free(store);
    if (r < 0)
        return r;
    if (work->known && !wb_thinned_equal(&now, &work->memory.thinned))
        return fail_thinned(work, &now, why);
    work->dated = erased != work->memory.erased;
    work->memory.erased = erased;
    work->memory.thinned = now;
    return 0;
}

/* SRC and DIR: resolved, made where need be, fit for each other; recalls. */
static int branch_check_paths(struct wb_branching *work, struct wb_error *why)
{
    const struct wb_options *options = work->options;
    int r = branch_resolve(&work->source, options->source, "SRC", why);

    if (r < 0)
        return r;
    work->new_dir = mkdir(options->branch, 0700) == 0;
    if (!work->new_dir && errno != EEXIST)
        return wb_error_set(why, -errno, "%s cannot be created: %s", options->branch, g_strerror(errno));
    r = branch_resolve(&work->dir, options->branch, "the directory of a branch", why);
    if (r == 0)
        r = branch_check_apart(work->dir, work->source, why);
    if (r == 0)
        r = branch_check_apart(work->dir, work->point, why);
    if (r == 0 && is_in_mount(work->dir))
        r = wb_error_set(why, -EINVAL, "branch=%s is in a Wayback mount; choose a directory outside", work->dir);
    if (r == 0)
        r = branch_recall(work, work->dir, why);
    return r == 0 ? check_content(work->dir, work->known, why) : r;
}

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
static int start_lower(struct wb_branching *work, struct wb_error *why)
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
        return wb_error_set(why, r, "%s: %s", work->lower.source, g_strerror(-r));
    if (!hello->no_handles)
        return wb_error_set(why, -EOPNOTSUPP,
                            "a branch needs a kernel with FUSE without file handles (Linux 6.9 or "
                            "newer)");
    /* SRC may have been named by its mount. */
    r = branch_check_apart(work->dir, hello->source, why);
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
        return branch_check_kept(work, hello, why);
    }
    if (strcmp(uuid, work->memory.uuid) != 0 || !wb_object_equal(root, work->memory.root))
        return wb_error_set(why, -EXDEV, "%s is a branch of another directory: of %s", work->dir, work->memory.source);
    if (when != work->memory.when)
        return wb_error_set(why, -EEXIST,
                            "%s is already a branch as of %s, and at=%s is %s; leave at= out, or "
                            "name another directory",
                            work->dir, wb_when_print(work->memory.when, 1, then), work->options->at,
                            wb_when_print(when, 1, now));
    return branch_check_kept(work, hello, why);
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

static int start_upper(struct wb_branching *work, struct wb_error *why)
{
    int r = wb_layer_start(&work->layers, WB_LAYER_UPPER, &work->upper);

    if (r < 0)
        return r;
    r = fill_upper(work);
    return r < 0 ? wb_error_set(why, r, "%s: the branch cannot be created: %s", work->dir, g_strerror(-r)) : 0;
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

/* The common end: reports the error, detaches the layers, and waits for them in the foreground. */
static int conclude(struct wb_branching *work, int r, const struct wb_error *why)
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
    struct wb_error why = {""};
    g_autofree char *data = NULL;
    g_autofree char *label = NULL;
    int r;

    hold_signals();
    wb_detach_if_dead(options->mountpoint);
    r = branch_resolve(&work.point, options->mountpoint, "MNT", &why);
    if (r == 0)
        r = branch_check_caller(options, work.point, &why);
    if (r == 0)
        r = branch_check_paths(&work, &why);
    if (r == 0 && !options->at && !work.known)
        r = wb_error_set(&why, -EINVAL, "%s is not a branch yet; give its time: at=TIME,branch=%s", work.dir,
                         options->branch);
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
static int start_changes(struct wb_branching *work, struct wb_error *why)
{
    g_autofree char *root = g_build_filename(work->layers.points[WB_LAYER_UPPER], WB_BRANCH_UPPER, NULL);
    char text[WB_WHEN_TEXT_MAX];
    struct stat st;
    int r = wb_layer_start(&work->layers, WB_LAYER_UPPER, &work->upper);

    if (r < 0)
        return r;
    if (stat(root, &st) == 0)
        return 0;
    return wb_error_set(why, -ENOENT,
                        "at=%s: the branch %s was created later, at %s; for earlier states, name its "
                        "tree, %s",
                        work->options->at, work->dir, wb_when_print(work->memory.made, 1, text), work->memory.source);
}

int wb_branch_view(const struct wb_options *options)
{
    struct wb_branching work = {.options = options};
    struct wb_error why = {""};
    struct wb_control_hello *hello;
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);
    g_autofree char *data = NULL;
    g_autofree char *label = NULL;
    int r;

    hold_signals();
    hello = (struct wb_control_hello *)(void *)control->data;
    wb_detach_if_dead(options->mountpoint);
    r = branch_resolve(&work.point, options->mountpoint, "MNT", &why);
    if (r == 0)
        r = branch_resolve(&work.dir, options->source, "SRC", &why);
    if (r == 0)
        r = branch_check_caller(options, work.point, &why);
    if (r == 0)
        r = branch_recall(&work, work.dir, &why);
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
