/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/format.h"
#include "random_record.h"
#include "record_bytes.h"
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Bytes and structures: every record is decoded as it was encoded, and no cut, flipped or invalid bytes are taken for a
 * record.
 */

#define ROUNDS 2000

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
    ck_assert_uint_eq(a->unbind, b->unbind);
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
        ck_assert_int_eq(a->gap.until, b->gap.until);
        break;
    case WB_REC_ACTOR:
        ck_assert_uint_eq(a->actor_info.uid, b->actor_info.uid);
        ck_assert_uint_eq(a->actor_info.gid, b->actor_info.gid);
        ck_assert_uint_eq(a->actor_info.pid, b->actor_info.pid);
        check_same_text(a->actor_info.command, a->actor_info.command_length, b->actor_info.command,
                        b->actor_info.command_length);
        break;
    case WB_REC_SNAPSHOT:
        ck_assert_int_eq(a->snapshot.moment, b->snapshot.moment);
        ck_assert(wb_object_equal(a->snapshot.scope, b->snapshot.scope));
        ck_assert_uint_eq(a->snapshot.uid, b->snapshot.uid);
        ck_assert_uint_eq(a->snapshot.present, b->snapshot.present);
        ck_assert_uint_eq(a->snapshot.automatic, b->snapshot.automatic);
        check_same_text(a->snapshot.name, a->snapshot.name_length, b->snapshot.name, b->snapshot.name_length);
        check_same_text(a->snapshot.text, a->snapshot.text_length, b->snapshot.text, b->snapshot.text_length);
        check_same_text(a->snapshot.path, a->snapshot.path_length, b->snapshot.path, b->snapshot.path_length);
        break;
    case WB_REC_INDEX:
        ck_assert(a->index.from == b->index.from && a->index.previous == b->index.previous);
        ck_assert(a->index.first == b->index.first && a->index.last == b->index.last);
        ck_assert(a->index.count == b->index.count && a->index.types == b->index.types);
        ck_assert_int_eq(a->index.attrs_when, b->index.attrs_when);
        check_same_attrs(&a->index.attrs, &b->index.attrs);
        break;
    case WB_REC_FILLER:
        ck_assert_int_eq(a->filler.until, b->filler.until);
        break;
    case WB_REC_THINNED:
        ck_assert_int_eq(a->thinned.until, b->thinned.until);
        break;
    default:
        ck_abort_msg("unknown type %d", a->type);
    }
}

START_TEST(every_record_is_decoded_as_it_was_encoded)
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

START_TEST(every_flipped_bit_is_noticed)
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

/* Bytes of version 1, written down once: they may never change. */
START_TEST(the_bytes_of_version_1_are_unchanged)
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
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_record_is_decoded_as_it_was_encoded, WB_REC_NAME, WB_REC_LAST + 1);
    tcase_add_loop_test(tcase, no_truncated_record_is_taken_for_one, WB_REC_NAME, WB_REC_LAST + 1);
    tcase_add_loop_test(tcase, every_flipped_bit_is_noticed, WB_REC_NAME, WB_REC_LAST + 1);
    tcase_add_loop_test(tcase, a_body_cut_short_with_a_good_checksum_is_refused, WB_REC_NAME,
                        WB_REC_LAST + 1);
    tcase_add_test(tcase, the_largest_records_fit);
    tcase_add_test(tcase, records_of_a_later_version_are_passed_over);
    tcase_add_test(tcase, the_bytes_of_version_1_are_unchanged);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
