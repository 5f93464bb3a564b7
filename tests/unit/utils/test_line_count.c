/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lines added and removed, against the longest common subsequence by the textbook. */
#include "content/line_count.h"
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *old, const char *new, unsigned added, unsigned removed)
{
    unsigned plus = 0, minus = 0;

    ck_assert(wb_lines_compare(old, strlen(old), new, strlen(new), &plus, &minus));
    ck_assert_msg(plus == added && minus == removed, "+%u -%u instead of +%u -%u", plus, minus, added, removed);
}

START_TEST(small_texts)
{
    expect("", "", 0, 0);
    expect("", "a\n", 1, 0);
    expect("a\nb\n", "", 0, 2);
    expect("a\nb\nc\n", "a\nB\nc\n", 1, 1);
    expect("a\nb\nc\n", "a\nc\n", 0, 1);
    expect("a\n", "a", 1, 1); /* the end of the line is missing */
    expect("a\na\n", "a\na\na\n", 1, 0);
    expect("a\nb\n", "b\na\n", 1, 1);
    expect("\n\n", "\n", 0, 1);
}
END_TEST

START_TEST(no_text)
{
    unsigned plus, minus;

    ck_assert(!wb_lines_compare("a\0b", 3, "a", 1, &plus, &minus));
    ck_assert(!wb_lines_compare("a", 1, "\0", 1, &plus, &minus));
}
END_TEST

#define LINES 60

static char *text_of(const char *letters)
{
    GString *text = g_string_new(NULL);

    for (; *letters; letters++)
        g_string_append_printf(text, "%c\n", *letters);
    return g_string_free(text, FALSE);
}

static unsigned common(const char *a, const char *b)
{
    unsigned best[LINES + 1][LINES + 1] = {{0}};
    size_t n = strlen(a), m = strlen(b);

    for (size_t i = 1; i <= n; i++)
        for (size_t k = 1; k <= m; k++)
            best[i][k] = a[i - 1] == b[k - 1] ? best[i - 1][k - 1] + 1 : MAX(best[i - 1][k], best[i][k - 1]);
    return best[n][m];
}

START_TEST(random_texts)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);

    for (int round = 0; round < 200; round++) {
        char letters[2][LINES + 1] = {{0}};
        g_autofree char *old = NULL;
        g_autofree char *new = NULL;
        unsigned kept;

        for (int side = 0; side < 2; side++) {
            int length = g_rand_int_range(rand, 0, LINES + 1), kinds = g_rand_int_range(rand, 1, 12);

            for (int i = 0; i < length; i++)
                letters[side][i] = (char)('a' + g_rand_int_range(rand, 0, kinds));
        }
        old = text_of(letters[0]);
        new = text_of(letters[1]);
        kept = common(letters[0], letters[1]);
        expect(old, new, (unsigned)strlen(letters[1]) - kept, (unsigned)strlen(letters[0]) - kept);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("line_count");
    TCase *tcase = tcase_create("lines");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, small_texts);
    tcase_add_test(tcase, no_text);
    tcase_add_loop_test(tcase, random_texts, 0, 5);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
