/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The lines that differ: they make the new text of the old one, and are as few as line_count says. */
#include "content/line_count.h"
#include "content/line_diff.h"
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>

#define EVERYTHING 100000

/* "-a +b  c ": the kinds and the first letters. */
static char *diff_of(const char *old, const char *new, guint context)
{
    bool exact;
    g_autoptr(GArray) lines = wb_lines_diff(old, strlen(old), new, strlen(new), context, &exact);
    GString *text = g_string_new(NULL);

    ck_assert(exact);
    for (guint i = 0; i < lines->len; i++) {
        const struct wb_diff_line *line = &g_array_index(lines, struct wb_diff_line, i);

        g_string_append_printf(text, "%s%c%c", line->begins_hunk ? "@" : "", line->kind, *line->text);
    }
    return g_string_free(text, FALSE);
}

static void expect(const char *old, const char *new, guint context, const char *wanted)
{
    g_autofree char *text = diff_of(old, new, context);

    ck_assert_str_eq(text, wanted);
}

START_TEST(small_texts)
{
    expect("", "", 3, "");
    expect("a\n", "a\n", 3, "");
    expect("", "a\n", 3, "@+a");
    expect("a\nb\n", "", 3, "@-a-b");
    expect("a\nb\nc\n", "a\nB\nc\n", 3, "@ a-b+B c");
    expect("a\n", "a", 3, "@-a+a"); /* the end of the line is missing */
    expect("1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nX\n5\n6\n7\n", 1, "@ 3-4+X 5");
    expect("A\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\n4\n5\n6\nX\n", 1, "@-A+1 2@ 6-7+X");
    expect("A\n2\n3\n4\n", "1\n2\n3\nX\n", 1, "@-A+1 2 3-4+X");
}
END_TEST

static char *random_text(GRand *rand)
{
    GString *text = g_string_new(NULL);

    for (gint32 i = g_rand_int_range(rand, 0, 60); i > 0; i--)
        g_string_append_printf(text, "%c\n", 'a' + g_rand_int_range(rand, 0, 6));
    if (text->len > 0 && g_rand_boolean(rand))
        g_string_truncate(text, text->len - 1);
    return g_string_free(text, FALSE);
}

/* The lines of one side, joined; g_free. */
static char *side_of(const GArray *lines, enum wb_line_kind without, guint *ret_only)
{
    GString *text = g_string_new(NULL);
    guint number = 0;

    *ret_only = 0;
    for (guint i = 0; i < lines->len; i++) {
        const struct wb_diff_line *line = &g_array_index(lines, struct wb_diff_line, i);

        if (line->kind == without)
            continue;
        *ret_only += line->kind != WB_LINE_BOTH;
        ck_assert_uint_eq(without == WB_LINE_NEW ? line->old : line->new, ++number);
        g_string_append_len(text, line->text, (gssize)line->length);
    }
    return g_string_free(text, FALSE);
}

START_TEST(random_texts)
{
    GRand *rand = g_rand_new_with_seed(17);

    for (int i = 0; i < 3000; i++) {
        g_autofree char *old = random_text(rand);
        g_autofree char *new = random_text(rand);
        bool exact;
        g_autoptr(GArray) lines = wb_lines_diff(old, strlen(old), new, strlen(new), EVERYTHING, &exact);
        unsigned added, removed;
        guint only_old, only_new;
        g_autofree char *old_side = side_of(lines, WB_LINE_NEW, &only_old);
        g_autofree char *new_side = side_of(lines, WB_LINE_OLD, &only_new);

        ck_assert(exact);
        if (strcmp(old, new) == 0) {
            ck_assert_uint_eq(lines->len, 0);
            continue;
        }
        ck_assert_str_eq(old_side, old);
        ck_assert_str_eq(new_side, new);
        ck_assert(wb_lines_compare(old, strlen(old), new, strlen(new), &added, &removed));
        ck_assert_uint_eq(only_old, removed);
        ck_assert_uint_eq(only_new, added);
    }
    g_rand_free(rand);
}
END_TEST

/* Too different for the shortest script: still one that makes the new text of the old one. */
START_TEST(large_difference)
{
    g_autoptr(GString) old = g_string_new("first\n");
    g_autoptr(GString) new = g_string_new("first\n");
    g_autoptr(GArray) lines = NULL;
    guint only;
    bool exact;

    for (int i = 0; i < 5000; i++) {
        g_string_append_printf(old, "%d\n", i);
        g_string_append_printf(new, "%d\n", 4999 - i);
    }
    lines = wb_lines_diff(old->str, old->len, new->str, new->len, EVERYTHING, &exact);
    ck_assert(!exact);
    g_autofree char *new_side = side_of(lines, WB_LINE_OLD, &only);
    ck_assert_str_eq(new_side, new->str);
    ck_assert_uint_eq(only, 5000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("line_diff");
    TCase *tests = tcase_create("line_diff");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tests, small_texts);
    tcase_add_test(tests, random_texts);
    tcase_add_test(tests, large_difference);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
