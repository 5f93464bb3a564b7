/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Thinning: single versions go from the middle of a file's history. Every state that is kept stays exact; in the place
 * of one that went, the one before it shows (docs/format.md, Thinning).
 */

#include "store/store.h"

/*
 * What showed from `from` until just before `until` is not kept. Both are `when`s of changes of this file. Whoever says
 * so knows that
 *  - no catalog tells anything of the file in [from, until]: attributes would be of another moment than the content;
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
 * Drops versions from the undo log of an object. What cannot be dropped safely stays: what lies at a gap, something
 * forgotten, a stage without its end, or a change that tells of more than content and attributes. Beside all other
 * changes of the tree; ended by a crash anywhere, the log is the old or the new one, and the next time frees what is
 * left.
 *
 * 0; -ECANCELED: told to stop, or somebody else has something to forget; -EAGAIN: the log is written too fast;
 * -EBADMSG: it is damaged, and stays as it is; or -errno.
 */
int wb_thin_log(struct wb_store *store, struct wb_object object, struct wb_thin *thin);
