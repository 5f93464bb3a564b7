/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which changes people count as one version. */
#include "capture_ops.h"
#include "history/versions/saves.h"
#include "wayback/when.h"
#include <check.h>
#include <stdlib.h>

#define S WB_WHEN_SECOND

static struct tree tree;

static void setup(void)
{
    tree_open(&tree);
}

static void teardown(void)
{
    tree_close(&tree);
}

/* A change of a list, newest first, and the number it must get. */
struct one {
    int64_t when;
    enum wb_change_kind kind;
    bool begins;
    uint32_t actor;
    uint32_t wanted;
};

static void check(const struct one *list, unsigned count)
{
    struct wb_save_mark mark = {0};

    for (unsigned i = 0; i < count; i++) {
        struct wb_version version = {.when = 1000 * S + list[i].when, .kind = list[i].kind, .begins = list[i].begins,
                                     .actor = list[i].actor};

        wb_save_number(tree.store, &mark, &version);
        ck_assert_msg(version.save == list[i].wanted, "change %u: version %u instead of %u", i, version.save,
                      list[i].wanted);
    }
}

#define CHECK(...) \
    do { \
        const struct one list[] = {__VA_ARGS__}; \
        check(list, G_N_ELEMENTS(list)); \
    } while (0)

START_TEST(each_opening_is_a_version)
{
    CHECK({5, WB_KIND_CONTENT, false, 1, 1}, {4, WB_KIND_CONTENT, true, 1, 1},    /* two writes */
          {3, WB_KIND_CONTENT, true, 1, 2},                                       /* another opening */
          {2, WB_KIND_CONTENT, false, 1, 3}, {1, WB_KIND_EMPTIED, true, 1, 3},    /* cut to 0 and written */
          {0, WB_KIND_BORN, false, 1, 4});
}
END_TEST

START_TEST(a_pause_ends_a_version)
{
    CHECK({8 * S, WB_KIND_CONTENT, false, 1, 1}, {6 * S + 1, WB_KIND_CONTENT, false, 1, 1},
          {4 * S, WB_KIND_CONTENT, false, 1, 2}, {2 * S + 1, WB_KIND_CONTENT, false, 1, 2});
}
END_TEST

START_TEST(room_for_content_waits_as_long_as_it_takes)
{
    CHECK({100 * S, WB_KIND_CONTENT, false, 1, 1}, {50 * S, WB_KIND_EMPTIED, true, 1, 1},
          {40 * S, WB_KIND_CONTENT, false, 1, 2}, {S, WB_KIND_BORN, false, 1, 2});
    /* It may be made by path, or through another open file, but then just before. */
    CHECK({5, WB_KIND_CONTENT, true, 1, 1}, {4, WB_KIND_EMPTIED, true, 1, 1}, {3, WB_KIND_CONTENT, true, 1, 2},
          {2, WB_KIND_BORN, false, 1, 2});
    CHECK({5 * S, WB_KIND_CONTENT, true, 1, 1}, {S, WB_KIND_EMPTIED, true, 1, 2});
    /* A file that was made, and edited later. */
    CHECK({100 * S, WB_KIND_CONTENT, true, 1, 1}, {S, WB_KIND_BORN, false, 1, 2});
}
END_TEST

START_TEST(each_process_has_its_own)
{
    CHECK({4, WB_KIND_CONTENT, false, 1, 1}, {3, WB_KIND_CONTENT, false, 2, 2}, {2, WB_KIND_CONTENT, false, 1, 3});
}
END_TEST

START_TEST(attributes_are_none)
{
    CHECK({6, WB_KIND_ATTRIBUTES, false, 1, 0}, {5, WB_KIND_CONTENT, false, 1, 1},
          {4, WB_KIND_ATTRIBUTES, false, 2, 0}, {3, WB_KIND_CONTENT, true, 1, 1},
          {2, WB_KIND_ATTRIBUTES, false, 1, 0}, {1, WB_KIND_CONTENT, true, 1, 2});
}
END_TEST

START_TEST(a_file_that_is_made_anew_replaces_the_one_before)
{
    CHECK({5, WB_KIND_CONTENT, false, 1, 1}, {4, WB_KIND_BORN, false, 1, 1}, {3, WB_KIND_LOST, false, 1, 1},
          {2, WB_KIND_CONTENT, false, 1, 2}, {1, WB_KIND_BORN, false, 1, 2});
    /* Not if it was gone for a while, or somebody else removed it. */
    CHECK({5 * S, WB_KIND_BORN, false, 1, 1}, {3 * S, WB_KIND_LOST, false, 1, 2});
    CHECK({5, WB_KIND_BORN, false, 1, 1}, {3, WB_KIND_LOST, false, 2, 2});
}
END_TEST

START_TEST(a_rename_over_it_is_one)
{
    CHECK({5, WB_KIND_REPLACED, false, 1, 1}, {4, WB_KIND_REPLACED, false, 1, 2},
          {3, WB_KIND_CONTENT, false, 1, 3}, {2, WB_KIND_BORN, false, 1, 3});
    /* Onto a free name, the writes under the other one belong to it. */
    CHECK({5, WB_KIND_ARRIVED, false, 1, 1}, {4, WB_KIND_CONTENT, false, 1, 1}, {3, WB_KIND_BORN, false, 1, 1});
    CHECK({500 * S, WB_KIND_ARRIVED, false, 1, 1}, {4, WB_KIND_CONTENT, false, 1, 2});
}
END_TEST

START_TEST(a_gap_and_what_is_whole_stand_alone)
{
    CHECK({5, WB_KIND_CONTENT, false, 1, 1}, {4, WB_KIND_GAP, false, 0, 0}, {3, WB_KIND_CONTENT, false, 1, 2});
    CHECK({5, WB_KIND_CONTENT, false, 1, 1}, {4, WB_KIND_WHOLE, false, 1, 2}, {3, WB_KIND_CONTENT, false, 1, 3});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("saves");
    TCase *tcase = tcase_create("numbers");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, each_opening_is_a_version);
    tcase_add_test(tcase, a_pause_ends_a_version);
    tcase_add_test(tcase, room_for_content_waits_as_long_as_it_takes);
    tcase_add_test(tcase, each_process_has_its_own);
    tcase_add_test(tcase, attributes_are_none);
    tcase_add_test(tcase, a_file_that_is_made_anew_replaces_the_one_before);
    tcase_add_test(tcase, a_rename_over_it_is_one);
    tcase_add_test(tcase, a_gap_and_what_is_whole_stand_alone);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
