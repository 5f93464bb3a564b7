/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/civil.h"
#include "wayback/error.h"
#include "wayback/when.h"

#include <stdbool.h>
#include <string.h>

/*
 * One parser of times for paths and command lines. Digits, letters and blanks are those of ASCII,
 * whatever the locale. Each form is a function that either takes the whole rest of the text or
 * refuses; the forms exclude each other, so their order decides nothing.
 */

struct scanner {
    const char *at;
    bool words; /* as people write on a command line: case does not count */
};

/* ---- small pieces ---------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_letter(char c)
{
    c = to_lower(c);
    return c >= 'a' && c <= 'z';
}

static bool at_end(const struct scanner *in)
{
    return *in->at == '\0';
}

static bool take_char(struct scanner *in, char c)
{
    if (*in->at != c && !(in->words && c != '\0' && to_lower(*in->at) == to_lower(c)))
        return false;
    in->at++;
    return true;
}

/* `word`, not followed by another letter. */
static bool take_word(struct scanner *in, const char *word)
{
    struct scanner ahead = *in;

    for (; *word; word++) {
        if (!take_char(&ahead, *word))
            return false;
    }
    if (is_letter(*ahead.at))
        return false;
    *in = ahead;
    return true;
}

static bool take_blanks(struct scanner *in)
{
    const char *from = in->at;

    while (*in->at == ' ' || *in->at == '\t')
        in->at++;
    return in->at > from;
}

/* `least` to `most` (<= 10) digits. */
static bool take_digits(struct scanner *in, int least, int most, int64_t *ret)
{
    int64_t value = 0;
    int count = 0;

    while (is_digit(in->at[count]) && count < most)
        value = value * 10 + (in->at[count++] - '0');
    if (count < least || is_digit(in->at[count]))
        return false;
    in->at += count;
    *ret = value;
    return true;
}

static bool take_field(struct scanner *in, int least, int most, int *ret)
{
    int64_t value;

    if (!take_digits(in, least, most, &value))
        return false;
    *ret = (int)value;
    return true;
}

/* Up to nine decimals after a point that may be missing. */
static bool take_fraction(struct scanner *in, int64_t *nanoseconds)
{
    int count = 0;

    *nanoseconds = 0;
    if (*in->at != '.')
        return true;
    in->at++;
    for (; count < 9 && is_digit(*in->at); count++)
        *nanoseconds = *nanoseconds * 10 + (*in->at++ - '0');
    if (count == 0 || is_digit(*in->at))
        return false;
    for (; count < 9; count++)
        *nanoseconds *= 10;
    return true;
}

/* Nothing before the epoch, and nothing that is as late as "the present" itself. */
static int set_instant(struct wb_time *ret, int64_t seconds, int64_t nanoseconds, bool relative)
{
    int64_t when;

    if (__builtin_mul_overflow(seconds, WB_WHEN_SECOND, &when) ||
        __builtin_add_overflow(when, nanoseconds, &when) || when < 0 || when >= WB_WHEN_PRESENT)
        return WB_NOT_TIME;
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .relative = relative, .instant = when};
    return 0;
}

/* ---- ~N, seconds, ages ----------------------------------------------------------------------- */

static int parse_change(struct scanner in, struct wb_time *ret)
{
    int64_t change;

    if (!take_char(&in, '~') || *in.at == '0' || !take_digits(&in, 1, 10, &change) || !at_end(&in) ||
        change > UINT32_MAX)
        return WB_NOT_TIME;
    *ret = (struct wb_time){.kind = WB_TIME_CHANGE, .relative = 1, .change = (uint32_t)change};
    return 0;
}

static int parse_epoch(struct scanner in, struct wb_time *ret)
{
    int64_t seconds, nanoseconds;

    if (!take_digits(&in, 1, 10, &seconds) || !take_fraction(&in, &nanoseconds) || !at_end(&in))
        return WB_NOT_TIME;
    return set_instant(ret, seconds, nanoseconds, false);
}

/* From the longest to the shortest, the order in which an age names them. */
static const struct unit {
    char letter;
    const char *names[4];
    int64_t seconds;
} units[] = {
    {'w', {"weeks", "week"}, 604800},
    {'d', {"days", "day"}, 86400},
    {'h', {"hours", "hour"}, 3600},
    {'m', {"minutes", "minute", "mins", "min"}, 60},
    {'s', {"seconds", "second", "secs", "sec"}, 1},
};
#define UNITS (sizeof(units) / sizeof(units[0]))

static bool take_unit(struct scanner *in, const struct unit *unit, bool spelled)
{
    if (!spelled)
        return take_char(in, unit->letter);
    for (size_t i = 0; i < 4 && unit->names[i]; i++) {
        if (take_word(in, unit->names[i]))
            return true;
    }
    return false;
}

static bool add_age(int64_t *total, int64_t number, int64_t unit)
{
    int64_t seconds;

    return !__builtin_mul_overflow(number, unit, &seconds) &&
           !__builtin_add_overflow(*total, seconds, total);
}

/* "2h30m": at least one number and unit, each unit once, the longer first. */
static bool take_age(struct scanner *in, int64_t *ret)
{
    size_t next = 0;
    int64_t number;

    *ret = 0;
    if (!is_digit(*in->at))
        return false;
    while (is_digit(*in->at)) {
        if (!take_digits(in, 1, 10, &number))
            return false;
        while (next < UNITS && !take_unit(in, &units[next], false))
            next++;
        if (next == UNITS || !add_age(ret, number, units[next++].seconds))
            return false;
    }
    return true;
}

/* "5 minutes", "an hour", "1 day 2 hours", each followed by a blank. */
static bool take_spelled_age(struct scanner *in, int64_t *ret)
{
    size_t next = 0;
    int64_t number;

    *ret = 0;
    do {
        if (take_word(in, "an") || take_word(in, "a"))
            number = 1;
        else if (!take_digits(in, 1, 10, &number))
            return false;
        take_blanks(in);
        while (next < UNITS && !take_unit(in, &units[next], true))
            next++;
        if (next == UNITS || !add_age(ret, number, units[next++].seconds) || !take_blanks(in))
            return false;
    } while (is_digit(*in->at));
    return true;
}

static int set_age(struct wb_time *ret, int64_t now, int64_t age)
{
    int64_t distance;

    if (__builtin_mul_overflow(age, WB_WHEN_SECOND, &distance) || distance > now)
        return WB_NOT_TIME;
    return set_instant(ret, 0, now - distance, true);
}

static int parse_age(struct scanner in, int64_t now, struct wb_time *ret)
{
    int64_t age;

    if (!take_age(&in, &age) || !at_end(&in))
        return WB_NOT_TIME;
    return set_age(ret, now, age);
}

static int parse_ago(struct scanner in, int64_t now, struct wb_time *ret)
{
    struct scanner spelled = in;
    int64_t age;

    if (take_spelled_age(&spelled, &age))
        in = spelled;
    else if (!take_age(&in, &age) || !take_blanks(&in))
        return WB_NOT_TIME;
    if (!take_word(&in, "ago") || !at_end(&in))
        return WB_NOT_TIME;
    return set_age(ret, now, age);
}

/* ---- dates and times of day ------------------------------------------------------------------ */

static int set_local(struct wb_time *ret, const struct wb_civil *civil, int64_t nanoseconds)
{
    if (!wb_civil_valid(civil))
        return WB_NOT_TIME;
    return set_instant(ret, wb_civil_local(civil), nanoseconds, false);
}

/* "14:03", "14:03:07.5"; of the hour's digits `least` at least. */
static bool take_clock(struct scanner *in, int least, struct wb_civil *civil, int64_t *nanoseconds)
{
    *nanoseconds = 0;
    civil->second = 0;
    if (!take_field(in, least, 2, &civil->hour) || !take_char(in, ':') ||
        !take_field(in, 2, 2, &civil->minute))
        return false;
    if (!take_char(in, ':'))
        return true;
    return take_field(in, 2, 2, &civil->second) && take_fraction(in, nanoseconds);
}

/* Z, +hh:mm, +hhmm, +hh: *ret is seconds ahead of UTC. False also where there is none. */
static bool take_zone(struct scanner *in, int *ret)
{
    bool behind = *in->at == '-';
    int hours, minutes = 0;

    if (take_char(in, 'Z')) {
        *ret = 0;
        return true;
    }
    if (!take_char(in, '+') && !take_char(in, '-'))
        return false;
    if (is_digit(in->at[0]) && is_digit(in->at[1]) && is_digit(in->at[2])) {
        if (!take_field(in, 4, 4, &hours))
            return false;
        minutes = hours % 100;
        hours /= 100;
    } else if (!take_field(in, 2, 2, &hours) ||
               (take_char(in, ':') && !take_field(in, 2, 2, &minutes))) {
        return false;
    }
    if (hours > 23 || minutes > 59)
        return false;
    *ret = (hours * 60 + minutes) * (behind ? -60 : 60);
    return true;
}

static int parse_iso(struct scanner in, struct wb_time *ret)
{
    struct wb_civil civil = {0};
    int64_t nanoseconds;
    int offset;

    if (!take_field(&in, 4, 4, &civil.year) || !take_char(&in, '-') ||
        !take_field(&in, 2, 2, &civil.month) || !take_char(&in, '-') ||
        !take_field(&in, 2, 2, &civil.day))
        return WB_NOT_TIME;
    if (at_end(&in))
        return set_local(ret, &civil, 0);

    if ((!take_char(&in, 'T') && !take_char(&in, ' ')) || !take_clock(&in, 2, &civil, &nanoseconds))
        return WB_NOT_TIME;
    if (at_end(&in))
        return set_local(ret, &civil, nanoseconds);

    /* wb_when_print has a blank before the zone. */
    take_char(&in, ' ');
    if (!take_zone(&in, &offset) || !at_end(&in) || !wb_civil_valid(&civil))
        return WB_NOT_TIME;
    return set_instant(ret, wb_civil_utc(&civil) - offset, nanoseconds, false);
}

/*
 * "GMT-2026.11.21-14.03.00", with its '@' or behind ours: a previous version as clients of SMB ask for
 * it ([MS-SMB2] 2.2.32.2, SRV_SNAPSHOT_ARRAY).
 */
static int parse_gmt(struct scanner in, struct wb_time *ret)
{
    struct wb_civil civil = {0};
    int r;

    take_char(&in, '@');
    if (!take_word(&in, "GMT") || !take_char(&in, '-') || !take_field(&in, 4, 4, &civil.year) ||
        !take_char(&in, '.') || !take_field(&in, 2, 2, &civil.month) || !take_char(&in, '.') ||
        !take_field(&in, 2, 2, &civil.day) || !take_char(&in, '-') ||
        !take_field(&in, 2, 2, &civil.hour) || !take_char(&in, '.') ||
        !take_field(&in, 2, 2, &civil.minute) || !take_char(&in, '.') ||
        !take_field(&in, 2, 2, &civil.second) || !at_end(&in) || !wb_civil_valid(&civil))
        return WB_NOT_TIME;
    r = set_instant(ret, wb_civil_utc(&civil), 0, false);
    if (r == 0)
        ret->truncated = 1;
    return r;
}

/* The date `days` before today, at 00:00. */
static struct wb_civil day_before(int64_t now, int days)
{
    struct wb_civil civil;
    int offset;

    wb_civil_at(now / WB_WHEN_SECOND, &civil, &offset);
    /* On the calendar, because not every day has 24 hours. */
    civil.hour = civil.minute = civil.second = 0;
    wb_civil_at_offset(wb_civil_utc(&civil) - (int64_t)days * 86400, 0, &civil);
    return civil;
}

static int parse_clock(struct scanner in, int64_t now, int days, struct wb_time *ret)
{
    struct wb_civil civil = day_before(now, days);
    int64_t nanoseconds;

    if (!take_clock(&in, 1, &civil, &nanoseconds) || !at_end(&in))
        return WB_NOT_TIME;
    return set_local(ret, &civil, nanoseconds);
}

static int parse_day(struct scanner in, int64_t now, struct wb_time *ret)
{
    struct wb_civil civil;
    int days = 0;

    if (take_word(&in, "yesterday"))
        days = 1;
    else if (!take_word(&in, "today"))
        return WB_NOT_TIME;
    if (at_end(&in)) {
        civil = day_before(now, days);
        return set_local(ret, &civil, 0);
    }
    if (!in.words || !take_blanks(&in))
        return WB_NOT_TIME;
    return parse_clock(in, now, days, ret);
}

/* ---- the two ways in ------------------------------------------------------------------------- */

static int parse(struct scanner in, int64_t now, struct wb_time *ret)
{
    struct scanner word = in;

    if (take_word(&word, "now") && at_end(&word))
        return set_instant(ret, 0, now, true);
    if (parse_day(in, now, ret) == 0 || parse_change(in, ret) == 0 || parse_epoch(in, ret) == 0 ||
        parse_age(in, now, ret) == 0 || parse_clock(in, now, 0, ret) == 0 || parse_iso(in, ret) == 0 ||
        parse_gmt(in, ret) == 0)
        return 0;
    return WB_NOT_TIME;
}

int wb_time_parse(const char *text, int64_t now, struct wb_time *ret)
{
    return parse((struct scanner){.at = text}, now, ret);
}

int wb_time_parse_words(const char *text, int64_t now, struct wb_time *ret)
{
    char copy[128];
    struct scanner in = {.at = copy, .words = true};
    size_t length;

    while (*text == ' ' || *text == '\t')
        text++;
    if (*text == '@')
        text++;
    length = strlen(text);
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    if (length >= sizeof(copy))
        return WB_NOT_TIME;
    memcpy(copy, text, length);
    copy[length] = '\0';

    take_blanks(&in);
    if (parse(in, now, ret) == 0 || parse_ago(in, now, ret) == 0)
        return 0;
    return WB_NOT_TIME;
}
