/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/format.h"
#include "random_record.h"
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Bytes and structures: every record comes back as it was put, and nothing that is cut, flipped
 * or out of bounds is taken for a record.
 */

#define ROUNDS 2000

/* Exactly as many bytes as there are, so that reading past them is seen by the sanitizer. */
static int decode_exactly(const uint8_t *data, size_t length, uint64_t offset, struct wb_record *ret)
{
    uint8_t *copy = malloc(length ? length : 1);
    int r;

    memcpy(copy, data, length);
    r = wb_record_decode(copy, length, offset, ret);
    free(copy);
    return r;
}

/* Makes head and body consistent again after a field was changed on purpose. */
static void reseal(uint8_t *data, uint32_t body_length)
{
    uint8_t joined[40 + WB_BODY_MAX];
    uint64_t check;

    memcpy(joined, data, 40);
    memcpy(joined + 40, data + WB_HEAD_SIZE, body_length);
    check = htole64(wb_checksum(joined, 40 + body_length));
    memcpy(data + 40, &check, 8);
}

static void check_same_attrs(const struct wb_attrs *a, const struct wb_attrs *b)
{
    ck_assert_mem_eq(a, b, sizeof(*a));
}

static void check_same_text(const char *a, size_t a_length, const char *b, size_t b_length)
{
    ck_assert_uint_eq(a_length, b_length);
    if (a_length)
        ck_assert_mem_eq(a, b, a_length);
}

static void check_same_slot(const struct wb_slot *a, const struct wb_slot *b)
{
    check_same_text(a->name, a->name_length, b->name, b->name_length);
    ck_assert_uint_eq(a->present, b->present);
    ck_assert_uint_eq(a->fate, b->fate);
    ck_assert(wb_object_equal(a->object, b->object));
    check_same_attrs(&a->attrs, &b->attrs);
    ck_assert(wb_object_equal(a->to_dir, b->to_dir));
    check_same_text(a->to_name, a->to_length, b->to_name, b->to_length);
    ck_assert(wb_object_equal(a->from_dir, b->from_dir));
    check_same_text(a->from_name, a->from_length, b->from_name, b->from_length);
}

static void check_same_body(const struct wb_record *a, const struct wb_record *b)
{
    switch (a->type) {
    case WB_REC_NAME:
        check_same_attrs(&a->name.dir, &b->name.dir);
        ck_assert_uint_eq(a->name.count, b->name.count);
        for (uint32_t i = 0; i < a->name.count; i++)
            check_same_slot(&a->name.slots[i], &b->name.slots[i]);
        break;
    case WB_REC_ATTR:
        ck_assert_mem_eq(&a->attr, &b->attr, sizeof(a->attr));
        break;
    case WB_REC_DATA:
        check_same_attrs(&a->data.attrs, &b->data.attrs);
        ck_assert(a->data.offset == b->data.offset && a->data.length == b->data.length);
        ck_assert_uint_eq(a->data.size_after, b->data.size_after);
        ck_assert_uint_eq(a->data.count, b->data.count);
        for (uint32_t i = 0; i < a->data.count; i++) {
            ck_assert_uint_eq(a->data.extents[i].offset, b->data.extents[i].offset);
            ck_assert_uint_eq(a->data.extents[i].length, b->data.extents[i].length);
            ck_assert_uint_eq(a->data.extents[i].source, b->data.extents[i].source);
            ck_assert_uint_eq(a->data.extents[i].kind, b->data.extents[i].kind);
            ck_assert(a->data.extents[i].check == b->data.extents[i].check);
        }
        break;
    case WB_REC_XATTR:
        ck_assert(wb_object_equal(a->xattr.object, b->xattr.object));
        check_same_attrs(&a->xattr.attrs, &b->xattr.attrs);
        ck_assert_uint_eq(a->xattr.present, b->xattr.present);
        check_same_text(a->xattr.name, a->xattr.name_length, b->xattr.name, b->xattr.name_length);
        break;
    case WB_REC_PLACE:
        ck_assert(wb_object_equal(a->place.self, b->place.self));
        ck_assert(wb_object_equal(a->place.parent, b->place.parent));
        check_same_text(a->place.name, a->place.name_length, b->place.name, b->place.name_length);
        break;
    case WB_REC_ABORT:
        ck_assert_int_eq(a->abort.target, b->abort.target);
        break;
    case WB_REC_GAP:
        ck_assert_int_eq(a->gap.since, b->gap.since);
        ck_assert_uint_eq(a->gap.reason, b->gap.reason);
        break;
    case WB_REC_ACTOR:
        ck_assert_uint_eq(a->actor_info.uid, b->actor_info.uid);
        ck_assert_uint_eq(a->actor_info.gid, b->actor_info.gid);
        ck_assert_uint_eq(a->actor_info.pid, b->actor_info.pid);
        check_same_text(a->actor_info.command, a->actor_info.command_length, b->actor_info.command,
                        b->actor_info.command_length);
        break;
    default:
        ck_abort_msg("unknown type %d", a->type);
    }
}

START_TEST(every_record_comes_back_as_it_was_put)
{
    struct random_record made;
    struct wb_record back;
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    uint32_t body_length, total;

    random_record_seed((uint64_t)_i);
    for (int round = 0; round < ROUNDS; round++) {
        struct wb_record *record = &made.record;
        uint64_t offset = random_below(1u << 30);
        int n, m;

        random_record_make(&made, (enum wb_record_type)_i);
        n = wb_record_encode(record, data);
        ck_assert_int_eq(n, (int)(WB_HEAD_SIZE + record->body_length));
        ck_assert_int_eq(wb_record_measure(data, &body_length, &total), 0);
        ck_assert_uint_eq(body_length, record->body_length);
        ck_assert_uint_eq(total, record->total);
        m = wb_record_encode_end(record, end);
        ck_assert_uint_eq((uint32_t)n + record->payload_length + (uint32_t)m, record->total);
        ck_assert_uint_eq(record->total % 8, 0);
        ck_assert_int_eq(wb_record_measure_end(end + m - WB_TRAILER_SIZE, &total), 0);
        ck_assert_uint_eq(total, record->total);

        ck_assert_int_eq(wb_record_decode(data, (size_t)n, offset, &back), 0);
        ck_assert_uint_eq(back.offset, offset);
        ck_assert_uint_eq(back.total, record->total);
        ck_assert_uint_eq(back.type, record->type);
        ck_assert_uint_eq(back.flags, record->flags);
        ck_assert_uint_eq(back.op, record->op);
        ck_assert_int_eq(back.when, record->when);
        ck_assert_uint_eq(back.actor, record->actor);
        ck_assert_uint_eq(back.payload_length, record->payload_length);
        ck_assert(back.payload_check == record->payload_check);
        ck_assert_uint_eq(back.payload_offset, offset + (uint64_t)n);
        check_same_body(record, &back);
    }
}
END_TEST

START_TEST(no_truncated_record_is_taken_for_one)
{
    struct random_record made;
    struct wb_record back;
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];

    random_record_seed(100 + (uint64_t)_i);
    for (int round = 0; round < 5; round++) {
        int n;

        random_record_make(&made, (enum wb_record_type)_i);
        n = wb_record_encode(&made.record, data);
        ck_assert_int_gt(n, 0);
        for (int length = 0; length < n; length++)
            ck_assert_int_eq(decode_exactly(data, (size_t)length, 0, &back), -EBADMSG);
        ck_assert_int_eq(decode_exactly(data, (size_t)n, 0, &back), 0);
    }
}
END_TEST

START_TEST(no_flipped_bit_goes_unseen)
{
    struct random_record made;
    struct wb_record back;
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    int n;

    random_record_seed(200 + (uint64_t)_i);
    random_record_make(&made, (enum wb_record_type)_i);
    n = wb_record_encode(&made.record, data);
    for (int bit = 0; bit < n * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(decode_exactly(data, (size_t)n, 0, &back), -EBADMSG);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
END_TEST

START_TEST(a_body_cut_short_with_a_good_checksum_is_refused)
{
    struct random_record made;
    struct wb_record back;
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX + 8] = {0};
    uint32_t shorter;
    int n;

    random_record_seed(300 + (uint64_t)_i);
    random_record_make(&made, (enum wb_record_type)_i);
    n = wb_record_encode(&made.record, data);
    for (uint32_t length = 0; length < made.record.body_length + 8; length++) {
        if (length == made.record.body_length)
            continue;
        shorter = htole32(length);
        memcpy(data + 20, &shorter, 4);
        reseal(data, length);
        ck_assert_int_eq(decode_exactly(data, WB_HEAD_SIZE + length, 0, &back), -EBADMSG);
    }
    ck_assert_int_gt(n, 0);
}
END_TEST

/* One field of a good record made bad, the checksum made to match. */
struct corruption {
    const char *what;
    enum wb_record_type type;
    int at; /* in the body; negative: in the head, -1 being its byte 0 */
    int width;
    uint64_t value;
};

#define HEAD(offset) (-1 - (offset))
#define SLOT0 64
static const struct corruption corruptions[] = {
    {"magic", WB_REC_ABORT, HEAD(0), 4, 0x314b4258},
    {"type 0", WB_REC_ABORT, HEAD(4), 1, 0},
    {"negative when", WB_REC_ABORT, HEAD(8), 8, UINT64_MAX},
    {"when of the present", WB_REC_ABORT, HEAD(8), 8, INT64_MAX},
    {"body too long", WB_REC_ABORT, HEAD(20), 4, WB_BODY_MAX + 1},
    {"body much too long", WB_REC_ABORT, HEAD(20), 4, UINT32_MAX},
    {"payload too long", WB_REC_DATA, HEAD(24), 4, WB_PAYLOAD_MAX + 1},
    {"payload much too long", WB_REC_DATA, HEAD(24), 4, UINT32_MAX},
    {"payload where there is none", WB_REC_ABORT, HEAD(24), 4, 8},
    {"payload of a name", WB_REC_NAME, HEAD(24), 4, 8},
    {"payload of attributes", WB_REC_ATTR, HEAD(24), 4, 8},
    {"payload of a place", WB_REC_PLACE, HEAD(24), 4, 8},
    {"payload of a gap", WB_REC_GAP, HEAD(24), 4, 8},
    {"payload of an actor", WB_REC_ACTOR, HEAD(24), 4, 8},
    {"reserved bytes of the head", WB_REC_ABORT, HEAD(28), 4, 1},
    {"checksum of no payload", WB_REC_ABORT, HEAD(32), 8, 1},

    {"size of the directory", WB_REC_NAME, 16, 8, UINT64_MAX},
    {"three slots", WB_REC_NAME, 56, 4, 3},
    {"very many slots", WB_REC_NAME, 56, 4, UINT32_MAX},
    {"fewer slots than bytes", WB_REC_NAME, 56, 4, 0},
    {"reserved bytes of names", WB_REC_NAME, 60, 1, 1},
    {"empty name", WB_REC_NAME, SLOT0, 1, 0},
    {"name past the body", WB_REC_NAME, SLOT0, 1, 255},
    {"present twice", WB_REC_NAME, SLOT0 + 1, 1, 2},
    {"fate without an object", WB_REC_NAME, SLOT0 + 1, 1, 0},
    {"object without a fate", WB_REC_NAME, SLOT0 + 2, 1, WB_FATE_NONE},
    {"unknown fate", WB_REC_NAME, SLOT0 + 2, 1, 3},
    {"kept, yet moved somewhere", WB_REC_NAME, SLOT0 + 2, 1, WB_FATE_KEPT},
    {"moved to no name", WB_REC_NAME, SLOT0 + 3, 1, 0},
    {"from no name", WB_REC_NAME, SLOT0 + 4, 1, 0},
    {"reserved bytes of a slot", WB_REC_NAME, SLOT0 + 5, 1, 1},
    {"size of the object", WB_REC_NAME, SLOT0 + 8 + 16 + 16, 8, UINT64_MAX},
    {"slash in a name", WB_REC_NAME, SLOT0 + 112, 1, '/'},
    {"NUL in a name", WB_REC_NAME, SLOT0 + 112, 1, 0},
    {"slash in where it went", WB_REC_NAME, SLOT0 + 112 + 4, 1, '/'},
    {"slash in where it came from", WB_REC_NAME, SLOT0 + 112 + 8, 1, '/'},
    {"NULs for a name", WB_REC_NAME, SLOT0 + 112, 4, 0},

    {"size before", WB_REC_ATTR, 16 + 16, 8, (uint64_t)INT64_MAX + 1},
    {"size after", WB_REC_ATTR, 88, 8, (uint64_t)INT64_MAX + 1},

    {"size before a write", WB_REC_DATA, 16, 8, (uint64_t)INT64_MAX + 1},
    {"size after a write", WB_REC_DATA, 72, 8, (uint64_t)INT64_MAX + 1},
    {"more extents than bytes", WB_REC_DATA, 80, 4, 4},
    {"fewer extents than bytes", WB_REC_DATA, 80, 4, 2},
    {"too many extents", WB_REC_DATA, 80, 4, WB_EXTENTS_MAX + 1},
    {"very many extents", WB_REC_DATA, 80, 4, UINT32_MAX},
    {"reserved bytes of data", WB_REC_DATA, 84, 4, 1},
    {"empty extent", WB_REC_DATA, 88 + 8, 8, 0},
    {"extent past the next", WB_REC_DATA, 88 + 40 + 8, 8, 4000},
    {"extent that overflows", WB_REC_DATA, 88 + 80 + 8, 8, INT64_MAX},
    {"extent that wraps", WB_REC_DATA, 88 + 80 + 8, 8, UINT64_MAX},
    {"extents out of order", WB_REC_DATA, 88, 8, 5000},
    {"offset of an extent", WB_REC_DATA, 88 + 80, 8, UINT64_MAX - 10},
    {"source past the payload", WB_REC_DATA, 88 + 16, 8, 1000},
    {"source far past the payload", WB_REC_DATA, 88 + 16, 8, UINT64_MAX},
    {"unknown kind", WB_REC_DATA, 88 + 24, 4, 3},
    {"reserved bytes of an extent", WB_REC_DATA, 88 + 28, 4, 1},
    {"checksum of inline bytes", WB_REC_DATA, 88 + 32, 8, 1},
    {"zeros with a source", WB_REC_DATA, 88 + 40 + 16, 8, 1},
    {"zeros with a checksum", WB_REC_DATA, 88 + 40 + 32, 8, 1},
    {"image that wraps", WB_REC_DATA, 88 + 80 + 16, 8, UINT64_MAX},

    {"size before setting", WB_REC_XATTR, 32, 8, (uint64_t)INT64_MAX + 1},
    {"attribute present twice", WB_REC_XATTR, 72, 1, 2},
    {"value of an absent attribute", WB_REC_XATTR, 72, 1, 0},
    {"attribute without a name", WB_REC_XATTR, 73, 1, 0},
    {"attribute's name past the body", WB_REC_XATTR, 73, 1, 255},
    {"reserved bytes of an attribute", WB_REC_XATTR, 74, 1, 1},
    {"NUL in an attribute's name", WB_REC_XATTR, 80, 1, 0},

    {"place without a name", WB_REC_PLACE, 32, 1, 0},
    {"place's name past the body", WB_REC_PLACE, 32, 1, 255},
    {"reserved bytes of a place", WB_REC_PLACE, 33, 1, 1},
    {"slash in a place's name", WB_REC_PLACE, 40, 1, '/'},

    {"abort of nothing", WB_REC_ABORT, 0, 8, 0},
    {"abort before the epoch", WB_REC_ABORT, 0, 8, UINT64_MAX},
    {"gap that ends before it begins", WB_REC_GAP, 0, 8, INT64_MAX},
    {"gap without a reason", WB_REC_GAP, 8, 1, 0},
    {"gap of an unknown reason", WB_REC_GAP, 8, 1, 4},
    {"reserved bytes of a gap", WB_REC_GAP, 9, 1, 1},
    {"command too long", WB_REC_ACTOR, 12, 2, WB_COMMAND_MAX + 1},
    {"command past the body", WB_REC_ACTOR, 12, 2, 1000},
    {"reserved bytes of an actor", WB_REC_ACTOR, 14, 1, 1},
};

/* A record of each type of which every field can be made wrong. */
static void good_record(struct wb_record *record, enum wb_record_type type)
{
    static const struct wb_attrs attrs = {.mode = 0100644, .nlink = 1, .size = 9000};

    memset(record, 0, sizeof(*record));
    record->type = (uint8_t)type;
    record->op = WB_OP_WRITE;
    record->when = 1000;
    switch (type) {
    case WB_REC_NAME:
        record->name.dir = attrs;
        record->name.count = 1;
        record->name.slots[0] = (struct wb_slot){
            .name = "name", .name_length = 4, .present = 1, .fate = WB_FATE_MOVED,
            .object = {5, 6}, .attrs = attrs, .to_dir = {7, 8}, .to_name = "goes", .to_length = 4,
            .from_dir = {9, 10}, .from_name = "came", .from_length = 4};
        break;
    case WB_REC_ATTR:
        record->attr = (struct wb_rec_attr){.object = {5, 6}, .attrs = attrs};
        break;
    case WB_REC_DATA:
        record->payload_length = 100;
        record->payload_check = 77;
        record->data = (struct wb_rec_data){
            .attrs = attrs, .count = 3,
            .extents = {{.offset = 0, .length = 100, .kind = WB_EXTENT_INLINE},
                        {.offset = 1000, .length = 10, .kind = WB_EXTENT_ZERO},
                        {.offset = 4096, .length = 4096, .kind = WB_EXTENT_IMAGE, .check = 9}}};
        break;
    case WB_REC_XATTR:
        record->payload_length = 3;
        record->payload_check = 77;
        record->xattr = (struct wb_rec_xattr){.object = {5, 6}, .attrs = attrs, .present = 1,
                                              .name = "user.a/b", .name_length = 8};
        break;
    case WB_REC_PLACE:
        record->place = (struct wb_rec_place){.self = {5, 6}, .parent = {7, 8}, .name = "here",
                                              .name_length = 4};
        break;
    case WB_REC_ABORT:
        record->abort.target = 999;
        break;
    case WB_REC_GAP:
        record->gap = (struct wb_rec_gap){.since = 900, .reason = WB_GAP_REFUSED};
        break;
    case WB_REC_ACTOR:
        record->actor_info = (struct wb_rec_actor){.uid = 1, .gid = 2, .pid = 3, .command = "vim a",
                                                   .command_length = 5};
        break;
    }
}

START_TEST(one_bad_field_is_enough_to_refuse_a_record)
{
    const struct corruption *bad = &corruptions[_i];
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX + 8] = {0};
    struct wb_record record, back;
    uint64_t value = htole64(bad->value);
    uint8_t *at;
    int n;

    good_record(&record, bad->type);
    n = wb_record_encode(&record, data);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(decode_exactly(data, (size_t)n, 0, &back), 0);

    at = bad->at < 0 ? data - bad->at - 1 : data + WB_HEAD_SIZE + bad->at;
    memcpy(at, &value, (size_t)bad->width);
    reseal(data, record.body_length);
    ck_assert_msg(decode_exactly(data, (size_t)n, 0, &back) == -EBADMSG, "%s", bad->what);
}
END_TEST

START_TEST(names_that_are_no_names_are_refused_by_encoder_and_decoder)
{
    static const char *const bad[] = {".", "..", "", "a/b", "/"};
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record record, back;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        good_record(&record, WB_REC_NAME);
        record.name.slots[0].name = bad[i];
        record.name.slots[0].name_length = (uint8_t)strlen(bad[i]);
        ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
        good_record(&record, WB_REC_PLACE);
        record.place.name = bad[i];
        record.place.name_length = (uint8_t)strlen(bad[i]);
        ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
    }
    good_record(&record, WB_REC_NAME);
    record.name.slots[0].name = "..";
    record.name.slots[0].name_length = 2;
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);

    /* The same through the decoder: a name of two bytes that are made dots. */
    record.name.slots[0].name = "ab";
    ck_assert_int_gt(wb_record_encode(&record, data), 0);
    memcpy(data + WB_HEAD_SIZE + SLOT0 + 112, "..", 2);
    reseal(data, record.body_length);
    ck_assert_int_eq(wb_record_decode(data, WB_HEAD_SIZE + record.body_length, 0, &back), -EBADMSG);

    /* "..." and ".a" are names like any other. */
    record.name.slots[0].name = ".a";
    ck_assert_int_gt(wb_record_encode(&record, data), 0);

    /* Only the root's place has no name, and it must have none. */
    good_record(&record, WB_REC_PLACE);
    record.place.parent = WB_OBJECT_NONE;
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
    record.place.name_length = 0;
    ck_assert_int_gt(wb_record_encode(&record, data), 0);
    ck_assert_int_eq(wb_record_decode(data, WB_HEAD_SIZE + record.body_length, 0, &back), 0);

    /* One name has one state before. */
    good_record(&record, WB_REC_NAME);
    record.name.count = 2;
    record.name.slots[1] = record.name.slots[0];
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
}
END_TEST

START_TEST(the_largest_records_fit)
{
    static char name_a[WB_NAME_MAX], name_b[WB_NAME_MAX], command[WB_COMMAND_MAX + 1];
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    struct wb_record record, back;

    memset(name_a, 'a', sizeof(name_a));
    memset(name_b, 'b', sizeof(name_b));
    memset(command, 'c', sizeof(command));
    good_record(&record, WB_REC_NAME);
    record.name.count = 2;
    for (int i = 0; i < 2; i++) {
        struct wb_slot *slot = &record.name.slots[i];

        *slot = record.name.slots[0];
        slot->name = i ? name_b : name_a;
        slot->to_name = slot->from_name = name_a;
        slot->name_length = slot->to_length = slot->from_length = WB_NAME_MAX;
    }
    ck_assert_int_gt(wb_record_encode(&record, data), 0);
    ck_assert_int_eq(wb_record_decode(data, WB_HEAD_SIZE + record.body_length, 0, &back), 0);

    good_record(&record, WB_REC_DATA);
    record.payload_length = WB_PAYLOAD_MAX;
    record.data.count = WB_EXTENTS_MAX;
    for (uint64_t i = 0; i < WB_EXTENTS_MAX; i++)
        record.data.extents[i] = (struct wb_extent){.offset = i * 100, .length = 100};
    ck_assert_int_gt(wb_record_encode(&record, data), 0);
    ck_assert_uint_le(record.total, WB_RECORD_MAX);
    ck_assert_int_eq(wb_record_decode(data, WB_HEAD_SIZE + record.body_length, 0, &back), 0);
    record.payload_length++;
    ck_assert_int_eq(wb_record_encode(&record, data), -EMSGSIZE);
    record.payload_length--;
    record.data.count++;
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);

    good_record(&record, WB_REC_ACTOR);
    record.actor_info.command = command;
    record.actor_info.command_length = WB_COMMAND_MAX;
    ck_assert_int_gt(wb_record_encode(&record, data), 0);
    ck_assert_int_gt(wb_record_encode_end(&record, end), 0);
    record.actor_info.command_length++;
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
}
END_TEST

START_TEST(records_of_a_later_version_are_passed_over)
{
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX];
    struct wb_record record, back;
    uint32_t total;
    int n;

    good_record(&record, WB_REC_PLACE);
    n = wb_record_encode(&record, data);
    data[4] = 200;
    reseal(data, record.body_length);
    ck_assert_int_eq(wb_record_decode(data, (size_t)n, 64, &back), 0);
    ck_assert_uint_eq(back.type, 200);
    ck_assert_uint_eq(back.total, record.total);
    data[WB_HEAD_SIZE] ^= 1;
    ck_assert_int_eq(wb_record_decode(data, (size_t)n, 64, &back), -EBADMSG);

    record.type = 200;
    ck_assert_int_eq(wb_record_encode(&record, data), -EINVAL);
    ck_assert_int_eq(wb_record_measure_end((const uint8_t *)"\x39\0\0\0EWBK", &total), -EBADMSG);
    ck_assert_int_eq(wb_record_measure_end((const uint8_t *)"\x30\0\0\0EWBK", &total), -EBADMSG);
    ck_assert_int_eq(wb_record_measure_end((const uint8_t *)"\x40\0\0\0EWBX", &total), -EBADMSG);
    ck_assert_int_eq(wb_record_measure_end((const uint8_t *)"\0\0\0\x40" "EWBK", &total), -EBADMSG);
    ck_assert_int_eq(wb_record_measure_end((const uint8_t *)"\x40\0\0\0EWBK", &total), 0);
    ck_assert_uint_eq(total, 64);
}
END_TEST

/* Bytes of version 1, written down once: they may never come out differently. */
START_TEST(the_bytes_of_version_1_stay)
{
    static const uint8_t expected[] = {
        'W', 'B', 'K', '1', 5, 0, 7, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 44, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t body[] = {5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0,
                                   0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 'h', 'e',
                                   'r', 'e'};
    static const uint8_t tail[] = {0, 0, 0, 0, 104, 0, 0, 0, 'E', 'W', 'B', 'K'};
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    struct wb_record record;

    good_record(&record, WB_REC_PLACE);
    record.op = WB_OP_RMDIR;
    record.actor = 2;
    ck_assert_int_eq(wb_record_encode(&record, data), 48 + 44);
    ck_assert_mem_eq(data, expected, sizeof(expected));
    ck_assert_mem_eq(data + 48, body, sizeof(body));
    ck_assert_int_eq(wb_record_encode_end(&record, end), 12);
    ck_assert_mem_eq(end, tail, sizeof(tail));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("format");
    TCase *tcase = tcase_create("records");
    int count = sizeof(corruptions) / sizeof(corruptions[0]);
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_record_comes_back_as_it_was_put, WB_REC_NAME, WB_REC_ACTOR + 1);
    tcase_add_loop_test(tcase, no_truncated_record_is_taken_for_one, WB_REC_NAME, WB_REC_ACTOR + 1);
    tcase_add_loop_test(tcase, no_flipped_bit_goes_unseen, WB_REC_NAME, WB_REC_ACTOR + 1);
    tcase_add_loop_test(tcase, a_body_cut_short_with_a_good_checksum_is_refused, WB_REC_NAME,
                        WB_REC_ACTOR + 1);
    tcase_add_loop_test(tcase, one_bad_field_is_enough_to_refuse_a_record, 0, count);
    tcase_add_test(tcase, names_that_are_no_names_are_refused_by_encoder_and_decoder);
    tcase_add_test(tcase, the_largest_records_fit);
    tcase_add_test(tcase, records_of_a_later_version_are_passed_over);
    tcase_add_test(tcase, the_bytes_of_version_1_stay);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
