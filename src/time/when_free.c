/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Times as people say them and programs print them: a date, a day of the week, a time of day and a zone, in any order,
 * each once. What may mean two things, as 11/12/2026 does, is refused.
 */
#include "time/when_scan.h"

#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY 86400
#define ZONE_MAX (14 * 3600)
/* Between two 29ths of February. */
#define LEAP_YEARS 8

static const char *const months[] = {"january", "february", "march",     "april",   "may",      "june",
                                     "july",    "august",   "september", "october", "november", "december"};
static const char *const weekdays[] = {"sunday",   "monday", "tuesday", "wednesday",
                                       "thursday", "friday", "saturday"};

struct told {
    int year, month, day; /* 0: not told  */
    int weekday;          /* -1: not told */
    bool has_clock, has_offset;
    struct wb_civil clock; /* of which only the time of day is used */
    int64_t nanoseconds;
    int offset;
    char zone[8]; /* one of the names of local time; or "" */
};

/* ---- parts ----------------------------------------------------------------------------------- */

/* A name, or three letters of it or more; -1: none. */
static int take_name(struct wb_scanner *in, const char *const names[], int count)
{
    size_t length = 0;

    while (wb_scan_is_letter(in->at[length]))
        length++;
    for (int i = 0; length >= 3 && i < count; i++) {
        if (length > strlen(names[i]) || g_ascii_strncasecmp(in->at, names[i], length) != 0)
            continue;
        in->at += length;
        wb_scan_char(in, '.');
        return i;
    }
    return -1;
}

static bool has_zone(const struct told *told)
{
    return told->has_offset || *told->zone;
}

/* "am", "p.m.": the hour was one of twelve. False: neither is there. */
static bool take_half(struct wb_scanner *in, int *hour)
{
    static const char *const halves[] = {"am", "a.m.", "a.m", "pm", "p.m.", "p.m"};
    struct wb_scanner ahead = *in;

    wb_scan_blanks(&ahead);
    for (size_t i = 0; i < G_N_ELEMENTS(halves); i++) {
        if (*hour < 1 || *hour > 12 || !wb_scan_word(&ahead, halves[i]))
            continue;
        *hour = *hour % 12 + (*halves[i] == 'p' ? 12 : 0);
        *in = ahead;
        return true;
    }
    return false;
}

/* A zone that is part of the same word as its time of day; none is further away. */
static bool take_joined_zone(struct wb_scanner *in, struct told *told)
{
    struct wb_scanner ahead = *in;

    if (has_zone(told) || !wb_scan_zone(&ahead, &told->offset) || abs(told->offset) > ZONE_MAX)
        return *in->at != '+' && *in->at != '-';
    told->has_offset = true;
    *in = ahead;
    return true;
}

/* "14:03:07.5", "2:30 pm", "2pm", "noon". */
static bool take_clock(struct wb_scanner *in, struct told *told, int64_t now)
{
    struct wb_scanner ahead = *in;

    (void)now;
    if (told->has_clock)
        return false;
    told->has_clock = true;
    if (wb_scan_clock(&ahead, 1, &told->clock, &told->nanoseconds)) {
        take_half(&ahead, &told->clock.hour);
        *in = ahead;
        return take_joined_zone(in, told);
    }
    told->clock = (struct wb_civil){0};
    told->nanoseconds = 0;
    if (wb_scan_word(in, "midnight"))
        return true;
    told->clock.hour = 12;
    if (wb_scan_word(in, "noon"))
        return true;
    return wb_scan_field(in, 1, 2, &told->clock.hour) && take_half(in, &told->clock.hour);
}

/* A time of day that is part of the same word as its date: behind a T, where the hour may do, or a colon. */
static bool take_joined_clock(struct wb_scanner *in, struct told *told)
{
    bool iso = *in->at == 'T' || *in->at == 't';
    struct wb_scanner hour;

    if ((!iso && *in->at != ':') || !wb_scan_is_digit(in->at[1]))
        return true;
    in->at++;
    hour = *in;
    if (take_clock(in, told, 0))
        return true;
    told->clock = (struct wb_civil){0};
    *in = hour;
    return iso && wb_scan_field(in, 2, 2, &told->clock.hour);
}

/* "2026-11-20", "2026/11/20", "20.11.2026", "20.11." */
static bool take_date(struct wb_scanner *in, struct told *told, int64_t now)
{
    struct wb_scanner ahead = *in;
    char separator;

    (void)now;
    if (told->month)
        return false;
    if (wb_scan_field(&ahead, 4, 4, &told->year)) {
        separator = *ahead.at;
        if ((separator != '-' && separator != '/') || !wb_scan_char(&ahead, separator) ||
            !wb_scan_field(&ahead, 1, 2, &told->month) || !wb_scan_char(&ahead, separator) ||
            !wb_scan_field(&ahead, 1, 2, &told->day))
            return false;
        *in = ahead;
        return take_joined_clock(in, told);
    }
    if (!wb_scan_field(in, 1, 2, &told->day) || !wb_scan_char(in, '.') || !wb_scan_field(in, 1, 2, &told->month) ||
        !wb_scan_char(in, '.'))
        return false;
    return !wb_scan_is_digit(*in->at) || wb_scan_field(in, 4, 4, &told->year);
}

/* "20", "20.", "20th". */
static bool take_day(struct wb_scanner *in, int *day)
{
    if (!wb_scan_field(in, 1, 2, day))
        return false;
    if (!wb_scan_char(in, '.') && !wb_scan_word(in, "st") && !wb_scan_word(in, "nd") && !wb_scan_word(in, "rd"))
        wb_scan_word(in, "th");
    return true;
}

/* "20 Nov", "20/Nov/2026", "November 20th"; a year by itself is a part of its own. */
static bool take_month(struct wb_scanner *in, struct told *told, int64_t now)
{
    bool first = wb_scan_is_digit(*in->at);
    char separator;

    (void)now;
    if (told->month || (first && !take_day(in, &told->day)))
        return false;
    separator = first ? *in->at : ' ';
    if (first && !wb_scan_blanks(in) && separator != '-' && separator != '/')
        return false;
    if (separator == '-' || separator == '/')
        in->at++;
    told->month = take_name(in, months, G_N_ELEMENTS(months)) + 1;
    if (told->month == 0 || (!first && (wb_scan_blanks(in), !take_day(in, &told->day))))
        return false;
    if (separator != '-' && separator != '/')
        return true;
    return wb_scan_char(in, separator) && wb_scan_field(in, 4, 4, &told->year) && take_joined_clock(in, told);
}

static bool take_year(struct wb_scanner *in, struct told *told, int64_t now)
{
    (void)now;
    return told->month && !told->year && wb_scan_field(in, 4, 4, &told->year) && told->year > 0;
}

static bool take_near_day(struct wb_scanner *in, struct told *told, int64_t now)
{
    bool yesterday = wb_scan_word(in, "yesterday");
    struct wb_civil day;

    if (told->month || (!yesterday && !wb_scan_word(in, "today")))
        return false;
    day = wb_day_before(now, yesterday);
    told->year = day.year;
    told->month = day.month;
    told->day = day.day;
    return true;
}

static bool take_weekday(struct wb_scanner *in, struct told *told, int64_t now)
{
    (void)now;
    if (told->weekday >= 0)
        return false;
    if (wb_scan_word(in, "last"))
        wb_scan_blanks(in);
    told->weekday = take_name(in, weekdays, G_N_ELEMENTS(weekdays));
    return told->weekday >= 0;
}

/* "+0100", "UTC", or as date(1) names local time. */
static bool take_zone(struct wb_scanner *in, struct told *told, int64_t now)
{
    size_t length = 0;

    (void)now;
    if (!told->has_clock || has_zone(told))
        return false;
    told->has_offset = true;
    if (wb_scan_word(in, "UTC") || wb_scan_word(in, "GMT") || wb_scan_zone(in, &told->offset))
        return abs(told->offset) <= ZONE_MAX;
    told->has_offset = false;
    while (wb_scan_is_letter(in->at[length]))
        length++;
    if (length < 3 || length >= sizeof(told->zone))
        return false;
    memcpy(told->zone, in->at, length);
    in->at += length;
    return true;
}

static bool take_part(struct wb_scanner *in, struct told *told, int64_t now)
{
    static bool (*const parts[])(struct wb_scanner *in, struct told *told, int64_t now) = {
        take_date, take_month, take_clock, take_near_day, take_weekday, take_year, take_zone,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
        struct wb_scanner ahead = *in;
        struct told more = *told;

        if (!parts[i](&ahead, &more, now) || !wb_scan_gap(&ahead))
            continue;
        *in = ahead;
        *told = more;
        return true;
    }
    return false;
}

/* ---- what is not told ------------------------------------------------------------------------ */

static bool is_named(int64_t seconds, const char *zone, int hour)
{
    time_t time = seconds;
    struct tm tm;

    return localtime_r(&time, &tm) && tm.tm_hour == hour && g_ascii_strcasecmp(tm.tm_zone, zone) == 0;
}

/* That date, at the time of day that was told, or when it began. */
static int set(struct wb_time *ret, const struct told *told, const struct wb_civil *date)
{
    struct wb_civil civil = *date;
    int64_t local;

    civil.hour = told->clock.hour;
    civil.minute = told->clock.minute;
    civil.second = told->clock.second;
    if (!wb_civil_valid(&civil))
        return WB_NOT_TIME;
    if (told->has_offset)
        return wb_time_set(ret, wb_civil_utc(&civil) - told->offset, told->nanoseconds, false);
    local = wb_civil_local(&civil);
    /* Where the clocks go back, the name tells which of two it is. */
    if (*told->zone && !is_named(local, told->zone, civil.hour)) {
        local += 3600;
        if (!is_named(local, told->zone, civil.hour))
            return WB_NOT_TIME;
    }
    return wb_time_set(ret, local, told->nanoseconds, false);
}

static int weekday_of(const struct wb_civil *date)
{
    struct wb_civil day = {.year = date->year, .month = date->month, .day = date->day};
    int64_t days = wb_civil_utc(&day) / DAY; /* the first of them was a Thursday */

    return (int)((days + 4) % 7);
}

/* The last such date that is over, or has begun. */
static int set_without_year(struct wb_time *ret, const struct told *told, int64_t now, struct wb_civil *date)
{
    int last = date->year;

    date->month = told->month;
    date->day = told->day;
    for (int years = 0; years <= LEAP_YEARS; years++) {
        date->year = last - years;
        if (set(ret, told, date) == 0 && ret->instant <= now)
            return 0;
    }
    return WB_NOT_TIME;
}

static int complete(const struct told *told, int64_t now, struct wb_time *ret)
{
    struct wb_civil date = wb_day_before(now, 0);
    int r;

    if (told->has_offset)
        wb_civil_at_offset(now / WB_WHEN_SECOND, told->offset, &date);
    if (told->year) {
        date.year = told->year;
        date.month = told->month;
        date.day = told->day;
        r = set(ret, told, &date);
    } else if (told->month) {
        r = set_without_year(ret, told, now, &date);
    } else if (told->weekday >= 0) {
        /* The last one before today. */
        int days = (weekday_of(&date) - told->weekday + 6) % 7 + 1;

        wb_civil_at_offset(wb_civil_utc(&date) - (int64_t)days * DAY, 0, &date);
        r = set(ret, told, &date);
    } else {
        r = set(ret, told, &date);
    }
    return r == 0 && told->weekday >= 0 && weekday_of(&date) != told->weekday ? WB_NOT_TIME : r;
}

static int parse_parts(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct told told = {.weekday = -1};

    while (!wb_scan_end(&in)) {
        if ((wb_scan_word(&in, "at") || wb_scan_word(&in, "on")) && !wb_scan_blanks(&in))
            return WB_NOT_TIME;
        if (!take_part(&in, &told, now))
            return WB_NOT_TIME;
    }
    if (!told.month && !told.has_clock && told.weekday < 0)
        return WB_NOT_TIME;
    return complete(&told, now, ret);
}

/* ---- the way in ------------------------------------------------------------------------------ */

int wb_time_parse_free(const char *text, int64_t now, struct wb_time *ret)
{
    char copy[WB_SCAN_MAX];
    struct wb_scanner in;

    if (!wb_scan_begin(&in, text, copy))
        return WB_NOT_TIME;
    return wb_time_parse_age(in, now, ret) == 0 || parse_parts(in, now, ret) == 0 ? 0 : WB_NOT_TIME;
}
