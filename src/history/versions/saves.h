/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Versions as people count them. A version is a save: all that one process did to a file from open to close, or
 * without a pause of two seconds, whichever ends first. Changes of attributes alone are none. In the list of a
 * directory, each change of its entries is a version by itself.
 *
 * The records say where a process began to change a file (WB_RECORD_BEGINS; not before version 12 of the format), but
 * not where it ended: so a version is found from its end, which is met first, back to its beginning. Whether an older
 * change belongs to the same version depends on these two changes alone. So numbers do not depend on where a list
 * begins, and new changes shift them by their own number.
 *
 * A save that replaces the file belongs together as well: cut to nothing and written, made under another name and
 * renamed, moved away or removed and made anew.
 */

#include "history/history.h"

/* Numbers `version`, the next older change after `mark` (save 0: the newest one); `mark` is moved on to it. */
void wb_save_number(struct wb_store *store, struct wb_save_mark *mark, struct wb_version *version);
