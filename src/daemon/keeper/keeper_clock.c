/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The clocks that the keeper goes by; what they mean is said in policy/clock.h. */
#include "daemon/keeper/keeper_parts.h"

#include "daemon/system/report.h"
#include "store/tables/clock.h"
#include "wayback/when.h"
#include <glib.h>
#include <time.h>

#define HOUR (3600 * WB_WHEN_SECOND)
/* How long it has been doubted is noted so often. */
#define NOTE_AGAIN (HOUR / 6)

static int64_t steady_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * WB_WHEN_SECOND + now.tv_nsec;
}

void wb_keeper_clock_begin(struct wb_keeper *keeper)
{
    struct wb_store *store = keeper->session->store;
    int64_t insisted, noted = wb_store_clock_noted(store, &insisted);
    int64_t known = noted ? noted : wb_store_last_change(store);

    /* Records of a future that was taken back prove nothing. */
    wb_clock_init(&keeper->clock, MIN(known, wb_when_now()), steady_clock());
    keeper->clock.insisted = keeper->noted_insisted = insisted;
    keeper->clock_noted = noted != 0;
}

static void warn_clock(struct wb_keeper *keeper, int64_t ahead, int64_t most)
{
    g_autofree char *by = wb_span_print(ahead / HOUR * HOUR);
    g_autofree char *wait = wb_span_print(wb_clock_wait(most));

    if (!keeper->warned_clock)
        wb_log_msg("%s: the clock is %s ahead of the last record and the time since (it was set, or the machine was "
                   "off); until it is set back, or for %s, no additional history expires because of this",
                   keeper->session->source, by, wait);
    keeper->warned_clock = true;
}

static void note(struct wb_keeper *keeper, int64_t now, int64_t least)
{
    int64_t insisted = wb_clock_insisted(&keeper->clock, steady_clock());

    if (keeper->clock.doubted == keeper->clock_noted && insisted - keeper->noted_insisted < least)
        return;
    if (wb_store_note_clock(keeper->session->store, keeper->clock.doubted ? now : 0, insisted) < 0)
        return;
    keeper->clock_noted = keeper->clock.doubted;
    keeper->noted_insisted = insisted;
}

void wb_keeper_clock_end(struct wb_keeper *keeper)
{
    int64_t now = wb_keeper_now(keeper);

    if (keeper->clock.doubted)
        note(keeper, now, 1);
}

int64_t wb_keeper_now(struct wb_keeper *keeper)
{
    int64_t least = wb_policy_least(&keeper->policy), most = wb_policy_hold(&keeper->policy);
    int64_t wall = wb_when_now(), now;

    /* Before the policy has been read, too: what is noted stays so. */
    if (least == WB_FOREVER)
        return wall;
    now = wb_clock_judge(&keeper->clock, wall, steady_clock(), least, most);
    note(keeper, now, NOTE_AGAIN);
    if (!keeper->clock.doubted)
        keeper->warned_clock = false;
    else
        warn_clock(keeper, wall - now, most);
    return now;
}
