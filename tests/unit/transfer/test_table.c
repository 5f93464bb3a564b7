/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A copy's table of its tree, in memory and in a file: written entries are there, and nothing else. */
#include "random_record.h"
#include "transfer/receive/copy_names.h"
#include "transfer/wire/table.h"
#include <check.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define KEYS 6000 /* so many are in a file */

static int home;

static void setup(void)
{
    home = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(home, 0);
    random_record_seed(1);
}

static void teardown(void)
{
    close(home);
}

static struct wb_identity item_of(uint64_t number, uint64_t value)
{
    return (struct wb_identity){{number, (int64_t)(number % 3)}, {value, 0}};
}

static int count_one(const void *item, void *data)
{
    const struct wb_identity *identity = item;
    uint64_t *values = data;

    ck_assert_uint_eq(values[identity->inode.ino], identity->object.ino);
    values[identity->inode.ino] = 0;
    return 0;
}

START_TEST(written_entries_are_there)
{
    g_autofree uint64_t *values = g_new0(uint64_t, KEYS + 1);
    struct wb_identity found, there;
    struct wb_table table;

    ck_assert_int_eq(wb_table_init(&table, home, sizeof(found)), 0);
    for (unsigned i = 0; i < 3 * KEYS; i++) {
        uint64_t key = random_u64() % KEYS + 1;

        there = item_of(key, values[key] = random_u64() | 1);
        ck_assert_int_eq(wb_table_put(&table, &there), 0);
    }
    ck_assert(table.places.in_file);
    for (uint64_t key = 1; key <= KEYS; key++) {
        there = item_of(key, values[key]);
        ck_assert_int_eq(wb_table_get(&table, there.inode, &found), values[key] != 0);
        ck_assert(values[key] == 0 || found.object.ino == values[key]);
        there.inode.birth += 3;
        ck_assert_int_eq(wb_table_get(&table, there.inode, &found), 0);
    }
    ck_assert_int_eq(wb_table_each(&table, count_one, values), 0);
    for (uint64_t key = 1; key <= KEYS; key++)
        ck_assert_uint_eq(values[key], 0);
    ck_assert_int_eq(wb_table_clear(&table), 0);
    there = item_of(1, 1);
    ck_assert_int_eq(wb_table_get(&table, there.inode, &found), 0);
    wb_table_deinit(&table);
}
END_TEST

/* Lists grow and shrink between each other; a name may be as long as any. */
START_TEST(names_are_those_that_were_added)
{
    enum { LISTS = 40, TURNS = 8000 };
    GPtrArray *expected[LISTS];
    uint64_t lists[LISTS] = {0};
    struct wb_copy_names names;
    struct wb_copy_name found;

    ck_assert_int_eq(wb_copy_names_init(&names, home), 0);
    for (unsigned i = 0; i < LISTS; i++)
        expected[i] = g_ptr_array_new_with_free_func(g_free);
    for (unsigned i = 0; i < TURNS; i++) {
        unsigned list = (unsigned)(random_u64() % LISTS);
        struct wb_object dir = {list + 1, 5};
        char *name = g_strdup_printf("%0*u", i % 50 ? 4 : WB_NAME_MAX, i);

        ck_assert_int_eq(wb_copy_names_add(&names, &lists[list], dir, name), 0);
        g_ptr_array_insert(expected[list], 0, name);
        if (expected[list]->len > 5) {
            guint gone = (guint)(random_u64() % expected[list]->len);

            ck_assert_int_eq(wb_copy_names_remove(&names, &lists[list], dir, expected[list]->pdata[gone]), 0);
            g_ptr_array_remove_index(expected[list], gone);
        }
    }
    ck_assert(names.entries.in_file);
    for (unsigned i = 0; i < LISTS; i++) {
        struct wb_object dir = {i + 1, 5};

        while (expected[i]->len > 0) {
            ck_assert_int_eq(wb_copy_names_get(&names, lists[i], &found), 0);
            ck_assert_str_eq(found.name, expected[i]->pdata[0]);
            ck_assert(wb_object_equal(found.dir, dir));
            ck_assert_int_eq(wb_copy_names_remove(&names, &lists[i], dir, found.name), 0);
            g_ptr_array_remove_index(expected[i], 0);
        }
        ck_assert_uint_eq(lists[i], 0);
        g_ptr_array_unref(expected[i]);
    }
    wb_copy_names_deinit(&names);
}
END_TEST

/* In an order in which each removed one is the last of its list. A search for it took many minutes. */
START_TEST(a_file_may_have_very_many_names)
{
    enum { NAMES = 30000 };
    struct wb_object dir = {1, 5};
    struct wb_copy_names names;
    struct wb_copy_name found;
    uint64_t list = 0;
    char name[16];

    ck_assert_int_eq(wb_copy_names_init(&names, home), 0);
    for (int i = 0; i < NAMES; i++) {
        g_snprintf(name, sizeof(name), "%d", i);
        ck_assert_int_eq(wb_copy_names_add(&names, &list, dir, name), 0);
    }
    /* Some are added again, and removed once more. */
    for (int i = 0; i < NAMES; i++) {
        g_snprintf(name, sizeof(name), "%d", i);
        ck_assert_int_eq(wb_copy_names_remove(&names, &list, dir, name), 0);
        if (i % 100 == 0 && i < NAMES / 2)
            ck_assert_int_eq(wb_copy_names_add(&names, &list, dir, name), 0);
    }
    for (int i = (NAMES / 2 - 1) / 100 * 100; i >= 0; i -= 100) {
        g_snprintf(name, sizeof(name), "%d", i);
        ck_assert_int_eq(wb_copy_names_get(&names, list, &found), 0);
        ck_assert_str_eq(found.name, name);
        ck_assert_int_eq(wb_copy_names_remove(&names, &list, dir, name), 0);
    }
    ck_assert_uint_eq(list, 0);
    wb_copy_names_deinit(&names);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *tests = tcase_create("table");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, written_entries_are_there);
    tcase_add_test(tests, names_are_those_that_were_added);
    tcase_add_test(tests, a_file_may_have_very_many_names);
    tcase_set_timeout(tests, 60);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
