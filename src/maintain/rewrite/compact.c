/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/rewrite/compact.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/rewrite/tried.h"
#include "maintain/usage/room.h"
#include "store/log/log.h"
#include "store/object/log_index.h"
#include "wayback/error.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

struct wb_pack_job {
    int from; /* the log; packed already, perhaps */
    int to;   /* an empty file */
    uint64_t end;   /* pack the log's bytes up to here: the end of a record */
    int64_t before; /* and no record of this moment or later */
    bool (*stop)(void *data); /* asked now and then, may be NULL: true ends it with -ECANCELED */
    void *stop_data;
    const struct wb_log_edits *edits; /* may be NULL. Packed chunks are packed again then, and a result that saves no
                                       * space is kept as well. */
};

/*
 * Packs what pays; *ret_end: the file stands for the log's bytes below this, and is *ret_size long. All that was packed
 * is unpacked again and compared. Positive where it is not worth while, and the file is to be thrown away.
 */
#define WB_PACK_WASTE 1

/*
 * Packing. The log is cut into chunks of at most 1 MiB; an INDEX is a chunk of its own, so that a backward walk from
 * INDEX to INDEX unpacks nothing between them. Up to sixteen chunks are a group: where it helps, all but the newest
 * of them have that one as their prefix, so that a text that was rewritten again and again is kept about once a
 * group. No chains: whatever is read, two chunks are unpacked.
 */

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
        /* Until the final method is known, the field distinguishes an INDEX from other chunks. */
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

/* Full groups of an existing pack remain as they are; the chunks after them are packed anew. */
static void keep_groups(struct packing *packing)
{
    const struct wb_log_map *map = packing->bytes.map;
    uint32_t begin = 0;

    for (uint32_t i = 0; map && !packing->job->edits && map->error == 0 && i < map->head.count; i++) {
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

/* Makes chunks of the bytes that are not packed yet; a damaged record, and all bytes after it, are not packed. */
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

    if (r == 0 && job->edits)
        wb_log_edits_apply(job->edits, data, length, offset);
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

/* Whether the packed bytes unpack to the original ones. */
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

/* Whether the group's newest chunk helps its oldest: the cost is that a read unpacks two chunks instead of one. */
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
        if (r == 0 && !packing->job->edits && packing->fresh >= SAMPLE &&
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

static int pack_write(const struct wb_pack_job *job, uint64_t *ret_end, uint64_t *ret_size)
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
    if (r == 0 && !job->edits && packing.unpacked <= wb_log_bytes_unpacked(&packing.bytes))
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

/* The log's bytes as they are, [offset, end) of it, behind what is in the file at `at`. */
static int pack_copy(const struct wb_pack_job *job, uint64_t offset, uint64_t at)
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

/* Smaller than this, a log takes a block or two however it is written. */
#define WORTH (8u << 10)
/* What a new file has to save, and be it of a small log. */
#define SAVES_AT_LEAST 4096
/* So much without an INDEX gets one before it is packed: else a backward walk would unpack all of it for its heads. */
#define WITHOUT_INDEX (64u << 10)
/* So many times the packed size has to be free: for the new file, and for concurrent writes. */
#define ROOM_FOR 2
/* How often concurrent appends are copied before the packing fails. */
#define ATTEMPTS 5

struct work {
    struct wb_store *store;
    struct wb_compact *compact;
    struct wb_log *log;
    struct wb_pack_job job;
    char path[WB_OBJECT_PATH_MAX];
    int fd;
    unsigned cuts;    /* as they were in the beginning */
    uint64_t end;     /* of what the new file has of the log  */
    uint64_t at;      /* how long the file is                */
    uint64_t old_size;
};

static bool is_wanted(void *data)
{
    struct work *work = data;

    return atomic_load(&work->store->rewrite_wanted) > 0 ||
           (work->compact->flags & WB_COMPACT_IDLE && atomic_load(&work->store->rewrite_awaited) > 0) ||
           (work->compact->stop && work->compact->stop(work->compact->stop_data));
}

bool wb_compact_has_room(const struct wb_store *store, struct wb_compact *compact, uint64_t size)
{
    uint64_t room, reserve;
    struct statvfs device;
    bool has;

    if (!(compact->flags & WB_COMPACT_IDLE) || fstatvfs(store->dir_fd, &device) < 0)
        return true;
    room = (uint64_t)device.f_bavail * device.f_frsize;
    reserve = compact->reserve ? wb_room_bytes(compact->reserve, &device) : 0;
    has = room > reserve && (room - reserve) / ROOM_FOR > size;
    compact->lacked_room |= !has;
    return has;
}

static uint64_t file_size(const struct work *work, uint64_t tail)
{
    return wb_log_physical(work->log, tail);
}

/* Under the log's lock: notes its present state. Whether anything is to be done. */
static bool look(struct work *work, struct wb_object object, enum wb_object_file file)
{
    struct wb_log *log = work->log;
    uint64_t rest = log->tail - log->unpacked;
    bool worth = work->compact->flags & WB_COMPACT_UNDO ? log->unpacked > 0 : rest >= WORTH;

    /* As it was: the INDEX must not be what it saves. */
    work->old_size = file_size(work, log->tail);
    if (worth && !work->compact->forget && rest >= WITHOUT_INDEX && file == WB_FILE_UNDO &&
        work->compact->before == WB_WHEN_PRESENT &&
        !(work->compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_DRY | WB_COMPACT_STATS)))
        wb_log_index_now(work->store, log, object);
    if (work->compact->flags & WB_COMPACT_STATS)
        worth = false;
    work->cuts = log->cuts;
    work->end = log->tail;
    return worth;
}

/* Bytes appended since go behind what the file has; after it they are on the disk: 0, -EAGAIN where they never end. */
static int catch_up(struct work *work)
{
    struct wb_log *log = work->log;
    bool cut, fresh = true;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < ATTEMPTS; i++) {
        pthread_mutex_lock(&log->lock);
        cut = log->cuts != work->cuts;
        work->job.end = log->tail;
        if (!cut && !fresh && work->end == log->tail) {
            r = wb_log_exchange_locked(log, work->store->dir_fd, work->path, WB_PACK_NEW, work->end);
            pthread_mutex_unlock(&log->lock);
            return r;
        }
        pthread_mutex_unlock(&log->lock);
        if (cut)
            return -EAGAIN;
        r = pack_copy(&work->job, work->end, work->at);
        work->at += work->job.end - work->end;
        work->end = work->job.end;
        if (r == 0 && fdatasync(work->fd) < 0)
            r = -errno;
        fresh = false;
    }
    return r < 0 ? r : -EAGAIN;
}

/* The file beside the log, with all of it below work->end: 0, WB_PACK_WASTE, or -errno. */
static int write_file(struct work *work)
{
    uint64_t tail = work->end, packed;
    int r;

    if (work->compact->flags & WB_COMPACT_UNDO) {
        work->end = work->at = 0;
        return 0;
    }
    work->job.end = tail;
    if (work->compact->forget) {
        work->job.edits = work->compact->forget->edits;
        work->job.end = MAX(work->job.edits->end, work->log->unpacked);
    }
    r = pack_write(&work->job, &work->end, &work->at);
    if (r != 0)
        return r;
    /* All replaced bytes have to be in the pack: bytes behind it are copied as they are. */
    if (work->compact->forget)
        return work->end < work->job.edits->end ? -EBADMSG : 0;
    packed = work->at + (tail - work->end);
    return packed > work->old_size - work->old_size / 10 || packed + SAVES_AT_LEAST > work->old_size ? WB_PACK_WASTE
                                                                                                     : 0;
}

static int rewrite(struct work *work)
{
    uint64_t tail = work->end;
    int r;

    work->job = (struct wb_pack_job){.from = work->log->fd, .to = work->fd, .stop = is_wanted, .stop_data = work};
    work->job.before = work->compact->before;
    r = write_file(work);
    if (r != 0)
        return r;
    work->compact->changed++;
    if (work->compact->flags & WB_COMPACT_DRY) {
        work->compact->new_size += work->at + (tail - work->end);
        return 0;
    }
    r = catch_up(work);
    /* Its name, too: a later sync of appended records relies on it. */
    if (r == 0)
        r = wb_log_sync(work->log, work->store->dir_fd, work->path);
    if (r == 0)
        work->compact->new_size += work->at;
    return r;
}

/* A new file beside the log, which gets its name. */
static int do_beside(struct work *work, struct wb_object object, enum wb_object_file file)
{
    int r;

    wb_object_path(object, file, work->path);
    work->fd = wb_create_own(work->store->dir_fd, WB_PACK_NEW, O_RDWR);
    if (work->fd < 0)
        return work->fd;
    r = rewrite(work);
    close(work->fd);
    if (r != 0 || work->compact->flags & WB_COMPACT_DRY)
        unlinkat(work->store->dir_fd, WB_PACK_NEW, 0);
    return r;
}

/* What is forgotten goes from the log itself, where that can be: more than 0; else 0, or -errno. */
static int forget_in_place(struct work *work, bool full)
{
    const struct wb_compact_forget *forget = work->compact->forget;
    int r = 0;

    if (forget && forget->in_place && !(work->compact->flags & WB_COMPACT_DRY))
        r = forget->in_place(forget->data, work->log, full);
    work->compact->changed += r > 0;
    return r;
}

/* The compaction of an opened log, with the right to write logs anew. */
static int do_log(struct work *work, struct wb_object object, enum wb_object_file file)
{
    struct wb_compact *compact = work->compact;
    uint64_t changed = compact->changed;
    bool worth;
    int r;

    pthread_mutex_lock(&work->log->lock);
    worth = look(work, object, file);
    pthread_mutex_unlock(&work->log->lock);
    /* While one log lacks room, all have their turn again each time round. */
    worth = worth && !(compact->flags & WB_COMPACT_IDLE && wb_tried_has(compact->tried, object, file, work->end));
    compact->logs++;
    compact->length += work->end;
    compact->old_size += work->old_size;
    if (compact->forget) {
        r = compact->forget->look(compact->forget->data, object, file, work->log->fd);
        worth = r > 0;
        if (worth) {
            r = forget_in_place(work, false);
            worth = r == 0;
        }
        if (r < 0)
            return r;
    }
    worth = worth && wb_compact_has_room(work->store, compact, work->old_size);
    r = worth ? do_beside(work, object, file) : WB_PACK_WASTE;
    if (worth && r == WB_PACK_WASTE)
        wb_tried_note(compact->tried, object, file, work->end);
    /* How much may be written is not known before: a quota shows by this. */
    if (r == -ENOSPC || r == -EDQUOT) {
        int done;

        compact->changed = changed;
        done = forget_in_place(work, true);
        r = done < 0 ? done : done > 0 ? WB_PACK_WASTE : r;
    }
    if (r != 0)
        compact->new_size += work->old_size;
    compact->packed += work->log->unpacked > 0;
    return r < 0 ? r : 0;
}

int wb_compact_own(struct wb_store *store, const struct wb_compact *compact)
{
    if (!store->writable)
        return -EROFS;
    if (!(compact->flags & WB_COMPACT_IDLE))
        wb_rewriting_await(store);
    else if (pthread_mutex_trylock(&store->rewriting) != 0)
        return -ECANCELED;
    return 0;
}

int wb_compact_log(struct wb_store *store, struct wb_compact *compact, struct wb_object object,
                   enum wb_object_file file)
{
    struct work work = {.store = store, .compact = compact};
    int r;

    r = wb_compact_own(store, compact);
    if (r < 0)
        return r;
    r = wb_store_get_log(store, object, file, false, &work.log);
    if (r == 0) {
        r = do_log(&work, object, file);
        wb_store_put_log(store, work.log);
    }
    r = r == -ENOENT ? 0 : r;
    if (r == 0 && compact->forget && compact->forget->done)
        r = compact->forget->done(compact->forget->data, object);
    pthread_mutex_unlock(&store->rewriting);
    return r;
}
