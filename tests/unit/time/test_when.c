/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "random_record.h"
#include "time/quantity.h"
#include "wayback/at_name.h"
#include "wayback/error.h"
#include "wayback/when.h"
#include <check.h>
#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Times as text. All in Europe/Berlin: clocks go forward at 02:00 on 2026-03-29 and back at
 * 03:00 on 2026-10-25.
 */

#define S WB_WHEN_SECOND
/* Friday 2026-11-20 14:03:07.5 +0100 */
#define NOW (INT64_C(1795179787) * S + S / 2)
#define TODAY (INT64_C(1795129200) * S)

static void use_zone(const char *zone)
{
    setenv("TZ", zone, 1);
    tzset();
}

static void in_berlin(void)
{
    use_zone("Europe/Berlin");
    random_record_seed(7);
}

struct good {
    const char *text;
    int64_t instant;
    int relative;
};

/* Forms that may follow an '@' in a path. */
static const struct good times[] = {
    {"now", NOW, 1},
    {"today", TODAY, 0},
    {"yesterday", TODAY - 86400 * S, 0},
    {"100000000", INT64_C(100000000) * S, 0},
    {"1.5", S + S / 2, 0},
    {"1795179787", INT64_C(1795179787) * S, 0},
    {"1795179787.5", NOW, 0},
    {"1795179787.123456789", INT64_C(1795179787) * S + 123456789, 0},
    {"0.000000001", 1, 0},
    {"9223372036.854775806", INT64_MAX - 1, 0},

    {"90s", NOW - 90 * S, 1},
    {"0s", NOW, 1},
    {"5m", NOW - 300 * S, 1},
    {"2h30m", NOW - 9000 * S, 1},
    {"3d", NOW - 3 * 86400 * S, 1},
    {"1w", NOW - 7 * 86400 * S, 1},
    {"1w2d3h4m5s", NOW - (7 * 86400 + 2 * 86400 + 3 * 3600 + 4 * 60 + 5) * S, 1},
    {"1w5s", NOW - (7 * 86400 + 5) * S, 1},

    {"14:03", TODAY + (14 * 3600 + 3 * 60) * S, 0},
    {"9:15", TODAY + (9 * 3600 + 15 * 60) * S, 0},
    {"00:00", TODAY, 0},
    {"23:59:59", TODAY + 86399 * S, 0},
    {"14:03:07", NOW - S / 2, 0},
    {"14:03:07.5", NOW, 0},
    {"14:03:07.000000001", NOW - S / 2 + 1, 0},

    {"2026-11-20", TODAY, 0},
    {"2026-11-20T14:03", NOW - 7 * S - S / 2, 0},
    {"2026-11-20 14:03", NOW - 7 * S - S / 2, 0},
    {"2026-11-20T14:03:07", NOW - S / 2, 0},
    {"2026-11-20 14:03:07.5", NOW, 0},
    {"2026-11-20T14:03:07.5Z", NOW + 3600 * S, 0},
    {"2026-11-20T14:03:07.5+01:00", NOW, 0},
    {"2026-11-20T14:03:07.5+0100", NOW, 0},
    {"2026-11-20T14:03:07.5+01", NOW, 0},
    {"2026-11-20 14:03:07.500000 +0100", NOW, 0},
    {"2026-11-20T08:03:07.5-05:00", NOW, 0},
    {"2026-11-20T18:33:07.5+05:30", NOW, 0},
    {"2026-11-20T14:03Z", NOW - 7 * S - S / 2 + 3600 * S, 0},
    {"GMT-2026.11.20-13.03.07", NOW - S / 2, 0},
    {"@GMT-2026.11.20-13.03.07", NOW - S / 2, 0},
    {"GMT-1970.01.01-00.00.00", 0, 0},
    {"2028-02-29", INT64_C(1835391600) * S, 0},
    {"1970-01-01T00:00Z", 0, 0},
    {"1970-01-01T01:00", 0, 0},

    /* The day the clocks go forward has 23 hours; 02:30 does not exist and counts as 03:30. */
    {"2026-03-29", INT64_C(1774738800) * S, 0},
    {"2026-03-29T01:59:59", INT64_C(1774745999) * S, 0},
    {"2026-03-29T02:30", INT64_C(1774747800) * S, 0},
    {"2026-03-29T03:00", INT64_C(1774746000) * S, 0},
    {"2026-03-29T03:30", INT64_C(1774747800) * S, 0},
    {"2026-03-30", INT64_C(1774821600) * S, 0},
    /* The day they go back has 25; 02:30 exists twice, and the first one is meant. */
    {"2026-10-25", INT64_C(1792879200) * S, 0},
    {"2026-10-25T01:59", INT64_C(1792886340) * S, 0},
    {"2026-10-25T02:30", INT64_C(1792888200) * S, 0},
    {"2026-10-25T02:30+01:00", INT64_C(1792891800) * S, 0},
    {"2026-10-25T03:00", INT64_C(1792893600) * S, 0},
    {"2026-10-26", INT64_C(1792969200) * S, 0},
};

/* Further forms that people write on a command line. */
static const struct good words[] = {
    {"@14:03", TODAY + (14 * 3600 + 3 * 60) * S, 0},
    {"  now ", NOW, 1},
    {" @ NOW", NOW, 1},
    {"Today", TODAY, 0},
    {"YESTERDAY", TODAY - 86400 * S, 0},
    {"yesterday 14:03", TODAY - 86400 * S + (14 * 3600 + 3 * 60) * S, 0},
    {"yesterday\t 14:03:07.5", NOW - 86400 * S, 0},
    {"today 9:15", TODAY + (9 * 3600 + 15 * 60) * S, 0},
    {"5 minutes ago", NOW - 300 * S, 1},
    {"5 Minutes Ago", NOW - 300 * S, 1},
    {"1 minute ago", NOW - 60 * S, 1},
    {"90 secs ago", NOW - 90 * S, 1},
    {"an hour ago", NOW - 3600 * S, 1},
    {"a day ago", NOW - 86400 * S, 1},
    {"2 days ago", NOW - 2 * 86400 * S, 1},
    {"a week ago", NOW - 7 * 86400 * S, 1},
    {"2 hours 30 minutes ago", NOW - 9000 * S, 1},
    {"2h30m ago", NOW - 9000 * S, 1},
    {"5m", NOW - 300 * S, 1},
    {"2026-11-20t14:03:07.5z", NOW + 3600 * S, 0},
};

/* Output of people and of programs; Wednesday is the 18th. */
#define NOON (TODAY + 43200 * S)
static const struct good free_words[] = {
    {"10min", NOW - 600 * S, 1},
    {"10 min", NOW - 600 * S, 1},
    {"1.5h", NOW - 5400 * S, 1},
    {"0.000000001s", NOW - 1, 1},
    {"2 weeks", NOW - 14 * 86400 * S, 1},
    {"an hour and 5 mins ago", NOW - 3900 * S, 1},
    {"1 day, 2 hrs", NOW - 93600 * S, 1},
    {"1.5 hours ago", NOW - 5400 * S, 1},
    {"5 m", NOW - 300 * S, 1},
    {"a month ago", INT64_C(1792497787) * S + S / 2, 1}, /* summer time: 2026-10-20 14:03:07.5 +0200 */
    {"1 year 1 month", INT64_C(1760961787) * S + S / 2, 1},
    {"9 months", INT64_C(1771592587) * S + S / 2, 1},

    {"2pm", TODAY + 14 * 3600 * S, 0},
    {"2 PM", TODAY + 14 * 3600 * S, 0},
    {"12am", TODAY, 0},
    {"12 p.m.", NOON, 0},
    {"2:03 pm", TODAY + (14 * 3600 + 180) * S, 0},
    {"2:03:07.5pm", NOW, 0},
    {"noon", NOON, 0},
    {"midnight", TODAY, 0},
    {"yesterday noon", NOON - 86400 * S, 0},
    {"noon yesterday", NOON - 86400 * S, 0},
    {"14:03 yesterday", NOW - 86400 * S - 7 * S - S / 2, 0},
    {"yesterday at 2pm", TODAY - 10 * 3600 * S, 0},
    {"14:03 today", NOW - 7 * S - S / 2, 0},
    {"this morning", TODAY + 6 * 3600 * S, 0},
    {"This Afternoon", NOON, 0},
    {"morning", TODAY + 6 * 3600 * S, 0},
    {"yesterday evening", TODAY - 6 * 3600 * S, 0},
    {"monday morning", TODAY - 4 * 86400 * S + 6 * 3600 * S, 0},
    {"last thursday evening", TODAY - 6 * 3600 * S, 0},
    {"1h30min", NOW - 5400 * S, 1},
    {"2h30m", NOW - 9000 * S, 1},
    {"1 day 2h30m ago", NOW - (86400 + 9000) * S, 1},
    {"13:03 UTC", NOW - 7 * S - S / 2, 0},
    {"13:03Z", NOW - 7 * S - S / 2, 0},

    {"thursday", TODAY - 86400 * S, 0},
    {"Thu", TODAY - 86400 * S, 0},
    {"on Thu.", TODAY - 86400 * S, 0},
    {"last thursday", TODAY - 86400 * S, 0},
    {"friday", TODAY - 7 * 86400 * S, 0},
    {"Saturday", TODAY - 6 * 86400 * S, 0},
    {"Tues 9:30", TODAY - 3 * 86400 * S + 34200 * S, 0},

    {"Nov 20", TODAY, 0},
    {"20 Nov", TODAY, 0},
    {"20. November", TODAY, 0},
    {"November 20th, 2026", TODAY, 0},
    {"Nov 20, 2026 2:03:07.5 pm", NOW, 0},
    {"Nov 20 14:03", NOW - 7 * S - S / 2, 0},
    {"20-Nov-2026", TODAY, 0},
    {"20/Nov/2026:14:03:07 +0100", NOW - S / 2, 0},
    {"Nov 20 14:04", INT64_C(1763643840) * S, 0}, /* not yet: last year's */
    {"Dec 24", INT64_C(1766530800) * S, 0},
    {"Feb 29", INT64_C(1709161200) * S, 0},
    {"20.11.2026", TODAY, 0},
    {"20.11.", TODAY, 0},
    {"20.11.2026, 14:03:07.5", NOW, 0},
    {"2026/11/20 14:03", NOW - 7 * S - S / 2, 0},
    {"2026-11-20T14", TODAY + 14 * 3600 * S, 0},
    {"2026-11-20, 14:03", NOW - 7 * S - S / 2, 0},
    {"14:03 2026-11-20", NOW - 7 * S - S / 2, 0},

    {"Fri Nov 20 14:03:07 CET 2026", NOW - S / 2, 0},       /* date(1)                  */
    {"Fri Nov 20 02:03:07 PM CET 2026", NOW - S / 2, 0},    /* date(1), en_US           */
    {"Fri Feb  4 05:35:22 CET 1994", INT64_C(760336522) * S, 0},
    {"Fri Nov 20 13:03:07 UTC 2026", NOW - S / 2, 0},
    {"Fri Nov 20 14:03:07 2026 +0100", NOW - S / 2, 0},     /* git log                  */
    {"Fri Nov 20 14:03:07 2026", NOW - S / 2, 0},           /* ctime(3)                 */
    {"Fri, 20 Nov 2026 14:03:07 +0100", NOW - S / 2, 0},    /* mail                     */
    {"Fri, 20 Nov 2026 13:03:07 GMT", NOW - S / 2, 0},      /* HTTP                     */
    {"Nov 20  2026", TODAY, 0},                             /* ls -l                    */
    {"2026-11-20 14:03:07.500000000 +0100", NOW, 0},        /* ls --full-time, stat(1)  */
    {"2026-10-25 02:30 CEST", INT64_C(1792888200) * S, 0},
    {"2026-10-25 02:30 CET", INT64_C(1792891800) * S, 0},
};

static const char *const bad[] = {
    "", " ", "x", "@", "~", "~0", "~00", "~01", "~-1", "~4294967296", "~99999999999", "~1x", "~1 ", "+5",
    "0", "1", "2340", "235959", "20261125", "99999999", "00002340", "-1", "-0", "--5", "1.", ".5", "1.0000000001", "1.2.3", "1,5", "1e9", "0x10", "12345678901",
    "9223372036.854775807", "9223372037", "99999999999999999999999",
    "s", "5x", "5 m", "m5", "5ms", "5m5m", "5m2h", "1s1w", "5m2", "1.5h", "-5m", "99999999999s",
    "9999999999w", "3000w", "5M",
    "14:", ":03", "14:3", "24:00", "14:60", "14:03:60", "14:03:7", "14:03:", "14:03:07.",
    "014:03", "14:03 ", "14:03Z", "14:03x", "14:03:07:01", "14:03:07.1234567891", "1403:00",
    "2026-02-30", "2026-02-29", "2100-02-29", "2026-00-10", "2026-13-01", "2026-01-00", "2026-01-32",
    "2026-04-31", "26-01-01", "2026-1-1", "2026-01", "2026-01-01T", "2026-01-01 ", "2026-01-01T1",
    "2026-01-01T1:00", "2026-01-01T24:00", "2026-01-01T10:00T", "2026-01-01  10:00",
    "2026-01-01T10:00+", "2026-01-01T10:00+1", "2026-01-01T10:00+24", "2026-01-01T10:00+01:60",
    "2026-01-01T10:00+01:0", "2026-01-01T10:00+01000", "2026-01-01T10:00Zx", "2026-01-01T10:00 ",
    "2026-01-01T10:00ZZ", "2026-01-01Z", "2026-01-01t10:00", "2026-01-01T10:00z", "12026-01-01",
    "1969-12-31", "1970-01-01T00:00", "1970-01-01T00:00+00:01", "2263-01-01", "9999-12-31",
    "Now", "now ", " now", "nowx", "todayx", "today ", "today 14:03", "yesterday 14:03",
    "GMT", "GMT-", "@GMT-2026.11.20", "GMT-2026.11.20-13.03", "GMT-2026.11.20-13.03.0",
    "GMT-2026.11.20-13.03.007", "GMT-2026.11.20-13.03.07 ", "GMT-2026.11.31-13.03.07",
    "GMT-2026.11.20-24.03.07", "GMT-2026-11-20-13.03.07", "gmt-2026.11.20-13.03.07",
    "GMT-1969.12.31-23.59.59", "GMT-9999.12.31-23.59.59", "@@GMT-2026.11.20-13.03.07",
    "GMT 2026.11.20-13.03.07", "GMT-26.11.20-13.03.07",
    "5 minutes ago", "tomorrow", "v1.2", "example.com", "2x", "@now",
};

static const char *const bad_words[] = {
    "", "  ", "@@now", "ago", "5 ago", "minutes ago", "5 minutes", "5 minutes agox", "minute", "a ago",
    "5 parsecs ago", "30 minutes 2 hours ago", "5 minutes 5 minutes ago", "yesterday ago",
    "yesterday 25:00", "yesterdays", "yesterday14:03", "now now", "5 minutes ago ago",
    "99999999999 days ago", "3000 weeks ago", "-5 minutes ago", "14:03 yesterday",
    "a very long line that goes on and on and on and on and on and on and on and on and on and on and "
    "on and on and on and on and says nothing at all",
};

static const char *const bad_free[] = {
    "", " ", "5", "x", "ago", "5 ago", "may", "Nov", "Nov 2026", "Nov 31", "31 Nov 2026", "0 Nov", "Nov 20 20",
    "11/12/2026", "1/2", "20.11", "20.11.26", "2026-11", "2026.11.20", "2026-11/20",
    "0pm", "13pm", "14:03 pm", "2 p", "pm", "2pm 3pm", "noon noon", "2pmx", "25:00 yesterday", "24:00",
    "yesterday today", "yesterday Nov 20", "thursday friday", "Mon Nov 20 2026", "Wed, 20 Nov 2026 14:03:07 +0100",
    "Nov 20 +0100", "UTC", "CET", "14:03 XYZ", "14:03 CEST", "14:03 +0100 +0200", "14:03 +2500", "14:03 UTC CET",
    "at", "at ", "on", "at at 2pm", "last", "last week", "last Nov 20", "next friday", "tomorrow",
    "1.5 months", "1.5 years ago", "5 parsecs", "2 hours 1 day", "5 min 5 min", "min", "-5 min", "5min-", "1..5h",
    "9999999999 weeks", "9999999999 years", "3000 weeks", "100 years", "1969-12-31 12:00", "9999-12-31 12:00 UTC",
    "thu rsday", "thursdays", "wednes day", "th", "Fri Nov 20 14:03:07 CEST 2026", "a", "an", "and", "1h and",
    "1h,,2", "this", "this noon", "this friday", "this 14:03", "thismorning", "this morning yesterday",
    "14:03 this evening", "mornings", "1h30", "1h30m20", "5m5m", "30m1h", "1hago", "2026-11-20T", "2026-11-20T1", "2026-11-20X14", "20 Nov 2026:14:03", ",", "14:03,:", "14:03 7",
};

START_TEST(people_are_understood)
{
    const struct good *good = &free_words[_i];
    struct wb_time time;

    ck_assert_msg(wb_time_parse_free(good->text, NOW, &time) == 0, "'%s' refused", good->text);
    ck_assert_int_eq(time.kind, WB_TIME_INSTANT);
    ck_assert_msg(time.instant == good->instant, "'%s': %lld, not %lld", good->text, (long long)time.instant,
                  (long long)good->instant);
    ck_assert_int_eq(time.relative, good->relative);
}
END_TEST

START_TEST(ambiguous_times_are_refused)
{
    struct wb_time time;

    ck_assert_msg(wb_time_parse_free(bad_free[_i], NOW, &time) == WB_NOT_TIME, "'%s' taken for a time: %lld",
                  bad_free[_i], (long long)time.instant);
}
END_TEST

/* After an '@', where no snapshot has that name. */
static const struct good in_names[] = {
    {"10min", NOW - 600 * S, 1},
    {"10 min", NOW - 600 * S, 1},
    {"5 minutes ago", NOW - 300 * S, 1},
    {"2hours", NOW - 7200 * S, 1},
    {"1h30min", NOW - 5400 * S, 1},
    {"1month", INT64_C(1792497787) * S + S / 2, 1},
    {"2pm", TODAY + 14 * 3600 * S, 0},
    {"2:30pm", TODAY + (14 * 3600 + 1800) * S, 0},
    {"12 am", TODAY, 0},
    {"yesterday 14:03", NOW - 86400 * S - 7 * S - S / 2, 0},
    {"today 9:15", TODAY + (9 * 3600 + 15 * 60) * S, 0},
};

/* Names that somebody may want to give a file. */
static const char *const bad_in_names[] = {
    "", "2x", "3x.png", "1.5h", "10min.txt", "10MIN", "10Min", "2PM", "2p.m.", "13pm", "pm", "noon", "morning",
    "this morning", "monday", "sun", "may", "Nov 20", "20 Nov", "20.11.", "20.11.2026", "2026/11/20", "an hour ago",
    "a day", "1 day, 2 hours", "NOW", " now", "@now", "@10min", "10min ", "Yesterday 14:03", "yesterday.txt",
    "yesterday 2pm", "yesterday noon", "today x", "todays 9:15", "example.com", "v1.2", "begin", "first", "2340",
    "1h 30", "2pm CET", "14:03 UTC",
};

START_TEST(names_have_some_of_the_forms)
{
    g_autofree char *longest = g_strdup_printf("76%125sh", ""), *longer = g_strdup_printf("76%*sh", 1000, "");
    struct wb_time time, again;

    for (size_t i = 0; i < G_N_ELEMENTS(times) + G_N_ELEMENTS(in_names); i++) {
        const struct good *good = i < G_N_ELEMENTS(times) ? &times[i] : &in_names[i - G_N_ELEMENTS(times)];

        ck_assert_msg(wb_time_parse_name(good->text, NOW, &time) == 0, "'%s' refused", good->text);
        ck_assert_msg(time.instant == good->instant, "'%s': %lld", good->text, (long long)time.instant);
        ck_assert_int_eq(time.relative, good->relative);
        /* A tool that is given the same text means the same. */
        ck_assert_msg(wb_time_parse_words(good->text, NOW, &again) == 0 ||
                      wb_time_parse_free(good->text, NOW, &again) == 0, "%s", good->text);
        ck_assert_msg(time.instant == again.instant, "%s", good->text);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(bad_in_names); i++)
        ck_assert_msg(wb_time_parse_name(bad_in_names[i], NOW, &time) == WB_NOT_TIME, "'%s' taken for a time: %lld",
                      bad_in_names[i], (long long)time.instant);
    /* They may be as long as for the tools. */
    ck_assert_int_eq(wb_time_parse_name(longest + 1, NOW, &time), 0);
    ck_assert_int_eq(wb_time_parse_free(longest + 1, NOW, &again), 0);
    ck_assert_int_eq(wb_time_parse_name(longest, NOW, &time), WB_NOT_TIME);
    ck_assert_int_eq(wb_time_parse_name(longer, NOW, &time), WB_NOT_TIME);
}
END_TEST

/* ---- durations and sizes --------------------------------------------------------------------- */

START_TEST(durations_are_understood)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = {{"90s", 90}, {"1h30m", 5400}, {"30 days", 2592000}, {"30d", 2592000}, {"1 month", 2592000}, {"1month", 2592000},
                {"12 months", 31536000}, {"1y", 31536000}, {"a year and 2 months", 36720000}, {"1.5 hours", 5400},
                {"1w2d", 777600}, {"30 Days", 2592000}, {"0s", 0}, {"5 Minutes", 300}, {"292 years", INT64_C(9208512000)}};
    static const char *const none[] = {"", " ", "30", "5M", "5 M", "1h5M", "30d ago", "ago", "1m1h", "1s1s", "x", "-1d", "1d ", "~1", "now",
                                       "1795179787", "14:03", "forever", "1.5 months", "293 years", "99999999999s", "9999999999y", "3 o"};
    int64_t span = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        ck_assert_msg(wb_span_parse(good[i].text, &span) == 0, "'%s' refused", good[i].text);
        ck_assert_msg(span == good[i].seconds * S, "'%s': %lld", good[i].text, (long long)span);
    }
    ck_assert_int_eq(wb_span_parse("0.5s", &span), 0);
    ck_assert_int_eq(span, S / 2);
    for (size_t i = 0; i < G_N_ELEMENTS(none); i++)
        ck_assert_msg(wb_span_parse(none[i], &span) == WB_NOT_TIME, "'%s' taken", none[i]);
}
END_TEST

START_TEST(sizes_are_understood)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1", 1}, {"4096", 4096}, {"4096B", 4096}, {"7 b", 7}, {"1K", 1024}, {"1k", 1024}, {"20gib", UINT64_C(20) << 30},
                {"20 GiB", UINT64_C(20) << 30}, {"1.5G", UINT64_C(3) << 29}, {"1.5g", UINT64_C(3) << 29}, {"3MB", 3000000},
                {"3mb", 3000000}, {"1.1K", 1126}, {"0.001KB", 1}, {"7E", UINT64_C(7) << 60}, {"9223372036854775807", INT64_MAX},
                {"7.999999999E", (UINT64_C(1) << 63) - 1152921505}};
    static const char *const none[] = {"", " ", "0", "0.0001K", "-1", "+1", "1.5", "1.5B", ".5G", "1.G", "1.0000000001G", "G", "1X", "1Gi", "1GiBs",
                                       "1 G ", "8E", "9E", "18446744073709551616", "9223372036854775808", "16777216T", "1e9", "5%", "big"};
    uint64_t bytes = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        ck_assert_msg(wb_size_parse(good[i].text, &bytes) == 0, "'%s' refused", good[i].text);
        ck_assert_msg(bytes == good[i].bytes, "'%s': %llu", good[i].text, (unsigned long long)bytes);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(none); i++)
        ck_assert_msg(wb_size_parse(none[i], &bytes) == -EINVAL, "'%s' taken", none[i]);
}
END_TEST

/* Forms that several parsers take mean the same to all of them. */
START_TEST(nothing_means_two_things)
{
    struct wb_time time, again;

    for (size_t i = 0; i < G_N_ELEMENTS(times) + G_N_ELEMENTS(words); i++) {
        const struct good *good = i < G_N_ELEMENTS(times) ? &times[i] : &words[i - G_N_ELEMENTS(times)];

        if (wb_time_parse_free(good->text, NOW, &again) != 0)
            continue;
        ck_assert_int_eq(wb_time_parse_words(good->text, NOW, &time), 0);
        ck_assert_msg(time.instant == again.instant, "%s", good->text);
    }
}
END_TEST

START_TEST(months_end_when_they_end)
{
    struct wb_time time;

    /* 2026-03-31 12:00 +0200 */
    ck_assert_int_eq(wb_time_parse_free("a month ago", INT64_C(1774951200) * S, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1772276400) * S); /* 2026-02-28 12:00 +0100 */
    ck_assert_int_eq(wb_time_parse_free("50 years", INT64_C(1774951200) * S, &time), 0);
    ck_assert_int_eq(wb_time_parse_free("57 years", INT64_C(1774951200) * S, &time), WB_NOT_TIME);
}
END_TEST

/* As date(1), git-log(1) and mail print any moment, in several zones. */
START_TEST(output_of_programs_is_read_back)
{
    static const char *const zones[] = {"Europe/Berlin", "UTC", "America/New_York", "Asia/Kathmandu"};
    static const char *const formats[] = {"%a %b %d %H:%M:%S %Z %Y", "%a %b %d %H:%M:%S %Y %z", "%F %T %z",
                                          "%a, %d %b %Y %H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z", "%A %d %B %Y %r %z"};
    struct wb_time time;

    for (size_t z = 0; z < G_N_ELEMENTS(zones); z++) {
        g_autoptr(GTimeZone) zone = g_time_zone_new_identifier(zones[z]);

        use_zone(zones[z]);
        for (int i = 0; i < 3000; i++) {
            int64_t when = (int64_t)(random_u64() % 3000000000);
            g_autoptr(GDateTime) utc = NULL;
            g_autoptr(GDateTime) moment = NULL;
            g_autofree char *text = NULL;
            size_t format = (size_t)i % G_N_ELEMENTS(formats);

            if (format == 0 && z == 3)
                continue; /* its zone has no name */
            utc = g_date_time_new_from_unix_utc(when);
            moment = g_date_time_to_timezone(utc, zone);
            text = g_date_time_format(moment, formats[format]);
            ck_assert_msg(wb_time_parse_free(text, INT64_C(4000000000) * S, &time) == 0, "'%s' refused", text);
            ck_assert_msg(time.instant == when * S, "%s", text);
        }
    }
}
END_TEST

START_TEST(times_are_understood)
{
    const struct good *good = &times[_i];
    struct wb_time time;

    ck_assert_msg(wb_time_parse(good->text, NOW, &time) == 0, "'%s' refused", good->text);
    ck_assert_int_eq(time.kind, WB_TIME_INSTANT);
    ck_assert_msg(time.instant == good->instant, "'%s': %lld, not %lld", good->text,
                  (long long)time.instant, (long long)good->instant);
    ck_assert_int_eq(time.relative, good->relative);

    /* Everything that works in a path works on a command line. */
    ck_assert_int_eq(wb_time_parse_words(good->text, NOW, &time), 0);
    ck_assert_int_eq(time.instant, good->instant);
}
END_TEST

START_TEST(words_are_understood_on_command_lines)
{
    const struct good *good = &words[_i];
    struct wb_time time;

    ck_assert_msg(wb_time_parse_words(good->text, NOW, &time) == 0, "'%s' refused", good->text);
    ck_assert_msg(time.instant == good->instant, "'%s': %lld, not %lld", good->text,
                  (long long)time.instant, (long long)good->instant);
    ck_assert_int_eq(time.relative, good->relative);
}
END_TEST

START_TEST(invalid_times_are_refused)
{
    struct wb_time time;

    ck_assert_msg(wb_time_parse(bad[_i], NOW, &time) == WB_NOT_TIME, "'%s' taken for a time", bad[_i]);
}
END_TEST

START_TEST(invalid_wording_is_refused)
{
    struct wb_time time;

    ck_assert_msg(wb_time_parse_words(bad_words[_i], NOW, &time) == WB_NOT_TIME, "'%s' taken for a time",
                  bad_words[_i]);
}
END_TEST

START_TEST(changes_are_counted_back)
{
    static const uint32_t counts[] = {1, 2, 10, 65536, UINT32_MAX};
    struct wb_time time;
    char text[16];

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        snprintf(text, sizeof(text), "~%u", counts[i]);
        ck_assert_int_eq(wb_time_parse(text, NOW, &time), 0);
        ck_assert_int_eq(time.kind, WB_TIME_VERSION);
        ck_assert_uint_eq(time.number, counts[i]);
        ck_assert_int_eq(time.relative, 1);
        snprintf(text, sizeof(text), "~~%u", counts[i]);
        ck_assert_int_eq(wb_time_parse(text, NOW, &time), 0);
        ck_assert_int_eq(time.kind, WB_TIME_CHANGE);
        ck_assert_uint_eq(time.number, counts[i]);
    }
}
END_TEST

START_TEST(only_times_of_smb_clients_are_truncated)
{
    struct wb_time time;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        ck_assert_int_eq(wb_time_parse(times[i].text, NOW, &time), 0);
        ck_assert_int_eq(time.truncated, strstr(times[i].text, "GMT-") != NULL);
    }
}
END_TEST

START_TEST(days_are_those_of_the_calendar)
{
    struct wb_time time;

    /* 00:30 on the day after the one with 25 hours. */
    ck_assert_int_eq(wb_time_parse("yesterday", INT64_C(1792971000) * S, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1792879200) * S);
    /* 23:30 on that long day itself. */
    ck_assert_int_eq(wb_time_parse("today", INT64_C(1792967400) * S, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1792879200) * S);
    ck_assert_int_eq(wb_time_parse("23:45", INT64_C(1792967400) * S, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1792968300) * S);
    /* The first of a month. */
    ck_assert_int_eq(wb_time_parse("yesterday", INT64_C(1772323200) * S, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1772233200) * S);

    /* A midnight that the clocks jump over: the day begins at 01:00. */
    use_zone("<-04>4<-03>,M9.1.0/0,M4.1.0/0");
    ck_assert_int_eq(wb_time_parse("2026-09-06", NOW, &time), 0);
    ck_assert_int_eq(time.instant, INT64_C(1788667200) * S);
}
END_TEST

START_TEST(the_answer_does_not_depend_on_earlier_calls)
{
    struct wb_time first, again;

    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(wb_time_parse(i % 2 ? "2026-07-01" : "2026-01-01", NOW, &again), 0);
        ck_assert_int_eq(wb_time_parse("2026-10-25T02:30", NOW, i ? &again : &first), 0);
        ck_assert(i == 0 || again.instant == first.instant);
    }
}
END_TEST

START_TEST(printed_times_are_read_back)
{
    static const char *const zones[] = {"Europe/Berlin", "UTC", "America/St_Johns", "Asia/Kathmandu",
                                        "Pacific/Kiritimati", "Africa/Monrovia"};
    char text[WB_WHEN_TEXT_MAX];
    struct wb_time time;

    for (size_t z = 0; z < sizeof(zones) / sizeof(zones[0]); z++) {
        use_zone(zones[z]);
        for (int i = 0; i < 10000; i++) {
            int64_t when = (int64_t)(random_u64() >> 1) % (INT64_MAX - 1);

            if (i % 2)
                when %= 2000000000 * S;
            ck_assert_int_eq(wb_time_parse(wb_when_print_iso(when, text), NOW, &time), 0);
            ck_assert_msg(time.instant == when, "%s", text);
            ck_assert_int_eq(wb_time_parse(wb_when_print_epoch(when, text), NOW, &time), 0);
            ck_assert_msg(time.instant == when, "%s", text);
            if (z == 5)
                continue; /* local mean time: only the minute is printed */
            ck_assert_int_eq(wb_time_parse(wb_when_print(when, 1, text), NOW, &time), 0);
            ck_assert_msg(time.instant == when - when % 1000, "%s", text);
            ck_assert_int_eq(wb_time_parse(wb_when_print(when, 0, text), NOW, &time), 0);
            ck_assert_msg(time.instant == when - when % S, "%s", text);
        }
    }
}
END_TEST

START_TEST(the_printed_forms)
{
    char text[WB_WHEN_TEXT_MAX];
    int64_t now;

    ck_assert_str_eq(wb_when_print(NOW, 0, text), "2026-11-20 14:03:07 +0100");
    ck_assert_str_eq(wb_when_print(NOW, 1, text), "2026-11-20 14:03:07.500000 +0100");
    ck_assert_str_eq(wb_when_print_iso(NOW, text), "2026-11-20T14:03:07.500000000+01:00");
    ck_assert_str_eq(wb_when_print_epoch(NOW, text), "1795179787.500000000");
    ck_assert_str_eq(wb_when_print_epoch(0, text), "0.000000000");
    ck_assert_str_eq(wb_when_print_epoch(-S / 2, text), "-0.500000000");
    ck_assert_str_eq(wb_when_print_iso(-1, text), "1970-01-01T00:59:59.999999999+01:00");
    use_zone("America/St_Johns");
    ck_assert_str_eq(wb_when_print_iso(NOW, text), "2026-11-20T09:33:07.500000000-03:30");
    /* The extremes are printed, whatever they mean. */
    wb_when_print(INT64_MIN, 1, text);
    wb_when_print_iso(INT64_MIN, text);
    wb_when_print_epoch(INT64_MIN, text);
    ck_assert_str_eq(text, "-9223372036.854775808");
    wb_when_print_iso(INT64_MAX, text);

    now = wb_when_now();
    ck_assert(now > INT64_C(1700000000) * S && now < WB_WHEN_PRESENT);
}
END_TEST

/* ---- NAME@TIME ------------------------------------------------------------------------------- */

START_TEST(a_mark_is_part_of_no_time)
{
    const char *mark = WB_AT_SIGNS;

    for (; *mark; mark++) {
        ck_assert(wb_at_sign_check(*mark));
        for (unsigned i = 0; i < G_N_ELEMENTS(times); i++)
            if (!strstr(times[i].text, "GMT"))
                ck_assert_ptr_null(strchr(times[i].text, *mark));
    }
    for (int c = CHAR_MIN; c <= CHAR_MAX; c++)
        ck_assert_int_eq(wb_at_sign_check((char)c), c > 0 && strchr(WB_AT_SIGNS, c) ? 1 : 0);
}
END_TEST

START_TEST(names_are_split_at_the_last_mark_and_then_before_it)
{
    const char *entry = "@a@b@";
    const char *time = wb_at_split(entry, '@', NULL);

    ck_assert_ptr_eq(time, entry + 5);
    time = wb_at_split(entry, '@', time);
    ck_assert_str_eq(time, "b@");
    time = wb_at_split(entry, '@', time);
    ck_assert_ptr_eq(time, entry + 1);
    ck_assert_ptr_null(wb_at_split(entry, '@', time));
    ck_assert_ptr_null(wb_at_split(entry, '%', NULL));
    ck_assert_ptr_null(wb_at_split("", '@', NULL));
}
END_TEST

START_TEST(joined_names_are_split_again)
{
    g_autofree char *entry = wb_at_join("50%", '%', "2026-11-20T14:03:07+01:00");

    ck_assert_str_eq(entry, "50%%2026-11-20T14:03:07+01:00");
    ck_assert_ptr_eq(wb_at_split(entry, '%', NULL), entry + 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("when");
    TCase *tcase = tcase_create("when");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, in_berlin, NULL);
    tcase_add_loop_test(tcase, times_are_understood, 0, sizeof(times) / sizeof(times[0]));
    tcase_add_loop_test(tcase, words_are_understood_on_command_lines, 0, sizeof(words) / sizeof(words[0]));
    tcase_add_loop_test(tcase, invalid_times_are_refused, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_loop_test(tcase, invalid_wording_is_refused, 0, sizeof(bad_words) / sizeof(bad_words[0]));
    tcase_add_loop_test(tcase, people_are_understood, 0, G_N_ELEMENTS(free_words));
    tcase_add_loop_test(tcase, ambiguous_times_are_refused, 0, G_N_ELEMENTS(bad_free));
    tcase_add_test(tcase, names_have_some_of_the_forms);
    tcase_add_test(tcase, durations_are_understood);
    tcase_add_test(tcase, sizes_are_understood);
    tcase_add_test(tcase, nothing_means_two_things);
    tcase_add_test(tcase, months_end_when_they_end);
    tcase_add_test(tcase, output_of_programs_is_read_back);
    tcase_add_test(tcase, changes_are_counted_back);
    tcase_add_test(tcase, only_times_of_smb_clients_are_truncated);
    tcase_add_test(tcase, days_are_those_of_the_calendar);
    tcase_add_test(tcase, the_answer_does_not_depend_on_earlier_calls);
    tcase_add_test(tcase, printed_times_are_read_back);
    tcase_add_test(tcase, the_printed_forms);
    tcase_add_test(tcase, a_mark_is_part_of_no_time);
    tcase_add_test(tcase, names_are_split_at_the_last_mark_and_then_before_it);
    tcase_add_test(tcase, joined_names_are_split_again);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
