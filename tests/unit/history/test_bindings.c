/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What names were bound to at ever earlier moments: the same as one look-up at each of them says, after random changes
 * of a small tree, some of which fail.
 */
#include "base/interrupt.h"
#include "capture_ops.h"
#include "capture_random.h"
#include "history/state/bindings.h"
#include "history/state/lookback.h"
#include "prune_before.h"
#include "store/cache/gaps.h"
#include <inttypes.h>

#define STEPS 150
#define NAMES "abcdefgh"

static struct wb_history *history;
static int64_t whens[STEPS];

static void setup_model(int seed)
{
    model.rand = g_rand_new_with_seed((guint32)seed);
    tree_open(&model.tree);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
    wb_change_init(&model.change, model.tree.store);
}

static void teardown_model(void)
{
    wb_history_free(history);
    tree_close(&model.tree);
    g_rand_free(model.rand);
}

/* Until no change that was made may still be under way. */
static void settle(void)
{
    int64_t last = wb_store_tick(model.tree.store);

    while (wb_history_quiet_since(history) <= last)
        g_usleep(1000);
}

/* ---- comparison ---------------------------------------------------------------------------------- */

static struct wb_revision *compare_child(struct wb_bindings *bindings, struct wb_revision *dir, const char *name)
{
    struct wb_revision *one = NULL, *other = NULL;
    int r = wb_revision_child(history, dir, name, &one), found = wb_bindings_child(bindings, dir, name, &other);

    ck_assert_msg(r == found, "%s at %" PRId64 ": %d is not %d", name, wb_revision_when(dir), found, r);
    if (r == 0) {
        ck_assert(wb_object_equal(wb_revision_object(one), wb_revision_object(other)));
        ck_assert_uint_eq(wb_revision_type(one), wb_revision_type(other));
        ck_assert_int_eq(wb_revision_when(one), wb_revision_when(other));
        wb_revision_unref(other);
    }
    return one;
}

static void compare_change(struct wb_bindings *bindings, struct wb_revision *dir, const char *name, bool there)
{
    int64_t one = 0, other = 0;
    int r = wb_lookback_change(model.tree.store, wb_revision_object(dir), name, wb_revision_when(dir), &one);

    ck_assert_int_eq(wb_bindings_change(bindings, dir, name, &other), r);
    ck_assert_int_eq(one, other);
    ck_assert(!wb_bindings_never_was(bindings, dir, name) || (!there && r == WB_ABSENT));
}

/* The number of entries below `dir`. */
static unsigned compare_dir(struct wb_bindings *bindings, struct wb_revision *dir)
{
    unsigned count = 0;

    for (const char *name = NAMES; *name; name++) {
        char one[2] = {*name, '\0'};
        struct wb_revision *child = compare_child(bindings, dir, one);

        compare_change(bindings, dir, one, child != NULL);
        if (child)
            count += 1 + (wb_revision_type(child) == S_IFDIR ? compare_dir(bindings, child) : 0);
        wb_revision_unref(child);
    }
    return count;
}

static unsigned compare_at(struct wb_bindings *bindings, int64_t when)
{
    struct wb_revision *root;
    unsigned count;

    ck_assert_int_eq(wb_revision_root(history, when, &root), 0);
    count = compare_dir(bindings, root);
    wb_revision_unref(root);
    return count;
}

static gint later_first(gconstpointer a, gconstpointer b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

    return one < other ? 1 : one > other ? -1 : 0;
}

/* The ends of all steps, and the moments at and just before each change of a name in the root; newest first. */
static GArray *moments(void)
{
    struct wb_object root = tree_object(&model.tree, ".");
    GArray *all = g_array_new(FALSE, FALSE, sizeof(int64_t));

    for (int i = 0; i < STEPS; i++) {
        g_array_append_val(all, whens[i]);
        for (const char *name = NAMES; *name; name++) {
            char one[2] = {*name, '\0'};
            int64_t change, before;

            if (wb_lookback_change(model.tree.store, root, one, whens[i], &change) != 0 ||
                change <= (i > 0 ? whens[i - 1] : 0))
                continue;
            before = change - 1;
            g_array_append_val(all, change);
            g_array_append_val(all, before);
        }
    }
    g_array_sort(all, later_first);
    return all;
}

START_TEST(ever_earlier)
{
    g_autoptr(GArray) all = NULL;
    struct wb_bindings *bindings;
    unsigned count = 0;

    setup_model(_i + 900);
    for (int i = 0; i < STEPS; i++) {
        step();
        whens[i] = wb_store_tick(model.tree.store);
    }
    settle();
    bindings = wb_bindings_new(history);
    all = moments();
    ck_assert_uint_gt(all->len, STEPS);
    for (guint i = 0; i < all->len; i++) {
        count += compare_at(bindings, g_array_index(all, int64_t, i));
        if (pick(20) == 0)
            wb_bindings_rest(bindings);
    }
    ck_assert_uint_gt(count, STEPS);
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

START_TEST(in_any_order_and_at_the_present)
{
    struct wb_bindings *bindings;

    setup_model(_i + 1900);
    bindings = wb_bindings_new(history);
    for (int i = 0; i < STEPS; i++) {
        step();
        whens[i] = wb_store_tick(model.tree.store);
        compare_at(bindings, i % 4 == 0 ? WB_WHEN_PRESENT : whens[pick(i + 1)]);
    }
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

START_TEST(a_change_under_way_that_fails)
{
    struct wb_bindings *bindings;
    struct wb_revision *root;
    const char *name;
    struct wb_dir *dir;
    int64_t when;

    setup_model(6);
    op_birth(&model.tree, "a", WB_OP_MKDIR);
    settle();
    dir = tree_parent(&model.tree, "b", &name);
    ck_assert_int_eq(wb_capture_birth(model.tree.store, &model.change, dir, name, WB_OP_MKDIR, 0), 0);
    when = wb_store_tick(model.tree.store);
    ck_assert_int_eq(wb_revision_root(history, when, &root), 0);
    bindings = wb_bindings_new(history);
    wb_bindings_never_was(bindings, root, "b");
    wb_capture_end(&model.change, -EIO);
    settle();
    compare_dir(bindings, root);
    wb_revision_unref(root);
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

START_TEST(what_nobody_recorded)
{
    struct wb_bindings *bindings;

    setup_model(5);
    op_birth(&model.tree, "a", WB_OP_MKDIR);
    whens[0] = wb_store_tick(model.tree.store);
    settle();
    ck_assert_int_eq(mkdirat(model.tree.fd, "b", 0755), 0);
    settle();
    bindings = wb_bindings_new(history);
    ck_assert_uint_eq(compare_at(bindings, whens[0]), 1);
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

static unsigned count_descriptors(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned count = 0;

    while (g_dir_read_name(dir))
        count++;
    return count;
}

/* The descriptors of a daemon may be few, and the look-backs many. */
START_TEST(a_catalog_that_was_read_is_closed)
{
    struct wb_bindings *bindings;
    struct wb_revision *root;
    unsigned before;

    setup_model(10);
    op_birth(&model.tree, "a", WB_OP_MKDIR);
    ck_assert_int_eq(wb_revision_root(history, wb_store_tick(model.tree.store), &root), 0);
    settle();
    wb_revision_unref(compare_child(bindings = wb_bindings_new(history), root, "b"));
    wb_bindings_free(bindings);
    before = count_descriptors();
    bindings = wb_bindings_new(history);
    ck_assert(wb_bindings_never_was(bindings, root, "b"));
    ck_assert_uint_eq(count_descriptors(), before);
    ck_assert(!wb_bindings_never_was(bindings, root, "a"));
    ck_assert_uint_eq(count_descriptors(), before);
    wb_bindings_free(bindings);
    wb_revision_unref(root);
    teardown_model();
}
END_TEST

/* A look-up at that moment is refused, so it is not certain that the name never was. */
START_TEST(a_gap_that_no_record_shows)
{
    struct wb_bindings *bindings;
    struct wb_revision *root, *child;

    setup_model(9);
    ck_assert_int_eq(wb_gaps_open(model.tree.store, true), 0);
    op_birth(&model.tree, "a", WB_OP_MKDIR);
    ck_assert_int_eq(wb_revision_root(history, wb_store_tick(model.tree.store), &root), 0);
    settle();
    bindings = wb_bindings_new(history);
    ck_assert(wb_bindings_never_was(bindings, root, "b"));
    ck_assert_int_eq(wb_gap_begin(model.tree.store, tree_object(&model.tree, "."), WB_FILE_CATALOG), 0);
    ck_assert_int_eq(wb_revision_child(history, root, "b", &child), -EIO);
    ck_assert_int_eq(wb_bindings_child(bindings, root, "b", &child), -EIO);
    ck_assert(!wb_bindings_never_was(bindings, root, "b"));
    wb_gap_end(model.tree.store, tree_object(&model.tree, "."), WB_FILE_CATALOG);
    wb_revision_unref(root);
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

START_TEST(what_was_forgotten_is_refused)
{
    struct wb_bindings *bindings;
    struct wb_revision *root, *child;

    setup_model(7);
    op_birth(&model.tree, "a", WB_OP_MKDIR);
    op_rename(&model.tree, "a", "b", 0);
    whens[0] = wb_store_tick(model.tree.store);
    op_rename(&model.tree, "b", "c", 0);
    settle();
    bindings = wb_bindings_new(history);
    compare_at(bindings, whens[0]);
    ck_assert_int_eq(wb_revision_root(history, whens[0], &root), 0);
    prune_before(model.tree.store, whens[0] + 1, false);
    ck_assert_int_eq(wb_revision_child(history, root, "b", &child), -EIO);
    ck_assert_int_eq(wb_bindings_child(bindings, root, "b", &child), -EIO);
    wb_revision_unref(root);
    wb_bindings_free(bindings);
    teardown_model();
}
END_TEST

/* ---- giving up --------------------------------------------------------------------------------------- */

static bool is_abandoned(void *data)
{
    int *asked = data;

    return ++*asked > 1;
}

START_TEST(an_abandoned_search_ends)
{
    struct wb_object root;
    int asked = 0;
    int64_t when;

    setup_model(8);
    op_make(&model.tree, "a", "");
    for (int i = 0; i < 2500; i++)
        op_rename(&model.tree, i % 2 ? "b" : "a", i % 2 ? "a" : "b", 0);
    root = tree_object(&model.tree, ".");
    ck_assert_int_eq(wb_lookback_change(model.tree.store, root, "never", WB_WHEN_PRESENT, &when), WB_ABSENT);
    wb_interrupt_watch(is_abandoned, &asked);
    ck_assert_int_eq(wb_lookback_change(model.tree.store, root, "never", WB_WHEN_PRESENT, &when), -EINTR);
    ck_assert_int_eq(asked, 2);
    wb_interrupt_watch(NULL, NULL);
    ck_assert_int_eq(wb_lookback_change(model.tree.store, root, "never", WB_WHEN_PRESENT, &when), WB_ABSENT);
    teardown_model();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bindings");
    TCase *compared = tcase_create("model"), *single = tcase_create("single");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(compared, 200);
    tcase_add_loop_test(compared, ever_earlier, 0, amount(12, 4));
    tcase_add_loop_test(compared, in_any_order_and_at_the_present, 0, amount(6, 2));
    suite_add_tcase(suite, compared);
    tcase_add_test(single, a_change_under_way_that_fails);
    tcase_add_test(single, what_nobody_recorded);
    tcase_add_test(single, a_catalog_that_was_read_is_closed);
    tcase_add_test(single, a_gap_that_no_record_shows);
    tcase_add_test(single, what_was_forgotten_is_refused);
    tcase_add_test(single, an_abandoned_search_ends);
    suite_add_tcase(suite, single);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
