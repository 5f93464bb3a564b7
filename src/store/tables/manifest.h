/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The manifest: which logs the store must have, and how far each of them must reach at least.
 *
 * A log that was deleted or cut off looks like one that was never written. The manifest has an entry for each log, in
 * one hash table per shard (format.h, manifest/xx). An entry is a lower bound: a log may reach further, but one that
 * reaches less far, or is not there, was damaged. To keep that true at every instant,
 *
 * - an entry is written only after the log is on stable storage as far as the entry says (wb_manifest_write);
 * - an entry is withdrawn, durably, before its log is removed, replaced or cut (wb_manifest_withdraw).
 *
 * So a crash leaves entries that say too little, never too much. The background thread goes through the shards that
 * lack entries (`complete`), as after a crash, or in a store that an older version wrote.
 *
 * Readers need no lock. They compare the entry before and after they looked at the log.
 */

#include "store/log/log.h"
#include "store/store.h"

/* For a store that is written: begins the manifest where there is none. 0 or -errno. */
int wb_manifest_open(struct wb_store *store);
/* Everything is on stable storage by then. */
struct wb_manifest *wb_manifest_free(struct wb_store *store);

/*
 * The entry of a log: 1, 0 where there is none, -EBADMSG where the place of the manifest that would have it is damaged
 * or missing, or another -errno.
 */
int wb_manifest_find(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                     struct wb_manifest_entry *ret);

/* The same, of a block of a deleted file. While the first block has an entry, all have. */
int wb_manifest_find_block(const struct wb_store *store, struct wb_object object, uint32_t block,
                           struct wb_manifest_entry *ret);

/* Compares a log with its entry: 1: it is missing or too short; 0: it is sound, or has no entry; -errno as above. */
int wb_manifest_check(const struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* ---- writing; thread-safe ---------------------------------------------------------------------- */

/*
 * For a log that was just opened for appending: sets log->listed. True where records were lost from its end (all of
 * them, where it was just made) and no GAP says so.
 */
bool wb_manifest_log_opened(struct wb_store *store, struct wb_log *log, struct wb_object object,
                            enum wb_object_file file);

/* The log goes on behind a GAP that covers what was lost: the entry says so from now on. 0 or -errno. */
int wb_manifest_log_mended(struct wb_store *store, struct wb_log *log, struct wb_object object,
                           enum wb_object_file file);

/* For a log that is closed: remembers what is new in it (log->unlisted). Does no I/O. */
void wb_manifest_note(struct wb_manifest *manifest, struct wb_object object, enum wb_object_file file,
                      const struct wb_log *log);

/*
 * Before a log is removed or replaced: takes its entry away, on stable storage. For many logs, withdraw them with
 * `durable` false and call wb_manifest_sync once before the first of them goes. 0 or -errno, then the log must stay.
 */
int wb_manifest_withdraw(struct wb_store *store, struct wb_object object, enum wb_object_file file, bool durable);
int wb_manifest_sync(struct wb_store *store);

/* ---- deleted files (body_sums.h) ------------------------------------------------------------------ */

/* The first block comes last. 0 or -errno. */
int wb_manifest_put_block(struct wb_store *store, struct wb_object object, uint32_t block, uint64_t size,
                          uint64_t check);
/* Before its content changes, or when it is gone. 0 or -errno. */
int wb_manifest_withdraw_body(struct wb_store *store, struct wb_object object, bool durable);
/* Of all deleted files of a store that nobody has open. The caller holds its lock. 0 or -errno. */
int wb_manifest_forget_bodies(int dir_fd);
/* A file was buried: its shard has to be looked through. The other takes such a shard; -1: there is none. */
void wb_manifest_note_burial(struct wb_store *store, struct wb_object object);
int wb_manifest_next_unsummed(struct wb_store *store);

/*
 * Writes entries for appended records (cache/manifest_logs.h): the caller captures and puts them, brings everything to
 * stable storage, and then writes them. One thread at a time. wb_manifest_put is a wb_log_lister, whose `data` is the
 * manifest; it returns false if there is no room for the entry.
 */
void wb_manifest_capture(struct wb_manifest *manifest);
bool wb_manifest_put(void *data, const struct wb_manifest_entry *entry);
void wb_manifest_write(struct wb_store *store);

/* Returns whether a shard may lack entries and can be completed. It counts as complete from now on, until the caller
 * gives it up because it could not add all entries. */
bool wb_manifest_begin_shard(struct wb_manifest *manifest, unsigned shard);
void wb_manifest_give_up_shard(struct wb_manifest *manifest, unsigned shard);

/* ---- for vfsck ------------------------------------------------------------------------------------ */

/*
 * Calls `take` with each entry of a shard; stops at a nonzero result. 0, that, -EBADMSG where some of it is damaged, or
 * -errno.
 */
int wb_manifest_each(const struct wb_store *store, unsigned shard,
                     int (*take)(const struct wb_manifest_entry *entry, void *data), void *data);

/* Whether manifest/shards can be read: 0, -EBADMSG or another -errno. */
int wb_manifest_check_shards(const struct wb_store *store);

/* Makes that file anew: the tables that are there must be there. 0 or -errno. */
int wb_manifest_mend_shards(struct wb_store *store);

/* Makes the table of a shard anew from the logs that are there. 0 or -errno. */
int wb_manifest_rebuild(struct wb_store *store, unsigned shard);
