/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/session.h"
#include "daemon/live/recording.h"

#include "daemon/control/control.h"
#include "daemon/control/parents.h"
#include "daemon/jobs/compact.h"
#include "daemon/jobs/schedule.h"
#include "daemon/jobs/survey.h"
#include "daemon/live/stage.h"
#include "daemon/options/config_file.h"
#include "daemon/past/moment.h"
#include "daemon/past/past.h"
#include "daemon/session/copy.h"
#include "daemon/session/helper.h"
#include "daemon/session/traps.h"
#include "daemon/system/detach.h"
#include "daemon/system/report.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "capture/recovery/recover.h"
#include "capture/capture.h"
#include "maintain/prune/prune.h"
#include "store/cache/gaps.h"
#include "store/cache/manifest_logs.h"
#include "store/graveyard/body_sums.h"
#include "wayback/held.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Bytes of deleted files that get their checksums when a daemon ends; the next one goes on with the rest. */
#define WB_SUM_AT_END (UINT64_C(32) << 20)

/* How long a store that another daemon is just leaving is waited for. */
#define WB_BUSY_TRIES 40
#define WB_BUSY_PAUSE_US 50000

static bool is_below(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    if (length == 1)
        return path[1] != '\0';
    return strncmp(path, directory, length) == 0 && path[length] == '/';
}

/*
 * The dead mount at MNT, if the new mount can take its place, or if SRC was opened before: then mount.c detaches it as
 * late as possible. Any other dead mount is detached now. In place, its path leads to the bare SRC then, and what is
 * written there is not recorded.
 */
static char *find_dead(struct wb_session *session, const struct wb_options *options)
{
    g_autofree char *dead = wb_detach_find_dead(options->mountpoint);

    if (!dead)
        return NULL;
    session->replaces = session->is_root && !options->at && !strstr(options->fuse->str, "auto_unmount");
    if (session->replaces || options->kept_source > 0 || options->dry_run)
        return strdup(dead);
    wb_detach(dead);
    return NULL;
}

/* The path of a descriptor; free(3). NULL and errno on failure. */
static char *path_of(int fd)
{
    char link[32], path[PATH_MAX];
    ssize_t length = readlink(wb_fd_path(fd, link), path, sizeof(path) - 1);

    if (length < 0)
        return NULL;
    path[length] = '\0';
    return strdup(path);
}

/*
 * Root's mount of a directory of another user: its owner could exchange it for a link at any time, so that the tree
 * would be mounted over a directory of root's. Therefore links of others are not followed, and SRC and MNT are each
 * looked up once; in place, once for both. Returns an O_PATH descriptor, or a negative errno with a line in `why`.
 */
static int hold(const char *path, const char *which, char **ret_path, struct wb_error *why)
{
    _cleanup_close_ int fd = wb_open_named_dir(path);
    struct stat st;
    bool dead;

    if (fd == -ELOOP)
        return wb_error_set(why, fd, "%s: the path contains a symbolic link of another user (or too many links); use "
                            "the real path", path);
    dead = fd >= 0 && fstat(fd, &st) < 0 && errno == ENOTCONN;
    *ret_path = fd < 0 || dead ? NULL : path_of(fd);
    if (!*ret_path) {
        int error = fd < 0 ? -fd : dead ? ENOTCONN : errno;

        return wb_error_set(why, -error, "%s: %s; %s must be a directory that exists%s", path, g_strerror(error), which,
                            error == ENOTCONN ? " (a mount whose daemon has died is there: unmount it first)" : "");
    }
    return wb_steal_fd(&fd);
}

/* Sets `source`, with src_fd, and in place `mountpoint`, with point_fd. */
static int hold_source(struct wb_session *session, bool in_place, struct wb_error *why)
{
    _cleanup_close_ int fd = hold(session->options->source, "SRC", &session->source, why);

    if (fd < 0)
        return fd;
    /* The past of a mount, or of a directory in a tree: moment.c finds the tree. */
    if (!session->options->at) {
        session->src_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (session->src_fd < 0)
            return wb_error_set(why, -errno, "%s: %s; SRC must be a directory you may read", session->source,
                                g_strerror(errno));
    }
    if (in_place) {
        session->mountpoint = strdup(session->source);
        session->point_fd = wb_steal_fd(&fd);
    }
    return 0;
}

/* SRC by the descriptor of the supervisor, below a dead mount over SRC itself, or by its path. */
static int resolve_source(struct wb_session *session, const struct wb_options *options, struct wb_error *why)
{
    g_autofree char *source = g_canonicalize_filename(options->source, NULL);
    g_autofree char *point = g_canonicalize_filename(options->mountpoint, NULL);
    bool in_place = strcmp(source, point) == 0;
    int r;

    if (options->kept_source > 0) {
        session->src_fd = openat(options->kept_source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (session->src_fd < 0)
            return wb_error_set(why, -errno, "%s: %s; SRC must be a directory you may read", options->source,
                                g_strerror(errno));
    } else if (session->replaces && in_place) {
        r = session->src_fd = wb_covered_open(session->mountpoint);
        if (r < 0)
            return wb_error_set(why, r,
                                "%s: cannot open the directory below the dead mount (%s); unmount it, and "
                                "mount again",
                                session->mountpoint, g_strerror(-r));
    }
    if (in_place && session->mountpoint)
        session->source = strdup(session->mountpoint);
    else if (session->is_root && options->kept_source <= 0)
        return hold_source(session, in_place, why);
    else
        session->source = realpath(options->source, NULL);
    if (!session->source)
        return wb_error_set(why, -errno, "%s: %s; SRC must be a directory that exists", options->source,
                            g_strerror(errno));
    return 0;
}

static int resolve_paths(struct wb_session *session, const struct wb_options *options, char **ret_store,
                         struct wb_error *why)
{
    int r;

    session->mountpoint = find_dead(session, options);
    r = resolve_source(session, options, why);
    if (r < 0)
        return r;
    if (!session->mountpoint && session->is_root) {
        r = session->point_fd = hold(options->mountpoint, "MNT", &session->mountpoint, why);
        if (r < 0)
            return r;
    }
    if (!session->mountpoint)
        session->mountpoint = realpath(options->mountpoint, NULL);
    if (!session->mountpoint)
        return wb_error_set(why, -errno, "%s: %s; MNT must be a directory that exists%s", options->mountpoint,
                            g_strerror(errno),
                            errno == ENOTCONN ? " (a mount whose daemon has died is there: "
                                                "unmount it first)"
                                              : "");
    if (options->at) {
        r = wb_moment_find_source(session, ret_store, why);
        if (r < 0)
            return r;
    }
    r = wb_traps_check_system(session, why);
    if (r < 0)
        return r;
    if (is_below(session->mountpoint, session->source))
        return wb_error_set(why, -EINVAL,
                            "%s is inside of %s, so the tree would contain itself; choose "
                            "a mount point outside, or SRC itself",
                            session->mountpoint, session->source);
    if (is_below(session->source, session->mountpoint))
        return wb_error_set(why, -EINVAL,
                            "%s is inside of %s, which the mount would cover; choose "
                            "another mount point, or SRC itself",
                            session->source, session->mountpoint);
    return 0;
}

static int open_source(struct wb_session *session, struct wb_error *why)
{
    struct stat st, mnt;

    if (session->src_fd < 0)
        session->src_fd = open(session->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (session->src_fd < 0)
        return wb_error_set(why, -errno, "%s: %s; SRC must be a directory you may read", session->source,
                            g_strerror(errno));
    if (fstat(session->src_fd, &st) < 0)
        return wb_error_set(why, -errno, "%s: %s", session->source, g_strerror(errno));
    session->src_dev = st.st_dev;
    if (wb_detach_is_dead(session->mountpoint))
        return 0;
    if (stat(session->mountpoint, &mnt) < 0 || !S_ISDIR(mnt.st_mode))
        return wb_error_set(why, -ENOTDIR, "%s: not a directory; MNT must be one", session->mountpoint);
    return wb_traps_check_tree(session, why);
}

/* history=none needs no store, but changes that the store does not see cost versions. */
static void warn_of_a_store_away(const struct wb_session *session)
{
    struct wb_store *store = NULL;
    struct wb_error why = {""};

    if (!session->options->read_only && wb_store_open(&store, session->src_fd, NULL, 0, &why) == -ENODEV)
        wb_log_msg("%s: nothing is recorded (history=none), and the store cannot be opened: %s", session->source,
                   why.text);
    wb_store_free(store);
}

/* `known`: the path of the store, if a mount of the tree has reported it. */
static int open_store(struct wb_session *session, const char *known, struct wb_error *why)
{
    const struct wb_options *options = session->options;
    g_autofree char *path = options->store ? NULL : g_strdup(known);
    unsigned flags = options->read_only ? 0 : WB_STORE_WRITE | WB_STORE_CREATE | WB_STORE_IN_SPANS;
    int r = 0;

    if (!options->history) {
        warn_of_a_store_away(session);
        return 0;
    }
    if (options->new_history)
        flags |= WB_STORE_ANOTHER;
    if (options->store) {
        g_autofree char *inside = g_build_filename(session->source, WB_STORE_NAME, NULL);

        path = g_canonicalize_filename(options->store, NULL);
        if (strcmp(path, inside) == 0)
            g_clear_pointer(&path, g_free);
        else if (is_below(path, session->source) || strcmp(path, session->source) == 0)
            return wb_error_set(why, -EINVAL,
                                "store=%s is inside of %s, where users would see it; "
                                "choose a directory outside",
                                path, session->source);
    }
    for (int i = 0; i < WB_BUSY_TRIES; i++) {
        r = wb_store_open(&session->store, session->src_fd, path, flags, why);
        if (r == -EINPROGRESS && !path) {
            r = wb_copy_await(session, why);
            if (r == 0)
                continue;
        }
        if (r != -EBUSY)
            break;
        g_usleep(WB_BUSY_PAUSE_US);
    }
    /* To look at a tree that never had a history is no mistake. */
    if (r == -ENOENT && options->read_only && !options->at)
        return 0;
    if (r < 0)
        return r;
    if (session->store->unmarked < 0)
        wb_log_msg("%s: cannot record the place of the store in " WB_STORE_NAME
                   " (%s); a mount without store=DIR would "
                   "create another history",
                   session->source, g_strerror(-session->store->unmarked));
    session->store_apart = path != NULL;
    session->recording = !options->read_only;
    session->by_close = session->recording && options->by_close;
    if (session->store->is_new && wb_config_file_make(session->store->dir_fd) < 0)
        wb_log_msg("%s: cannot create " WB_CONFIG_NAME " in the new store", session->source);
    if (session->recording && options->lets_through) {
        r = wb_gaps_open(session->store, true);
        if (r < 0)
            return wb_error_set(why, r, "%s: onfull=continue needs space for a file of gaps in the store: %s",
                                session->source, g_strerror(-r));
        session->store->lets_through = true;
    }
    /* Before the first change: the slots of those a dead daemon left are taken until then. */
    if (session->recording) {
        r = wb_recover(session->store, NULL);
        if (r < 0)
            return wb_error_set(why, r,
                                "%s: changes that were in progress when its last daemon "
                                "died cannot be examined: %s",
                                session->source, g_strerror(-r));
        wb_inflight_map(session->store);
        session->recorded_since = wb_store_tick(session->store);
    }
    r = wb_history_open(&session->history, session->store);
    if (r == 0)
        wb_history_set_at_sign(session->history, session->options->at_sign);
    return r < 0 ? wb_error_set(why, r, "%s: its history cannot be opened: %s", session->source, g_strerror(-r)) : 0;
}

static int make_root(struct wb_session *session, struct wb_error *why)
{
    struct wb_object object;
    int fd, r;

    r = wb_object_stat(session->store, session->src_fd, NULL, &object, NULL, NULL);
    if (r == 0)
        r = wb_nodes_init(&session->nodes, object);
    if (r == 0) {
        session->root = &session->nodes.root->node;
        fd = openat(session->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? -errno : wb_dirfd_pin_root(session, session->nodes.root, fd);
    }
    if (r == 0 && session->recording) {
        wb_survey_root(session);
        wb_spans_begin_fresh(session->store);
    }
    if (r < 0)
        return wb_error_set(why, r, "%s: %s", session->source, g_strerror(-r));
    wb_session_count_hidden(session);
    return 0;
}

static void init_locks(struct wb_session *session)
{
    pthread_rwlockattr_t attr;
    pthread_condattr_t monotonic;

    /* A rename of a directory must get its turn among ever new writes. */
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&session->ns_lock, &attr);
    pthread_rwlock_init(&session->relocate_lock, &attr);
    pthread_rwlockattr_destroy(&attr);
    pthread_mutex_init(&session->sync_lock, NULL);
    pthread_mutex_init(&session->prune_lock, NULL);
    pthread_mutex_init(&session->writing_back, NULL);
    pthread_mutex_init(&session->threads.lock, NULL);
    pthread_mutex_init(&session->rules.lock, NULL);
    session->rules.generation = 1;
    /* A wall clock that is set back would keep who waits by it asleep for as long. */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&session->threads.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    wb_dirfds_init(&session->dirfds);
    wb_shares_init(&session->shares);
    wb_lowers_init(session, false);
}

static int make_numbers(struct wb_session *session, struct wb_error *why)
{
    uint32_t key[4];

    if (getrandom(key, sizeof(key), 0) != sizeof(key))
        return wb_error_set(why, -EIO, "cannot mount %s: no random numbers (getrandom: %s)", session->options->source,
                            g_strerror(errno));
    wb_permutation_init(&session->numbers, key);
    return 0;
}

int wb_session_open(struct wb_session **ret, const struct wb_options *options, struct wb_error *why)
{
    struct wb_session *session = g_new0(struct wb_session, 1);
    g_autofree char *store = NULL;
    int r;

    session->moment = WB_WHEN_PRESENT;
    session->timeout = WB_TIMEOUT;
    session->options = options;
    session->src_fd = session->point_fd = -1;
    session->is_root = geteuid() == 0;
    init_locks(session);
    r = make_numbers(session, why);
    if (r == 0)
        r = resolve_paths(session, options, &store, why);
    /* Behind a dead mount, SRC can only be checked once that is gone. */
    if (r == 0 && !(options->dry_run && wb_detach_is_dead(session->mountpoint)))
        r = open_source(session, why);
    if (r < 0 || options->dry_run) {
        wb_session_free(session);
        *ret = NULL;
        return r;
    }
    if (r == 0)
        r = open_store(session, store, why);
    if (r == 0)
        wb_session_note_reserve(session);
    if (r == 0)
        r = make_root(session, why);
    if (r == 0 && session->history) {
        r = wb_past_init(session);
        if (r < 0)
            wb_error_set(why, r, "%s: %s", session->source, g_strerror(-r));
        session->parents = wb_parents_new();
    }
    if (r == 0 && (options->at || (session->history && !session->recording)))
        r = wb_moment_open(session, why);
    if (r < 0) {
        wb_session_free(session);
        return r;
    }
    *ret = session;
    return 0;
}

struct wb_session *wb_session_free(struct wb_session *session)
{
    if (!session)
        return NULL;
    wb_schedule_stop(session);
    wb_compact_stop(session);
    wb_session_stop_background(session);
    wb_stages_deinit(session);
    if (session->past)
        wb_past_deinit(session);
    wb_control_thin_drop(session);
    wb_parents_free(session->parents);
    if (session->history)
        wb_history_free(session->history);
    wb_dirfds_deinit(&session->dirfds);
    if (session->nodes.buckets)
        wb_nodes_deinit(session);
    wb_shares_deinit(&session->shares);
    if (session->store) {
        struct wb_body_summing summing = {.bytes = WB_SUM_AT_END};

        /* No file is open any more. Logs that a kill left without a manifest entry get one, within the budget. */
        if (session->recording) {
            wb_manifest_logs_complete(session->store, WB_MANIFEST_BUDGET);
            wb_body_sums_make(session->store, &summing);
        }
        if (session->recording && wb_store_sync_all(session->store) < 0)
            wb_log_msg("the history could not be synced; its last records may be missing after a power cut");
        wb_store_free(session->store);
    }
    if (session->src_fd >= 0)
        close(session->src_fd);
    pthread_rwlock_destroy(&session->ns_lock);
    pthread_rwlock_destroy(&session->relocate_lock);
    pthread_mutex_destroy(&session->sync_lock);
    session->prune = wb_prune_free(session->prune);
    pthread_mutex_destroy(&session->prune_lock);
    pthread_mutex_destroy(&session->writing_back);
    pthread_mutex_destroy(&session->threads.lock);
    wb_recording_deinit(session);
    pthread_mutex_destroy(&session->rules.lock);
    pthread_cond_destroy(&session->threads.wake);
    session->helper = wb_helper_free(session->helper);
    free(session->source);
    wb_close_fd(&session->point_fd);
    free(session->mountpoint);
    g_free(session->inside);
    g_free(session);
    return NULL;
}

/* ---- what the kernel is asked for ------------------------------------------------------------ */

/*
 * The kernel stops sending OPEN, OPENDIR and FLUSH when they are answered with ENOSYS. An open with O_TRUNC comes as
 * SETATTR then. No open(2) drops the pages of a file that was changed below, so the kernel compares the attributes
 * before it uses them.
 */
static void negotiate_no_open(struct wb_session *session, struct fuse_conn_info *conn)
{
    if (!session->options->no_open)
        return;
    if (!fuse_get_feature_flag(conn, FUSE_CAP_NO_OPEN_SUPPORT) ||
        !fuse_get_feature_flag(conn, FUSE_CAP_NO_OPENDIR_SUPPORT)) {
        wb_log_msg("no_open has no effect: this kernel asks the daemon for each open (Linux 5.1 or later does not)");
        return;
    }
    session->no_open = true;
    wb_lowers_init(session, true);
    fuse_unset_feature_flag(conn, FUSE_CAP_ATOMIC_O_TRUNC);
    fuse_unset_feature_flag(conn, FUSE_CAP_EXPLICIT_INVAL_DATA);
    fuse_set_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
    if (strcmp(session->source, session->mountpoint) != 0)
        session->timeout = WB_TIMEOUT_BESIDE;
}

void wb_session_negotiate(struct wb_session *session, struct fuse_conn_info *conn)
{
    static const uint64_t wanted[] = {
        FUSE_CAP_ASYNC_READ,        FUSE_CAP_ATOMIC_O_TRUNC, FUSE_CAP_DONT_MASK,
        FUSE_CAP_IOCTL_DIR,         FUSE_CAP_READDIRPLUS,    FUSE_CAP_READDIRPLUS_AUTO,
        FUSE_CAP_ASYNC_DIO,         FUSE_CAP_PARALLEL_DIROPS, FUSE_CAP_POSIX_ACL,
        FUSE_CAP_HANDLE_KILLPRIV_V2, FUSE_CAP_CACHE_SYMLINKS, FUSE_CAP_EXPLICIT_INVAL_DATA,
    };

    for (unsigned i = 0; i < G_N_ELEMENTS(wanted); i++)
        fuse_set_feature_flag(conn, wanted[i]);
    /* The tree changes through the mount alone: data read or written stays valid. Writes must
     * arrive one by one, as they are made, because each is a version. */
    fuse_unset_feature_flag(conn, FUSE_CAP_AUTO_INVAL_DATA);
    fuse_unset_feature_flag(conn, FUSE_CAP_WRITEBACK_CACHE);
    negotiate_no_open(session, conn);
    /* An overlay finds what a file was copied from by its handle. The one of a FUSE inode leads, once the names are
     * forgotten, to an inode without a name, and the file cannot be opened any more (ESTALE). */
    session->no_handles = session->options->plain && fuse_set_feature_flag(conn, FUSE_CAP_NO_EXPORT_SUPPORT);
    conn->max_write = 1 << 20;
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->time_gran = 1;
}
