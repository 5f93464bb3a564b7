/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * History is packed, unpacked, pruned, thinned, erased or moved, and that ends at any of its system calls: by a kill, a
 * failure or a power cut. Kept states are as they were, none is refused, and the same request completes the work.
 */
#include "disk_states.h"
#include "maintain/bundle/bundle.h"
#include "maintain/erase/erase.h"
#include "maintain/rewrite/compact.h"
#include "maintain/thin/thin.h"
#include "prune_before.h"
#include "wayback/move.h"
#include <sys/statvfs.h>

#define SECRET "XYZZY-secret"

static bool no_room; /* for new blocks */

/* Pruning in place is for full disks. */
int fstatvfs(int fd, struct statvfs *ret)
{
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1u << 20, .f_bfree = no_room ? 0 : 1u << 19,
                            .f_bavail = no_room ? 0 : 1u << 19};
    return 0;
}

struct job {
    const char *name;
    int (*run)(void);
    void (*before)(void); /* done before, with the store open */
    void (*check)(const struct disk_end *end); /* with the store open */
    unsigned ways;
    bool full; /* `no_room` */
    unsigned stride; /* of ends; 0: each kill and each cut that loses all, every sixth of the others */
    bool dense; /* with a stride: each kill and each cut that loses all all the same */
};

static const struct job *job(void)
{
    return disk_data();
}

/* ---- a history ------------------------------------------------------------------------------------ */

static int64_t kept_from; /* older states may be refused */
static int64_t drop_from, drop_until; /* moments between them may show the state before */

static char *lines(unsigned seed, unsigned count)
{
    GString *text = g_string_new(NULL);

    for (unsigned i = 0; i < count; i++)
        g_string_append_printf(text, "line %u of %u is line %u\n", i, count, i * (seed | 1) % 1000);
    return g_string_free(text, FALSE);
}

/* d/f is overwritten, cut and grows; d/g is replaced, d/h deleted; d/moved had another name; x has an attribute. */
static void make_history(void)
{
    g_autofree char *first = lines(1, 400), *second = lines(7, 400), *third = lines(7, 300);

    kept_from = drop_from = drop_until = 0;
    tree_open(&tree);
    mkdirs("d", NULL);
    op_make(&tree, "d/f", first);
    op_make(&tree, "d/g", second);
    op_make(&tree, "d/h", "deleted later");
    op_make(&tree, "x", "some text");
    remember();
    op_write(&tree, "d/f", 100, second);
    op_make(&tree, "new", third);
    op_rename(&tree, "new", "d/g", 0);
    op_setxattr(&tree, "x", "user.x", "one");
    remember();
    op_truncate(&tree, "d/f", 3000);
    op_make(&tree, "new", first);
    op_rename(&tree, "new", "d/g", 0);
    op_remove(&tree, "d/h", false);
    op_write(&tree, "x", 0, "S");
    op_setxattr(&tree, "x", "user.x", "two");
    remember();
    op_write(&tree, "d/f", 2000, third);
    op_rename(&tree, "x", "d/moved", 0);
    remember();
    tree_release(&tree);
}

static int64_t moment(unsigned i)
{
    return g_array_index(states, struct state, i).when;
}

/* ---- packing ---------------------------------------------------------------------------------- */

static int compact_as(unsigned flags)
{
    struct wb_compact how = {.flags = flags, .before = WB_WHEN_PRESENT};

    return wb_compact_log(tree.store, &how, tree_object(&tree, "d/f"), WB_FILE_UNDO);
}

static int pack_log(void)
{
    return compact_as(0);
}

static int unpack_log(void)
{
    return compact_as(WB_COMPACT_UNDO);
}

static void packed(void)
{
    ck_assert_int_eq(pack_log(), 0);
}

static int bundle_as(unsigned flags)
{
    struct wb_compact how = {.flags = flags, .before = WB_WHEN_PRESENT};

    return wb_compact_bodies(tree.store, &how, tree_object(&tree, "d"), NULL);
}

static int make_bundles(void)
{
    return bundle_as(0);
}

static int unmake_bundles(void)
{
    return bundle_as(WB_COMPACT_UNDO);
}

static void bundled(void)
{
    ck_assert_int_eq(make_bundles(), 0);
}

/* ---- pruning ------------------------------------------------------------------------------------ */

static void keep_last(void)
{
    kept_from = moment(2);
}

static int prune(void)
{
    struct wb_prune_options options = {.before = moment(2), .slack = 1, .stop = prune_never, .own = prune_alone,
                                       .release = prune_alone, .in_use = prune_of_nobody};
    struct wb_prune_count count = {0};
    struct wb_error why = {""};
    struct wb_prune *work;
    uint64_t snapshots;
    int r = wb_prune_begin(&work, tree.store, &options, &snapshots, &why);

    if (r < 0)
        return r;
    for (unsigned i = 0; r == 0 && i < WB_PRUNE_STEPS; i++)
        r = wb_prune_step(work, i, &count);
    wb_prune_free(work);
    /* Small logs have no part that could go in place. */
    return r < 0 ? r : no_room && count.error == -ENOSPC ? 0 : count.error;
}

static int thin(void)
{
    struct wb_thin_drop drop = {drop_from, drop_until};
    struct wb_thin how = {.drops = &drop, .count = 1};

    return wb_thin_log(tree.store, tree_object(&tree, "d/f"), &how);
}

/* The version that the second state shows. */
static void choose_version(void)
{
    GPtrArray *all = tree_records(&tree);
    struct wb_object object = tree_object(&tree, "d/f");

    for (guint i = 0; i < all->len; i++) {
        const struct kept *kept = all->pdata[i];

        if (kept->file != WB_FILE_UNDO || !wb_object_equal(kept->log, object) || kept->record.type != WB_REC_DATA)
            continue;
        if (kept->record.when > moment(0) && kept->record.when <= moment(1))
            drop_from = kept->record.when;
        if (kept->record.when > moment(1) && kept->record.when <= moment(2) && !drop_until)
            drop_until = kept->record.when;
    }
    g_ptr_array_unref(all);
    ck_assert_int_lt(drop_from, drop_until);
}

/* ---- erasing ------------------------------------------------------------------------------------ */

/* Beside the history of everything else. */
static void make_secrets(void)
{
    mkdirs("s", "s/inner", NULL);
    op_make(&tree, "s/secret", SECRET);
    op_write(&tree, "s/secret", 0, SECRET " again");
    op_make(&tree, "s/inner/secret", SECRET);
    op_write(&tree, "s/inner/secret", 0, "overwritten, and long");
    op_remove(&tree, "s/inner/secret", false);
    op_remove(&tree, "s/inner", true);
    op_remove(&tree, "s/secret", false);
    tree_release(&tree);
}

static int erase_as(const char *path, unsigned flags, int64_t before)
{
    struct wb_erase_count count;
    struct wb_error why = {""};
    struct wb_revision *top, *dir = NULL;
    g_autofree char *name = NULL;
    int r = wb_history_open(&history, tree.store);

    if (r < 0)
        return r;
    r = wb_revision_root(history, WB_WHEN_PRESENT, &top);
    if (r == 0) {
        r = wb_history_find(history, top, path, &dir, &name);
        if (r == 0)
            r = wb_erase(history, dir, name, flags, before, 0, &count, &why);
        wb_revision_unref(dir);
        wb_revision_unref(top);
    }
    history = wb_history_free(history);
    return r;
}

static int erase_file(void)
{
    return erase_as("s/secret", WB_ERASE_PRESENT, 0);
}

static int erase_dir(void)
{
    return erase_as("s/inner", WB_ERASE_PRESENT | WB_ERASE_RECURSIVE, 0);
}

static int erase_versions(void)
{
    return erase_as("d/f", 0, moment(2));
}

static bool store_holds(const char *text)
{
    g_autofree char *command = g_strdup_printf("grep -rqaF -e '%s' '%s/" WB_STORE_NAME "'", text, tree.path);

    return system(command) == 0;
}

static void check_erased_file(const struct disk_end *end)
{
    ck_assert_msg(!store_holds(SECRET " again"), "%s: it is still there", end->at);
}

static void check_erased_dir(const struct disk_end *end)
{
    ck_assert_msg(!store_holds("overwritten, and long"), "%s: it is still there", end->at);
}

/* ---- moving ------------------------------------------------------------------------------------- */

static int move(void)
{
    g_autofree char *to = g_strdup_printf("%s-store", tree.path);
    struct wb_move_result result;
    struct wb_error why = {""};

    tree.store = wb_store_free(tree.store);
    return wb_store_move(tree.path, NULL, to, 0, NULL, NULL, &result, &why);
}

/* ---- the test ------------------------------------------------------------------------------------- */

static const struct job jobs[] = {
    {"pack a log", pack_log},
    {"unpack a log", unpack_log, packed},
    {"pack deleted files", make_bundles},
    {"unpack deleted files", unmake_bundles, bundled},
    {"prune", prune, keep_last, .stride = 3},
    {"prune packed", prune, bundled, .stride = 6, .dense = true},
    {"prune in place", prune, keep_last, .full = true, .stride = 3},
    {"thin", thin, choose_version},
    {"erase a file", erase_file, make_secrets, check_erased_file},
    {"erase a directory", erase_dir, make_secrets, check_erased_dir},
    {"erase versions", erase_versions, .stride = 3},
    {"move", move, .stride = 37},
};

static char place[200];

static const char *prepare(void)
{
    g_autofree char *base = g_strdup(g_getenv("WAYBACK_TEST_DIR"));

    /* A place for the tree, and for the store that moves. */
    g_snprintf(place, sizeof(place), "%s/wayback-ends-XXXXXX", base ? base : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(place));
    g_setenv("WAYBACK_TEST_DIR", place, TRUE);
    make_history();
    if (base)
        g_setenv("WAYBACK_TEST_DIR", base, TRUE);
    else
        g_unsetenv("WAYBACK_TEST_DIR");
    no_room = job()->full;
    if (job()->before)
        job()->before();
    if (job()->run == prune || job()->run == erase_versions)
        keep_last();
    /* The second state changes. */
    if (drop_from)
        g_array_remove_index(states, 1);
    settle_store();
    return place;
}

static int act(void)
{
    return job()->run();
}

static void check(const struct disk_end *end)
{
    int r;

    /* A process that reads a store waits until its move has ended. */
    if (end->way == DISK_STOP && job()->run != move)
        check_reader(end, kept_from);
    check_store(end, INT64_MAX);
    check_states(end, kept_from, false);
    r = job()->run();
    ck_assert_msg(r == 0 || (r == -ENOENT && job()->check), "%s: the same again: %d", end->at, r);
    tree_release(&tree);
    if (!tree.store)
        enter_store();
    if (job()->check)
        job()->check(end);
    if (end->way == DISK_STOP)
        check_states(end, kept_from, false);
    check_sound(end);
}

static void clean(void)
{
    clean_tree();
    nftw(place, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

START_TEST(an_end_anywhere_keeps_what_is_kept)
{
    struct disk_trial trial = {.name = jobs[_i].name, .ways = jobs[_i].ways, .prepare = prepare, .begin = enter_store,
                               .act = act, .check = check, .clean = clean, .data = &jobs[_i], .stride = 6};
    unsigned runs;

    if (!trial.ways)
        trial.ways = DISK_KILLS | DISK_FAILURES | DISK_CUTS;
    if (jobs[_i].stride)
        trial.stride = jobs[_i].stride;
    if (!jobs[_i].dense)
        trial.dense_stride = jobs[_i].stride;
    runs = disk_each_stop(&trial);
    ck_assert_uint_ge(runs, (unsigned)amount(3, 1));
    printf("%s: %u runs, %u exact, %u refused\n", trial.name, runs, states_exact, states_refused);
}
END_TEST

static const char *name_of(int i)
{
    return jobs[i].name;
}

int main(void)
{
    return disk_run("maintain_ends", an_end_anywhere_keeps_what_is_kept, G_N_ELEMENTS(jobs), name_of);
}
