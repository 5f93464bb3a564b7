/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing. The log is cut into chunks of at most 1 MiB; an INDEX is a chunk of its own, so that who walks back from
 * INDEX to INDEX unpacks nothing between them. Up to sixteen chunks are a group: where it helps, all but the newest
 * of them have that one as their prefix, so that a text that was rewritten again and again is kept about once a
 * group. No chains: whatever is read, two chunks are unpacked.
 */
#include "maintain/rewrite/pack.h"

#include "base/checksum.h"
#include "base/io.h"
#include "wayback/error.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <zstd.h>

#define LEVEL 3
#define GROUP 16
/* A chunk and its prefix. */
#define WINDOW_LOG 21
/* After so much, it shows whether the log is of a kind that can be packed. */
#define SAMPLE (8u << 20)

struct packing {
    const struct wb_pack_job *job;
    struct wb_log_bytes bytes;
    GArray *chunks;   /* struct wb_pack_chunk */
    uint64_t kept;    /* log bytes of the chunks that are taken over as they are */
    uint64_t unpacked;
    uint64_t at;      /* where the next chunk goes in the file */
    uint64_t fresh, fresh_stored;
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
    uint8_t *plain, *prefix, *packed, *again;
};

/* ---- where to cut ------------------------------------------------------------------------------ */

static bool add_chunks(struct packing *packing, uint64_t from, uint64_t to, uint32_t method)
{
    while (from < to) {
        /* The method tells an INDEX from other chunks, until it is known. */
        struct wb_pack_chunk chunk = {
            .length = (uint32_t)MIN(to - from, (uint64_t)WB_PACK_CHUNK_MAX), .method = method};

        if (packing->chunks->len == WB_PACK_CHUNKS_MAX)
            return false;
        g_array_append_val(packing->chunks, chunk);
        from += chunk.length;
        packing->unpacked = from;
    }
    return true;
}

/* Full groups of a pack that is there already stay as they are; what comes after them is packed anew. */
static void keep_groups(struct packing *packing)
{
    const struct wb_log_map *map = packing->bytes.map;
    uint32_t begin = 0;

    for (uint32_t i = 0; map && !packing->job->overlay && map->error == 0 && i < map->head.count; i++) {
        uint64_t end = map->begins[i] + map->chunks[i].length;

        if (end > packing->job->end)
            break;
        /* A group ends with what the others refer to. */
        for (uint32_t j = begin; j <= i; j++)
            if (map->chunks[j].reference > i - j)
                goto next;
        if (end - packing->kept < (uint64_t)GROUP * WB_PACK_CHUNK_MAX)
            continue;
        begin = i + 1;
        packing->kept = end;
    next:;
    }
    g_array_append_vals(packing->chunks, map ? map->chunks : NULL, begin);
    packing->unpacked = packing->kept;
}

/* Chunks of what is not packed yet; a damaged record, and what follows it, stays outside. */
static int cut(struct packing *packing)
{
    struct wb_log_reader reader;
    struct wb_record record;
    bool room = true;
    uint64_t end;
    int r;

    r = wb_log_reader_init(&reader, packing->job->from);
    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, packing->kept);
    end = packing->kept;
    while (room && (r = wb_log_reader_next(&reader, &record)) == 0) {
        if (record.offset + record.total > packing->job->end || record.when >= packing->job->before)
            break;
        if (record.type == WB_REC_INDEX) {
            room = add_chunks(packing, packing->unpacked, record.offset, WB_PACK_ZSTD) &&
                   add_chunks(packing, record.offset, record.offset + record.total, WB_PACK_PLAIN);
        }
        end = record.offset + record.total;
    }
    if (room)
        add_chunks(packing, packing->unpacked, end, WB_PACK_ZSTD);
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : 0;
}

/* ---- chunks ------------------------------------------------------------------------------------ */

/* The log's bytes as they are to be packed. */
static int read_plain(struct packing *packing, uint8_t *data, size_t length, uint64_t offset)
{
    const struct wb_pack_job *job = packing->job;
    int r = wb_log_bytes_exact(&packing->bytes, data, length, offset);

    if (r == 0 && job->overlay)
        job->overlay(job->overlay_data, data, length, offset);
    return r;
}

static struct wb_pack_chunk *chunk_at(struct packing *packing, guint index)
{
    return &g_array_index(packing->chunks, struct wb_pack_chunk, index);
}

/* Into packing->packed: the length, or 0 where it gets no shorter. */
static size_t compress(struct packing *packing, uint32_t length, const uint8_t *prefix, size_t prefix_length)
{
    size_t n;

    ZSTD_CCtx_reset(packing->pack, ZSTD_reset_session_only);
    if (prefix)
        ZSTD_CCtx_refPrefix(packing->pack, prefix, prefix_length);
    n = ZSTD_compress2(packing->pack, packing->packed, WB_PACK_CHUNK_MAX, packing->plain, length);
    return ZSTD_isError(n) || n >= length - length / 10 ? 0 : n;
}

/* What was packed has to come out again. */
static bool comes_back(struct packing *packing, size_t stored, uint32_t length, const uint8_t *prefix,
                       size_t prefix_length)
{
    ZSTD_DCtx_reset(packing->unpack, ZSTD_reset_session_only);
    if (prefix)
        ZSTD_DCtx_refPrefix(packing->unpack, prefix, prefix_length);
    return ZSTD_decompressDCtx(packing->unpack, packing->again, WB_PACK_CHUNK_MAX, packing->packed, stored) == length &&
           memcmp(packing->again, packing->plain, length) == 0;
}

/* One chunk to the file, which begins at `from` in the log; a prefix is in packing->prefix. */
static int put_chunk(struct packing *packing, struct wb_pack_chunk *chunk, uint64_t from, size_t prefix_length)
{
    const uint8_t *prefix = prefix_length > 0 ? packing->prefix : NULL;
    size_t stored;
    int r;

    if (packing->job->stop && packing->job->stop(packing->job->stop_data))
        return -ECANCELED;
    r = read_plain(packing, packing->plain, chunk->length, from);
    if (r < 0)
        return r;
    stored = compress(packing, chunk->length, prefix, prefix_length);
    if (stored > 0 && !comes_back(packing, stored, chunk->length, prefix, prefix_length))
        return -EIO;
    chunk->check = wb_checksum(packing->plain, chunk->length);
    chunk->method = stored > 0 ? WB_PACK_ZSTD : WB_PACK_PLAIN;
    if (stored == 0)
        chunk->reference = 0;
    chunk->stored = stored > 0 ? (uint32_t)stored : chunk->length;
    chunk->at = packing->at;
    r = wb_pwrite_full(packing->job->to, stored > 0 ? packing->packed : packing->plain, chunk->stored, packing->at);
    packing->at += chunk->stored;
    packing->fresh += chunk->length;
    packing->fresh_stored += chunk->stored;
    return r;
}

/* Whether the group's newest chunk helps its oldest: what it costs is unpacking two instead of one. */
static int prefix_helps(struct packing *packing, const struct wb_pack_chunk *chunk, uint64_t from,
                        size_t prefix_length)
{
    size_t alone, with;
    int r = read_plain(packing, packing->plain, chunk->length, from);

    if (r < 0)
        return r;
    alone = compress(packing, chunk->length, NULL, 0);
    with = compress(packing, chunk->length, packing->prefix, prefix_length);
    return with > 0 && (alone == 0 || with < alone - alone / 10);
}

/* Chunks [begin, end): those of an INDEX stand by themselves. */
static int put_group(struct packing *packing, guint begin, guint end, uint64_t from)
{
    guint key = end;
    uint64_t at = from;
    int helps = 0, r = 0;

    while (key > begin && chunk_at(packing, key - 1)->method == WB_PACK_PLAIN)
        key--;
    if (key > begin && --key > begin) {
        const struct wb_pack_chunk *newest = chunk_at(packing, key);
        guint first = begin;

        for (guint i = begin; i < key; i++)
            at += chunk_at(packing, i)->length;
        r = read_plain(packing, packing->prefix, newest->length, at);
        at = from;
        while (first < key && chunk_at(packing, first)->method == WB_PACK_PLAIN)
            at += chunk_at(packing, first++)->length;
        if (r == 0 && first < key)
            helps = prefix_helps(packing, chunk_at(packing, first), at, newest->length);
        if (helps < 0)
            r = helps;
    }
    for (guint i = begin; r == 0 && i < end; i++) {
        struct wb_pack_chunk *chunk = chunk_at(packing, i);

        if (helps > 0 && i < key && chunk->method == WB_PACK_ZSTD)
            chunk->reference = key - i;
        r = put_chunk(packing, chunk, from, chunk->reference ? chunk_at(packing, key)->length : 0);
        from += chunk->length;
    }
    return r;
}

/* ---- the file ---------------------------------------------------------------------------------- */

/* Chunks taken over: the packed bytes, one by one. */
static int take_over(struct packing *packing, guint *ret_index, uint64_t *ret_from)
{
    int r = 0;
    guint i;

    *ret_from = 0;
    for (i = 0; r == 0 && *ret_from < packing->kept; i++) {
        struct wb_pack_chunk *chunk = chunk_at(packing, i);

        if (packing->job->stop && packing->job->stop(packing->job->stop_data))
            return -ECANCELED;
        r = wb_pread_exact(packing->job->from, packing->packed, chunk->stored, chunk->at);
        if (r == 0)
            r = wb_pwrite_full(packing->job->to, packing->packed, chunk->stored, packing->at);
        chunk->at = packing->at;
        packing->at += chunk->stored;
        *ret_from += chunk->length;
    }
    *ret_index = i;
    return r;
}

static int put_chunks(struct packing *packing)
{
    uint64_t from = 0;
    guint i = 0;
    int r;

    r = take_over(packing, &i, &from);
    while (r == 0 && i < packing->chunks->len) {
        guint end = i, data = 0;
        uint64_t length = 0;

        while (end < packing->chunks->len && data < GROUP) {
            data += chunk_at(packing, end)->method == WB_PACK_ZSTD;
            length += chunk_at(packing, end++)->length;
        }
        r = put_group(packing, i, end, from);
        i = end;
        from += length;
        if (r == 0 && !packing->job->overlay && packing->fresh >= SAMPLE &&
            packing->fresh_stored > packing->fresh - packing->fresh / 20)
            return WB_PACK_WASTE;
    }
    return r;
}

/* The table and the head, last of all: before them, the file is no log. */
static int put_head(struct packing *packing)
{
    size_t length = (size_t)packing->chunks->len * WB_PACK_ENTRY_SIZE;
    g_autofree uint8_t *table = g_try_malloc(length);
    uint8_t data[WB_PACK_HEAD_SIZE], end[WB_PACK_END_SIZE], zeros[8] = {0};
    struct wb_pack_head head = {.count = packing->chunks->len, .unpacked = packing->unpacked};
    int r;

    if (!table)
        return -ENOMEM;
    for (guint i = 0; i < packing->chunks->len; i++)
        wb_pack_encode_chunk(chunk_at(packing, i), table + (size_t)i * WB_PACK_ENTRY_SIZE);
    r = wb_pwrite_full(packing->job->to, zeros, -packing->at & 7, packing->at);
    packing->at += -packing->at & 7;
    head.packed = packing->at + sizeof(end);
    head.table_check = wb_checksum(table, length);
    wb_pack_encode_head(&head, data);
    wb_pack_encode_end(&head, end);
    if (r == 0)
        r = wb_pwrite_full(packing->job->to, end, sizeof(end), packing->at);
    packing->at += sizeof(end);
    if (r == 0)
        r = wb_pwrite_full(packing->job->to, table, length, WB_PACK_HEAD_SIZE);
    return r < 0 ? r : wb_pwrite_full(packing->job->to, data, sizeof(data), 0);
}

static int allocate(struct packing *packing)
{
    packing->plain = g_try_malloc(WB_PACK_CHUNK_MAX);
    packing->prefix = g_try_malloc(WB_PACK_CHUNK_MAX);
    packing->packed = g_try_malloc(WB_PACK_CHUNK_MAX);
    packing->again = g_try_malloc(WB_PACK_CHUNK_MAX);
    packing->pack = ZSTD_createCCtx();
    packing->unpack = ZSTD_createDCtx();
    if (!packing->plain || !packing->prefix || !packing->packed || !packing->again || !packing->pack ||
        !packing->unpack)
        return -ENOMEM;
    ZSTD_CCtx_setParameter(packing->pack, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(packing->pack, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(packing->pack, ZSTD_c_checksumFlag, 0);
    return 0;
}

static void release(struct packing *packing)
{
    ZSTD_freeCCtx(packing->pack);
    ZSTD_freeDCtx(packing->unpack);
    g_free(packing->plain);
    g_free(packing->prefix);
    g_free(packing->packed);
    g_free(packing->again);
    g_array_unref(packing->chunks);
    wb_log_bytes_close(&packing->bytes);
}

int wb_pack_write(const struct wb_pack_job *job, uint64_t *ret_end, uint64_t *ret_size)
{
    struct packing packing = {.job = job, .chunks = g_array_new(FALSE, TRUE, sizeof(struct wb_pack_chunk))};
    int r;

    r = wb_log_bytes_open(&packing.bytes, job->from);
    if (r == 0)
        r = allocate(&packing);
    if (r == 0) {
        keep_groups(&packing);
        r = cut(&packing);
    }
    if (r == 0 && !job->overlay && packing.unpacked <= wb_log_bytes_unpacked(&packing.bytes))
        r = WB_PACK_WASTE;
    packing.at = WB_PACK_HEAD_SIZE + (uint64_t)packing.chunks->len * WB_PACK_ENTRY_SIZE;
    if (r == 0)
        r = put_chunks(&packing);
    if (r == 0)
        r = put_head(&packing);
    *ret_end = packing.unpacked;
    *ret_size = packing.at;
    release(&packing);
    return r;
}

/* In a new file what is not written is zeros: those of fillers take no room. */
static int write_sparse(int fd, const uint8_t *data, size_t length, uint64_t at)
{
    int r = 0;

    for (size_t done = 0, step; r == 0 && done < length; done += step) {
        step = MIN(length - done, (size_t)65536);
        if (!wb_is_zero(data + done, step))
            r = wb_pwrite_full(fd, data + done, step, at + done);
    }
    return r;
}

int wb_pack_copy(const struct wb_pack_job *job, uint64_t offset, uint64_t at)
{
    g_autofree uint8_t *data = g_try_malloc(WB_PACK_CHUNK_MAX);
    struct wb_log_bytes bytes;
    int r;

    if (!data)
        return -ENOMEM;
    r = wb_log_bytes_open(&bytes, job->from);
    while (r == 0 && offset < job->end) {
        size_t step = (size_t)MIN(job->end - offset, (uint64_t)WB_PACK_CHUNK_MAX);

        if (job->stop && job->stop(job->stop_data))
            r = -ECANCELED;
        if (r == 0)
            r = wb_log_bytes_exact(&bytes, data, step, offset);
        if (r == 0)
            r = write_sparse(job->to, data, step, at);
        offset += step;
        at += step;
    }
    wb_log_bytes_close(&bytes);
    return r;
}
