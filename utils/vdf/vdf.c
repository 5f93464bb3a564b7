/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vdf: what history takes, by kind, by age and by directory. The daemon finds it out, a part of the store at each
 * request; here it is only put into words.
 */
#include "vdf.h"
#include "common/cli.h"
#include "common/json.h"
#include "client/control.h"
#include "common/pager.h"
#include <errno.h>
#include <stdio.h>

/* Directories are no deeper in what a mount shows. */
#define DEPTH_MAX 2048
#define LIMIT_MAX 1000

static gboolean json, bytes, summary, no_pager, plot;
static int depth = 1, limit = 10;
static char *color;

static const GOptionEntry options[] = {
    {"depth", 'd', 0, G_OPTION_ARG_INT, &depth, "Show directories down to N levels below PATH (1)", "N"},
    {"limit", 'l', 0, G_OPTION_ARG_INT, &limit,
     "Show the COUNT files and programs with the most history (10)", "COUNT"},
    {"summarize", 's', 0, G_OPTION_ARG_NONE, &summary, "Show no directories, files and programs", NULL},
    {"bytes", 'b', 0, G_OPTION_ARG_NONE, &bytes, "Show plain numbers of bytes, not KiB and MiB", NULL},
    {"plot", 0, 0, G_OPTION_ARG_NONE, &plot, "Show the sizes as bars, too", NULL},
    WB_PAGER_OPTIONS(&color, &no_pager),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vdf",
    .arguments = "[PATH...]",
    .timeless = true,
    .summary = "Shows the space that the history of PATH uses: by kind, age, directory, file and program, each\n"
               "with the command that frees it; how far it reaches back, how fast it grows, and how long the\n"
               "free space lasts. Without PATH: the current directory.",
    .examples = "  vdf                          this directory, each directory in it, the largest files\n"
                "  vdf -s ~/work                only the sums\n"
                "  vdf --depth 3 /srv           three levels of directories\n"
                "  vdf -l 50 ~/work             the 50 files and programs with the most history\n"
                "  vdf report.odt               one file\n"
                "  vdf --plot /srv              sizes as bars\n"
                "  vdf --json / | jq .days_left  the number of days until the file system is full\n",
};

static void complain(const char *path, int error)
{
    switch (-error) {
    case EINTR:
    case ECANCELED:
        return;
    case EACCES:
        wb_cli_fail(path, "not permitted: you may not read it, or could not at some time of its history");
        return;
    case ENOENT:
        wb_cli_fail(path, "no such file or directory, now or at any time recorded");
        return;
    case ESTALE:
        wb_cli_fail(path, "stopped (too many requests at once, or history is being erased); run this again");
        return;
    case EINVAL:
        wb_cli_fail(path, "the daemon of the mount is too old for this; unmount and mount again");
        return;
    default:
        wb_cli_fail(path, "%s", wb_errno_text(error));
    }
}

/* Sums of the whole store, and freed space, are only for callers that may erase PATH. */
static void complete(struct wb_place *place, struct usage *usage, struct show_usage *show)
{
    show->path = place->path;
    show->root_fd = place->mount->root_fd;
    show->is_root = usage->flags & WB_CONTROL_USAGE_STORE || !*place->path;
    if (show->is_root)
        budget_read(place->mount->root_fd, usage);
    else if (!wb_cli_interrupted())
        usage->has_freed = wb_request_erase_measure(place->mount->root_fd, place->path, 0, &usage->freed) == 0;
    show->may_free = usage->flags & WB_CONTROL_USAGE_STORE || usage->has_freed;
}

static void show_path(const char *path, bool more)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    struct usage usage = {0};
    struct show_usage show = {.bytes = bytes, .has_dirs = !summary, .plot = plot};
    int r;

    if (!place) {
        wb_json_separate();
        return;
    }
    show.given = place->given;
    r = usage_read(place->mount->root_fd, place->path, summary ? 0 : (unsigned)depth, summary ? 0 : (unsigned)limit,
                   &usage);
    if (r == 0)
        complete(place, &usage, &show);
    if (r == -EINTR && wb_cli_interrupted())
        ;
    else if (r < 0)
        complain(place->given, r);
    else if (json)
        show_usage_json(&usage, &show);
    else
        show_usage_text(stdout, &usage, &show);
    if (r == 0 && more && !json)
        putchar('\n');
    wb_json_separate();
    usage_clear(&usage);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (plot && json)
        return wb_cli_usage("--plot and --json exclude each other");
    if (depth < 0 || depth > DEPTH_MAX)
        return wb_cli_usage("--depth: %d is invalid; it must be 0 to %d", depth, DEPTH_MAX);
    if (limit < 0 || limit > LIMIT_MAX)
        return wb_cli_usage("--limit: %d is invalid; it must be 0 to %d", limit, LIMIT_MAX);
    r = wb_color_choose(color);
    if (r != 0)
        return r;
    if (!json && !no_pager)
        wb_pager_begin();
    if (argc == 1)
        show_path(".", false);
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++)
        show_path(argv[i], i + 1 < argc);
    return wb_cli_end();
}
