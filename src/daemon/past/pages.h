/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What is kept between the pages of an answer, so that the next page begins where the last one ended and
 * nothing is walked twice. A few are kept, for half a minute; what is gone is made anew by whoever asks
 * on, so nothing depends on it. Thread-safe.
 */

#include "daemon/past/past_node.h"

/* The first member of whatever is kept. */
struct wb_paged {
    int64_t used;        /* monotonic */
    uint64_t generation; /* of the history it was made from (vrm makes a new one) */
    void (*destroy)(struct wb_paged *paged);
};

/* `most`: how many are kept. */
void wb_pages_init(struct wb_pages *pages, unsigned most);

/* Takes one out that is of wanted's generation and goes on as `continues` says, or NULL. The caller's then. */
struct wb_paged *wb_pages_take(struct wb_pages *pages, const struct wb_paged *wanted,
                               bool (*continues)(const struct wb_paged *paged, const struct wb_paged *wanted));

/* Keeps it, until `destroy` frees it; what has not been asked for longest goes where there are too many. */
void wb_pages_keep(struct wb_pages *pages, struct wb_paged *paged, void (*destroy)(struct wb_paged *paged));

/* Forgets all. */
void wb_pages_drop(struct wb_pages *pages);

/* Those of a session (past_node.h): made ready, and forgotten. */
void wb_control_pages_init(struct wb_past *past);
void wb_control_pages_drop(struct wb_past *past);

/* The present generation of the history. */
uint64_t wb_pages_generation(struct wb_past *past);
