/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/quantity.h"

#include "time/age.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

#define DAY (86400 * WB_WHEN_SECOND)

static bool has_lone_m(const char *text)
{
    for (const char *m = text; (m = strchr(m, 'M')); m++)
        if (!wb_scan_is_letter(m[1]))
            return true;
    return false;
}

int wb_span_parse(const char *text, int64_t *ret)
{
    struct wb_scanner in = {.at = text, .words = true};
    struct wb_age age;
    int64_t part;

    if (has_lone_m(text) || !wb_age_scan(&in, &age) || !wb_scan_end(&in) ||
        __builtin_mul_overflow(age.months / 12, 365 * DAY, &part) ||
        __builtin_add_overflow(age.nanoseconds, part, &age.nanoseconds) ||
        __builtin_add_overflow(age.nanoseconds, age.months % 12 * 30 * DAY, &age.nanoseconds))
        return WB_NOT_TIME;
    *ret = age.nanoseconds;
    return 0;
}

/* What a unit multiplies by; 0: there is no such unit. */
static uint64_t unit_of(const char *text)
{
    static const char letters[] = "KMGTPE";
    const char *letter = *text ? strchr(letters, g_ascii_toupper(*text)) : NULL;
    uint64_t base = 1024, value = 1;

    if (*text == '\0' || g_ascii_strcasecmp(text, "B") == 0)
        return 1;
    if (!letter)
        return 0;
    if (g_ascii_strcasecmp(text + 1, "B") == 0)
        base = 1000;
    else if (text[1] != '\0' && g_ascii_strcasecmp(text + 1, "iB") != 0)
        return 0;
    for (const char *at = letters; at <= letter; at++)
        value *= base;
    return value;
}

int wb_size_parse(const char *text, uint64_t *ret)
{
    struct wb_scanner in = {.at = text};
    int64_t fraction;
    uint64_t value = 0, unit;

    if (!wb_scan_is_digit(*text))
        return -EINVAL;
    for (; wb_scan_is_digit(*in.at); in.at++)
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*in.at - '0'), &value))
            return -EINVAL;
    if (!wb_scan_fraction(&in, &fraction))
        return -EINVAL;
    wb_scan_blanks(&in);
    unit = unit_of(in.at);
    if (unit == 0 || (unit == 1 && fraction != 0) || __builtin_mul_overflow(value, unit, &value) ||
        __builtin_add_overflow(value, (uint64_t)((unsigned __int128)unit * (uint64_t)fraction / 1000000000), &value) ||
        value == 0 || value > INT64_MAX)
        return -EINVAL;
    *ret = value;
    return 0;
}
