/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "time/civil.h"
#include "wayback/when.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* Instants as text. The parser reads text printed as ISO 8601 or as seconds back as the same instant. */

int64_t wb_when_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec * WB_WHEN_SECOND + ts.tv_nsec;
}

/* Whole seconds, rounded down, and the remaining nanoseconds, so that times before the epoch are correct, too. */
static int64_t split(int64_t when, int *nanoseconds)
{
    int64_t seconds = when / WB_WHEN_SECOND;

    if (when % WB_WHEN_SECOND < 0)
        seconds--;
    *nanoseconds = (int)((uint64_t)when - (uint64_t)seconds * (uint64_t)WB_WHEN_SECOND);
    return seconds;
}

const char *wb_when_print(int64_t when, int micro, char text[WB_WHEN_TEXT_MAX])
{
    char fraction[16] = "";
    struct wb_civil at;
    int nanoseconds, offset, ahead;
    int64_t seconds = split(when, &nanoseconds);

    wb_civil_at(seconds, &at, &offset);
    ahead = offset < 0 ? -offset : offset;
    if (micro)
        snprintf(fraction, sizeof(fraction), ".%06d", nanoseconds / 1000);
    snprintf(text, WB_WHEN_TEXT_MAX, "%04d-%02d-%02d %02d:%02d:%02d%s %c%02d%02d", at.year, at.month,
             at.day, at.hour, at.minute, at.second, fraction, offset < 0 ? '-' : '+', ahead / 3600,
             ahead / 60 % 60);
    return text;
}

const char *wb_when_print_iso(int64_t when, char text[WB_WHEN_TEXT_MAX])
{
    struct wb_civil at;
    int nanoseconds, offset, ahead;
    int64_t seconds = split(when, &nanoseconds);

    wb_civil_at(seconds, &at, &offset);
    /* Old local mean times differ from UTC by odd seconds, which ISO 8601 cannot express: the date is computed for the
     * printed offset, so that the instant is exact. */
    offset -= offset % 60;
    wb_civil_at_offset(seconds, offset, &at);
    ahead = offset < 0 ? -offset : offset;
    snprintf(text, WB_WHEN_TEXT_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%09d%c%02d:%02d", at.year, at.month,
             at.day, at.hour, at.minute, at.second, nanoseconds, offset < 0 ? '-' : '+', ahead / 3600,
             ahead / 60 % 60);
    return text;
}

const char *wb_when_print_epoch(int64_t when, char text[WB_WHEN_TEXT_MAX])
{
    uint64_t distance = when < 0 ? -(uint64_t)when : (uint64_t)when;
    uint64_t second = (uint64_t)WB_WHEN_SECOND;

    snprintf(text, WB_WHEN_TEXT_MAX, "%s%" PRIu64 ".%09" PRIu64, when < 0 ? "-" : "", distance / second,
             distance % second);
    return text;
}
