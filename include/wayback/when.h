/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_WHEN_H
#define WAYBACK_WHEN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Points in time: nanoseconds since the epoch, UTC, as an int64_t ("when").
 *
 * One parser serves `name@TIME` and every tool, so that a time which works in one place works in
 * all of them. Thread-safe; no allocation.
 */

#define WB_WHEN_SECOND INT64_C(1000000000)

/* "The present": larger than every `when` that is ever recorded. */
#define WB_WHEN_PRESENT INT64_MAX

/* What a TIME names: an instant, or "before the N-th most recent change" (`~N`). */
enum wb_time_kind {
    WB_TIME_INSTANT,
    WB_TIME_CHANGE,
};

struct wb_time {
    enum wb_time_kind kind;
    int relative;      /* its meaning moves with the clock or with later changes: now, 5m, ~2 */
    int64_t instant;   /* WB_TIME_INSTANT: ns since the epoch */
    uint32_t change;   /* WB_TIME_CHANGE: N >= 1 */
    int truncated;     /* GMT-...: of a moment whose fraction of a second was left out */
};

/*
 * Parses TIME as written after an `@`: seconds since the epoch with up to nine decimals (a number without any has nine
 * digits or more); ISO 8601
 * (T or space, with or without seconds, fraction, zone); a time of day (today, local);
 * today, yesterday, now; an age (90s 5m 2h30m 3d 1w); ~N; GMT-2026.11.21-14.03.00 (UTC), as clients of
 * SMB name previous versions, with or without its own '@'.
 * `now` is the present in ns. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse(const char *text, int64_t now, struct wb_time *ret);

/*
 * The same, and what people write on a command line: "5 minutes ago", "yesterday 14:03",
 * a leading '@', surrounding blanks. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse_words(const char *text, int64_t now, struct wb_time *ret);

/*
 * Times as people say them and programs print them: "10 min", "1.5h", "2 months ago", "2pm", "noon", "monday 9:30",
 * "Nov 20" (the last one), "20 Nov 2026 14:03", "20.11.2026", and what date(1), ls(1), git-log(1), mail and logs of
 * web servers show. For command lines, and to be asked last: many of these may be names of snapshots. A day of the
 * week is the last one before today; with a date it has to be that of the date. Returns 0, or WB_NOT_TIME.
 */
int wb_time_parse_free(const char *text, int64_t now, struct wb_time *ret);

/* The wall clock. */
int64_t wb_when_now(void);

/* Long enough for every format below. */
#define WB_WHEN_TEXT_MAX 64

/* Local time for people, e.g. "2026-11-20 14:03:07.123456 +0100" (micro: 6 decimals, else none). */
const char *wb_when_print(int64_t when, int micro, char text[WB_WHEN_TEXT_MAX]);

/* ISO 8601 with nine decimals and zone, e.g. "2026-11-20T14:03:07.123456789+01:00". */
const char *wb_when_print_iso(int64_t when, char text[WB_WHEN_TEXT_MAX]);

/* Seconds since the epoch with nine decimals: exact, and accepted by wb_time_parse. */
const char *wb_when_print_epoch(int64_t when, char text[WB_WHEN_TEXT_MAX]);

#endif
