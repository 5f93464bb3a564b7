/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define XXH_STATIC_LINKING_ONLY
#include "maintain/rewrite/filler.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

/* All of a run but its end is made of fillers of this length, where its bytes are asked for: no run takes memory. */
#define PIECE ((uint64_t)1 << 20)
#define PIECE_MAX WB_FILLER_MAX

_Static_assert(PIECE_MAX - PIECE >= WB_FILLER_SIZE, "what is left of a run is long enough for a filler");

static uint64_t check_of_zeros(uint32_t length)
{
    static const uint8_t zeros[4096];
    XXH3_state_t state;

    if (length == 0)
        return 0;
    XXH3_64bits_reset(&state);
    for (uint32_t n; length > 0; length -= n) {
        n = MIN(length, (uint32_t)sizeof(zeros));
        XXH3_64bits_update(&state, zeros, n);
    }
    return XXH3_64bits_digest(&state);
}

/* Copies what of [at, at + length) lies in [offset, offset + room). */
static void put(uint8_t *bytes, size_t room, uint64_t offset, const uint8_t *data, size_t length, uint64_t at)
{
    uint64_t from = MAX(at, offset), to = MIN(at + length, offset + room);

    if (from >= to)
        return;
    if (data)
        memcpy(bytes + (from - offset), data + (from - at), to - from);
    else
        memset(bytes + (from - offset), 0, to - from);
}

int wb_filler_encode_record(struct wb_record *record, uint64_t from, uint64_t to, uint8_t head[WB_FILLER_HEAD],
                            uint8_t end[WB_TRAILER_SIZE])
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], tail[16];
    int length;

    if (to - from > WB_FILLER_MAX)
        return -EMSGSIZE;
    record->payload_length = (uint32_t)(to - from) - WB_FILLER_SIZE;
    record->payload_check = check_of_zeros(record->payload_length);
    length = wb_record_encode(record, data);
    if (length < 0)
        return length;
    memcpy(head, data, WB_FILLER_HEAD);
    /* Its length is a multiple of 8, so nothing is between the payload and the trailer. */
    wb_record_encode_end(record, tail);
    memcpy(end, tail, WB_TRAILER_SIZE);
    return 0;
}

void wb_filler_encode(const struct wb_filler_run *run, uint64_t from, uint64_t to, bool more,
                      uint8_t head[WB_FILLER_HEAD], uint8_t end[WB_TRAILER_SIZE])
{
    struct wb_record record = {
        .type = WB_REC_FILLER,
        .flags = more ? WB_RECORD_MORE : 0,
        .op = WB_OP_FORGET,
        .when = run->when,
        .filler.until = run->until,
    };

    if (wb_filler_encode_record(&record, from, to, head, end) < 0)
        g_assert_not_reached();
}

/* One filler, [from, to); the last of its run, or one before it. */
static void fill_piece(const struct wb_filler_run *run, uint64_t from, uint64_t to, bool last, uint8_t *bytes,
                       size_t length, uint64_t offset)
{
    uint8_t head[WB_FILLER_HEAD], end[WB_TRAILER_SIZE];

    wb_filler_encode(run, from, to, !last, head, end);
    put(bytes, length, offset, NULL, to - from, from);
    put(bytes, length, offset, head, sizeof(head), from);
    put(bytes, length, offset, end, sizeof(end), to - sizeof(end));
}

void wb_filler_fill(const struct wb_filler_run *run, uint8_t *bytes, size_t length, uint64_t offset)
{
    uint64_t from = run->from, to, last;

    if (run->to <= offset || run->from >= offset + length)
        return;
    /* Those before the first that is asked for are passed over. */
    last = run->to - from <= PIECE_MAX ? 0 : (run->to - from - PIECE_MAX + PIECE - 1) / PIECE;
    if (offset > from)
        from += MIN((offset - from) / PIECE, last) * PIECE;
    for (; from < run->to && from < offset + length; from = to) {
        to = run->to - from <= PIECE_MAX ? run->to : from + PIECE;
        fill_piece(run, from, to, to == run->to, bytes, length, offset);
    }
}
