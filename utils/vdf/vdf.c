/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vdf: what history takes, by kind, by age and by directory. The daemon finds it out, a part of the store at each
 * request; here it is only put into words.
 */
#include "vdf.h"
#include "common/cli.h"
#include "common/control.h"
#include "common/pager.h"
#include <errno.h>
#include <stdio.h>

/* Directories are no deeper in what a mount shows. */
#define DEPTH_MAX 2048

static gboolean json, bytes, summary, no_pager;
static int depth = 1;
static char *color;

static const GOptionEntry options[] = {
    {"depth", 'd', 0, G_OPTION_ARG_INT, &depth, "Show directories down to N levels below PATH (1)", "N"},
    {"summarize", 's', 0, G_OPTION_ARG_NONE, &summary, "Show no directories", NULL},
    {"bytes", 'b', 0, G_OPTION_ARG_NONE, &bytes, "Plain numbers of bytes, not KiB and MiB", NULL},
    WB_PAGER_OPTIONS(&color, &no_pager),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vdf",
    .arguments = "[PATH...]",
    .timeless = true,
    .summary = "Tells what the history of PATH takes: by kind, by age, and by directory; how far it reaches\n"
               "back, how fast it grows, and for how long there is room. Without PATH: the current directory.",
    .examples = "  vdf                          here, and in each directory here\n"
                "  vdf -s ~/work                the sums alone\n"
                "  vdf --depth 3 /srv           which directories' history is large; three levels\n"
                "  vdf report.odt               of one file\n"
                "  vdf --json / | jq .days_left  for how many days there is room\n",
};

static void complain(const char *path, int error)
{
    switch (-error) {
    case EINTR:
    case ECANCELED:
        return;
    case EACCES:
        wb_cli_fail(path, "not permitted: it is closed to you, or was at some time of its history");
        return;
    case ENOENT:
        wb_cli_fail(path, "no such file or directory, now or at any time recorded");
        return;
    case ESTALE:
        wb_cli_fail(path, "given up: too many ask for this at once, or something is being erased; do it again");
        return;
    case EINVAL:
        wb_cli_fail(path, "the mount is of an older version, which cannot tell; mount it anew");
        return;
    default:
        wb_cli_fail(path, "%s", wb_cli_errno(error));
    }
}

static void tell(const char *path, bool more)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    struct usage usage = {0};
    struct show_usage show = {.bytes = bytes, .has_dirs = !summary};
    int r;

    if (!place)
        return;
    show.given = place->given;
    r = usage_read(place->mount->root_fd, place->path, summary ? 0 : (unsigned)depth, &usage);
    if (r == 0 && (usage.flags & WB_CONTROL_USAGE_STORE || !*place->path))
        budget_read(place->mount->root_fd, &usage);
    else if (r == 0 && *place->path && !wb_cli_interrupted())
        usage.has_freed = wb_control_erase_measure(place->mount->root_fd, place->path, 0, &usage.freed) == 0;
    if (r == -EINTR && wb_cli_interrupted())
        ;
    else if (r < 0)
        complain(place->given, r);
    else if (json)
        show_usage_json(stdout, &usage, &show);
    else
        show_usage_text(stdout, &usage, &show);
    if (r == 0 && more && !json)
        putchar('\n');
    usage_clear(&usage);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (depth < 0 || depth > DEPTH_MAX)
        return wb_cli_usage("--depth: %d is no number of levels; it is 0 to %d", depth, DEPTH_MAX);
    r = wb_color_choose(color);
    if (r != 0)
        return r;
    if (!json && !no_pager)
        wb_pager_begin();
    if (argc == 1)
        tell(".", false);
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++)
        tell(argv[i], i + 1 < argc);
    return wb_cli_end();
}
