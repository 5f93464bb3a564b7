/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What names were bound to at ever earlier moments. A look-up at one moment reads the catalog from its end back to that
 * moment; a walk back along a path asks for as many moments as there were changes on the way, and would read
 * the same records again for each. Here each catalog is read once for each name, however many moments are asked for.
 *
 * The answers are those of wb_revision_child and wb_lookback_change, which are asked wherever the records alone do not
 * give them: for moments too new to be settled, for a moment later than one that was asked for before, and for
 * catalogs with gaps or damage. For one thread at a time; as current as the catalogs were when they were first read.
 */

#include "history/history.h"

struct wb_bindings;

/* NULL: out of memory. */
struct wb_bindings *wb_bindings_new(struct wb_history *history);
struct wb_bindings *wb_bindings_free(struct wb_bindings *bindings);

/* Closes the catalogs; they are read again when they are asked for. */
void wb_bindings_rest(struct wb_bindings *bindings);

/* The entry of `dir` at the moment of `dir`, as wb_revision_child. 0, WB_ABSENT or -errno. */
int wb_bindings_child(struct wb_bindings *bindings, struct wb_revision *dir, const char *name,
                      struct wb_revision **ret);

/* The newest change of dir/name at or before the moment of `dir`, as wb_lookback_change. 0, WB_ABSENT or -errno. */
int wb_bindings_change(struct wb_bindings *bindings, struct wb_revision *dir, const char *name, int64_t *ret);

/* Whether it is certain that dir/name was bound to nothing at the moment of `dir`, nor ever before. */
bool wb_bindings_never_was(struct wb_bindings *bindings, struct wb_revision *dir, const char *name);
