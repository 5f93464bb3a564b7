/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdiff.h"
#include "common/cli.h"
#include "client/fd.h"
#include "common/moment.h"
#include "common/pager.h"
#include "client/path.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>

/*
 * vdiff: what is different about a file or a directory since a moment, or between two. It only reads, through the
 * mount, as `diff -r PATH@TIME PATH` would, but does not read what cannot have changed.
 */

/* 0, 1 and 2 mean the same in all tools. */
#define EXIT_DIFFERENT 3

static gboolean json, stat_only, brief, name_only, exit_code, quiet, no_pager, compare_all;
static char *color;

static const GOptionEntry options[] = {
    {"stat", 0, 0, G_OPTION_ARG_NONE, &stat_only, "Show the numbers of added and removed lines of each file", NULL},
    {"brief", 0, 0, G_OPTION_ARG_NONE, &brief, "List the differing files only, not their content", NULL},
    {"name-only", 0, 0, G_OPTION_ARG_NONE, &name_only, "Print only the names of differing files", NULL},
    {"exit-code", 'e', 0, G_OPTION_ARG_NONE, &exit_code, "Exit with status 3 if there are differences", NULL},
    {"quiet", 'q', 0, G_OPTION_ARG_NONE, &quiet, "Print nothing; implies --exit-code", NULL},
    {"all", 'a', 0, G_OPTION_ARG_NONE, &compare_all,
     "Compare everything, also what was not changed according to the history", NULL},
    WB_CLI_JSON(&json),
    WB_PAGER_OPTIONS(&color, &no_pager),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vdiff",
    .arguments = "PATH TIME [TIME]",
    .summary = "Compares a file or directory as it was at the first TIME with its present state, or with that at\n"
               "the second TIME: first the tree (added, removed, changed, attributes), then the content of text\n"
               "files in the format of diff -u, for patch(1), and the number of differing bytes of other files.",
    .examples = "  vdiff report.txt 10m             its changes in the last ten minutes\n"
                "  vdiff report.txt ~1              the last change\n"
                "  vdiff src yesterday --stat       an overview of a directory\n"
                "  vdiff src 9:00 12:00 > morning   a patch; patch -R -p1 < morning reverts it\n",
    .paths_min = 1,
    .paths_max = 3,
};

static int check(int argc, char **argv)
{
    int r = wb_color_choose(color);

    if (r != 0)
        return r;
    if (argc < 3)
        return wb_cli_usage("TIME is missing; for example: vdiff %s 10m", argv[1]);
    if (stat_only + brief + name_only + json + quiet > 1)
        return wb_cli_usage("--stat, --brief, --name-only, --json and --quiet exclude each other");
    for (int i = 2; r == 0 && i < argc; i++)
        r = wb_time_check("TIME", argv[i]);
    return r;
}

/* ---- the two sides --------------------------------------------------------------------------- */

/* Since when there has been something of that name: the earliest `first` that is known, 0 if none is. */
static int64_t since_when(const struct wb_place *place)
{
    const char *name;
    g_autofree char *parent = wb_path_parent(place->path, &name);
    _cleanup_name_walk_ struct wb_name_walk *walk =
        wb_name_walk_new(place->mount->root_fd, parent, name, WB_CONTROL_NAMES_SPANS);
    const struct wb_control_name *found;
    int64_t first = 0;

    while (*name && wb_name_walk_next(walk, &found) == 0)
        if (!found->replaced)
            first = found->first;
    return first;
}

static int was_not_there(const struct wb_place *place, int64_t when)
{
    char then[WB_WHEN_TEXT_MAX], first[WB_WHEN_TEXT_MAX];
    int64_t since = since_when(place);

    wb_when_print(when, 0, then);
    if (since > when)
        return wb_cli_fail(place->given, "did not exist at %s; the name exists since %s", then,
                           wb_when_print(since, 0, first));
    return wb_cli_fail(place->given, "did not exist at %s; '%s' shows when it did", then, wb_cli_tool("vstat"));
}

/* "2026-11-20T14:03:07": the moment as it is printed behind an '@'; tools take it back. */
static char *time_label(int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];
    char *label = g_strdup(wb_when_print(when, 1, text));
    char *blank = strchr(label, ' ');

    if (blank)
        *blank = 'T';
    blank = strrchr(label, ' ');
    if (blank)
        *blank = '\0';
    return label;
}

/* PATH at TIME; 0 or an exit status. */
static int take_moment(const struct wb_place *place, const char *text, struct side *side)
{
    _cleanup_moment_ struct wb_moment moment = {0};
    struct wb_moment_options wanted = {.time = text, .change = WB_CHANGE_NONE, .name = "TIME"};
    int r = wb_moment_resolve(place, &wanted, &moment);

    if (r != 0)
        return r;
    side->when = moment.when;
    side->path = g_steal_pointer(&moment.path);
    side->time = time_label(moment.when);
    return 0;
}

static void take_present(const struct wb_place *place, struct side *side)
{
    struct stat st;

    side->when = WB_WHEN_PRESENT;
    side->path = wb_place_stat(place, &st) == 0 ? g_strdup(place->path) : NULL;
}

static int take_sides(struct diff *diff, int argc, char **argv)
{
    int64_t since;
    int r = take_moment(diff->place, argv[2], &diff->side[OLD]);

    if (r == 0 && argc > 3)
        r = take_moment(diff->place, argv[3], &diff->side[NEW]);
    else if (r == 0)
        take_present(diff->place, &diff->side[NEW]);
    if (r != 0 || (diff->side[OLD].path && diff->side[NEW].path))
        return r;
    /* Something that was removed, or that came back, is compared with nothing; but there must have been something
     * before. */
    since = diff->side[OLD].path ? 0 : since_when(diff->place);
    if ((!diff->side[OLD].path && !diff->side[NEW].path) || since > diff->side[OLD].when)
        return was_not_there(diff->place, diff->side[OLD].when);
    return 0;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static void begin_json(const struct diff *diff)
{
    JsonBuilder *builder = diff->builder;
    int64_t new = diff->side[NEW].when;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", diff->place->given);
    wb_json_time(builder, "old_time", diff->side[OLD].when);
    wb_json_time(builder, "new_time", new == WB_WHEN_PRESENT ? 0 : new);
    json_builder_end_object(builder);
    wb_json_list_begin(builder, "entries");
}

/* By the list of changes, if both sides are the same path; else, or without a complete list, everything is compared. */
static void find_changed(struct diff *diff)
{
    const struct side *old = &diff->side[OLD], *new = &diff->side[NEW];
    int64_t first = MIN(old->when, new->when), last = MAX(old->when, new->when);

    if (compare_all || !old->path || !new->path)
        return;
    if (wb_changed_collect(diff->place->mount->root_fd, first, last, WB_CHANGES_MOST, &diff->changed) < 0)
        errno = 0;
}

static void run(struct diff *diff)
{
    find_changed(diff);
    if (diff->json)
        begin_json(diff);
    diff_compare(diff);
    if (diff->json)
        wb_json_list_end(NULL);
    if (diff->json || (diff->detail != DETAIL_DIFF && diff->detail != DETAIL_STAT))
        return;
    for (guint i = 0; i < diff->files->len && !wb_cli_interrupted() && !ferror(stdout); i++)
        diff_content(diff, diff->files->pdata[i]);
}

static void end(struct diff *diff)
{
    for (int side = OLD; side <= NEW; side++) {
        g_free(diff->side[side].path);
        g_free(diff->side[side].time);
    }
    diff->changed = wb_changed_free(diff->changed);
    g_ptr_array_unref(diff->files);
    g_object_unref(diff->builder);
    diff->place = wb_place_free(diff->place);
}

int main(int argc, char **argv)
{
    struct diff diff = {0};
    struct stat st;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check(argc, argv) ?: -1;
    if (r >= 0)
        return r;
    diff.json = json;
    diff.detail = quiet ? DETAIL_NONE : stat_only ? DETAIL_STAT : brief ? DETAIL_BRIEF : name_only ? DETAIL_NAMES
                                                                                                   : DETAIL_DIFF;
    diff.place = wb_place_find(argv[1], WB_MOUNT_READ);
    if (!diff.place)
        return wb_cli_end();
    diff.files = g_ptr_array_new_with_free_func(g_free);
    diff.builder = json_builder_new();
    if (wb_place_stat(diff.place, &st) == 0 && (st.st_ino & WB_PAST_INODE))
        r = wb_cli_usage("'%s' is a past state; name the present path, and give the times as TIME", argv[1]);
    else
        r = take_sides(&diff, argc, argv);
    if (r == 0) {
        if (!json && !quiet && !no_pager)
            wb_pager_begin();
        run(&diff);
        r = wb_cli_end();
    }
    end(&diff);
    return r == WB_EXIT_OK && diff.differs && (exit_code || quiet) ? EXIT_DIFFERENT : r;
}
