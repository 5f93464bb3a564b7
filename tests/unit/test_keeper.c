/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/keeper.h"

#include <check.h>
#include <stdlib.h>

/*
 * What the keeper decides, over random policies, clocks and snapshots: nothing that is wanted is forgotten, what is
 * given up goes in the end, and nobody is kept busy.
 */

#define S WB_WHEN_SECOND
#define DAY (86400 * S)

struct world {
    GRand *random;
    struct wb_policy policy;
    struct wb_keeper_state state;
};

static void begin(struct world *world, guint32 seed)
{
    static const int64_t spans[] = {S, 90 * S, 3600 * S, DAY, 30 * DAY, 365 * DAY, WB_FOREVER};
    struct wb_retention *retention = &world->policy.everything.retention;

    *world = (struct world){.random = g_rand_new_with_seed(seed)};
    wb_policy_init(&world->policy);
    retention->aged = g_rand_int_range(world->random, 0, 8) > 0;
    if (retention->aged)
        retention->keep = spans[g_rand_int_range(world->random, 0, G_N_ELEMENTS(spans))];
    if (g_rand_int_range(world->random, 0, 4) == 0) {
        struct wb_policy_rule *rule = wb_policy_add(&world->policy, "path \"x\"", 3);

        rule->retention = (struct wb_retention){.aged = true, .keep = spans[g_rand_int_range(world->random, 0, 6)]};
    }
    world->state.begins = 1700000000 * S;
    world->state.now = world->state.begins + (int64_t)(g_rand_double(world->random) * 1e9) * S;
}

static void end(struct world *world)
{
    wb_policy_deinit(&world->policy);
    g_rand_free(world->random);
}

START_TEST(nothing_that_is_wanted_is_forgotten)
{
    struct wb_keeper_plan plan;
    struct world world;
    int64_t reach;

    begin(&world, (guint32)_i);
    reach = wb_policy_reach(&world.policy);
    if (g_rand_boolean(world.random))
        world.state.pinned = world.state.begins + (int64_t)(g_rand_double(world.random) * 1e9) * S;
    wb_keeper_decide(&world.policy, &world.state, &plan);
    ck_assert(plan.again > world.state.begins);
    if (plan.horizon != 0) {
        ck_assert_int_ne(reach, WB_FOREVER);
        ck_assert_int_le(plan.horizon, world.state.now - reach);
        ck_assert_int_gt(plan.horizon, world.state.begins);
        ck_assert(world.state.pinned == 0 || plan.horizon <= world.state.pinned);
        ck_assert_int_gt(plan.again, world.state.now);
    }
    ck_assert(!plan.pinned || (world.state.pinned > 0 && world.state.pinned < world.state.now - reach));
    end(&world);
}
END_TEST

/* Whoever looks when he is told to forgets all that is given up, but for one step, and has seldom to look. */
START_TEST(what_is_given_up_goes_and_seldom)
{
    int64_t reach, step, until;
    struct wb_keeper_plan plan;
    unsigned looks = 0, moves = 0;
    struct world world;

    begin(&world, (guint32)_i);
    reach = wb_policy_reach(&world.policy);
    if (reach != WB_FOREVER) {
        step = CLAMP(reach / WB_KEEPER_PARTS, WB_KEEPER_STEP_LEAST, WB_KEEPER_STEP_MOST);
        world.state.now = world.state.begins;
        until = world.state.begins + 3 * reach + 10 * step;
        while (world.state.now < until) {
            wb_keeper_decide(&world.policy, &world.state, &plan);
            if (plan.horizon) {
                world.state.begins = plan.horizon;
                moves++;
            }
            ck_assert_int_ge(world.state.begins, world.state.now - reach - step);
            ck_assert_int_gt(plan.again, world.state.now);
            world.state.now = plan.again;
            ck_assert_uint_lt(++looks, 100000);
        }
        ck_assert_uint_ge(moves, 1);
        ck_assert_uint_le(looks, (unsigned)((until - 1700000000 * S) / step) + 2);
    }
    end(&world);
}
END_TEST

START_TEST(what_is_not_carried_out_is_told)
{
    struct wb_policy policy;
    char *text;

    wb_policy_init(&policy);
    ck_assert_ptr_null(wb_keeper_unmet(&policy));
    policy.everything.retention = (struct wb_retention){.aged = true, .keep = DAY};
    ck_assert_ptr_null(wb_keeper_unmet(&policy));
    wb_policy_add(&policy, "path \"x\"", 3)->retention = (struct wb_retention){.aged = true, .keep = DAY};
    ck_assert_ptr_null(wb_keeper_unmet(&policy));
    wb_policy_add(&policy, "path \"y\"", 5)->retention = (struct wb_retention){.aged = true, .keep = 2 * DAY};
    text = wb_keeper_unmet(&policy);
    ck_assert_str_eq(text, "to let single versions go before others (thin, keep-versions, sections) is not carried out "
                           "by this version: all versions stay that were replaced less than this ago: 2d");
    g_free(text);
    wb_policy_deinit(&policy);
    policy.max_size.percent = 5;
    text = wb_keeper_unmet(&policy);
    ck_assert_str_eq(text, "max-size and reserve are not carried out by this version: all versions stay that were "
                           "replaced less than this ago: 1d");
    g_free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keeper");
    TCase *tcase = tcase_create("keeper");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tcase, nothing_that_is_wanted_is_forgotten, 0, 500);
    tcase_add_loop_test(tcase, what_is_given_up_goes_and_seldom, 0, 60);
    tcase_add_test(tcase, what_is_not_carried_out_is_told);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
