/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The names of each object of a copy: lists, of which the object knows the place of the first one (0: it has none). A
 * file may have very many: neither adding nor removing goes through all of them.
 */

#include "format/format.h"
#include "transfer/wire/scratch.h"
#include "transfer/wire/table.h"

struct wb_copy_name {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
};

struct wb_copy_names {
    struct wb_scratch entries;
    struct wb_table removed; /* what is still in a list, and is no more than passed over */
};

int wb_copy_names_init(struct wb_copy_names *names, int dir_fd);
void wb_copy_names_deinit(struct wb_copy_names *names);

/* The one at `at`, which is not 0. All return 0 or -errno. */
int wb_copy_names_get(const struct wb_copy_names *names, uint64_t at, struct wb_copy_name *ret);
/* Where the one behind it is; 0: it is the last. */
int wb_copy_names_next(const struct wb_copy_names *names, uint64_t at, uint64_t *ret);
/* *list is the first one of the list, before and after. */
int wb_copy_names_add(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name);
int wb_copy_names_remove(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name);
