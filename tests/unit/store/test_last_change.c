/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* When the tree changed last, as a store knows it over restarts, kills and power cuts. */
#include "base/io.h"
#include "store/store.h"
#include "place.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char top[PLACE_SIZE];
static int src_fd;

static void setup(void)
{
    make_place(top, "change");
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
    struct wb_error why;
    int r = wb_store_open(&store, src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    ck_assert_msg(r == 0, "%d: %s", r, why.text);
    return store;
}

/* As if a change had been made, and perhaps killed before its end. */
static int64_t change(struct wb_store *store, bool end)
{
    int64_t when = wb_store_tick(store);
    int slot = wb_inflight_begin(store, when, (struct wb_object){5, 5}, WB_FILE_UNDO, WB_OBJECT_NONE,
                                 WB_FILE_UNDO, 1);

    ck_assert_int_ge(slot, 0);
    if (end)
        wb_inflight_end(store, slot);
    return when;
}

/* A reader knows it as well, while it is under way and afterwards. */
static void check_readers(const struct wb_store *store)
{
    struct wb_store *reader = NULL;
    struct wb_error why;

    ck_assert_int_eq(wb_store_open(&reader, src_fd, NULL, 0, &why), 0);
    ck_assert_int_eq(wb_store_look_for_change(reader), wb_store_last_change(store));
    wb_store_free(reader);
}

START_TEST(the_newest_change_is_known_and_ticks_are_no_changes)
{
    struct wb_store *store = open_store();
    int64_t when = change(store, true);

    wb_store_tick(store);
    ck_assert_int_eq(wb_store_last_change(store), when);
    check_readers(store);
    wb_store_sync_all(store);
    wb_store_free(store);
    store = open_store();
    ck_assert_int_eq(wb_store_last_change(store), when);
    wb_store_tick(store);
    when = change(store, true);
    ck_assert_int_eq(wb_store_last_change(store), when);
    when = change(store, false);
    ck_assert_int_eq(wb_store_last_change(store), when);
    check_readers(store);
    wb_store_free(store);
}
END_TEST

static struct wb_store *reopen_with(struct wb_store *store, int fd, const uint8_t data[4096])
{
    wb_store_free(store);
    ck_assert_int_eq(wb_pwrite_full(fd, data, 4096, 0), 0);
    return open_store();
}

START_TEST(the_newest_change_survives_a_kill_and_is_not_missed_after_a_power_cut)
{
    struct wb_store *store = open_store();
    int fd = openat(src_fd, ".wayback/inflight", O_RDWR | O_CLOEXEC);
    int64_t synced, under_way, when;
    uint8_t data[4096];
    uint64_t boot = 1;

    synced = change(store, true);
    ck_assert_int_eq(wb_store_sync_common(store), 0);
    when = change(store, true);
    wb_store_tick(store);
    ck_assert_int_eq(wb_pread_exact(fd, data, sizeof(data), 0), 0);
    store = reopen_with(store, fd, data);
    ck_assert_int_eq(wb_store_last_change(store), when);

    under_way = change(store, false);
    ck_assert_int_eq(wb_pread_exact(fd, data, sizeof(data), 0), 0);
    store = reopen_with(store, fd, data);
    ck_assert_int_eq(wb_store_last_change(store), under_way);
    ck_assert_int_eq(wb_inflight_clear(store), 0);
    ck_assert_int_eq(wb_pread_exact(fd, data, sizeof(data), 0), 0);
    store = reopen_with(store, fd, data);
    ck_assert_int_eq(wb_store_last_change(store), under_way);

    /* The mark is ahead: changes after the last sync are unknown, and assumed. */
    memcpy(data + 24, &boot, sizeof(boot));
    memset(data + 64, 0, sizeof(data) - 64);
    store = reopen_with(store, fd, data);
    ck_assert_int_gt(wb_store_last_change(store), synced);
    ck_assert_int_gt(wb_store_last_change(store), under_way);
    wb_store_free(store);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("last_change");
    TCase *tests = tcase_create("last_change");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_newest_change_is_known_and_ticks_are_no_changes);
    tcase_add_test(tests, the_newest_change_survives_a_kill_and_is_not_missed_after_a_power_cut);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
