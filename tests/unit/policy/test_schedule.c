/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/schedule.h"

#include "amount.h"
#include "time/civil.h"
#include "wayback/error.h"
#include "wayback/when.h"
#include <check.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Decisions about automatic snapshots: properties that hold in every history of changes, restarts and clocks that are
 * set, and exact days around the changes of summer time.
 */

#define S WB_WHEN_SECOND
#define HOUR 3600

static const char *const zones[] = {
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia",
    "Asia/Kathmandu",
};

static void use_zone(const char *zone)
{
    setenv("TZ", zone, 1);
    tzset();
}

/* ---- a world with a schedule ----------------------------------------------------------------- */

struct world {
    struct wb_schedule schedule;
    struct wb_schedule_state state;
    GArray *list; /* struct wb_scheduled */
    int64_t last; /* given out by the store's clock */
    unsigned made[WB_PERIODS];
};

static struct world world_new(int64_t seconds)
{
    return (struct world){.list = g_array_new(false, false, sizeof(struct wb_scheduled)), .last = 1,
                          .state.now = seconds * S};
}

static struct wb_scheduled *at(const struct world *world, size_t i)
{
    return &g_array_index(world->list, struct wb_scheduled, i);
}

static void world_free(struct world *world)
{
    for (size_t i = 0; i < world->list->len; i++)
        g_free((char *)at(world, i)->name);
    g_array_free(world->list, true);
}

static void keep(struct world *world, enum wb_period period, unsigned count)
{
    world->schedule.periods[period].set = true;
    world->schedule.periods[period].keep = count;
}

static int64_t tick(struct world *world)
{
    world->last = MAX(world->last + 1, world->state.now);
    return world->last;
}

static void change(struct world *world)
{
    world->state.last_change = tick(world);
}

static void add(struct world *world, const char *name, bool automatic)
{
    struct wb_scheduled snapshot = {.when = tick(world), .name = g_strdup(name), .automatic = automatic};

    g_array_append_val(world->list, snapshot);
}

static void decide(const struct world *world, struct wb_schedule_plan *plan)
{
    wb_schedule_decide(&world->schedule, &world->state, &g_array_index(world->list, struct wb_scheduled, 0),
                       world->list->len, plan);
}

static void remove_when(struct world *world, int64_t when)
{
    for (size_t i = 0; i < world->list->len; i++) {
        if (at(world, i)->when == when) {
            g_free((char *)at(world, i)->name);
            g_array_remove_index_fast(world->list, (unsigned)i);
            return;
        }
    }
    ck_abort_msg("a snapshot was to be deleted that there is not");
}

static size_t count_of(const struct world *world, enum wb_period period)
{
    const char *kind = wb_period_name(period);
    size_t count = 0;

    for (size_t i = 0; i < world->list->len; i++)
        count += at(world, i)->automatic && g_str_has_prefix(at(world, i)->name, kind);
    return count;
}

static int64_t newest_of(const struct world *world, enum wb_period period)
{
    const char *kind = wb_period_name(period);
    int64_t newest = -1;

    for (size_t i = 0; i < world->list->len; i++)
        if (at(world, i)->automatic && g_str_has_prefix(at(world, i)->name, kind))
            newest = MAX(newest, at(world, i)->when);
    return newest;
}

static void carry_out(struct world *world)
{
    struct wb_schedule_plan plan;

    decide(world, &plan);
    for (unsigned i = 0; i < plan.make_count; i++) {
        add(world, plan.make[i].name, true);
        world->made[plan.make[i].period]++;
    }
    for (size_t i = 0; i < plan.expired_count; i++)
        remove_when(world, plan.expired[i].when);
    world->state.checked = world->state.now;
    wb_schedule_plan_deinit(&plan);
}

/* ---- slots ----------------------------------------------------------------------------------- */

START_TEST(slots_begin_before_and_follow_each_other)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(11);
    struct wb_schedule schedule = {.every = 7 * 60, .at = 2 * 60 + 30};

    use_zone(zones[_i]);
    for (int i = 0; i < amount(1500, 400); i++) {
        /* 2010 to 2027, in which Apia left out a day and Sao Paulo abolished summer time. */
        int64_t seconds = INT64_C(1262304000) + g_rand_int_range(random, 0, 536000000);
        int64_t later = seconds + g_rand_int_range(random, 0, i % 2 ? 7200 : 4000000);

        schedule.every = (unsigned)g_rand_int_range(random, 1, WB_EVERY_MAX + 1);
        schedule.at = (unsigned)g_rand_int_range(random, 0, 1440);
        for (enum wb_period period = 0; period < WB_PERIODS; period++) {
            static const int64_t longest[WB_PERIODS] = {WB_EVERY_MAX, HOUR, 50 * HOUR, 9 * 24 * HOUR, 33 * 24 * HOUR};
            int64_t slot = wb_schedule_slot(&schedule, period, seconds);

            ck_assert_int_le(slot, seconds);
            ck_assert_int_le(seconds - slot, longest[period]);
            ck_assert_int_le(slot, wb_schedule_slot(&schedule, period, later));
            /* Half an hour of summer time cuts an hour in two. */
            if (period != WB_HOURLY)
                ck_assert_int_eq(wb_schedule_slot(&schedule, period, slot), slot);
        }
    }
}
END_TEST

START_TEST(an_evening_hour_repeated_after_midnight_belongs_to_the_day_begun)
{
    struct wb_schedule schedule = {.every = HOUR};
    /* In 2010 the clocks there went back from 00:01 to 23:01. */
    const int64_t midnight = 1289097000;

    use_zone("America/St_Johns");
    ck_assert_int_eq(wb_schedule_slot(&schedule, WB_DAILY, midnight), midnight);
    ck_assert_int_eq(wb_schedule_slot(&schedule, WB_DAILY, midnight + 1800), midnight);
}
END_TEST

/* How many of a kind are made from one instant to another, looking every few minutes, always changing. */
static unsigned made_between(const char *zone, enum wb_period period, const char *at_time, int64_t from, int64_t to)
{
    struct world world = world_new(from);
    unsigned made;

    use_zone(zone);
    world.schedule.at = (unsigned)(atoi(at_time) * 60 + atoi(at_time + 3));
    world.schedule.every = 1800;
    keep(&world, period, 10000);
    /* The slot before does not count. */
    world.state.checked = world.state.now;
    for (; world.state.now < to * S; world.state.now += 300 * S) {
        change(&world);
        carry_out(&world);
    }
    made = world.made[period];
    world_free(&world);
    return made;
}

START_TEST(summer_time_loses_no_slot_and_doubles_none)
{
    /* 2026, midnight to midnight of the days the clocks change, local time. */
    const int64_t berlin_spring = 1774738800, berlin_autumn = 1792879200;
    const int64_t york_spring = 1772946000, york_autumn = 1793505600;

    ck_assert_uint_eq(made_between("Europe/Berlin", WB_HOURLY, "00:00", berlin_spring, berlin_spring + 23 * HOUR), 22);
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_HOURLY, "00:00", berlin_autumn, berlin_autumn + 25 * HOUR), 24);
    ck_assert_uint_eq(made_between("America/New_York", WB_HOURLY, "00:00", york_spring, york_spring + 23 * HOUR), 22);
    ck_assert_uint_eq(made_between("America/New_York", WB_HOURLY, "00:00", york_autumn, york_autumn + 25 * HOUR), 24);
    /* 02:30 does not exist, or exists twice: once a day all the same. */
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_DAILY, "02:30", berlin_spring, berlin_spring + 23 * HOUR), 1);
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_DAILY, "02:30", berlin_autumn, berlin_autumn + 25 * HOUR), 1);
    ck_assert_uint_eq(made_between("America/New_York", WB_DAILY, "02:30", york_spring, york_spring + 23 * HOUR), 1);
    ck_assert_uint_eq(made_between("America/New_York", WB_DAILY, "01:30", york_autumn, york_autumn + 25 * HOUR), 1);
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_EVERY, "00:00", berlin_autumn, berlin_autumn + 25 * HOUR), 49);
    /* A leap year of weeks, days and months, from 1 January 2024 on, a Monday. */
    ck_assert_uint_eq(made_between("UTC", WB_WEEKLY, "00:00", 1704067200, 1704067200 + 366 * 24 * HOUR), 52);
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_MONTHLY, "03:30", 1704063600, 1704063600 + 366 * 24 * HOUR), 12);
    ck_assert_uint_eq(made_between("Europe/Berlin", WB_DAILY, "03:30", 1704063600, 1704063600 + 366 * 24 * HOUR), 366);
}
END_TEST

START_TEST(an_hour_that_exists_twice_gets_two_names)
{
    struct world world;

    use_zone("Europe/Berlin");
    world = world_new(1792886400); /* 2026-10-25 02:00 +0200 */
    keep(&world, WB_HOURLY, 5);
    change(&world);
    carry_out(&world);
    world.state.now += HOUR * S;
    change(&world);
    carry_out(&world);
    ck_assert_uint_eq(world.list->len, 2);
    ck_assert_str_eq(at(&world, 0)->name, "hourly-2026-10-25_0200");
    ck_assert_str_eq(at(&world, 1)->name, "hourly-2026-10-25_0200-2");
    world_free(&world);
}
END_TEST

/* ---- times at which one is made, and others -------------------------------------------------- */

START_TEST(weeks_begin_on_monday_and_months_on_the_first)
{
    struct wb_schedule schedule = {.at = 3 * 60 + 30};
    /* Saturday 2026-11-21 14:00 +0100 */
    const int64_t now = 1795266000;
    struct wb_civil civil;
    int offset;

    use_zone("Europe/Berlin");
    wb_civil_at(wb_schedule_slot(&schedule, WB_WEEKLY, now), &civil, &offset);
    ck_assert(civil.day == 16 && civil.month == 11 && civil.hour == 3 && civil.minute == 30);
    wb_civil_at(wb_schedule_slot(&schedule, WB_MONTHLY, now), &civil, &offset);
    ck_assert(civil.day == 1 && civil.month == 11 && civil.hour == 3 && civil.minute == 30);
    wb_civil_at(wb_schedule_slot(&schedule, WB_DAILY, now), &civil, &offset);
    ck_assert(civil.day == 21 && civil.hour == 3 && civil.minute == 30);
    wb_civil_at(wb_schedule_slot(&schedule, WB_DAILY, now - 11 * HOUR), &civil, &offset);
    ck_assert(civil.day == 20 && civil.hour == 3 && civil.minute == 30);
    /* On Monday the 16th at 03:29 it is still last week. */
    wb_civil_at(wb_schedule_slot(&schedule, WB_WEEKLY, 1794796140), &civil, &offset);
    ck_assert(civil.day == 9 && civil.month == 11);
}
END_TEST

START_TEST(a_slot_without_a_change_is_left_out_and_not_filled_later)
{
    struct world world;

    use_zone("UTC");
    world = world_new(1795266000);
    keep(&world, WB_HOURLY, 5);
    change(&world);
    carry_out(&world);
    ck_assert_uint_eq(world.made[WB_HOURLY], 1);
    world.state.now += HOUR * S;
    carry_out(&world);
    ck_assert_uint_eq(world.made[WB_HOURLY], 1);
    world.state.now += 1800 * S;
    change(&world);
    carry_out(&world);
    ck_assert_uint_eq(world.made[WB_HOURLY], 1);
    world.state.now += 1800 * S;
    carry_out(&world);
    ck_assert_uint_eq(world.made[WB_HOURLY], 2);
    world_free(&world);
}
END_TEST

START_TEST(a_missed_one_is_made_once_at_the_next_look)
{
    struct world world;

    use_zone("UTC");
    world = world_new(1795266000);
    keep(&world, WB_HOURLY, 5);
    keep(&world, WB_DAILY, 5);
    change(&world);
    carry_out(&world);
    change(&world);
    /* Not mounted for five hours and a half, over midnight or not. */
    world.state.now += (5 * HOUR + 1800) * S;
    world.state.checked = 0;
    carry_out(&world);
    ck_assert_uint_eq(world.made[WB_HOURLY], 2);
    ck_assert_uint_eq(world.made[WB_DAILY], 1);
    ck_assert_str_eq(at(&world, 2)->name, "hourly-2026-11-21_1830");
    /* Mounted again and again in the same hour. */
    for (int i = 0; i < 3; i++) {
        world.state.checked = 0;
        world.state.now += 60 * S;
        change(&world);
        carry_out(&world);
    }
    ck_assert_uint_eq(world.made[WB_HOURLY], 2);
    world_free(&world);
}
END_TEST

START_TEST(a_renamed_one_belongs_to_a_user)
{
    struct world world;

    use_zone("UTC");
    world = world_new(1795266000);
    keep(&world, WB_HOURLY, 1);
    add(&world, "hourly-2026-11-01_1000", false);
    add(&world, "hourly", true);
    add(&world, "before-upgrade", true);
    add(&world, "hourly-kept", true);
    add(&world, "hourly-2026-11-01_1100", true);
    for (int i = 0; i < 3; i++) {
        change(&world);
        carry_out(&world);
        world.state.now += HOUR * S;
    }
    ck_assert_uint_eq(world.list->len, 5);
    world_free(&world);
}
END_TEST

START_TEST(none_are_kept_if_zero_is_set_and_all_if_nothing_is_set)
{
    struct world world;

    use_zone("UTC");
    world = world_new(1795266000);
    add(&world, "hourly-2026-11-01_1100", true);
    add(&world, "daily-2026-11-01_0000", true);
    keep(&world, WB_HOURLY, 0);
    change(&world);
    carry_out(&world);
    ck_assert_uint_eq(world.list->len, 1);
    ck_assert_str_eq(at(&world, 0)->name, "daily-2026-11-01_0000");
    world_free(&world);
}
END_TEST

START_TEST(a_clock_set_back_by_years_does_not_stop_the_schedule)
{
    struct world world;

    use_zone("UTC");
    world = world_new(1795266000 + INT64_C(315360000)); /* ten years ahead */
    keep(&world, WB_HOURLY, 3);
    change(&world);
    carry_out(&world);
    world.state.now -= INT64_C(315360000) * S;
    for (int i = 0; i < 4; i++) {
        change(&world);
        carry_out(&world);
        world.state.now += HOUR * S;
    }
    /* The hour in which the clock was set may be counted as looked at. */
    ck_assert_uint_ge(world.made[WB_HOURLY], 4);
    ck_assert_uint_eq(count_of(&world, WB_HOURLY), 3);
    /* Mounted again: one at most, and none without a change. */
    world.state.checked = 0;
    carry_out(&world);
    ck_assert_uint_le(world.made[WB_HOURLY], 5);
    world_free(&world);
}
END_TEST

/* ---- properties ------------------------------------------------------------------------------ */

static size_t count_own(const struct world *world)
{
    size_t count = 0;

    for (size_t i = 0; i < world->list->len; i++)
        count += !at(world, i)->automatic;
    return count;
}

static void check_names(const struct world *world)
{
    for (size_t i = 0; i < world->list->len; i++) {
        struct wb_time time;

        ck_assert_int_eq(wb_time_parse(at(world, i)->name, world->state.now, &time), WB_NOT_TIME);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(at(world, i)->name, at(world, j)->name);
    }
}

static void check_again(const struct world *world)
{
    struct wb_schedule_plan plan;

    decide(world, &plan);
    ck_assert_uint_eq(plan.make_count, 0);
    ck_assert_uint_eq(plan.expired_count, 0);
    ck_assert_int_gt(plan.again, world->state.now);
    wb_schedule_plan_deinit(&plan);
}

static void check_round(struct world *world)
{
    size_t own = count_own(world), count[WB_PERIODS];
    int64_t newest[WB_PERIODS], checked = world->state.checked;
    unsigned made[WB_PERIODS];

    for (enum wb_period period = 0; period < WB_PERIODS; period++) {
        newest[period] = newest_of(world, period);
        count[period] = count_of(world, period);
    }
    memcpy(made, world->made, sizeof(made));
    carry_out(world);
    ck_assert_uint_eq(count_own(world), own);
    for (enum wb_period period = 0; period < WB_PERIODS; period++) {
        size_t now = count_of(world, period), most = world->schedule.periods[period].keep;
        bool set = world->schedule.periods[period].set, is_new = world->made[period] > made[period];

        ck_assert_uint_le(world->made[period], made[period] + 1);
        if (!set) {
            ck_assert_uint_eq(now, count[period]);
            continue;
        }
        /* As many as there can be, the newest ones, and none without a change. */
        ck_assert_uint_eq(now, MIN(count[period] + is_new, most));
        if (most > 0)
            ck_assert_int_ge(newest_of(world, period), newest[period]);
        if (is_new)
            ck_assert(newest[period] < 0 || world->state.last_change > newest[period]);
    }
    check_again(world);
    /* The same for one who has not looked before, as after a kill. */
    world->state.checked = checked;
    check_again(world);
    world->state.checked = world->state.now;
}

static void set_up(struct world *world, GRand *random)
{
    for (enum wb_period period = 0; period < WB_PERIODS; period++) {
        world->schedule.periods[period].set = g_rand_int_range(random, 0, 4) > 0;
        world->schedule.periods[period].keep = (unsigned)g_rand_int_range(random, 0, 6);
    }
    world->schedule.every = (unsigned)g_rand_int_range(random, 1, 20000);
    world->schedule.at = (unsigned)g_rand_int_range(random, 0, 1440);
}

START_TEST(properties_hold_in_random_histories)
{
    g_autoptr(GRand) random = g_rand_new_with_seed((guint32)_i);
    /* From days before a change of summer time on. */
    static const int64_t starts[] = {1774650000, 1792790000, 1772850000, 1793420000, 1795266000};
    struct world world = world_new(starts[_i % 5]);

    use_zone(zones[_i % (int)G_N_ELEMENTS(zones)]);
    set_up(&world, random);
    for (int i = 0; i < 300; i++) {
        static const int64_t steps[] = {1, 60, 600, HOUR, 5 * HOUR, 30 * HOUR, 8 * 24 * HOUR};
        int64_t step = steps[g_rand_int_range(random, 0, G_N_ELEMENTS(steps))] * S;

        world.state.now += g_rand_int_range(random, 0, 1000000) + (int64_t)(g_rand_double(random) * (double)step);
        switch (g_rand_int_range(random, 0, 20)) {
        case 0:
            world.state.now -= (int64_t)(g_rand_double(random) * (double)(100 * HOUR * S));
            break;
        case 1:
            world.state.checked = 0;
            break;
        case 2:
            set_up(&world, random);
            break;
        case 3: {
            g_autofree char *name = g_strdup_printf("%s-2026-11-%02d_%04d", wb_period_name(i % WB_PERIODS),
                                                    i % 28 + 1, i);
            add(&world, name, false);
            break;
        }
        default:
            if (g_rand_boolean(random))
                change(&world);
        }
        check_round(&world);
        if (i % 50 == 0)
            check_names(&world);
    }
    world_free(&world);
}
END_TEST

/* A caller that wakes at the requested times is late for no slot. */
START_TEST(the_next_slot_is_returned)
{
    g_autoptr(GRand) random = g_rand_new_with_seed(3);
    struct world world = world_new(1792790000);

    use_zone(zones[_i]);
    for (int i = 0; i < amount(2000, 500); i++) {
        struct wb_schedule_plan plan;

        set_up(&world, random);
        world.state.now += g_rand_int_range(random, 0, 100000) * S + g_rand_int_range(random, 0, 999999999);
        decide(&world, &plan);
        for (enum wb_period period = 0; period < WB_PERIODS; period++) {
            int64_t slot, before;

            if (!world.schedule.periods[period].set || world.schedule.periods[period].keep == 0)
                continue;
            slot = wb_schedule_slot(&world.schedule, period, world.state.now / S);
            before = wb_schedule_slot(&world.schedule, period, (plan.again - 1) / S);
            ck_assert_int_eq(slot, before);
        }
        ck_assert(plan.again == WB_WHEN_PRESENT || plan.again > world.state.now);
        wb_schedule_plan_deinit(&plan);
    }
    world_free(&world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("schedule");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, slots_begin_before_and_follow_each_other, 0, G_N_ELEMENTS(zones));
    tcase_add_test(tcase, an_evening_hour_repeated_after_midnight_belongs_to_the_day_begun);
    tcase_add_test(tcase, summer_time_loses_no_slot_and_doubles_none);
    tcase_add_test(tcase, an_hour_that_exists_twice_gets_two_names);
    tcase_add_test(tcase, weeks_begin_on_monday_and_months_on_the_first);
    tcase_add_test(tcase, a_slot_without_a_change_is_left_out_and_not_filled_later);
    tcase_add_test(tcase, a_missed_one_is_made_once_at_the_next_look);
    tcase_add_test(tcase, a_renamed_one_belongs_to_a_user);
    tcase_add_test(tcase, none_are_kept_if_zero_is_set_and_all_if_nothing_is_set);
    tcase_add_test(tcase, a_clock_set_back_by_years_does_not_stop_the_schedule);
    tcase_add_loop_test(tcase, properties_hold_in_random_histories, 0, amount(80, 35));
    tcase_add_loop_test(tcase, the_next_slot_is_returned, 0, G_N_ELEMENTS(zones));
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
