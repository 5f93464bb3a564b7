/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of snapshots, and changes of it: one more record for each, on stable storage when the
 * function returns.
 */
#include "store/tables/snapshots.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log_scan.h"
#include "store/parts.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct wb_snapshot_table {
    pthread_mutex_t lock;
    struct wb_log *log;         /* for appending; NULL: not opened yet */
    struct wb_snapshots *known; /* as of `seen`; NULL: not read yet    */
    struct stat seen;           /* the file that was read; st_nlink 0: there was none */
};

/*
 * From the log to the table. The log is short (a record for each snapshot that was made, renamed or deleted) and is
 * read as a whole, front to back, when its file is another or has grown; else a look costs one stat.
 */

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
    const struct wb_rec_snapshot *fields = &record->snapshot;
    struct wb_snapshot *snapshot = g_try_malloc0(sizeof(*snapshot) + strings_of(fields));
    char *at = (char *)(snapshot + 1);

    if (!snapshot)
        return NULL;
    snapshot->when = fields->moment;
    snapshot->scope = fields->scope;
    snapshot->uid = fields->uid;
    snapshot->automatic = fields->automatic;
    snapshot->offset = record->offset;
    snapshot->name = put_string(&at, fields->name, fields->name_length);
    snapshot->text = put_string(&at, fields->text, fields->text_length);
    snapshot->path = put_string(&at, fields->path, fields->path_length);
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
    const struct wb_rec_snapshot *fields = &record->snapshot;
    struct wb_snapshot *old = g_hash_table_lookup(reading->found, &fields->moment);
    struct wb_snapshot *snapshot;

    if (old) {
        reading->bytes -= bytes_of(old);
        g_hash_table_remove(reading->found, &fields->moment);
    }
    /* Nobody writes more than there may be; a log that was forged does not fill the memory. */
    if (!fields->present || g_hash_table_size(reading->found) >= WB_SNAPSHOTS_MAX ||
        reading->bytes + strings_of(fields) > WB_SNAPSHOTS_BYTES_MAX)
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
        /* A damaged record loses its own statement, and nothing else. */
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

/* With the lock held: table->known is what the log says now. 0 or -errno. */
static int snapshot_table_refresh(struct wb_store *store)
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

/* The record of a snapshot with its payload (g_free): 0, WB_ABSENT where it has none any more, -EIO, -errno. */
static int snapshot_payload(struct wb_store *store, const struct wb_snapshot *snapshot, char **ret, size_t *ret_length)
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

_Static_assert(WB_SNAPSHOT_NAME_MAX < WB_NAME_MAX, "a name fits into a record");
_Static_assert(WB_SNAPSHOT_TEXT_BYTES == WB_SNAPSHOT_TEXT_MAX, "tools know how long a text may be");

/* Room for the "/N" behind the last path. */
#define MORE_MAX 24

/* ---- the table ------------------------------------------------------------------------------- */

/* Opens the log for appending; the clock goes on above all it has. */
static int open_log(struct wb_store *store, bool create)
{
    struct wb_snapshot_table *table = store->snapshots;
    int r;

    if (table->log)
        return 0;
    r = wb_log_open(&table->log, store->dir_fd, WB_SNAPSHOTS_NAME, create);
    if (r == 0)
        wb_inflight_raise(store->inflight, table->log->last_when);
    return r == -ENOENT && !create ? 0 : r;
}

int wb_snapshot_table_open(struct wb_store *store)
{
    struct wb_snapshot_table *table = g_try_new0(struct wb_snapshot_table, 1);

    if (!table)
        return -ENOMEM;
    pthread_mutex_init(&table->lock, NULL);
    store->snapshots = table;
    return store->writable ? open_log(store, false) : 0;
}

struct wb_snapshot_table *wb_snapshot_table_free(struct wb_snapshot_table *table)
{
    if (!table)
        return NULL;
    wb_log_free(table->log);
    wb_snapshots_unref(table->known);
    pthread_mutex_destroy(&table->lock);
    g_free(table);
    return NULL;
}

static struct wb_snapshots *snapshots_ref(struct wb_snapshots *snapshots)
{
    atomic_fetch_add_explicit(&snapshots->references, 1, memory_order_relaxed);
    return snapshots;
}

struct wb_snapshots *wb_snapshots_unref(struct wb_snapshots *snapshots)
{
    if (snapshots && atomic_fetch_sub_explicit(&snapshots->references, 1, memory_order_acq_rel) == 1)
        g_free(snapshots);
    return NULL;
}

int wb_snapshots_get(struct wb_store *store, struct wb_snapshots **ret)
{
    struct wb_snapshot_table *table = store->snapshots;
    int r;

    pthread_mutex_lock(&table->lock);
    r = snapshot_table_refresh(store);
    if (r == 0)
        *ret = snapshots_ref(table->known);
    pthread_mutex_unlock(&table->lock);
    return r;
}

bool wb_snapshot_is_keepers(const struct wb_snapshot *snapshot)
{
    return snapshot->automatic || snapshot->uid == 0 || snapshot->uid == geteuid();
}

const struct wb_snapshot *wb_snapshots_find(const struct wb_snapshots *snapshots, const char *name, unsigned nth)
{
    size_t low = 0, high = snapshots->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(snapshots->by_name[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    low += nth;
    return low < snapshots->count && strcmp(snapshots->by_name[low]->name, name) == 0 ? snapshots->by_name[low] : NULL;
}

bool wb_snapshots_is_taken(const struct wb_snapshots *snapshots, const struct wb_snapshot *wanted,
                           const struct wb_snapshot *but)
{
    const struct wb_snapshot *other;

    for (unsigned nth = 0; (other = wb_snapshots_find(snapshots, wanted->name, nth)); nth++)
        if (other != but && (wb_snapshot_is_keepers(other) || other->uid == wanted->uid))
            return true;
    return false;
}

static int compare_when(const void *key, const void *element)
{
    int64_t when = *(const int64_t *)key, other = ((const struct wb_snapshot *)element)->when;

    return when < other ? -1 : when > other;
}

const struct wb_snapshot *wb_snapshots_at(const struct wb_snapshots *snapshots, int64_t when)
{
    return snapshots->count == 0 ? NULL
                                 : bsearch(&when, snapshots->list, snapshots->count,
                                           sizeof(snapshots->list[0]), compare_when);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* With the table's lock held: one more record. `when` of the record is given out here. */
static int append(struct wb_store *store, const struct wb_snapshot *snapshot, bool present,
                  const void *payload, size_t length)
{
    struct wb_log *log = store->snapshots->log;
    struct iovec piece = {.iov_base = (void *)payload, .iov_len = length};
    struct wb_record record = {
        .type = WB_REC_SNAPSHOT,
        .snapshot = {
            .moment = snapshot->when,
            .scope = snapshot->scope,
            .uid = snapshot->uid,
            .present = present,
            .automatic = snapshot->automatic,
            .name = snapshot->name,
            .name_length = (uint8_t)strlen(snapshot->name),
            .text = snapshot->text,
            .text_length = (uint16_t)strlen(snapshot->text),
            .path = snapshot->path,
            .path_length = (uint16_t)strlen(snapshot->path),
        },
    };
    int r;

    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    r = wb_log_append_locked(log, &record, &piece, length > 0 ? 1 : 0);
    pthread_mutex_unlock(&log->lock);
    return r;
}

static int append_durably(struct wb_store *store, const struct wb_snapshot *snapshot, bool present,
                          const void *payload, size_t length)
{
    int r = append(store, snapshot, present, payload, length);

    return r < 0 ? r : wb_log_sync(store->snapshots->log, store->dir_fd, WB_SNAPSHOTS_NAME);
}

/* With the lock held: ready for a change. */
static int prepare(struct wb_store *store)
{
    int r;

    if (!store->writable)
        return -EROFS;
    r = open_log(store, true);
    return r < 0 ? r : snapshot_table_refresh(store);
}

/* The payload: as many of the paths as it holds, and how many more there are. */
static GByteArray *join(const char *const *paths)
{
    GByteArray *joined = g_byte_array_new();
    size_t more = 0;

    for (; paths && *paths; paths++) {
        size_t length = strlen(*paths) + 1;

        if (joined->len + length <= WB_PAYLOAD_MAX - MORE_MAX && more == 0)
            g_byte_array_append(joined, (const guint8 *)*paths, (guint)length);
        else
            more++;
    }
    if (more > 0) {
        char text[MORE_MAX];
        int length = snprintf(text, sizeof(text), "/%zu", more);

        g_byte_array_append(joined, (const guint8 *)text, (guint)length + 1);
    }
    return joined;
}

bool wb_snapshots_are_all(const struct wb_snapshots *known)
{
    size_t bytes = 0;

    for (size_t i = 0; i < known->count; i++)
        bytes += strlen(known->list[i].name) + strlen(known->list[i].text) + strlen(known->list[i].path) + 3;
    return known->count >= WB_SNAPSHOTS_MAX ||
           bytes + WB_NAME_MAX + WB_SNAPSHOT_TEXT_MAX + WB_SNAPSHOT_PATH_MAX > WB_SNAPSHOTS_BYTES_MAX;
}

/* With the lock held: whether the table has room for it. */
static int check_new(const struct wb_snapshots *known, const struct wb_snapshot *snapshot)
{
    if (wb_snapshots_is_taken(known, snapshot, NULL) || wb_snapshots_at(known, snapshot->when))
        return -EEXIST;
    return wb_snapshots_are_all(known) ? -ENOSPC : 0;
}

int wb_snapshots_add(struct wb_store *store, const struct wb_snapshot *snapshot,
                     const char *const *open_files)
{
    g_autoptr(GByteArray) payload = NULL;
    int r = wb_snapshot_name_check(snapshot->name, NULL);

    if (r < 0)
        return r;
    if (strlen(snapshot->text) > WB_SNAPSHOT_TEXT_MAX || strlen(snapshot->path) > WB_SNAPSHOT_PATH_MAX)
        return -EINVAL;
    payload = join(open_files);
    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    if (r == 0)
        r = check_new(store->snapshots->known, snapshot);
    if (r == 0) {
        r = append_durably(store, snapshot, true, payload->data, payload->len);
        /* A caller that gets an error must not find the snapshot later. */
        if (r < 0)
            append(store, snapshot, false, NULL, 0);
    }
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

int wb_snapshots_rename(struct wb_store *store, int64_t when, const char *name)
{
    const struct wb_snapshot *old;
    g_autofree char *payload = NULL;
    struct wb_snapshot renamed = {0};
    size_t length = 0;
    int r = wb_snapshot_name_check(name, NULL);

    if (r < 0)
        return r;
    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    old = r == 0 ? wb_snapshots_at(store->snapshots->known, when) : NULL;
    if (r == 0 && !old)
        r = WB_ABSENT;
    if (r == 0) {
        renamed = *old;
        renamed.name = name;
        if (wb_snapshots_is_taken(store->snapshots->known, &renamed, old))
            r = -EEXIST;
    }
    if (r == 0 && strcmp(old->name, name) != 0) {
        /* The record that counts has the list of open files, too. Where that is damaged it is lost already. */
        r = snapshot_payload(store, old, &payload, &length);
        if (r == 0 || r == -EIO) {
            r = append_durably(store, &renamed, true, payload, length);
        }
    }
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

int wb_snapshots_delete(struct wb_store *store, int64_t when)
{
    const struct wb_snapshot *old;
    int r;

    pthread_mutex_lock(&store->snapshots->lock);
    r = prepare(store);
    old = r == 0 ? wb_snapshots_at(store->snapshots->known, when) : NULL;
    if (old)
        r = append_durably(store, old, false, NULL, 0);
    else if (r == 0)
        r = WB_ABSENT;
    pthread_mutex_unlock(&store->snapshots->lock);
    return r;
}

/* ---- what was open --------------------------------------------------------------------------- */

int wb_snapshots_open_files(struct wb_store *store, int64_t when, char ***ret, uint64_t *ret_more)
{
    g_autoptr(GPtrArray) paths = g_ptr_array_new_with_free_func(g_free);
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    const struct wb_snapshot *snapshot;
    g_autofree char *payload = NULL;
    size_t length = 0;
    int r = wb_snapshots_get(store, &all);

    if (r < 0)
        return r;
    snapshot = wb_snapshots_at(all, when);
    r = snapshot ? snapshot_payload(store, snapshot, &payload, &length) : WB_ABSENT;
    if (r != 0)
        return r;
    *ret_more = 0;
    for (size_t at = 0; at < length; at += strlen(payload + at) + 1) {
        if (payload[at] == '/')
            *ret_more = g_ascii_strtoull(payload + at + 1, NULL, 10);
        else if (payload[at])
            g_ptr_array_add(paths, g_strdup(payload + at));
    }
    g_ptr_array_add(paths, NULL);
    *ret = (char **)g_ptr_array_free(g_steal_pointer(&paths), FALSE);
    return 0;
}

/*
 * Which names a snapshot may have. They stand where times do, in FILE@NAME and in options, and are
 * entries of a directory: so none may be taken for a time, an option, a hidden file or a path.
 */

static bool has_controls(const char *name)
{
    for (; *name; name = g_utf8_next_char(name)) {
        switch (g_unichar_type(g_utf8_get_char(name))) {
        case G_UNICODE_CONTROL:
        case G_UNICODE_LINE_SEPARATOR:
        case G_UNICODE_PARAGRAPH_SEPARATOR:
            return true;
        default:
            break;
        }
    }
    return false;
}

static bool reads_as_time(const char *name)
{
    int64_t now = wb_when_now();
    struct wb_time time;

    /* Digits alone are seconds since the epoch to people, too many of them or not. */
    return wb_time_parse(name, now, &time) == 0 || wb_time_parse_words(name, now, &time) == 0 ||
           strspn(name, "0123456789.") == strlen(name);
}

int wb_snapshot_name_check(const char *name, struct wb_error *why)
{
    size_t length = strlen(name);

    if (length == 0)
        return wb_error_set(why, -EINVAL, "a name may not be empty");
    if (length > WB_SNAPSHOT_NAME_MAX)
        return wb_error_set(why, -EINVAL, "a name may have %d bytes at most; this one has %zu", WB_SNAPSHOT_NAME_MAX,
                            length);
    if (!g_utf8_validate(name, -1, NULL))
        return wb_error_set(why, -EINVAL, "a name must be UTF-8");
    if (has_controls(name))
        return wb_error_set(why, -EINVAL, "a name must be one line without control characters");
    if (strchr(name, '/'))
        return wb_error_set(why, -EINVAL, "a name must not contain '/': it is one part of a path");
    if (strchr(name, '@'))
        return wb_error_set(why, -EINVAL, "a name must not contain '@': it follows one in FILE@NAME");
    if (strchr("-.~", name[0]))
        return wb_error_set(why, -EINVAL, "a name may not begin with '%c': it would be taken for %s", name[0],
                            name[0] == '-'   ? "an option"
                            : name[0] == '.' ? "a hidden file"
                                             : "a count of changes");
    if (strchr(" \t", name[0]) || strchr(" \t", name[length - 1]))
        return wb_error_set(why, -EINVAL, "a name may not begin or end with a blank");
    if (reads_as_time(name))
        return wb_error_set(why, -EINVAL,
                            "a name must not be a time: FILE@%.40s already means a time; put a word before it", name);
    return 0;
}
