/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The store: the directory that holds all history of one tree.
 *
 * One process at a time writes it (the holder of `lock`); readers open it without a lock. It owns
 * the two descriptors everything else works with (`src_fd`: the root of SRC, `dir_fd`: the store)
 * and the one clock: every `when` comes from wb_store_tick.
 */

#include "format/format.h"
#include "store/log/log.h"
#include "wayback/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>

struct wb_actors;
struct wb_preclone;
struct wb_gaps;
struct wb_identities;
struct wb_inflight;
struct wb_log_cache;
struct wb_manifest;
struct wb_snapshot_table;
struct wb_spans;
struct wb_stages;
struct wb_timeline;

enum wb_store_flags {
    WB_STORE_WRITE = 1 << 0,  /* take the lock, be able to append         */
    WB_STORE_CREATE = 1 << 1, /* make a new store where there is none      */
    WB_STORE_ANOTHER = 1 << 2, /* with CREATE: though the tree has a history elsewhere, which it leaves */
    WB_STORE_IN_SPANS = 1 << 3, /* each change of SRC is going to be made in a span (spans.h) */
};

/*
 * Logs that were last appended to from `since` on are stamped (wb_log_set_mtime); `cut`: when the store was first
 * opened after the last power cut, 0 where there was none.
 */
struct wb_log_mtimes {
    int64_t since, cut;
    bool unclean; /* the last daemon did not close it: logs it wrote may be in the page cache only */
};

struct wb_store {
    int src_fd;   /* O_RDONLY|O_DIRECTORY, the root of SRC; borrowed                          */
    int dir_fd;   /* the store; owned                                                         */
    int grave_fd; /* dead objects: the store, or SRC/.wayback-staging where the store is on another
                     device; owned; -1 where there is none yet (readers)                       */
    bool writable, in_spans;
    bool is_new;    /* made by this very wb_store_open                                         */
    int unmarked;   /* -errno: SRC cannot say where the store is (store_place.h); else 0        */
    int64_t opened; /* by the clock of ctime; before anything was done to SRC (spans.h)        */
    bool raised;    /* of a version without recorded spans until this very wb_store_open       */
    bool ordered;   /* wb_store_dir_is_ordered                                             */
    bool truncate_writes; /* wb_store_before_truncate                                      */
    bool can_clone; /* SRC and store can share extents (FICLONERANGE)                          */
    dev_t src_dev;
    bool exchange_hides; /* on SRC's file system RENAME_EXCHANGE leaves the ctime of the renamed inode as it is (XFS) */
    bool layered; /* SRC is on an overlayfs (layers.h) */
    struct wb_header header;
    _Atomic int64_t horizon; /* see wb_store_horizon */
    _Atomic int64_t forgotten; /* see wb_store_forgotten */
    struct wb_log_mtimes stamps;
    _Atomic int64_t content_synced, lost_since, lost_until; /* lost_content.h */
    int lock_fd;
    dev_t mount_dev; /* of the mount that the process serves; 0: none yet */
    struct wb_inflight *inflight;
    struct wb_actors *actors;
    struct wb_log_cache *logs;
    uint64_t index_stride; /* of undo logs, in bytes (log_index.h); tests make it small       */
    struct wb_snapshot_table *snapshots;
    struct wb_timeline *timeline; /* timeline.h */
    struct wb_preclone *preclone; /* cache/preclone.h; NULL: nothing is cloned, or only read */
    struct wb_stages *stages;     /* stages.h; NULL for a store that is only read */
    pthread_mutex_t settling;     /* settling.c: one at a time brings content to the disk */
    int settling_fd;
    atomic_bool flushing;          /* by syncfs; changed under `listing`, under which the list is written meanwhile */
    pthread_mutex_t listing, listed;
    uint64_t list_end;             /* WB_WRITEBACK_LIST: it is empty */
    /* Under `listed`, as is `unsettled`: */
    bool list_lacks_space;
    struct wb_object listed_late[64]; /* during the flush */
    unsigned listed_late_count;
    pthread_mutex_t unstamping;
    struct wb_object mtime_untrusted; /* see wb_log_mtime_suspend; under `unstamping` */
    struct _GHashTable *unsettled; /* objects whose content is brought to the disk, or could not be */
    struct wb_manifest *manifest; /* manifest.h; NULL for a store that is only read */
    struct wb_spans *spans;       /* spans.h */
    struct wb_gaps *gaps;         /* gaps.h; NULL: there are none */
    struct wb_identities *identities; /* identities.h; NULL: each inode is an object by itself  */
    atomic_uint dir_moves;        /* how many directories got another place */
    bool lets_through;            /* what cannot be recorded is changed all the same, and leaves a gap */
    /* Logs are rewritten by one thread at a time; an erasure does not wait for a compaction. */
    pthread_mutex_t rewriting;
    atomic_int rewrite_wanted; /* so many wait for a compaction to abort */
    atomic_int rewrite_awaited; /* and so many for a background compaction */
    atomic_uint rewrites;      /* see wb_rewriting_own */
    atomic_uint holds;         /* pins.h */
    atomic_uint moves; /* how often it changed place (store_follow.h): older descriptors are another store's */
    _Atomic uint64_t lock_device; /* store_lock.c: the device of `dir_fd`, with the number of moves it is of */
    _Atomic uint64_t grown;    /* see wb_store_note_growth */
    struct wb_spenders *spenders; /* spenders.h */
    _Atomic uint64_t user_limit;  /* the same: so many bytes each user; 0: no limit */
    pthread_mutex_t forgetting; /* taken before all others: one at a time makes the horizon later */
};

/*
 * Opens the store of the tree at src_fd. `store_path`: NULL for SRC/.wayback, else a directory
 * outside of SRC. Fails with a line in `why` where: there is no store and CREATE was not asked
 * (-ENOENT); the tree has a history elsewhere that is not there (-ENODEV); it is of a newer format
 * (-EPROTONOSUPPORT) or of another tree (-EXDEV); another process
 * has it (-EBUSY); somebody else could write or read it (-EPERM); the disk is full. With WRITE, the
 * caller runs recovery (capture/recovery/recover.h) before the first change.
 */
int wb_store_open(struct wb_store **ret, int src_fd, const char *store_path, unsigned flags, struct wb_error *why);
/* Everything to stable storage, then lets go of it. Returns NULL. */
struct wb_store *wb_store_free(struct wb_store *store);

/*
 * Counts that the history has grown by so many bytes: records, and files that were deleted. A budget needs that number
 * without a look at all of the history. Bytes that are freed or shared with others are not subtracted: between two
 * measurements, this is the most it can have grown by.
 * `actor`: of the record; `owner`: for whom it counts where that is nobody (spenders.h).
 */
void wb_store_note_growth(struct wb_store *store, uint32_t actor, uint32_t owner, uint64_t bytes);

/* Whether some process has the store open for writing; does not touch the lock. */
bool wb_store_is_held(const struct wb_store *store);

/*
 * Names the calling process, and its mount once store->mount_dev is set, as the holder of the lock: after fork(2),
 * which hands the lock on, and after mounting.
 */
void wb_store_claim(struct wb_store *store);

/*
 * The next `when`: the wall clock, or one more than the last given out, whichever is later.
 * Monotonic over restarts (see inflight.c). Thread-safe, lock-free.
 */
int64_t wb_store_tick(struct wb_store *store);

/*
 * The present by the same clock, for times such as "five minutes ago": even if the wall clock was set back, it is not
 * before any change.
 */
int64_t wb_store_now(const struct wb_store *store);

/*
 * No change of the tree is newer than this; as a rule it is the `when` of the newest one, also where that was
 * made before the store was opened. It is later than the truth where that is not known: after a power cut, by
 * some seconds; in a store just made, when it was made; in one that is only read, WB_WHEN_PRESENT.
 * Thread-safe, lock-free.
 */
int64_t wb_store_last_change(const struct wb_store *store);
/* The same for a process that only reads, as far as the writer has stored it: WB_WHEN_PRESENT if it is not known. */
int64_t wb_store_look_for_change(const struct wb_store *store);

/*
 * History before this moment was forgotten by age (vprune), and no state of it may be returned: 0 if nothing was.
 * A caller that reads a state of T must call this after it has read all of the state, since data that is no longer
 * needed is deleted while others read.
 * Without the right to write, it is read anew each time; INT64_MAX - 1 if it cannot be read.
 */
int64_t wb_store_horizon(const struct wb_store *store);

/*
 * The same for parts of the history: since the store was opened for writing, history of any object before this moment
 * may have been forgotten or erased, without an entry in the timeline. Call note_forgotten before the first log is
 * changed.
 */
int64_t wb_store_forgotten(const struct wb_store *store);
void wb_store_note_forgotten(struct wb_store *store, int64_t before);

/*
 * Makes that moment later, in two parts, so that nobody waits for the disk: first, with all changes of the tree kept
 * away, for this process; then durably, before anything is taken away that only states before it need. 0 or -errno,
 * and then it is what it was. The caller holds `forgetting`.
 */
void wb_store_hide_before(struct wb_store *store, int64_t when);
int wb_store_forget_hidden(struct wb_store *store);

/*
 * Acquires `rewriting`, for an erasure or for the return of a deleted file: a compaction under way aborts, also one
 * that owns nothing just now. A compaction reads `rewrites` when it reads the files, and once more before it replaces
 * them by its result.
 */
static inline void wb_rewriting_own(struct wb_store *store)
{
    atomic_fetch_add(&store->rewrite_wanted, 1);
    pthread_mutex_lock(&store->rewriting);
    atomic_fetch_sub(&store->rewrite_wanted, 1);
    atomic_fetch_add(&store->rewrites, 1);
}

/* For a compaction, or an erasure of one log at a time: only a background compaction aborts for that. */
static inline void wb_rewriting_await(struct wb_store *store)
{
    atomic_fetch_add(&store->rewrite_awaited, 1);
    pthread_mutex_lock(&store->rewriting);
    atomic_fetch_sub(&store->rewrite_awaited, 1);
}

/* ---- identity: lower inode -> object. This is the one place. --------------------------------- */

/*
 * statx of dir_fd/name (name NULL or "": of the fd itself, which may be O_PATH) without following
 * a link. Fills `object` and `attrs` (either may be NULL). 0 or -errno; when `store` is given, -EXDEV for an inode of a
 * device other than SRC's, or a directory that is in several layers of an overlayfs. Without one, an inode is itself:
 * for files of the store, and for code that maintains the store itself.
 */
int wb_object_stat(const struct wb_store *store, int dir_fd, const char *name, struct wb_object *object,
                   struct wb_attrs *attrs, struct stat *st);

/* A checksum of the handle of dir_fd/name, which contains the generation of its inode; 0: it has none. */
uint64_t wb_object_handle(int dir_fd, const char *name);

/* Whether files there can be distinguished for good: by birth, or by a handle that lasts. */
bool wb_object_lasts(int dir_fd);

/* ---- logs of objects, cached (logs.c, manifest_logs.c) --------------------------------------- */

/*
 * The log of an object, opened for appending; descriptors of so many are kept: WB_LOGS_OPEN, and a
 * fourth of what the process may have above 1024, but no more than WB_LOGS_OPEN_MAX. Release
 * with wb_store_put_log. With `create` == false, -ENOENT where the object has none.
 * `file` is WB_FILE_UNDO or WB_FILE_CATALOG.
 */
#define WB_LOGS_OPEN 128
#define WB_LOGS_OPEN_MAX 4096
int wb_store_get_log(struct wb_store *store, struct wb_object object, enum wb_object_file file, bool create,
                     struct wb_log **ret);
void wb_store_put_log(struct wb_store *store, struct wb_log *log);

/*
 * Whether records were lost from the end of a log, or all of them, and no GAP says so yet. In a store that is written,
 * a GAP says so from then on, unless there is no room for it. Needs no lock. -errno where that is not known.
 */
enum wb_tail { WB_TAIL_SOUND = 0, WB_TAIL_CUT = 1 /* a power cut took them */, WB_TAIL_DAMAGED = 2 };
int wb_store_tail_is_lost(const struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* Whether that log exists (a hit in the cache costs no system call). 1, 0 or -errno. */
int wb_store_has_log(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* That log (an undo log with its images), or nothing if it has none, to stable storage. */
int wb_store_sync_log(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/*
 * Gives the records of all open logs to the disk. It does not make them durable; but what the file system makes durable
 * next, of whatever file, does not go before them.
 */
void wb_store_write_logs(struct wb_store *store);

/* Every log appended to since its last sync, actors and inflight included. */
int wb_store_sync_all(struct wb_store *store);

/* That, and then the manifest lists them (manifest.h). One thread at a time. */
int wb_store_sync_listed(struct wb_store *store);

/* What wb_store_sync_all does, and all content of the file system of SRC. */
int wb_store_sync_content(struct wb_store *store);

/* A file was synced, after its log: the log has a record of all its content that may be on the disk. */
void wb_store_note_clean(struct wb_store *store, struct wb_object object);

/*
 * Before the size of a file is set. XFS brings content to the disk then that was written before: its records go first.
 * 0 or -errno.
 */
int wb_store_before_truncate(struct wb_store *store, struct wb_object object);

/*
 * After a change of content in place was recorded, and before it is made: while a flush runs, the file is listed first,
 * or its records are synced. 0 or -errno.
 */
int wb_store_before_overwrite(struct wb_store *store, struct wb_object object);

/* To be called by recovery: what a power cut found being brought to the disk. 0 or -errno. */
int wb_writeback_recover(struct wb_store *store);

/*
 * Between suspend and resume, the undo log of an object may be changed in its place, which moves its time of
 * modification: a power cut does not make a gap of it then (log_mtime.c). Records that are appended meanwhile are
 * durable before their change is made. One log at a time, by the thread that owns `rewriting`. If resume fails, that
 * state lasts until it succeeds. Prepare takes the room that is needed for it, while there is some. 0 or -errno.
 */
int wb_log_mtime_prepare(struct wb_store *store);
int wb_log_mtime_suspend(struct wb_store *store, struct wb_object object);
int wb_log_mtime_resume(struct wb_store *store);
bool wb_store_is_mtime_untrusted(const struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* The actors and the clock alone: needed by every fsync. Costs nothing where neither has news. */
int wb_store_sync_common(struct wb_store *store);

/*
 * To be called before the file of a log is replaced or removed: withdraws its entry in the manifest and forgets the
 * cached log. 0, or -errno: the file must stay.
 */
int wb_store_drop_log(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/*
 * Opens a file of an object for reading: descriptor or -errno; -EIO for a log that is missing or whose end was lost,
 * as the manifest says, where no GAP can say so. Works without the lock.
 */
int wb_store_open_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                       int flags);

/* ---- actors (actors.c) ----------------------------------------------------------------------- */

/* The index to put into records for a process; looks at /proc/PID/cmdline, briefly cached. */
uint32_t wb_store_actor(struct wb_store *store, uint32_t uid, uint32_t gid, uint32_t pid);

/* The next change by the process reads its command line again: it may have executed another program. */
void wb_store_actor_expire(struct wb_store *store, uint32_t uid, uint32_t gid, uint32_t pid);

/* What an index in a record of `when` stands for. `command` holds WB_COMMAND_MAX + 1 bytes. 0, WB_ABSENT or -errno. */
struct wb_actor {
    uint32_t uid, gid, pid;
    char command[WB_COMMAND_MAX + 1];
};
int wb_store_actor_info(const struct wb_store *store, uint32_t index, int64_t when, struct wb_actor *ret);

/* The user alone, cached, for callers that need it for each record. 0, WB_ABSENT or -errno. */
int wb_store_actor_uid(struct wb_store *store, uint32_t index, int64_t when, uint32_t *ret);

/* Reduces the command line to the base name of the program: its arguments and directories are not for other users. */
void wb_actor_hide_arguments(struct wb_actor *actor);

/* How much of a command line is recorded from now on. Nothing happens where nothing is recorded. */
void wb_store_set_commands(struct wb_store *store, enum wb_commands commands);

/*
 * For vrm: the file of actors goes on in the file `temporary`, which has the same records in the same places, with
 * other commands, and is on stable storage. An index is a record's offset in that file / 8 + 1. From before it is
 * copied until it is exchanged it must be held, so that no actor is appended in between; code that
 * syncs it or looks up an actor meanwhile need not know. 0 or -errno.
 */
void wb_store_actors_hold(struct wb_store *store);
void wb_store_actors_release(struct wb_store *store);
int wb_store_actors_exchange(struct wb_store *store, const char *temporary);

/* ---- in-flight changes (inflight.c) ---------------------------------------------------------- */

/*
 * A change announces itself before its first record is appended and withdraws after the change
 * has been made (or its ABORT been written). Changes that are still announced when the store is next
 * opened for writing are examined by recovery, and nothing else.
 * claim takes a slot and then a `when`, in this order, so that a query of the changes under way misses
 * none; announce writes it down (if that fails, the slot is free again).
 * Returns a slot number >= 0 (waits for a free one; -EBUSY after ten seconds), or -errno.
 */
int wb_inflight_claim(struct wb_store *store, int64_t *ret_when);
int wb_inflight_announce(struct wb_store *store, int slot, int64_t when, struct wb_object a,
                         enum wb_object_file a_kind, struct wb_object b, enum wb_object_file b_kind, int logs);
void wb_inflight_end(struct wb_store *store, int slot);

/* Both at once, with a `when` of the caller's. */
int wb_inflight_begin(struct wb_store *store, int64_t when, struct wb_object a, enum wb_object_file a_kind,
                      struct wb_object b, enum wb_object_file b_kind, int logs);

/*
 * For a process that makes many changes: announcing one, and its end, are stores into memory from now on, no system
 * calls. Does nothing on file systems where that is not known to be as good. Before there are threads; takes SIGBUS for
 * the process.
 */
void wb_inflight_map(struct wb_store *store);

/* Whether a change of `when` or older is under way in this process; failed ones are not. */
bool wb_inflight_is_under_way(const struct wb_store *store, int64_t when);

/*
 * For a search for an object that a change may move meanwhile. wb_inflight_quiet returns 0 if a change is under way,
 * and else the argument for wb_inflight_stayed_quiet after the search: whether none has begun since. If this process
 * does not have the lock of the store: whether no process has it.
 */
int64_t wb_inflight_quiet(struct wb_store *store);
bool wb_inflight_stayed_quiet(const struct wb_store *store, int64_t quiet);

/*
 * A change that failed, and whose ABORT could not be written to `logs`: it stays announced, so that recovery
 * deals with it after a crash, and is set aside until somebody takes it to try again. take_aside returns the
 * slot, or -1.
 */
#define WB_ASIDE_LOGS 4
struct wb_inflight_aside {
    int64_t when;
    int count;
    struct {
        struct wb_object object;
        enum wb_object_file file;
    } logs[WB_ASIDE_LOGS];
};
void wb_inflight_set_aside(struct wb_store *store, int slot, const struct wb_inflight_aside *aside);
int wb_inflight_take_aside(struct wb_store *store, struct wb_inflight_aside *ret);

/* Around taking them: begin returns false, and needs no end, where there is none. */
bool wb_inflight_retry_begin(struct wb_store *store);
void wb_inflight_retry_end(struct wb_store *store);

/* Whether a change of `when` or older is set aside or under way. */
bool wb_inflight_has_aside(const struct wb_store *store, int64_t when);

/* Whether one of `when` or older is set aside: not one that is only under way, unless one is being tried again. */
bool wb_inflight_has_failed(const struct wb_store *store, int64_t when);

/* Every change with a lower `when` is over, or failed and set aside; and its records are in their logs. */
int64_t wb_inflight_low_water(struct wb_store *store);

/* Whether the change has a slot: below the horizon, that it failed and could not be aborted yet. */
bool wb_inflight_has(struct wb_store *store, int64_t when);

/* In a child process that goes on without the store: it keeps nothing mapped, so that the disk can be unmounted. */
void wb_inflight_leave(struct wb_store *store);

/* Whether the store was not closed before the machine went down: what only the page cache held is gone. */
bool wb_inflight_lost_power(struct wb_store *store);

/* What was still announced when the store was opened, oldest first. Stops at a callback's nonzero
 * result and returns it. */
struct wb_inflight_entry {
    int64_t when;
    unsigned logs;
    struct wb_object a, b;
    enum wb_object_file a_kind, b_kind;
};
int wb_inflight_each(struct wb_store *store, int (*callback)(const struct wb_inflight_entry *entry, void *data),
                     void *data);

/* Recovery has dealt with all of them: their slots are free again. 0 or -errno. */
int wb_inflight_clear(struct wb_store *store);

/* ---- the graveyard (graveyard.c) ------------------------------------------------------------- */

/*
 * Gives a lost object a place in the store in O(1). The record that says so is written already.
 * bury_name:  takes dir_fd/name away. A file: renamed to ID.data; or just unlinked where ID.data
 *             is there already (a hard link whose other name was lost before: rename(2) of two
 *             links of one inode does nothing). An empty directory: renamed to ID.dir.
 * keep_link:  keeps the object by a second link while its name is about to be replaced by a rename.
 *             -EPERM, -EMLINK, -EOPNOTSUPP where no second link may be made: the name can still be buried.
 * unbury:     binds it to dir_fd/name again (-EEXIST where taken): a rename where the store held the
 *             last link, else link(2).
 */
int wb_grave_bury_name(struct wb_store *store, int dir_fd, const char *name, struct wb_object object,
                       bool is_dir);
int wb_grave_keep_link(struct wb_store *store, int dir_fd, const char *name, struct wb_object object);
int wb_grave_unbury(struct wb_store *store, struct wb_object object, bool is_dir, int dir_fd,
                    const char *name);

/* Whether the graveyard has a link of it: 1, 0 or -errno. Then st_nlink of the file is one too many. */
int wb_grave_has(const struct wb_store *store, struct wb_object object, bool is_dir);

/* Opens what is buried: a descriptor or -errno. */
int wb_grave_open(const struct wb_store *store, struct wb_object object, bool is_dir, int flags);

/*
 * Only the file in the graveyard shows that it was nowhere else: so that is noted before the file is deleted, for the
 * continuation after a crash. The note is deleted when nothing is left of the file, and no record. 0 or -errno.
 */
int wb_grave_note_gone(const struct wb_store *store, struct wb_object object);
int wb_grave_forget_gone(const struct wb_store *store, struct wb_object object);

/* The graveyard's part of a burial to stable storage (the other directory is the caller's). */
int wb_grave_sync(struct wb_store *store, struct wb_object object);
