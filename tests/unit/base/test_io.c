/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/permute.h"
#include "base/xattr.h"
#include "wayback/error.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Full transfers, atomic replace, and the small functions of src/base. */

static int temporary_dir(char path[64])
{
    int fd;

    strcpy(path, "/tmp/wayback-io-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(path));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* The vector that the authors of the cipher published. */
START_TEST(numbers_are_permuted_and_restored)
{
    static const uint32_t key[4] = {0x03020100, 0x0b0a0908, 0x13121110, 0x1b1a1918};
    const uint64_t plain = UINT64_C(0x3b7265747475432d), permuted = UINT64_C(0x8c6fa548454e028b);
    struct wb_permutation permutation;

    wb_permutation_init(&permutation, key);
    ck_assert_uint_eq(wb_permute(&permutation, plain), permuted);
    for (uint64_t number = 1; number; number <<= 1)
        ck_assert_uint_eq(wb_unpermute(&permutation, wb_permute(&permutation, number)), number);
}
END_TEST

START_TEST(memory_for_transfers_begins_with_a_page)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 1 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *data = wb_alloc_transfer(sizes[i]);

        ck_assert_ptr_nonnull(data);
        ck_assert_uint_eq((uintptr_t)data % 4096, 0);
        memset(data, 1, sizes[i]);
        free(data);
    }
    ck_assert_ptr_null(wb_alloc_transfer(SIZE_MAX));
}
END_TEST

/* A descriptor closed early by hand is closed again at the end of its scope: by then the number may be another's. */
START_TEST(a_closed_descriptor_is_forgotten)
{
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = opendir("/");

    ck_assert_int_ge(fd, 0);
    wb_close_fd(&fd);
    ck_assert_int_eq(fd, -1);
    ck_assert_ptr_nonnull(dir);
    wb_close_dir(&dir);
    ck_assert_ptr_null(dir);
}
END_TEST

START_TEST(reads_stop_at_the_end_of_the_file)
{
    char path[64], data[16];
    _cleanup_close_ int dir = temporary_dir(path);
    _cleanup_close_ int fd = openat(dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t n;

    ck_assert_int_eq(wb_pwrite_full(fd, "0123456789", 10, 3), 0);
    ck_assert_int_eq(wb_pread_full(fd, data, 16, 0, &n), 0);
    ck_assert_uint_eq(n, 13);
    ck_assert_mem_eq(data, "\0\0\0" "0123456789", 13);
    ck_assert_int_eq(wb_pread_exact(fd, data, 10, 3), 0);
    ck_assert_mem_eq(data, "0123456789", 10);
    ck_assert_int_eq(wb_pread_exact(fd, data, 11, 3), -ENODATA);
    ck_assert_int_eq(wb_pread_exact(fd, data, 0, 99), 0);
    ck_assert_int_eq(wb_pread_full(dir, data, 16, 0, &n), -EISDIR);
    ck_assert_int_eq(wb_pwrite_full(-1, "x", 1, 0), -EBADF);
    unlinkat(dir, "f", 0);
    rmdir(path);
}
END_TEST

START_TEST(vectors_are_written_whole)
{
    enum { COUNT = 2500 };
    static struct iovec iov[COUNT];
    static char cells[COUNT], back[COUNT + 8];
    char path[64];
    _cleanup_close_ int dir = temporary_dir(path);
    _cleanup_close_ int fd = openat(dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t n;

    /* More than IOV_MAX, with empty ones in between. */
    for (int i = 0; i < COUNT; i++) {
        cells[i] = (char)('a' + i % 26);
        iov[i] = (struct iovec){.iov_base = &cells[i], .iov_len = i % 3 ? 1 : 0};
    }
    ck_assert_int_eq(wb_pwritev_full(fd, iov, COUNT, 5), 0);
    ck_assert_int_eq(wb_pread_full(fd, back, sizeof(back), 5, &n), 0);
    ck_assert_uint_eq(n, COUNT - (COUNT + 2) / 3);
    for (int i = 0, at = 0; i < COUNT; i++) {
        if (i % 3)
            ck_assert_int_eq(back[at++], cells[i]);
    }
    ck_assert_int_eq(wb_pwritev_full(fd, NULL, 0, 0), 0);
    unlinkat(dir, "f", 0);
    rmdir(path);
}
END_TEST

START_TEST(a_short_write_is_continued_until_the_error)
{
    struct iovec iov[2] = {{.iov_base = (char[]){"0123456789"}, .iov_len = 10},
                           {.iov_base = (char[]){"abcdefghij"}, .iov_len = 10}};
    struct rlimit limit = {.rlim_cur = 13, .rlim_max = RLIM_INFINITY};
    char path[64], back[32];
    _cleanup_close_ int dir = temporary_dir(path);
    _cleanup_close_ int fd = openat(dir, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t n;

    /* A limit on the size of files makes write(2) short first and fail then. */
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(wb_pwritev_full(fd, iov, 2, 0), -EFBIG);
    ck_assert_int_eq(wb_pread_full(fd, back, sizeof(back), 0, &n), 0);
    ck_assert_uint_eq(n, 13);
    ck_assert_mem_eq(back, "0123456789abc", 13);
    unlinkat(dir, "f", 0);
    rmdir(path);
}
END_TEST

START_TEST(replacing_leaves_the_new_content_and_no_temporary)
{
    char path[64], back[32], long_name[256];
    _cleanup_close_ int dir = temporary_dir(path);
    _cleanup_close_ int path_fd = open(path, O_PATH | O_CLOEXEC);
    _cleanup_close_ int fd = -1;
    struct stat st;
    size_t n;

    umask(0077);
    ck_assert_int_eq(wb_replace_file(dir, "f", "old content", 11, 0600), 0);
    ck_assert_int_eq(wb_replace_file(dir, "f", "new", 3, 0644), 0);
    fd = openat(dir, "f", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(wb_pread_full(fd, back, sizeof(back), 0, &n), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(back, "new", 3);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0644);

    /* It fails as a whole: a directory of that name leaves nothing behind. */
    ck_assert_int_eq(mkdirat(dir, "d", 0700), 0);
    ck_assert_int_eq(wb_replace_file(dir, "d", "x", 1, 0600), -EISDIR);
    memset(long_name, 'n', 255);
    long_name[255] = '\0';
    ck_assert_int_eq(wb_replace_file(dir, long_name, "x", 1, 0600), -ENAMETOOLONG);
    ck_assert_int_eq(unlinkat(dir, "d", AT_REMOVEDIR), 0);
    ck_assert_int_eq(unlinkat(dir, "f", 0), 0);

    ck_assert_int_eq(wb_fsync_dir(dir), 0);
    ck_assert_int_eq(wb_fsync_dir(path_fd), 0);
    ck_assert_int_eq(wb_fsync_dir(-1), -EBADF);
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(the_mode_is_set_through_any_descriptor)
{
    static const int flags[] = {O_PATH, O_RDONLY, O_WRONLY};
    char name[] = "/tmp/wayback-mode-XXXXXX";
    int made = mkstemp(name);
    struct stat st;

    ck_assert_int_ge(made, 0);
    close(made);
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        _cleanup_close_ int fd = open(name, flags[i] | O_CLOEXEC);

        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(wb_chmod_fd(fd, 0600 | i), 0);
        ck_assert_int_eq(stat(name, &st), 0);
        ck_assert_uint_eq(st.st_mode & 07777, 0600 | i);
    }
    unlink(name);
    ck_assert_int_lt(wb_chmod_fd(-1, 0600), 0);
}
END_TEST

START_TEST(extended_attributes_are_the_same_through_any_descriptor)
{
    static const int flags[] = {O_RDONLY, O_PATH};
    char path[64], value[8];
    _cleanup_close_ int dir = temporary_dir(path);
    _cleanup_close_ int made = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    /* If the file system keeps none, both ways report that. */
    int none = fsetxattr(made, "user.a", "four", 4, 0) < 0 ? -errno : 0;

    for (int i = 0; i < 2; i++) {
        _cleanup_close_ int fd = openat(dir, "f", flags[i] | O_CLOEXEC);

        ck_assert_int_eq(wb_getxattr_fd(fd, "user.a", value, sizeof(value)), none ? none : 4);
        ck_assert_int_eq(wb_getxattr_fd(fd, "user.a", value, 2), none ? none : -ERANGE);
        ck_assert_int_eq(wb_getxattr_fd(fd, "user.b", value, sizeof(value)), none ? none : -ENODATA);
        ck_assert_int_eq(wb_removexattr_fd(fd, "user.a"), none);
        ck_assert_int_eq(wb_removexattr_fd(fd, "user.a"), none ? none : -ENODATA);
        if (!none)
            ck_assert_int_eq(fsetxattr(made, "user.a", "four", 4, 0), 0);
    }
    ck_assert_int_lt(wb_getxattr_fd(-1, "user.a", value, sizeof(value)), 0);
    ck_assert_int_lt(wb_removexattr_fd(-1, "user.a"), 0);
}
END_TEST

START_TEST(zero_differs_from_any_single_bit)
{
    uint8_t data[80];

    for (size_t length = 0; length <= sizeof(data); length++) {
        memset(data, 0, sizeof(data));
        ck_assert_int_eq(wb_is_zero(data, length), 1);
        if (length < sizeof(data)) {
            data[length] = 1;
            ck_assert_int_eq(wb_is_zero(data, length), 1);
            data[length] = 0;
        }
        for (size_t i = 0; i < length; i++) {
            data[i] = 0x80;
            ck_assert_int_eq(wb_is_zero(data, length), 0);
            data[i] = 0;
        }
    }
}
END_TEST

START_TEST(the_checksum_is_xxh3)
{
    /* The published values of XXH3_64bits: the bytes on disk may never depend on the library. */
    ck_assert(wb_checksum("", 0) == UINT64_C(0x2d06800538d394c2));
    ck_assert(wb_checksum("a", 1) == UINT64_C(0xe6c632b61e964e1f));
}
END_TEST

START_TEST(a_problem_is_one_line_and_returns_the_error)
{
    struct wb_error why;
    char longest[2048];
    char path[32];

    ck_assert_int_eq(wb_error_set(&why, -EIO, "cannot read '%s'", "a\nb"), -EIO);
    ck_assert_str_eq(why.text, "cannot read 'a\\nb'");
    ck_assert_int_eq(wb_error_set(NULL, -EPERM, "x"), -EPERM);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    wb_error_set(&why, -EIO, "%s", longest);
    ck_assert_uint_eq(strlen(why.text), sizeof(why.text) - 1);
    ck_assert_str_eq(wb_fd_path(17, path), "/proc/self/fd/17");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io");
    TCase *tcase = tcase_create("io");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, numbers_are_permuted_and_restored);
    tcase_add_test(tcase, memory_for_transfers_begins_with_a_page);
    tcase_add_test(tcase, a_closed_descriptor_is_forgotten);
    tcase_add_test(tcase, reads_stop_at_the_end_of_the_file);
    tcase_add_test(tcase, vectors_are_written_whole);
    tcase_add_test(tcase, a_short_write_is_continued_until_the_error);
    tcase_add_test(tcase, replacing_leaves_the_new_content_and_no_temporary);
    tcase_add_test(tcase, the_mode_is_set_through_any_descriptor);
    tcase_add_test(tcase, extended_attributes_are_the_same_through_any_descriptor);
    tcase_add_test(tcase, zero_differs_from_any_single_bit);
    tcase_add_test(tcase, the_checksum_is_xxh3);
    tcase_add_test(tcase, a_problem_is_one_line_and_returns_the_error);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
