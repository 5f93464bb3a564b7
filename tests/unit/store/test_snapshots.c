/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Named moments: the table, its log, and the meaning of FILE@NAME. */
#include "history_tree.h"
#include "store/parts.h"
#include "store/tables/snapshots.h"
#include <sys/stat.h>

static int add(const char *name, int64_t when, const char *scope, const char *const *files)
{
    struct wb_snapshot snapshot = {
        .when = when,
        .scope = tree_object(&tree, scope),
        .uid = 1000,
        .name = name,
        .text = "some text",
        .path = strcmp(scope, ".") == 0 ? "" : scope,
    };

    return wb_snapshots_add(tree.store, &snapshot, files);
}

static int64_t create(const char *name)
{
    int64_t when = now();
    int r = add(name, when, ".", NULL);

    ck_assert_msg(r == 0, "%s: %d", name, r);
    return when;
}

/* "name name ...", oldest first. */
static char *names_of(struct wb_store *store)
{
    struct wb_snapshots *all = NULL;
    GString *names = g_string_new(NULL);

    ck_assert_int_eq(wb_snapshots_get(store, &all), 0);
    for (size_t i = 0; i < all->count; i++) {
        ck_assert_ptr_eq(wb_snapshots_at(all, all->list[i].when), &all->list[i]);
        g_string_append_printf(names, "%s%s", i > 0 ? " " : "", all->list[i].name);
    }
    wb_snapshots_unref(all);
    return g_string_free(names, FALSE);
}

static void expect_names(struct wb_store *store, const char *wanted)
{
    g_autofree char *names = names_of(store);

    ck_assert_str_eq(names, wanted);
}

static void reopen(void)
{
    wb_history_free(history);
    wb_store_free(tree.store);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

static int open_log(int flags)
{
    int dir = openat(tree.fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(dir, WB_SNAPSHOTS_NAME, flags | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    close(dir);
    return fd;
}

static uint64_t log_size(void)
{
    int fd = open_log(O_RDONLY);
    struct stat st;

    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    return (uint64_t)st.st_size;
}

static void flip(uint64_t offset)
{
    int fd = open_log(O_RDWR);
    uint8_t byte;

    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x20;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* ---- the table ------------------------------------------------------------------------------- */

START_TEST(a_store_without_any)
{
    struct stat st;

    expect_names(tree.store, "");
    reopen();
    expect_names(tree.store, "");
    /* Looking makes no file. */
    ck_assert_int_eq(fstatat(tree.store->dir_fd, WB_SNAPSHOTS_NAME, &st, 0), -1);
    ck_assert_int_eq(wb_snapshots_delete(tree.store, 5), WB_ABSENT);
}
END_TEST

START_TEST(all_of_it_is_kept)
{
    static const char *const files[] = {"a/b", "c", NULL};
    struct wb_snapshots *all = NULL;
    const struct wb_snapshot *one;
    int64_t when;
    g_auto(GStrv) open = NULL;
    uint64_t more = 1;

    mkdirs("a", "a/dir", NULL);
    create("first");
    when = now();
    ck_assert_int_eq(add("before upgrade, später", when, "a/dir", files), 0);
    create("last");
    reopen();
    expect_names(tree.store, "first before upgrade, später last");
    ck_assert_int_eq(wb_snapshots_get(tree.store, &all), 0);
    one = wb_snapshots_find(all, "before upgrade, später", 0);
    ck_assert_ptr_nonnull(one);
    ck_assert_int_eq(one->when, when);
    ck_assert_int_eq(one->uid, 1000);
    ck_assert(!one->automatic);
    ck_assert_str_eq(one->text, "some text");
    ck_assert_str_eq(one->path, "a/dir");
    ck_assert(wb_object_equal(one->scope, tree_object(&tree, "a/dir")));
    ck_assert_ptr_null(wb_snapshots_find(all, "before", 0));
    ck_assert_ptr_null(wb_snapshots_at(all, when + 1));
    ck_assert_int_eq(wb_snapshots_open_files(tree.store, when, &open, &more), 0);
    ck_assert_uint_eq(g_strv_length(open), 2);
    ck_assert_str_eq(open[0], "a/b");
    ck_assert_str_eq(open[1], "c");
    ck_assert_uint_eq(more, 0);
    wb_snapshots_unref(all);
}
END_TEST

START_TEST(renaming_and_deleting)
{
    static const char *const files[] = {"open", NULL};
    g_auto(GStrv) open = NULL;
    int64_t first = now(), second;
    uint64_t more;

    ck_assert_int_eq(add("first", first, ".", files), 0);
    second = create("second");
    ck_assert_int_eq(wb_snapshots_rename(tree.store, first, "second"), -EEXIST);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, first, "first"), 0);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, first, "12:30"), -EINVAL);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, first + 1, "other"), WB_ABSENT);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, first, "renamed"), 0);
    expect_names(tree.store, "renamed second");
    ck_assert_int_eq(add("second", now(), ".", NULL), -EEXIST);
    ck_assert_int_eq(add("other", second, ".", NULL), -EEXIST);
    ck_assert_int_eq(wb_snapshots_delete(tree.store, second), 0);
    ck_assert_int_eq(wb_snapshots_delete(tree.store, second), WB_ABSENT);
    expect_names(tree.store, "renamed");
    reopen();
    expect_names(tree.store, "renamed");
    create("second");
    create("first");
    expect_names(tree.store, "renamed second first");
    ck_assert_int_eq(wb_snapshots_open_files(tree.store, first, &open, &more), 0);
    ck_assert_uint_eq(g_strv_length(open), 1);
    ck_assert_str_eq(open[0], "open");
    ck_assert_int_eq(wb_snapshots_open_files(tree.store, second, &open, &more), WB_ABSENT);
}
END_TEST

START_TEST(a_reader_beside_the_writer)
{
    struct wb_store *reader = NULL;
    struct wb_snapshots *before = NULL;
    struct wb_error why;
    int64_t when;

    ck_assert_int_eq(wb_store_open(&reader, tree.fd, NULL, 0, &why), 0);
    expect_names(reader, "");
    when = create("one");
    expect_names(reader, "one");
    ck_assert_int_eq(wb_snapshots_get(reader, &before), 0);
    create("two");
    expect_names(reader, "one two");
    ck_assert_int_eq(wb_snapshots_rename(tree.store, when, "three"), 0);
    expect_names(reader, "three two");
    /* Tables handed out before are unchanged. */
    ck_assert_uint_eq(before->count, 1);
    ck_assert_str_eq(before->list[0].name, "one");
    wb_snapshots_unref(before);
    ck_assert_int_eq(wb_snapshots_delete(reader, when), -EROFS);
    wb_store_free(reader);
}
END_TEST

/* The log was replaced by another of the same length. */
START_TEST(a_log_that_was_replaced)
{
    g_autofree char *data = NULL;
    uint64_t size;
    int fd;

    create("one");
    size = log_size();
    ck_assert_int_eq(wb_snapshots_delete(tree.store, create("two")), 0);
    expect_names(tree.store, "one");
    data = g_malloc0(log_size());
    fd = open_log(O_RDONLY);
    ck_assert_int_eq(read(fd, data, size), size);
    close(fd);
    /* Half of it, as after a crash in the middle of an append. */
    ck_assert_int_eq(wb_replace_file(tree.store->dir_fd, WB_SNAPSHOTS_NAME, data, size, 0600), 0);
    expect_names(tree.store, "one");
    ck_assert_int_eq(wb_replace_file(tree.store->dir_fd, WB_SNAPSHOTS_NAME, data, 0, 0600), 0);
    expect_names(tree.store, "");
    reopen();
    create("three");
    expect_names(tree.store, "three");
}
END_TEST

START_TEST(more_open_files_than_a_record_holds)
{
    g_autoptr(GPtrArray) files = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) open = NULL;
    int64_t when = now();
    uint64_t more = 0;

    for (unsigned i = 0; i < 20000; i++)
        g_ptr_array_add(files, g_strdup_printf("%0100u", i));
    g_ptr_array_add(files, NULL);
    ck_assert_int_eq(add("many", when, ".", (const char *const *)files->pdata), 0);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, when, "renamed"), 0);
    ck_assert_int_eq(wb_snapshots_open_files(tree.store, when, &open, &more), 0);
    ck_assert_uint_gt(more, 1);
    ck_assert_uint_eq(g_strv_length(open) + more, 20000);
    ck_assert_str_eq(open[0], files->pdata[0]);
}
END_TEST

/* ---- damage and crashes ---------------------------------------------------------------------- */

START_TEST(damage_costs_that_record_only)
{
    uint64_t one, two, three;
    int64_t when;

    create("one");
    one = log_size();
    when = create("two");
    two = log_size();
    create("three");
    three = log_size();
    flip(one + WB_HEAD_SIZE + 3);
    expect_names(tree.store, "one three");
    reopen();
    expect_names(tree.store, "one three");
    create("four");
    expect_names(tree.store, "one three four");
    flip(one + WB_HEAD_SIZE + 3);
    expect_names(tree.store, "one two three four");
    /* A deletion that cannot be read did not happen. */
    two = log_size();
    ck_assert_int_eq(wb_snapshots_delete(tree.store, when), 0);
    expect_names(tree.store, "one three four");
    flip(two + WB_HEAD_SIZE);
    expect_names(tree.store, "one two three four");
    ck_assert_uint_gt(three, one);
}
END_TEST

START_TEST(a_damaged_list_of_open_files)
{
    static const char *const files[] = {"some/file/that/was/open", NULL};
    int64_t when = now();
    g_auto(GStrv) open = NULL;
    uint64_t more;

    ck_assert_int_eq(add("one", when, ".", files), 0);
    flip(log_size() - 24);
    ck_assert_int_eq(wb_snapshots_open_files(tree.store, when, &open, &more), -EIO);
    expect_names(tree.store, "one");
    ck_assert_int_eq(wb_snapshots_rename(tree.store, when, "two"), 0);
    expect_names(tree.store, "two");
}
END_TEST

START_TEST(a_torn_tail_is_cut)
{
    uint64_t size;
    int fd;

    create("one");
    size = log_size();
    create("two");
    fd = open_log(O_RDWR);
    for (uint64_t cut = log_size() - 1; cut > size; cut -= 7) {
        ck_assert_int_eq(ftruncate(fd, (off_t)cut), 0);
        expect_names(tree.store, "one");
        if (cut < size + 8)
            break;
    }
    close(fd);
    reopen();
    create("three");
    expect_names(tree.store, "one three");
}
END_TEST

START_TEST(the_clock_continues_above_them)
{
    int64_t when = create("one");

    /* As if everything that remembers the clock was lost with the power. */
    wb_history_free(history);
    wb_store_free(tree.store);
    ck_assert_int_eq(unlinkat(tree.fd, WB_STORE_NAME "/" WB_INFLIGHT_NAME, 0), 0);
    ck_assert_int_eq(unlinkat(tree.fd, WB_STORE_NAME "/" WB_ACTORS_NAME, 0), 0);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    ck_assert_int_gt(now(), when);
}
END_TEST

/* ---- names ----------------------------------------------------------------------------------- */

START_TEST(permitted_names)
{
    static const char *const good[] = {"a", "before-upgrade", "x.y", "snap-2026-11-21_1403", "Größe 7", "v1.2",
                                       "GMT-", "日本", "a~", "release_4"};
    static const char *const bad[] = {"", "a/b", "a@b", "-n", ".x", "~2", "now", "yesterday", "14:03", "5m",
                                      "2026-11-20", "2026-11-20T14:03", "1763696000", "1763696000.5", "@5m",
                                      "99999999999999999999999", "5 minutes ago", "yesterday 14:03", " a", "a ",
                                      "a\nb", "a\x7f", "\xff", "a\xc2\x85", "a\xe2\x80\xa8", "1.2.3", ".."};
    g_autofree char *longest = g_strnfill(WB_SNAPSHOT_NAME_MAX, 'n');
    g_autofree char *longer = g_strnfill(WB_SNAPSHOT_NAME_MAX + 1, 'n');
    struct wb_error why;

    for (unsigned i = 0; i < G_N_ELEMENTS(good); i++)
        ck_assert_msg(wb_snapshot_name_check(good[i], &why) == 0, "%s: %s", good[i], why.text);
    for (unsigned i = 0; i < G_N_ELEMENTS(bad); i++) {
        why.text[0] = '\0';
        ck_assert_msg(wb_snapshot_name_check(bad[i], &why) == -EINVAL, "%s", bad[i]);
        ck_assert_msg(why.text[0] != '\0', "%s", bad[i]);
        ck_assert_int_eq(add(bad[i], now(), ".", NULL), -EINVAL);
    }
    ck_assert_int_eq(wb_snapshot_name_check(longest, NULL), 0);
    ck_assert_int_eq(wb_snapshot_name_check(longer, NULL), -EINVAL);
    ck_assert_int_eq(add(longest, now(), ".", NULL), 0);
    expect_names(tree.store, longest);
}
END_TEST

START_TEST(text_and_path_have_bounds)
{
    g_autofree char *text = g_strnfill(WB_SNAPSHOT_TEXT_MAX + 1, 't');
    g_autofree char *path = g_strnfill(WB_SNAPSHOT_PATH_MAX + 1, 'p');
    struct wb_snapshot snapshot = {
        .when = now(), .scope = tree_object(&tree, "."), .name = "a", .text = text, .path = path};

    path[WB_SNAPSHOT_PATH_MAX] = '\0';
    ck_assert_int_eq(wb_snapshots_add(tree.store, &snapshot, NULL), -EINVAL);
    text[WB_SNAPSHOT_TEXT_MAX] = '\0';
    ck_assert_int_eq(wb_snapshots_add(tree.store, &snapshot, NULL), 0);
    expect_names(tree.store, "a");
    path[WB_SNAPSHOT_PATH_MAX] = 'p';
    snapshot.name = "b";
    snapshot.when = now();
    ck_assert_int_eq(wb_snapshots_add(tree.store, &snapshot, NULL), -EINVAL);
}
END_TEST

/* ---- FILE@NAME ------------------------------------------------------------------------------- */

static int find_named(const char *dir, const char *entry, struct wb_revision **ret)
{
    struct wb_revision *at = find(dir, WB_WHEN_PRESENT, NULL);
    int r = wb_history_at(history, at, entry, ret);

    wb_revision_unref(at);
    return r;
}

static void expect_named(const char *dir, const char *entry, const char *content)
{
    struct wb_revision *revision = NULL;
    g_autofree char *text = NULL;
    int r = find_named(dir, entry, &revision);
    ssize_t n;

    ck_assert_msg(r == (content ? 0 : WB_ABSENT), "%s/%s: %d", dir, entry, r);
    if (!content)
        return;
    text = content_of(revision, &n);
    ck_assert_str_eq(text, content);
    wb_revision_unref(revision);
}

START_TEST(a_name_stands_for_its_moment)
{
    struct wb_object scope;
    struct wb_time time;
    int64_t when;

    op_make(&tree, "f", "old");
    when = create("before-upgrade");
    op_write(&tree, "f", 0, "new");
    expect_named("", "f@before-upgrade", "old");
    expect_named("", "f@before", NULL);
    expect_named("", "f", NULL);
    expect_named("", "g@before-upgrade", NULL);
    ck_assert_int_eq(wb_history_time(history, "before-upgrade", now(), 0, &time, &scope), 0);
    ck_assert_int_eq(time.kind, WB_TIME_INSTANT);
    ck_assert_int_eq(time.instant, when);
    ck_assert_int_eq(time.relative, 0);
    ck_assert_int_eq(wb_history_time(history, "5m", now(), 0, &time, &scope), 0);
    ck_assert(wb_object_is_none(scope));
    ck_assert_int_eq(wb_history_time(history, "nothing", now(), 0, &time, &scope), WB_NOT_TIME);
    ck_assert_int_eq(wb_snapshots_rename(tree.store, when, "later"), 0);
    expect_named("", "f@before-upgrade", NULL);
    expect_named("", "f@later", "old");
    ck_assert_int_eq(wb_snapshots_delete(tree.store, when), 0);
    expect_named("", "f@later", NULL);
}
END_TEST

START_TEST(a_snapshot_of_a_directory_is_of_that_alone)
{
    struct wb_revision *revision = NULL;

    mkdirs("a", "a/b", "c", NULL);
    op_make(&tree, "f", "f");
    op_make(&tree, "a/f", "a/f");
    op_make(&tree, "a/b/f", "a/b/f");
    op_make(&tree, "c/f", "c/f");
    ck_assert_int_eq(add("of-a", now(), "a", NULL), 0);
    expect_named("", "f@of-a", NULL);
    expect_named("c", "f@of-a", NULL);
    expect_named("a", "f@of-a", "a/f");
    expect_named("a/b", "f@of-a", "a/b/f");
    ck_assert_int_eq(find_named("", "@of-a", &revision), WB_ABSENT);
    ck_assert_int_eq(find_named("", "a@of-a", &revision), 0);
    wb_revision_unref(revision);
    ck_assert_int_eq(find_named("a", "@of-a", &revision), 0);
    wb_revision_unref(revision);
    ck_assert_int_eq(find_named("a", "b@of-a", &revision), 0);
    wb_revision_unref(revision);
    /* Its place then counts, not its present one. */
    op_rename(&tree, "a/b", "c/b", 0);
    op_rename(&tree, "c/f", "a/g", 0);
    expect_named("c/b", "f@of-a", "a/b/f");
    expect_named("a", "g@of-a", NULL);
    op_rename(&tree, "a", "c/d", 0);
    expect_named("c/d", "f@of-a", "a/f");
    ck_assert_int_eq(find_named("c", "@of-a", &revision), WB_ABSENT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("snapshots");
    TCase *tests = tcase_create("snapshots");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_store_without_any);
    tcase_add_test(tests, all_of_it_is_kept);
    tcase_add_test(tests, renaming_and_deleting);
    tcase_add_test(tests, a_reader_beside_the_writer);
    tcase_add_test(tests, a_log_that_was_replaced);
    tcase_add_test(tests, more_open_files_than_a_record_holds);
    tcase_add_test(tests, damage_costs_that_record_only);
    tcase_add_test(tests, a_damaged_list_of_open_files);
    tcase_add_test(tests, a_torn_tail_is_cut);
    tcase_add_test(tests, the_clock_continues_above_them);
    tcase_add_test(tests, permitted_names);
    tcase_add_test(tests, text_and_path_have_bounds);
    tcase_add_test(tests, a_name_stands_for_its_moment);
    tcase_add_test(tests, a_snapshot_of_a_directory_is_of_that_alone);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
