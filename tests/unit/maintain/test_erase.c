/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Erased content is gone from every file of the store; everything else is as it was, at every moment. */
#include "erase_states.h"
#include <signal.h>
#include <sys/wait.h>

static int erase(const char *path, unsigned flags, struct wb_erase_count *count)
{
    struct wb_error why = {""};
    struct wb_revision *top, *dir = NULL;
    g_autofree char *name = NULL;
    int r;

    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &top), 0);
    ck_assert_int_eq(wb_history_find(history, top, path, &dir, &name), 0);
    r = wb_erase(history, dir, name, flags, 0, 0, count, &why);
    ck_assert_msg(r == 0 || *why.text, "error %d without words", r);
    wb_revision_unref(dir);
    wb_revision_unref(top);
    tree_release(&tree);
    return r;
}

/* ---- tests -------------------------------------------------------------------------------------- */

START_TEST(a_file_with_all_its_contents)
{
    struct wb_erase_count count;
    int64_t then;

    op_make(&tree, "keep", "kept one");
    op_make(&tree, "f", SECRET " one");
    op_write(&tree, "keep", 5, "two");
    op_write(&tree, "f", 0, "harmless");
    op_setxattr(&tree, "f", "user.x", SECRET);
    op_setxattr(&tree, "f", "user.x", "nothing");
    op_write(&tree, "f", 4, SECRET);
    then = wb_store_tick(tree.store);
    stays("keep");
    op_chmod(&tree, "keep", 0600);
    op_remove(&tree, "f", false);
    stays("keep");
    op_write(&tree, "keep", 0, "XXXX");
    ck_assert(store_holds(SECRET));

    ck_assert_int_eq(erase("f", WB_ERASE_PRESENT, &count), 0);
    ck_assert_uint_eq(count.objects, 1);
    ck_assert_uint_gt(count.bytes, 0);
    ck_assert(!store_holds(SECRET));
    gone("f", then);
    check_stayed();
    ck_assert_int_eq(erase("f", WB_ERASE_PRESENT, NULL), -ENOENT);
}
END_TEST

START_TEST(directories_keep_their_own_past)
{
    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/other", "o");
    op_make(&tree, "d/f", SECRET);
    op_chmod(&tree, "d", 0700);
    op_rename(&tree, "d/f", "d/g", 0);
    op_remove(&tree, "d/g", false);
    op_make(&tree, "d/after", "a");
    ck_assert_int_eq(erase("d/g", WB_ERASE_PRESENT, NULL), 0);
    ck_assert(!store_holds(SECRET));
    /* Attributes at the moments between are those of the logs that the erasure wrote anew. */
    {
        GPtrArray *all = tree_records(&tree);
        int64_t last = 0;
        unsigned own = 0;

        for (guint i = 0; i < all->len; i++) {
            const struct kept *kept = all->pdata[i];

            if (kept->record.type == WB_REC_ATTR &&
                wb_object_equal(kept->record.attr.object, tree_object(&tree, "d"))) {
                ck_assert_int_ge(kept->record.attr.attrs.mtime, last);
                last = kept->record.attr.attrs.mtime;
                own++;
            }
        }
        /* birth, chmod, rename, removal of the erased file */
        ck_assert_uint_ge(own, 4);
        g_ptr_array_unref(all);
    }
}
END_TEST

/* The same moments of a directory before and after an erasure in it. */
START_TEST(times_of_directories_are_kept)
{
    int64_t when[8];
    struct wb_attrs before[8], after;

    op_birth(&tree, "d", WB_OP_MKDIR);
    when[0] = wb_store_tick(tree.store);
    op_make(&tree, "d/f", SECRET);
    when[1] = wb_store_tick(tree.store);
    op_make(&tree, "d/b", "b");
    when[2] = wb_store_tick(tree.store);
    op_rename(&tree, "d/b", "d/f", 0);
    when[3] = wb_store_tick(tree.store);
    op_rename(&tree, "d/f", "d/c", 0);
    when[4] = wb_store_tick(tree.store);
    op_chmod(&tree, "d", 0711);
    when[5] = wb_store_tick(tree.store);
    op_make(&tree, "d/f", SECRET SECRET);
    when[6] = wb_store_tick(tree.store);
    op_remove(&tree, "d/f", false);
    when[7] = wb_store_tick(tree.store);
    for (int i = 0; i < 8; i++) {
        struct wb_revision *revision = at("d", when[i]);

        ck_assert_int_eq(wb_revision_attrs(history, revision, &before[i]), 0);
        wb_revision_unref(revision);
    }
    ck_assert_int_eq(erase("d/f", WB_ERASE_PRESENT, NULL), 0);
    for (int i = 0; i < 8; i++) {
        struct wb_revision *revision = at("d", when[i]);

        ck_assert_int_eq(wb_revision_attrs(history, revision, &after), 0);
        wb_revision_unref(revision);
        ck_assert_mem_eq(&before[i], &after, sizeof(after));
    }
    ck_assert(!store_holds(SECRET));
}
END_TEST

START_TEST(a_file_that_replaced_it_is_kept)
{
    int64_t between;

    op_make(&tree, "a", SECRET);
    op_make(&tree, "b", "plain");
    op_write(&tree, "b", 0, "PLAIN");
    stays("b");
    op_rename(&tree, "a", "x", 0);
    op_rename(&tree, "b", "a", 0);
    between = wb_store_tick(tree.store);
    stays("a");
    op_remove(&tree, "x", false);
    stays("a");
    ck_assert_int_eq(erase("x", WB_ERASE_PRESENT, NULL), 0);
    ck_assert(!store_holds(SECRET));
    gone("x", between);
    check_stayed();
}
END_TEST

START_TEST(a_hard_link_elsewhere_keeps_the_present)
{
    struct wb_revision *revision;
    struct wb_attrs attrs;
    int64_t then;
    g_autofree char *now = NULL;

    op_make(&tree, "f", SECRET);
    op_link(&tree, "f", "h");
    then = wb_store_tick(tree.store);
    op_write(&tree, "h", 0, "plain bytes!");
    op_remove(&tree, "f", false);
    ck_assert_int_eq(erase("f", WB_ERASE_PRESENT, NULL), 0);
    ck_assert(!store_holds(SECRET));
    revision = at("h", WB_WHEN_PRESENT);
    now = content(revision);
    ck_assert_str_eq(now, "plain bytes!");
    wb_revision_unref(revision);
    /* Refused rather than wrong. */
    revision = at("h", then);
    if (revision) {
        struct wb_file_view *view;

        if (wb_revision_attrs(history, revision, &attrs) == 0)
            ck_assert_int_eq(wb_file_view_open(history, revision, &view), -EIO);
        wb_revision_unref(revision);
    }
    /* And history continues. */
    op_write(&tree, "h", 0, "PLAIN");
    revision = at("h", WB_WHEN_PRESENT);
    wb_revision_unref(revision);
    stays("h");
    op_write(&tree, "h", 0, "again");
    check_stayed();
}
END_TEST

START_TEST(the_present_without_its_past)
{
    int64_t then;

    op_make(&tree, "f", SECRET);
    op_make(&tree, "g", "g");
    op_write(&tree, "f", 0, "plain bytes!");
    then = wb_store_tick(tree.store);
    stays("g");
    ck_assert_int_eq(erase("f", 0, NULL), 0);
    ck_assert(!store_holds(SECRET));
    gone("f", then);
    stays("f");
    op_write(&tree, "f", 0, "PLAIN");
    stays("f");
    op_remove(&tree, "f", false);
    stays("f");
    check_stayed();
}
END_TEST

START_TEST(a_directory_with_all_its_former_entries)
{
    struct wb_erase_count count;
    int64_t then;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_birth(&tree, "d/sub", WB_OP_MKDIR);
    op_make(&tree, "d/sub/f", SECRET "1");
    op_write(&tree, "d/sub/f", 0, "overwritten");
    op_make(&tree, "d/g", SECRET "2");
    op_make(&tree, "out", SECRET "3");
    op_rename(&tree, "out", "d/in", 0);
    op_make(&tree, "keep", "kept");
    stays("keep");
    then = wb_store_tick(tree.store);
    ck_assert_int_eq(erase("d", 0, NULL), -EISDIR);
    op_remove(&tree, "d/in", false);
    op_remove(&tree, "d/g", false);
    op_remove(&tree, "d/sub/f", false);
    op_remove(&tree, "d/sub", true);
    op_remove(&tree, "d", true);
    tree_release(&tree);
    ck_assert_int_eq(erase("d", WB_ERASE_PRESENT, NULL), -EISDIR);
    ck_assert_int_eq(erase("d", WB_ERASE_PRESENT | WB_ERASE_RECURSIVE, &count), 0);
    ck_assert_uint_eq(count.objects, 5);
    ck_assert(!store_holds(SECRET));
    gone("d", then);
    gone("out", then);
    check_stayed();
}
END_TEST

START_TEST(a_living_directory_forgets)
{
    int64_t then;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_birth(&tree, "d/sub", WB_OP_MKDIR);
    op_make(&tree, "d/sub/f", SECRET);
    op_write(&tree, "d/sub/f", 0, "plain bytes!");
    op_make(&tree, "d/old", SECRET);
    op_remove(&tree, "d/old", false);
    then = wb_store_tick(tree.store);
    ck_assert_int_eq(erase("d", WB_ERASE_RECURSIVE, NULL), 0);
    ck_assert(!store_holds(SECRET));
    gone("d", then);
    stays("d");
    stays("d/sub/f");
    op_write(&tree, "d/sub/f", 0, "PLAIN");
    op_make(&tree, "d/sub/new", "n");
    stays("d/sub");
    op_rename(&tree, "d/sub", "moved", 0);
    stays("moved");
    check_stayed();
}
END_TEST

START_TEST(commands_lose_their_arguments)
{
    g_autofree char *self = NULL;
    struct wb_actor actor;
    uint32_t mine = wb_store_actor(tree.store, 1, 2, (uint32_t)getpid()), other;

    ck_assert_uint_ne(mine, 0);
    op_actor = mine;
    op_make(&tree, "f", "text");
    other = wb_store_actor(tree.store, 3, 4, 0);
    op_actor = other;
    op_make(&tree, "g", "text");
    op_actor = mine;
    op_remove(&tree, "f", false);
    ck_assert_int_eq(erase("f", WB_ERASE_PRESENT, NULL), 0);
    ck_assert_int_eq(wb_store_actor_info(tree.store, mine, WB_WHEN_PRESENT, &actor), 0);
    ck_assert_uint_eq(actor.uid, 1);
    ck_assert_ptr_null(strchr(actor.command, ' '));
    ck_assert_int_eq(wb_store_actor_info(tree.store, other, WB_WHEN_PRESENT, &actor), 0);
    ck_assert_str_eq(actor.command, "[kernel]");
    /* New ones are written behind the old ones. */
    ck_assert_uint_gt(wb_store_actor(tree.store, 5, 6, 0), other);
}
END_TEST

START_TEST(a_restored_file_is_not_erased)
{
    op_make(&tree, "f", SECRET);
    ck_assert_int_eq(erase("f", WB_ERASE_PRESENT, NULL), -EEXIST);
    stays("f");
    check_stayed();
}
END_TEST

/* Names come and go at random around the one that is erased; all others are as they were. */
START_TEST(everything_else_is_kept)
{
    static const char *const names[] = {"a", "b", "c", "d/a", "d/b"};
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);
    struct stat st;

    op_birth(&tree, "d", WB_OP_MKDIR);
    for (int i = 0; i < 60; i++) {
        const char *one = names[g_rand_int_range(rand, 0, 5)], *two = names[g_rand_int_range(rand, 0, 5)];
        g_autofree char *text = g_strdup_printf("step %d", i);

        /* A file of its own in between, whose history nothing else shares. */
        if (i == 20)
            op_make(&tree, "victim", SECRET);
        if (i == 30)
            op_rename(&tree, "victim", "d/victim", 0);
        if (i == 35)
            op_write(&tree, "d/victim", 3, SECRET);
        if (i == 45)
            op_rename(&tree, "d/victim", "victim", 0);
        if (one == two)
            continue;
        if (fstatat(tree.fd, one, &st, 0) < 0)
            op_make(&tree, one, text);
        else if (g_rand_boolean(rand))
            op_write(&tree, one, 2, text);
        else if (g_rand_int_range(rand, 0, 3) == 0)
            op_remove(&tree, one, false);
        else if (fstatat(tree.fd, two, &st, 0) == 0 && g_rand_boolean(rand))
            op_rename(&tree, one, two, RENAME_EXCHANGE);
        else
            op_rename(&tree, one, two, 0);
        for (int k = 0; k < 5; k++)
            stays(names[k]);
    }
    op_remove(&tree, "victim", false);
    tree_release(&tree);
    ck_assert_int_eq(erase("victim", WB_ERASE_PRESENT, NULL), 0);
    ck_assert(!store_holds(SECRET));
    ck_assert(!store_holds("victim"));
    check_stayed();
}
END_TEST

/* Killed anywhere, an erasure is completed by the same request; nothing else has changed. */
START_TEST(killed_in_the_middle)
{
    int status, r;
    pid_t child;

    op_birth(&tree, "d", WB_OP_MKDIR);
    for (int i = 0; i < 30; i++) {
        g_autofree char *path = g_strdup_printf("d/%d", i);

        op_make(&tree, path, SECRET);
        op_write(&tree, path, 0, "overwritten");
    }
    op_make(&tree, "keep", "kept");
    stays("keep");
    op_write(&tree, "keep", 0, "KEPT");
    stays("keep");
    op_link(&tree, "d/1", "linked");
    op_rename(&tree, "d/2", "moved", 0);
    for (int i = 0; i < 30; i++) {
        g_autofree char *path = g_strdup_printf("d/%d", i);

        if (i != 2)
            op_remove(&tree, path, false);
    }
    op_remove(&tree, "d", true);
    tree_release(&tree);

    /* The parent has nothing to add to the manifest: it must not list logs that the child removes. */
    ck_assert_int_eq(wb_store_sync_listed(tree.store), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(erase("d", WB_ERASE_PRESENT | WB_ERASE_RECURSIVE, NULL) < 0);
    g_usleep((gulong)_i * _i * 200);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);

    wb_history_free(history);
    wb_store_free(tree.store);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    r = erase("d", WB_ERASE_PRESENT | WB_ERASE_RECURSIVE, NULL);
    ck_assert_msg(r == 0 || r == -ENOENT, "%d", r);
    ck_assert(!store_holds(SECRET));
    check_stayed();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("erase");
    TCase *tcase = tcase_create("erase");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_file_with_all_its_contents);
    tcase_add_test(tcase, directories_keep_their_own_past);
    tcase_add_test(tcase, times_of_directories_are_kept);
    tcase_add_test(tcase, a_file_that_replaced_it_is_kept);
    tcase_add_test(tcase, a_hard_link_elsewhere_keeps_the_present);
    tcase_add_test(tcase, the_present_without_its_past);
    tcase_add_test(tcase, a_directory_with_all_its_former_entries);
    tcase_add_test(tcase, a_living_directory_forgets);
    tcase_add_test(tcase, commands_lose_their_arguments);
    tcase_add_test(tcase, a_restored_file_is_not_erased);
    tcase_add_loop_test(tcase, everything_else_is_kept, 0, amount(20, 7));
    tcase_add_loop_test(tcase, killed_in_the_middle, 0, amount(20, 8));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
