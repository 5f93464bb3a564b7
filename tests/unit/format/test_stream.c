/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The stream: everything written is read, and nothing else. */
#include "format/stream.h"
#include "base/io.h"
#include "random_record.h"
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void setup(void)
{
    random_record_seed(4);
}

START_TEST(frames_are_a_chain)
{
    const char *bodies[] = {"one", "two and more", ""};
    uint8_t heads[3][WB_FRAME_HEAD];
    struct wb_frame frames[3];
    uint64_t previous = 0;

    for (unsigned i = 0; i < 3; i++) {
        frames[i] = (struct wb_frame){.type = WB_FRAME_CONTENT, .length = (uint32_t)strlen(bodies[i]), .sequence = i};
        wb_frame_encode(&frames[i], previous, bodies[i], heads[i]);
        previous = frames[i].check;
    }
    previous = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct wb_frame frame;

        ck_assert_int_eq(wb_frame_measure(heads[i], &frame), 0);
        ck_assert_int_eq(wb_frame_verify(&frame, heads[i], i, previous, bodies[i]), 0);
        ck_assert_int_eq(wb_frame_verify(&frame, heads[i], i + 1, previous, bodies[i]), -EBADMSG);
        ck_assert_int_eq(wb_frame_verify(&frame, heads[i], i, previous + 1, bodies[i]), -EBADMSG);
        previous = frame.check;
    }
}
END_TEST

START_TEST(each_bit_of_a_frame_counts)
{
    struct wb_frame frame = {.type = WB_FRAME_CONTENT, .length = 40, .sequence = 7}, found;
    uint8_t all[WB_FRAME_HEAD + 40];

    for (unsigned i = 0; i < 40; i++)
        all[WB_FRAME_HEAD + i] = (uint8_t)random_u64();
    wb_frame_encode(&frame, 99, all + WB_FRAME_HEAD, all);
    for (unsigned bit = 0; bit < 8 * sizeof(all); bit++) {
        bool refused;

        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
        refused = wb_frame_measure(all, &found) < 0 || found.length != 40 ||
                  wb_frame_verify(&found, all, 7, 99, all + WB_FRAME_HEAD) < 0;
        all[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(refused);
    }
}
END_TEST

START_TEST(hello_is_decoded_as_encoded)
{
    struct wb_stream_hello hello = {.version = WB_STREAM_VERSION, .format = 5, .uuid = {1, 2, 3}, .root = {7, 8},
                                    .created = 9, .forgotten = true, .erased = 6, .thinned = 7, .since = 10,
                                    .until = 11};
    struct wb_stream_body body;
    uint8_t data[WB_HELLO_SIZE];

    wb_stream_encode_hello(&hello, data);
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_HELLO, data, sizeof(data), &body), 0);
    ck_assert_int_eq(memcmp(&body.hello.root, &hello.root, sizeof(hello.root)), 0);
    ck_assert_int_eq(body.hello.since, 10);
    ck_assert_int_eq(body.hello.until, 11);
    ck_assert(body.hello.forgotten);
    ck_assert_int_eq(body.hello.erased, 6);
    ck_assert_int_eq(body.hello.thinned, 7);
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_HELLO, data, sizeof(data) - 1, &body), -EBADMSG);
    data[0]++;
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_HELLO, data, sizeof(data), &body), -EPROTONOSUPPORT);
    ck_assert_int_eq(wb_stream_decode(99, data, sizeof(data), &body), -EPROTONOSUPPORT);
}
END_TEST

/* Names that would lead elsewhere are refused. */
START_TEST(entries_are_names)
{
    static const char *const names[] = {"name", "..", ".", "a/b", "", "\xff\xfe"};
    static const int results[] = {0, -EBADMSG, -EBADMSG, -EBADMSG, -EBADMSG, 0};
    uint8_t data[WB_STREAM_LIST_SIZE + 2 * WB_STREAM_ENTRY_MAX];

    for (unsigned i = 0; i < 6; i++) {
        struct wb_stream_entry entry = {.object = {3, 4}, .mode = S_IFREG, .length = (uint8_t)strlen(names[i]),
                                        .name = names[i]};
        struct wb_stream_list list = {.object = {1, 2}, .count = 2, .last = true};
        struct wb_stream_body body;
        size_t length = WB_STREAM_LIST_SIZE, position = 0;

        wb_stream_encode_list(&list, data);
        length += wb_stream_encode_entry(&entry, data + length);
        length += wb_stream_encode_entry(&entry, data + length);
        ck_assert_int_eq(wb_stream_decode(WB_FRAME_LISTING, data, length - 1, &body), -EBADMSG);
        ck_assert_int_eq(wb_stream_decode(WB_FRAME_LISTING, data, length, &body), results[i]);
        if (results[i] < 0)
            continue;
        wb_stream_next_entry(&body.list, &position, &entry);
        wb_stream_next_entry(&body.list, &position, &entry);
        ck_assert_uint_eq(position, length - WB_STREAM_LIST_SIZE);
        ck_assert_int_eq(memcmp(entry.name, names[i], entry.length), 0);
    }
}
END_TEST

START_TEST(hole_is_decoded_as_encoded)
{
    const struct wb_stream_hole wrong[] = {
        {.object = {3, 4}, .offset = 5}, {.offset = 5, .length = 6}, {.object = {3, 4}, .offset = 1, .length = INT64_MAX},
        {.object = {3, 4}, .length = UINT64_MAX}};
    struct wb_stream_hole hole = {.object = {3, 4}, .offset = 5, .length = INT64_MAX - 5};
    struct wb_stream_body body;
    uint8_t data[WB_STREAM_HOLE_SIZE];

    wb_stream_encode_hole(&hole, data);
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_HOLE, data, sizeof(data), &body), 0);
    ck_assert_uint_eq(body.hole.offset, 5);
    ck_assert_uint_eq(body.hole.length, INT64_MAX - 5);
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_IMAGE_HOLE, data, sizeof(data), &body), 0);
    ck_assert_int_eq(wb_stream_decode(WB_FRAME_HOLE, data, sizeof(data) - 1, &body), -EBADMSG);
    for (unsigned i = 0; i < 4; i++) {
        wb_stream_encode_hole(&wrong[i], data);
        ck_assert_int_eq(wb_stream_decode(WB_FRAME_HOLE, data, sizeof(data), &body), -EBADMSG);
    }
}
END_TEST

START_TEST(random_bytes_are_no_body)
{
    uint8_t data[300];
    struct wb_stream_body body;

    for (unsigned round = 0; round < 20000; round++) {
        size_t length = random_u64() % sizeof(data);

        for (size_t i = 0; i < length; i++)
            data[i] = random_u64() % 4 ? 0 : (uint8_t)random_u64();
        wb_stream_decode((uint32_t)(random_u64() % 12), data, length, &body);
    }
}
END_TEST

START_TEST(contents_of_the_table_of_a_copy)
{
    struct wb_received received = {.phase = WB_RECEIVED_TREE, .uuid = {5}, .until = 77}, found;
    const struct wb_erased marks[] = {{78, 77}, {78, 78}, {78, 0}, {0, 0}};
    uint8_t data[WB_RECEIVED_SIZE], erased[WB_ERASED_SIZE];
    struct wb_erased mark;

    wb_received_encode(&received, data);
    ck_assert_int_eq(wb_received_decode(data, &found), 0);
    ck_assert_int_eq(found.until, 77);
    ck_assert_uint_eq(found.phase, WB_RECEIVED_TREE);
    for (unsigned i = 0; i < sizeof(data); i++) {
        data[i] ^= 4;
        ck_assert_int_eq(wb_received_decode(data, &found), -EBADMSG);
        data[i] ^= 4;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        wb_erased_encode(&marks[i], erased);
        ck_assert_int_eq(wb_erased_decode(erased, &mark), 0);
        ck_assert_int_eq(mark.last, marks[i].last);
        ck_assert_int_eq(mark.named, marks[i].named);
        /* A reader that knows only vrm reads zeros, or that the stream is of a later version. */
        ck_assert_int_eq(wb_is_zero(erased + 16, 8), mark.named == mark.last);
        erased[9]++;
        ck_assert_int_eq(wb_erased_decode(erased, &mark), -EBADMSG);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tests = tcase_create("stream");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, frames_are_a_chain);
    tcase_add_test(tests, each_bit_of_a_frame_counts);
    tcase_add_test(tests, hello_is_decoded_as_encoded);
    tcase_add_test(tests, entries_are_names);
    tcase_add_test(tests, hole_is_decoded_as_encoded);
    tcase_add_test(tests, random_bytes_are_no_body);
    tcase_add_test(tests, contents_of_the_table_of_a_copy);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
