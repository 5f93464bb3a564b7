/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/format.h"
#include "record_bytes.h"
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * One bad field is enough: each is made wrong by hand, the checksum made to match, and the record must be refused, by
 * the decoder and, if it can be requested there, by the encoder.
 */

/* The offset of the first slot of a NAME in its body, and its name in the slot. */
#define SLOT0 64
#define SLOT_NAME 112

/* One field of a good record made bad, the checksum made to match. */
struct corruption {
    const char *what;
    enum wb_record_type type;
    int at; /* in the body; negative: in the head, -1 being its byte 0 */
    int width;
    uint64_t value;
};

#define HEAD(offset) (-1 - (offset))
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
    {"no slot", WB_REC_NAME, 56, 4, 0},
    {"reserved bytes of names", WB_REC_NAME, 60, 1, 1},
    {"empty name", WB_REC_NAME, SLOT0, 1, 0},
    {"name past the body", WB_REC_NAME, SLOT0, 1, 255},
    {"present twice", WB_REC_NAME, SLOT0 + 1, 1, 2},
    {"fate without an object", WB_REC_NAME, SLOT0 + 1, 1, 0},
    {"object without a fate", WB_REC_NAME, SLOT0 + 2, 1, WB_UNBIND_NONE},
    {"unknown fate", WB_REC_NAME, SLOT0 + 2, 1, 3},
    {"kept, yet moved somewhere", WB_REC_NAME, SLOT0 + 2, 1, WB_UNBIND_KEPT},
    {"moved to no name", WB_REC_NAME, SLOT0 + 3, 1, 0},
    {"from no name", WB_REC_NAME, SLOT0 + 4, 1, 0},
    {"reserved bytes of a slot", WB_REC_NAME, SLOT0 + 5, 1, 1},
    {"size of the object", WB_REC_NAME, SLOT0 + 8 + 16 + 16, 8, UINT64_MAX},
    {"slash in a name", WB_REC_NAME, SLOT0 + SLOT_NAME, 1, '/'},
    {"NUL in a name", WB_REC_NAME, SLOT0 + SLOT_NAME, 1, 0},
    {"slash in where it went", WB_REC_NAME, SLOT0 + SLOT_NAME + 4, 1, '/'},
    {"slash in where it came from", WB_REC_NAME, SLOT0 + SLOT_NAME + 8, 1, '/'},
    {"NULs for a name", WB_REC_NAME, SLOT0 + SLOT_NAME, 4, 0},

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
    {"gap of an unknown reason", WB_REC_GAP, 8, 1, 8},
    {"reserved bytes of a gap", WB_REC_GAP, 9, 1, 1},
    {"gap over before it begins", WB_REC_GAP, 16, 8, 899},
    {"gap over after it was written", WB_REC_GAP, 16, 8, 1001},
    {"gap over at no moment", WB_REC_GAP, 16, 8, 0},
    {"damage over at a moment", WB_REC_GAP, 8, 1, WB_GAP_DAMAGE},
    {"command too long", WB_REC_ACTOR, 12, 2, WB_COMMAND_MAX + 1},
    {"command past the body", WB_REC_ACTOR, 12, 2, 1000},
    {"reserved bytes of an actor", WB_REC_ACTOR, 14, 1, 1},
    {"snapshot of no moment", WB_REC_SNAPSHOT, 0, 8, 0},
    {"snapshot of a moment to come", WB_REC_SNAPSHOT, 0, 8, 1001},
    {"snapshot neither there nor gone", WB_REC_SNAPSHOT, 28, 1, 2},
    {"snapshot neither automatic nor not", WB_REC_SNAPSHOT, 29, 1, 2},
    {"snapshot without a name", WB_REC_SNAPSHOT, 30, 1, 0},
    {"snapshot's name past the body", WB_REC_SNAPSHOT, 30, 1, 255},
    {"reserved byte of a snapshot", WB_REC_SNAPSHOT, 31, 1, 1},
    {"snapshot's text too long", WB_REC_SNAPSHOT, 32, 2, WB_SNAPSHOT_TEXT_MAX + 1},
    {"snapshot's path too long", WB_REC_SNAPSHOT, 34, 2, WB_SNAPSHOT_PATH_MAX + 1},
    {"reserved bytes of a snapshot", WB_REC_SNAPSHOT, 36, 4, 1},
    {"slash in a snapshot's name", WB_REC_SNAPSHOT, 40, 1, '/'},
    {"NUL in a snapshot's text", WB_REC_SNAPSHOT, 44, 1, 0},
    {"NUL in a snapshot's path", WB_REC_SNAPSHOT, 48, 1, 0},
    {"index that begins before the one before it", WB_REC_INDEX, 0, 8, 3999},
    {"index after itself", WB_REC_INDEX, 8, 8, 5000},
    {"index from before the epoch", WB_REC_INDEX, 16, 8, UINT64_MAX},
    {"index that ends before it begins", WB_REC_INDEX, 24, 8, 899},
    {"index of what is to come", WB_REC_INDEX, 24, 8, 1001},
    {"index of nothing", WB_REC_INDEX, 32, 4, 0},
    {"index of more than its copies", WB_REC_INDEX, 32, 4, 4},
    {"index of no type", WB_REC_INDEX, 36, 4, 0},
    {"attributes of before the index", WB_REC_INDEX, 40, 8, 899},
    {"attributes of after the index", WB_REC_INDEX, 40, 8, 991},
    {"size in an index", WB_REC_INDEX, 64, 8, UINT64_MAX},
    {"filler that speaks of what is later", WB_REC_FILLER, 0, 8, 1001},
    {"filler that speaks of before the epoch", WB_REC_FILLER, 0, 8, UINT64_MAX},
    {"thinned until it began", WB_REC_THINNED, 0, 8, 1000},
    {"thinned until before the epoch", WB_REC_THINNED, 0, 8, UINT64_MAX},
};

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

START_TEST(invalid_names_are_refused_by_encoder_and_decoder)
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
    memcpy(data + WB_HEAD_SIZE + SLOT0 + SLOT_NAME, "..", 2);
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

int main(void)
{
    Suite *suite = suite_create("corruption");
    TCase *tcase = tcase_create("records");
    int count = sizeof(corruptions) / sizeof(corruptions[0]);
    SRunner *runner;
    int failed;

    tcase_add_loop_test(tcase, one_bad_field_is_enough_to_refuse_a_record, 0, count);
    tcase_add_test(tcase, invalid_names_are_refused_by_encoder_and_decoder);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
