/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/log/log_scan.h"

#include "base/io.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

#define CHUNK (64u * 1024)
#define RECORD_MIN (WB_HEAD_SIZE + WB_TRAILER_SIZE)

static int probe(const struct wb_log_bytes *bytes, uint64_t offset, uint8_t data[WB_SCAN_BUFFER],
                 struct wb_record *ret)
{
    uint32_t body, total;
    size_t length;
    int r;

    r = wb_log_bytes_scan(bytes, data, WB_SCAN_BUFFER, offset, &length);
    if (r < 0)
        return r;
    if (length < WB_HEAD_SIZE)
        return -EBADMSG;
    r = wb_record_measure(data, &body, &total);
    if (r < 0)
        return r;
    if (length < WB_HEAD_SIZE + (size_t)body)
        return -EBADMSG;
    return wb_record_decode(data, WB_HEAD_SIZE + (size_t)body, offset, ret);
}

int wb_log_probe(int fd, uint64_t offset, uint8_t data[WB_SCAN_BUFFER], struct wb_record *ret)
{
    struct wb_log_bytes bytes;
    int r = wb_log_bytes_open(&bytes, fd);

    if (r == 0)
        r = probe(&bytes, offset, data, ret);
    wb_log_bytes_close(&bytes);
    return r;
}

static int scan_exact(const struct wb_log_bytes *bytes, void *data, size_t length, uint64_t offset)
{
    size_t done;
    int r = wb_log_bytes_scan(bytes, data, length, offset, &done);

    if (r < 0)
        return r;
    return done == length ? 0 : -ENODATA;
}

/* The total length that the trailer before `end` states, if it is plausible: 0, -EBADMSG or -errno. */
static int probe_trailer(const struct wb_log_bytes *bytes, uint64_t end, uint32_t *total)
{
    uint8_t data[WB_TRAILER_SIZE];
    int r;

    if (end < RECORD_MIN || end % 8 != 0)
        return -EBADMSG;
    r = scan_exact(bytes, data, sizeof(data), end - sizeof(data));
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    r = wb_record_measure_end(data, total);
    if (r < 0)
        return r;
    return *total < RECORD_MIN || *total % 8 != 0 || *total > end ? -EBADMSG : 0;
}

/* Whether a sound record ends at `end`, or the log begins there: 1, 0 or -errno. */
static int ends_soundly(const struct wb_log_bytes *bytes, uint64_t end)
{
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;
    uint32_t total;
    int r;

    if (end == 0)
        return 1;
    r = probe_trailer(bytes, end, &total);
    if (r == 0)
        r = probe(bytes, end - total, data, &record);
    if (r < 0)
        return r == -EBADMSG ? 0 : r;
    return record.total == total;
}

/* Whether `length` bytes (at most a head) at `offset` are there and all zero: 1, 0 or -errno. */
static int is_blank(const struct wb_log_bytes *bytes, uint64_t offset, size_t length)
{
    uint8_t data[WB_HEAD_SIZE];
    int r;

    r = scan_exact(bytes, data, length, offset);
    if (r < 0)
        return r == -ENODATA ? 0 : r;
    return wb_is_zero(data, length);
}

static uint32_t word_at(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

/* A walk over the boundaries of a log, one chunk in memory at a time. */
struct walk {
    const struct wb_log_bytes *bytes;
    uint8_t *chunk; /* CHUNK bytes */
    uint64_t begin;
    size_t length;
};

static int walk_word(struct walk *walk, uint64_t offset, size_t within, uint32_t *ret)
{
    uint64_t chunk = offset / CHUNK * CHUNK;
    int r;

    if (walk->length == 0 || chunk != walk->begin) {
        walk->length = 0;
        r = wb_log_bytes_scan(walk->bytes, walk->chunk, CHUNK, chunk, &walk->length);
        if (r < 0)
            return r;
        walk->begin = chunk;
    }
    offset += within;
    *ret = offset - chunk + 4 <= walk->length ? word_at(walk->chunk + (offset - chunk)) : 0;
    return 0;
}

/* The heads found while scanning backward. */
struct heads {
    bool found;    /* [from, to): the last whole record that lies in no other */
    uint64_t from;
    uint64_t to;
    bool cut;      /* a record begins at cut_from that reaches beyond the end */
    uint64_t cut_from;
};

static void heads_add(struct heads *heads, uint64_t from, uint64_t to, uint64_t end, bool tail)
{
    if (to > end) {
        if (tail) {
            heads->cut = true;
            heads->cut_from = from;
            heads->found = false;
        }
        return;
    }
    if (heads->found && to <= heads->from)
        return;
    if (heads->cut && to > heads->cut_from)
        heads->cut = false;
    heads->found = true;
    heads->from = from;
    heads->to = to;
}

/* Goes down from `end` until a record is found and nothing can lie around it any more. */
static int find_heads(struct walk *walk, uint64_t end, bool tail, struct heads *ret)
{
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;
    uint64_t at, last;
    uint32_t magic;
    int r;

    *ret = (struct heads){0};
    last = end / 8 * 8;
    for (at = last; at > 0;) {
        at -= 8;
        if (ret->found && at + WB_RECORD_MAX < ret->from)
            break;
        r = walk_word(walk, at, 0, &magic);
        if (r < 0)
            return r;
        if (magic != WB_RECORD_MAGIC)
            continue;
        r = probe(walk->bytes, at, data, &record);
        if (r == 0)
            heads_add(ret, at, at + record.total, end, tail);
        else if (r != -EBADMSG)
            return r;
    }
    return 0;
}

/*
 * Whether a trailer in (begin, end] belongs to a record that began at `begin`: then that record was whole once
 * and is damaged now. *ret is where it ended. 1, 0 or -errno.
 */
static int find_trailer(struct walk *walk, uint64_t begin, uint64_t end, uint64_t *ret)
{
    uint64_t at, limit;
    uint32_t magic, total;
    int r;

    limit = end - begin > WB_RECORD_MAX ? begin + WB_RECORD_MAX : end;
    for (at = begin + RECORD_MIN; at <= limit; at += 8) {
        r = walk_word(walk, at - 8, 4, &magic);
        if (r < 0)
            return r;
        if (magic != WB_TRAILER_MAGIC)
            continue;
        r = probe_trailer(walk->bytes, at, &total);
        if (r == 0 && at - total == begin) {
            *ret = at;
            return 1;
        }
        if (r < 0 && r != -EBADMSG)
            return r;
    }
    return 0;
}

static int scan_set(struct wb_scan *ret, enum wb_scan_kind kind, uint64_t from, uint64_t to)
{
    *ret = (struct wb_scan){kind, from, to};
    return 0;
}

/*
 * Whether the trailer before `end` is sound: then what it ends was whole once, whatever its head says
 * now. After a power cut the page of the head may never have been written and reads as zeros: then it was
 * not. 1 with *ret_begin filled, 0 or -errno.
 */
static int was_whole(const struct wb_log_bytes *bytes, uint64_t end, uint64_t *ret_begin)
{
    uint32_t total;
    int r;

    r = probe_trailer(bytes, end, &total);
    if (r < 0)
        return r == -EBADMSG ? 0 : r;
    *ret_begin = end - total;
    r = is_blank(bytes, end - total, WB_HEAD_SIZE);
    return r < 0 ? r : !r;
}

/*
 * The trailer at `end` is sound, the head it points to is not, and before that all is well: that
 * record alone is damaged. Returns 1 with *ret filled, 0 or -errno.
 */
static int scan_by_trailer(const struct wb_log_bytes *bytes, uint64_t end, struct wb_scan *ret)
{
    uint64_t begin;
    int r;

    r = was_whole(bytes, end, &begin);
    if (r > 0)
        r = ends_soundly(bytes, begin);
    if (r > 0)
        scan_set(ret, WB_SCAN_DAMAGED, begin, end);
    return r;
}

/*
 * The trailer at `end` leads to a sound head whose record ends before: records that are about to become one
 * (prune/prune_log.c), or a long one that becomes two. From head to head the last of them is found for sure, whatever
 * users' bytes look like. 1 with *ret filled, 0 or -errno.
 */
static int follow_heads(const struct wb_log_bytes *bytes, uint64_t end, struct wb_scan *ret)
{
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;
    uint64_t from = end, next;
    uint32_t total;
    int r = probe_trailer(bytes, end, &total);

    for (next = r == 0 ? end - total : end; r == 0 && next < end;) {
        from = next;
        r = probe(bytes, from, data, &record);
        next = r == 0 ? from + record.total : end;
    }
    if (r < 0)
        return r == -EBADMSG ? 0 : r;
    if (next != end)
        return 0;
    scan_set(ret, WB_SCAN_RECORD, from, end);
    return 1;
}

static int scan_middle(struct walk *walk, uint64_t end, struct wb_scan *ret)
{
    struct heads heads;
    int r;

    r = follow_heads(walk->bytes, end, ret);
    if (r != 0)
        return MIN(r, 0);
    r = find_heads(walk, end, false, &heads);
    if (r < 0)
        return r;
    if (heads.found && heads.to == end)
        return scan_set(ret, WB_SCAN_RECORD, heads.from, end);
    r = scan_by_trailer(walk->bytes, end, ret);
    if (r != 0)
        return r < 0 ? r : 0;
    return scan_set(ret, WB_SCAN_DAMAGED, heads.found ? heads.to : 0, end);
}

static int scan_tail(struct walk *walk, uint64_t end, struct wb_scan *ret)
{
    struct heads heads;
    uint64_t sound, begin, head, to;
    int r;

    r = find_heads(walk, end, true, &heads);
    if (r < 0)
        return r;
    if (heads.found && heads.to == end) {
        /* All of its length is there. A trailer of zeros was never written (power cut), any
         * other was written once. */
        r = is_blank(walk->bytes, end - WB_TRAILER_SIZE, WB_TRAILER_SIZE);
        if (r < 0)
            return r;
        return scan_set(ret, r ? WB_SCAN_UNFINISHED : WB_SCAN_RECORD, heads.from, end);
    }
    sound = heads.found ? heads.to : 0;
    if (heads.cut)
        return scan_set(ret, heads.cut_from == sound ? WB_SCAN_UNFINISHED : WB_SCAN_DAMAGED, sound,
                        heads.cut_from);
    r = scan_by_trailer(walk->bytes, end, ret);
    if (r == 0) {
        r = was_whole(walk->bytes, end, &begin);
        if (r > 0)
            scan_set(ret, WB_SCAN_DAMAGED, sound, end);
    }
    if (r != 0)
        return r < 0 ? r : 0;
    /* Damaged records may come before the unfinished one: they are followed by their trailers. */
    for (to = sound; (r = find_trailer(walk, to, end, &begin)) > 0; to = begin) {
        r = was_whole(walk->bytes, begin, &head);
        if (r <= 0)
            break;
    }
    if (r < 0)
        return r;
    return scan_set(ret, to > sound ? WB_SCAN_DAMAGED : WB_SCAN_UNFINISHED, sound,
                    to > sound ? to : end);
}

int wb_log_scan_back(const struct wb_log_bytes *bytes, uint64_t end, bool tail, struct wb_scan *ret)
{
    g_autofree uint8_t *chunk = g_try_malloc(CHUNK);
    struct walk walk = {.bytes = bytes, .chunk = chunk};

    if (!chunk)
        return -ENOMEM;
    return tail ? scan_tail(&walk, end, ret) : scan_middle(&walk, end, ret);
}

int wb_log_scan_forward(const struct wb_log_bytes *bytes, uint64_t begin, uint64_t end, struct wb_scan *ret)
{
    g_autofree uint8_t *chunk = g_try_malloc(CHUNK);
    struct walk walk = {.bytes = bytes, .chunk = chunk};
    uint8_t data[WB_SCAN_BUFFER];
    struct wb_record record;
    uint64_t at, to;
    uint32_t magic;
    int r;

    if (!chunk)
        return -ENOMEM;
    /* A head that verifies and reaches beyond the end: cut off; nothing comes after it. */
    r = probe(bytes, begin, data, &record);
    if (r == 0 && begin + record.total > end)
        return scan_set(ret, WB_SCAN_UNFINISHED, begin, end);
    if (r < 0 && r != -EBADMSG)
        return r;
    r = find_trailer(&walk, begin, end, &to);
    if (r < 0)
        return r;
    if (r > 0)
        return scan_set(ret, WB_SCAN_DAMAGED, begin, to);
    for (at = begin / 8 * 8 + 8; at + RECORD_MIN <= end; at += 8) {
        r = walk_word(&walk, at, 0, &magic);
        if (r < 0)
            return r;
        if (magic != WB_RECORD_MAGIC)
            continue;
        r = probe(bytes, at, data, &record);
        if (r == 0 && at + record.total <= end)
            return scan_set(ret, WB_SCAN_DAMAGED, begin, at);
        if (r < 0 && r != -EBADMSG)
            return r;
    }
    r = was_whole(bytes, end, &to);
    if (r < 0)
        return r;
    return scan_set(ret, r ? WB_SCAN_DAMAGED : WB_SCAN_UNFINISHED, begin, end);
}
