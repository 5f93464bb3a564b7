/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Objects that were changed while nothing was recorded (store/inflight/spans.h): marked, before anything else is
 * recorded of them, by a GAP in their own log. It begins in the first pause of recording since the object was last
 * recorded or made, or all of the tree was looked at: an earlier change by others does not show in the ctime of a later
 * one. From then to that GAP nothing is known of the object; its records hold for earlier moments; its state now is
 * a new beginning.
 */

#include "capture/capture.h"

/*
 * A file whose slot of `stages` may have been lost in a power cut (inflight/lost_slots.h) gets a GAP of the reason
 * power, from the moment up to which all slots were on the disk.
 */

/*
 * `ctime`: of the object, as it is now. `as_dir`: set if it is a directory; its parents need not have
 * catalogs. Costs a comparison if nobody else changed the object, and a look at the end of its log
 * if it was marked already. `via`: a name of an object other than a directory, or NULL; the directory has a catalog.
 * 1: marked by this call as changed by others, 0: it was not, or -errno.
 */
int wb_capture_unseen(struct wb_store *store, struct wb_object object, struct wb_dir *as_dir, const struct wb_via *via,
                      int64_t ctime);

/*
 * The same, of an object other than a directory. If it is to be marked, its directory gets a catalog: only that shows
 * in a copy of the tree which directory the name is in.
 */
int wb_capture_unseen_entry(struct wb_store *store, struct wb_object object, struct wb_dir *parent, const char *name,
                            int64_t ctime);

/* The same, of a file whose content is about to change. */
int wb_capture_unseen_target(struct wb_store *store, const struct wb_target *target, int64_t ctime);

/* A power cut took what was recorded of a file after `since`: a GAP of that reason, up to now. 0 or -errno. */
int wb_capture_lost_records(struct wb_store *store, struct wb_object object, int64_t since);

/* A deleted file, opened as `fd`, that may have lost content in a power cut (inflight/lost_content.h). 0 or -errno. */
int wb_capture_lost_content(struct wb_store *store, struct wb_object object, int fd);
