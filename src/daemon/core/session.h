/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A session: one tree being served. Everything the operations share hangs here; there are no
 * globals.
 *
 * Locks, in the order they are taken; nothing is taken against it:
 *   0. relocate_lock (rwlock): shared by every request, and by every turn of a daemon thread that uses the store;
 *                exclusive while the store is relocated (control_move.c), only during one attempt
 *   1. ns_lock   (rwlock): shared by every change while it is under way; exclusive for the rename of a directory, for
 *                erasing, and for finding a node whose name could not be verified
 *   2. inode->lock of the files that a change touches, in the order of their addresses
 *   3. nodes.lock, short: the table, every node's parent, name, handles and counters
 *   4. dirfds.lock, shares.lock, shorter
 * The lock of a descriptor (lower.h) is taken before 1 for a file (fsync(2) without a handle), last for a directory.
 * A caller that needs a descriptor of a node gets it before it takes ns_lock, which access.h may take.
 */

#define FUSE_USE_VERSION FUSE_MAKE_VERSION(3, 18)

#include "base/permute.h"
#include "daemon/core/dirfd.h"
#include "daemon/core/lower.h"
#include "daemon/core/node.h"
#include "daemon/core/shares.h"
#include "daemon/options/options.h"
#include "daemon/system/covered.h"
#include "history/history.h"
#include "policy/recording.h"
#include "store/inflight/spans.h"
#include "store/store.h"
#include "wayback/error.h"
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>

/* For how long the kernel may cache names and attributes, in seconds, if the tree is changed through the kernel alone:
 * for the past, and by wb_kcache_timeout() for the present. */
#define WB_TIMEOUT 86400.0
/* With no_open, if bare SRC can be reached beside the mount: no open(2) looks whether it was changed there. */
#define WB_TIMEOUT_BESIDE 1.0

struct wb_compaction;
struct wb_helper;
struct wb_keeper;
struct wb_overdue;
struct wb_parents;
struct wb_past;
struct wb_prune;
struct wb_request;
struct wb_thinning;
struct wb_transport;

/* The threads beside libfuse's own: they sync, keep the schedule and the timeline, and wait for signals. */
struct wb_session_threads {
    pthread_t sync, schedule, timeline, compact, signals, survey;
    bool sync_runs, schedule_runs, timeline_runs, compact_runs, signals_run, survey_runs;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    unsigned doubts; /* names that the kernel is being made to forget (kcache_invalidate.h) */
    bool reload; /* wayback.conf is to be read */
    bool on_terminal; /* SIGHUP: it has hung up */
};

/* What wayback.conf says of single paths (recording.h). */
struct wb_recording_state {
    pthread_mutex_t lock; /* of the rules */
    struct wb_recording_rules rules;
    atomic_uint generation; /* changes whenever the answer for any node may */
    atomic_bool any;        /* there are rules */
    atomic_bool closes;     /* one of them said `close` at some time */
    atomic_bool leaves_out; /* one of them said `none` at some time */
};

struct wb_session {
    const struct wb_options *options;
    char *source;      /* SRC, absolute */
    char *mountpoint;  /* MNT, absolute */
    bool replaces;     /* the new mount takes the place of a dead one (covered.h) */
    bool replaced;     /* ... and has taken it */
    struct wb_covered covered;
    int src_fd;        /* the root of SRC, opened before anything covers it */
    int point_fd;      /* MNT, until it is mounted: root mounts there wherever its name leads by then; -1: by name */
    dev_t src_dev;
    bool is_root;      /* the daemon acts for others and takes their identity to create */
    atomic_uint unseen; /* objects that others had changed, marked since the mount (survey.h) */
    atomic_bool surveyed; /* the survey has met every object of the tree */
    bool recording;    /* history=write or history=close, and not ro */
    int64_t recorded_since; /* if so: a moment before the first change of this mount */
    bool by_close;     /* history=close: content is recorded in stages (stage.h) */
    int64_t moment;    /* what is shown (-o at=): WB_WHEN_PRESENT, or a T (moment.h) */
    char *inside;      /* at=: SRC is that directory of the tree; "" or NULL: its root */
    bool no_open;      /* the kernel opens files and directories without a request (-o no_open) */
    double timeout;    /* for how long the kernel may cache names and attributes of the present, in seconds */
    bool no_handles;   /* the kernel makes no file handles of our inodes (layers of a branch) */
    bool has_reserve;  /* of root's daemon: a part of the disk of SRC or the store may be kept for root */
    bool store_apart;  /* the store is not SRC/.wayback */
    unsigned hidden;   /* directories of ours in the root, which users do not count */
    ino_t hidden_ino[2];
    bool folds;        /* the root of SRC takes names in other spellings for the same (ext4's casefold) */

    struct wb_store *store;     /* NULL: no history */
    struct wb_history *history; /* NULL: no history */
    struct wb_parents *parents; /* of directories (control/parents.h); NULL: none are kept */
    struct wb_past *past;       /* past.h */

    struct wb_permutation numbers; /* makes the kernel's numbers of nodes from their addresses, which nobody may know */
    struct wb_nodes nodes;
    struct wb_shares shares;    /* what users hold open */
    struct wb_lowers lowers;    /* descriptors that stay open without a handle */
    struct wb_node *root;       /* what users see as the root: nodes.root, or a directory of the past */
    struct wb_dirfds dirfds;
    pthread_rwlock_t ns_lock, relocate_lock;
    atomic_bool relocate_wanted;     /* what can be done later gives up */
    atomic_bool is_short; /* of room (wb_keeper_is_short): who packs asks, also when the keeper has ended */
    struct wb_overdue *overdue;  /* files whose version could not be recorded yet (stage.h); under nodes.lock */

    atomic_uint compact_rest;    /* seconds that a log has to rest before it is packed; 0: none is */
    atomic_bool compact_ends;    /* what is being packed is given up */
    struct wb_compaction *compact_next; /* what wayback.conf says since; under threads.lock */
    struct wb_recording_state rules;
    atomic_uint user_snapshots;  /* so many may a user have who is no keeper (wayback.conf) */
    atomic_bool busy;            /* requests came since who packs asked last */
    atomic_bool dirty;           /* something was recorded since the last background sync */
    atomic_bool moves_unsynced;  /* a node with sync_all was forgotten: the next fsync syncs all */
    pthread_mutex_t sync_lock;   /* held while everything is synced */
    atomic_uchar graves[256];    /* directories of the graveyard with burials not yet synced */

    /* The pruning, or thinning, that is under way, a part at each request (control_prune.c, control_thin.c). */
    pthread_mutex_t prune_lock;  /* taken before all others */
    struct wb_prune *prune;
    unsigned prune_step;         /* the next one */
    struct wb_thinning *thinning;
    const struct wb_request *pruner;
    struct wb_keeper *keeper;    /* keeper.h; NULL: nothing is forgotten by itself */

    pthread_mutex_t writing_back; /* of one request at a time, which waits for others (ops_attr.c) */
    struct wb_helper *helper;    /* helper.h; NULL: root's daemon does not serve yet, or it is not root's */
    struct fuse_session *fuse;
    struct wb_transport *transport; /* transport.h; NULL: libfuse's own, by read(2) and write(2) */
    struct wb_session_threads threads;
};

/*
 * Opens SRC and the store, and makes the node of the root. 0, or -errno with a line in `why`. With options->dry_run it
 * only checks whether SRC can be mounted: 0 and *ret is NULL.
 */
int wb_session_open(struct wb_session **ret, const struct wb_options *options, struct wb_error *why);

/* Everything to disk, everything freed. Returns NULL. */
struct wb_session *wb_session_free(struct wb_session *session);
static inline void wb_session_freep(struct wb_session **session)
{
    wb_session_free(*session);
}

/* What of the session depends on where the store is, and which directories of ours are in SRC. */
void wb_session_note_place(struct wb_session *session);
void wb_session_count_hidden(struct wb_session *session);
/* Whether SRC or the store may have blocks that only root may take. */
void wb_session_note_reserve(struct wb_session *session);

/* FUSE's init: which of the kernel's features are used. */
void wb_session_negotiate(struct wb_session *session, struct fuse_conn_info *conn);

/* Whoever has a deleted file open goes on using it: the kernel knows it then, and so does a node. `data`: the
 * session. */
bool wb_compact_in_use(void *data, struct wb_object object);

/* Sleeps until threads->wake, or for so long, whatever is done to the wall clock meanwhile. With threads->lock held. */
void wb_session_wait(struct wb_session_threads *threads, int64_t ns);

/* The background threads that sync logs and keep the timeline, and what stops them. */
int wb_session_start_background(struct wb_session *session);
void wb_session_stop_background(struct wb_session *session);

static inline struct wb_session *wb_relocate_lock_shared(struct wb_session *session)
{
    pthread_rwlock_rdlock(&session->relocate_lock);
    return session;
}

static inline void wb_relocate_unlock(struct wb_session **session)
{
    pthread_rwlock_unlock(&(*session)->relocate_lock);
}
/* Until the end of the block the store stays where it is. Not within another one. */
#define WB_WITH_RELOCATE_LOCK(session)                                                                                 \
    __attribute__((cleanup(wb_relocate_unlock), unused)) struct wb_session *held = wb_relocate_lock_shared(session)

/* Written once between two looks, so that workers do not fight for it. */
static inline void wb_session_note_business(struct wb_session *session)
{
    if (!atomic_load_explicit(&session->busy, memory_order_relaxed))
        atomic_store_explicit(&session->busy, true, memory_order_relaxed);
}

/* All changes of the tree hold this lock, so the times of their ctimes are known to be recorded (inflight/spans.h). */
static inline void wb_ns_read_lock(struct wb_session *session)
{
    pthread_rwlock_rdlock(&session->ns_lock);
    if (session->recording)
        wb_spans_enter(session->store);
}

static inline bool wb_ns_try_read_lock(struct wb_session *session)
{
    if (pthread_rwlock_tryrdlock(&session->ns_lock) != 0)
        return false;
    if (session->recording)
        wb_spans_enter(session->store);
    return true;
}

static inline void wb_ns_write_lock(struct wb_session *session)
{
    pthread_rwlock_wrlock(&session->ns_lock);
    if (session->recording)
        wb_spans_enter(session->store);
}

static inline bool wb_ns_try_write_lock(struct wb_session *session)
{
    if (pthread_rwlock_trywrlock(&session->ns_lock) != 0)
        return false;
    if (session->recording)
        wb_spans_enter(session->store);
    return true;
}

static inline void wb_ns_unlock(struct wb_session *session)
{
    if (session->recording)
        wb_spans_leave(session->store);
    pthread_rwlock_unlock(&session->ns_lock);
}

/*
 * The same for a look that changes nothing in SRC: outside of every recorded span, since a change by another process
 * meanwhile is not a recorded one, however long the look takes.
 */
static inline void wb_ns_lock_unrecorded(struct wb_session *session)
{
    pthread_rwlock_rdlock(&session->ns_lock);
}

static inline bool wb_ns_try_lock_unrecorded(struct wb_session *session)
{
    return pthread_rwlock_tryrdlock(&session->ns_lock) == 0;
}

static inline void wb_ns_unlock_unrecorded(struct wb_session *session)
{
    pthread_rwlock_unlock(&session->ns_lock);
}

/* The store changes are recorded in, or NULL. */
static inline struct wb_store *wb_recorder(const struct wb_session *session)
{
    return session->recording ? session->store : NULL;
}
