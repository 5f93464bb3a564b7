/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/age.h"

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

static bool take_unit(struct wb_scanner *in, const struct unit *unit)
{
    for (size_t i = 0; i < G_N_ELEMENTS(unit->names) && unit->names[i]; i++) {
        if (wb_scan_word(in, unit->names[i]))
            return true;
    }
    return false;
}

static bool add(struct wb_age *age, const struct unit *unit, int64_t number, int64_t fraction)
{
    int64_t part;

    if (unit->months)
        return fraction == 0 && !__builtin_mul_overflow(number, unit->months, &part) &&
               !__builtin_add_overflow(age->months, part, &age->months);
    return !__builtin_mul_overflow(number, unit->seconds * WB_WHEN_SECOND, &part) &&
           !__builtin_add_overflow(age->nanoseconds, part, &age->nanoseconds) &&
           !__builtin_add_overflow(age->nanoseconds, fraction * unit->seconds, &age->nanoseconds);
}

/* Between two numbers, which may also follow each other at once ("1h30m"); none after the last. */
static bool take_gap(struct wb_scanner *in)
{
    return wb_scan_end(in) || wb_scan_is_digit(*in->at) || (wb_scan_gap(in) && !wb_scan_end(in));
}

bool wb_age_scan(struct wb_scanner *in, struct wb_age *ret)
{
    struct wb_scanner ahead;
    size_t next = 0;

    *ret = (struct wb_age){0};
    do {
        int64_t number = 1, fraction = 0;

        if (!wb_scan_word(in, "an") && !wb_scan_word(in, "a") &&
            (!wb_scan_digits(in, 1, 10, &number) || !wb_scan_fraction(in, &fraction)))
            return false;
        wb_scan_blanks(in);
        while (next < G_N_ELEMENTS(units) && !take_unit(in, &units[next]))
            next++;
        if (next == G_N_ELEMENTS(units) || !add(ret, &units[next++], number, fraction) || !take_gap(in))
            return false;
        if (wb_scan_word(in, "and") && (!wb_scan_blanks(in) || wb_scan_end(in)))
            return false;
        ahead = *in;
    } while (!wb_scan_end(in) && !wb_scan_word(&ahead, "ago"));
    return true;
}
