/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The old bytes that are kept: every one that differs, few that do not, and no zeros. */
#include "capture/extents.h"
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 20000
#define SEEDS 30 /* in one process */

static uint8_t old[SIZE], fresh[SIZE];

static void setup(void)
{
    for (size_t i = 0; i < SIZE; i++)
        old[i] = fresh[i] = (uint8_t)(1 + i % 251);
}

static unsigned scan(const void *with, bool to_zero, struct wb_run *runs, unsigned max)
{
    struct wb_run_scan state;
    unsigned count = 0;

    wb_run_scan_init(&state, old, with, to_zero, SIZE);
    while (count < max && wb_run_scan_next(&state, &runs[count]))
        count++;
    return count;
}

START_TEST(equal_bytes_are_not_kept)
{
    struct wb_run runs[4];

    ck_assert_uint_eq(scan(fresh, false, runs, 4), 0);
}
END_TEST

START_TEST(one_byte_is_kept_alone)
{
    struct wb_run runs[4];

    for (size_t at = 0; at < SIZE; at += at < 200 || at > SIZE - 200 ? 1 : 97) {
        fresh[at] ^= 0xff;
        ck_assert_uint_eq(scan(fresh, false, runs, 4), 1);
        ck_assert_uint_eq(runs[0].offset, at);
        ck_assert_uint_eq(runs[0].length, 1);
        ck_assert(!runs[0].zero);
        fresh[at] ^= 0xff;
    }
}
END_TEST

START_TEST(small_gaps_are_merged_and_wide_ones_are_not)
{
    struct wb_run runs[4];

    fresh[1000] = 0;
    fresh[1030] = 0;
    ck_assert_uint_eq(scan(fresh, false, runs, 4), 1);
    ck_assert_uint_eq(runs[0].length, 31);
    fresh[3000] = 0;
    ck_assert_uint_eq(scan(fresh, false, runs, 4), 2);
    ck_assert_uint_eq(runs[1].offset, 3000);
}
END_TEST

START_TEST(everything_is_kept_if_the_new_bytes_are_unknown)
{
    struct wb_run runs[4];

    ck_assert_uint_eq(scan(NULL, false, runs, 4), 1);
    ck_assert_uint_eq(runs[0].offset, 0);
    ck_assert_uint_eq(runs[0].length, SIZE);
}
END_TEST

START_TEST(zeros_are_recognized)
{
    struct wb_run runs[4];

    memset(old + 5000, 0, 3000);
    memset(old + 9000, 0, 100); /* too few */
    ck_assert_uint_eq(scan(NULL, false, runs, 4), 3);
    ck_assert(runs[1].zero);
    ck_assert_uint_ge(runs[1].length, 3000 - 2 * WB_RUN_STEP);
    ck_assert(!runs[2].zero);
    ck_assert_uint_eq(runs[2].offset + runs[2].length, SIZE);
}
END_TEST

START_TEST(zeros_that_become_zeros_are_not_kept)
{
    struct wb_run runs[4];

    memset(old, 0, SIZE);
    ck_assert_uint_eq(scan(NULL, true, runs, 4), 0);
    old[7777] = 1;
    ck_assert_uint_eq(scan(NULL, true, runs, 4), 1);
    ck_assert_uint_eq(runs[0].offset, 7777);
    ck_assert_uint_eq(runs[0].length, 1);
}
END_TEST

/* The promise of the header, on random bytes. */
static void cover_all_that_differs(guint32 seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
    bool to_zero = g_rand_int_range(rand, 0, 4) == 0, unknown = to_zero || g_rand_int_range(rand, 0, 4) == 0;
    size_t length = g_rand_int_range(rand, 1, SIZE), end = 0;
    struct wb_run_scan state;
    struct wb_run run;
    g_autofree uint8_t *kept = g_malloc0(SIZE);

    for (int i = g_rand_int_range(rand, 0, 30); i > 0; i--) {
        size_t at = g_rand_int_range(rand, 0, SIZE), count = g_rand_int_range(rand, 1, 2000);

        memset(old + at, g_rand_boolean(rand) ? 0 : 5, MIN(SIZE - at, count));
        at = g_rand_int_range(rand, 0, SIZE);
        count = g_rand_int_range(rand, 1, 300);
        memset(fresh + at, g_rand_boolean(rand) ? 0 : 6, MIN(SIZE - at, count));
    }
    wb_run_scan_init(&state, old, unknown ? NULL : fresh, to_zero, length);
    while (wb_run_scan_next(&state, &run)) {
        ck_assert_uint_gt(run.length, 0);
        ck_assert_uint_ge(run.offset, end);
        end = run.offset + run.length;
        ck_assert_uint_le(end, length);
        for (size_t i = run.offset; i < end; i++) {
            kept[i] = 1;
            if (run.zero && old[i] != 0) /* no ck_assert for each byte: it is a system call */
                ck_abort_msg("seed %u: byte %zu is no zero", seed, i);
        }
    }
    for (size_t i = 0; i < length; i++)
        if ((to_zero ? old[i] != 0 : unknown || old[i] != fresh[i]) && !kept[i])
            ck_abort_msg("seed %u: byte %zu is lost", seed, i);
}

/* Many in one process: each process ends with a search for leaks. */
START_TEST(random_runs_cover_all_differences)
{
    for (int n = 0; n < SEEDS; n++) {
        setup();
        cover_all_that_differs((guint32)(_i * SEEDS + n));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("extents");
    TCase *tcase = tcase_create("runs");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, equal_bytes_are_not_kept);
    tcase_add_test(tcase, one_byte_is_kept_alone);
    tcase_add_test(tcase, small_gaps_are_merged_and_wide_ones_are_not);
    tcase_add_test(tcase, everything_is_kept_if_the_new_bytes_are_unknown);
    tcase_add_test(tcase, zeros_are_recognized);
    tcase_add_test(tcase, zeros_that_become_zeros_are_not_kept);
    tcase_add_loop_test(tcase, random_runs_cover_all_differences, 0, 300 / SEEDS);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
