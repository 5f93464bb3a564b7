/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Lists logs in the manifest (store/tables/manifest.h): those with new records, and those without an entry. */

#include "store/store.h"

/* How many logs one call of wb_manifest_logs_complete opens at most. */
#define WB_MANIFEST_BUDGET 4096u

/* Captures how far logs with new records reach. The caller then brings everything to stable storage, and calls
 * wb_manifest_write. */
void wb_manifest_logs_capture(struct wb_store *store);

/* Opens up to `budget` logs that have no entry or too low a one, so that the next capture lists them. Returns how many
 * it opened. */
unsigned wb_manifest_logs_complete(struct wb_store *store, unsigned budget);
