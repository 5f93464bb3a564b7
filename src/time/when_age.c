/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ages as people write them. */
#include "time/when_scan.h"

#include <glib.h>

#define DAY 86400

/* From the longest to the shortest, the order in which an age names them. */
static const struct unit {
    const char *names[6];
    int64_t seconds; /* 0: months */
    int months;
} units[] = {
    {{"years", "year", "yrs", "yr", "y"}, 0, 12},
    {{"months", "month", "mo"}, 0, 1},
    {{"weeks", "week", "wks", "wk", "w"}, 7 * DAY, 0},
    {{"days", "day", "d"}, DAY, 0},
    {{"hours", "hour", "hrs", "hr", "h"}, 3600, 0},
    {{"minutes", "minute", "mins", "min", "m"}, 60, 0},
    {{"seconds", "second", "secs", "sec", "s"}, 1, 0},
};

struct age {
    int64_t nanoseconds, months;
};

static bool take_unit(struct wb_scanner *in, const struct unit *unit)
{
    for (size_t i = 0; i < G_N_ELEMENTS(unit->names) && unit->names[i]; i++) {
        if (wb_scan_word(in, unit->names[i]))
            return true;
    }
    return false;
}

static bool add(struct age *age, const struct unit *unit, int64_t number, int64_t fraction)
{
    int64_t part;

    if (unit->months)
        return fraction == 0 && !__builtin_mul_overflow(number, unit->months, &part) &&
               !__builtin_add_overflow(age->months, part, &age->months);
    return !__builtin_mul_overflow(number, unit->seconds * WB_WHEN_SECOND, &part) &&
           !__builtin_add_overflow(age->nanoseconds, part, &age->nanoseconds) &&
           !__builtin_add_overflow(age->nanoseconds, fraction * unit->seconds, &age->nanoseconds);
}

/* "1.5h", "10 min", "a year and 2 months". */
static bool take_age(struct wb_scanner *in, struct age *age)
{
    size_t next = 0;

    do {
        int64_t number = 1, fraction = 0;

        if (!wb_scan_word(in, "an") && !wb_scan_word(in, "a") &&
            (!wb_scan_digits(in, 1, 10, &number) || !wb_scan_fraction(in, &fraction)))
            return false;
        wb_scan_blanks(in);
        while (next < G_N_ELEMENTS(units) && !take_unit(in, &units[next]))
            next++;
        if (next == G_N_ELEMENTS(units) || !add(age, &units[next++], number, fraction) || !wb_scan_gap(in))
            return false;
        if (wb_scan_word(in, "and") && (!wb_scan_blanks(in) || wb_scan_end(in)))
            return false;
    } while (!wb_scan_end(in) && !wb_scan_word(in, "ago"));
    return wb_scan_end(in);
}

/* The same day as many months earlier, or the last day of that month if it is shorter. */
static bool go_back(int64_t months_ago, int64_t *now)
{
    struct wb_civil civil;
    int64_t month;
    int offset;

    wb_civil_at(*now / WB_WHEN_SECOND, &civil, &offset);
    month = civil.year * INT64_C(12) + civil.month - 1 - months_ago;
    if (months_ago > civil.year * INT64_C(12) || month < 1970 * 12)
        return false;
    civil.year = (int)(month / 12);
    civil.month = (int)(month % 12) + 1;
    while (!wb_civil_valid(&civil) && civil.day > 28)
        civil.day--;
    *now = wb_civil_local(&civil) * WB_WHEN_SECOND + *now % WB_WHEN_SECOND;
    return true;
}

int wb_time_parse_age(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct age age = {0};

    if (!take_age(&in, &age) || (age.months > 0 && !go_back(age.months, &now)) || age.nanoseconds > now)
        return WB_NOT_TIME;
    return wb_time_set(ret, 0, now - age.nanoseconds, true);
}
