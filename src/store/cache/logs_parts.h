/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Internals of the cache of open logs, only for logs.c. */

#include "store/parts.h"

#define BUCKETS 2048
#define HINTS 4096

struct log_entry {
    struct log_entry *next; /* the next one in its bucket */
    struct log_entry *older, *newer; /* neighbours in its list */
    uint64_t released; /* if idle: the number of the release that made it idle */
    struct wb_object object;
    enum wb_object_file file;
    struct wb_log *log;
    unsigned users;
    int error;              /* the error of opening it */
    bool opening, detached; /* detached: look-ups do not find it; the last user frees it */
    bool syncing;           /* it was idle, and is in use only by the thread that syncs it */
};

/* In order of insertion. */
struct log_list {
    struct log_entry *oldest, *newest;
    unsigned count;
};

/* Whether a log exists, as far as known. Only this process creates and removes logs, so it remains true. */
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
    unsigned limit;    /* for logs that are idle, or used only by a sync */
    unsigned syncing;  /* how many of them a sync uses */
    uint64_t releases; /* counter of releases */
    uint64_t listed;   /* as `looked`, for the manifest */
    uint64_t looked;   /* all logs idle by this release were examined: those released before have no new records */
    struct wb_closed_logs closed; /* while dirty */
    struct wb_closed_logs overwritten; /* while `overwrites` */
    uint64_t begun, ended; /* rounds */
    pthread_cond_t round;  /* a round has ended */
    uint64_t changes; /* counts logs created or dropped: earlier look-ups may be outdated */
    struct hint hints[HINTS];
};

static inline void wb_closed_logs_add(struct wb_closed_logs *logs, struct wb_object object, enum wb_object_file file)
{
    logs->items[logs->count++] = (struct wb_closed_log){object, file};
}
