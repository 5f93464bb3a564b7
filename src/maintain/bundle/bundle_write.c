/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How content is laid out in a bundle. A row is what had one name, its newest first. Small files of successive rows
 * go together: a chunk with the newest of each row, the *key*, then one with the second newest, and so on; all but the
 * key have the key as their prefix. So a release of a tree is little more than what differs from the newest one,
 * however many small files it has; and whatever is read, two chunks are unpacked at most. Large files are cut at the
 * same places, and each piece is laid out like that.
 *
 * In the file the key comes last, because a chunk refers to one further on.
 */
#include "maintain/bundle/bundle.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <zstd.h>

/* Keys of small files take more room than all that refers to them, and less time than opening those files. */
#define LEVEL_OF_SMALL_KEYS 6
#define LEVEL 4
/* After so much of a large file, it shows whether it is of a kind that can be packed. */
#define SAMPLE (8u << 20)
/* A chunk and its prefix, twice. */
#define WINDOW_LOG 21
#define CHUNK (1u << 19)
_Static_assert(CHUNK <= WB_PACK_CHUNK_MAX, "a chunk fits");

struct run {
    uint32_t member; /* index in the job */
    struct wb_bundle_extent extent;
};

struct buffer {
    uint8_t *data;
    size_t length;
    guint runs; /* of `runs`, where those of this buffer begin: their `at` is relative */
};

struct writing {
    const struct wb_bundle_job *job;
    GArray *chunks;    /* struct wb_pack_chunk */
    GArray *runs;      /* struct run */
    GArray *members;   /* in order of objects, for the index */
    uint64_t unpacked; /* so far */
    uint64_t at;       /* in the file */
    uint32_t room;     /* entries of the table there is room for */
    struct buffer key, other;
    GArray *key_runs;
    bool small; /* whole files, and not a piece of a large one */
    uint64_t begins; /* in the file: where the first chunk is */
    uint8_t *packed;
    size_t packed_room;
    ZSTD_CCtx *context;
};

static const struct wb_bundle_member *member_at(const struct wb_bundle_job *job, guint i)
{
    return &g_array_index(job->members, struct wb_bundle_member, i);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static int level_of(const struct writing *writing, const struct buffer *prefix)
{
    return writing->small && !prefix ? LEVEL_OF_SMALL_KEYS : LEVEL;
}

static int put_chunk(struct writing *writing, const uint8_t *data, size_t length, bool plain,
                     const struct buffer *prefix)
{
    struct wb_pack_chunk chunk = {.at = writing->at,
                                  .length = (uint32_t)length,
                                  .stored = (uint32_t)length,
                                  .method = WB_PACK_CHECKED,
                                  .check = wb_checksum(data, length)};
    const uint8_t *from = data;
    size_t n = 0;
    int r;

    if (writing->chunks->len == writing->room)
        return -EFBIG;
    if (writing->job->stop && writing->job->stop(writing->job->stop_data))
        return -ECANCELED;
    if (!plain) {
        if (prefix)
            ZSTD_CCtx_refPrefix(writing->context, prefix->data, prefix->length);
        ZSTD_CCtx_setParameter(writing->context, ZSTD_c_compressionLevel, level_of(writing, prefix));
        n = ZSTD_compress2(writing->context, writing->packed, writing->packed_room, data, length);
    }
    if (n > 0 && !ZSTD_isError(n) && n < length) {
        chunk.method = WB_PACK_ZSTD;
        chunk.stored = (uint32_t)n;
        /* For now: refers to the key that comes later. */
        chunk.reference = prefix != NULL;
        from = writing->packed;
    }
    r = wb_pwrite_full(writing->job->to, from, chunk.stored, writing->at);
    writing->at += chunk.stored;
    writing->unpacked += length;
    g_array_append_val(writing->chunks, chunk);
    return r;
}

/* The runs of a buffer are where its chunk begins. */
static int flush(struct writing *writing, struct buffer *buffer, GArray *runs, bool plain, const struct buffer *prefix)
{
    int r;

    for (guint i = buffer->runs; i < runs->len; i++)
        g_array_index(runs, struct run, i).extent.at += writing->unpacked;
    r = buffer->length > 0 ? put_chunk(writing, buffer->data, buffer->length, plain, prefix) : 0;
    buffer->length = 0;
    buffer->runs = runs->len;
    return r;
}

/* ---- what goes into them ---------------------------------------------------------------------- */

/* Data [from, end) of a member, as far as there is room for: *ret: how much. */
static int take(struct buffer *buffer, GArray *runs, struct wb_body *body, uint32_t member, uint64_t from,
                uint64_t end, uint64_t *ret)
{
    struct run run = {.member = member, .extent = {.offset = from, .at = buffer->length}};
    size_t length = (size_t)MIN(end - from, (uint64_t)CHUNK - buffer->length), got;
    int r = wb_body_pread(body, buffer->data + buffer->length, length, from, &got);

    if (r < 0)
        return r;
    /* It is not what it was when it was looked at. */
    if (got < length)
        return -ESTALE;
    run.extent.length = length;
    buffer->length += length;
    g_array_append_val(runs, run);
    *ret = length;
    return 0;
}

/* All data of a member in [from, end); where the buffer is full, it is written. */
static int add(struct writing *writing, struct buffer *buffer, GArray *runs, uint32_t index, uint64_t from,
               uint64_t end)
{
    const struct wb_bundle_member *member = member_at(writing->job, index);
    const struct buffer *prefix = writing->key.length > 0 && !writing->job->alone ? &writing->key : NULL;
    struct wb_body body;
    uint64_t until = 0, step;
    bool hole = false;
    int r;

    r = wb_body_init(&body, writing->job->store, member->object,
                     wb_grave_open(writing->job->store, member->object, false, O_RDONLY));
    end = MIN(end, member->size);
    while (r == 0 && from < end) {
        r = wb_body_run(&body, from, &hole, &until);
        until = MIN(until, end);
        if (r == 0 && hole) {
            from = until;
            continue;
        }
        if (r == 0 && buffer->length == CHUNK)
            r = buffer == &writing->key ? -EFBIG : flush(writing, buffer, runs, false, prefix);
        if (r == 0)
            r = take(buffer, runs, &body, index, from, until, &step);
        if (r == 0)
            from += step;
    }
    wb_body_deinit(&body);
    return r;
}

static bool same_row(const struct wb_bundle_job *job, guint a, guint b)
{
    return b < job->members->len && member_at(job, a)->chain == member_at(job, b)->chain;
}

static guint row_end(const struct wb_bundle_job *job, guint chain)
{
    guint end = chain + 1;

    while (same_row(job, chain, end))
        end++;
    return end;
}

/* The `level`th newest of each row in [begin, end). *ret_more: there are some. */
static int add_level(struct writing *writing, guint begin, guint end, guint level, uint64_t from, uint64_t to,
                     bool *ret_more)
{
    GArray *runs = level == 0 ? writing->key_runs : writing->runs;
    struct buffer *buffer = level == 0 ? &writing->key : &writing->other;
    int r = 0;

    *ret_more = false;
    for (guint chain = begin, next; r == 0 && chain < end; chain = next) {
        next = row_end(writing->job, chain);
        if (chain + level >= next)
            continue;
        *ret_more = true;
        r = add(writing, buffer, runs, chain + level, from, to);
    }
    return r;
}

/* Rows, or a piece of one: the key is read first, and written last. */
static int put_batch(struct writing *writing, guint begin, guint end, uint64_t from, uint64_t to)
{
    guint first = writing->chunks->len, levels = 1;
    bool more;
    int r;

    writing->small = to == UINT64_MAX;
    g_array_set_size(writing->key_runs, 0);
    writing->key = (struct buffer){.data = writing->key.data};
    writing->other = (struct buffer){.data = writing->other.data, .runs = writing->runs->len};
    r = add_level(writing, begin, end, 0, from, to, &more);
    for (more = true; r == 0 && more; levels++) {
        r = add_level(writing, begin, end, levels, from, to, &more);
        if (r == 0)
            r = flush(writing, &writing->other, writing->runs, false,
                      writing->key.length > 0 && !writing->job->alone ? &writing->key : NULL);
    }
    if (r == 0)
        r = flush(writing, &writing->key, writing->key_runs, writing->job->plain, NULL);
    g_array_append_vals(writing->runs, writing->key_runs->data, writing->key_runs->len);
    if (r == 0 && writing->job->may_be_waste && !writing->small && writing->unpacked >= SAMPLE &&
        writing->at - writing->begins > writing->unpacked - writing->unpacked / 20)
        r = WB_BUNDLE_WASTE;
    for (guint i = first; i < writing->chunks->len; i++) {
        struct wb_pack_chunk *chunk = &g_array_index(writing->chunks, struct wb_pack_chunk, i);

        if (chunk->reference)
            chunk->reference = writing->chunks->len - 1 - i;
    }
    return r;
}

/* ---- batches --------------------------------------------------------------------------------- */

static uint64_t row_size(const struct wb_bundle_job *job, guint chain)
{
    uint64_t size = 0;

    for (guint i = chain, end = row_end(job, chain); i < end; i++)
        size = MAX(size, member_at(job, i)->size);
    return size;
}

/* Calls `put` for each batch. Small rows that follow each other, while the newest of all fit into a chunk. */
static int each_batch(struct writing *writing,
                      int (*put)(struct writing *writing, guint begin, guint end, uint64_t from, uint64_t to))
{
    const struct wb_bundle_job *job = writing->job;
    int r = 0;

    for (guint chain = 0, end; r == 0 && chain < job->members->len; chain = end) {
        uint64_t size = row_size(job, chain), sum = member_at(job, chain)->size;

        end = row_end(job, chain);
        if (size > CHUNK) {
            for (uint64_t from = 0; r == 0 && from < size; from += CHUNK)
                r = put(writing, chain, end, from, from + CHUNK);
            continue;
        }
        while (end < job->members->len && row_size(job, end) <= CHUNK && sum + member_at(job, end)->size <= CHUNK) {
            sum += member_at(job, end)->size;
            end = row_end(job, end);
        }
        r = put(writing, chain, end, 0, UINT64_MAX);
    }
    return r;
}

/* How many chunks a batch may need at most. */
static int count_batch(struct writing *writing, guint begin, guint end, uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    guint levels = 0, level = 0;

    for (guint i = begin; i < end; i++) {
        uint64_t size = MIN(member_at(writing->job, i)->size, to);

        level = i > begin && same_row(writing->job, i - 1, i) ? level + 1 : 1;
        levels = MAX(levels, level);
        bytes += size > from ? size - from : 0;
    }
    bytes = bytes / CHUNK + levels + writing->room;
    if (bytes > WB_PACK_CHUNKS_MAX - 64)
        return -EFBIG;
    writing->room = (uint32_t)bytes;
    return 0;
}

/* ---- the index and the head ------------------------------------------------------------------- */

static gint compare_runs(gconstpointer a, gconstpointer b)
{
    const struct run *x = a, *y = b;

    if (x->member != y->member)
        return x->member < y->member ? -1 : 1;
    return x->extent.offset < y->extent.offset ? -1 : x->extent.offset > y->extent.offset;
}

static gint compare_members(gconstpointer a, gconstpointer b)
{
    const struct wb_bundle_member *x = a, *y = b;

    return wb_object_compare(x->object, y->object);
}

/* Which extents each member has; those that follow each other here and there become one. */
static GArray *gather_extents(struct writing *writing)
{
    GArray *extents = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_extent));
    guint next = 0;

    g_array_sort(writing->runs, compare_runs);
    for (guint i = 0; i < writing->job->members->len; i++) {
        struct wb_bundle_member *member = &g_array_index(writing->job->members, struct wb_bundle_member, i);

        member->first = extents->len;
        for (; next < writing->runs->len && g_array_index(writing->runs, struct run, next).member == i; next++) {
            const struct wb_bundle_extent *extent = &g_array_index(writing->runs, struct run, next).extent;
            struct wb_bundle_extent *last = NULL;

            if (extents->len > member->first)
                last = &g_array_index(extents, struct wb_bundle_extent, extents->len - 1);
            if (last && last->offset + last->length == extent->offset && last->at + last->length == extent->at)
                last->length += extent->length;
            else
                g_array_append_val(extents, *extent);
        }
        member->count = extents->len - member->first;
    }
    return extents;
}

static int put_index(struct writing *writing)
{
    g_autoptr(GArray) extents = gather_extents(writing);
    struct wb_bundle_end end = {.members = writing->job->members->len, .extents = extents->len};
    uint64_t size = wb_bundle_index_size(&end), pad = -writing->unpacked & 7;
    g_autofree uint8_t *data = NULL;
    int r = 0;

    if (end.members > WB_BUNDLE_MEMBERS_MAX || end.extents > WB_BUNDLE_EXTENTS_MAX)
        return -EFBIG;
    data = g_try_malloc0(pad + size + WB_BUNDLE_END_SIZE);
    if (!data)
        return -ENOMEM;
    g_array_append_vals(writing->members, writing->job->members->data, writing->job->members->len);
    g_array_sort(writing->members, compare_members);
    wb_bundle_encode_index(&end, (const struct wb_bundle_member *)(const void *)writing->members->data,
                           (const struct wb_bundle_extent *)(const void *)extents->data, data + pad);
    end.check = wb_checksum(data + pad, size);
    wb_bundle_encode_end(&end, data + pad + size);
    size += pad + WB_BUNDLE_END_SIZE;
    for (uint64_t done = 0, step; r == 0 && done < size; done += step) {
        step = MIN(size - done, (uint64_t)CHUNK);
        r = put_chunk(writing, data + done, step, false, NULL);
    }
    return r;
}

static int put_head(struct writing *writing)
{
    size_t length = (size_t)writing->chunks->len * WB_PACK_ENTRY_SIZE;
    g_autofree uint8_t *table = g_try_malloc(length);
    uint8_t data[WB_PACK_HEAD_SIZE], end[WB_PACK_END_SIZE];
    struct wb_pack_head head = {.count = writing->chunks->len, .unpacked = writing->unpacked};
    int r;

    if (!table)
        return -ENOMEM;
    for (guint i = 0; i < writing->chunks->len; i++)
        wb_pack_encode_chunk(&g_array_index(writing->chunks, struct wb_pack_chunk, i),
                             table + (size_t)i * WB_PACK_ENTRY_SIZE);
    writing->at += -writing->at & 7;
    head.packed = writing->at + sizeof(end);
    head.table_check = wb_checksum(table, length);
    wb_pack_encode_head(&head, data);
    wb_pack_encode_end(&head, end);
    r = wb_pwrite_full(writing->job->to, end, sizeof(end), writing->at);
    writing->at += sizeof(end);
    if (r == 0)
        r = wb_pwrite_full(writing->job->to, table, length, WB_PACK_HEAD_SIZE);
    return r < 0 ? r : wb_pwrite_full(writing->job->to, data, sizeof(data), 0);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int prepare(struct writing *writing)
{
    struct wb_bundle_end most = {writing->job->members->len, WB_BUNDLE_EXTENTS_MAX, 0};
    int r;

    writing->key.data = g_try_malloc(CHUNK);
    writing->other.data = g_try_malloc(CHUNK);
    writing->packed_room = ZSTD_compressBound(CHUNK);
    writing->packed = g_try_malloc(writing->packed_room);
    writing->context = ZSTD_createCCtx();
    if (!writing->key.data || !writing->other.data || !writing->packed || !writing->context)
        return -ENOMEM;
    ZSTD_CCtx_setParameter(writing->context, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(writing->context, ZSTD_c_checksumFlag, 0);
    /* The table comes first, so there has to be room for it. */
    r = each_batch(writing, count_batch);
    most.extents = MIN(most.extents, writing->room * 4 + most.members * 64);
    writing->room += (uint32_t)(wb_bundle_index_size(&most) / CHUNK) + 2;
    writing->at = writing->begins = WB_PACK_HEAD_SIZE + (uint64_t)writing->room * WB_PACK_ENTRY_SIZE;
    return r;
}

int wb_bundle_write(const struct wb_bundle_job *job, uint64_t *ret_size)
{
    struct writing writing = {.job = job,
                              .chunks = g_array_new(FALSE, FALSE, sizeof(struct wb_pack_chunk)),
                              .runs = g_array_new(FALSE, FALSE, sizeof(struct run)),
                              .key_runs = g_array_new(FALSE, FALSE, sizeof(struct run)),
                              .members = g_array_new(FALSE, FALSE, sizeof(struct wb_bundle_member))};
    int r = prepare(&writing);

    if (r == 0)
        r = each_batch(&writing, put_batch);
    if (r == 0)
        r = put_index(&writing);
    if (r == 0)
        r = put_head(&writing);
    *ret_size = writing.at;
    ZSTD_freeCCtx(writing.context);
    g_array_unref(writing.chunks);
    g_array_unref(writing.runs);
    g_array_unref(writing.key_runs);
    g_array_unref(writing.members);
    g_free(writing.key.data);
    g_free(writing.other.data);
    g_free(writing.packed);
    return r;
}
