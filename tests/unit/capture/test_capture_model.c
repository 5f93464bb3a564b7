/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Random changes of a small tree: every state that was seen can be computed from the present and the logs. */
#include "capture_random.h"
#include "capture_replay.h"
#include "capture/recovery/recover.h"
#include "store/object/catalog_path.h"

#define STEPS 120

/* ---- the test -------------------------------------------------------------------------------- */

static void reopen(void)
{
    unsigned aborted = 1;

    model.tree.store = wb_store_free(model.tree.store);
    tree_open_store(&model.tree);
    ck_assert_int_eq(wb_recover(model.tree.store, &aborted), 0);
    ck_assert_uint_eq(aborted, 0);
}

/* Every directory with a catalog is found in its place. */
static void check_places(void)
{
    list_all();
    for (guint i = 0; i < model.dirs->len; i++) {
        const char *path = model.dirs->pdata[i];
        struct wb_object object = tree_object(&model.tree, *path ? path : ".");
        g_autofree char *found = NULL;
        int r;

        if (*path && wb_store_has_log(model.tree.store, object, WB_FILE_CATALOG) != 1)
            continue;
        r = wb_catalog_path_of(model.tree.store, object, NULL, &found);
        ck_assert_msg(r == 0, "%s: %d", path, r);
        ck_assert_str_eq(found, path);
    }
}

START_TEST(every_state_follows_from_the_logs)
{
    g_autofree char **states = g_new0(char *, STEPS);
    g_autofree int64_t *whens = g_new0(int64_t, STEPS);
    struct replay replay;

    model.rand = g_rand_new_with_seed(_i + 1);
    tree_index_stride = _i % 2 ? 150 : 0;
    tree_open(&model.tree);
    wb_change_init(&model.change, model.tree.store);
    for (int i = 0; i < 20; i++)
        step();
    for (int i = 0; i < STEPS; i++) {
        step();
        states[i] = replay_tree(&model.tree, WB_WHEN_PRESENT);
        whens[i] = wb_store_tick(model.tree.store);
        if (!pick(40))
            reopen();
        if (!pick(20))
            check_places();
    }
    check_places();
    replay_init(&replay, &model.tree, 0);
    for (int i = 0; i < STEPS; i++) {
        g_autofree char *past = replay_at(&replay, whens[i]);

        if (strcmp(past, states[i])) {
            g_file_set_contents("/tmp/wayback-model-expected", states[i], -1, NULL);
            g_file_set_contents("/tmp/wayback-model-found", past, -1, NULL);
        }
        ck_assert_msg(strcmp(past, states[i]) == 0, "seed %d, state %d differs: see /tmp/wayback-model-*", _i, i);
        g_free(states[i]);
    }
    replay_deinit(&replay);
    tree_close(&model.tree);
    g_rand_free(model.rand);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("capture_model");
    TCase *tcase = tcase_create("model");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, every_state_follows_from_the_logs, 0, amount(12, 4));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
