/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the log to the table. The log is short (a record for each snapshot that was made, renamed or deleted) and is
 * read as a whole, front to back, when its file is another or has grown; else a look costs one stat.
 */
#include "store/tables/snapshot_table.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log_scan.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

static const char *const NO_PATHS = "";

/* ---- one record ------------------------------------------------------------------------------ */

/* A snapshot with its strings behind it, in one piece. */
static size_t strings_of(const struct wb_rec_snapshot *record)
{
    return (size_t)record->name_length + record->text_length + record->path_length + 3;
}

static char *put_string(char **at, const char *text, size_t length)
{
    char *string = *at;

    memcpy(string, length > 0 ? text : NO_PATHS, length);
    string[length] = '\0';
    *at += length + 1;
    return string;
}

static struct wb_snapshot *keep(const struct wb_record *record)
{
    const struct wb_rec_snapshot *told = &record->snapshot;
    struct wb_snapshot *snapshot = g_try_malloc0(sizeof(*snapshot) + strings_of(told));
    char *at = (char *)(snapshot + 1);

    if (!snapshot)
        return NULL;
    snapshot->when = told->moment;
    snapshot->scope = told->scope;
    snapshot->uid = told->uid;
    snapshot->automatic = told->automatic;
    snapshot->offset = record->offset;
    snapshot->name = put_string(&at, told->name, told->name_length);
    snapshot->text = put_string(&at, told->text, told->text_length);
    snapshot->path = put_string(&at, told->path, told->path_length);
    return snapshot;
}

static size_t bytes_of(const struct wb_snapshot *snapshot)
{
    return strlen(snapshot->name) + strlen(snapshot->text) + strlen(snapshot->path) + 3;
}

/* ---- all of them ----------------------------------------------------------------------------- */

struct reading {
    GHashTable *found; /* by moment */
    size_t bytes;
};

static int take(struct reading *reading, const struct wb_record *record)
{
    const struct wb_rec_snapshot *told = &record->snapshot;
    struct wb_snapshot *old = g_hash_table_lookup(reading->found, &told->moment);
    struct wb_snapshot *snapshot;

    if (old) {
        reading->bytes -= bytes_of(old);
        g_hash_table_remove(reading->found, &told->moment);
    }
    /* Nobody writes more than there may be; a log that was forged does not fill the memory. */
    if (!told->present || g_hash_table_size(reading->found) >= WB_SNAPSHOTS_MAX ||
        reading->bytes + strings_of(told) > WB_SNAPSHOTS_BYTES_MAX)
        return 0;
    snapshot = keep(record);
    if (!snapshot)
        return -ENOMEM;
    reading->bytes += bytes_of(snapshot);
    g_hash_table_insert(reading->found, &snapshot->when, snapshot);
    return 0;
}

static int read_log(int fd, struct reading *reading)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, 0);
    do {
        r = wb_log_reader_next(&reader, &record);
        if (r == 0 && record.type == WB_REC_SNAPSHOT)
            r = take(reading, &record);
        /* A damaged record costs what it told, and nothing else. */
    } while (r == 0 || r == WB_DAMAGED);
    wb_log_reader_deinit(&reader);
    return r == WB_END ? 0 : r;
}

static int by_when(const void *a, const void *b)
{
    const struct wb_snapshot *left = a, *right = b;

    return left->when < right->when ? -1 : left->when > right->when;
}

static int rank(const struct wb_snapshot *snapshot)
{
    return snapshot->automatic || snapshot->uid == 0 ? 0 : wb_snapshot_is_keepers(snapshot) ? 1 : 2;
}

/* Of its directory below the root, as it was when it was made. */
static int depth(const struct wb_snapshot *snapshot)
{
    int count = *snapshot->path ? 1 : 0;

    for (const char *at = snapshot->path; (at = strchr(at, '/')); at++)
        count++;
    return count;
}

static int by_name(const void *a, const void *b)
{
    const struct wb_snapshot *const *left = a, *const *right = b;
    int r = strcmp((*left)->name, (*right)->name);

    if (r == 0)
        r = rank(*left) - rank(*right);
    if (r == 0)
        r = depth(*right) - depth(*left);
    return r != 0 ? r : by_when(*right, *left);
}

/* The table in one piece: the list, the order of names, the strings. */
static struct wb_snapshots *pack(const struct reading *reading)
{
    size_t count = g_hash_table_size(reading->found), i = 0;
    size_t names = sizeof(struct wb_snapshots) + count * sizeof(struct wb_snapshot);
    size_t strings = names + count * sizeof(struct wb_snapshot *);
    struct wb_snapshots *all = g_try_malloc0(strings + reading->bytes);
    char *at = (char *)all + strings;
    GHashTableIter iter;
    gpointer value;

    if (!all)
        return NULL;
    all->references = 1;
    all->count = count;
    all->by_name = (const struct wb_snapshot **)(void *)((char *)all + names);
    g_hash_table_iter_init(&iter, reading->found);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_snapshot *to = &all->list[i++];

        *to = *(const struct wb_snapshot *)value;
        to->name = put_string(&at, to->name, strlen(to->name));
        to->text = put_string(&at, to->text, strlen(to->text));
        to->path = put_string(&at, to->path, strlen(to->path));
    }
    qsort(all->list, count, sizeof(all->list[0]), by_when);
    for (i = 0; i < count; i++)
        all->by_name[i] = &all->list[i];
    qsort(all->by_name, count, sizeof(all->by_name[0]), by_name);
    return all;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_nlink > 0 && b->st_nlink > 0
               ? a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
                     a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec
               : a->st_nlink == b->st_nlink;
}

int wb_snapshot_table_refresh(struct wb_store *store)
{
    struct wb_snapshot_table *table = store->snapshots;
    _cleanup_close_ int fd = -1;
    struct reading reading = {0};
    struct wb_snapshots *all;
    struct stat st = {0};
    int r = 0;

    if (fstatat(store->dir_fd, WB_SNAPSHOTS_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
        return -errno;
    if (table->known && is_same_file(&st, &table->seen))
        return 0;
    if (st.st_nlink > 0) {
        fd = wb_open_own(store->dir_fd, WB_SNAPSHOTS_NAME, O_RDONLY, 0);
        if (fd < 0)
            return fd;
        if (fstat(fd, &st) < 0)
            return -errno;
    }
    reading.found = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    /* What is appended while it is read is seen now or, `st` being older, the next time. */
    if (fd >= 0)
        r = read_log(fd, &reading);
    all = r == 0 ? pack(&reading) : NULL;
    g_hash_table_unref(reading.found);
    if (!all)
        return r < 0 ? r : -ENOMEM;
    wb_snapshots_unref(table->known);
    table->known = all;
    table->seen = st;
    return 0;
}

int wb_snapshot_payload(struct wb_store *store, const struct wb_snapshot *snapshot, char **ret,
                        size_t *ret_length)
{
    _cleanup_close_ int fd = -1;
    uint8_t data[WB_SCAN_BUFFER];
    g_autofree char *payload = NULL;
    struct wb_record record;
    int r;

    fd = wb_open_own(store->dir_fd, WB_SNAPSHOTS_NAME, O_RDONLY, 0);
    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_log_probe(fd, snapshot->offset, data, &record);
    if (r < 0)
        return r == -EBADMSG ? -EIO : r;
    if (record.type != WB_REC_SNAPSHOT || record.snapshot.moment != snapshot->when)
        return WB_ABSENT;
    payload = g_try_malloc((size_t)record.payload_length + 1);
    if (!payload)
        return -ENOMEM;
    r = wb_log_read_payload(fd, &record, payload);
    if (r < 0)
        return r == -EBADMSG ? -EIO : r;
    payload[record.payload_length] = '\0';
    *ret_length = record.payload_length;
    *ret = g_steal_pointer(&payload);
    return 0;
}
