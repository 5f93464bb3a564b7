/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * vrm --change: deletes single versions of an existing file from the store, for good; all other states stay exact.
 * For the time of an erased version, the state before it is shown (docs/format.md, Trimming).
 *
 * Only records of the undo log may describe what showed between two changes: if a catalog, a stage, a bundle or a
 * snapshot has a part in it, the whole request is refused.
 */

#include "store/store.h"
#include "wayback/control.h"
#include <sys/types.h>

struct wb_erase_versions {
    struct wb_object object;
    int64_t from, until; /* `when`s of two changes of it; what showed between them goes */
    uid_t by;            /* all of it must have been that user's (-EPERM); 0 may all */
    bool dry_run;
    int catalogs; /* a refusal that follows from the catalogs, or 0: filled before */
};

/*
 * Looks into all catalogs, which takes long, beside all changes of the tree: those up to `until` are over, and stages
 * have been ended since. Fills `catalogs`; 0 or -errno.
 */
int wb_erase_versions_look(struct wb_store *store, struct wb_erase_versions *what);

/*
 * The caller blocks changes of the tree, and has ended stages. 0: done, or would be; a positive enum
 * wb_control_refusal: nothing was done; or -errno. After a crash, the log is the old or the new one; the next erasure
 * of this file, of any version, removes cloned blocks to which no record refers any more.
 */
int wb_erase_versions(struct wb_store *store, const struct wb_erase_versions *what,
                      struct wb_control_erased_versions *ret);
