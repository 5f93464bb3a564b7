/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vsnap list and show: the same things, short and at length. */
#include "vsnap.h"

#include "common/json.h"
#include "common/pager.h"
#include "client/path.h"
#include "common/table.h"
#include "common/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static gboolean json, verbose, no_pager;
static char *color;

/* ---- one snapshot ---------------------------------------------------------------------------- */

static void show_json(const struct wb_place *place, const struct wb_control_snapshot *snapshot, char **files,
                      uint64_t unnamed)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autofree char *directory = vsnap_shown(place->mount, wb_snapshot_path(snapshot));

    json_builder_begin_object(builder);
    wb_json_string(builder, "name", wb_snapshot_name(snapshot));
    wb_json_when(builder, snapshot->when);
    wb_json_string(builder, "path", wb_snapshot_path(snapshot));
    wb_json_string(builder, "directory", directory);
    wb_json_bool(builder, "covers", snapshot->flags & WB_CONTROL_SNAPSHOT_COVERS);
    wb_json_string(builder, "text", wb_snapshot_text(snapshot));
    wb_json_int(builder, "uid", snapshot->uid);
    wb_json_string(builder, "user", wb_text_user(snapshot->uid));
    wb_json_bool(builder, "automatic", snapshot->flags & WB_CONTROL_SNAPSHOT_AUTOMATIC);
    wb_json_bool(builder, "deletable", snapshot->flags & WB_CONTROL_SNAPSHOT_MAY);
    if (files) {
        wb_json_strings(builder, "open", (const char *const *)files);
        wb_json_int(builder, "open_unnamed", (int64_t)unnamed);
    }
    json_builder_end_object(builder);
    wb_json_list_add(builder);
}

static void line(const char *title, const char *text)
{
    printf("  %-9s %s\n", title, text);
}

static void show_files(char **files, uint64_t unnamed)
{
    const char *title = "open";

    if (!*files && unnamed == 0)
        line(title, "no file was open for writing");
    for (; *files; files++, title = "") {
        g_autofree char *shown = wb_text_printable(*files);

        line(title, shown);
    }
    if (unnamed > 0) {
        g_autofree char *more = g_strdup_printf("%" G_GUINT64_FORMAT " %s", unnamed,
                                                *title ? "files that you may not see or that were not recorded"
                                                       : "more that you may not see or that were not recorded");

        line(title, more);
    }
}

static void show_text(const struct wb_place *place, const struct wb_control_snapshot *snapshot, char **files,
                      uint64_t unnamed)
{
    g_autofree char *name = wb_text_printable(wb_snapshot_name(snapshot));
    g_autofree char *directory = vsnap_shown(place->mount, wb_snapshot_path(snapshot));
    g_autofree char *shown = wb_text_printable(directory);
    g_autofree char *text = wb_text_printable(wb_snapshot_text(snapshot));
    g_autofree char *time = NULL;
    g_autofree char *who = NULL;
    char local[WB_WHEN_TEXT_MAX], epoch[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];

    time = g_strdup_printf("%s (%s ago)", wb_when_print(snapshot->when, 1, local),
                           wb_text_age(wb_mount_now(place->mount) - snapshot->when, age));
    who = g_strdup_printf("%s%s", wb_text_user(snapshot->uid),
                          snapshot->flags & WB_CONTROL_SNAPSHOT_AUTOMATIC ? ", by schedule" : "");
    printf("%s%s%s\n", wb_color(WB_COLOR_BOLD), name, wb_color(WB_COLOR_OFF));
    line("time", time);
    line("exactly", wb_when_print_epoch(snapshot->when, epoch));
    line("of", shown);
    line("by", who);
    if (*text)
        line("text", text);
    show_files(files, unnamed);
}

/* Prints all about one snapshot. Returns false if that failed. */
static bool show(const struct wb_place *place, const struct wb_control_snapshot *snapshot, bool first)
{
    g_auto(GStrv) files = NULL;
    uint64_t unnamed = 0;
    int r = wb_request_snapshot_files(place->mount->root_fd, wb_snapshot_name(snapshot), &files, &unnamed);

    /* If only the list of open files is damaged, print the rest. */
    if (r == -EIO) {
        wb_cli_fail(wb_snapshot_name(snapshot), "the list of files that were open for writing is damaged");
        files = g_new0(char *, 1);
    } else if (r < 0) {
        /* Deleted meanwhile. */
        if (r != -ENOENT)
            vsnap_fail(place, wb_snapshot_name(snapshot), r);
        return false;
    }
    if (!json && !first)
        putchar('\n');
    if (json)
        show_json(place, snapshot, files, unnamed);
    else
        show_text(place, snapshot, files, unnamed);
    return true;
}

/* ---- list ------------------------------------------------------------------------------------ */

static const struct wb_column columns[] = {
    {"NAME", 0}, {"TIME", 0}, {"AGE", 1}, {"OF", 0}, {"TEXT", 0},
};

static void add_row(struct wb_table *table, const struct wb_place *place,
                    const struct wb_control_snapshot *snapshot)
{
    g_autofree char *name = wb_text_printable(wb_snapshot_name(snapshot));
    g_autofree char *directory = vsnap_shown(place->mount, wb_snapshot_path(snapshot));
    g_autofree char *shown = wb_text_printable(directory);
    g_autofree char *text = wb_text_printable(wb_snapshot_text(snapshot));
    char local[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];
    const char *cells[] = {name, wb_when_print(snapshot->when, 0, local),
                           wb_text_age(wb_mount_now(place->mount) - snapshot->when, age), shown, text};

    wb_table_add(table, cells);
}

/* Those that say something of PATH: of a directory above it, or of one below. */
static bool concerns(const struct wb_place *place, const struct wb_control_snapshot *snapshot)
{
    g_autofree char *path = wb_path_join(place->mount->prefix, place->path);

    return (snapshot->flags & WB_CONTROL_SNAPSHOT_COVERS) || !*path ||
           wb_path_below(wb_snapshot_path(snapshot), path, NULL);
}

static void list(const struct wb_place *place, const GPtrArray *all)
{
    struct wb_table *table = json || verbose ? NULL : wb_table_new(stdout, columns, G_N_ELEMENTS(columns));
    guint shown = 0;

    if (json)
        wb_json_list_begin(NULL, "snapshots");
    for (guint i = 0; i < all->len && !wb_cli_interrupted() && !ferror(stdout); i++) {
        const struct wb_control_snapshot *snapshot = all->pdata[i];

        if (!concerns(place, snapshot))
            continue;
        if (table) {
            add_row(table, place, snapshot);
        } else if (verbose) {
            shown += show(place, snapshot, shown == 0);
            continue;
        } else {
            show_json(place, snapshot, NULL, 0);
        }
        shown++;
    }
    wb_table_free(table);
    if (json)
        wb_json_list_end(NULL);
    else if (shown == 0)
        printf("no snapshots%s; 'vsnap create NAME' creates one\n", all->len > 0 ? " of this" : "");
}

int vsnap_list(int argc, char **argv)
{
    static const GOptionEntry options[] = {
        WB_CLI_VERBOSE(&verbose, "Also show their creators, exact times, and the files open for writing then"),
        WB_CLI_JSON(&json),
        WB_PAGER_OPTIONS(&color, &no_pager),
        WB_CLI_END,
    };
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "list",
        .arguments = "[PATH]",
        .summary = "Lists the snapshots that cover PATH (the current directory) or a directory below it, oldest\n"
                   "first: name, time, age, directory, and description.",
        .examples = "  vsnap list                                        those of this directory\n"
                    "  vsnap list -v /srv                                those of /srv, in detail\n"
                    "  vsnap list --json | jq -r '.snapshots[-1].name'   the newest\n",
        .paths_max = 1,
    };
    _cleanup_place_ struct wb_place *place = NULL;
    g_autoptr(GPtrArray) all = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0 && wb_color_choose(color) != 0)
        r = WB_EXIT_USAGE;
    if (r >= 0)
        return r;
    place = vsnap_place(argc > 1 ? argv[1] : NULL, WB_MOUNT_READ);
    if (!place)
        return WB_EXIT_FAILED;
    r = wb_request_snapshot_list(place->mount->root_fd, place->path, NULL, &all);
    if (r < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(r));
    if (!json && !no_pager)
        wb_pager_begin();
    list(place, all);
    return wb_cli_end();
}

/* ---- show ------------------------------------------------------------------------------------ */

int vsnap_show(int argc, char **argv)
{
    static char *directory;
    static const GOptionEntry options[] = {VSNAP_DIRECTORY(&directory), WB_CLI_JSON(&json), WB_CLI_END};
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "show",
        .arguments = "NAME... [PATH]",
        .summary = "Shows snapshots in detail: time, directory, creator, and the files that were open for\n"
                   "writing then, whose content may be incomplete.",
        .examples = "  vsnap show before-upgrade\n"
                    "  vsnap show before-upgrade /srv    in another mount\n",
    };
    _cleanup_place_ struct wb_place *place = NULL;
    const char *path;
    bool first = true;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    path = vsnap_directory(directory, &argc, argv);
    if (argc < 2)
        return wb_cli_usage("NAME is missing");
    wb_color_choose(NULL);
    place = vsnap_place(path, WB_MOUNT_READ);
    if (!place)
        return WB_EXIT_FAILED;
    if (json)
        wb_json_list_begin(NULL, "snapshots");
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++) {
        g_autoptr(GPtrArray) found = NULL;

        r = wb_request_snapshot_list(place->mount->root_fd, place->path, argv[i], &found);
        if (r == 0 && found->len == 0)
            r = -ENOENT;
        if (r < 0)
            vsnap_fail(place, argv[i], r);
        else if (show(place, wb_snapshot_meant(found), first))
            first = false;
    }
    if (json)
        wb_json_list_end(NULL);
    return wb_cli_end();
}
