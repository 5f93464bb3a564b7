/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A store with planted files of other kinds: nothing outside of it is opened, changed or waited for. */
#include "base/io.h"
#include "capture_ops.h"
#include "store/parts.h"
#include "store/timeline/timeline.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRECIOUS "precious, and no log\n"

static struct tree tree;

static void setup(void)
{
    tree_open(&tree);
    op_birth(&tree, "d", WB_OP_MKDIR);
    wb_store_free(tree.store);
    tree.store = NULL;
    ck_assert_int_eq(wb_replace_file(tree.fd, "precious", PRECIOUS, strlen(PRECIOUS), 0600), 0);
}

static void teardown(void)
{
    char text[64] = "";
    int fd = openat(tree.fd, "precious", O_RDONLY | O_CLOEXEC);

    ck_assert_int_eq(read(fd, text, sizeof(text)), (ssize_t)strlen(PRECIOUS));
    ck_assert_str_eq(text, PRECIOUS);
    close(fd);
    if (!tree.store) {
        /* The planted file is removed, so that the tree can be closed like any other. */
        g_autofree char *command = g_strdup_printf("rm -rf %s/.wayback", tree.path);

        ck_assert_int_eq(system(command), 0);
        tree_open_store(&tree);
    }
    tree_close(&tree);
}

static int open_again(unsigned flags)
{
    struct wb_error why = {""};
    int r = wb_store_open(&tree.store, tree.fd, NULL, flags, &why);

    ck_assert(r == 0 || why.text[0]);
    return r;
}

static void plant(const char *path, bool symbolic)
{
    g_autofree char *inside = g_strconcat(".wayback/", path, NULL);
    g_autofree char *target = g_strdup_printf("%s/precious", tree.path);

    unlinkat(tree.fd, inside, 0);
    if (symbolic)
        ck_assert_int_eq(symlinkat(target, tree.fd, inside), 0);
    else
        ck_assert_int_eq(linkat(tree.fd, "precious", tree.fd, inside, 0), 0);
}

static const char *const files[] = {"inflight", "actors", "stages", "gaps", "lock"};
#define REFUSED 4 /* of them: the lock is replaced instead */
static const char *const derived[] = {"timeline/times", "timeline/moves", "timeline/pending"};

START_TEST(a_file_with_another_name_is_not_written)
{
    plant(files[_i], false);
    ck_assert_int_eq(open_again(WB_STORE_WRITE), -EMLINK);
}
END_TEST

/* Its text is checked at the end of each test. */
START_TEST(a_lock_with_another_name_is_parted_from_it)
{
    struct stat own, other;

    plant("lock", false);
    ck_assert_int_eq(open_again(WB_STORE_WRITE), 0);
    ck_assert_int_eq(fstatat(tree.fd, ".wayback/lock", &own, 0), 0);
    ck_assert_int_eq(fstatat(tree.fd, "precious", &other, 0), 0);
    ck_assert_uint_ne(own.st_ino, other.st_ino);
}
END_TEST

START_TEST(a_symbolic_link_is_not_followed)
{
    plant(files[_i], true);
    ck_assert_int_lt(open_again(WB_STORE_WRITE), 0);
}
END_TEST

/* The timeline can be rebuilt: an existing file is left alone, and the history continues without it. */
START_TEST(the_timeline_is_no_reason_to_refuse)
{
    plant(derived[_i / 2], _i & 1);
    ck_assert_int_eq(open_again(WB_STORE_WRITE), 0);
    wb_timeline_pass(tree.store);
    op_birth(&tree, "e", WB_OP_MKDIR);
    wb_timeline_pass(tree.store);
}
END_TEST

START_TEST(a_log_with_another_name_is_not_appended_to)
{
    struct wb_object object;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_log *log;

    ck_assert_int_eq(wb_object_stat(NULL, tree.fd, "d", &object, NULL, NULL), 0);
    wb_object_path(object, WB_FILE_CATALOG, path);
    plant(path, false);
    ck_assert_int_eq(open_again(WB_STORE_WRITE), 0);
    ck_assert_int_eq(wb_store_get_log(tree.store, object, WB_FILE_CATALOG, false, &log), -EMLINK);
}
END_TEST

/* Every file that is published by rename is written under another name first. */
START_TEST(a_name_in_passing_is_not_written_through)
{
    g_autofree char *text = NULL, *path = g_strdup_printf("%s/.wayback/wayback.conf", tree.path);
    int dir_fd = openat(tree.fd, ".wayback", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    plant(".wayback.conf.new", _i);
    ck_assert_int_eq(wb_replace_file(dir_fd, "wayback.conf", "# new\n", 6, 0600), 0);
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    ck_assert_str_eq(text, "# new\n");
    close(dir_fd);
}
END_TEST

START_TEST(a_pipe_is_not_waited_for)
{
    ck_assert_int_eq(unlinkat(tree.fd, ".wayback/header", 0), 0);
    ck_assert_int_eq(mkfifoat(tree.fd, ".wayback/header", 0600), 0);
    ck_assert_int_eq(open_again(0), -EBADMSG);
}
END_TEST

START_TEST(directories_of_logs_are_in_the_store)
{
    g_autofree char *command = g_strdup_printf("cd %s && mkdir away && mv .wayback/objects/07 away/x && "
                                               "ln -s ../../away/x .wayback/objects/07", tree.path);

    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(open_again(0), -ENOTDIR);
    ck_assert_int_eq(open_again(WB_STORE_WRITE), -ENOTDIR);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_links");
    TCase *tests = tcase_create("links");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_file_with_another_name_is_not_written, 0, REFUSED);
    tcase_add_test(tests, a_lock_with_another_name_is_parted_from_it);
    tcase_add_loop_test(tests, a_symbolic_link_is_not_followed, 0, G_N_ELEMENTS(files));
    tcase_add_loop_test(tests, the_timeline_is_no_reason_to_refuse, 0, 2 * G_N_ELEMENTS(derived));
    tcase_add_test(tests, a_log_with_another_name_is_not_appended_to);
    tcase_add_loop_test(tests, a_name_in_passing_is_not_written_through, 0, 2);
    tcase_add_test(tests, a_pipe_is_not_waited_for);
    tcase_add_test(tests, directories_of_logs_are_in_the_store);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
