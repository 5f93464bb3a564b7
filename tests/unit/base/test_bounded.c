/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads that may not end: the waiting caller continues, and no other one begins for its user. */
#include "base/bounded.h"
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { ANNA = 4001, BEN = 4002 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool may_end;
static unsigned worked, discarded;

static void work(void *data)
{
    (void)data;
    pthread_mutex_lock(&lock);
    worked++;
    pthread_mutex_unlock(&lock);
}

static void work_until_it_may_end(void *data)
{
    work(data);
    pthread_mutex_lock(&lock);
    while (!may_end)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void discard(void *data)
{
    free(data);
    pthread_mutex_lock(&lock);
    discarded++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static int call(uid_t uid, void (*function)(void *data))
{
    void *data = malloc(1);
    int r;

    ck_assert_ptr_nonnull(data);
    r = wb_bounded_call(uid, function, discard, data);
    if (r == 0)
        free(data);
    return r;
}

START_TEST(a_read_that_ends_is_waited_for)
{
    for (unsigned i = 1; i <= 1000; i++) {
        ck_assert_int_eq(call(ANNA, work), 0);
        ck_assert_uint_eq(worked, i);
    }
    ck_assert_uint_eq(discarded, 0);
}
END_TEST

static void *call_often(void *data)
{
    (void)data;
    for (unsigned i = 0; i < 200; i++)
        ck_assert_int_eq(call(ANNA, work), 0);
    return NULL;
}

START_TEST(many_call_at_once)
{
    pthread_t threads[16];

    for (unsigned i = 0; i < 16; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, NULL), 0);
    for (unsigned i = 0; i < 16; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(worked, 16 * 200);
}
END_TEST

START_TEST(a_read_that_does_not_end_is_left)
{
    ck_assert_int_eq(call(ANNA, work_until_it_may_end), -ETIMEDOUT);
    ck_assert_uint_eq(discarded, 0);
    ck_assert_int_eq(call(ANNA, work), -EBUSY);
    ck_assert_uint_eq(discarded, 1);
    ck_assert_uint_eq(worked, 1);
    ck_assert_int_eq(call(BEN, work), 0);
    pthread_mutex_lock(&lock);
    may_end = true;
    pthread_cond_broadcast(&changed);
    while (discarded < 2)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    /* It could be so again at once. */
    ck_assert_int_eq(call(ANNA, work), -EBUSY);
    ck_assert_int_eq(call(BEN, work), 0);
}
END_TEST

START_TEST(a_limited_number_of_users_can_block_a_thread)
{
    for (uid_t uid = 1; uid <= 8; uid++)
        ck_assert_int_eq(call(uid, work_until_it_may_end), -ETIMEDOUT);
    ck_assert_int_eq(call(9, work_until_it_may_end), -EBUSY);
    pthread_mutex_lock(&lock);
    may_end = true;
    pthread_cond_broadcast(&changed);
    while (discarded < 9)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bounded");
    TCase *tcase = tcase_create("bounded");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_read_that_ends_is_waited_for);
    tcase_add_test(tcase, many_call_at_once);
    tcase_add_test(tcase, a_read_that_does_not_end_is_left);
    tcase_add_test(tcase, a_limited_number_of_users_can_block_a_thread);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
