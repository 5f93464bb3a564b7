/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Thinning: single versions go from the middle of a file's history. Every state that is kept stays exact; in the place
 * of one that went, the one before it shows (docs/format.md, Thinning).
 */

#include "store/store.h"

/*
 * The states from `from` until just before `until` are not kept. Both are `when`s of changes of this file. The caller
 * has made sure that
 *  - no catalog has a record of the file in [from, until]: attributes would be of another moment than the content;
 *  - no snapshot is of a moment in it;
 *  - no change up to `until` is under way.
 */
struct wb_thin_drop {
    int64_t from, until;
};

struct wb_thin {
    const struct wb_thin_drop *drops; /* `from` rises; none begins before the last one has ended */
    size_t count;
    bool dry_run;             /* only say what it would bring     */
    bool (*stop)(void *data); /* asked now and then, may be NULL  */
    void *data;
    /* filled */
    bool changed;             /* the log was written anew, or would be   */
    uint64_t dropped;         /* versions that went                      */
    uint64_t log_bytes;       /* freed in the log,                       */
    uint64_t image_bytes;     /* and in the image                        */
};

/*
 * Drops versions from the undo log of an object. Versions that cannot be dropped safely are kept: those at a gap, at
 * something pruned, at a stage without its end, or at a change that records more than content and attributes. Other
 * changes of the tree may run concurrently. After a crash at any point, the log is the old or the new one, and the next
 * call frees what is left.
 *
 * 0; -ECANCELED: stop was requested, or another thread waits to prune; -EAGAIN: the log is written too fast;
 * -EBADMSG: it is damaged, and is left as it is; or -errno.
 */
int wb_thin_log(struct wb_store *store, struct wb_object object, struct wb_thin *thin);
