/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/when_scan.h"

#include <string.h>

bool wb_scan_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool wb_scan_is_letter(char c)
{
    c = to_lower(c);
    return c >= 'a' && c <= 'z';
}

bool wb_scan_end(const struct wb_scanner *in)
{
    return *in->at == '\0';
}

bool wb_scan_char(struct wb_scanner *in, char c)
{
    if (*in->at != c && !(in->words && c != '\0' && to_lower(*in->at) == to_lower(c)))
        return false;
    in->at++;
    return true;
}

bool wb_scan_word(struct wb_scanner *in, const char *word)
{
    struct wb_scanner ahead = *in;

    for (; *word; word++) {
        if (!wb_scan_char(&ahead, *word))
            return false;
    }
    if (wb_scan_is_letter(*ahead.at))
        return false;
    *in = ahead;
    return true;
}

bool wb_scan_blanks(struct wb_scanner *in)
{
    const char *from = in->at;

    while (*in->at == ' ' || *in->at == '\t')
        in->at++;
    return in->at > from;
}

bool wb_scan_gap(struct wb_scanner *in)
{
    const char *from = in->at;

    while (wb_scan_blanks(in) || wb_scan_char(in, ','))
        ;
    return in->at > from || wb_scan_end(in);
}

bool wb_scan_digits(struct wb_scanner *in, int min, int max, int64_t *ret)
{
    int64_t value = 0;
    int count = 0;

    while (wb_scan_is_digit(in->at[count]) && count < max)
        value = value * 10 + (in->at[count++] - '0');
    if (count < min || wb_scan_is_digit(in->at[count]))
        return false;
    in->at += count;
    *ret = value;
    return true;
}

bool wb_scan_field(struct wb_scanner *in, int min, int max, int *ret)
{
    int64_t value;

    if (!wb_scan_digits(in, min, max, &value))
        return false;
    *ret = (int)value;
    return true;
}

bool wb_scan_fraction(struct wb_scanner *in, int64_t *nanoseconds)
{
    int count = 0;

    *nanoseconds = 0;
    if (*in->at != '.')
        return true;
    in->at++;
    for (; count < 9 && wb_scan_is_digit(*in->at); count++)
        *nanoseconds = *nanoseconds * 10 + (*in->at++ - '0');
    if (count == 0 || wb_scan_is_digit(*in->at))
        return false;
    for (; count < 9; count++)
        *nanoseconds *= 10;
    return true;
}

int wb_time_set(struct wb_time *ret, int64_t seconds, int64_t nanoseconds, bool relative)
{
    int64_t when;

    if (__builtin_mul_overflow(seconds, WB_WHEN_SECOND, &when) ||
        __builtin_add_overflow(when, nanoseconds, &when) || when < 0 || when >= WB_WHEN_PRESENT)
        return WB_NOT_TIME;
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .relative = relative, .instant = when};
    return 0;
}

static int time_set_local(struct wb_time *ret, const struct wb_civil *civil, int64_t nanoseconds)
{
    if (!wb_civil_valid(civil))
        return WB_NOT_TIME;
    return wb_time_set(ret, wb_civil_local(civil), nanoseconds, false);
}

bool wb_scan_clock(struct wb_scanner *in, int min, struct wb_civil *civil, int64_t *nanoseconds)
{
    *nanoseconds = 0;
    civil->second = 0;
    if (!wb_scan_field(in, min, 2, &civil->hour) || !wb_scan_char(in, ':') ||
        !wb_scan_field(in, 2, 2, &civil->minute))
        return false;
    if (!wb_scan_char(in, ':'))
        return true;
    return wb_scan_field(in, 2, 2, &civil->second) && wb_scan_fraction(in, nanoseconds);
}

bool wb_scan_zone(struct wb_scanner *in, int *ret)
{
    bool behind = *in->at == '-';
    int hours, minutes = 0;

    if (wb_scan_char(in, 'Z')) {
        *ret = 0;
        return true;
    }
    if (!wb_scan_char(in, '+') && !wb_scan_char(in, '-'))
        return false;
    if (wb_scan_is_digit(in->at[0]) && wb_scan_is_digit(in->at[1]) && wb_scan_is_digit(in->at[2])) {
        if (!wb_scan_field(in, 4, 4, &hours))
            return false;
        minutes = hours % 100;
        hours /= 100;
    } else if (!wb_scan_field(in, 2, 2, &hours) ||
               (wb_scan_char(in, ':') && !wb_scan_field(in, 2, 2, &minutes))) {
        return false;
    }
    if (hours > 23 || minutes > 59)
        return false;
    *ret = (hours * 60 + minutes) * (behind ? -60 : 60);
    return true;
}

bool wb_scan_begin(struct wb_scanner *in, const char *text, char copy[WB_SCAN_MAX])
{
    size_t length;

    while (*text == ' ' || *text == '\t')
        text++;
    if (*text == '@')
        text++;
    length = strlen(text);
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    if (length >= WB_SCAN_MAX)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *in = (struct wb_scanner){.at = copy, .words = true};
    wb_scan_blanks(in);
    return true;
}

struct wb_civil wb_day_before(int64_t now, int days)
{
    struct wb_civil civil;
    int offset;

    wb_civil_at(now / WB_WHEN_SECOND, &civil, &offset);
    /* Calendar days, because not every day has 24 hours. */
    civil.hour = civil.minute = civil.second = 0;
    wb_civil_at_offset(wb_civil_utc(&civil) - (int64_t)days * 86400, 0, &civil);
    return civil;
}

/*
 * One parser of times for paths and command lines. Each form is a function that either consumes the whole rest of the
 * text or refuses it; no text matches two forms, so their order is irrelevant.
 */

/* ---- ~N, ~~N, seconds, ages ----------------------------------------------------------------------- */

static int parse_count(struct wb_scanner in, struct wb_time *ret)
{
    enum wb_time_kind kind;
    int64_t number;

    if (!wb_scan_char(&in, '~'))
        return WB_NOT_TIME;
    kind = wb_scan_char(&in, '~') ? WB_TIME_CHANGE : WB_TIME_VERSION;
    if (*in.at == '0' || !wb_scan_digits(&in, 1, 10, &number) || !wb_scan_end(&in) || number > UINT32_MAX)
        return WB_NOT_TIME;
    *ret = (struct wb_time){.kind = kind, .relative = 1, .number = (uint32_t)number};
    return 0;
}

/* A number of fewer than nine digits without a fraction means a time of day or a date to people, not an instant in the
 * seventies. */
#define EPOCH_DIGITS_MIN 9

static int parse_epoch(struct wb_scanner in, struct wb_time *ret)
{
    const char *begin = in.at;
    int64_t seconds, nanoseconds;

    if (!wb_scan_digits(&in, 1, 10, &seconds) || (in.at - begin < EPOCH_DIGITS_MIN && *in.at != '.') ||
        !wb_scan_fraction(&in, &nanoseconds) || !wb_scan_end(&in))
        return WB_NOT_TIME;
    return wb_time_set(ret, seconds, nanoseconds, false);
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

static bool take_unit(struct wb_scanner *in, const struct unit *unit, bool spelled)
{
    if (!spelled)
        return wb_scan_char(in, unit->letter);
    for (size_t i = 0; i < 4 && unit->names[i]; i++) {
        if (wb_scan_word(in, unit->names[i]))
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

/* "2h30m": at least one number with a unit, each unit once, longer units first. */
static bool take_age(struct wb_scanner *in, int64_t *ret)
{
    size_t next = 0;
    int64_t number;

    *ret = 0;
    if (!wb_scan_is_digit(*in->at))
        return false;
    while (wb_scan_is_digit(*in->at)) {
        if (!wb_scan_digits(in, 1, 10, &number))
            return false;
        while (next < UNITS && !take_unit(in, &units[next], false))
            next++;
        if (next == UNITS || !add_age(ret, number, units[next++].seconds))
            return false;
    }
    return true;
}

/* "5 minutes", "an hour", "1 day 2 hours", each followed by a blank. */
static bool take_spelled_age(struct wb_scanner *in, int64_t *ret)
{
    size_t next = 0;
    int64_t number;

    *ret = 0;
    do {
        if (wb_scan_word(in, "an") || wb_scan_word(in, "a"))
            number = 1;
        else if (!wb_scan_digits(in, 1, 10, &number))
            return false;
        wb_scan_blanks(in);
        while (next < UNITS && !take_unit(in, &units[next], true))
            next++;
        if (next == UNITS || !add_age(ret, number, units[next++].seconds) || !wb_scan_blanks(in))
            return false;
    } while (wb_scan_is_digit(*in->at));
    return true;
}

static int set_age(struct wb_time *ret, int64_t now, int64_t age)
{
    int64_t distance;

    if (__builtin_mul_overflow(age, WB_WHEN_SECOND, &distance) || distance > now)
        return WB_NOT_TIME;
    return wb_time_set(ret, 0, now - distance, true);
}

static int parse_age(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    int64_t age;

    if (!take_age(&in, &age) || !wb_scan_end(&in))
        return WB_NOT_TIME;
    return set_age(ret, now, age);
}

static int parse_ago(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct wb_scanner spelled = in;
    int64_t age;

    if (take_spelled_age(&spelled, &age))
        in = spelled;
    else if (!take_age(&in, &age) || !wb_scan_blanks(&in))
        return WB_NOT_TIME;
    if (!wb_scan_word(&in, "ago") || !wb_scan_end(&in))
        return WB_NOT_TIME;
    return set_age(ret, now, age);
}

/* ---- dates and times of day ------------------------------------------------------------------ */

static int parse_iso(struct wb_scanner in, struct wb_time *ret)
{
    struct wb_civil civil = {0};
    int64_t nanoseconds;
    int offset;

    if (!wb_scan_field(&in, 4, 4, &civil.year) || !wb_scan_char(&in, '-') ||
        !wb_scan_field(&in, 2, 2, &civil.month) || !wb_scan_char(&in, '-') ||
        !wb_scan_field(&in, 2, 2, &civil.day))
        return WB_NOT_TIME;
    if (wb_scan_end(&in))
        return time_set_local(ret, &civil, 0);

    if ((!wb_scan_char(&in, 'T') && !wb_scan_char(&in, ' ')) || !wb_scan_clock(&in, 2, &civil, &nanoseconds))
        return WB_NOT_TIME;
    if (wb_scan_end(&in))
        return time_set_local(ret, &civil, nanoseconds);

    /* wb_when_print prints a blank before the zone. */
    wb_scan_char(&in, ' ');
    if (!wb_scan_zone(&in, &offset) || !wb_scan_end(&in) || !wb_civil_valid(&civil))
        return WB_NOT_TIME;
    return wb_time_set(ret, wb_civil_utc(&civil) - offset, nanoseconds, false);
}

/*
 * "GMT-2026.11.21-14.03.00", with its own '@' or after ours: the form in which SMB clients request a previous version
 * ([MS-SMB2] 2.2.32.2, SRV_SNAPSHOT_ARRAY).
 */
static int parse_gmt(struct wb_scanner in, struct wb_time *ret)
{
    struct wb_civil civil = {0};
    int r;

    wb_scan_char(&in, '@');
    if (!wb_scan_word(&in, "GMT") || !wb_scan_char(&in, '-') || !wb_scan_field(&in, 4, 4, &civil.year) ||
        !wb_scan_char(&in, '.') || !wb_scan_field(&in, 2, 2, &civil.month) || !wb_scan_char(&in, '.') ||
        !wb_scan_field(&in, 2, 2, &civil.day) || !wb_scan_char(&in, '-') ||
        !wb_scan_field(&in, 2, 2, &civil.hour) || !wb_scan_char(&in, '.') ||
        !wb_scan_field(&in, 2, 2, &civil.minute) || !wb_scan_char(&in, '.') ||
        !wb_scan_field(&in, 2, 2, &civil.second) || !wb_scan_end(&in) || !wb_civil_valid(&civil))
        return WB_NOT_TIME;
    r = wb_time_set(ret, wb_civil_utc(&civil), 0, false);
    if (r == 0)
        ret->truncated = 1;
    return r;
}

static int parse_clock(struct wb_scanner in, int64_t now, int days, struct wb_time *ret)
{
    struct wb_civil civil = wb_day_before(now, days);
    int64_t nanoseconds;

    if (!wb_scan_clock(&in, 1, &civil, &nanoseconds) || !wb_scan_end(&in))
        return WB_NOT_TIME;
    return time_set_local(ret, &civil, nanoseconds);
}

static int parse_day(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct wb_civil civil;
    int days = 0;

    if (wb_scan_word(&in, "yesterday"))
        days = 1;
    else if (!wb_scan_word(&in, "today"))
        return WB_NOT_TIME;
    if (wb_scan_end(&in)) {
        civil = wb_day_before(now, days);
        return time_set_local(ret, &civil, 0);
    }
    if (!in.words || !wb_scan_blanks(&in))
        return WB_NOT_TIME;
    return parse_clock(in, now, days, ret);
}

/* ---- entry points ---------------------------------------------------------------------------- */

static int parse(struct wb_scanner in, int64_t now, struct wb_time *ret)
{
    struct wb_scanner word = in;

    if (wb_scan_word(&word, "now") && wb_scan_end(&word))
        return wb_time_set(ret, 0, now, true);
    if (parse_day(in, now, ret) == 0 || parse_count(in, ret) == 0 || parse_epoch(in, ret) == 0 ||
        parse_age(in, now, ret) == 0 || parse_clock(in, now, 0, ret) == 0 || parse_iso(in, ret) == 0 ||
        parse_gmt(in, ret) == 0)
        return 0;
    return WB_NOT_TIME;
}

int wb_time_parse(const char *text, int64_t now, struct wb_time *ret)
{
    return parse((struct wb_scanner){.at = text}, now, ret);
}

int wb_time_parse_words(const char *text, int64_t now, struct wb_time *ret)
{
    char copy[WB_SCAN_MAX];
    struct wb_scanner in;

    if (!wb_scan_begin(&in, text, copy))
        return WB_NOT_TIME;
    if (parse(in, now, ret) == 0 || parse_ago(in, now, ret) == 0)
        return 0;
    return WB_NOT_TIME;
}
