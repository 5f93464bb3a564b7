/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/usage/room.h"
#include "policy/clock.h"
#include "policy/decide.h"
#include "policy/keeper.h"

#include <check.h>
#include <stdlib.h>

/*
 * Decisions of the keeper, over random policies, clocks and snapshots: no protected history is forgotten, released
 * history is removed in the end, and no thread is kept busy.
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

START_TEST(no_protected_history_is_forgotten)
{
    struct wb_keeper_plan plan;
    struct world world;
    int64_t reach;

    begin(&world, (guint32)_i);
    reach = wb_policy_reach(&world.policy);
    if (g_rand_boolean(world.random))
        world.state.pinned = world.state.begins + (int64_t)(g_rand_double(world.random) * 1e9) * S;
    if (world.state.pinned > 0 && g_rand_boolean(world.random))
        world.state.whole = world.state.pinned + (int64_t)(g_rand_double(world.random) * 1e9) * S;
    if (g_rand_boolean(world.random))
        world.state.beyond = world.state.begins + (int64_t)(g_rand_double(world.random) * 1e9) * S;
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
    if (plan.beyond != 0) {
        ck_assert_int_ne(wb_policy_shortest_reach(&world.policy), WB_FOREVER);
        ck_assert_int_lt(plan.beyond, world.state.now - wb_policy_shortest_reach(&world.policy));
        ck_assert_int_gt(plan.beyond, MAX(plan.horizon, world.state.begins));
        ck_assert_int_gt(plan.beyond, world.state.beyond);
        ck_assert(world.state.whole == 0 || plan.beyond <= world.state.whole);
        ck_assert(plan.pinned || wb_policy_shortest_reach(&world.policy) < reach);
        ck_assert_int_gt(plan.again, world.state.now);
    }
    end(&world);
}
END_TEST

/* A caller that looks at the requested times forgets all released history, but for one step, and seldom has to look. */
START_TEST(released_history_is_removed_and_seldom)
{
    int64_t reach, step, until;
    struct wb_keeper_plan plan;
    unsigned looks = 0, moves = 0;
    struct world world;
    bool shorter;

    begin(&world, (guint32)_i);
    reach = wb_policy_reach(&world.policy);
    shorter = wb_policy_shortest_reach(&world.policy) < reach;
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
            world.state.beyond = MAX(world.state.beyond, plan.beyond);
            ck_assert_int_ge(MAX(world.state.begins, world.state.beyond), world.state.now - reach - step);
            ck_assert_int_ge(world.state.begins, world.state.now - reach - step);
            ck_assert_int_gt(plan.again, world.state.now);
            world.state.now = plan.again;
            /* History with a shorter age than the rest is looked for as often as its age needs. */
            if (++looks == 100000 && shorter)
                break;
            ck_assert_uint_lt(looks, 100000);
        }
        ck_assert(moves >= 1 || shorter);
        ck_assert(shorter || looks <= (unsigned)((until - 1700000000 * S) / step) + 2);
    }
    end(&world);
}
END_TEST

START_TEST(single_versions_are_looked_for_if_some_expire_before_others)
{
    struct wb_policy policy;

    wb_policy_init(&policy);
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), WB_FOREVER);
    policy.everything.retention = (struct wb_retention){.aged = true, .keep = DAY};
    wb_policy_add(&policy, "path \"x\"", 3)->retention = (struct wb_retention){.aged = true, .keep = DAY};
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), WB_FOREVER);
    policy.max_size.percent = 5;
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), WB_FOREVER);
    wb_policy_add(&policy, "path \"y\"", 5)->retention = (struct wb_retention){.aged = true, .keep = 2 * DAY};
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), DAY / WB_KEEPER_PARTS);
    policy.max_size.percent = 0;
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), DAY / WB_KEEPER_PARTS);
    wb_policy_deinit(&policy);
    policy.everything.retention = (struct wb_retention){.most = 9};
    ck_assert_int_eq(wb_keeper_thin_pause(&policy), WB_KEEPER_THIN_UNAGED);
}
END_TEST

/* ---- space ----------------------------------------------------------------------------------- */

struct piece {
    int64_t when;
    uint64_t bytes;
};

#define PIECES 300

static uint64_t before(const struct piece *pieces, int64_t since, int64_t until)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < PIECES; i++)
        if (pieces[i].when > since && pieces[i].when <= until)
            sum += pieces[i].bytes;
    return sum;
}

/*
 * The chosen part suffices if anything does, is permitted, and is no later than it has to be but for a part of its age.
 */
START_TEST(the_least_forgetting_that_suffices)
{
    g_autofree struct wb_room_ages *ages = g_new0(struct wb_room_ages, 1);
    GRand *random = g_rand_new_with_seed((guint32)_i);
    int64_t reach = (int64_t)(g_rand_double(random) * 1e6) * S + S, latest, horizon, earlier;
    struct piece pieces[PIECES];
    uint64_t wanted, all;

    ages->now = 1700000000 * S;
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = (struct piece){ages->now - (int64_t)(g_rand_double(random) * (double)reach),
                                   (uint64_t)g_rand_int_range(random, 0, 10000)};
        wb_room_add(ages, pieces[i].when, pieces[i].bytes);
    }
    latest = ages->now - (int64_t)(g_rand_double(random) * (double)reach);
    all = before(pieces, 0, latest);
    wanted = (uint64_t)(g_rand_double(random) * 1.2 * (double)all) + 1;
    horizon = wb_room_choose(ages, ages->now - reach - S, latest, wanted);
    ck_assert_int_le(horizon, latest);
    ck_assert(horizon == latest || before(pieces, 0, horizon) >= wanted);
    earlier = horizon - (ages->now - horizon) / (WB_ROOM_PARTS / 2) - 1;
    ck_assert_uint_lt(before(pieces, 0, earlier), wanted);
    ck_assert_uint_le(wb_room_between(ages, ages->now - reach - S, latest), all);
    g_rand_free(random);
}
END_TEST

/* A caller that chooses again and again reaches the end, even if no space is ever given back. */
START_TEST(each_horizon_is_later_than_the_one_before)
{
    g_autofree struct wb_room_ages *ages = g_new0(struct wb_room_ages, 1);
    int64_t begins, latest, horizon;
    unsigned turns = 0;

    ages->now = 1700000000 * S;
    begins = ages->now - 40 * DAY;
    latest = ages->now - DAY;
    for (int day = 0; day < 40; day++)
        wb_room_add(ages, ages->now - day * DAY - 1, 1000);
    while ((horizon = wb_room_choose(ages, begins, latest, 1500)) != 0) {
        ck_assert_int_gt(horizon, begins);
        ck_assert_int_le(horizon, latest);
        begins = horizon;
        ck_assert_uint_lt(++turns, 100);
    }
    ck_assert_int_eq(begins, latest);
    ck_assert_uint_gt(turns, 10);
}
END_TEST

START_TEST(expired_history_is_kept_while_there_is_space)
{
    struct wb_policy policy;
    struct wb_keeper_state state = {.now = 1700000000 * S, .begins = 1600000000 * S};
    struct wb_keeper_plan plan;

    wb_policy_init(&policy);
    policy.max_size.bytes = 1000;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.horizon == 0 && plan.latest == state.now - 1 && !plan.pinned);
    policy.everything.retention = (struct wb_retention){.aged = true, .keep = DAY};
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.horizon == 0 && plan.latest == state.now - 1 - DAY);
    state.pinned = 1650000000 * S;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == state.pinned && plan.pinned);
    policy.everything.retention.least = 2;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.horizon == 0 && plan.latest == 0);
}
END_TEST

START_TEST(a_full_store_releases_expired_history_and_no_more)
{
    struct wb_policy policy;
    struct wb_keeper_state state = {.now = 1700000000 * S, .begins = 1600000000 * S, .full = true};
    struct wb_keeper_plan plan;

    wb_policy_init(&policy);
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.horizon == 0 && plan.latest == state.now - 1);
    policy.everything.retention = (struct wb_retention){.aged = true, .keep = DAY};
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == state.now - 1 - DAY);
    state.pinned = 1650000000 * S;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == state.pinned && plan.pinned);
    policy.everything.retention.keep = WB_FOREVER;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == 0);
}
END_TEST

/* Records of a clock that was ahead have no age, and are removed last if nothing has one. */
START_TEST(records_of_the_future_are_removed_last)
{
    struct wb_policy policy;
    struct wb_keeper_state state = {.now = 1700000000 * S, .begins = 1600000000 * S, .newest = 2100000000 * S};
    struct wb_keeper_plan plan;

    wb_policy_init(&policy);
    policy.max_size.bytes = 1000;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == state.now - 1 && plan.present == state.now);
    state.begins = state.now - S;
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == state.newest - 1 && plan.present == state.newest);
    policy.everything.retention = (struct wb_retention){.aged = true, .keep = DAY};
    wb_keeper_decide(&policy, &state, &plan);
    ck_assert(plan.latest == 0);
}
END_TEST

/* ---- the clock ------------------------------------------------------------------------------- */

#define HOUR (3600 * S)
#define READINGS 400

struct reading {
    int64_t steady, time;
    bool doubted;
};

/* A clock that runs, is set ahead and back, by little and by much, and becomes right again. */
static unsigned read_clock(GRand *random, int64_t least, int64_t most, struct reading readings[READINGS])
{
    static const int64_t jumps[] = {60 * S, HOUR / 2, 2 * HOUR, DAY, 100 * DAY, 4000 * DAY};
    int64_t right = 1700000000 * S, steady = 1000 * S, off = 0;
    struct wb_clock clock;
    unsigned doubts = 0;

    wb_clock_init(&clock, right, steady);
    for (unsigned i = 0; i < READINGS; i++) {
        int64_t passed = (int64_t)(g_rand_double(random) * 1e4) * S;

        right += passed;
        steady += passed;
        if (g_rand_int_range(random, 0, 20) == 0)
            off = g_rand_boolean(random) ? 0 : jumps[g_rand_int_range(random, 0, G_N_ELEMENTS(jumps))] *
                                                   (g_rand_int_range(random, 0, 3) == 0 ? -1 : 1);
        readings[i] = (struct reading){.steady = steady};
        readings[i].time = wb_clock_judge(&clock, right + off, steady, least, most);
        readings[i].doubted = clock.doubted;
        doubts += clock.doubted;
        ck_assert_int_le(readings[i].time, right + off);
        ck_assert(clock.doubted || readings[i].time == right + off);
    }
    return doubts;
}

/* Time jumps over kept history only if the clock was seen ahead, and doubted, for the set time. */
START_TEST(a_jump_is_trusted_late)
{
    static const int64_t ages[] = {60 * S, 5 * HOUR, DAY, 30 * DAY, WB_FOREVER};
    GRand *random = g_rand_new_with_seed((guint32)_i);
    unsigned at = (unsigned)g_rand_int_range(random, 0, G_N_ELEMENTS(ages));
    int64_t least = ages[at], most = ages[g_rand_int_range(random, (gint32)at, G_N_ELEMENTS(ages))];
    int64_t slack = CLAMP(least / 4, HOUR, 90 * DAY), since = 0;
    struct reading readings[READINGS];

    read_clock(random, least, most, readings);
    for (unsigned i = 1; i < READINGS; i++) {
        int64_t leap = readings[i].time - readings[i - 1].time - (readings[i].steady - readings[i - 1].steady);

        if (readings[i].doubted && !readings[i - 1].doubted)
            since = readings[i].steady;
        if (readings[i].doubted || !readings[i - 1].doubted)
            ck_assert_int_le(leap, 2 * slack);
        else
            ck_assert(leap <= 2 * slack || readings[i].steady - since >= wb_clock_wait(most));
    }
    g_rand_free(random);
}
END_TEST

START_TEST(a_clock_that_is_right_again_is_trusted_at_once)
{
    int64_t right = 1700000000 * S;
    struct wb_clock clock;

    wb_clock_init(&clock, right, 0);
    ck_assert_int_eq(wb_clock_judge(&clock, right + 2 * HOUR, 0, HOUR, DAY), right);
    ck_assert(clock.doubted);
    ck_assert_int_eq(wb_clock_judge(&clock, right + 60 * S, 30 * S, HOUR, DAY), right + 60 * S);
    ck_assert(!clock.doubted);
    /* The next time it takes as long again. */
    ck_assert_int_eq(wb_clock_judge(&clock, right + 9 * DAY, DAY, HOUR, DAY), right + DAY);
    ck_assert_int_eq(wb_clock_judge(&clock, right + 10 * DAY, 2 * DAY - 1, HOUR, DAY), right + 2 * DAY - 1);
    ck_assert_int_eq(wb_clock_judge(&clock, right + 10 * DAY, 2 * DAY, HOUR, DAY), right + 10 * DAY);
    ck_assert(!clock.doubted);
}
END_TEST

/* The one it was set back from is no better the second time. */
START_TEST(a_clock_that_was_set_back_must_earn_trust_again)
{
    int64_t right = 1700000000 * S;
    struct wb_clock clock;

    wb_clock_init(&clock, right + 4000 * DAY, 0);
    ck_assert_int_eq(wb_clock_judge(&clock, right, 0, DAY, DAY), right);
    ck_assert_int_eq(wb_clock_judge(&clock, right + 4000 * DAY, S, DAY, DAY), right + S);
    ck_assert(clock.doubted);
}
END_TEST

/* A clock that was ahead for a while has written future times. Older history is no older for that. */
START_TEST(a_version_of_the_future_makes_no_other_one_old)
{
    const struct wb_retention retention = {.aged = true, .keep = DAY};
    const int64_t now = 1700000000 * S, ahead = now + 4000 * DAY;
    const struct wb_shown list[] = {
        {now - 3 * DAY, now - 2 * DAY}, {now - 2 * DAY, now - HOUR}, {now - HOUR, ahead}, {ahead, ahead + 1},
        {ahead + 1, INT64_MAX}};
    bool stays[G_N_ELEMENTS(list)];

    ck_assert_int_eq(wb_decide(&retention, list, G_N_ELEMENTS(list), NULL, 0, now, stays), 4);
    ck_assert(!stays[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keeper");
    TCase *tcase = tcase_create("keeper");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(tcase, no_protected_history_is_forgotten, 0, 500);
    tcase_add_loop_test(tcase, released_history_is_removed_and_seldom, 0, 60);
    tcase_add_test(tcase, single_versions_are_looked_for_if_some_expire_before_others);
    tcase_add_loop_test(tcase, the_least_forgetting_that_suffices, 0, 500);
    tcase_add_test(tcase, each_horizon_is_later_than_the_one_before);
    tcase_add_test(tcase, expired_history_is_kept_while_there_is_space);
    tcase_add_test(tcase, a_full_store_releases_expired_history_and_no_more);
    tcase_add_test(tcase, records_of_the_future_are_removed_last);
    tcase_add_loop_test(tcase, a_jump_is_trusted_late, 0, 200);
    tcase_add_test(tcase, a_version_of_the_future_makes_no_other_one_old);
    tcase_add_test(tcase, a_clock_that_is_right_again_is_trusted_at_once);
    tcase_add_test(tcase, a_clock_that_was_set_back_must_earn_trust_again);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
