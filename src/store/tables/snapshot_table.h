/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What snapshots.c (changes) and snapshots_read.c (reading the log) share. */

#include "store/tables/snapshots.h"
#include <sys/stat.h>

struct wb_snapshot_table {
    pthread_mutex_t lock;
    struct wb_log *log;         /* for appending; NULL: not opened yet */
    struct wb_snapshots *known; /* as of `seen`; NULL: not read yet    */
    struct stat seen;           /* the file that was read; st_nlink 0: there was none */
};

/* With the lock held: table->known is what the log says now. 0 or -errno. */
int wb_snapshot_table_refresh(struct wb_store *store);

/* The record of a snapshot with its payload (g_free): 0, WB_ABSENT where it has none any more, -EIO, -errno. */
int wb_snapshot_payload(struct wb_store *store, const struct wb_snapshot *snapshot, char **ret,
                        size_t *ret_length);
