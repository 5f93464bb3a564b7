/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* How the logs come into the manifest (store/tables/manifest.h): those appended to, and those that have no entry. */

#include "store/store.h"

/* How many logs wb_manifest_logs_complete opens in one call of the background thread. */
#define WB_MANIFEST_BUDGET 4096u

/* For all appended records: call before everything is brought to stable storage, and wb_manifest_write after it. */
void wb_manifest_logs_capture(struct wb_store *store);

/* Opens up to `budget` logs that have no entry, so that the next capture lists them. Returns how many. */
unsigned wb_manifest_logs_complete(struct wb_store *store, unsigned budget);
