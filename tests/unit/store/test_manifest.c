/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The manifest: logs that were lost or cut are detected, and nothing else is, wherever its writer was killed. */
#include "base/io.h"
#include "store/tables/manifest.h"
#include "store/cache/manifest_logs.h"
#include "store/directory/shard.h"
#include "store/parts.h"
#include "amount.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- calls that change the disk ------------------------------------------------------------------- */

static int calls_left = -1; /* until the process ends; -1: it does not */

static void call(void)
{
    if (calls_left == 0)
        _exit(99);
    calls_left -= calls_left > 0;
}

int renameat(int old_dir, const char *old_path, int new_dir, const char *new_path)
{
    call();
    return (int)syscall(SYS_renameat2, old_dir, old_path, new_dir, new_path, 0);
}

int fsync(int fd)
{
    call();
    return (int)syscall(SYS_fsync, fd);
}

int unlinkat(int dir, const char *path, int flags)
{
    call();
    return (int)syscall(SYS_unlinkat, dir, path, flags);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    call();
    return syscall(SYS_pwrite64, fd, data, length, offset);
}

/* ---- a store ---------------------------------------------------------------------------------------- */

static char top[PLACE_SIZE];
static int src_fd;
static struct wb_store *store;

static void open_store(void)
{
    struct wb_error why;
    int r = wb_store_open(&store, src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
}

static void setup(void)
{
    make_place(top, "manifest");
    src_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(src_fd, 0);
    open_store();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void teardown(void)
{
    calls_left = -1;
    wb_store_free(store);
    close(src_fd);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct wb_object nth(unsigned n)
{
    return (struct wb_object){n + 1, 1};
}

static void append(struct wb_object object)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {0, WB_GAP_REFUSED}};
    struct wb_log *log;

    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, true, &log), 0);
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    ck_assert_int_eq(wb_log_append_locked(log, &record, NULL, 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
}

static int open_log(struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    int fd;

    wb_object_path(object, WB_FILE_UNDO, path);
    fd = openat(store->dir_fd, path, O_RDWR | O_CLOEXEC);
    return fd;
}

static int remove_log(struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    int r = wb_store_drop_log(store, object, WB_FILE_UNDO);

    wb_object_path(object, WB_FILE_UNDO, path);
    return r < 0 ? r : unlinkat(store->dir_fd, path, 0) < 0 ? -errno : 0;
}

/* How many GAPs of damage its log has. */
static unsigned gaps_of(struct wb_object object, int64_t *ret_since)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int fd = open_log(object), r;
    unsigned count = 0;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_log_reader_init(&reader, fd), 0);
    while ((r = wb_log_reader_prev(&reader, &record)) == 0)
        if (record.type == WB_REC_GAP && record.gap.reason == WB_GAP_DAMAGE) {
            count++;
            *ret_since = record.gap.since;
        }
    ck_assert_int_eq(r, WB_END);
    wb_log_reader_deinit(&reader);
    close(fd);
    return count;
}

/* ---- the format --------------------------------------------------------------------------------------- */

START_TEST(a_damaged_bucket_is_never_another)
{
    struct wb_manifest_bucket bucket = {.overflowed = true, .count = 3}, found;
    uint8_t data[WB_MANIFEST_SECTOR], zeros[WB_MANIFEST_SECTOR] = {0};

    for (unsigned i = 0; i < 3; i++)
        bucket.entries[i] = (struct wb_manifest_entry){nth(i), i == 1 ? WB_FILE_CATALOG : WB_FILE_UNDO, 8 * i, i};
    wb_manifest_bucket_encode(&bucket, 7, data);
    ck_assert_int_eq(wb_manifest_bucket_decode(data, 7, &found), 0);
    ck_assert(found.overflowed && found.count == 3 && found.entries[1].file == WB_FILE_CATALOG);
    ck_assert_uint_eq(found.entries[2].end, 16);
    ck_assert_int_eq(found.entries[2].when, 2);
    ck_assert_int_eq(wb_manifest_bucket_decode(data, 8, &found), -EBADMSG);
    ck_assert_int_eq(wb_manifest_bucket_decode(zeros, 7, &found), -EBADMSG);
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] ^= 1;
        ck_assert_int_eq(wb_manifest_bucket_decode(data, 7, &found), -EBADMSG);
        data[i] ^= 1;
    }
}
END_TEST

/* ---- entries ------------------------------------------------------------------------------------------- */

static int count_entry(const struct wb_manifest_entry *entry, void *data)
{
    (*(unsigned *)data)++;
    return 0;
}

/* All of them in one shard, so that its table grows again and again. */
START_TEST(written_entries_are_found_again)
{
    enum { COUNT = 20000, SHARD = 5 };
    struct wb_manifest_entry entry;
    unsigned count = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        struct wb_log log = {.tail = 8 * (i + 1), .last_when = i + 1, .unlisted = true};

        wb_manifest_note(store->manifest, (struct wb_object){i << 8 | SHARD, 1}, i % 2, &log);
    }
    wb_manifest_logs_capture(store);
    wb_manifest_write(store);
    for (int turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < COUNT; i++) {
            bool gone = turn == 1 && i % 3 == 0;
            struct wb_object object = {i << 8 | SHARD, 1};

            ck_assert_int_eq(wb_manifest_find(store, object, i % 2, &entry), !gone);
            ck_assert(gone || (entry.end == 8 * (i + 1) && entry.when == i + 1));
            ck_assert_int_eq(wb_manifest_find(store, object, !(i % 2), &entry), 0);
            if (turn == 0 && i % 3 == 0)
                ck_assert_int_eq(wb_manifest_withdraw(store, object, i % 2, false), 0);
        }
        ck_assert_int_eq(wb_manifest_sync(store), 0);
    }
    ck_assert_int_eq(wb_manifest_each(store, SHARD, count_entry, &count), 0);
    ck_assert_uint_eq(count, COUNT - (COUNT + 2) / 3);
}
END_TEST

START_TEST(an_entry_waits_until_its_log_is_on_the_disk)
{
    struct wb_manifest_entry entry;

    append(nth(0));
    ck_assert_int_eq(wb_manifest_find(store, nth(0), WB_FILE_UNDO, &entry), 0);
    wb_manifest_write(store);
    ck_assert_int_eq(wb_manifest_find(store, nth(0), WB_FILE_UNDO, &entry), 0);
    wb_manifest_logs_capture(store);
    append(nth(1)); /* this one is not captured */
    wb_manifest_write(store);
    ck_assert_int_eq(wb_manifest_find(store, nth(0), WB_FILE_UNDO, &entry), 1);
    ck_assert_int_eq(wb_manifest_find(store, nth(1), WB_FILE_UNDO, &entry), 0);
    /* Nor one that was dropped after it was captured. */
    wb_manifest_logs_capture(store);
    ck_assert_int_eq(remove_log(nth(1)), 0);
    wb_manifest_write(store);
    ck_assert_int_eq(wb_manifest_find(store, nth(1), WB_FILE_UNDO, &entry), 0);
}
END_TEST

/* ---- logs that are lost ----------------------------------------------------------------------------------- */

enum { DELETED, CUT, CUT_WITHIN, ZEROED, WAYS };

static void damage(struct wb_object object, int way, uint64_t length)
{
    char path[WB_OBJECT_PATH_MAX];
    int fd = open_log(object);
    uint8_t zeros[64] = {0};

    wb_object_path(object, WB_FILE_UNDO, path);
    if (way == DELETED)
        ck_assert_int_eq(unlinkat(store->dir_fd, path, 0), 0);
    else if (way == ZEROED)
        ck_assert_int_eq(wb_pwrite_full(fd, zeros, sizeof(zeros), length - sizeof(zeros)), 0);
    else
        ck_assert_int_eq(ftruncate(fd, (off_t)(way == CUT ? length / 2 : length - 3)), 0);
    close(fd);
}

START_TEST(a_lost_end_becomes_a_gap)
{
    struct wb_manifest_entry entry;
    struct wb_object object = nth(3), other = nth(4);
    struct wb_error why;
    struct wb_store *reader;
    int64_t since = -1;
    struct wb_log *log;

    append(object);
    append(object);
    append(other);
    wb_store_free(store);
    open_store();
    ck_assert_int_eq(wb_manifest_find(store, object, WB_FILE_UNDO, &entry), 1);
    damage(object, _i, entry.end);
    ck_assert_int_eq(wb_store_open(&reader, src_fd, NULL, 0, &why), 0);
    ck_assert_int_eq(wb_store_tail_is_lost(reader, object, WB_FILE_UNDO), WB_TAIL_DAMAGED);
    ck_assert_int_eq(wb_store_tail_is_lost(reader, other, WB_FILE_UNDO), WB_TAIL_SOUND);
    ck_assert(_i != DELETED || wb_store_open_file(reader, object, WB_FILE_UNDO, O_RDONLY) == -EIO);
    ck_assert_int_eq(wb_store_tail_is_lost(store, object, WB_FILE_UNDO), WB_TAIL_SOUND); /* a GAP says so */
    ck_assert_int_eq(wb_store_tail_is_lost(reader, object, WB_FILE_UNDO), WB_TAIL_SOUND);
    wb_store_free(reader);
    ck_assert_uint_eq(gaps_of(object, &since), 1);
    ck_assert(_i == DELETED ? since == 0 : since > 0);
    ck_assert_uint_eq(gaps_of(other, &since), 0);
    /* Once is enough. */
    wb_store_free(store);
    open_store();
    ck_assert_int_eq(wb_store_get_log(store, object, WB_FILE_UNDO, false, &log), 0);
    wb_store_put_log(store, log);
    append(object);
    ck_assert_uint_eq(gaps_of(object, &since), 1);
}
END_TEST

/* Records are never cut off below the listed length. */
START_TEST(a_missing_table_is_not_an_empty_one)
{
    struct wb_manifest_entry entry;

    append(nth(3));
    wb_store_free(store);
    open_store();
    ck_assert_int_eq(unlinkat(store->dir_fd, WB_MANIFEST_NAME "/04", 0), 0);
    ck_assert_int_eq(wb_manifest_find(store, nth(3), WB_FILE_UNDO, &entry), -EBADMSG);
    ck_assert_int_eq(wb_store_open_file(store, nth(3), WB_FILE_UNDO, O_RDONLY), -EIO);
    ck_assert_int_eq(wb_store_open_file(store, nth(4), WB_FILE_UNDO, O_RDONLY), -ENOENT);
    ck_assert_int_eq(wb_manifest_rebuild(store, 4), 0);
    wb_store_free(store);
    open_store();
    ck_assert_int_eq(wb_manifest_find(store, nth(3), WB_FILE_UNDO, &entry), 1);
}
END_TEST

/* ---- kills -------------------------------------------------------------------------------------------------- */

#define OBJECTS 40
#define CALLS 160

static void work(unsigned seed)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(seed);

    for (int i = 0; i < 60; i++) {
        struct wb_object object = nth((unsigned)g_rand_int_range(rand, 0, OBJECTS) * 256 * (seed % 2) +
                                      (unsigned)g_rand_int_range(rand, 0, OBJECTS) * !(seed % 2));

        if (g_rand_int_range(rand, 0, 4) > 0)
            append(object);
        else if (wb_store_has_log(store, object, WB_FILE_UNDO) > 0)
            ck_assert_int_eq(remove_log(object), 0);
        if (i % 10 == 9)
            ck_assert_int_eq(wb_store_sync_listed(store), 0);
    }
}

static int is_sound(const struct wb_manifest_entry *entry, void *data)
{
    ck_assert_int_eq(wb_manifest_check(store, entry->object, entry->file), 0);
    (*(unsigned *)data)++;
    return 0;
}

static int check_log(void *data, int fd, const char *name)
{
    struct wb_object object;
    enum wb_object_file file;
    int64_t since;

    ck_assert_int_eq(wb_object_file_parse(name, &object, &file), 0);
    if (file == WB_FILE_UNDO && wb_store_has_log(store, object, file) > 0) {
        ck_assert_uint_eq(gaps_of(object, &since), 0);
        (*(unsigned *)data)++;
    }
    return 0;
}

/* A log has an entry as soon as the store was closed again, and no entry is of a log that does not exist. */
START_TEST(killed_at_any_call_it_lists_nothing_that_is_not_there)
{
    unsigned count = 0, logs = 0;
    int status;
    pid_t child;

    wb_store_free(store);
    store = NULL;
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        open_store();
        calls_left = _i * CALLS / amount(CALLS, 20);
        work((unsigned)_i);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 99 || WEXITSTATUS(status) == 0));
    for (int turn = 0; turn < 2; turn++) {
        open_store();
        count = logs = 0;
        for (unsigned shard = 0; shard < WB_SHARDS; shard++) {
            ck_assert_int_eq(wb_manifest_each(store, shard, is_sound, &count), 0);
            ck_assert_int_eq(wb_shard_each(store->dir_fd, shard, check_log, &logs), 0);
        }
        wb_store_free(store);
        store = NULL;
    }
    ck_assert_uint_eq(count, logs);
    open_store();
}
END_TEST

/* ---- several at once ------------------------------------------------------------------------------------------ */

static atomic_bool stop;

static void *list_again_and_again(void *data)
{
    while (!atomic_load(&stop)) {
        wb_manifest_logs_capture(store);
        wb_manifest_write(store);
    }
    return NULL;
}

START_TEST(listing_continues_while_logs_come_and_go)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);
    struct wb_error why;
    struct wb_store *reader;
    unsigned count = 0;
    pthread_t thread;

    ck_assert_int_eq(wb_store_open(&reader, src_fd, NULL, 0, &why), 0);
    atomic_store(&stop, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, list_again_and_again, NULL), 0);
    for (int i = 0; i < amount(4000, 1000); i++) {
        struct wb_object object = nth((unsigned)g_rand_int_range(rand, 0, OBJECTS) * 256);

        if (g_rand_int_range(rand, 0, 3) > 0)
            append(object);
        else if (wb_store_has_log(store, object, WB_FILE_UNDO) > 0)
            ck_assert_int_eq(remove_log(object), 0);
        object = nth((unsigned)g_rand_int_range(rand, 0, OBJECTS) * 256);
        ck_assert_int_le(wb_manifest_check(reader, object, WB_FILE_UNDO), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    wb_store_free(reader);
    ck_assert_int_eq(wb_manifest_each(store, 1, is_sound, &count), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("manifest");
    TCase *tcase = tcase_create("manifest");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_damaged_bucket_is_never_another);
    tcase_add_test(tcase, written_entries_are_found_again);
    tcase_add_test(tcase, an_entry_waits_until_its_log_is_on_the_disk);
    tcase_add_loop_test(tcase, a_lost_end_becomes_a_gap, 0, WAYS);
    tcase_add_test(tcase, a_missing_table_is_not_an_empty_one);
    tcase_add_loop_test(tcase, killed_at_any_call_it_lists_nothing_that_is_not_there, 0, amount(CALLS, 20));
    tcase_add_loop_test(tcase, listing_continues_while_logs_come_and_go, 0, 3);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
