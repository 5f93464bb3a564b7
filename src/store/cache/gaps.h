/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Gaps: changes that were made although they could not be recorded (-o onfull=continue).
 *
 * Before such a change is permitted, a place in the file `gaps`, which was allocated beforehand, records whose log is
 * incomplete from now on; if even that write fails, the change is refused. As soon as the store accepts records again,
 * a GAP record in that log replaces the place, which becomes free. So neither a kill nor a power cut loses a gap, and a
 * reader of history finds it in one place or the other: while it is open, every moment of the past counts as unknown.
 */

#include "store/store.h"

struct wb_gaps;

/* For a store that is opened for writing. `make`: gaps are possible, so the file must exist. 0 or -errno. */
int wb_gaps_open(struct wb_store *store, bool make);
struct wb_gaps *wb_gaps_free(struct wb_gaps *gaps);

/*
 * A change is about to be missing in the log of an object. The gap remains open until the change is over (wb_gap_end).
 * 0; -errno: the change must not be made.
 */
int wb_gap_begin(struct wb_store *store, struct wb_object object, enum wb_object_file file);
void wb_gap_end(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* Turns open gaps into GAP records, as far as that is possible now. The caller holds the lock of no log. */
void wb_gaps_flush(struct wb_store *store);

/*
 * Whether changes are missing in the log of that object without a record that says so. The object of a damaged place is
 * not known, so then the state of every log is unknown. Also works without the lock of the store.
 */
enum wb_gap_state { WB_GAP_NONE, WB_GAP_OPEN, WB_GAP_UNKNOWN };
enum wb_gap_state wb_gap_state(const struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* The number of open gaps. */
unsigned wb_gaps_count(const struct wb_store *store);
