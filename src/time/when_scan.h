/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Building blocks of the parsers of times. Digits, letters and blanks are those of ASCII in every locale. After a
 * function returned false, the position of the scanner is undefined: a caller that tries several forms gives each one a
 * copy.
 */

#include "time/civil.h"
#include "wayback/error.h"
#include "wayback/when.h"

#include <stdbool.h>

struct wb_scanner {
    const char *at;
    bool words; /* text of a command line: case is ignored */
};

bool wb_scan_is_digit(char c);
bool wb_scan_is_letter(char c);
bool wb_scan_end(const struct wb_scanner *in);
bool wb_scan_char(struct wb_scanner *in, char c);

/* Consumes `word` if no other letter follows; otherwise consumes nothing. */
bool wb_scan_word(struct wb_scanner *in, const char *word);
bool wb_scan_blanks(struct wb_scanner *in);

/* `min` to `max` (<= 10) digits, with no digit after them. */
bool wb_scan_digits(struct wb_scanner *in, int min, int max, int64_t *ret);
bool wb_scan_field(struct wb_scanner *in, int min, int max, int *ret);

/* Up to nine decimals after a point; the point may be missing. */
bool wb_scan_fraction(struct wb_scanner *in, int64_t *nanoseconds);

/* "14:03", "14:03:07.5"; the hour has at min `min` digits. */
bool wb_scan_clock(struct wb_scanner *in, int min, struct wb_civil *civil, int64_t *nanoseconds);

/* Z, +hh:mm, +hhmm, +hh: *ret is in seconds ahead of UTC. False also if there is no zone. */
bool wb_scan_zone(struct wb_scanner *in, int *ret);

/* Consumes a separator of two parts: blanks, commas, or the end. */
bool wb_scan_gap(struct wb_scanner *in);

/* Without surrounding blanks and a leading '@', for command lines. False: too long to be a time. */
#define WB_SCAN_MAX 128
bool wb_scan_begin(struct wb_scanner *in, const char *text, char copy[WB_SCAN_MAX]);

/* 0 or WB_NOT_TIME: the time is before the epoch, or as late as the value that stands for "the present". */
int wb_time_set(struct wb_time *ret, int64_t seconds, int64_t nanoseconds, bool relative);

/* The local date `days` before the date of `now`, at 00:00. */
struct wb_civil wb_day_before(int64_t now, int days);
