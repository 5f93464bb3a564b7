/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Open logs: their number, which of them are synced, and how a closed one is opened. */
#include "base/io.h"
#include "store/parts.h"
#include "store/store.h"
#include "wayback/when.h"
#include "place.h"
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[PLACE_SIZE];
static int src_fd;
static struct wb_error why;

static void setup(void)
{
    make_place(top, "logs");
    src_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(src_fd, 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void teardown(void)
{
    close(src_fd);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct wb_store *open_store(void)
{
    struct wb_store *store = NULL;
    int r = wb_store_open(&store, src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
    return store;
}

static int64_t append(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_record record = {.type = WB_REC_ABORT};
    struct wb_log *log;

    ck_assert_int_eq(wb_store_get_log(store, object, file, true, &log), 0);
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    record.abort.target = record.when - 1;
    ck_assert_int_eq(wb_log_append_locked(log, &record, NULL, 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return record.when;
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Of a process that may have so many descriptors. */
static struct wb_store *open_store_within(rlim_t descriptors)
{
    struct rlimit limit, less;
    struct wb_store *store;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    less = (struct rlimit){MIN(descriptors, limit.rlim_max), limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &less), 0);
    store = open_store();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return store;
}

START_TEST(descriptors_do_not_grow_with_logs)
{
    struct wb_store *store = open_store_within(1024);
    unsigned before = open_descriptors();
    struct wb_log *held[10];

    for (uint64_t i = 0; i < 10; i++)
        ck_assert_int_eq(wb_store_get_log(store, (struct wb_object){i, 9}, WB_FILE_CATALOG, true,
                                          &held[i]), 0);
    for (uint64_t i = 0; i < 1000; i++)
        append(store, (struct wb_object){i, 1}, WB_FILE_UNDO);
    ck_assert_uint_eq(open_descriptors(), before + WB_LOGS_OPEN + 10);
    for (uint64_t i = 0; i < 1000; i++)
        ck_assert_int_eq(wb_store_sync_log(store, (struct wb_object){i, 1}, WB_FILE_UNDO), 0);
    for (int i = 0; i < 10; i++)
        wb_store_put_log(store, held[i]);
    ck_assert_uint_eq(open_descriptors(), before + WB_LOGS_OPEN);
    ck_assert_int_eq(wb_store_sync_all(store), 0);
    ck_assert_uint_eq(open_descriptors(), before + WB_LOGS_OPEN);
    wb_store_free(store);
}
END_TEST

START_TEST(more_logs_are_kept_open_if_there_is_room)
{
    struct wb_store *store = open_store_within(1424);
    unsigned before = open_descriptors();

    for (uint64_t i = 0; i < 1000; i++)
        append(store, (struct wb_object){i, 1}, WB_FILE_UNDO);
    ck_assert_uint_eq(open_descriptors(), before + WB_LOGS_OPEN + 100);
    ck_assert_int_eq(wb_store_sync_all(store), 0);
    ck_assert_uint_eq(open_descriptors(), before + WB_LOGS_OPEN + 100);
    wb_store_free(store);
}
END_TEST

static bool is_dirty(struct wb_log *log)
{
    return __atomic_load_n(&log->dirty, __ATOMIC_RELAXED);
}

/* In place of libc's: a slow disk. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool slow;
    unsigned waiting, done;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

int sync_file_range(int fd, off_t offset, off_t length, unsigned flags)
{
    pthread_mutex_lock(&disk.lock);
    disk.waiting++;
    pthread_cond_broadcast(&disk.change);
    while (disk.slow)
        pthread_cond_wait(&disk.change, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
    return 0;
}

static void *write_logs(void *data)
{
    wb_store_write_logs(data);
    pthread_mutex_lock(&disk.lock);
    disk.done++;
    pthread_cond_broadcast(&disk.change);
    pthread_mutex_unlock(&disk.lock);
    return NULL;
}

/* Two fsyncs at once: the second commits the journal, and with it changes whose records the first is still writing. */
START_TEST(a_write_of_another_thread_is_waited_for)
{
    struct wb_store *store = open_store();
    pthread_t threads[4];

    append(store, (struct wb_object){7, 1}, WB_FILE_UNDO);
    disk.slow = true;
    disk.waiting = disk.done = 0;
    for (unsigned i = 0; i < G_N_ELEMENTS(threads); i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_logs, store), 0);
        pthread_mutex_lock(&disk.lock);
        while (disk.waiting == 0)
            pthread_cond_wait(&disk.change, &disk.lock);
        pthread_mutex_unlock(&disk.lock);
    }
    /* Time enough for a caller that does not wait. */
    g_usleep(50000);
    pthread_mutex_lock(&disk.lock);
    ck_assert_uint_eq(disk.done, 0);
    disk.slow = false;
    pthread_cond_broadcast(&disk.change);
    pthread_mutex_unlock(&disk.lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(threads); i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(disk.done, G_N_ELEMENTS(threads));
    wb_store_free(store);
}
END_TEST

START_TEST(logs_that_were_appended_to_are_synced)
{
    struct wb_store *store = open_store();
    struct wb_object held = {7, 1}, other = {8, 1};
    struct wb_log *log, *again;

    append(store, held, WB_FILE_UNDO);
    append(store, other, WB_FILE_UNDO);
    ck_assert_int_eq(wb_store_get_log(store, held, WB_FILE_UNDO, false, &log), 0);
    ck_assert(is_dirty(log));
    wb_store_write_logs(store);
    ck_assert(!is_dirty(log));
    /* in use all the time */
    append(store, held, WB_FILE_UNDO);
    ck_assert(is_dirty(log));
    wb_store_write_logs(store);
    ck_assert(!is_dirty(log));
    /* in use when it was looked at, and released after it */
    append(store, held, WB_FILE_UNDO);
    wb_store_put_log(store, log);
    wb_store_write_logs(store);
    ck_assert(!is_dirty(log));
    /* not used for a while */
    wb_store_write_logs(store);
    for (unsigned i = 0; i < 20; i++)
        append(store, other, WB_FILE_UNDO);
    append(store, held, WB_FILE_UNDO);
    for (unsigned i = 0; i < 20; i++)
        append(store, other, WB_FILE_UNDO);
    ck_assert(is_dirty(log));
    wb_store_write_logs(store);
    ck_assert(!is_dirty(log));
    ck_assert_int_eq(wb_store_get_log(store, other, WB_FILE_UNDO, false, &again), 0);
    ck_assert(!is_dirty(again));
    wb_store_put_log(store, again);
    wb_store_free(store);
}
END_TEST

/* ---- opening again --------------------------------------------------------------------------- */

static void append_payload(struct wb_log *log, int64_t when, size_t length)
{
    static uint8_t bytes[32768];
    struct wb_record record = {.type = WB_REC_XATTR, .when = when};
    struct iovec payload = {bytes, length};

    memset(bytes, 'x', length);
    record.xattr.object = (struct wb_object){1, 1};
    record.xattr.attrs.mode = S_IFREG | 0644;
    record.xattr.present = true;
    record.xattr.name = "user.a";
    record.xattr.name_length = 6;
    ck_assert_int_eq(wb_log_append_locked(log, &record, &payload, length > 0), 0);
}

static void reopen(struct wb_log **log, uint64_t tail, int64_t last_when)
{
    wb_log_free(*log);
    ck_assert_int_eq(wb_log_open(log, src_fd, "log", false), 0);
    ck_assert_uint_eq((*log)->tail, tail);
    ck_assert_int_eq((*log)->last_when, last_when);
}

START_TEST(a_log_opened_again_continues_at_its_end)
{
    static const size_t lengths[] = {0, 1, 4096, 0, 8000, 9000, 0, 30000, 100};
    struct wb_log *log;
    uint64_t tail = 0;

    ck_assert_int_eq(wb_log_open(&log, src_fd, "log", true), 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        append_payload(log, 10 * i + 10, lengths[i]);
        ck_assert_uint_gt(log->tail, tail);
        /* one byte is missing: that record never existed */
        ck_assert_int_eq(ftruncate(log->fd, (off_t)log->tail - 1), 0);
        reopen(&log, tail, 10 * i);
        append_payload(log, 10 * i + 10, lengths[i]);
        tail = log->tail;
        reopen(&log, tail, 10 * i + 10);
    }
    wb_log_free(log);
}
END_TEST

START_TEST(a_damaged_end_is_not_taken_for_a_record)
{
    struct wb_log *log;
    uint64_t before, tail;

    ck_assert_int_eq(wb_log_open(&log, src_fd, "log", true), 0);
    append_payload(log, 10, 50);
    before = log->tail;
    append_payload(log, 20, 50);
    tail = log->tail;
    /* of the head, which its sum covers: there was a record, but it is unknown which */
    ck_assert_int_eq(wb_pwrite_full(log->fd, "\377", 1, before + 8), 0);
    reopen(&log, tail, 10);
    wb_log_free(log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("logs");
    TCase *tests = tcase_create("logs");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, descriptors_do_not_grow_with_logs);
    tcase_add_test(tests, more_logs_are_kept_open_if_there_is_room);
    tcase_add_test(tests, a_write_of_another_thread_is_waited_for);
    tcase_add_test(tests, logs_that_were_appended_to_are_synced);
    tcase_add_test(tests, a_log_opened_again_continues_at_its_end);
    tcase_add_test(tests, a_damaged_end_is_not_taken_for_a_record);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
