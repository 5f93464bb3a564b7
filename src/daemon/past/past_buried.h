/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Who may reach an object that was removed. No path leads to it, so its own mode alone would open what a private
 * directory closed: the directory that lost it stands in for a path, as it was then and as it is now.
 *
 * Finding that directory reads catalogs, so the last answers are kept.
 */

#include "daemon/core/session.h"

struct wb_buried_cache;

struct wb_buried_cache *wb_buried_cache_new(void);
struct wb_buried_cache *wb_buried_cache_free(struct wb_buried_cache *cache);
