/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which files a directory lost, by its catalog: a row for each name, in the order they were lost in. Left out is what
 * has another name or is in use, since it may change; and what would not be the same when it is written again, because
 * writing takes away the right to run as somebody else.
 */
#include "maintain/bundle/bundle.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

/* So many that are not packed at a time; the others have their turn when it is done again. And so many in all. */
#define FRESH_MAX 16384u
#define BODIES_MAX 65536u

struct work {
    struct wb_bundle_gather *gather;
    GHashTable *by_name; /* of wb_bundle_row */
    GHashTable *seen;    /* objects */
    unsigned fresh, bodies;
};

static void row_free(void *data)
{
    struct wb_bundle_row *row = data;

    g_array_unref(row->bodies);
    g_free(row->name);
    g_free(row);
}

static uint64_t row_id(struct wb_object dir, const char *name)
{
    uint64_t parts[3] = {dir.ino, (uint64_t)dir.birth, wb_checksum(name, strlen(name))};

    return wb_checksum(parts, sizeof(parts));
}

static struct wb_bundle_row *row_of(struct work *work, const char *name)
{
    struct wb_bundle_row *row = g_hash_table_lookup(work->by_name, name);

    if (row)
        return row;
    row = g_new0(struct wb_bundle_row, 1);
    row->name = g_strdup(name);
    row->id = row_id(work->gather->dir, name);
    row->bodies = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_body));
    g_ptr_array_add(work->gather->rows, row);
    g_hash_table_insert(work->by_name, row->name, row);
    return row;
}

static int64_t in_ns(struct timespec time)
{
    return time.tv_sec * WB_WHEN_SECOND + time.tv_nsec;
}

/* Writing takes these away, and so does cutting off; or we may not write. */
static bool has_privileges(const struct wb_store *store, const char *path, const struct stat *st)
{
    _cleanup_close_ int fd = -1;

    if (st->st_mode & (S_ISUID | S_ISGID))
        return true;
    fd = openat(store->grave_fd, path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    /* In doubt it has. */
    return fd < 0 || fgetxattr(fd, "security.capability", NULL, 0) >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
}

/* 1: it counts, 0: not, or -errno. */
static int look_at(struct work *work, struct wb_object object, struct wb_bundle_body *body)
{
    struct wb_bundle_gather *gather = work->gather;
    struct wb_store *store = gather->store;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object found;
    struct stat st, bundle;
    int r;

    wb_object_path(object, WB_FILE_DATA, path);
    if (wb_object_stat(store, store->grave_fd, path, &found, NULL, &st) < 0 || !wb_object_equal(found, object) ||
        !S_ISREG(st.st_mode) || st.st_nlink != 1)
        return 0;
    *body = (struct wb_bundle_body){.mtime = st.st_mtim, .ctime = st.st_ctim, .taken = (uint64_t)st.st_blocks * 512};
    body->member = (struct wb_bundle_member){.object = object,
                                             .size = (uint64_t)st.st_size,
                                             .atime = in_ns(st.st_atim),
                                             .mtime = in_ns(st.st_mtim),
                                             .lost = in_ns(st.st_ctim)};
    r = wb_bundle_stat(store, object, WB_FILE_BUNDLE, &bundle);
    if (r == 0)
        body->bundle = bundle.st_ino;
    if (r <= 0)
        return r < 0 ? r : work->bodies < BODIES_MAX;
    if (st.st_size == 0 || (gather->in_use && gather->in_use(gather->in_use_data, object)) ||
        has_privileges(store, path, &st))
        return 0;
    r = wb_bundle_stat(store, object, WB_FILE_BUNDLE_OLD, &bundle);
    if (r == 0)
        g_hash_table_add(gather->old, g_memdup2(&object, sizeof(object)));
    return r < 0 ? r : 1;
}

static int take_slot(struct work *work, const struct wb_slot *slot)
{
    char name[WB_NAME_MAX + 1];
    struct wb_bundle_body body;
    struct wb_bundle_row *row;
    int r;

    if (!slot->present || slot->fate != WB_FATE_KEPT || !S_ISREG(slot->attrs.mode) ||
        g_hash_table_contains(work->seen, &slot->object))
        return 0;
    if (work->gather->taken && g_hash_table_contains(work->gather->taken, &slot->object))
        return 0;
    memcpy(name, slot->name, slot->name_length);
    name[slot->name_length] = '\0';
    if (work->gather->only && strcmp(name, work->gather->only) != 0)
        return 0;
    r = look_at(work, slot->object, &body);
    if (r <= 0)
        return r;
    row = row_of(work, name);
    body.member.row = row->id;
    row->fresh += body.bundle == 0;
    work->fresh += body.bundle == 0;
    work->bodies++;
    g_array_append_val(row->bodies, body);
    g_hash_table_add(work->seen, g_memdup2(&slot->object, sizeof(slot->object)));
    return 0;
}

static int read_catalog(struct work *work)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    int r = wb_object_log_open(&log, work->gather->store, work->gather->dir, WB_FILE_CATALOG);

    if (r <= 0)
        return r;
    wb_log_reader_seek(&log.reader, 0);
    /* Damage costs what it tells, not the others. */
    while (((r = wb_log_reader_next(&log.reader, &record)) == 0 || r == WB_DAMAGED) && work->fresh < FRESH_MAX) {
        if (r == WB_DAMAGED || record.type != WB_REC_NAME)
            continue;
        if (record.when >= work->gather->before)
            break;
        for (uint32_t i = 0, error = 0; i < record.name.count && !error; i++) {
            r = take_slot(work, &record.name.slots[i]);
            error = r < 0;
        }
        if (r < 0)
            break;
    }
    return r < 0 ? r : 0;
}

static gint compare_rows(gconstpointer a, gconstpointer b)
{
    const struct wb_bundle_row *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

int wb_bundle_gather(struct wb_bundle_gather *gather)
{
    struct work work = {.gather = gather};
    int r;

    gather->rows = g_ptr_array_new_with_free_func(row_free);
    gather->old = wb_bundle_objects_new();
    if (gather->store->grave_fd < 0)
        return 0;
    work.by_name = g_hash_table_new(g_str_hash, g_str_equal);
    work.seen = wb_bundle_objects_new();
    r = read_catalog(&work);
    g_ptr_array_sort(gather->rows, compare_rows);
    g_hash_table_unref(work.by_name);
    g_hash_table_unref(work.seen);
    return r;
}

void wb_bundle_gather_deinit(struct wb_bundle_gather *gather)
{
    g_clear_pointer(&gather->rows, g_ptr_array_unref);
    g_clear_pointer(&gather->old, g_hash_table_unref);
}
