/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Opens and closes a history: the caches that make looking back fast belong to it. */
#include "history/internal.h"

#include "history/resolve/departures.h"
#include "history/state/rights.h"
#include "wayback/at_name.h"
#include <errno.h>

int wb_history_open(struct wb_history **ret, struct wb_store *store)
{
    struct wb_history *history = g_try_new0(struct wb_history, 1);

    if (!history)
        return -ENOMEM;
    history->store = store;
    history->at_sign = WB_AT_SIGN;
    history->listings = wb_listing_cache_new();
    history->departures = wb_departures_cache_new();
    history->rights = wb_rights_cache_new();
    history->dirfd_cache = wb_dirfd_cache_new();
    *ret = history;
    return 0;
}

struct wb_history *wb_history_free(struct wb_history *history)
{
    if (history) {
        wb_listing_cache_free(history->listings);
        wb_departures_cache_free(history->departures);
        wb_rights_cache_free(history->rights);
        wb_dirfd_cache_free(history->dirfd_cache);
    }
    g_free(history);
    return NULL;
}

void wb_history_set_at_sign(struct wb_history *history, char mark)
{
    history->at_sign = mark;
}
