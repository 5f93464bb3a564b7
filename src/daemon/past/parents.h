/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The first places of directories, as their catalogs begin: kept between the requests of one list of changes, each of
 * which climbs from many directories to the root. Forgotten whenever history was deleted.
 */

#include "daemon/core/session.h"

struct wb_parents;

/* NULL if memory is short: nothing is kept then. */
struct wb_parents *wb_parents_new(void);
struct wb_parents *wb_parents_free(struct wb_parents *parents);

/* To be taken before a place is read that is to be kept. */
uint64_t wb_parents_generation(struct wb_session *session);
void wb_parents_keep(struct wb_session *session, uint64_t generation, struct wb_object dir, struct wb_object parent,
                     const char *name);
bool wb_parents_find(struct wb_session *session, struct wb_object dir, struct wb_object *ret_parent,
                     char ret_name[WB_NAME_MAX + 1]);
