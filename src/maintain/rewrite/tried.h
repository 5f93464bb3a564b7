/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What was packed to no avail: to do it again and again would only cost. A log is there by how long it was, and has its
 * turn again once it is longer; a deleted file does not change. It is forgotten where there is too much of it, and with
 * the process. For one thread.
 */

#include "format/object_key.h"
#include <glib.h>
#include <stdbool.h>

GHashTable *wb_tried_new(void);

/* Without a table (NULL) nothing was tried, and nothing is noted. `length` is 0 of deleted files. */
bool wb_tried_has(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length);
void wb_tried_note(GHashTable *tried, struct wb_object object, enum wb_object_file file, uint64_t length);
