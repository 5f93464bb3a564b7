/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The commands that made what is erased may hold its content (an editor's argument, a shell's
 * one-liner), so their arguments go. Records of changes point to actors by where these lie in the
 * file: so every record keeps its place and its length, and the command is padded with zeros.
 */
#include "maintain/erase/erase_set.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log_scan.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define ACTORS_TEMPORARY WB_ACTORS_NAME ".new"

static int copy_file(int from, int to)
{
    g_autofree uint8_t *data = g_try_malloc(1 << 16);
    uint64_t offset = 0;
    size_t length;
    int r;

    if (!data)
        return -ENOMEM;
    do {
        r = wb_pread_full(from, data, 1 << 16, offset, &length);
        if (r >= 0 && length > 0)
            r = wb_pwrite_full(to, data, length, offset);
        offset += length;
    } while (r >= 0 && length > 0);
    return r;
}

/* Everything behind the program's name. A record that cannot be read discloses nothing. */
static int strip(int fd, uint32_t index)
{
    uint64_t offset = (uint64_t)(index - 1) * 8;
    uint8_t data[WB_SCAN_BUFFER], head[WB_SCAN_BUFFER];
    char command[WB_COMMAND_MAX] = {0};
    struct wb_record record;
    const char *blank;
    uint32_t total;
    size_t kept;
    int r;

    r = wb_log_probe(fd, offset, data, &record);
    if (r < 0)
        return r == -EBADMSG ? 0 : r;
    if (record.type != WB_REC_ACTOR || record.actor_info.command_length == 0)
        return 0;
    blank = memchr(record.actor_info.command, ' ', record.actor_info.command_length);
    kept = blank ? (size_t)(blank - record.actor_info.command) : record.actor_info.command_length;
    memcpy(command, record.actor_info.command, kept);
    record.actor_info.command = command;
    total = record.total;
    r = wb_record_encode(&record, head);
    if (r < 0)
        return r;
    if (record.total != total)
        return -EIO;
    return wb_pwrite_full(fd, head, (size_t)r, offset);
}

/* With the file held. */
static int rewrite(struct wb_erasure *erasure)
{
    struct wb_store *store = erasure->store;
    _cleanup_close_ int from = wb_open_own(store->dir_fd, WB_ACTORS_NAME, O_RDONLY, 0);
    _cleanup_close_ int to = -1;
    GHashTableIter iter;
    void *key;
    int r;

    if (from < 0)
        return from == -ENOENT ? 0 : from;
    to = wb_create_own(store->dir_fd, ACTORS_TEMPORARY, O_RDWR);
    if (to < 0)
        return to;
    r = copy_file(from, to);
    g_hash_table_iter_init(&iter, erasure->actors);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, NULL))
        r = strip(to, GPOINTER_TO_UINT(key));
    if (r >= 0 && fsync(to) < 0)
        r = -errno;
    if (r >= 0)
        r = wb_store_actors_exchange(store, ACTORS_TEMPORARY);
    if (r < 0) {
        unlinkat(store->dir_fd, ACTORS_TEMPORARY, 0);
        return r;
    }
    return wb_fsync_dir(store->dir_fd);
}

int wb_erasure_rewrite_actors(struct wb_erasure *erasure)
{
    int r;

    if (g_hash_table_size(erasure->actors) == 0)
        return 0;
    wb_store_actors_hold(erasure->store);
    r = rewrite(erasure);
    wb_store_actors_release(erasure->store);
    return r;
}
