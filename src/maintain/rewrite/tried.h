/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Remembers files whose packing saved nothing, since to try again would waste time. A log is noted with its length, and
 * is tried again once it is longer; a deleted file does not change. The table is emptied when it is full, and ends with
 * the process. For one thread.
 */

#include "format/object_key.h"
#include <glib.h>
#include <stdbool.h>

GHashTable *wb_tried_new(void);

/* Without a table (NULL) nothing was tried, and nothing is noted. `length` is 0 of deleted files. */
bool wb_tried_has(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length);
void wb_tried_note(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length);
