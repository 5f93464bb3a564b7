/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The cache of open logs from within; for its own files only (logs.c, logs_taken.c). */

#include "store/parts.h"

#define BUCKETS 2048
#define HINTS 4096

struct log_entry {
    struct log_entry *next; /* in its bucket */
    struct log_entry *older, *newer; /* in its list */
    uint64_t released; /* of an idle one: the number of the release that made it idle */
    struct wb_object object;
    enum wb_object_file file;
    struct wb_log *log;
    unsigned users;
    int error;              /* of opening it */
    bool opening, detached; /* detached: no longer found; the last user lets it go */
    bool syncing;           /* it was idle, and would be but for who gives it to the disk */
};

/* In the order in which they came. */
struct log_list {
    struct log_entry *oldest, *newest;
    unsigned count;
};

/* What is known of a log's existence. Only this process makes and removes logs, so it stays true. */
struct hint {
    struct wb_object object;
    uint8_t file;
    bool known, exists;
    bool checked; /* compared with the manifest */
};

struct wb_log_cache {
    pthread_mutex_t lock;
    struct wb_manifest *manifest; /* NULL: there is none (yet) */
    pthread_cond_t opened;
    struct log_entry *buckets[BUCKETS];
    struct log_list used, idle;
    unsigned limit;    /* of those that are idle, or are given to the disk only */
    unsigned syncing;  /* how many of them are that */
    uint64_t releases; /* numbers them */
    uint64_t listed;   /* as `looked`, for the manifest */
    uint64_t looked;   /* at all that were idle by this release: those released before were appended to no more */
    struct wb_closed_logs closed; /* while dirty */
    struct wb_closed_logs overwritten; /* while `overwrites` */
    uint64_t begun, ended; /* rounds */
    pthread_cond_t round;  /* one has ended */
    uint64_t changes; /* logs made or dropped: what was looked up before may be wrong now */
    struct hint hints[HINTS];
};

/* With `lock` held. One user more, or less: returns what is to be freed without it, linked by `next`. */
void wb_log_entry_use(struct wb_log_cache *cache, struct log_entry *entry);
struct log_entry *wb_log_entry_release(struct wb_log_cache *cache, struct log_entry *entry);
void wb_log_entries_free(struct log_entry *gone);

/* Room for one more; false: there is none. */
bool wb_closed_logs_reserve(struct wb_closed_logs *logs);
static inline void wb_closed_logs_add(struct wb_closed_logs *logs, struct wb_object object, enum wb_object_file file)
{
    logs->items[logs->count++] = (struct wb_closed_log){object, file};
}
