/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Named moments: the log `snapshots` of the store. A snapshot is nothing but a moment with a name; it
 * holds no data, so it costs the same however large the tree is.
 *
 * The table is kept in memory and looked at again when the log has grown, by this process or
 * another; readers need no lock. All functions are thread-safe. Errors: -errno, WB_ABSENT where said.
 */

#include "store/store.h"
#include "wayback/error.h"
#include "wayback/snapshot.h"

struct wb_snapshot {
    int64_t when;           /* the moment: identifies it                        */
    struct wb_object scope; /* the directory it covers; the root: everything    */
    uint32_t uid;
    bool automatic;
    const char *name;
    const char *text;       /* "" if none                                       */
    const char *path;       /* of the scope when it was made, "" for the root   */
    uint64_t offset;        /* where its record begins in the log; not for wb_snapshots_add */
};

/* No more are kept, and their strings take no more bytes: the table lives in memory. */
#define WB_SNAPSHOTS_MAX 65536
#define WB_SNAPSHOTS_BYTES_MAX (32u << 20)

/* All that are there, oldest moment first. Immutable, reference counted. */
struct wb_snapshots {
    atomic_uint references;
    size_t count;
    const struct wb_snapshot **by_name; /* the same in byte order of names, of one name as wb_snapshots_find has it */
    struct wb_snapshot list[];
};

int wb_snapshots_get(struct wb_store *store, struct wb_snapshots **ret);
struct wb_snapshots *wb_snapshots_unref(struct wb_snapshots *snapshots); /* returns NULL */
static inline void wb_snapshots_unrefp(struct wb_snapshots **snapshots)
{
    wb_snapshots_unref(*snapshots);
}

/*
 * Names belong to owners, so that nobody can take one from another. Root, the user who runs this process, and schedules
 * share theirs, and a snapshot of these is chosen before those of other users. Of these, the one of the deeper
 * directory comes first, then the newer one. A name that is not of a directory above means nothing there, so a lookup
 * of FILE@NAME takes the first that is.
 */
bool wb_snapshot_is_keepers(const struct wb_snapshot *snapshot);
/* Whether a snapshot of that owner could not have this name. `but`: that one does not count; may be NULL. */
bool wb_snapshots_is_taken(const struct wb_snapshots *snapshots, const struct wb_snapshot *wanted,
                           const struct wb_snapshot *but);

/* Number `nth` of those of that name, from 0, or NULL; the one of that moment. They live as long as `snapshots`. */
const struct wb_snapshot *wb_snapshots_find(const struct wb_snapshots *snapshots, const char *name, unsigned nth);
const struct wb_snapshot *wb_snapshots_at(const struct wb_snapshots *snapshots, int64_t when);

/*
 * Adds one; `open_files`: paths from the root, NULL-terminated, may be NULL; those that do not fit into a payload
 * are counted only. -EEXIST: the name (or the moment) is taken. -ENOSPC: there are WB_SNAPSHOTS_MAX. -EINVAL:
 * the name may not be, or text or path are too long. On stable storage when it returns; a failure
 * leaves none of it.
 */
int wb_snapshots_add(struct wb_store *store, const struct wb_snapshot *snapshot,
                     const char *const *open_files);

/* Whether there are as many as can be: no more is added, however much room the disk has. */
bool wb_snapshots_are_all(const struct wb_snapshots *known);

/* -EEXIST where the new name is taken; WB_ABSENT where there is none of that moment. */
int wb_snapshots_rename(struct wb_store *store, int64_t when, const char *name);
int wb_snapshots_delete(struct wb_store *store, int64_t when);

/*
 * What was open for writing then: NULL-terminated, g_strfreev. *ret_more: how many there were beside.
 * 0, WB_ABSENT, -EIO where the list is damaged, or -errno.
 */
int wb_snapshots_open_files(struct wb_store *store, int64_t when, char ***ret, uint64_t *ret_more);
