/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/moment.h"
#include "common/cli.h"
#include "client/path.h"
#include "common/snapshots.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int wb_moment_is_known(const struct wb_place *place, const char *text, int64_t when)
{
    struct wb_error why;

    return wb_moment_known(place->mount, text, when, &why) < 0 ? wb_cli_fail(place->given, "%s", why.text) : 0;
}

int wb_moment_resolve(const struct wb_place *place, const struct wb_moment_options *options,
                      struct wb_moment *ret)
{
    struct wb_time time = {.kind = WB_TIME_VERSION, .number = (uint32_t)options->change};
    struct wb_error why;
    int r = 0;

    memset(ret, 0, sizeof(*ret));
    if (options->time) {
        const char *name = options->name ? options->name : "--time";

        r = wb_time_of(place, name, options->time, &time);
        if (r == 0 && time.kind == WB_TIME_INSTANT)
            r = wb_time_not_future(place, name, options->time, time.instant);
        if (r == 0 && time.kind == WB_TIME_INSTANT)
            r = wb_moment_is_known(place, options->shown ?: options->time, time.instant);
        if (r != 0)
            return r;
    }
    if (time.kind == WB_TIME_INSTANT)
        r = wb_moment_at(place->mount, place->path, time.instant, ret, &why);
    else
        r = wb_moment_before(place->mount, place->path, &time, ret, &why);
    if (r < 0)
        return wb_cli_fail(place->given, "%s", why.text);
    ret->label = options->time ? g_strdup(wb_time_text(place, options->time))
                               : g_strdup_printf("~%d", options->change);
    g_strstrip(g_strdelimit(ret->label, "/", '-'));
    return 0;
}

int wb_moment_check(const struct wb_moment_options *options)
{
    if (options->time && options->change != WB_CHANGE_NONE)
        return wb_cli_usage("--time and --change exclude each other");
    if (options->change < 1 && options->change != WB_CHANGE_NONE)
        return wb_cli_usage("--change: %d is not the number of a version; 1 is the most recent, '%s' lists them",
                            options->change, wb_cli_tool("vstat"));
    return options->time && wb_time_check("--time", options->time) != 0 ? WB_EXIT_USAGE : 0;
}
