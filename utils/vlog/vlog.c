/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vlog.h"
#include "common/cli.h"
#include "common/pager.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

/*
 * vlog: everything that changed below a path, newest first, grouped by the command that did it. It asks the
 * mount page by page, so that its memory does not grow with the history.
 */

#define FOLLOW_FIRST 10
#define FOLLOW_US (500 * 1000)

static gboolean json, verbose, follow, no_pager, operations, graph_time;
static int limit = G_MININT; /* not given */
static char *since_text, *until_text, *who_text, *command_text, *color;

static const GOptionEntry options[] = {
    {"limit", 'l', 0, G_OPTION_ARG_INT, &limit, "Show only the COUNT most recent changes: lines of the list", "COUNT"},
    {"number", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_INT, &limit, NULL, NULL}, /* its former name */
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_text, "Show no changes before TIME", "TIME"},
    {"until", 0, 0, G_OPTION_ARG_STRING, &until_text, "Show no changes after TIME", "TIME"},
    {"who", 0, 0, G_OPTION_ARG_STRING, &who_text, "Show only changes by this user (a name or a number)", "USER"},
    {"command", 0, 0, G_OPTION_ARG_STRING, &command_text, "Show only changes by commands that contain TEXT", "TEXT"},
    {"follow", 'f', 0, G_OPTION_ARG_NONE, &follow, "Continue with new changes as they are made, oldest first", NULL},
    {"operations", 0, 0, G_OPTION_ARG_NONE, &operations, "Show how often each version was written", NULL},
    {"graph-time", 0, 0, G_OPTION_ARG_NONE, &graph_time, "Plot how many changes there were in each hour, by program",
     NULL},
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Show every change on its own line, with exact times and sizes"),
    WB_PAGER_OPTIONS(&color, &no_pager),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vlog",
    .arguments = "[PATH]",
    .summary = "Lists all changes below a directory (or of a file), newest first, grouped by the command\n"
               "that made them. Paths are those at that time. Without PATH: the current directory.",
    .examples = "  vlog                               changes below the current directory\n"
                "  vlog --since yesterday --who anna  changes by anna since 0:00 yesterday\n"
                "  vlog --command make build          changes by make below build\n"
                "  vlog -f /srv/www                   watch new changes\n"
                "  vlog --graph-time --since 2d       changes per hour, as bars\n"
                "  vlog --json | jq -r .path          one JSON object per line\n",
    .paths_max = 1,
};

static const char *commands[2];
static struct wb_change_walk_options wanted;

static int instants(const struct wb_place *place)
{
    return wb_time_range(place, since_text, until_text, "--limit", &wanted.since, &wanted.until);
}

static int check_who(void)
{
    const struct passwd *user;
    char *end;
    guint64 number;

    if (!who_text)
        return 0;
    wanted.by_user = true;
    user = getpwnam(who_text);
    if (user) {
        wanted.uid = user->pw_uid;
        return 0;
    }
    number = g_ascii_strtoull(who_text, &end, 10);
    if (!g_ascii_isdigit(*who_text) || *end || number > UINT32_MAX - 1)
        return wb_cli_usage("--who: no such user '%s'; give a name or a number", who_text);
    wanted.uid = (uint32_t)number;
    return 0;
}

static int check_options(void)
{
    int r = instants(NULL);

    if (r == 0)
        r = check_who();
    if (r == 0)
        r = wb_color_choose(color);
    if (r != 0)
        return r;
    if (limit < 1 && limit != G_MININT)
        return wb_cli_usage("--limit: %d is invalid; it must be 1 or more", limit);
    if (follow && until_text)
        return wb_cli_usage("--follow and --until exclude each other");
    if (graph_time && (follow || verbose || operations || limit != G_MININT))
        return wb_cli_usage("--graph-time excludes --follow, --verbose, --operations and --limit");
    commands[0] = command_text;
    wanted.commands = command_text ? commands : NULL;
    return 0;
}

static void show_one(struct show *show, const struct wb_change *change)
{
    if (json)
        show_json(change);
    else
        show_change(show, change);
}

static int fail(const char *path, int error)
{
    return wb_cli_fail(path, "%s", error == -ENOENT ? "no such file or directory, now or at any time recorded"
                                                     : wb_errno_text(error));
}

/* "No changes of f by a command containing 'cleanup.sh'." */
static void print_none(const struct wb_place *place)
{
    g_autofree char *shown = wb_text_printable(place->given), *command = NULL, *who = NULL;

    if (!since_text && !until_text && !who_text && !command_text) {
        printf("%s: nothing recorded; it has not changed since the history began\n", shown);
        return;
    }
    command = wb_text_printable(command_text ? command_text : "");
    who = wb_text_printable(who_text ? who_text : "");
    printf("No changes of %s%s%s%s%s%s%s.\n", shown, who_text ? " by " : "", who,
           command_text ? " by a command containing '" : "", command, command_text ? "'" : "",
           since_text || until_text ? " in that time" : "");
}

static void list(const struct wb_place *place)
{
    struct wb_change_walk *walk = wb_change_walk_new(place->mount, place->path, &wanted);
    struct show show = {.verbose = verbose, .operations = operations, .self = place->given,
                        .limit = limit < 0 ? -1 : limit};
    struct wb_change change;
    int64_t count = 0;
    int r = 0;

    while (!show_is_full(&show) && !(json && count == limit) && !wb_cli_interrupted() && !ferror(stdout) &&
           (r = wb_change_walk_next(walk, &change)) == 0) {
        show_one(&show, &change);
        count++;
    }
    show_end(&show);
    wb_change_walk_free(walk);
    if (r < 0)
        fail(place->given, r);
    else if (r > 0 && count == 0 && !json && !wb_cli_interrupted())
        print_none(place);
}

static void plot(const struct wb_place *place)
{
    struct wb_change_walk *walk = wb_change_walk_new(place->mount, place->path, &wanted);
    uint64_t count;
    int r = graph_show(walk, json, &count);

    wb_change_walk_free(walk);
    if (r < 0)
        fail(place->given, r);
    else if (count == 0 && !json && !wb_cli_interrupted())
        print_none(place);
}

/* What there is, oldest first; *last becomes the newest `when`. 0 or -errno. */
static int show_news(const struct wb_place *place, struct show *show, int64_t most, int64_t *last)
{
    g_autoptr(GPtrArray) kept = g_ptr_array_new_with_free_func(g_free);
    struct wb_change_walk *walk = wb_change_walk_new(place->mount, place->path, &wanted);
    struct wb_change change;
    uint64_t held = 0;
    int r = 0;

    while ((most < 0 || kept->len < most) && (r = wb_change_walk_next(walk, &change)) == 0) {
        g_ptr_array_add(kept, wb_change_keep(&change));
        held += change.entry->size + strlen(change.command);
        if (held > WB_HELD_MAX) {
            r = -EOVERFLOW;
            break;
        }
    }
    wb_change_walk_free(walk);
    for (guint i = kept->len; i-- > 0;) {
        const struct wb_kept_change *one = kept->pdata[i];

        show_one(show, &one->change);
        *last = one->change.entry->when;
    }
    show_end(show);
    return r < 0 ? r : 0;
}

/* The mount is gone, so there is nothing more to follow. */
static bool is_over(int error)
{
    return error == -ENOTCONN || error == -ENODEV || error == -ECONNABORTED || error == -ENOTTY || error == -EINTR;
}

static void watch(const struct wb_place *place)
{
    struct show show = {.verbose = verbose, .operations = true, .self = place->given, .limit = -1};
    int64_t last = 0, most = limit > 0 ? limit : since_text ? -1 : FOLLOW_FIRST;
    int r = show_news(place, &show, most, &last);

    while (r == 0 && !wb_cli_interrupted() && !ferror(stdout)) {
        g_usleep(FOLLOW_US);
        if (last > 0)
            wanted.since = last + 1;
        r = show_news(place, &show, -1, &last);
    }
    if (r < 0 && !is_over(r))
        fail(place->given, r);
}

int main(int argc, char **argv)
{
    _cleanup_place_ struct wb_place *place = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check_options() ?: -1;
    if (r >= 0)
        return r;
    place = wb_place_find(argc > 1 ? argv[1] : ".", WB_MOUNT_READ);
    if (!place)
        return wb_cli_end();
    r = instants(place);
    if (r != 0)
        return r;
    if (follow) {
        watch(place);
        return wb_cli_end();
    }
    if (!json && !no_pager)
        wb_pager_begin();
    if (graph_time)
        plot(place);
    else
        list(place);
    return wb_cli_end();
}
