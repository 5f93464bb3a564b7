/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Several names that are erased together are erased as each would be by itself, however they are related. */
#include "erase_states.h"
#include <sys/syscall.h>
#include <sys/wait.h>

#define NAMES_MAX 16

/* ---- calls that change the disk ------------------------------------------------------------------ */

static int calls_left = -1; /* until it is stopped; -1: it is not   */
static const char *failing; /* the end of the path on which they fail */

/* 0, or -1 and EIO. */
static int call(const char *path)
{
    if (calls_left == 0)
        _exit(99);
    calls_left -= calls_left > 0;
    errno = EIO;
    return failing && g_str_has_suffix(path, failing) ? -1 : 0;
}

/* In place of libc's: the state between two of them cannot be observed from outside. */
int renameat(int old_dir, const char *old_path, int new_dir, const char *new_path)
{
    return call(new_path) < 0 ? -1 : (int)syscall(SYS_renameat2, old_dir, old_path, new_dir, new_path, 0);
}

static unsigned waits; /* for the disk */

int fsync(int fd)
{
    waits++;
    return (int)syscall(SYS_fsync, fd);
}

int syncfs(int fd)
{
    waits++;
    return (int)syscall(SYS_syncfs, fd);
}

int unlinkat(int dir, const char *path, int flags)
{
    return call(path) < 0 ? -1 : (int)syscall(SYS_unlinkat, dir, path, flags);
}

/* ---- several names ------------------------------------------------------------------------------- */

static struct wb_erase_name names[NAMES_MAX];
static GPtrArray *texts; /* of them */

static void forget_names(void)
{
    for (guint i = 0; texts && i < texts->len; i++)
        wb_revision_unref(names[i].dir);
    g_clear_pointer(&texts, g_ptr_array_unref);
}

static void teardown_names(void)
{
    forget_names();
    teardown();
}

/* Of paths with blanks between them; results and counts are in `names`. */
static void erase_as(const char *paths, unsigned flags, uid_t by)
{
    g_auto(GStrv) all = g_strsplit(paths, " ", -1);
    struct wb_revision *top;

    forget_names();
    texts = g_ptr_array_new_with_free_func(g_free);
    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &top), 0);
    for (char **path = all; *path; path++) {
        struct wb_erase_name *name = &names[texts->len];
        char *text;

        *name = (struct wb_erase_name){.result = 1};
        ck_assert_int_eq(wb_history_find(history, top, *path, &name->dir, &text), 0);
        name->name = text;
        g_ptr_array_add(texts, text);
    }
    wb_revision_unref(top);
    wb_erase_names(history, names, texts->len, flags, by);
    tree_release(&tree);
}

static void erase(const char *paths, unsigned flags)
{
    erase_as(paths, flags, 0);
}

static void all_went(void)
{
    for (guint i = 0; i < texts->len; i++)
        ck_assert_msg(names[i].result == 0, "%s: %d", names[i].name, names[i].result);
}

static void make_gone(const char *path)
{
    op_make(&tree, path, SECRET);
    op_write(&tree, path, 0, "overwritten!");
    op_remove(&tree, path, false);
}

/* ---- tests --------------------------------------------------------------------------------------- */

START_TEST(names_in_one_catalog_and_in_several)
{
    int64_t then;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_birth(&tree, "e", WB_OP_MKDIR);
    op_make(&tree, "d/keep", "kept");
    op_write(&tree, "d/keep", 0, "KEPT");
    stays("d/keep");
    op_make(&tree, "d/c", SECRET);
    then = wb_store_tick(tree.store);
    op_remove(&tree, "d/c", false);
    make_gone("d/a");
    make_gone("d/b");
    make_gone("e/a");
    make_gone("e/b");
    make_gone("top");
    op_make(&tree, "d/b", "is there");
    stays("d/keep");
    erase("d/a d/c e/a top", WB_ERASE_PRESENT);
    all_went();
    for (guint i = 0; i < texts->len; i++) {
        ck_assert_uint_eq(names[i].count.objects, 1);
        ck_assert_uint_gt(names[i].count.bytes, 0);
    }
    gone("d/c", then);
    ck_assert(!store_holds("top"));
    ck_assert(store_holds(SECRET));
    stays("d/b");
    check_stayed();
    op_remove(&tree, "d/b", false);
    erase("d/b e/b", WB_ERASE_PRESENT);
    all_went();
    ck_assert(!store_holds(SECRET));
}
END_TEST

START_TEST(the_present_of_several_names_without_its_past)
{
    int64_t then;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/a", SECRET);
    op_make(&tree, "d/b", SECRET);
    op_make(&tree, "c", SECRET);
    op_make(&tree, "d/keep", "kept");
    then = wb_store_tick(tree.store);
    stays("d/keep");
    op_write(&tree, "d/a", 0, "plain bytes!");
    op_write(&tree, "d/b", 0, "plain bytes!");
    op_write(&tree, "c", 0, "plain bytes!");
    erase("d/a d/b c", 0);
    all_went();
    ck_assert(!store_holds(SECRET));
    gone("d/a", then);
    gone("d/b", then);
    gone("c", then);
    stays("d/a");
    op_write(&tree, "d/a", 0, "PLAIN");
    stays("d/b");
    op_remove(&tree, "d/b", false);
    stays("c");
    check_stayed();
}
END_TEST

START_TEST(one_object_by_two_names)
{
    struct wb_revision *revision;
    g_autofree char *now = NULL;

    /* One of them in the set: the file still exists by the other. */
    op_make(&tree, "f", SECRET);
    op_link(&tree, "f", "h");
    op_write(&tree, "h", 0, "plain bytes!");
    op_remove(&tree, "f", false);
    make_gone("other");
    erase("f other", WB_ERASE_PRESENT);
    all_went();
    ck_assert(!store_holds(SECRET));
    revision = at("h", WB_WHEN_PRESENT);
    now = content(revision);
    ck_assert_str_eq(now, "plain bytes!");
    wb_revision_unref(revision);
    /* Both: each counts it, and its bytes once. */
    op_make(&tree, "one", SECRET);
    op_link(&tree, "one", "two");
    op_remove(&tree, "one", false);
    op_remove(&tree, "two", false);
    erase("one two one", WB_ERASE_PRESENT);
    ck_assert_int_eq(names[0].result, 0);
    ck_assert_int_eq(names[1].result, 0);
    ck_assert_int_eq(names[2].result, -ENOENT);
    ck_assert_uint_eq(names[0].count.objects, 1);
    ck_assert_uint_eq(names[1].count.objects, 1);
    ck_assert(names[0].count.bytes == 0 || names[1].count.bytes == 0);
    ck_assert(!store_holds(SECRET));
    ck_assert_int_eq(wb_store_has_log(tree.store, tree_object(&tree, "h"), WB_FILE_UNDO), 1);
}
END_TEST

/* One erasure waits once, and many together wait once, and not each. */
START_TEST(many_take_one_pass)
{
    GString *paths = g_string_new("last");
    unsigned one;

    for (int i = 0; i < NAMES_MAX; i++) {
        g_autofree char *dir = g_strdup_printf("d%d", i), *path = g_strdup_printf("d%d/f", i);

        op_birth(&tree, dir, WB_OP_MKDIR);
        make_gone(path);
        if (i > 0)
            g_string_append_printf(paths, " %s", path);
    }
    make_gone("last");
    waits = 0;
    erase("d0/f", WB_ERASE_PRESENT);
    one = waits;
    ck_assert_uint_gt(one, 0);
    waits = 0;
    erase(paths->str, WB_ERASE_PRESENT);
    ck_assert_uint_lt(waits, 2 * one);
    all_went();
    ck_assert(!store_holds(SECRET));
    g_string_free(paths, TRUE);
}
END_TEST

/* Whichever is first. */
START_TEST(a_directory_and_its_entries)
{
    static const char *const orders[] = {"d d/x/f d/x e", "e d/x/f d/x d", "d/x/f d e d/x", "e/x d/x/f d"};

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_birth(&tree, "d/x", WB_OP_MKDIR);
    op_birth(&tree, "e", WB_OP_MKDIR);
    make_gone("d/x/f");
    make_gone("e/f");
    /* It was in both. */
    op_rename(&tree, "d/x", "e/x", 0);
    op_rename(&tree, "e/x", "d/x", 0);
    op_make(&tree, "keep", "kept");
    stays("keep");
    op_remove(&tree, "d/x", true);
    op_remove(&tree, "d", true);
    tree_release(&tree);
    if (_i < 3)
        op_remove(&tree, "e", true);
    tree_release(&tree);
    erase(orders[_i], WB_ERASE_PRESENT | WB_ERASE_RECURSIVE);
    all_went();
    if (_i == 3)
        erase("e/f", WB_ERASE_PRESENT);
    ck_assert(!store_holds(SECRET));
    check_stayed();
}
END_TEST

START_TEST(forbidden_ones_do_not_stop_the_others)
{
    op_birth(&tree, "dir", WB_OP_MKDIR);
    op_make(&tree, "there", "there");
    op_make(&tree, "dir/f", "f");
    make_gone("a");
    make_gone("b");
    stays("there");
    stays("dir/f");
    erase("a there dir never b", WB_ERASE_PRESENT);
    ck_assert_int_eq(names[0].result, 0);
    ck_assert_int_eq(names[1].result, -EEXIST);
    ck_assert_int_eq(names[2].result, -EEXIST);
    ck_assert_int_eq(names[3].result, -ENOENT);
    ck_assert_int_eq(names[4].result, 0);
    erase("dir never", 0);
    ck_assert_int_eq(names[0].result, -EISDIR);
    ck_assert_int_eq(names[1].result, -ENOENT);
    ck_assert(!store_holds(SECRET));
    check_stayed();
}
END_TEST

/*
 * A fault that affects all affects one of them: in the steps before their catalogs, and among these, when some are
 * done.
 */
START_TEST(one_that_fails_does_not_stop_the_others)
{
    GString *paths = g_string_new("d/bad");
    g_autofree char *path_end = NULL;
    char text[WB_OBJECT_TEXT_MAX];

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/bad", "XYZZY-failing");
    make_gone("d/a");
    for (int i = 1; i < NAMES_MAX; i++) {
        g_autofree char *dir = g_strdup_printf("d%d", i), *path = g_strdup_printf("d%d/f", i);

        op_birth(&tree, dir, WB_OP_MKDIR);
        make_gone(path);
        g_string_append_printf(paths, " %s", path);
    }
    wb_object_print(tree_object(&tree, _i == 0 ? "d/bad" : "d"), text);
    op_remove(&tree, "d/bad", false);
    path_end = g_strconcat(text, _i == 0 ? ".data" : ".cat", NULL);
    failing = path_end;
    erase(paths->str, WB_ERASE_PRESENT);
    failing = NULL;
    ck_assert_int_eq(names[0].result, -EIO);
    for (int i = 1; i < NAMES_MAX; i++)
        ck_assert_int_eq(names[i].result, 0);
    erase("d/a", WB_ERASE_PRESENT);
    all_went();
    ck_assert(!store_holds(SECRET));
    erase("d/bad", WB_ERASE_PRESENT);
    all_went();
    ck_assert(!store_holds("XYZZY"));
    ck_assert(!store_holds("bad"));
    g_string_free(paths, TRUE);
}
END_TEST

START_TEST(each_must_be_its_callers_own)
{
    const uid_t user = 12345;

    if (geteuid() != 0)
        return; /* only root gives files away */
    op_make(&tree, "own", SECRET);
    op_make(&tree, "shared", SECRET);
    op_make(&tree, "others", "another's");
    ck_assert_int_eq(fchownat(tree.fd, "own", user, user, 0), 0);
    ck_assert_int_eq(fchownat(tree.fd, "shared", user, user, 0), 0);
    op_remove(&tree, "own", false);
    op_remove(&tree, "shared", false);
    op_make(&tree, "shared", "another's");
    stays("others");
    stays("shared");
    op_remove(&tree, "shared", false);
    op_remove(&tree, "others", false);
    erase_as("others own shared", WB_ERASE_PRESENT, user);
    ck_assert_int_eq(names[0].result, -EPERM);
    ck_assert_int_eq(names[1].result, 0);
    ck_assert_int_eq(names[2].result, -EPERM);
    check_stayed();
    ck_assert(store_holds(SECRET));
    erase("shared others", WB_ERASE_PRESENT);
    ck_assert(!store_holds(SECRET));
}
END_TEST

/* ---- stopped in between -------------------------------------------------------------------------- */

/* Files that passed through the directories of each other's names, by names that are not erased. */
static void make_crossed(void)
{
    op_birth(&tree, "o", WB_OP_MKDIR);
    op_birth(&tree, "p", WB_OP_MKDIR);
    op_birth(&tree, "o/d", WB_OP_MKDIR);
    op_make(&tree, "o/keep", "kept");
    op_make(&tree, "p/keep", "kept");
    op_make(&tree, "o/a", SECRET);
    op_write(&tree, "o/a", 0, "overwritten!");
    op_rename(&tree, "o/a", "p/XYZZY-trace", 0);
    op_make(&tree, "p/b", SECRET);
    op_rename(&tree, "p/b", "o/XYZZY-trace", 0);
    stays("o/keep");
    op_remove(&tree, "p/XYZZY-trace", false);
    op_remove(&tree, "o/XYZZY-trace", false);
    make_gone("p/c");
    /* Below an erased name, and beside it. */
    op_make(&tree, "o/XYZZY-beside", SECRET);
    op_rename(&tree, "o/XYZZY-beside", "o/d/f", 0);
    op_remove(&tree, "o/d/f", false);
    op_remove(&tree, "o/d", true);
    op_write(&tree, "o/keep", 0, "KEPT");
    op_write(&tree, "p/keep", 0, "KEPT");
    stays("o/keep");
    stays("p/keep");
    tree_release(&tree);
}

/* More than an erasure of these makes. */
#define CALLS 45

/* Whichever call it was, each name that is then erased by itself leaves nothing, in any order. */
START_TEST(stopped_at_any_call)
{
    static const char *const again[] = {"o/a", "p/b", "p/c", "o/d"};
    int stop = _i * CALLS / amount(CALLS, CALLS / 3), status;
    pid_t child;

    make_crossed();
    /* The parent has nothing to add to the manifest: it must not list logs that the child removes. */
    ck_assert_int_eq(wb_store_sync_listed(tree.store), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        calls_left = stop;
        erase("o/a p/b p/c o/d", WB_ERASE_PRESENT | WB_ERASE_RECURSIVE);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), WEXITSTATUS(status) != 0 && stop < CALLS ? 99 : 0);
    wb_history_free(history);
    wb_store_free(tree.store);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    for (int i = 0; i < 4; i++) {
        erase(again[_i % 2 ? 3 - i : i], WB_ERASE_PRESENT | WB_ERASE_RECURSIVE);
        ck_assert_msg(names[0].result == 0 || names[0].result == -ENOENT, "%d", names[0].result);
    }
    ck_assert_msg(!store_holds("XYZZY"), "after %d calls", stop);
    check_stayed();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("erase_names");
    TCase *tcase = tcase_create("erase_names");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown_names);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, names_in_one_catalog_and_in_several);
    tcase_add_test(tcase, the_present_of_several_names_without_its_past);
    tcase_add_test(tcase, one_object_by_two_names);
    tcase_add_test(tcase, many_take_one_pass);
    tcase_add_loop_test(tcase, a_directory_and_its_entries, 0, 4);
    tcase_add_test(tcase, forbidden_ones_do_not_stop_the_others);
    tcase_add_loop_test(tcase, one_that_fails_does_not_stop_the_others, 0, 4);
    tcase_add_test(tcase, each_must_be_its_callers_own);
    tcase_add_loop_test(tcase, stopped_at_any_call, 0, amount(CALLS, CALLS / 3) + 1);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
