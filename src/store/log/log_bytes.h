/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The bytes of a log, wherever they are: a log file may begin with a pack (docs/format.md, Packed logs), which stands
 * for the first bytes of the log. All offsets are offsets in the log, unless a comment or a name here says that they
 * are in the file (physical). So a caller that keeps the place of a record need not know whether it was packed
 * meanwhile.
 *
 * Unpacked chunks and tables are kept in a cache of fixed size that all readers share. Thread-safe.
 */

#include "format/format.h"
#include <stdbool.h>
#include <stddef.h>

struct wb_log_map;

struct wb_log_bytes {
    int fd;                 /* not owned */
    struct wb_log_map *map; /* NULL: not packed */
    bool second;            /* the head is damaged: its copy at the end of the pack is used */
};

/* Looks how the file begins. A pack with both heads damaged is not recognized: the bytes read then are no record. */
int wb_log_bytes_open(struct wb_log_bytes *bytes, int fd);
void wb_log_bytes_close(struct wb_log_bytes *bytes);

/* How many bytes the log has: 0 or -errno. */
int wb_log_bytes_size(const struct wb_log_bytes *bytes, uint64_t *ret);

/* How many of them are packed, and where in the file the others begin; 0 and 0 where none are. */
uint64_t wb_log_bytes_unpacked(const struct wb_log_bytes *bytes);
uint64_t wb_log_bytes_packed(const struct wb_log_bytes *bytes);

/* As wb_pread_full and wb_pread_exact; -EBADMSG where a chunk is damaged. */
int wb_log_bytes_read(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, size_t *ret);
int wb_log_bytes_exact(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset);

/* As wb_log_bytes_read, but damaged parts read as bytes that are neither a record nor blank. */
int wb_log_bytes_scan(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset, size_t *ret);

/* The same, of a descriptor of which nothing is known yet. */
int wb_log_pread_exact(int fd, void *data, size_t length, uint64_t offset);
int wb_log_size(int fd, uint64_t *ret);

/* ---- the chunks of a pack (log_chunks.c) ------------------------------------------------------- */

struct wb_log_map {
    int refs;
    uint64_t check; /* of head and table: which pack this is */
    struct wb_pack_head head;
    int error; /* < 0: the table is damaged, and no chunk can be found */
    struct wb_pack_chunk *chunks;
    uint64_t *begins; /* offsets in the log */
};

/* The map of a file that begins with this head: from the cache, or read. 0 or -errno. */
int wb_log_map_get(int fd, const struct wb_pack_head *head, struct wb_log_map **ret);
void wb_log_map_unref(struct wb_log_map *map);

/* Bytes of one chunk, [within, within + length) of it: 0, -EBADMSG or -errno. */
int wb_log_chunk_read(struct wb_log_map *map, int fd, uint32_t index, void *data, size_t length, size_t within);

/* Forgets all unpacked bytes that nobody is just reading. */
void wb_log_chunks_forget(void);
