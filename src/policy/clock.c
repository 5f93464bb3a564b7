/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/clock.h"

#include "wayback/when.h"
#include <glib.h>

#define HOUR (3600 * WB_WHEN_SECOND)
#define DAY (24 * HOUR)
/* A clock that is wrong by a part of the retention time surprises no user; one that is wrong by a year does. */
#define SLACK_PART 4
#define SLACK_LEAST HOUR
#define SLACK_MOST (90 * DAY)

void wb_clock_init(struct wb_clock *clock, int64_t known, int64_t steady)
{
    *clock = (struct wb_clock){.known = known, .at = steady};
}

int64_t wb_clock_wait(int64_t most)
{
    return MIN(most, DAY);
}

int64_t wb_clock_insisted(const struct wb_clock *clock, int64_t steady)
{
    return clock->doubted ? MAX(steady - clock->since, 0) : 0;
}

static void believe(struct wb_clock *clock, int64_t wall, int64_t steady)
{
    wb_clock_init(clock, wall, steady);
}

int64_t wb_clock_judge(struct wb_clock *clock, int64_t wall, int64_t steady, int64_t least, int64_t most)
{
    int64_t slack = CLAMP(least / SLACK_PART, SLACK_LEAST, SLACK_MOST);
    int64_t expected = clock->known + MAX(steady - clock->at, 0);

    if (wall > expected + slack) {
        if (!clock->doubted)
            clock->since = steady - clock->insisted;
        clock->doubted = true;
        if (steady - clock->since < wb_clock_wait(most))
            return expected;
        believe(clock, wall, steady);
    }
    /* The time it was set back from may have been wrong: to reach that time again, it has to be believed again. */
    if (wall < expected - slack)
        believe(clock, wall, steady);
    clock->doubted = false;
    clock->insisted = 0;
    return wall;
}
