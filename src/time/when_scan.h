/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What the parsers of times are made of. Digits, letters and blanks are those of ASCII, whatever the locale. Where
 * something returns false, the scanner may be anywhere: who tries several forms tries each on a copy.
 */

#include "time/civil.h"
#include "wayback/error.h"
#include "wayback/when.h"

#include <stdbool.h>

struct wb_scanner {
    const char *at;
    bool words; /* as people write on a command line: case does not count */
};

bool wb_scan_is_digit(char c);
bool wb_scan_is_letter(char c);
bool wb_scan_end(const struct wb_scanner *in);
bool wb_scan_char(struct wb_scanner *in, char c);

/* `word`, not followed by another letter; else nothing is taken. */
bool wb_scan_word(struct wb_scanner *in, const char *word);
bool wb_scan_blanks(struct wb_scanner *in);

/* `least` to `most` (<= 10) digits, with no digit behind them. */
bool wb_scan_digits(struct wb_scanner *in, int least, int most, int64_t *ret);
bool wb_scan_field(struct wb_scanner *in, int least, int most, int *ret);

/* Up to nine decimals after a point that may be missing. */
bool wb_scan_fraction(struct wb_scanner *in, int64_t *nanoseconds);

/* "14:03", "14:03:07.5"; of the hour's digits `least` at least. */
bool wb_scan_clock(struct wb_scanner *in, int least, struct wb_civil *civil, int64_t *nanoseconds);

/* Z, +hh:mm, +hhmm, +hh: *ret is seconds ahead of UTC. False also where there is none. */
bool wb_scan_zone(struct wb_scanner *in, int *ret);

/* What is between two parts: blanks, commas, or the end. */
bool wb_scan_gap(struct wb_scanner *in);

/* Without surrounding blanks and a leading '@', for command lines. False: too long for a time. */
#define WB_SCAN_MAX 128
bool wb_scan_begin(struct wb_scanner *in, const char *text, char copy[WB_SCAN_MAX]);

/* 0 or WB_NOT_TIME: nothing before the epoch, and nothing that is as late as "the present" itself. */
int wb_time_set(struct wb_time *ret, int64_t seconds, int64_t nanoseconds, bool relative);
int wb_time_set_local(struct wb_time *ret, const struct wb_civil *civil, int64_t nanoseconds);

/* The local date `days` before that of `now`, at 00:00. */
struct wb_civil wb_day_before(int64_t now, int days);

/* "1.5h", "10 min", "a year and 2 months", with or without "ago". 0 or WB_NOT_TIME. */
int wb_time_parse_age(struct wb_scanner in, int64_t now, struct wb_time *ret);
