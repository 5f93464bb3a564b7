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

int wb_time_set_local(struct wb_time *ret, const struct wb_civil *civil, int64_t nanoseconds)
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
