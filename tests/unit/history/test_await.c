/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Waiting until nothing at or before a moment is under way, beside a writer. */
#include "history_tree.h"

#include "wayback/when.h"
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>

static struct wb_store *reader;
static struct wb_history *beside;

static void setup_reader(void)
{
    struct wb_error why;

    setup();
    ck_assert_msg(wb_store_open(&reader, tree.store->src_fd, NULL, 0, &why) == 0, "%s", why.text);
    ck_assert_int_eq(wb_history_open(&beside, reader), 0);
}

static void teardown_reader(void)
{
    wb_history_free(beside);
    wb_store_free(reader);
    teardown();
}

/* A change that was announced, at `when`. */
static int announce(int64_t when)
{
    struct wb_object root = tree.store->header.root;
    int slot = wb_inflight_begin(tree.store, when, root, WB_FILE_CATALOG, WB_OBJECT_NONE, WB_FILE_UNDO, 1);

    ck_assert_int_ge(slot, 0);
    return slot;
}

static atomic_bool over;

static void *end_later(void *data)
{
    const struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};

    nanosleep(&pause, NULL);
    over = true;
    wb_inflight_end(tree.store, *(int *)data);
    return NULL;
}

START_TEST(a_change_under_way_at_the_moment_is_waited_for)
{
    int64_t when = now() - 10 * WB_WHEN_SECOND;
    int slot = announce(when);
    pthread_t thread;

    over = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, end_later, &slot), 0);
    ck_assert_int_eq(wb_history_wait_daemon(beside, when), 0);
    ck_assert(over);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_later_change_is_not_waited_for)
{
    int64_t when = now() - 10 * WB_WHEN_SECOND;
    int slot = announce(when + 1);

    /* It would wait for half a minute, and fail. */
    ck_assert_int_eq(wb_history_wait_daemon(beside, when), 0);
    wb_inflight_end(tree.store, slot);
}
END_TEST

START_TEST(a_when_may_be_taken_and_not_be_announced_yet)
{
    int64_t when = wb_when_now();

    ck_assert_int_eq(wb_history_wait_daemon(beside, when), 0);
    ck_assert_int_gt(wb_when_now(), when + 50 * 1000 * 1000);
}
END_TEST

START_TEST(a_change_of_a_dead_process_is_not_waited_for)
{
    struct wb_error why;

    announce(now() - 10 * WB_WHEN_SECOND);
    ck_assert(wb_store_is_held(reader));
    /* As after SIGKILL: the slot is still there, the lock is not. */
    wb_history_free(history);
    wb_store_free(tree.store);
    ck_assert(!wb_store_is_held(reader));
    ck_assert_int_eq(wb_history_wait_daemon(beside, wb_when_now()), 0);
    ck_assert_msg(wb_store_open(&tree.store, reader->src_fd, NULL, WB_STORE_WRITE, &why) == 0, "%s", why.text);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    ck_assert(wb_store_is_held(reader));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("await");
    TCase *cases = tcase_create("await");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(cases, setup_reader, teardown_reader);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, a_change_under_way_at_the_moment_is_waited_for);
    tcase_add_test(cases, a_later_change_is_not_waited_for);
    tcase_add_test(cases, a_when_may_be_taken_and_not_be_announced_yet);
    tcase_add_test(cases, a_change_of_a_dead_process_is_not_waited_for);
    suite_add_tcase(suite, cases);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
