/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The checks of requests to the page of vweb. */
#include "vweb/guard.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(tokens)
{
    char token[WEB_TOKEN_TEXT], other[WEB_TOKEN_TEXT];

    ck_assert(web_token_make(token) && web_token_make(other));
    ck_assert_uint_eq(strlen(token), 64);
    ck_assert_str_ne(token, other);
    ck_assert(web_token_is(token, token));
    ck_assert(!web_token_is(token, other));
    ck_assert(!web_token_is(token, NULL));
    ck_assert(!web_token_is(token, ""));
    token[63] = '\0';
    ck_assert(!web_token_is(other, token));
}
END_TEST

START_TEST(hosts)
{
    static const char *const ours[] = {"localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]", "[::1]:9"};
    static const char *const others[] = {"", "evil.example", "localhost.evil.example", "localhost:", "localhost:8x",
                                         "127.0.0.1.evil.example:80", "[::1", "[::1]x", "[]:1", "::1", "192.168.1.1",
                                         "localhost:80:90", "localhost@evil.example", " localhost"};
    struct web web = {.hosts = g_ptr_array_new()};

    g_ptr_array_add(web.hosts, (char *)"localhost");
    g_ptr_array_add(web.hosts, (char *)"127.0.0.1");
    g_ptr_array_add(web.hosts, (char *)"::1");
    for (size_t i = 0; i < G_N_ELEMENTS(ours); i++)
        ck_assert_msg(web_host_is_ours(&web, ours[i]), "%s", ours[i]);
    for (size_t i = 0; i < G_N_ELEMENTS(others); i++)
        ck_assert_msg(!web_host_is_ours(&web, others[i]), "%s", others[i]);
    ck_assert(!web_host_is_ours(&web, NULL));
    web.any_address = true;
    ck_assert(web_host_is_ours(&web, "192.168.1.1:80") && web_host_is_ours(&web, "[fe80::1]:80"));
    ck_assert(!web_host_is_ours(&web, "evil.example"));
    g_ptr_array_unref(web.hosts);
}
END_TEST

START_TEST(origins)
{
    ck_assert(web_origin_is_ours("http://localhost:80", "localhost:80"));
    ck_assert(!web_origin_is_ours("http://localhost:81", "localhost:80"));
    ck_assert(!web_origin_is_ours("https://localhost:80", "localhost:80"));
    ck_assert(!web_origin_is_ours("null", "localhost:80"));
    ck_assert(!web_origin_is_ours(NULL, "localhost:80"));
    ck_assert(!web_origin_is_ours("http://", NULL));
}
END_TEST

START_TEST(paths)
{
    static const char *const fine[] = {"", "a", "a/b", "...", ".hidden", "a/..b", "a b", "\xff\n"};
    static const char *const wrong[] = {"/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../b", "./a"};
    g_autofree char *long_name = g_strnfill(256, 'x');
    g_autofree char *long_path = g_strnfill(8192, 'x');

    for (size_t i = 0; i < G_N_ELEMENTS(fine); i++)
        ck_assert_msg(web_path_is_fine(fine[i]), "%s", fine[i]);
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++)
        ck_assert_msg(!web_path_is_fine(wrong[i]), "%s", wrong[i]);
    ck_assert(!web_path_is_fine(long_name) && !web_path_is_fine(long_path));
}
END_TEST

/* A ticket is good once, and there are not many. */
START_TEST(tickets)
{
    struct web_tickets *kept = web_tickets_new();
    char text[WEB_TOKEN_TEXT], more[WEB_TOKEN_TEXT];
    struct web_ticket *ticket;
    unsigned count = 1;

    ck_assert(web_tickets_add(kept, "a/b@1", "b", text));
    while (count < 1000 && web_tickets_add(kept, "x", "x", more))
        count++;
    ck_assert_uint_eq(count, 64);
    ck_assert_ptr_null(web_tickets_take(kept, "x"));
    ticket = web_tickets_take(kept, text);
    ck_assert_str_eq(ticket->path, "a/b@1");
    ck_assert_str_eq(ticket->name, "b");
    web_ticket_free(ticket);
    ck_assert_ptr_null(web_tickets_take(kept, text));
    ck_assert(web_tickets_add(kept, "x", "x", more));
    web_tickets_free(kept);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("web_guard");
    TCase *tests = tcase_create("web_guard");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tests, tokens);
    tcase_add_test(tests, hosts);
    tcase_add_test(tests, origins);
    tcase_add_test(tests, paths);
    tcase_add_test(tests, tickets);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
