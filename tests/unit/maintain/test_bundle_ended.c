/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packing of deleted and replaced files that ends early, has no space, or was killed. */
#include "bundle_releases.h"
#include "maintain/rewrite/tried.h"
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/* ---- syncs -------------------------------------------------------------------------------------- */

static void (*syncing)(void);
static void (*cutting)(void);
static uint64_t free_bytes; /* 0: as many as there are */

int syncfs(int fd)
{
    if (syncing)
        syncing();
    return (int)syscall(SYS_syncfs, fd);
}

int ftruncate(int fd, off_t length)
{
    if (cutting)
        cutting();
    return (int)syscall(SYS_ftruncate, fd, length);
}

int fstatvfs(int fd, struct statvfs *device)
{
    struct statfs found;

    if (syscall(SYS_fstatfs, fd, &found) < 0)
        return -1;
    *device = (struct statvfs){.f_frsize = 1, .f_blocks = 1u << 30,
                               .f_bavail = free_bytes ? free_bytes : found.f_bavail * (uint64_t)found.f_bsize};
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------------- */

static unsigned syncs;

static void count_sync(void)
{
    syncs++;
}

START_TEST(test_nothing_is_synced_for_a_bundle_that_is_dropped)
{
    struct wb_compact some = {.before = WB_WHEN_PRESENT};

    wb_compact_begin(&some, tree.store);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &some, tree_object(&tree, "d"), NULL), 0);
    syncing = count_sync;
    ck_assert_int_eq(wb_compact_finish(&some, -ECANCELED), -ECANCELED);
    syncing = NULL;
    ck_assert_uint_eq(syncs, 0);
    ck_assert_uint_eq(some.bodies.changed, 0);
    ck_assert_uint_eq(some.bodies.new_size, some.bodies.old_size);
    ck_assert(!has(objects[0][1], WB_FILE_BUNDLE));
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, NAMES * (RELEASES - 1));
    check_all();
}
END_TEST

START_TEST(test_in_the_background_it_packs_no_more_than_there_is_space_for)
{
    struct wb_room reserve = {.bytes = 100u << 20};
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .reserve = &reserve};

    /* For the small ones, and not for the four of the large one. */
    free_bytes = reserve.bytes + (2u << 20);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &idle, tree_object(&tree, "d"), NULL), 0);
    ck_assert(idle.lacked_room);
    ck_assert(!has(objects[0][0], WB_FILE_BUNDLE) && has(objects[0][1], WB_FILE_BUNDLE));
    ck_assert_uint_eq(idle.bodies.changed, (NAMES - 1) * (RELEASES - 1));
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, RELEASES - 1);
    free_bytes = 0;
    check_all();
}
END_TEST

static void end(void)
{
    _exit(0);
}

/* Before the first file is emptied. */
static void pack_and_be_killed(void)
{
    pid_t child = fork();
    int status;

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        cutting = end;
        compact(0, NULL);
        _exit(1);
    }
    ck_assert(waitpid(child, &status, 0) == child && status == 0);
    for (unsigned j = 0; j < NAMES; j++)
        ck_assert(has(objects[0][j], WB_FILE_BUNDLE) && length_of(objects[0][j]) > 0);
}

START_TEST(test_a_file_that_a_kill_left_whole_is_emptied_by_the_next_packing)
{
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT};

    pack_and_be_killed();
    check_all();
    ck_assert_int_eq(wb_compact_bodies(tree.store, &idle, tree_object(&tree, "d"), NULL), 0);
    ck_assert_uint_eq(idle.bodies.changed, NAMES * (RELEASES - 1));
    ck_assert_uint_lt(idle.bodies.new_size, idle.bodies.old_size / 2);
    for (unsigned i = 0; i + 1 < RELEASES; i++)
        for (unsigned j = 0; j < NAMES; j++)
            ck_assert(has(objects[i][j], WB_FILE_BUNDLE) && length_of(objects[i][j]) == 0);
    check_all();
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, 0);
}
END_TEST

START_TEST(test_a_whole_file_that_differs_from_its_bundle_is_kept_and_reported)
{
    g_autoptr(GHashTable) tried = wb_tried_new();
    struct wb_compact done = {.before = WB_WHEN_PRESENT, .tried = tried};
    int fd;

    pack_and_be_killed();
    fd = wb_grave_open(tree.store, objects[0][1], false, O_RDWR);
    ck_assert(fd >= 0 && pwrite(fd, "X", 1, 5) == 1);
    close(fd);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &done, tree_object(&tree, "d"), NULL), -EIO);
    ck_assert_uint_eq(done.bodies.changed, NAMES * (RELEASES - 1) - 1);
    ck_assert(has(objects[0][1], WB_FILE_BUNDLE) && length_of(objects[0][1]) > 0);
    ck_assert_uint_eq(length_of(objects[0][2]), 0);
    check_all();
    /* In the background that is reported once, and nothing is synced for it again. */
    syncing = count_sync;
    ck_assert_int_eq(wb_compact_bodies(tree.store, &done, tree_object(&tree, "d"), NULL), 0);
    syncing = NULL;
    ck_assert_uint_eq(syncs, 0);
    ck_assert_uint_gt(length_of(objects[0][1]), 0);
}
END_TEST

START_TEST(test_a_kept_file_is_reported_once_and_not_synced_again)
{
    g_autoptr(GHashTable) tried = wb_tried_new();
    struct wb_compact idle = {.flags = WB_COMPACT_IDLE, .before = WB_WHEN_PRESENT, .tried = tried};
    int fd;

    pack_and_be_killed();
    fd = wb_grave_open(tree.store, objects[0][1], false, O_RDWR);
    ck_assert(fd >= 0 && pwrite(fd, "X", 1, 5) == 1);
    close(fd);
    ck_assert_int_eq(wb_compact_bodies(tree.store, &idle, tree_object(&tree, "d"), NULL), -EIO);
    syncs = 0;
    syncing = count_sync;
    ck_assert_int_eq(wb_compact_bodies(tree.store, &idle, tree_object(&tree, "d"), NULL), 0);
    syncing = NULL;
    ck_assert_uint_eq(syncs, 0);
}
END_TEST

static void take_one_away(void)
{
    char path[WB_OBJECT_PATH_MAX];

    syncing = NULL;
    wb_object_path(objects[0][1], WB_FILE_DATA, path);
    ck_assert_int_eq(unlinkat(tree.store->grave_fd, path, 0), 0);
}

START_TEST(test_a_file_removed_meanwhile_does_not_count)
{
    pack_and_be_killed();
    syncing = take_one_away;
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, NAMES * (RELEASES - 1) - 1);
    ck_assert_ptr_null(syncing);
}
END_TEST

static bool being_read;

static bool is_read(void *data, struct wb_object object)
{
    return being_read && wb_object_equal(object, objects[0][1]);
}

/* Between the names and the emptying, when the lock is free. */
static void pack_meanwhile(void)
{
    if (!has(objects[0][1], WB_FILE_BUNDLE) || length_of(objects[0][1]) == 0)
        return;
    syncing = NULL;
    ck_assert_uint_eq(compact(0, NULL).bodies.changed, NAMES * (RELEASES - 1));
    being_read = true;
}

START_TEST(test_two_threads_that_pack_the_same_lose_nothing)
{
    struct wb_compact done = {.before = WB_WHEN_PRESENT, .in_use = is_read};

    syncing = pack_meanwhile;
    ck_assert_int_eq(wb_compact_bodies(tree.store, &done, tree_object(&tree, "d"), NULL), 0);
    ck_assert_ptr_null(syncing);
    for (unsigned j = 0; j < NAMES; j++)
        ck_assert(has(objects[0][j], WB_FILE_BUNDLE) && length_of(objects[0][j]) == 0);
    check_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bundle_ended");
    TCase *cases = tcase_create("bundle_ended");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(cases, setup_releases, teardown_releases);
    tcase_add_test(cases, test_nothing_is_synced_for_a_bundle_that_is_dropped);
    tcase_add_test(cases, test_in_the_background_it_packs_no_more_than_there_is_space_for);
    tcase_add_test(cases, test_a_file_that_a_kill_left_whole_is_emptied_by_the_next_packing);
    tcase_add_test(cases, test_a_whole_file_that_differs_from_its_bundle_is_kept_and_reported);
    tcase_add_test(cases, test_a_kept_file_is_reported_once_and_not_synced_again);
    tcase_add_test(cases, test_a_file_removed_meanwhile_does_not_count);
    tcase_add_test(cases, test_two_threads_that_pack_the_same_lose_nothing);
    tcase_set_timeout(cases, 120);
    suite_add_tcase(suite, cases);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
