/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/civil.h"

#include <time.h>

#define DAY 86400

static bool leap_year(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

bool wb_civil_valid(const struct wb_civil *civil)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int last;

    if (civil->month < 1 || civil->month > 12)
        return false;
    last = days[civil->month - 1] + (civil->month == 2 && leap_year(civil->year));
    return civil->day >= 1 && civil->day <= last && civil->hour >= 0 && civil->hour <= 23 &&
           civil->minute >= 0 && civil->minute <= 59 && civil->second >= 0 && civil->second <= 59;
}

static struct wb_civil from_tm(const struct tm *tm)
{
    return (struct wb_civil){.year = tm->tm_year + 1900, .month = tm->tm_mon + 1, .day = tm->tm_mday,
                             .hour = tm->tm_hour, .minute = tm->tm_min, .second = tm->tm_sec};
}

int64_t wb_civil_utc(const struct wb_civil *civil)
{
    struct tm tm = {.tm_year = civil->year - 1900, .tm_mon = civil->month - 1, .tm_mday = civil->day,
                    .tm_hour = civil->hour, .tm_min = civil->minute, .tm_sec = civil->second};

    return timegm(&tm);
}

/* Seconds ahead of UTC at an instant. */
static int offset_at(int64_t seconds)
{
    struct tm tm;
    time_t t = seconds;

    return localtime_r(&t, &tm) ? (int)tm.tm_gmtoff : 0;
}

int64_t wb_civil_local(const struct wb_civil *civil)
{
    int64_t as_utc = wb_civil_utc(civil);
    int before, after;
    int64_t earlier, later;

    /* localtime_r alone does not check whether TZ has changed. */
    tzset();
    /* No zone is a whole day away from UTC, so these two instants enclose the result; only a change of offset between
     * them is near enough to affect it. */
    before = offset_at(as_utc - DAY);
    after = offset_at(as_utc + DAY);
    earlier = as_utc - before;
    later = as_utc - after;
    if (offset_at(earlier) == before)
        return earlier;
    if (offset_at(later) == after)
        return later;
    return earlier;
}

void wb_civil_at(int64_t seconds, struct wb_civil *ret, int *ret_offset)
{
    tzset();
    *ret_offset = offset_at(seconds);
    wb_civil_at_offset(seconds, *ret_offset, ret);
}

void wb_civil_at_offset(int64_t seconds, int offset, struct wb_civil *ret)
{
    time_t t = seconds + offset;
    struct tm tm = {0};

    gmtime_r(&t, &tm);
    *ret = from_tm(&tm);
}
