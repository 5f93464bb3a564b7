/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "common/pager.h"
#include "common/text.h"
#include <check.h>
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child on a terminal of its own prints through the pager; the parent reads its output. */

static int lines = 3;
static const char *when_colored = NULL;

static void print_in_child(void)
{
    if (wb_color_choose(when_colored) != 0)
        _exit(WB_EXIT_USAGE);
    wb_pager_begin();
    for (int i = 1; i <= lines && !ferror(stdout); i++)
        printf("%sline %d%s\n", wb_color(WB_COLOR_RED), i, wb_color(WB_COLOR_OFF));
    fprintf(stderr, "columns %u\n", wb_pager_columns());
    exit(wb_cli_end());
}

/* Everything the child wrote to its terminal, and its exit status. */
static char *on_a_terminal(const char *pager, int *status)
{
    struct winsize size = {.ws_row = 24, .ws_col = 71};
    GString *seen = g_string_new(NULL);
    char buffer[4096];
    int terminal;
    ssize_t n;
    pid_t child;

    fflush(NULL);
    child = forkpty(&terminal, NULL, NULL, &size);
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        g_unsetenv("PAGER");
        g_unsetenv("NO_COLOR");
        g_setenv("TERM", "xterm", TRUE);
        signal(SIGPIPE, SIG_IGN);
        if (pager)
            g_setenv("WAYBACK_PAGER", pager, TRUE);
        print_in_child();
    }
    while ((n = read(terminal, buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR))
        g_string_append_len(seen, buffer, n);
    close(terminal);
    ck_assert_int_eq(waitpid(child, status, 0), child);
    return g_string_free(seen, FALSE);
}

START_TEST(the_pager_gets_everything_and_is_waited_for)
{
    int status;
    g_autofree char *seen = NULL;

    lines = 3;
    seen = on_a_terminal("sleep 0.2; sed 's/^/paged /'", &status);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_nonnull(strstr(seen, "paged \033[31mline 1\033[m\r\n"));
    ck_assert_ptr_nonnull(strstr(seen, "line 3"));
    /* Errors as well, lest they are painted over; and the width is that of the terminal. */
    ck_assert_ptr_nonnull(strstr(seen, "paged columns 71"));
}
END_TEST

START_TEST(leaving_the_pager_early_is_not_a_failure)
{
    int status;
    g_autofree char *seen = NULL;

    lines = 1000000;
    seen = on_a_terminal("head -n 2", &status);
    ck_assert_int_eq(status, 0);
    ck_assert_ptr_nonnull(strstr(seen, "line 2"));
    ck_assert_ptr_null(strstr(seen, "line 3"));
}
END_TEST

START_TEST(without_a_pager_it_is_printed_all_the_same)
{
    static const char *const none[] = {"", "cat", "no-such-pager-program"};

    lines = 2;
    for (unsigned i = 0; i < G_N_ELEMENTS(none); i++) {
        int status;
        g_autofree char *seen = on_a_terminal(none[i], &status);

        ck_assert_int_eq(status, 0);
        ck_assert_ptr_nonnull(strstr(seen, "line 2"));
    }
}
END_TEST

START_TEST(colours_as_asked_for)
{
    int status;
    g_autofree char *never = NULL;
    g_autofree char *wrong = NULL;

    lines = 1;
    when_colored = "never";
    never = on_a_terminal("", &status);
    ck_assert_ptr_null(strchr(never, '\033'));
    when_colored = "sometimes";
    wrong = on_a_terminal("", &status);
    ck_assert_int_eq(WEXITSTATUS(status), WB_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(wrong, "sometimes"));
    when_colored = NULL;
    /* Here standard output is a file or a pipe. */
    if (!isatty(STDOUT_FILENO)) {
        ck_assert_int_eq(wb_color_choose("auto"), 0);
        ck_assert_str_eq(wb_color(WB_COLOR_RED), "");
    }
    ck_assert_int_eq(wb_color_choose("always"), 0);
    ck_assert_str_eq(wb_color(WB_COLOR_RED), "\033[31m");
    ck_assert_int_eq(wb_color_choose(NULL), 0);
}
END_TEST

START_TEST(colours_take_no_room)
{
    g_autofree char *whole = wb_text_cut("\033[31mred\033[m", 3);
    g_autofree char *cut = wb_text_cut("\033[31mreddish\033[m", 4);

    ck_assert_uint_eq(wb_text_width("\033[31mred\033[m"), 3);
    ck_assert_str_eq(whole, "\033[31mred\033[m");
    ck_assert_str_eq(cut, "\033[31mred\xe2\x80\xa6\033[m");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pager");
    TCase *tests = tcase_create("pager");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, the_pager_gets_everything_and_is_waited_for);
    tcase_add_test(tests, leaving_the_pager_early_is_not_a_failure);
    tcase_add_test(tests, without_a_pager_it_is_printed_all_the_same);
    tcase_add_test(tests, colours_as_asked_for);
    tcase_add_test(tests, colours_take_no_room);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
