/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Gaps: what was changed although it could not be recorded (-o onfull=continue).
 *
 * Before such a change is let through, a place that was given room beforehand (the file `gaps`) says whose log
 * lacks something from now on; if even that cannot be written, the change is refused. As soon as the store takes
 * records again, a GAP record in that log takes over, and the place is free. So neither a kill nor a power cut makes
 * anybody forget a gap, and whoever looks back finds it in one place or the other: what is open counts as missing for
 * every moment of the past.
 */

#include "store/store.h"

struct wb_gaps;

/* For a store that is written. `make`: gaps may come, so there has to be a file. 0 or -errno. */
int wb_gaps_open(struct wb_store *store, bool make);
struct wb_gaps *wb_gaps_free(struct wb_gaps *gaps);

/*
 * The log of an object is going to lack a change. Until the change is over (wb_gap_end), the gap stays open. 0;
 * -errno: the change must not be made.
 */
int wb_gap_begin(struct wb_store *store, struct wb_object object, enum wb_object_file file);
void wb_gap_end(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* Turns open gaps into GAP records, as far as that is possible now. Without the lock of any log. */
void wb_gaps_settle(struct wb_store *store);

/*
 * Whether the log of that object lacks something that no record of it tells. A damaged place may be anybody's, so then
 * that is not known of any log. Works without the lock as well.
 */
enum wb_gap_state { WB_GAP_NONE, WB_GAP_OPEN, WB_GAP_UNKNOWN };
enum wb_gap_state wb_gap_state(const struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* How many are open. */
unsigned wb_gaps_count(const struct wb_store *store);
