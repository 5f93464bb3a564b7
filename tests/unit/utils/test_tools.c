/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/copy/copy.h"
#include "client/fd.h"
#include "common/json.h"
#include "client/path.h"
#include "common/table.h"
#include "common/text.h"
#include "wayback/quote.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* Shared functions of the tools, on plain directories: paths as text, words, copying. */

static char dir_path[64];
static int dir_fd;

static void make_dir(void)
{
    strcpy(dir_path, "/var/tmp/wayback-tools-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir_path));
    dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir_fd, 0);
    ck_assert_int_eq(chdir(dir_path), 0);
}

static void remove_dir(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(wb_fd_remove_all(AT_FDCWD, dir_path), 0);
    close(dir_fd);
}

static int make_file(const char *name, const void *data, size_t length)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(wb_fd_write(fd, data, length, -1), 0);
    return fd;
}

static void check_absolute(const char *given, const char *below)
{
    g_autofree char *path = wb_path_absolute(given);
    g_autofree char *expected = g_strconcat(dir_path, below, NULL);

    ck_assert_str_eq(path, expected);
}

START_TEST(paths_of_deleted_files_are_resolved_as_text)
{
    g_autofree char *top = NULL;

    ck_assert_int_eq(mkdir("real", 0700), 0);
    ck_assert_int_eq(mkdir("real/sub", 0700), 0);
    ck_assert_int_eq(symlink("real", "link"), 0);
    check_absolute("gone", "/gone");
    check_absolute("gone/deeper/../x", "/gone/x");
    check_absolute("./real/./gone//y/", "/real/gone/y");
    check_absolute("link/gone", "/real/gone");
    check_absolute("link", "/link");
    check_absolute("link/", "/real");
    check_absolute("link/sub/..", "/real");
    check_absolute(".", "");
    check_absolute("gone@14:03/x", "/gone@14:03/x");
    top = wb_path_absolute("/../..");
    ck_assert_str_eq(top, "/");
}
END_TEST

START_TEST(below_is_by_whole_components)
{
    const char *rest;

    ck_assert(wb_path_below("/mnt/a/b", "/mnt", &rest));
    ck_assert_str_eq(rest, "a/b");
    ck_assert(wb_path_below("/mnt", "/mnt", &rest));
    ck_assert_str_eq(rest, "");
    ck_assert(!wb_path_below("/mnt2/a", "/mnt", &rest));
    ck_assert(wb_path_below("/a", "/", &rest));
    ck_assert_str_eq(rest, "a");
    ck_assert(wb_path_below("a/b", "", &rest));
    ck_assert_str_eq(rest, "a/b");
    ck_assert(!wb_path_below("ab", "a", &rest));
}
END_TEST

START_TEST(no_link_leads_out)
{
    ck_assert_int_eq(mkdir("d", 0700), 0);
    ck_assert_int_eq(symlink("/etc", "d/out"), 0);
    ck_assert_int_eq(symlink("../d", "d/in"), 0);
    ck_assert_int_eq(wb_open_beneath(dir_fd, "d/out/passwd", O_RDONLY), -ELOOP);
    ck_assert_int_eq(wb_open_beneath(dir_fd, "d/in", O_RDONLY), -ELOOP);
    ck_assert_int_eq(wb_open_beneath(dir_fd, "../..", O_RDONLY), -EXDEV);
    ck_assert_int_ge(wb_open_beneath(dir_fd, "d", O_RDONLY), 0);
    ck_assert_int_ge(wb_open_beneath(dir_fd, "", O_RDONLY), 0);
}
END_TEST

START_TEST(removing_all_stays_inside)
{
    close(make_file("stays", "x", 1));
    ck_assert_int_eq(mkdir("d", 0700), 0);
    ck_assert_int_eq(mkdir("d/e", 0700), 0);
    ck_assert_int_eq(symlink("..", "d/e/up"), 0);
    ck_assert_int_eq(wb_fd_remove_all(dir_fd, "d"), 0);
    ck_assert_int_eq(faccessat(dir_fd, "stays", F_OK, 0), 0);
    ck_assert_int_eq(wb_fd_remove_all(dir_fd, "d"), -ENOENT);
}
END_TEST

static void check_size(uint64_t bytes, const char *expected)
{
    char text[WB_TEXT_SIZE_MAX];

    ck_assert_str_eq(wb_text_size(bytes, text), expected);
}

START_TEST(sizes_are_for_people)
{
    check_size(0, "0");
    check_size(1023, "1023 B");
    check_size(1024, "1.0 KiB");
    check_size(12345, "12 KiB");
    check_size(1048575, "1.0 MiB");
    check_size(UINT64_MAX, "16 EiB");
}
END_TEST

static void check_word(const char *bytes, const char *expected)
{
    g_autofree char *word = wb_text_shell(bytes);

    ck_assert_str_eq(word, expected);
}

START_TEST(a_bar_has_no_more_than_its_columns)
{
    const uint64_t values[] = {100, 101, UINT64_MAX};

    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        g_autofree char *bar = wb_text_bar(values[i], 100, 20);

        ck_assert_uint_eq(wb_text_width(bar), 20);
    }
}
END_TEST

START_TEST(words_of_a_shell_show_their_content)
{
    static const char *const nasty[] = {"a\033[2Jb", "\nrm -rf x", "x\xc2\x9by", "x\xe2\x80\xaey",
                                        "\xff'\\", "\t", "''\r"};

    check_word("plain/path.txt", "plain/path.txt");
    check_word("", "''");
    check_word("two words", "'two words'");
    check_word("\xc3\xa9", "'\xc3\xa9'");
    check_word("a\nb", "$'a\\nb'");
    check_word("it's\033", "$'it\\'s\\033'");
    check_word("back\\slash\x7f" "1", "$'back\\\\slash\\1771'");
    for (unsigned i = 0; i < G_N_ELEMENTS(nasty); i++) {
        g_autofree char *word = wb_text_shell(nasty[i]);
        g_autofree char *script = g_strconcat("printf %s ", word, NULL);
        const char *argv[] = {"bash", "-c", script, NULL};
        g_autofree char *out = NULL;

        ck_assert(g_str_has_prefix(word, "$'"));
        ck_assert(g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, NULL, NULL, NULL));
        ck_assert_str_eq(out, nasty[i]);
    }
}
END_TEST

START_TEST(json_shows_no_character_that_is_not_visible)
{
    g_autofree char *json =
        wb_json_literal("\x1b[2J \x7f \xc2\x9b \xe2\x80\xae \xf3\xa0\x80\x81 \xff \xc3\xa9 \"\\");
    char line[8];

    ck_assert_str_eq(json,
                     "\"\\u001b[2J \\u007f \\u009b \\u202e \\udb40\\udc01 \xef\xbf\xbd \xc3\xa9 \\\"\\\\\"");
    /* Without allocating, cut between characters. */
    ck_assert_uint_eq(wb_quote_into(line, sizeof(line), "abc\033d"), 7);
    ck_assert_str_eq(line, "abc\\x1b");
    ck_assert_uint_eq(wb_quote_into(line, sizeof(line), "abcd\033"), 4);
    ck_assert_uint_eq(wb_quote_into(line, sizeof(line), "abcdef\xc3\xa9"), 6);
    ck_assert_str_eq(line, "abcdef");
}
END_TEST

static void check_printable(const char *bytes, const char *expected)
{
    g_autofree char *text = wb_text_printable(bytes);

    ck_assert_str_eq(text, expected);
}

static void check_cut(const char *bytes, unsigned width, const char *expected)
{
    g_autofree char *text = wb_text_cut(bytes, width);

    ck_assert_str_eq(text, expected);
}

START_TEST(names_cannot_control_the_terminal)
{
    check_printable("a\033[2Jb\nc\td", "a\\x1b[2Jb\\nc\\td");
    check_printable("\xff\xc3\xa9\xc3", "\\xff\xc3\xa9\\xc3");
    /* The C1 control "CSI" as UTF-8, and a bidirectional override. */
    check_printable("x\xc2\x9b" "y", "x\\xc2\\x9by");
    check_printable("x\xe2\x80\xaey", "x\\xe2\\x80\\xaey");
    check_cut("abcdef", 4, "abc\xe2\x80\xa6");
    check_cut("abcd", 4, "abcd");
    ck_assert_uint_eq(wb_text_width("\xe6\xbc\xa2\xe5\xad\x97"), 4);
}
END_TEST

START_TEST(tables_align)
{
    static const struct wb_column columns[] = {{"N", 1}, {"NAME", 0}, {"X", 0}};
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    struct wb_table *table = wb_table_new(out, columns, 3);

    wb_table_add(table, (const char *[]){"1", "\xc3\xa9", "a"});
    wb_table_add(table, (const char *[]){"10", "longer", "b"});
    wb_table_free(table);
    fclose(out);
    ck_assert_str_eq(text, " N  NAME    X\n 1  \xc3\xa9       a\n10  longer  b\n");
    free(text);
}
END_TEST

static void check_same(int a, int b)
{
    struct stat sa, sb;
    g_autofree char *x = NULL, *y = NULL;

    ck_assert_int_eq(fstat(a, &sa), 0);
    ck_assert_int_eq(fstat(b, &sb), 0);
    ck_assert_int_eq(sa.st_size, sb.st_size);
    x = g_malloc((gsize)sa.st_size + 1);
    y = g_malloc((gsize)sa.st_size + 1);
    ck_assert_int_eq(wb_fd_read(a, x, (size_t)sa.st_size, 0), sa.st_size);
    ck_assert_int_eq(wb_fd_read(b, y, (size_t)sa.st_size, 0), sa.st_size);
    ck_assert_mem_eq(x, y, (size_t)sa.st_size);
}

START_TEST(copies_keep_their_holes)
{
    int from = make_file("from", "head", 4);
    int to = make_file("to", "", 0);
    struct stat st;

    ck_assert_int_eq(wb_fd_write(from, "middle", 6, (5 << 20) + 4093), 0);
    ck_assert_int_eq(ftruncate(from, 20 << 20), 0);
    ck_assert_int_eq(wb_copy_data(from, to), 0);
    check_same(from, to);
    ck_assert_int_eq(fstat(to, &st), 0);
    ck_assert_int_le(st.st_blocks, 64);
}
END_TEST

/* Every pair of sizes around a block, and the result in the end. */
START_TEST(differences_alone_are_written)
{
    static const size_t sizes[] = {0, 1, 4095, 131071, 131072, 131073, 300000, 393216};
    g_autofree char *data = g_malloc0(400000);

    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        for (unsigned j = 0; j < G_N_ELEMENTS(sizes); j++) {
            int from, to;
            uint64_t changed, dry;

            memset(data, 'a', 400000);
            from = make_file("from", data, sizes[i]);
            data[200000] = 'b';
            memset(data + 131072, 0, 1000);
            to = make_file("to", data, sizes[j]);
            ck_assert_int_eq(wb_copy_differences(from, to, true, &dry), 0);
            ck_assert_int_eq(wb_copy_equal(from, to), dry == 0);
            ck_assert_int_eq(wb_copy_differences(from, to, false, &changed), 0);
            ck_assert_uint_eq(dry, changed);
            check_same(from, to);
            ck_assert_int_eq(wb_copy_equal(from, to), 1);
            ck_assert_int_eq(wb_copy_differences(from, to, false, &changed), 0);
            ck_assert_uint_eq(changed, 0);
            close(from);
            close(to);
        }
    }
}
END_TEST

START_TEST(zeros_at_the_end_are_kept)
{
    g_autofree char *zeros = g_malloc0(300000);
    int from = make_file("from", zeros, 300000);
    int to = make_file("to", "x", 1);
    uint64_t changed;

    ck_assert_int_eq(wb_copy_differences(from, to, false, &changed), 0);
    ck_assert_uint_gt(changed, 0);
    check_same(from, to);
}
END_TEST

START_TEST(attributes_follow_and_nothing_else_is_touched)
{
    struct timespec times[2] = {{1000000000, 5}, {1000000000, 7}};
    struct stat from, st;
    const char *what;
    int to = make_file("to", "x", 1);

    close(make_file("from", "x", 1));
    ck_assert_int_eq(fsetxattr(make_file("from", "x", 1), "user.a", "1", 1, 0), 0);
    ck_assert_int_eq(setxattr("to", "user.b", "2", 1, 0), 0);
    ck_assert_int_eq(chmod("from", 0641), 0);
    ck_assert_int_eq(utimensat(dir_fd, "from", times, 0), 0);
    ck_assert_int_eq(fstatat(dir_fd, "from", &from, 0), 0);
    ck_assert_int_eq(wb_copy_attrs(dir_fd, "from", &from, to, WB_ATTRS_DRY, &what), 1);
    ck_assert_int_eq(stat("to", &st), 0);
    ck_assert_int_ne(st.st_mtim.tv_nsec, 7);
    ck_assert_int_eq(wb_copy_attrs(dir_fd, "from", &from, to, 0, &what), 1);
    ck_assert_int_eq(stat("to", &st), 0);
    ck_assert_uint_eq(st.st_mode, 0100641);
    ck_assert_int_eq(st.st_mtim.tv_nsec, 7);
    ck_assert_int_eq(st.st_atim.tv_nsec, 5);
    ck_assert_int_eq(getxattr("to", "user.a", NULL, 0), 1);
    ck_assert_int_eq(getxattr("to", "user.b", NULL, 0), -1);
    ck_assert_int_eq(wb_copy_attrs(dir_fd, "from", &from, to, 0, &what), 0);
    ck_assert_int_eq(wb_copy_attrs(dir_fd, "none", &from, to, 0, &what), -ENOENT);
    close(to);
}
END_TEST

START_TEST(attributes_are_set_on_the_open_object_wherever_its_name_leads)
{
    struct stat from, st;
    const char *what;
    int held;

    close(make_file("from", "x", 1));
    close(make_file("to", "x", 1));
    close(make_file("other", "x", 1));
    ck_assert_int_eq(chmod("from", 04711), 0);
    ck_assert_int_eq(chmod("other", 0600), 0);
    ck_assert_int_eq(stat("from", &from), 0);
    held = wb_hold(dir_fd, "to", NULL);
    ck_assert_int_ge(held, 0);
    ck_assert_int_eq(fstat(held, &st), 0);
    ck_assert_int_eq(rename("to", "away"), 0);
    ck_assert_int_eq(symlink("other", "to"), 0);
    ck_assert_int_eq(wb_copy_attrs(dir_fd, "from", &from, held, 0, &what), 1);
    close(held);
    ck_assert_int_eq(wb_hold(dir_fd, "to", &st), -ESTALE);
    held = wb_hold(dir_fd, "away", &st);
    ck_assert_int_ge(held, 0);
    close(held);
    ck_assert_int_eq(stat("away", &st), 0);
    ck_assert_uint_eq(st.st_mode, 0104711);
    ck_assert_int_eq(stat("other", &st), 0);
    ck_assert_uint_eq(st.st_mode, 0100600);
    /* A link has attributes of its own. */
    ck_assert_int_eq(lstat("to", &from), 0);
    ck_assert_int_eq(symlink("other", "to2"), 0);
    held = wb_hold(dir_fd, "to2", NULL);
    ck_assert_int_ge(held, 0);
    ck_assert_int_ge(wb_copy_attrs(dir_fd, "to", &from, held, WB_ATTRS_TOUCHED, &what), 0);
    close(held);
    ck_assert_int_eq(lstat("to2", &st), 0);
    ck_assert_int_eq(st.st_mtim.tv_nsec, from.st_mtim.tv_nsec);
}
END_TEST

START_TEST(special_files_are_made_again)
{
    struct stat st;
    char target[16] = "";
    int made;

    ck_assert_int_eq(symlink("nowhere", "l"), 0);
    ck_assert_int_eq(mkfifo("p", 0600), 0);
    ck_assert_int_eq(lstat("l", &st), 0);
    close(made = wb_copy_make(dir_fd, "l", &st, dir_fd, "l2"));
    ck_assert_int_ge(made, 0);
    ck_assert_int_eq(readlink("l2", target, sizeof(target)), 7);
    ck_assert_str_eq(target, "nowhere");
    ck_assert_int_eq(lstat("p", &st), 0);
    close(made = wb_copy_make(dir_fd, "p", &st, dir_fd, "p2"));
    ck_assert_int_ge(made, 0);
    ck_assert_int_eq(lstat("p2", &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    ck_assert_int_eq(wb_copy_make(dir_fd, "p", &st, dir_fd, "p2"), -EEXIST);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tools");
    TCase *tests = tcase_create("tools");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, make_dir, remove_dir);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, paths_of_deleted_files_are_resolved_as_text);
    tcase_add_test(tests, a_bar_has_no_more_than_its_columns);
    tcase_add_test(tests, words_of_a_shell_show_their_content);
    tcase_add_test(tests, json_shows_no_character_that_is_not_visible);
    tcase_add_test(tests, below_is_by_whole_components);
    tcase_add_test(tests, no_link_leads_out);
    tcase_add_test(tests, removing_all_stays_inside);
    tcase_add_test(tests, sizes_are_for_people);
    tcase_add_test(tests, names_cannot_control_the_terminal);
    tcase_add_test(tests, tables_align);
    tcase_add_test(tests, copies_keep_their_holes);
    tcase_add_test(tests, differences_alone_are_written);
    tcase_add_test(tests, zeros_at_the_end_are_kept);
    tcase_add_test(tests, attributes_follow_and_nothing_else_is_touched);
    tcase_add_test(tests, attributes_are_set_on_the_open_object_wherever_its_name_leads);
    tcase_add_test(tests, special_files_are_made_again);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
