/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Times as people write them and programs print them: a date, a day of the week, a time of day and a zone, in any
 * order, each once. Refuses a text with two meanings, such as 11/12/2026.
 */
#include "time/age.h"
#include "time/when_scan.h"

#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY 86400

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

/* "1.5h", "10 min", "a year and 2 months", with or without "ago". 0 or WB_NOT_TIME. */
static int time_parse_age(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct wb_age age;

    if (!wb_age_scan(&in, &age))
        return WB_NOT_TIME;
    wb_scan_word(&in, "ago");
    if (!wb_scan_end(&in) || (age.months > 0 && !go_back(age.months, &now)) || age.nanoseconds > now)
        return WB_NOT_TIME;
    return wb_time_set(ret, 0, now - age.nanoseconds, true);
}

#define ZONE_MAX (14 * 3600)
/* The longest distance between two 29ths of February. */
#define LEAP_YEARS 8

static const char *const months[] = {"january", "february", "march",     "april",   "may",      "june",
                                     "july",    "august",   "september", "october", "november", "december"};
static const char *const weekdays[] = {"sunday",   "monday", "tuesday", "wednesday",
                                       "thursday", "friday", "saturday"};

struct parts {
    int year, month, day; /* 0: not given  */
    int weekday;          /* -1: not given */
    bool has_clock, has_offset;
    struct wb_civil clock; /* only the time of day is used */
    int64_t nanoseconds;
    int offset;
    char zone[8]; /* one of the names of local time; or "" */
};

/* ---- parts ----------------------------------------------------------------------------------- */

/* The index of a name, which may be cut to three letters or more; -1: no name matches. */
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

static bool has_zone(const struct parts *parts)
{
    return parts->has_offset || *parts->zone;
}

/* "am", "p.m.": sets *hour to the hour of 24. False: neither follows. */
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

/* A zone that belongs to the same word as its time of day; a zone after a blank is another part. */
static bool take_joined_zone(struct wb_scanner *in, struct parts *parts)
{
    struct wb_scanner ahead = *in;

    if (has_zone(parts) || !wb_scan_zone(&ahead, &parts->offset) || abs(parts->offset) > ZONE_MAX)
        return *in->at != '+' && *in->at != '-';
    parts->has_offset = true;
    *in = ahead;
    return true;
}

/* "noon", "evening"; the hour at which most people say that this part of the day has begun. */
static bool take_part_of_day(struct wb_scanner *in, int *hour)
{
    static const struct {
        const char *name;
        int hour;
    } known[] = {{"midnight", 0}, {"morning", 6}, {"noon", 12}, {"afternoon", 12}, {"evening", 18}};

    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        *hour = known[i].hour;
        if (wb_scan_word(in, known[i].name))
            return true;
    }
    return false;
}

/* "14:03:07.5", "2:30 pm", "2pm", "noon", "morning". */
static bool take_clock(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    struct wb_scanner ahead = *in;

    (void)now;
    if (parts->has_clock)
        return false;
    parts->has_clock = true;
    if (wb_scan_clock(&ahead, 1, &parts->clock, &parts->nanoseconds)) {
        take_half(&ahead, &parts->clock.hour);
        *in = ahead;
        return take_joined_zone(in, parts);
    }
    parts->clock = (struct wb_civil){0};
    parts->nanoseconds = 0;
    if (take_part_of_day(in, &parts->clock.hour))
        return true;
    return wb_scan_field(in, 1, 2, &parts->clock.hour) && take_half(in, &parts->clock.hour);
}

/* A time of day that belongs to the same word as its date: after a T, when the hour alone is enough, or after a
 * colon. */
static bool take_joined_clock(struct wb_scanner *in, struct parts *parts)
{
    bool iso = *in->at == 'T' || *in->at == 't';
    struct wb_scanner hour;

    if ((!iso && *in->at != ':') || !wb_scan_is_digit(in->at[1]))
        return true;
    in->at++;
    hour = *in;
    if (take_clock(in, parts, 0))
        return true;
    parts->clock = (struct wb_civil){0};
    *in = hour;
    return iso && wb_scan_field(in, 2, 2, &parts->clock.hour);
}

/* "2026-11-20", "2026/11/20", "20.11.2026", "20.11." */
static bool take_date(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    struct wb_scanner ahead = *in;
    char separator;

    (void)now;
    if (parts->month)
        return false;
    if (wb_scan_field(&ahead, 4, 4, &parts->year)) {
        separator = *ahead.at;
        if ((separator != '-' && separator != '/') || !wb_scan_char(&ahead, separator) ||
            !wb_scan_field(&ahead, 1, 2, &parts->month) || !wb_scan_char(&ahead, separator) ||
            !wb_scan_field(&ahead, 1, 2, &parts->day))
            return false;
        *in = ahead;
        return take_joined_clock(in, parts);
    }
    if (!wb_scan_field(in, 1, 2, &parts->day) || !wb_scan_char(in, '.') || !wb_scan_field(in, 1, 2, &parts->month) ||
        !wb_scan_char(in, '.'))
        return false;
    return !wb_scan_is_digit(*in->at) || wb_scan_field(in, 4, 4, &parts->year);
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

/* "20 Nov", "20/Nov/2026", "November 20th"; a separate year is a part of its own. */
static bool take_month(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    bool first = wb_scan_is_digit(*in->at);
    char separator;

    (void)now;
    if (parts->month || (first && !take_day(in, &parts->day)))
        return false;
    separator = first ? *in->at : ' ';
    if (first && !wb_scan_blanks(in) && separator != '-' && separator != '/')
        return false;
    if (separator == '-' || separator == '/')
        in->at++;
    parts->month = take_name(in, months, G_N_ELEMENTS(months)) + 1;
    if (parts->month == 0 || (!first && (wb_scan_blanks(in), !take_day(in, &parts->day))))
        return false;
    if (separator != '-' && separator != '/')
        return true;
    return wb_scan_char(in, separator) && wb_scan_field(in, 4, 4, &parts->year) && take_joined_clock(in, parts);
}

static bool take_year(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    (void)now;
    return parts->month && !parts->year && wb_scan_field(in, 4, 4, &parts->year) && parts->year > 0;
}

/* The first word of "this morning"; the second one is a time of day. */
static bool take_this(struct wb_scanner *in)
{
    struct wb_scanner ahead;

    if (!wb_scan_word(in, "this"))
        return false;
    ahead = *in;
    return wb_scan_blanks(&ahead) && (wb_scan_word(&ahead, "morning") || wb_scan_word(&ahead, "afternoon") ||
                                      wb_scan_word(&ahead, "evening"));
}

static bool take_near_day(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    bool yesterday = wb_scan_word(in, "yesterday");
    struct wb_civil day;

    if (parts->month || (!yesterday && !wb_scan_word(in, "today") && !take_this(in)))
        return false;
    day = wb_day_before(now, yesterday);
    parts->year = day.year;
    parts->month = day.month;
    parts->day = day.day;
    return true;
}

static bool take_weekday(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    (void)now;
    if (parts->weekday >= 0)
        return false;
    if (wb_scan_word(in, "last"))
        wb_scan_blanks(in);
    parts->weekday = take_name(in, weekdays, G_N_ELEMENTS(weekdays));
    return parts->weekday >= 0;
}

/* "+0100", "UTC", or the name that date(1) prints for local time. */
static bool take_zone(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    size_t length = 0;

    (void)now;
    if (!parts->has_clock || has_zone(parts))
        return false;
    parts->has_offset = true;
    if (wb_scan_word(in, "UTC") || wb_scan_word(in, "GMT") || wb_scan_zone(in, &parts->offset))
        return abs(parts->offset) <= ZONE_MAX;
    parts->has_offset = false;
    while (wb_scan_is_letter(in->at[length]))
        length++;
    if (length < 3 || length >= sizeof(parts->zone))
        return false;
    memcpy(parts->zone, in->at, length);
    in->at += length;
    return true;
}

static bool take_part(struct wb_scanner *in, struct parts *parts, int64_t now)
{
    static bool (*const takers[])(struct wb_scanner *in, struct parts *parts, int64_t now) = {
        take_date, take_month, take_clock, take_near_day, take_weekday, take_year, take_zone,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(takers); i++) {
        struct wb_scanner ahead = *in;
        struct parts more = *parts;

        if (!takers[i](&ahead, &more, now) || !wb_scan_gap(&ahead))
            continue;
        *in = ahead;
        *parts = more;
        return true;
    }
    return false;
}

/* ---- parts that are missing ------------------------------------------------------------------- */

static bool is_named(int64_t seconds, const char *zone, int hour)
{
    time_t time = seconds;
    struct tm tm;

    return localtime_r(&time, &tm) && tm.tm_hour == hour && g_ascii_strcasecmp(tm.tm_zone, zone) == 0;
}

/* That date at the given time of day, or at its beginning. */
static int set(struct wb_time *ret, const struct parts *parts, const struct wb_civil *date)
{
    struct wb_civil civil = *date;
    int64_t local;

    civil.hour = parts->clock.hour;
    civil.minute = parts->clock.minute;
    civil.second = parts->clock.second;
    if (!wb_civil_valid(&civil))
        return WB_NOT_TIME;
    if (parts->has_offset)
        return wb_time_set(ret, wb_civil_utc(&civil) - parts->offset, parts->nanoseconds, false);
    local = wb_civil_local(&civil);
    /* When the clocks are set back, one hour occurs twice; the name of the zone selects one of them. */
    if (*parts->zone && !is_named(local, parts->zone, civil.hour)) {
        local += 3600;
        if (!is_named(local, parts->zone, civil.hour))
            return WB_NOT_TIME;
    }
    return wb_time_set(ret, local, parts->nanoseconds, false);
}

static int weekday_of(const struct wb_civil *date)
{
    struct wb_civil day = {.year = date->year, .month = date->month, .day = date->day};
    int64_t days = wb_civil_utc(&day) / DAY; /* 1970-01-01 was a Thursday */

    return (int)((days + 4) % 7);
}

/* The most recent such date that has begun. */
static int set_without_year(struct wb_time *ret, const struct parts *parts, int64_t now, struct wb_civil *date)
{
    int last = date->year;

    date->month = parts->month;
    date->day = parts->day;
    for (int years = 0; years <= LEAP_YEARS; years++) {
        date->year = last - years;
        if (set(ret, parts, date) == 0 && ret->instant <= now)
            return 0;
    }
    return WB_NOT_TIME;
}

static int complete(const struct parts *parts, int64_t now, struct wb_time *ret)
{
    struct wb_civil date = wb_day_before(now, 0);
    int r;

    if (parts->has_offset)
        wb_civil_at_offset(now / WB_WHEN_SECOND, parts->offset, &date);
    if (parts->year) {
        date.year = parts->year;
        date.month = parts->month;
        date.day = parts->day;
        r = set(ret, parts, &date);
    } else if (parts->month) {
        r = set_without_year(ret, parts, now, &date);
    } else if (parts->weekday >= 0) {
        /* The most recent one before today. */
        int days = (weekday_of(&date) - parts->weekday + 6) % 7 + 1;

        wb_civil_at_offset(wb_civil_utc(&date) - (int64_t)days * DAY, 0, &date);
        r = set(ret, parts, &date);
    } else {
        r = set(ret, parts, &date);
    }
    return r == 0 && parts->weekday >= 0 && weekday_of(&date) != parts->weekday ? WB_NOT_TIME : r;
}

static int parse_parts(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct parts parts = {.weekday = -1};

    while (!wb_scan_end(&in)) {
        if ((wb_scan_word(&in, "at") || wb_scan_word(&in, "on")) && !wb_scan_blanks(&in))
            return WB_NOT_TIME;
        if (!take_part(&in, &parts, now))
            return WB_NOT_TIME;
    }
    if (!parts.month && !parts.has_clock && parts.weekday < 0)
        return WB_NOT_TIME;
    return complete(&parts, now, ret);
}

/* ---- in names -------------------------------------------------------------------------------- */

/* "2pm", "2:30 pm": nothing else that a day of its own may precede. */
static int parse_half(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct parts parts = {.weekday = -1};
    struct wb_scanner ahead = in;

    if (!wb_scan_clock(&ahead, 1, &parts.clock, &parts.nanoseconds)) {
        ahead = in;
        if (!wb_scan_field(&ahead, 1, 2, &parts.clock.hour))
            return WB_NOT_TIME;
    }
    if (!take_half(&ahead, &parts.clock.hour) || !wb_scan_end(&ahead))
        return WB_NOT_TIME;
    return complete(&parts, now, ret);
}

int wb_time_parse_name(const char *text, int64_t now, struct wb_time *ret)
{
    struct wb_scanner in = {.at = text};
    bool near = wb_scan_word(&in, "yesterday") || wb_scan_word(&in, "today");

    /* As long as the other forms may be (wb_scan_begin): a time in a name is one for the tools, too. */
    if (strnlen(text, WB_SCAN_MAX) == WB_SCAN_MAX)
        return WB_NOT_TIME;
    if (wb_time_parse(text, now, ret) == 0)
        return 0;
    if (near)
        return *in.at == ' ' && wb_scan_is_digit(in.at[1]) ? wb_time_parse_words(text, now, ret) : WB_NOT_TIME;
    if (!wb_scan_is_digit(*text) || strchr(text, '.') || strchr(text, ','))
        return WB_NOT_TIME;
    in = (struct wb_scanner){.at = text};
    return time_parse_age(in, now, ret) == 0 ? 0 : parse_half(in, now, ret);
}

/* ---- entry point ----------------------------------------------------------------------------- */

int wb_time_parse_free(const char *text, int64_t now, struct wb_time *ret)
{
    char copy[WB_SCAN_MAX];
    struct wb_scanner in;

    if (!wb_scan_begin(&in, text, copy))
        return WB_NOT_TIME;
    return time_parse_age(in, now, ret) == 0 || parse_parts(in, now, ret) == 0 ? 0 : WB_NOT_TIME;
}
