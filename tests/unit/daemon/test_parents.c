/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Places of directories, kept between lists of changes, are those of one generation of the history. */
#include "daemon/control/parents.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static const struct wb_object dir = {.ino = 7, .birth = 1}, parent = {.ino = 8, .birth = 2};

static bool finds(struct wb_parents *parents, uint64_t generation, struct wb_object which, const char *name)
{
    struct wb_object found;
    char got[WB_NAME_MAX + 1];

    if (!wb_parents_find(parents, generation, which, &found, got))
        return false;
    ck_assert(wb_object_equal(found, parent));
    ck_assert_str_eq(got, name);
    return true;
}

START_TEST(a_place_is_found_again)
{
    struct wb_parents *parents = wb_parents_new();

    ck_assert(!finds(parents, 1, dir, "name"));
    wb_parents_keep(parents, 1, dir, parent, "name");
    ck_assert(finds(parents, 1, dir, "name"));
    ck_assert(!finds(parents, 1, parent, "name"));
    wb_parents_keep(parents, 1, dir, parent, "another");
    ck_assert(finds(parents, 1, dir, "another"));
    wb_parents_free(parents);
}
END_TEST

START_TEST(deleted_history_is_forgotten)
{
    struct wb_parents *parents = wb_parents_new();

    wb_parents_keep(parents, 1, dir, parent, "secret");
    ck_assert(!finds(parents, 2, dir, "secret"));
    /* Of a request that began before, and goes on. */
    ck_assert(finds(parents, 1, dir, "secret"));
    wb_parents_keep(parents, 2, parent, parent, "other");
    ck_assert(!finds(parents, 1, dir, "secret"));
    ck_assert(!finds(parents, 2, dir, "secret"));
    wb_parents_keep(parents, 1, dir, parent, "secret");
    ck_assert(!finds(parents, 1, dir, "secret"));
    ck_assert(!finds(parents, 2, dir, "secret"));
    ck_assert(finds(parents, 2, parent, "other"));
    wb_parents_free(parents);
}
END_TEST

START_TEST(their_number_is_bounded)
{
    struct wb_parents *parents = wb_parents_new();
    unsigned found = 0;

    for (uint64_t i = 1; i <= 100000; i++)
        wb_parents_keep(parents, 1, (struct wb_object){.ino = i}, parent, "name");
    for (uint64_t i = 1; i <= 100000; i++)
        found += finds(parents, 1, (struct wb_object){.ino = i}, "name");
    ck_assert_uint_ge(found, 1);
    ck_assert_uint_le(found, 16384);
    wb_parents_free(parents);
}
END_TEST

START_TEST(without_memory_nothing_is_kept)
{
    wb_parents_keep(NULL, 1, dir, parent, "name");
    ck_assert(!finds(NULL, 1, dir, "name"));
    wb_parents_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parents");
    TCase *tests = tcase_create("parents");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tests, a_place_is_found_again);
    tcase_add_test(tests, deleted_history_is_forgotten);
    tcase_add_test(tests, their_number_is_bounded);
    tcase_add_test(tests, without_memory_nothing_is_kept);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
