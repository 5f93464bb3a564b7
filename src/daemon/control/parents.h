/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The first places of directories, as their catalogs begin. A list of changes climbs from many directories to the root,
 * and their ways have much in common. Thread-safe.
 *
 * `generation` of the past (wb_pages_generation): another one, and all is forgotten, because history was deleted.
 */

#include "daemon/core/session.h"

struct wb_parents;

/* NULL, also below, if memory is short: nothing is kept then. */
struct wb_parents *wb_parents_new(void);
struct wb_parents *wb_parents_free(struct wb_parents *parents);

/* `generation`: of before the place was read. */
void wb_parents_keep(struct wb_parents *parents, uint64_t generation, struct wb_object dir, struct wb_object parent,
                     const char *name);
bool wb_parents_find(struct wb_parents *parents, uint64_t generation, struct wb_object dir,
                     struct wb_object *ret_parent, char ret_name[WB_NAME_MAX + 1]);
