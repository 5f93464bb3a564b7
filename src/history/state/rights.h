/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * When the rights of an object may have changed, as one log has it. Read from the newest record back; the result is
 * kept, and the next time only the records are read that were appended since.
 */

#include "history/history.h"
#include <glib.h>
#include <stdatomic.h>

/* A log in which the rights of `about` are recorded: of a file, the catalog of its directory or its undo log. */
struct wb_rights_place {
    struct wb_object log, about;
    enum wb_object_file file;
};

struct wb_rights {
    atomic_uint references;
    struct wb_rights_place place;
    GArray *whens; /* int64_t, newest first */
    bool cut;      /* there are older ones */

    /* A record from which the next reading goes on, and how many of `whens` are not older than it. */
    struct wb_object identity; /* of the log's file; WB_OBJECT_NONE: the next reading begins anew */
    uint64_t offset;
    int64_t change;
    guint newer;
};

/* Those up to now, to be unreferenced. 0 or -errno. Too many are harmless, too few are not. */
int wb_rights_of(struct wb_history *history, const struct wb_rights_place *place, struct wb_rights **ret);
struct wb_rights *wb_rights_unref(struct wb_rights *rights);

guint wb_rights_place_hash(const void *place);
gboolean wb_rights_place_equal(const void *a, const void *b);

struct wb_rights_cache *wb_rights_cache_new(void);
struct wb_rights_cache *wb_rights_cache_free(struct wb_rights_cache *cache);
