/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts a store is put together from; for the files of this floor only. */

#include "store/store.h"
#include <stdlib.h>

/* ---- opening (store.c) ------------------------------------------------------------------------ */

/* One that has nothing open yet, or NULL. */
struct wb_store *wb_store_new(int src_fd);
/* All that is written, once the directory, the lock and the graveyard are open. 0 or -errno with a line in `why`. */
int wb_store_open_writable(struct wb_store *store, const char *home, struct wb_error *why);

/* ---- directories of the store (store_dir.c) -------------------------------------------------- */

/*
 * Opens (or makes) the store's directory and checks that it is a place for a store and nobody
 * else's. `home`: words for messages. A descriptor or -errno with a line in `why`.
 */
int wb_store_dir_open(int src_fd, const char *store_path, unsigned flags, const char *home, struct wb_error *why);

/* Makes `objects` with all its 256 directories where they are missing. */
int wb_store_dir_fill(int dir_fd);

/* Whether a file of that name, directly in the directory of a store, may be the store's. */
bool wb_store_dir_knows(const char *name);
/* The same, or that of a replacement that a crash left half-written. */
bool wb_store_dir_owns(const char *name);

/* Whether all of these that are there are directories: 0, -ENOTDIR or another -errno. Once for each opening. */
int wb_store_dir_check(int dir_fd);

/* Opens (or makes) the graveyard in SRC for a store elsewhere: a descriptor or -errno. */
int wb_store_dir_staging(int src_fd, bool create);

/*
 * Opens (or makes) the graveyard for the store in dir_fd: itself where SRC's files can be moved into it by rename(2),
 * else one in SRC. A descriptor or -errno.
 */
int wb_store_dir_grave(int src_fd, int dir_fd, bool create);

/*
 * A directory for a store to be moved to, made where it is not there; no signpost is followed, and whatever is in it is
 * the caller's to judge. A descriptor or -errno with a line in `why`.
 */
int wb_store_dir_make(int src_fd, const char *path, struct wb_error *why);
/* Makes SRC/.wayback where there is none. A descriptor or -errno. */
int wb_store_dir_make_inside(int src_fd);

/* Renames what is buried from one directory of a graveyard to another, where nothing has the name (graveyard.c). */
int wb_grave_bring(int from_fd, const char *name, int to_fd);

/* Takes the lock: its descriptor, or -EBUSY with a line naming the holder, or -errno. */
int wb_store_dir_lock(int dir_fd, const char *home, struct wb_error *why);

/* Whether names can be moved and linked between the two directories. 1, 0 or -errno. */
int wb_store_dir_same_mount(int a_fd, int b_fd);

/* Whether files can share extents there. Never fails: false in doubt. */
bool wb_store_dir_can_clone(int dir_fd);

/* ---- the clock and the slots (inflight.c) ---------------------------------------------------- */

/* Reads the file. Nothing may be changed before wb_inflight_mark_open. 0 or -errno. */
int wb_inflight_open(struct wb_inflight **ret, int dir_fd);
/* Notes durably that the store is open for writing, and the power cut that was found. 0 or -errno. */
int wb_inflight_mark_open(struct wb_inflight *inflight, int dir_fd);
struct wb_inflight *wb_inflight_free(struct wb_inflight *inflight);

void wb_inflight_log_mtimes(const struct wb_inflight *inflight, struct wb_log_mtimes *ret);
/* For a process that only reads; `held`: another process has it open for writing. */
void wb_inflight_peek_log_mtimes(int dir_fd, bool held, struct wb_log_mtimes *ret);

/* No `when` up to this one is given out any more. */
void wb_inflight_raise(struct wb_inflight *inflight, int64_t when);
int wb_inflight_sync(struct wb_inflight *inflight);
/* Whether no change is announced, nor one that failed. */
bool wb_inflight_is_idle(const struct wb_inflight *inflight);
/* Of an idle one, into a copy of its file: its fields of the clock as they are when it is closed. 0 or -errno. */
int wb_inflight_write_rested(const struct wb_inflight *inflight, int dir_fd);
/* All metadata of the file system to stable storage. */
int wb_inflight_commit(struct wb_inflight *inflight);

/* ---- stages under way (stages.c) -------------------------------------------------------------- */

/* `write_logs`: wb_store_write_logs. */
int wb_stages_open(struct wb_store *store, void (*write_logs)(struct wb_store *store));
struct wb_stages *wb_stages_free(struct wb_store *store);

/* ---- actors (actors.c) ----------------------------------------------------------------------- */

int wb_actors_open(struct wb_store *store);
struct wb_actors *wb_actors_free(struct wb_actors *actors);
int wb_actors_sync(struct wb_store *store);
/* Copies the known actors of `other`, which has the same file, to `actors`. */
void wb_actors_go_on(struct wb_actors *actors, struct wb_actors *other);

/* ---- the timeline (timeline.c) --------------------------------------------------------------- */

/* A function that opens a log for reading, and may repair its end: wb_store_open_file. A descriptor or -errno. */
typedef int wb_log_opener(const struct wb_store *store, struct wb_object object, enum wb_object_file file, int flags);
/* Opens the existing list in constant time; the next pass mends any fault of it. Fails only without memory. */
int wb_timeline_open(struct wb_store *store, wb_log_opener *open_log);
/* With a last pass, if that is not much. */
struct wb_timeline *wb_timeline_free(struct wb_store *store);

/* ---- the cache of logs (logs.c) -------------------------------------------------------------- */

struct wb_log_cache *wb_log_cache_new(unsigned limit);
/* `manifest` may be NULL. Called before other threads use the cache. */
void wb_log_cache_set_manifest(struct wb_log_cache *cache, struct wb_manifest *manifest);
/* How many logs may stay open: WB_LOGS_OPEN, and more where the process may have more than 1024 descriptors. */
unsigned wb_logs_limit(void);
struct wb_log_cache *wb_log_cache_free(struct wb_log_cache *cache);

/* A log that was closed since; the list is freed with wb_closed_logs_clear. */
struct wb_closed_log {
    struct wb_object object;
    enum wb_object_file file;
};
struct wb_closed_logs {
    struct wb_closed_log *items;
    size_t count, room;
};
static inline void wb_closed_logs_clear(struct wb_closed_logs *logs)
{
    free(logs->items);
    *logs = (struct wb_closed_logs){0};
}

/* Those of objects whose content was changed in its place since the last call, and not synced after it. -ENOMEM: there
 * are more. */
int wb_log_cache_take_overwritten(struct wb_log_cache *cache, struct wb_closed_logs *ret);

/* Whether the file system makes everything durable, in order, that happened before a file that is synced. */
bool wb_store_dir_is_ordered(int dir_fd, bool *ret_truncate_writes);
/* Finds it out now for this file system: mounted.h calls it before a confinement in which /sys does not exist. */
#define WB_ORDERED_NOTES_MAX 24
void wb_store_dir_note_ordered(int dir_fd);

/*
 * Calls the lister with each open log that has news for the manifest, with the cache locked, so that it is not dropped
 * meanwhile. The lister returns false where it could not take the news.
 */
typedef bool wb_log_lister(void *data, const struct wb_manifest_entry *entry);
void wb_log_cache_list(struct wb_log_cache *cache, wb_log_lister *lister, void *data);

/* Whether a log, or that there is none, was compared with the manifest by this process; and that it was. */
bool wb_log_cache_was_checked(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file);
void wb_log_cache_note_checked(struct wb_log_cache *cache, struct wb_object object, enum wb_object_file file,
                               bool exists);

/* ---- lost records (tail_loss.c) -------------------------------------------------------------- */

/* By the modification time of a log's file (`stamp`): whether records after the last one were lost in a power cut. */
bool wb_log_is_short(const struct wb_store *store, int64_t stamp, int64_t last_when);
void wb_store_set_mtime_untrusted(struct wb_store *store, struct wb_object object);

/* For a log that was just opened: records a lost tail as a GAP. 0 or -errno. */
int wb_log_look_for_lost_tail(struct wb_store *store, struct wb_log *log, struct wb_object object,
                              enum wb_object_file file);

/* ---- content and logs under way to the disk (settling.c, log_mtime.c, tail_loss.c) ------------------------- */

/* Opens the file, or makes it, so that there is room for a note; with the mutex held, or while no other thread exists.
 * 0, -ENOENT if it is missing and `make` is false, or another -errno. */
int wb_writeback_open(struct wb_store *store, bool make);

/* Reads the note that somebody left; before any log is opened. One that cannot be read is none. */
void wb_log_mtime_check(struct wb_store *store);

/* ---- named moments (snapshots.c) ------------------------------------------------------------- */

/* Makes the table; for a store that is written, opens the log if there is one, so that the clock
 * goes on above all its moments. */
int wb_snapshot_table_open(struct wb_store *store);
struct wb_snapshot_table *wb_snapshot_table_free(struct wb_snapshot_table *table);
