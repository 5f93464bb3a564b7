/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The space of history: every file of the store once, whatever the tables hold; ages at their bounds; the last name of
 * moved files.
 */
#include "capture_ops.h"
#include "capture_random.h"
#include "maintain/usage/usage.h"
#include "wayback/when.h"
#include <ftw.h>

#define TREE (&model.tree)
#define DAY (86400 * WB_WHEN_SECOND)

static void start(unsigned seed)
{
    model.rand = g_rand_new_with_seed(seed);
    tree_open(TREE);
    wb_change_init(&model.change, TREE->store);
}

static void finish(void)
{
    tree_close(TREE);
    g_rand_free(model.rand);
}

/* All of it, with tables of this size; a step at a time if `deadline` is 0. */
static void take(struct wb_usage *usage, int64_t now, unsigned things, unsigned dirs, int64_t deadline)
{
    unsigned steps = 0;
    int r;

    wb_usage_init(usage, TREE->store, now);
    usage->things_most = things;
    usage->dirs_most = dirs;
    while ((r = wb_usage_step(usage, deadline)) == 1)
        ck_assert_uint_lt(steps++, 1000000);
    ck_assert_int_eq(r, 0);
}

static struct wb_usage_total sum_of(struct wb_usage *usage)
{
    struct wb_usage_total total = usage->unplaced;
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, usage->dirs);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        wb_usage_add(&total, &((struct wb_usage_dir *)value)->total);
    return total;
}

static uint64_t disk_of(struct wb_usage *usage)
{
    struct wb_usage_total total = sum_of(usage);
    uint64_t disk = 0;

    for (unsigned i = 0; i <= WB_USAGE_BODY; i++)
        disk += total.kinds[i].disk;
    for (unsigned i = WB_USAGE_BODY + 1; i < WB_USAGE_KINDS; i++)
        disk += usage->rest[i].disk;
    return disk;
}

static uint64_t found;

/* As du(1) would; a file with another name in the tree is not the store's. */
static int count(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    if (type == FTW_D || st->st_nlink == 1)
        found += (uint64_t)st->st_blocks * 512;
    return 0;
}

static uint64_t disk_of_store(void)
{
    g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME, TREE->path);

    found = 0;
    ck_assert_int_eq(nftw(path, count, 32, FTW_PHYS), 0);
    return found;
}

static void same(struct wb_usage *a, struct wb_usage *b)
{
    GHashTableIter iter;
    void *value;

    ck_assert_uint_eq(g_hash_table_size(a->dirs), g_hash_table_size(b->dirs));
    g_hash_table_iter_init(&iter, a->dirs);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_usage_dir *dir = value, *other = g_hash_table_lookup(b->dirs, &dir->self);

        ck_assert_ptr_nonnull(other);
        ck_assert_str_eq(dir->name ? dir->name : "?", other->name ? other->name : "?");
        ck_assert(memcmp(&dir->total, &other->total, sizeof(dir->total)) == 0 && dir->gone == other->gone);
    }
    ck_assert_mem_eq(&a->unplaced, &b->unplaced, sizeof(a->unplaced));
    ck_assert_mem_eq(a->rest, b->rest, sizeof(a->rest));
}

START_TEST(everything_once_whatever_the_tables_hold)
{
    struct wb_usage whole, parts, few;
    struct wb_usage_total all, folded;
    int64_t now;

    start((unsigned)_i + 1);
    for (int i = 0; i < 300; i++)
        step();
    /* A file system that allocates late counts other blocks before it has written than after. */
    ck_assert_int_eq(syncfs(TREE->fd), 0);
    now = wb_store_now(TREE->store);
    take(&whole, now, 1000000, 1000000, INT64_MAX);
    ck_assert_uint_eq(disk_of(&whole), disk_of_store());
    ck_assert_uint_eq(whole.damaged, 0);
    ck_assert_uint_eq(whole.looked, whole.expected);
    take(&parts, now, 1, 1000000, 0);
    ck_assert_uint_gt(parts.expected, whole.expected);
    ck_assert_uint_eq(parts.looked, parts.expected);
    same(&whole, &parts);
    take(&few, now, 7, 1, INT64_MAX);
    ck_assert_uint_eq(g_hash_table_size(few.dirs), 1);
    all = sum_of(&whole);
    folded = sum_of(&few);
    ck_assert_mem_eq(&all, &folded, sizeof(all));
    wb_usage_deinit(&whole);
    wb_usage_deinit(&parts);
    wb_usage_deinit(&few);
    finish();
}
END_TEST

START_TEST(ages_have_bounds)
{
    static const int64_t ages[] = {0, 3599, 3600, 86399, 86400, 7 * 86400 - 1, 7 * 86400, 30 * 86400 - 1, 30 * 86400,
                                   365LL * 86400 - 1, 365LL * 86400, 4000LL * 86400};
    static const unsigned expected[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    struct wb_usage_total total;
    struct wb_usage usage;
    int64_t newest;

    start(1);
    op_make(TREE, "a", "text");
    take(&usage, wb_store_now(TREE->store), 100, 100, INT64_MAX);
    newest = sum_of(&usage).newest;
    ck_assert_int_gt(newest, 0);
    ck_assert_int_le(sum_of(&usage).oldest, newest);
    wb_usage_deinit(&usage);
    for (unsigned i = 0; i < G_N_ELEMENTS(ages); i++) {
        uint64_t bytes = 0;

        take(&usage, newest + ages[i] * WB_WHEN_SECOND, 100, 100, INT64_MAX);
        total = sum_of(&usage);
        ck_assert_uint_gt(total.ages[expected[i]], 0);
        for (unsigned j = 0; j < WB_USAGE_AGES; j++)
            bytes += total.ages[j];
        ck_assert_uint_eq(bytes, total.kinds[WB_USAGE_CATALOG].bytes + total.kinds[WB_USAGE_UNDO].bytes);
        wb_usage_deinit(&usage);
    }
    finish();
}
END_TEST

static const struct wb_usage_total *total_of(struct wb_usage *usage, const char *path)
{
    struct wb_object object = tree_object(TREE, path);
    const struct wb_usage_dir *dir = g_hash_table_lookup(usage->dirs, &object);

    ck_assert_ptr_nonnull(dir);
    return &dir->total;
}

START_TEST(a_moved_file_counts_in_its_new_place)
{
    const struct wb_usage_dir *chain[WB_USAGE_DEPTH_MAX];
    struct wb_object inner, root;
    struct wb_usage usage;
    unsigned depth;

    start(1);
    root = TREE->store->header.root;
    op_birth(TREE, "a", WB_OP_MKDIR);
    op_birth(TREE, "b", WB_OP_MKDIR);
    op_birth(TREE, "b/c", WB_OP_MKDIR);
    op_make(TREE, "a/f", "text that will be lost");
    op_truncate(TREE, "a/f", 0);
    op_rename(TREE, "a/f", "b/c/f", 0);
    op_make(TREE, "a/g", "deleted");
    op_remove(TREE, "a/g", false);
    op_rename(TREE, "b", "a/d", 0);
    inner = tree_object(TREE, "a/d/c");
    take(&usage, wb_store_now(TREE->store), 100, 100, INT64_MAX);
    ck_assert_uint_eq(total_of(&usage, "a/d/c")->kinds[WB_USAGE_UNDO].files, 1);
    ck_assert_uint_eq(total_of(&usage, "a")->kinds[WB_USAGE_UNDO].files, 0);
    ck_assert_uint_eq(total_of(&usage, "a")->kinds[WB_USAGE_BODY].bytes, strlen("deleted"));
    ck_assert(wb_usage_chain(&usage, g_hash_table_lookup(usage.dirs, &inner), root, chain, &depth));
    ck_assert_uint_eq(depth, 3);
    ck_assert_str_eq(chain[0]->name, "a");
    ck_assert_str_eq(chain[1]->name, "d");
    ck_assert_str_eq(chain[2]->name, "c");
    wb_usage_deinit(&usage);
    finish();
}
END_TEST

/* A catalog may be forged to say that a directory is below itself. */
START_TEST(a_circle_of_directories_ends)
{
    const struct wb_usage_dir *chain[WB_USAGE_DEPTH_MAX];
    struct wb_usage usage;
    struct wb_usage_dir *dir;
    struct wb_object object;
    unsigned depth;

    start(1);
    op_birth(TREE, "a", WB_OP_MKDIR);
    op_birth(TREE, "a/b", WB_OP_MKDIR);
    op_birth(TREE, "a/b/c", WB_OP_MKDIR);
    take(&usage, wb_store_now(TREE->store), 100, 100, INT64_MAX);
    object = tree_object(TREE, "a");
    dir = g_hash_table_lookup(usage.dirs, &object);
    dir->parent = tree_object(TREE, "a/b");
    ck_assert(!wb_usage_chain(&usage, dir, TREE->store->header.root, chain, &depth));
    wb_usage_deinit(&usage);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("usage");
    TCase *tests = tcase_create("all");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, everything_once_whatever_the_tables_hold, 0, 6);
    tcase_add_test(tests, ages_have_bounds);
    tcase_add_test(tests, a_moved_file_counts_in_its_new_place);
    tcase_add_test(tests, a_circle_of_directories_ends);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed > 0;
}
