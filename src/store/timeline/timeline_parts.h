/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Internal declarations of the timeline. */

#include "store/parts.h"
#include "store/timeline/timeline.h"
#include <glib.h>

/* ---- arrays of entries in a file (timeline_array.c) ------------------------------------------- */

struct wb_array {
    int fd; /* -1: none */
    uint64_t count;
    int64_t last; /* `when` of the last entry, 0 if there is none */
};
#define WB_ARRAY_INIT {.fd = -1}

/* Opens dir_fd/name. -EBADMSG if it is not an array, or its last entry is damaged; -ENOENT. */
int wb_array_open(struct wb_array *array, int dir_fd, const char *name, bool write);

/* Creates an empty one: dir_fd/name, which is replaced if it exists, or, with name NULL, one without a name. */
int wb_array_create(struct wb_array *array, int dir_fd, const char *name);
void wb_array_close(struct wb_array *array);

/* Appends in one write, all or nothing. */
int wb_array_append(struct wb_array *array, const struct wb_times_entry *entries, size_t count);
int wb_array_cut(struct wb_array *array, uint64_t count, int64_t last);
int wb_array_read(int fd, uint64_t index, struct wb_times_entry *entries, size_t count);

/* ---- entries in order (timeline_sort.c) -------------------------------------------------------- */

/* Any number of entries: a bounded number in memory, the others in a temporary file. */
struct wb_sorter {
    struct wb_ranked *buffer;
    size_t used;
    int fd;
    GArray *runs; /* struct wb_run */
    uint64_t written;
    size_t next; /* of `buffer`, if nothing was written to the file */
    bool by_object; /* several objects with the same `when` have an entry each; else only one of them */
    int64_t last;
    struct wb_object last_object;
};

struct wb_ranked {
    struct wb_times_entry entry;
    uint8_t rank; /* the record of lowest rank becomes the entry of a change */
};

void wb_sorter_init(struct wb_sorter *sorter, bool by_object);
void wb_sorter_deinit(struct wb_sorter *sorter);
int wb_sorter_add(struct wb_sorter *sorter, const struct wb_times_entry *entry, unsigned rank);
int wb_sorter_finish(struct wb_sorter *sorter);
/* The next entry, ascending; each change once. 0, WB_END or -errno. */
int wb_sorter_next(struct wb_sorter *sorter, struct wb_times_entry *ret);

/* A file without a name, which is freed when it is closed. */
int wb_timeline_temporary(int dir_fd);

/* ---- entries from logs (timeline.c) ------------------------------------------------------ */

struct wb_gathering {
    struct wb_store *store;
    struct wb_sorter times, moves;
    int64_t after, moves_after; /* only records after these         */
    int64_t horizon;            /* and before this                  */
    const int64_t *failed;      /* `when` of changes to ignore, for readers */
    unsigned failed_count;
};

/* ---- the timeline -------------------------------------------------------------------------------- */

struct wb_logid {
    struct wb_object object;
    enum wb_object_file file;
};

struct wb_timeline {
    pthread_mutex_t pass_lock; /* one pass at a time; before `lock` */
    pthread_mutex_t lock;      /* protects all fields below; held briefly */
    wb_log_opener *open_log;
    int dir_fd;                /* `timeline`, -1: could not be created */
    struct wb_array times, moves, pending;
    GHashTable *logs;          /* struct wb_logid: appended to since the last pass */
    GHashTable *dropped;       /* replaced or removed since then */
    _Atomic uint64_t pass;     /* raised when the logs are taken */
    bool rebuild;              /* the present one is missing or invalid */
    bool overflow;             /* more logs than can be remembered */
    atomic_bool stop;
    atomic_uint permille;      /* of a rebuild */
    atomic_int failed;         /* -errno of the last rebuild; 0: it succeeded, or none has ended yet */
    off_t seen[2];             /* a reader: the sizes of the arrays from which it was made */
    bool prepared;
};

static inline bool wb_logids_have(GHashTable *logs, struct wb_object object, enum wb_object_file file)
{
    struct wb_logid id = {object, file};

    return g_hash_table_contains(logs, &id);
}

/* ---- for readers (timeline.c) -------------------------------------------------------------- */
