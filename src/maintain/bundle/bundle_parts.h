/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files that pack what a directory lost share. */

#include "maintain/bundle/bundle.h"
#include "maintain/rewrite/compact.h"

struct wb_bundle_work {
    struct wb_compact *compact;
    struct wb_bundle_gather *gather;
    struct wb_bundle_batch *batch;
    unsigned turn; /* wb_store.rewrites when it was gathered */
};

static inline struct wb_bundle_chain *wb_bundle_chain_at(const struct wb_bundle_work *work, guint i)
{
    return work->gather->chains->pdata[i];
}

static inline const struct wb_bundle_body *wb_bundle_body_at(const struct wb_bundle_chain *chain, guint i)
{
    return &g_array_index(chain->bodies, struct wb_bundle_body, i);
}

static inline enum wb_compact_mode wb_bundle_mode_of(const struct wb_bundle_work *work,
                                                     const struct wb_bundle_chain *chain)
{
    const struct wb_compact *compact = work->compact;

    return compact->mode ? compact->mode(compact->mode_data, work->gather->dir, chain->name) : WB_MODE_DELTA_ZSTD;
}

/* Whether somebody else wants to write logs anew, or did since it was gathered, or it is to end. */
bool wb_bundle_is_wanted(void *work);

/* Writes bundles of the fresh bodies, and adds them to the batch. 0 or -errno. */
int wb_bundle_pack(struct wb_bundle_work *work);
