/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lists of changes made by programs. A list is compared as text, a line for each version:
 *     op name[>other] size_before>size_after [-+][-+]     (existed before, exists after)
 */
#include "capture_ops.h"
#include "history/history.h"
#include <inttypes.h>

static struct tree tree;
static struct wb_history *history;

static void setup(void)
{
    op_actor = 0;
    tree_open(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

static void teardown(void)
{
    wb_history_free(history);
    tree_close(&tree);
}

static struct wb_revision *root(void)
{
    struct wb_revision *revision;

    ck_assert_int_eq(wb_revision_root(history, WB_WHEN_PRESENT, &revision), 0);
    return revision;
}

static struct wb_versions *open_list(const char *path)
{
    struct wb_revision *top = root(), *dir = NULL;
    g_autofree char *name = NULL;
    struct wb_versions *versions;

    ck_assert_int_eq(wb_history_find(history, top, path, &dir, &name), 0);
    ck_assert_int_eq(wb_versions_open(history, dir, name, &versions), 0);
    wb_revision_unref(dir);
    wb_revision_unref(top);
    return versions;
}

static char *list(const char *path)
{
    struct wb_versions *versions = open_list(path);
    GString *text = g_string_new("");
    struct wb_version version;
    int64_t last = INT64_MAX;
    uint32_t change = 0;
    int r;

    while ((r = wb_versions_next(versions, &version)) == 0) {
        ck_assert_int_eq(version.change, ++change);
        ck_assert_int_lt(version.when, last);
        last = version.when;
        g_string_append_printf(text, "%s %s", wb_op_name(version.op), version.name);
        if (*version.other)
            g_string_append_printf(text, ">%s", version.other);
        if (*version.detail)
            g_string_append_printf(text, "(%s)", version.detail);
        g_string_append_printf(text, " %" PRIu64 ">%" PRIu64 " %c%c\n", version.size_before,
                               version.size_after, version.existed_before ? '+' : '-',
                               version.exists_after ? '+' : '-');
    }
    ck_assert_int_eq(r, WB_END);
    wb_versions_free(versions);
    return g_string_free(text, FALSE);
}

static void expect(const char *path, const char *wanted)
{
    g_autofree char *found = list(path);

    ck_assert_msg(strcmp(found, wanted) == 0, "%s: found\n%swanted\n%s", path, found, wanted);
}

static char *content(struct wb_revision *revision)
{
    struct wb_file_view *view;
    char *text;
    uint64_t size;

    ck_assert_int_eq(wb_file_view_open(history, revision, &view), 0);
    size = wb_file_view_size(view);
    text = g_malloc0(size + 1);
    ck_assert_int_eq(wb_file_view_pread(view, text, size, 0), (ssize_t)size);
    wb_file_view_free(view);
    return text;
}

/* Contents before each change, newest first; "-" where it did not exist. */
static void expect_before(const char *path, const char *const *wanted)
{
    struct wb_revision *top = root();

    for (uint32_t n = 1; wanted[n - 1]; n++) {
        struct wb_time time = {.kind = WB_TIME_VERSION, .number = n};
        struct wb_revision *revision = NULL;
        g_autofree char *found = NULL;
        int r = wb_revision_at(history, top, path, &time, WB_OBJECT_NONE, &revision);

        ck_assert_msg(r == 0 || r == WB_ABSENT, "~%u: %d %s", n, r, wb_history_error());
        found = r == 0 ? content(revision) : g_strdup("-");
        wb_revision_unref(revision);
        ck_assert_msg(strcmp(found, wanted[n - 1]) == 0, "%s@~%u: \"%s\" is not \"%s\"", path, n, found,
                      wanted[n - 1]);
    }
    wb_revision_unref(top);
}

START_TEST(writes_and_appends)
{
    op_make(&tree, "f", "one");
    op_write(&tree, "f", 3, " two");
    op_write(&tree, "f", 0, "ONE");
    op_truncate(&tree, "f", 4);
    op_chmod(&tree, "f", 0600);
    op_setxattr(&tree, "f", "user.colour", "red");
    expect("f", "setxattr f(user.colour) 4>4 ++\n"
                "chmod f 4>4 ++\n"
                "truncate f 7>4 ++\n"
                "write f 7>7 ++\n"
                "write f 3>7 ++\n"
                "write f 0>3 ++\n"
                "create f 0>0 -+\n");
    expect_before("f", (const char *const[]){"ONE two", "one two", "one", "-", "-", NULL});
}
END_TEST

START_TEST(a_tree_from_before_has_no_changes)
{
    int fd = openat(tree.fd, "old", O_CREAT | O_RDWR, 0644);

    ck_assert_int_eq(write(fd, "was", 3), 3);
    close(fd);
    expect("old", "");
    op_write(&tree, "old", 0, "now");
    expect("old", "write old 3>3 ++\n");
    expect_before("old", (const char *const[]){"was", "-", NULL});
    expect("never", "");
}
END_TEST

START_TEST(saves_by_tmp_and_rename)
{
    op_make(&tree, "doc", "first");
    op_make(&tree, "doc.tmp", "second!");
    op_rename(&tree, "doc.tmp", "doc", 0);
    op_make(&tree, "doc.tmp", "third");
    op_rename(&tree, "doc.tmp", "doc", 0);
    expect("doc", "rename doc>doc.tmp 7>5 ++\n"
                  "rename doc>doc.tmp 5>7 ++\n"
                  "write doc 0>5 ++\n"
                  "create doc 0>0 -+\n");
    expect_before("doc", (const char *const[]){"second!", "first", "-", "-", NULL});
    /* The temporary name is free now: its own list begins with its last loss. */
    expect("doc.tmp", "rename doc.tmp>doc 5>0 +-\n"
                      "write doc.tmp 0>5 ++\n"
                      "create doc.tmp 0>0 -+\n"
                      "rename doc.tmp>doc 7>0 +-\n"
                      "write doc.tmp 0>7 ++\n"
                      "create doc.tmp 0>0 -+\n");
}
END_TEST

START_TEST(an_object_is_followed_to_its_former_name)
{
    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/a", "A");
    op_write(&tree, "d/a", 1, "A");
    op_rename(&tree, "d/a", "b", 0);
    op_write(&tree, "b", 0, "b");
    expect("b", "write b 2>2 ++\n"
                "rename a>b 2>2 ++\n"
                "write a 1>2 ++\n"
                "write a 0>1 ++\n"
                "create a 0>0 -+\n");
    expect_before("b", (const char *const[]){"AA", "A", "-", "-", NULL});
}
END_TEST

START_TEST(former_life_and_older_life_are_merged)
{
    op_make(&tree, "a", "x");
    op_make(&tree, "b", "old");
    op_write(&tree, "a", 0, "y");
    op_remove(&tree, "b", false);
    op_write(&tree, "a", 0, "z");
    op_rename(&tree, "a", "b", 0);
    expect("b", "rename a>b 1>1 ++\n"
                "write a 1>1 ++\n"
                "unlink b 3>0 +-\n"
                "write a 1>1 ++\n"
                "write b 0>3 ++\n"
                "create b 0>0 -+\n"
                "write a 0>1 ++\n"
                "create a 0>0 -+\n");
    expect_before("b", (const char *const[]){"y", "old", "x", "-", "-", "-", NULL});
}
END_TEST

START_TEST(there_and_back_again)
{
    op_make(&tree, "a", "1");
    op_rename(&tree, "a", "b", 0);
    op_write(&tree, "b", 0, "2");
    op_rename(&tree, "b", "a", 0);
    expect("a", "rename b>a 1>1 ++\n"
                "write b 1>1 ++\n"
                "rename a>b 1>0 +-\n"
                "write a 0>1 ++\n"
                "create a 0>0 -+\n");
}
END_TEST

/* An object that returns to a former name is listed once, however often. */
START_TEST(there_and_back_many_times)
{
    g_autofree char *found = NULL;
    unsigned lines = 0;

    op_make(&tree, "a", "1");
    for (int i = 0; i < 20; i++) {
        op_rename(&tree, "a", "b", 0);
        op_rename(&tree, "b", "a", 0);
    }
    found = list("a");
    for (const char *c = found; *c; c++)
        lines += *c == '\n';
    ck_assert_uint_eq(lines, 42);
    ck_assert(g_str_has_suffix(found, "write a 0>1 ++\ncreate a 0>0 -+\n"));
}
END_TEST

START_TEST(deleted_and_made_again)
{
    op_make(&tree, "f", "one");
    op_remove(&tree, "f", false);
    expect("f", "unlink f 3>0 +-\nwrite f 0>3 ++\ncreate f 0>0 -+\n");
    op_make(&tree, "f", "again");
    expect("f", "write f 0>5 ++\ncreate f 0>0 -+\nunlink f 3>0 +-\nwrite f 0>3 ++\ncreate f 0>0 -+\n");
    expect_before("f", (const char *const[]){"one", "-", "-", NULL});
}
END_TEST

START_TEST(hard_links_share_their_content)
{
    op_make(&tree, "a", "1");
    op_link(&tree, "a", "b");
    op_write(&tree, "a", 0, "2");
    op_remove(&tree, "a", false);
    op_write(&tree, "b", 0, "3");
    expect("b", "write b 1>1 ++\n"
                "unlink b 1>1 ++\n"
                "write b 1>1 ++\n"
                "link b>a 0>1 -+\n"
                "write a 0>1 ++\n"
                "create a 0>0 -+\n");
    expect("a", "unlink a 1>0 +-\n"
                "write a 1>1 ++\n"
                "link a 1>1 ++\n"
                "write a 0>1 ++\n"
                "create a 0>0 -+\n");
}
END_TEST

START_TEST(two_names_exchanged)
{
    op_make(&tree, "a", "aa");
    op_make(&tree, "b", "b");
    op_rename(&tree, "a", "b", RENAME_EXCHANGE);
    expect("a", "exchange a>b 2>1 ++\nwrite a 0>2 ++\ncreate a 0>0 -+\n");
    expect("b", "exchange b>a 1>2 ++\nwrite b 0>1 ++\ncreate b 0>0 -+\n");
    expect_before("a", (const char *const[]){"aa", "-", "-", NULL});
}
END_TEST

START_TEST(a_directory_lists_its_entries_and_itself)
{
    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/f", "text");
    op_chmod(&tree, "d", 0700);
    op_rename(&tree, "d/f", "d/g", 0);
    op_rename(&tree, "d", "e", 0);
    op_rename(&tree, "e/g", "g", 0);
    expect("e", "rename g>g 4>0 +-\n"
                "rename d>e 0>0 ++\n"
                "rename f>g 4>4 ++\n"
                "chmod d 0>0 ++\n"
                "create f 0>0 -+\n"
                "mkdir d 0>0 -+\n");
    op_remove(&tree, "e", true);
}
END_TEST

static struct wb_revision *at_change(const char *name, uint32_t n)
{
    struct wb_time time = {.kind = WB_TIME_VERSION, .number = n};
    struct wb_revision *top = root(), *revision = NULL;

    ck_assert_int_eq(wb_revision_at(history, top, name, &time, WB_OBJECT_NONE, &revision), 0);
    wb_revision_unref(top);
    return revision;
}

static guint entries(struct wb_revision *revision)
{
    struct wb_past_dir *dir;
    size_t count;

    ck_assert_int_eq(wb_past_dir_open(history, revision, &dir), 0);
    count = wb_past_dir_count(dir);
    wb_past_dir_free(dir);
    return (guint)count;
}

START_TEST(a_directory_before_its_changes)
{
    struct wb_revision *revision;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/f", "text");
    op_make(&tree, "d/g", "");
    op_remove(&tree, "d/f", false);
    op_rename(&tree, "d", "e", 0);

    revision = at_change("e", 1);
    ck_assert_str_eq(wb_revision_name(revision), "d");
    ck_assert_uint_eq(entries(revision), 1);
    wb_revision_unref(revision);
    revision = at_change("e", 2);
    ck_assert_uint_eq(entries(revision), 2);
    wb_revision_unref(revision);
    revision = at_change("e", 4);
    ck_assert_uint_eq(entries(revision), 0);
    wb_revision_unref(revision);
    /* The list begins with the former name it was moved from. */
    revision = at_change("d", 1);
    ck_assert_uint_eq(entries(revision), 1);
    wb_revision_unref(revision);
}
END_TEST

START_TEST(failed_changes_are_no_versions)
{
    struct wb_change change;

    op_make(&tree, "f", "1");
    ck_assert_int_eq(wb_capture_birth(tree.store, &change, tree_dir(&tree, ""), "g", WB_OP_CREATE, 0), 0);
    wb_capture_end(&change, -ENOSPC);
    expect("g", "");
    expect("f", "write f 0>1 ++\ncreate f 0>0 -+\n");
}
END_TEST

/* Many moves, so that former lives overlap as often as they can. */
START_TEST(logs_that_rotate)
{
    static const char *const names[] = {"log", "log.1", "log.2", "log.3"};
    g_autofree char *text = NULL;
    struct wb_revision *top;

    for (int turn = 0; turn < 40; turn++) {
        for (int i = 3; i > 0; i--) {
            struct stat st;

            if (fstatat(tree.fd, names[i - 1], &st, 0) == 0)
                op_rename(&tree, names[i - 1], names[i], 0);
        }
        text = g_strdup_printf("turn %d", turn);
        op_make(&tree, "log", text);
        g_clear_pointer(&text, g_free);
    }
    top = root();
    for (int i = 0; i < 4; i++) {
        struct wb_versions *versions;
        struct wb_version version;
        int64_t last = INT64_MAX;
        unsigned births = 0;
        int r;

        ck_assert_int_eq(wb_versions_open(history, top, names[i], &versions), 0);
        while ((r = wb_versions_next(versions, &version)) == 0) {
            ck_assert_int_lt(version.when, last);
            last = version.when;
            births += version.op == WB_OP_CREATE;
        }
        ck_assert_int_eq(r, WB_END);
        wb_versions_free(versions);
        ck_assert_uint_ge(births, i < 3 ? 38 : 1);
    }
    wb_revision_unref(top);
}
END_TEST

/* The present object "a", as text. */
static char *look(const char *name)
{
    g_autofree char *path = g_strdup_printf("%s/%s", tree.path, name);
    char *text = NULL;
    struct stat st;

    if (fstatat(tree.fd, name, &st, 0) < 0)
        return g_strdup("-");
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    return text;
}

static bool is_same(const struct wb_version *a, const struct wb_version *b)
{
    return a->change == b->change && a->save == b->save && a->when == b->when && a->op == b->op && a->actor == b->actor &&
           a->offset == b->offset && a->length == b->length && a->size_before == b->size_before &&
           a->size_after == b->size_after && a->existed_before == b->existed_before &&
           a->exists_after == b->exists_after && a->mode_before == b->mode_before && wb_object_equal(a->dir, b->dir) &&
           wb_object_equal(a->other_dir, b->other_dir) && wb_object_equal(a->object, b->object) &&
           strcmp(a->name, b->name) == 0 && strcmp(a->other, b->other) == 0 && strcmp(a->detail, b->detail) == 0;
}

/* Whether the rest of the list of "a" is the same for a walk that passes over the newer versions. */
static void pass_and_go_on(GArray *all, GArray *marks)
{
    for (guint i = 0; i < all->len; i++) {
        const struct wb_version *last = &g_array_index(all, struct wb_version, i);
        struct wb_versions *versions = open_list("a");
        struct wb_save_mark mark = g_array_index(marks, struct wb_save_mark, i);
        struct wb_version version;
        guint count = i + 1;

        ck_assert_int_eq(wb_versions_next(versions, &version), 0);
        ck_assert_int_eq(wb_versions_pass(versions, last->when, i + 1, &mark), 0);
        for (; wb_versions_next(versions, &version) == 0; count++) {
            const struct wb_version *want = &g_array_index(all, struct wb_version, count);

            ck_assert_uint_lt(count, all->len);
            ck_assert_msg(is_same(&version, want), "after %u, version %u differs: %s %s", i, count,
                          wb_op_name(version.op), version.name);
        }
        ck_assert_uint_eq(count, all->len);
        wb_versions_free(versions);
    }
}

#define STEPS 80

/* Every change that was seen is a version, and the state before each version is the one that was seen. */
START_TEST(nothing_is_left_out)
{
    static const char *const names[] = {"a", "b", "d/a", "d/b"};
    g_autoptr(GRand) rand = g_rand_new_with_seed((guint32)_i);
    int64_t when[STEPS + 1];
    char *states[STEPS + 1];
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(struct wb_version));
    g_autoptr(GArray) marks = g_array_new(FALSE, FALSE, sizeof(struct wb_save_mark));
    struct wb_versions *versions;
    struct wb_version version;
    bool listed[STEPS + 1] = {false};
    struct stat st;
    int r;

    op_birth(&tree, "d", WB_OP_MKDIR);
    when[0] = wb_store_tick(tree.store);
    states[0] = look("a");
    for (int i = 1; i <= STEPS; i++) {
        const char *one = names[g_rand_int_range(rand, 0, 4)], *two = names[g_rand_int_range(rand, 0, 4)];
        g_autofree char *text = g_strdup_printf("step %d", i);
        bool taken = fstatat(tree.fd, two, &st, 0) == 0;

        if (fstatat(tree.fd, one, &st, 0) < 0)
            op_birth(&tree, one, WB_OP_CREATE);
        else if (one == two || g_rand_boolean(rand))
            op_write(&tree, one, 0, text);
        else if (g_rand_int_range(rand, 0, 3) == 0)
            op_remove(&tree, one, false);
        else if (!taken && g_rand_boolean(rand))
            op_link(&tree, one, two);
        else
            op_rename(&tree, one, two, taken && g_rand_boolean(rand) ? RENAME_EXCHANGE : 0);
        when[i] = wb_store_tick(tree.store);
        states[i] = look("a");
    }
    tree_release(&tree);

    versions = open_list("a");
    while ((r = wb_versions_next(versions, &version)) == 0) {
        struct wb_revision *revision = NULL;
        g_autofree char *before = NULL;
        int step = 1;

        struct wb_save_mark mark = wb_versions_mark(versions);

        g_array_append_val(all, version);
        g_array_append_val(marks, mark);
        while (step <= STEPS && when[step] < version.when)
            step++;
        listed[step] = true;
        r = wb_versions_before(versions, &revision);
        ck_assert_msg(r == 0 || r == WB_ABSENT, "before: %d %s", r, wb_history_error());
        ck_assert_int_eq(r == 0, version.existed_before);
        before = r == 0 ? content(revision) : g_strdup("-");
        if (r == 0)
            ck_assert_uint_eq(strlen(before), version.size_before);
        if (strcmp(version.name, "a") == 0 && wb_object_equal(version.dir, tree.store->header.root))
            ck_assert_msg(strcmp(before, states[step - 1]) == 0, "before step %d: \"%s\" is not \"%s\"",
                          step, before, states[step - 1]);
        wb_revision_unref(revision);
    }
    ck_assert_int_eq(r, WB_END);
    wb_versions_free(versions);
    for (int i = 1; i <= STEPS; i++) {
        ck_assert_msg(listed[i] || strcmp(states[i], states[i - 1]) == 0, "step %d is not listed", i);
        g_free(states[i - 1]);
    }
    g_free(states[STEPS]);
    pass_and_go_on(all, marks);
}
END_TEST

START_TEST(paths_that_are_gone)
{
    struct wb_revision *top = root(), *dir = NULL;
    char *name = NULL;

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_birth(&tree, "d/sub", WB_OP_MKDIR);
    op_make(&tree, "d/sub/f", "deep");
    op_remove(&tree, "d/sub/f", false);
    op_remove(&tree, "d/sub", true);
    op_remove(&tree, "d", true);
    expect("d/sub/f", "unlink f 4>0 +-\nwrite f 0>4 ++\ncreate f 0>0 -+\n");
    expect("./d//sub/../sub/", "rmdir sub 0>0 +-\nunlink f 4>0 +-\ncreate f 0>0 -+\nmkdir sub 0>0 -+\n");

    ck_assert_int_eq(wb_history_find(history, top, "", &dir, &name), 0);
    ck_assert_str_eq(name, "");
    ck_assert(wb_object_equal(wb_revision_object(dir), wb_revision_object(top)));
    wb_revision_unref(dir);
    g_free(name);
    ck_assert_int_eq(wb_history_find(history, top, "d/../../x", &dir, &name), -EACCES);
    ck_assert_int_eq(wb_history_find(history, top, "nothing/x", &dir, &name), -ENOENT);
    wb_revision_unref(top);
}
END_TEST

START_TEST(paths_with_times)
{
    struct wb_revision *top = root(), *dir = NULL, *revision = NULL;
    char text[WB_WHEN_TEXT_MAX];
    g_autofree char *path = NULL, *name = NULL, *found = NULL;
    struct wb_time time = {.kind = WB_TIME_INSTANT, .instant = wb_when_now() + 3600 * WB_WHEN_SECOND};

    op_birth(&tree, "d", WB_OP_MKDIR);
    op_make(&tree, "d/f", "then");
    path = g_strdup_printf("d@%s/f", wb_when_print_epoch(wb_when_now(), text));
    op_write(&tree, "d/f", 0, "NOW!");
    op_make(&tree, "f@10s", "a name");

    ck_assert_int_eq(wb_history_find(history, top, path, &dir, &name), 0);
    ck_assert_str_eq(name, "f");
    ck_assert_int_eq(wb_revision_child(history, dir, name, &revision), 0);
    found = content(revision);
    ck_assert_str_eq(found, "then");
    wb_revision_unref(revision);
    wb_revision_unref(dir);
    /* Nothing is known of the future. */
    ck_assert_int_eq(wb_revision_at(history, top, "d", &time, WB_OBJECT_NONE, &revision), WB_ABSENT);
    expect("f@10s", "write f@10s 0>6 ++\ncreate f@10s 0>0 -+\n");
    wb_revision_unref(top);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("versions");
    TCase *tcase = tcase_create("versions");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tree_index_stride = 150;
    tcase_add_test(tcase, writes_and_appends);
    tcase_add_test(tcase, a_tree_from_before_has_no_changes);
    tcase_add_test(tcase, saves_by_tmp_and_rename);
    tcase_add_test(tcase, an_object_is_followed_to_its_former_name);
    tcase_add_test(tcase, former_life_and_older_life_are_merged);
    tcase_add_test(tcase, there_and_back_again);
    tcase_add_test(tcase, there_and_back_many_times);
    tcase_add_test(tcase, deleted_and_made_again);
    tcase_add_test(tcase, hard_links_share_their_content);
    tcase_add_test(tcase, two_names_exchanged);
    tcase_add_test(tcase, a_directory_lists_its_entries_and_itself);
    tcase_add_test(tcase, a_directory_before_its_changes);
    tcase_add_test(tcase, failed_changes_are_no_versions);
    tcase_add_test(tcase, logs_that_rotate);
    tcase_add_loop_test(tcase, nothing_is_left_out, 0, amount(30, 10));
    tcase_add_test(tcase, paths_that_are_gone);
    tcase_add_test(tcase, paths_with_times);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
