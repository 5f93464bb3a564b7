/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Directories are found after any number of renames, in a number of steps that does not depend on it. */
#include "capture/recovery/recover.h"
#include "capture_ops.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DIRS 16
/* Catalogs that one look-up may open: a few for each directory on the way. */
#define OPENS_MAX (6 * DIRS)

static struct tree tree;
static struct wb_catalog_places *known; /* of all look-ups of a test */
static unsigned opens;

/* Counts the logs that are opened (see meson.build). */
int __real_wb_store_open_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                              int flags);
int __wrap_wb_store_open_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                              int flags);

int __wrap_wb_store_open_file(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                              int flags)
{
    opens++;
    return __real_wb_store_open_file(store, object, file, flags);
}

static bool without_openat2;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (without_openat2 && number == SYS_openat2) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

static void setup(void)
{
    without_openat2 = false;
    tree_open(&tree);
    known = wb_catalog_places_new();
}

static void teardown(void)
{
    wb_catalog_places_free(known);
    tree_close(&tree);
}

/* The directory `path` is found in its place, and by few steps. */
static void check_found(const char *path, struct wb_object object)
{
    g_autofree char *found = NULL;
    int r;

    opens = 0;
    r = wb_catalog_path_of(tree.store, object, NULL, &found);
    ck_assert_msg(r == 0, "%s: %d after %u logs", path, r, opens);
    ck_assert_str_eq(found, path);
    ck_assert_uint_le(opens, OPENS_MAX);
    g_clear_pointer(&found, g_free);
    opens = 0;
    ck_assert_int_eq(wb_catalog_path_find(tree.store, known, object, NULL, &found), 0);
    ck_assert_str_eq(found, path);
    ck_assert_uint_le(opens, 2 * OPENS_MAX);
}

static void move(const char *from, const char *to, unsigned flags)
{
    op_rename(&tree, from, to, flags);
    tree_release(&tree);
}

static void make(const char *path)
{
    op_birth(&tree, path, WB_OP_MKDIR);
    tree_release(&tree);
}

/* ---- random renames ---------------------------------------------------------------------------- */

/* The place of each directory: its own number and that of the directory it is in (-1: the root). */
struct forest {
    int parent[DIRS];
    int name[DIRS];
    struct wb_object object[DIRS];
};

static char *path_of(const struct forest *forest, int dir)
{
    GString *path = g_string_new("");
    char name[16];

    for (; dir >= 0; dir = forest->parent[dir]) {
        g_snprintf(name, sizeof(name), path->len ? "%d/" : "%d", forest->name[dir]);
        g_string_prepend(path, name);
    }
    return g_string_free(path, FALSE);
}

static bool is_below(const struct forest *forest, int dir, int above)
{
    for (; dir >= 0; dir = forest->parent[dir])
        if (dir == above)
            return true;
    return false;
}

static bool is_taken(const struct forest *forest, int parent, int name)
{
    for (int i = 0; i < DIRS; i++)
        if (forest->parent[i] == parent && forest->name[i] == name)
            return true;
    return false;
}

/* Moves one directory under one of few names, so that names and places are used again. */
static void move_one(struct forest *forest, GRand *rand)
{
    int dir = g_rand_int_range(rand, 0, DIRS), parent = g_rand_int_range(rand, -1, DIRS);
    int name = g_rand_int_range(rand, 0, 4);
    g_autofree char *from = path_of(forest, dir);
    g_autofree char *to = NULL;

    if (is_below(forest, parent, dir) || is_taken(forest, parent, name))
        return;
    forest->parent[dir] = parent;
    forest->name[dir] = name;
    to = path_of(forest, dir);
    move(from, to, 0);
}

static void plant(struct forest *forest)
{
    for (int i = 0; i < DIRS; i++) {
        g_autofree char *path = NULL;

        forest->parent[i] = i % 4 ? i - 1 : -1;
        forest->name[i] = i;
        path = path_of(forest, i);
        make(path);
        forest->object[i] = tree_object(&tree, path);
    }
}

static void check_all(const struct forest *forest)
{
    for (int i = 0; i < DIRS; i++) {
        g_autofree char *path = path_of(forest, i);

        check_found(path, forest->object[i]);
    }
}

START_TEST(places_used_again_cost_nothing)
{
    GRand *rand = g_rand_new_with_seed((guint32)_i + 1);
    struct forest forest;

    plant(&forest);
    for (int i = 0; i < 600; i++) {
        move_one(&forest, rand);
        if (i % 50 == 49)
            check_all(&forest);
    }
    g_rand_free(rand);
}
END_TEST

/* ---- known shapes ------------------------------------------------------------------------------ */

/* Two that hold one another in turn: the places of either name the other. */
START_TEST(directories_that_change_places)
{
    struct wb_object a, b;

    make("a");
    make("a/b");
    a = tree_object(&tree, "a");
    b = tree_object(&tree, "a/b");
    for (int i = 0; i < 300; i++) {
        move("a/b", "b", 0);
        move("a", "b/a", 0);
        check_found("b", b);
        check_found("b/a", a);
        move("b/a", "a", 0);
        move("b", "a/b", 0);
        check_found("a", a);
        check_found("a/b", b);
    }
}
END_TEST

/* Every directory of a deep chain turned upside down: each first place names one that is below it now. */
START_TEST(a_chain_turned_upside_down)
{
    struct wb_object objects[DIRS];
    GString *path = g_string_new("");
    char name[32], flat[32];

    for (int i = 0; i < DIRS; i++) {
        g_string_append_printf(path, "%sd%d", i ? "/" : "", i);
        make(path->str);
        objects[i] = tree_object(&tree, path->str);
    }
    for (int i = DIRS; i-- > 0;) {
        g_string_truncate(path, 0);
        for (int k = 0; k <= i; k++)
            g_string_append_printf(path, "%sd%d", k ? "/" : "", k);
        g_snprintf(flat, sizeof(flat), "e%d", i);
        move(path->str, flat, 0);
    }
    g_string_assign(path, "e15");
    for (int i = DIRS - 1; i-- > 0;) {
        g_snprintf(flat, sizeof(flat), "e%d", i);
        g_snprintf(name, sizeof(name), "/d%d", i);
        g_string_append(path, name);
        move(flat, path->str, 0);
    }
    for (int i = 0; i < DIRS; i++) {
        check_found(path->str, objects[i]);
        g_string_truncate(path, path->len - (i < DIRS - 1 ? strlen(strrchr(path->str, '/')) : 0));
    }
    g_string_free(path, TRUE);
}
END_TEST

/* A move that failed after its record, again and again, leaves the place as it was. */
START_TEST(moves_that_failed_are_passed_over)
{
    struct wb_object a, b;

    make("a");
    make("b");
    a = tree_object(&tree, "a");
    b = tree_object(&tree, "b");
    move("a", "c", 0);
    for (int i = 0; i < 100; i++) {
        struct wb_change change;
        struct wb_plan plan;

        wb_plan_init(&plan, tree.store, &change, WB_OP_RENAME, 0);
        wb_plan_add_place(&plan, WB_FILE_CATALOG, a, b, "never");
        ck_assert_int_eq(wb_plan_write(&plan), 0);
        wb_capture_end(&change, -ENOTEMPTY);
    }
    check_found("c", a);
}
END_TEST

START_TEST(a_hundred_thousand_renames)
{
    struct wb_object a, b;
    int count = g_getenv("WAYBACK_QUICK") ? 5000 : 50000;

    make("a");
    make("a/b");
    a = tree_object(&tree, "a");
    b = tree_object(&tree, "a/b");
    for (int i = 0; i < count; i++) {
        move(i % 2 ? "n1" : i ? "n0" : "a", i % 2 ? "n0" : "n1", 0);
        move(i % 2 ? "n0/c" : "n1/b", i % 2 ? "n0/b" : "n1/c", 0);
    }
    check_found("n0", a);
    check_found("n0/b", b);
}
END_TEST

/* Closes a directory, also for root's process: that of a test, so nothing is given back. */
static void close_directory(const char *path)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {0};

    ck_assert_int_eq(fchmodat(tree.store->src_fd, path, 0, 0), 0);
    ck_assert_int_eq(syscall(SYS_capset, &header, none), 0);
}

START_TEST(a_closed_directory_has_the_former_name)
{
    struct wb_object c;

    make("a");
    make("a/b");
    make("a/b/c");
    make("a/b/c/d");
    c = tree_object(&tree, "a/b/c");
    move("a", "z", 0);
    make("a");
    close_directory("a");
    check_found("z/b/c", c);
    fchmodat(tree.store->src_fd, "a", 0700, 0);
}
END_TEST

/* Also where openat2(2) is missing, the path of a directory has no link. */
START_TEST(a_link_has_the_former_name)
{
    struct wb_object c;

    make("a");
    make("a/b");
    make("a/b/c");
    c = tree_object(&tree, "a/b");
    move("a", "z", 0);
    ck_assert_int_eq(symlinkat("z", tree.store->src_fd, "a"), 0);
    check_found("z/b", c);
    without_openat2 = true;
    check_found("z/b", c);
}
END_TEST

START_TEST(the_known_place_is_closed)
{
    struct wb_object c;

    make("a");
    make("b");
    make("b/c");
    make("b/c/d");
    c = tree_object(&tree, "b/c");
    move("b/c", "a/c", 0);
    check_found("a/c", c);
    move("a/c", "b/c", 0);
    close_directory("a");
    check_found("b/c", c);
    fchmodat(tree.store->src_fd, "a", 0700, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("catalog_path");
    TCase *tests = tcase_create("locate");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, places_used_again_cost_nothing, 0, 8);
    tcase_add_test(tests, directories_that_change_places);
    tcase_add_test(tests, a_chain_turned_upside_down);
    tcase_add_test(tests, moves_that_failed_are_passed_over);
    tcase_add_test(tests, a_hundred_thousand_renames);
    tcase_add_test(tests, a_link_has_the_former_name);
    tcase_add_test(tests, a_closed_directory_has_the_former_name);
    tcase_add_test(tests, the_known_place_is_closed);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
