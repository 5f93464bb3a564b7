/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Names of the past: the object at a path, and its present place. */
#include "history_tree.h"
#include <pthread.h>

static void expect_place(const char *path, int64_t when, enum wb_link_state state, const char *wanted)
{
    struct wb_revision *revision = find(path, when, NULL);
    struct wb_location location;

    ck_assert_ptr_nonnull(revision);
    ck_assert_int_eq(wb_revision_resolve(history, revision, &location), 0);
    ck_assert_int_eq(location.state, state);
    if (wanted)
        ck_assert_str_eq(location.path, wanted);
    else
        ck_assert_ptr_null(location.path);
    g_free(location.path);
    wb_revision_unref(revision);
}

/* ---- places of objects ----------------------------------------------------------------------- */

START_TEST(files_are_followed_through_renames)
{
    int64_t when;

    mkdirs("a", "b", "b/c", NULL);
    op_make(&tree, "a/x", "text");
    when = now();
    op_rename(&tree, "a/x", "a/y", 0);
    op_rename(&tree, "a/y", "b/y", 0);
    op_rename(&tree, "b/y", "b/c/z", 0);
    op_rename(&tree, "b", "d", 0);
    expect_place("a/x", when, WB_LINKED, "d/c/z");
    op_make(&tree, "a/x", "other");
    op_rename(&tree, "d/c/z", "a/x", RENAME_EXCHANGE);
    expect_place("a/x", when, WB_LINKED, "a/x");
    op_write(&tree, "a/x", 0, "TEXT");
    expect_content("a/x", when, "text");
    expect_content("b/c/z", when, NULL);
    op_remove(&tree, "a/x", false);
    expect_place("a/x", when, WB_UNLINKED, NULL);
    expect_content("a/x", when, "text");
}
END_TEST

START_TEST(a_long_chain_of_names)
{
    int64_t when;

    mkdirs("a", "b", NULL);
    op_make(&tree, "a/0", "text");
    when = now();
    for (int i = 0; i < 100; i++) {
        g_autofree char *from = g_strdup_printf("%c/%d", "ab"[i % 2], i);
        g_autofree char *to = g_strdup_printf("%c/%d", "ba"[i % 2], i + 1);

        op_rename(&tree, from, to, 0);
        tree_release(&tree);
    }
    expect_place("a/0", when, WB_LINKED, "a/100");
    expect_content("a/0", when, "text");
}
END_TEST

START_TEST(directories_that_moved_and_died)
{
    int64_t before, moved;

    mkdirs("a", "a/b", "a/b/c", "z", NULL);
    op_make(&tree, "a/b/c/f", "text");
    before = now();
    op_rename(&tree, "a/b", "z/b", 0);
    moved = now();
    expect_place("a/b/c", before, WB_LINKED, "z/b/c");
    expect_content("a/b/c/f", before, "text");
    expect_content("a/b/c/f", moved, NULL);
    expect_content("z/b/c/f", moved, "text");
    expect_content("z/b/c/f", before, NULL);
    op_remove(&tree, "z/b/c/f", false);
    op_remove(&tree, "z/b/c", true);
    op_remove(&tree, "z/b", true);
    op_remove(&tree, "a", true);
    expect_place("a/b/c", before, WB_UNLINKED, NULL);
    expect_content("a/b/c/f", before, "text");
    expect_content("z/b/c/f", moved, "text");
}
END_TEST

START_TEST(shifts_follow_the_object)
{
    struct wb_revision *revision, *then, *none = NULL;
    int64_t born, moved;

    mkdirs("a", "z", NULL);
    born = now();
    mkdirs("a/b", NULL);
    op_make(&tree, "a/b/f", "text");
    moved = now();
    op_rename(&tree, "a/b", "z/c", 0);
    revision = find("z/c", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_revision_shift(history, revision, moved, &then), 0);
    ck_assert_str_eq(wb_revision_name(then), "b");
    ck_assert_str_eq(wb_revision_name(wb_revision_parent(then)), "a");
    ck_assert_int_eq(wb_revision_shift(history, revision, born, &none), WB_ABSENT);
    wb_revision_unref(then);
    wb_revision_unref(revision);
    revision = find("z/c/f", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_revision_shift(history, revision, moved, &then), 0);
    ck_assert_str_eq(wb_revision_name(wb_revision_parent(then)), "b");
    wb_revision_unref(then);
    wb_revision_unref(revision);
}
END_TEST

/* In more directories than catalogs are kept open, and more often than the former limit of a walk. */
START_TEST(shifts_over_many_renames)
{
    enum { TIMES = 6000, DIRS = 11 };
    struct wb_revision *revision, *then;
    int64_t first, middle = 0;
    char from[64], to[64], at[64] = "";

    for (int i = 0; i < DIRS; i++) {
        snprintf(to, sizeof(to), "d%d", i);
        mkdirs(to, NULL);
        tree_release(&tree);
    }
    op_make(&tree, "d0/f", "text");
    first = now();
    snprintf(from, sizeof(from), "d0/f");
    for (int i = 1; i <= TIMES; i++) {
        snprintf(to, sizeof(to), "d%d/f%d", i * 7 % DIRS, i % 5);
        op_rename(&tree, from, to, 0);
        tree_release(&tree);
        memcpy(from, to, sizeof(from));
        if (i == TIMES / 2) {
            middle = now();
            memcpy(at, to, sizeof(at));
        }
    }
    revision = find(to, WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_revision_shift(history, revision, middle, &then), 0);
    ck_assert_str_eq(wb_revision_name(then), strchr(at, '/') + 1);
    wb_revision_unref(then);
    ck_assert_int_eq(wb_revision_shift(history, revision, first, &then), 0);
    ck_assert_str_eq(wb_revision_name(then), "f");
    ck_assert_str_eq(wb_revision_name(wb_revision_parent(then)), "d0");
    wb_revision_unref(revision);
    revision = then;
    ck_assert_int_eq(wb_revision_shift(history, revision, middle, &then), 0);
    ck_assert_str_eq(wb_revision_name(then), strchr(at, '/') + 1);
    wb_revision_unref(then);
    wb_revision_unref(revision);
    expect_place("d0/f", first, WB_LINKED, to);
    expect_content("d0/f", first, "text");
}
END_TEST

START_TEST(restored_files_are_found)
{
    struct wb_object object;
    const char *name;
    int64_t when;

    mkdirs("a", "b", NULL);
    op_make(&tree, "a/x", "text");
    object = tree_object(&tree, "a/x");
    when = now();
    op_remove(&tree, "a/x", false);
    ck_assert_int_eq(wb_capture_restore(tree.store, tree_parent(&tree, "b/y", &name), "y", object, false, -1,
                                        NULL, 0), 0);
    expect_place("a/x", when, WB_LINKED, "b/y");
    op_rename(&tree, "b/y", "b/z", 0);
    expect_place("a/x", when, WB_LINKED, "b/z");
    op_write(&tree, "b/z", 1, "EX");
    expect_content("a/x", when, "text");
}
END_TEST

START_TEST(hard_links)
{
    struct wb_revision *revision;
    struct wb_attrs attrs;
    int64_t one, two;

    op_make(&tree, "a", "text");
    one = now();
    op_link(&tree, "a", "b");
    two = now();
    op_write(&tree, "b", 0, "TEXT");
    op_remove(&tree, "a", false);
    expect_content("a", one, "text");
    expect_content("b", two, "text");
    expect_content("b", one, NULL);
    revision = find("a", one, NULL);
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 1);
    wb_revision_unref(revision);
    revision = find("b", two, NULL);
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 2);
    wb_revision_unref(revision);
    revision = find("b", WB_WHEN_PRESENT, NULL);
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 1);
    wb_revision_unref(revision);
}
END_TEST

START_TEST(paths_longer_than_one_string_may_be)
{
    g_autofree char *name = g_strnfill(200, 'n');
    struct wb_revision *revision, *child;
    struct wb_dir *dir = tree_dir(&tree, "");
    struct wb_change change;
    int64_t when;

    for (int i = 0; i < 30; i++) {
        struct wb_dir *next = g_new0(struct wb_dir, 1);

        ck_assert_int_eq(wb_capture_birth(tree.store, &change, dir, name, WB_OP_MKDIR, 0), 0);
        ck_assert_int_eq(mkdirat(dir->fd, name, 0755), 0);
        wb_capture_end(&change, 0);
        *next = (struct wb_dir){.parent = dir, .name = name,
                                .fd = openat(dir->fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC)};
        ck_assert_int_eq(wb_object_stat(NULL, next->fd, NULL, &next->object, NULL, NULL), 0);
        g_ptr_array_add(tree.dirs, next);
        dir = next;
    }
    when = now();
    ck_assert_int_eq(wb_revision_root(history, when, &revision), 0);
    for (int i = 0; i < 30; i++) {
        ck_assert_msg(wb_revision_child(history, revision, name, &child) == 0, "level %d %s", i, wb_history_error());
        wb_revision_unref(revision);
        revision = child;
    }
    ck_assert(wb_object_equal(wb_revision_object(revision), dir->object));
    wb_revision_unref(revision);
}
END_TEST

START_TEST(an_unrecorded_later_object_is_not_seen)
{
    struct wb_past_dir *past;
    struct wb_revision *root;
    int64_t when;

    op_make(&tree, "f", "text");
    when = now();
    g_usleep(20000);
    close(openat(tree.fd, "foreign", O_CREAT | O_RDWR, 0644));
    expect_content("foreign", when, NULL);
    expect_content("foreign", now(), "");
    ck_assert_int_eq(wb_revision_root(history, when, &root), 0);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 1);
    ck_assert_str_eq(wb_past_dir_name(past, 0), "f");
    wb_past_dir_free(past);
    wb_revision_unref(root);
}
END_TEST

START_TEST(a_birth_dated_after_its_record)
{
    struct wb_change change;
    struct wb_past_dir *past;
    struct wb_revision *root;
    int64_t recorded, when;

    ck_assert_int_eq(wb_capture_birth(tree.store, &change, tree_dir(&tree, ""), "f", WB_OP_CREATE, 0), 0);
    recorded = change.when;
    when = now();
    g_usleep(30000);
    close(openat(tree.fd, "f", O_CREAT | O_RDWR, 0644));
    wb_capture_end(&change, 0);
    expect_content("f", when, "");
    expect_content("f", recorded, "");
    expect_content("f", recorded - 1, NULL);
    ck_assert_int_eq(wb_revision_root(history, when, &root), 0);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 1);
    wb_past_dir_free(past);
    wb_revision_unref(root);
}
END_TEST

/* As a forged store has it: a walk of such a tree would never end. */
START_TEST(a_directory_inside_itself_is_not_a_state)
{
    struct wb_record record = {.type = WB_REC_NAME, .op = WB_OP_RMDIR, .name = {.count = 1}};
    struct wb_slot *slot = &record.name.slots[0];
    struct wb_object inner;
    struct wb_past_dir *past;
    struct wb_revision *revision, *child = NULL;
    struct wb_log *log;
    int64_t when;
    int r;

    mkdirs("d", "d/e", "d/e/f", NULL);
    when = now();
    ck_assert_int_eq(wb_object_stat(NULL, tree.fd, "d", &slot->object, &slot->attrs, NULL), 0);
    ck_assert_int_eq(wb_object_stat(NULL, tree.fd, "d/e", &inner, &record.name.dir, NULL), 0);
    slot->name = "loop";
    slot->name_length = 4;
    slot->present = 1;
    slot->unbind = WB_UNBIND_KEPT;
    ck_assert_int_eq(wb_store_get_log(tree.store, inner, WB_FILE_CATALOG, true, &log), 0);
    record.when = now();
    pthread_mutex_lock(&log->lock);
    ck_assert_int_eq(wb_log_append_locked(log, &record, NULL, 0), 0);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(tree.store, log);

    ck_assert_ptr_null(find("d/e/loop", when, &r));
    ck_assert_int_eq(r, -EIO);
    ck_assert_ptr_nonnull(strstr(wb_history_error(), "inside itself"));
    revision = find("d/e", when, NULL);
    ck_assert_int_eq(wb_past_dir_open(history, revision, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 2);
    ck_assert_int_eq(wb_past_dir_revision(past, 0, &child), 0);
    ck_assert_str_eq(wb_revision_name(child), "f");
    wb_revision_unref(child);
    ck_assert_int_eq(wb_past_dir_revision(past, 1, &child), -EIO);
    wb_past_dir_free(past);
    wb_revision_unref(revision);
}
END_TEST

/*
 * A listing of a directory meets all of them, so none is waited for while nothing changes: otherwise Check ends this.
 */
START_TEST(a_file_removed_behind_the_mount_is_not_waited_for)
{
    enum { FILES = 600 };
    struct wb_location location;
    int64_t before;

    for (unsigned i = 0; i < FILES; i++) {
        g_autofree char *name = g_strdup_printf("f%u", i), *other = g_strdup_printf("g%u", i);

        op_make(&tree, name, "");
        before = now();
        op_rename(&tree, name, other, 0);
        ck_assert_int_eq(unlinkat(tree.fd, other, 0), 0);
        for (unsigned again = 0; again < 2; again++) {
            struct wb_revision *revision = find(name, before, NULL);

            ck_assert_int_eq(wb_revision_resolve(history, revision, &location), -EIO);
            wb_revision_unref(revision);
        }
    }
}
END_TEST

START_TEST(the_store_is_never_seen)
{
    struct wb_revision *root, *child = NULL;
    struct wb_past_dir *past;

    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &root), 0);
    ck_assert_int_eq(wb_revision_child(history, root, WB_STORE_NAME, &child), WB_ABSENT);
    ck_assert_int_eq(wb_past_dir_open(history, root, &past), 0);
    ck_assert_uint_eq(wb_past_dir_count(past), 0);
    wb_past_dir_free(past);
    wb_revision_unref(root);
}
END_TEST

/* ---- reading while another writes ------------------------------------------------------------ */

static atomic_bool race_over;

/* A file cycles through a ring of names in two directories, always present under the first one then. */
static void *move_around(void *data)
{
    static struct tree mine;

    mine = tree;
    mine.dirs = g_ptr_array_new_with_free_func(g_free);
    mine.strings = g_ptr_array_new_with_free_func(g_free);
    for (int i = 0; i < 400; i++) {
        op_rename(&mine, i % 2 ? "b/y" : "a/x", i % 2 ? "a/x" : "b/y", 0);
        op_rename(&mine, i % 2 ? "e/sub" : "a/sub", i % 2 ? "a/sub" : "e/sub", 0);
        op_make(&mine, "a/temporary", "");
        op_remove(&mine, "a/temporary", false);
        tree_release(&mine);
    }
    g_ptr_array_unref(mine.dirs);
    g_ptr_array_unref(mine.strings);
    race_over = true;
    return NULL;
}

START_TEST(names_are_exact_while_they_change)
{
    struct wb_past_dir *past;
    pthread_t thread;
    unsigned rounds = 0;
    int64_t when;

    mkdirs("a", "b", "e", "a/sub", NULL);
    op_make(&tree, "a/x", "text");
    op_make(&tree, "a/sub/f", "below");
    when = now();
    race_over = false;
    pthread_create(&thread, NULL, move_around, NULL);
    while (!race_over || rounds < 2) {
        struct wb_revision *dir = find("a", when, NULL);

        expect_content("a/x", when, "text");
        expect_content("b/y", when, NULL);
        expect_content("a/sub/f", when, "below");
        ck_assert_int_eq(wb_past_dir_open(history, dir, &past), 0);
        ck_assert_uint_eq(wb_past_dir_count(past), 2);
        wb_past_dir_free(past);
        wb_revision_unref(dir);
        rounds++;
    }
    pthread_join(thread, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("history");
    TCase *tcase = tcase_create("history");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, files_are_followed_through_renames);
    tcase_add_test(tcase, a_long_chain_of_names);
    tcase_add_test(tcase, directories_that_moved_and_died);
    tcase_add_test(tcase, shifts_follow_the_object);
    tcase_add_test(tcase, shifts_over_many_renames);
    tcase_add_test(tcase, restored_files_are_found);
    tcase_add_test(tcase, hard_links);
    tcase_add_test(tcase, paths_longer_than_one_string_may_be);
    tcase_add_test(tcase, an_unrecorded_later_object_is_not_seen);
    tcase_add_test(tcase, a_birth_dated_after_its_record);
    tcase_add_test(tcase, a_directory_inside_itself_is_not_a_state);
    tcase_add_test(tcase, a_file_removed_behind_the_mount_is_not_waited_for);
    tcase_add_test(tcase, the_store_is_never_seen);
    tcase_add_test(tcase, names_are_exact_while_they_change);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
