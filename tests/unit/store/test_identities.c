/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The object of an inode: written entries are found, and nothing else; a damaged entry is never another's. */
#include "base/io.h"
#include "random_record.h"
#include "store/identity/identities.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

static char path[] = "/tmp/wayback-identities-XXXXXX";
static int home;

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(path));
    home = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    random_record_seed(1);
}

static void teardown(void)
{
    unlinkat(home, WB_IDENTITIES_NAME, 0);
    close(home);
    g_rmdir(path);
}

static struct wb_identity *random_list(size_t count)
{
    struct wb_identity *list = g_new(struct wb_identity, count);

    for (size_t i = 0; i < count; i++) {
        list[i].inode = (struct wb_object){i / 2 + 1, (int64_t)(i % 2 + 1)};
        list[i].object = (struct wb_object){random_u64() | 1, (int64_t)random_u64()};
    }
    return list;
}

static void check_all(const struct wb_identities *identities, const struct wb_identity *list, size_t count,
                      bool damaged)
{
    for (size_t i = 0; i < count; i++) {
        struct wb_object object = list[i].inode;
        int r = wb_identities_map(identities, &object);

        ck_assert(r == 0 || (damaged && r == -EIO));
        ck_assert(r < 0 || wb_object_equal(object, list[i].object));
    }
}

START_TEST(written_entries_are_found)
{
    static const size_t counts[] = {1, 3, 4, 5, 100, 5000};
    size_t count = counts[_i];
    g_autofree struct wb_identity *list = random_list(count);
    struct wb_identities *identities;

    ck_assert_int_eq(wb_identities_write(home, list, count), 0);
    ck_assert_int_eq(wb_identities_open(&identities, home), 0);
    check_all(identities, list, count, false);
    ck_assert_int_eq(wb_identities_check(identities), 0);
    for (uint64_t ino = 1; ino < 2 * count; ino++) {
        struct wb_object object = {ino, 3};

        ck_assert_int_eq(wb_identities_map(identities, &object), 0);
        ck_assert(object.ino == ino && object.birth == 3);
    }
    wb_identities_free(identities);
}
END_TEST

START_TEST(without_a_file_nothing_is_mapped)
{
    struct wb_object object = {7, 8};
    struct wb_identities *identities;

    ck_assert_int_eq(wb_identities_open(&identities, home), 0);
    ck_assert_ptr_null(identities);
    ck_assert_int_eq(wb_identities_map(identities, &object), 0);
    ck_assert(object.ino == 7 && object.birth == 8);
}
END_TEST

/* Any byte: the table is refused, or an inode is not found for certain, or it is unchanged. */
START_TEST(damage_never_gives_another)
{
    enum { COUNT = 5, SIZE = WB_IDENTITIES_HEAD + 16 * WB_IDENTITY_SIZE };
    g_autofree struct wb_identity *list = random_list(COUNT);
    struct wb_identities *identities;
    uint8_t data[SIZE + 1];
    size_t length;
    int fd;

    ck_assert_int_eq(wb_identities_write(home, list, COUNT), 0);
    fd = openat(home, WB_IDENTITIES_NAME, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(wb_pread_full(fd, data, sizeof(data), 0, &length), 0);
    ck_assert_uint_eq(length, SIZE);
    for (size_t at = 0; at < SIZE; at++) {
        uint8_t wrong = data[at] ^ 0x5a;
        int r;

        ck_assert_int_eq(wb_pwrite_full(fd, &wrong, 1, at), 0);
        r = wb_identities_open(&identities, home);
        ck_assert_int_eq(r, at < WB_IDENTITIES_HEAD ? -EBADMSG : 0);
        if (r == 0) {
            check_all(identities, list, COUNT, true);
            ck_assert_int_eq(wb_identities_check(identities), 1);
        }
        wb_identities_free(identities);
        ck_assert_int_eq(wb_pwrite_full(fd, &data[at], 1, at), 0);
    }
    ck_assert_int_eq(ftruncate(fd, SIZE - 1), 0);
    ck_assert_int_eq(wb_identities_open(&identities, home), -EBADMSG);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identities");
    TCase *tcase = tcase_create("identities");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, written_entries_are_found, 0, 6);
    tcase_add_test(tcase, without_a_file_nothing_is_mapped);
    tcase_add_test(tcase, damage_never_gives_another);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
