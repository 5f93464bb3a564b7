/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/content/thinned.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* The first of the changes that count together across the moment, and are undone together; 0: there are none. */
static int look_at(int fd, int64_t when, int64_t *ret_first, char name[WB_NAME_MAX + 1])
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    *ret_first = 0;
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) != WB_END && r >= 0) {
        if (r == WB_DAMAGED)
            continue;
        if (record.when <= when)
            break;
        if (!wb_record_is_joined(&record) || record.change > when)
            continue;
        *ret_first = record.change;
        memcpy(name, record.via.name, record.via.length);
        name[record.via.length] = '\0';
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

int wb_thinned_since(int fd, const struct wb_record *name, int64_t *ret)
{
    struct wb_log_reader reader;
    int64_t until = name->when;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    *ret = 0;
    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, name->offset);
    while (until && ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED))
        if (r == 0 && record.type == WB_REC_THINNED && record.thinned.until == until) {
            /* If it continues others, these are searched as well. */
            *ret = record.when;
            until = record.flags & WB_RECORD_THINNED ? record.when : 0;
        }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

/* For names of a directory that show an older file instead of one that is not kept: the changes up to which they do. */
static int look_at_names(int fd, struct wb_object dir, int64_t when, struct wb_thinned *ret)
{
    g_autoptr(GHashTable) ends = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    GHashTableIter iter;
    void *end;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) != WB_END && r >= 0) {
        if (r == WB_DAMAGED)
            continue;
        if (record.when <= when)
            break;
        if (record.type == WB_REC_NAME && record.flags & WB_RECORD_THINNED)
            g_hash_table_add(ends, g_memdup2(&record.when, sizeof(record.when)));
        /* The period began later than that. */
        if (record.type == WB_REC_THINNED && g_hash_table_remove(ends, &record.thinned.until) &&
            record.flags & WB_RECORD_THINNED)
            g_hash_table_add(ends, g_memdup2(&record.when, sizeof(record.when)));
    }
    wb_log_reader_deinit(&reader);
    g_hash_table_iter_init(&iter, ends);
    while (g_hash_table_iter_next(&iter, &end, NULL)) {
        const uint64_t summed[] = {dir.ino, (uint64_t)dir.birth, (uint64_t)*(int64_t *)end, WB_FILE_CATALOG};

        ret->files++;
        ret->sum ^= wb_checksum(summed, sizeof(summed));
    }
    return MIN(r, 0);
}

struct looking {
    int64_t when;
    struct wb_thinned *ret;
};

static int look_into(void *data, int fd, const char *entry)
{
    const struct looking *looking = data;
    struct wb_thinned *ret = looking->ret;
    char name[WB_NAME_MAX + 1];
    struct wb_object object;
    enum wb_object_file file;
    _cleanup_close_ int log = -1;
    int64_t first;
    int r;

    if (wb_object_file_parse(entry, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG))
        return 0;
    log = wb_open_own(fd, entry, O_RDONLY, 0);
    if (log < 0)
        return log == -ENOENT ? 0 : log;
    if (file == WB_FILE_CATALOG)
        return look_at_names(log, object, looking->when, ret);
    r = look_at(log, looking->when, &first, name);
    if (r == 0 && first > 0) {
        const uint64_t summed[] = {object.ino, (uint64_t)object.birth, (uint64_t)first};

        ret->files++;
        ret->sum ^= wb_checksum(summed, sizeof(summed));
        if (name[0])
            g_strlcpy(ret->name, name, sizeof(ret->name));
    }
    return r;
}

int wb_thinned_at(struct wb_store *store, int64_t when, struct wb_thinned *ret)
{
    struct looking looking = {when, ret};
    int r = 0;

    *ret = (struct wb_thinned){0};
    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++)
        r = wb_shard_each(store->dir_fd, i, look_into, &looking);
    return r;
}

bool wb_thinned_equal(const struct wb_thinned *a, const struct wb_thinned *b)
{
    return a->files == b->files && a->sum == b->sum;
}
