/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/format.h"
#include "random_record.h"
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Ids as text, names of store files, the store's header, names of operations. */

START_TEST(ids_have_one_spelling)
{
    struct wb_object object = {.ino = 0xa1b2c, .birth = 0x18a3f0c2d4e5f607}, back;
    char text[WB_OBJECT_TEXT_MAX], path[WB_OBJECT_PATH_MAX];
    enum wb_object_file file;

    wb_object_print(object, text);
    ck_assert_str_eq(text, "00000000000a1b2c-18a3f0c2d4e5f607");
    wb_object_path(object, WB_FILE_UNDO, path);
    ck_assert_str_eq(path, "objects/2c/00000000000a1b2c-18a3f0c2d4e5f607.undo");
    wb_object_path(object, WB_FILE_IMAGE, path);
    ck_assert_str_eq(path, "objects/2c/00000000000a1b2c-18a3f0c2d4e5f607.image");

    random_record_seed(1);
    for (int i = 0; i < 1000; i++) {
        object = random_object();
        wb_object_print(object, text);
        ck_assert_int_eq(wb_object_parse(text, &back), 0);
        ck_assert(wb_object_equal(object, back));
        for (int kind = WB_FILE_UNDO; kind <= WB_FILE_DIR; kind++) {
            wb_object_path(object, (enum wb_object_file)kind, path);
            ck_assert_int_eq(wb_object_file_parse(path + strlen("objects/xx/"), &back, &file), 0);
            ck_assert(wb_object_equal(object, back));
            ck_assert_int_eq((int)file, kind);
        }
    }
}
END_TEST

START_TEST(invalid_ids_are_refused)
{
    static const char *const bad[] = {
        "", "-", "00000000000a1b2c", "00000000000a1b2c-", "00000000000a1b2c-18a3f0c2d4e5f60",
        "00000000000a1b2c-18a3f0c2d4e5f6070", "00000000000A1b2c-18a3f0c2d4e5f607",
        "00000000000a1b2c_18a3f0c2d4e5f607", "0x000000000a1b2c-18a3f0c2d4e5f607",
        " 0000000000a1b2c-18a3f0c2d4e5f607", "00000000000a1b2c-18a3f0c2d4e5f607 "};
    static const char *const bad_files[] = {
        "00000000000a1b2c-18a3f0c2d4e5f607", "00000000000a1b2c-18a3f0c2d4e5f607.",
        "00000000000a1b2c-18a3f0c2d4e5f607.undo~", "00000000000a1b2c-18a3f0c2d4e5f607.UNDO",
        ".00000000000a1b2c-18a3f0c2d4e5f607.undo.new", "header", ""};
    enum wb_object_file file;
    struct wb_object object;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(wb_object_parse(bad[i], &object) == -EINVAL, "%s", bad[i]);
    for (size_t i = 0; i < sizeof(bad_files) / sizeof(bad_files[0]); i++)
        ck_assert_msg(wb_object_file_parse(bad_files[i], &object, &file) == -EINVAL, "%s", bad_files[i]);
}
END_TEST

static const struct wb_header header = {
    .version = WB_FORMAT_VERSION, .uuid = "0123456789abcde", .root = {2, -5}, .created = 1234567890};

START_TEST(the_header_is_decoded_as_encoded)
{
    uint8_t data[WB_HEADER_SIZE + 1] = {0};
    struct wb_header back;

    wb_header_encode(&header, data);
    ck_assert_mem_eq(data, "WAYBACK\n\14\0\0\0\0\0\0\0" "0123456789abcde\0", 32);
    ck_assert_int_eq(wb_header_decode(data, WB_HEADER_SIZE, &back), 0);
    ck_assert_uint_eq(back.version, header.version);
    ck_assert_mem_eq(back.uuid, header.uuid, 16);
    ck_assert(wb_object_equal(back.root, header.root));
    ck_assert_int_eq(back.created, header.created);
    ck_assert_int_eq(wb_header_decode(data, WB_HEADER_SIZE + 1, &back), -EBADMSG);
    for (size_t length = 0; length < WB_HEADER_SIZE; length++) {
        uint8_t *copy = malloc(length ? length : 1);

        memcpy(copy, data, length);
        ck_assert_int_eq(wb_header_decode(copy, length, &back), -EBADMSG);
        free(copy);
    }
    for (int bit = 0; bit < WB_HEADER_SIZE * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(wb_header_decode(data, WB_HEADER_SIZE, &back), -EBADMSG);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
END_TEST

START_TEST(a_newer_header_is_distinguished_from_a_damaged_one)
{
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header newer = header, back;

    newer.version = WB_FORMAT_VERSION + 1;
    wb_header_encode(&newer, data);
    ck_assert_int_eq(wb_header_decode(data, sizeof(data), &back), -EPROTONOSUPPORT);
    ck_assert_uint_eq(back.version, WB_FORMAT_VERSION + 1);
    newer.version = 0;
    wb_header_encode(&newer, data);
    ck_assert_int_eq(wb_header_decode(data, sizeof(data), &back), -EBADMSG);
}
END_TEST

START_TEST(every_operation_has_a_name_of_its_own)
{
    for (unsigned a = 0; a < WB_OP_MAX; a++) {
        for (unsigned b = 0; b < a; b++)
            ck_assert_str_ne(wb_op_name(a), wb_op_name(b));
        ck_assert_ptr_null(strstr(wb_op_name(a), "op "));
    }
    ck_assert_str_eq(wb_op_name(WB_OP_WRITE), "write");
    ck_assert_str_eq(wb_op_name(WB_OP_REMOVEXATTR), "removexattr");
    ck_assert_int_eq(strncmp(wb_op_name(WB_OP_MAX), "op ", 3), 0);
    ck_assert_str_eq(wb_op_name(65535), "op 65535");
}
END_TEST

/* Which readers of records rely on: an operation belongs to one kind. */
START_TEST(test_the_effects_of_operations_exclude_each_other)
{
    const unsigned names = WB_EFFECT_NAMES | WB_EFFECT_UNNAMES, contents = WB_EFFECT_CONTENT | WB_EFFECT_KEEPS;

    for (unsigned op = 0; op < WB_OP_MAX; op++) {
        ck_assert_uint_ne(wb_op_has(op, names), names);
        ck_assert_uint_ne(wb_op_has(op, contents), contents);
        ck_assert(!wb_op_has(op, WB_EFFECT_CONTENT | WB_EFFECT_ATTRS) || !wb_op_has(op, names));
        ck_assert(!wb_op_has(op, WB_EFFECT_ATTRS) || wb_op_has(op, WB_EFFECT_KEEPS));
    }
    ck_assert_uint_eq(wb_op_has(WB_OP_LINK, ~0u), WB_EFFECT_NAMES | WB_EFFECT_KEEPS);
    ck_assert_uint_eq(wb_op_has(WB_OP_CHMOD, names), 0);
    ck_assert_uint_eq(wb_op_has(WB_OP_MAX, ~0u) | wb_op_has(65535, ~0u), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("object");
    TCase *tcase = tcase_create("object");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, ids_have_one_spelling);
    tcase_add_test(tcase, invalid_ids_are_refused);
    tcase_add_test(tcase, the_header_is_decoded_as_encoded);
    tcase_add_test(tcase, a_newer_header_is_distinguished_from_a_damaged_one);
    tcase_add_test(tcase, every_operation_has_a_name_of_its_own);
    tcase_add_test(tcase, test_the_effects_of_operations_exclude_each_other);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
