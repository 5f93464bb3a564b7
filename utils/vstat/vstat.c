/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vstat.h"
#include "containing.h"
#include "lines.h"
#include "common/cli.h"
#include "client/control.h"
#include "content/version_text.h"
#include "common/mount.h"
#include "common/progress.h"
#include "client/path.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * vstat: lists the versions of a path, newest first, or with --operations each change. Its memory use does not grow
 * with the history.
 */

static gboolean json, verbose, operations;
static int limit = G_MININT; /* not given */
static char *since_text, *until_text, *text;

static const GOptionEntry options[] = {
    {"limit", 'l', 0, G_OPTION_ARG_INT, &limit, "Show only the LIMIT most recent versions", "LIMIT"},
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_text, "Show no changes before TIME", "TIME"},
    {"until", 0, 0, G_OPTION_ARG_STRING, &until_text, "Show no changes after TIME", "TIME"},
    {"containing", 0, 0, G_OPTION_ARG_FILENAME, &text, "Show only the versions of a file that contain TEXT", "TEXT"},
    {"operations", 0, 0, G_OPTION_ARG_NONE, &operations, "Show each change: every write, and changes of attributes",
     NULL},
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Show exact times and bytes, sizes before and after, whole commands"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vstat",
    .arguments = "PATH...",
    .summary = "Lists the versions of files, and the changes in directories, newest first: number,\n"
               "time, lines that changed, size, and the user and process. Works for deleted files.\n"
               "A version is what one process did to a file until it closed it, or paused for 2 s.",
    .examples = "  vstat report.txt                   all versions of a file\n"
                "  vstat -l 5 src                     the last five changes in a directory\n"
                "  vstat --since yesterday notes.md   versions since 0:00 yesterday\n"
                "  vstat --containing 'dear Ann' report.txt  the versions that have this text\n"
                "  vstat --json report.txt | jq '.versions[0].command'\n",
    .paths_min = 1,
};

static int64_t since, until;
static bool wrong_usage; /* found out only when a PATH was looked at */

static int check_times(const struct wb_place *place)
{
    return wb_time_range(place, since_text, until_text, "--limit", &since, &until);
}

static int check_options(void)
{
    int r = check_times(NULL);

    if (r == 0 && limit < 1 && limit != G_MININT)
        return wb_cli_usage("--limit: %d is invalid; it must be 1 or more", limit);
    if (r == 0 && text && !*text)
        return wb_cli_usage("--containing: the text is empty");
    if (r == 0 && text && operations)
        return wb_cli_usage("--containing is about versions; it cannot be combined with --operations");
    return r;
}

/* ---- a list ------------------------------------------------------------------------------------ */

/* A list that is being printed, as a table or as JSON elements. */
struct list {
    const struct show *show;
    struct wb_table *table;
    JsonBuilder *builder;
    struct containing *containing; /* or NULL */
    struct lines lines;
    int64_t count;
    uint64_t same; /* versions with the content of the one before, which are left out */
};

static void put_row(struct list *list, const struct row *row)
{
    wb_progress_clear();
    list->count++;
    if (list->table) {
        show_row(list->table, list->show, row);
        return;
    }
    show_json(list->builder, list->show, row);
    wb_json_list_add(list->builder);
}

static bool has_room(const struct list *list)
{
    return (limit < 0 || list->count < limit) && !wb_cli_interrupted() && !ferror(stdout);
}

static int list_operations(struct list *list, const struct wb_place *place)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, since, until, 0);
    const struct wb_control_version *version;
    int r = 0;

    while (has_room(list) && (r = wb_version_walk_next(walk, &version)) == 0) {
        struct row row = {.is = *version, .operation = version->change};

        row.is.change = version->save;
        put_row(list, &row);
    }
    return r;
}

/* Whether the version is listed; `cell` is for its lines. */
static bool takes(struct list *list, const struct wb_save *save, struct row *row, char *cell, size_t size)
{
    unsigned added = 0, removed = 0;
    enum lines_result result;

    if (!list->table || list->show->directory)
        return true;
    result = lines_compare(&list->lines, save, &added, &removed);
    if (result == LINES_DIFFERENT)
        g_snprintf(cell, size, "+%u -%u", added, removed);
    row->lines = result == LINES_DIFFERENT ? cell : "-";
    if (result == LINES_SAME && !*row->is.other)
        list->same++;
    return result != LINES_SAME || *row->is.other;
}

/* 1, 0, or -EINTR. */
static int contains_text(struct list *list, const struct wb_save *save, int *ret)
{
    *ret = containing_after(list->containing, save);
    if (*ret == -EINTR)
        return *ret;
    return *ret != 0 || save->number == 0;
}

static int list_versions(struct list *list, const struct wb_place *place)
{
    _cleanup_save_walk_ struct wb_save_walk *walk =
        wb_save_walk_new(place->mount->root_fd, place->path, since, until);
    g_autofree struct wb_control_version *oldest = NULL;
    const struct wb_save *save;
    int r = 0;

    while (has_room(list) && (r = wb_save_walk_next(walk, &save)) == 0) {
        struct row row = {.is = wb_version_describe(save, list->show->directory ? NULL : list->show->name),
                          .operations = save->operations, .began = save->oldest.when, .lines = "-"};
        int contains, wanted = 1;
        char cell[32];

        if (list->containing) {
            wanted = contains_text(list, save, &contains);
            row.contains = &contains;
            g_free(oldest);
            oldest = g_memdup2(&save->oldest, sizeof(save->oldest));
        }
        if (wanted < 0)
            break;
        if (wanted && (list->containing || takes(list, save, &row, cell, sizeof(cell))))
            put_row(list, &row);
    }
    if (list->containing && r == 1 && !since && !(until && !oldest))
        containing_end(list->containing, oldest);
    return r;
}

/* Fetches up to `limit` rows to the table or as JSON elements. Their number or -errno. */
static int64_t list(const struct wb_place *place, const struct show *show, struct containing *containing)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    struct list list = {.show = show, .table = json ? NULL : show_table(stdout, show), .builder = builder,
                        .containing = containing};
    int r;

    lines_begin(&list.lines, place, show->name);
    r = show->operations ? list_operations(&list, place) : list_versions(&list, place);
    lines_clear(&list.lines);
    wb_progress_clear();
    wb_table_free(list.table);
    if (list.same > 0) {
        g_autofree char *versions = wb_text_count(list.same, "version", "versions");

        printf("%s that changed no content: not shown (--operations shows all changes)\n", versions);
    }
    return r < 0 ? r : list.count + (int64_t)list.same;
}

/*
 * The list of the versions that contain the text, with the first and the last of them: in a line, or (`members` not
 * NULL) as members of the JSON object of the path. Their number or -errno.
 */
static int64_t list_containing(const struct wb_place *place, const struct show *show, const char *shown,
                               JsonBuilder *members)
{
    _cleanup_text_search_ struct wb_text_search *search = wb_text_search_new(text);
    struct containing containing;
    int64_t r;

    containing_begin(&containing, search, place, show->name);
    wb_progress_begin();
    r = list(place, show, &containing);
    if (r >= 0 && !wb_cli_interrupted()) {
        g_autofree char *summary = containing_summary(&containing, limit < 0 && !since);

        if (members)
            containing_json(&containing, members);
        else
            printf("%s: %s\n", shown, summary);
        containing_fail(&containing);
    }
    containing_clear(&containing);
    return r;
}

static void fail(const char *path, int64_t error)
{
    wb_cli_fail(path, "%s", error == -ENOENT ? "no such file or directory, now or at any time recorded"
                                             : wb_errno_text((int)error));
}

/* Whether the last object of that name was a directory, according to the (possibly deleted) parent directory. */
static bool was_directory(const struct wb_place *place)
{
    const char *name;
    g_autofree char *parent = wb_path_parent(place->path, &name);
    _cleanup_name_walk_ struct wb_name_walk *walk = wb_name_walk_new(place->mount->root_fd, parent, name, 0);
    const struct wb_control_name *found;

    return wb_name_walk_next(walk, &found) == 0 && S_ISDIR(found->mode);
}

/* Checks that the path existed at some time: one without any change exists now, or is an error. */
static int64_t probe(const struct wb_place *place, bool *directory)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, 0);
    const struct wb_control_version *version;
    struct wb_control_identity identity;
    struct stat st;
    int exists = wb_place_stat(place, &st);
    int r = wb_version_walk_next(walk, &version);

    *directory = exists == 0 && S_ISDIR(st.st_mode);
    if (exists < 0)
        *directory = wb_request_identify(place->mount->root_fd, place->path, &identity) == 0 ? S_ISDIR(identity.mode)
                                                                                          : was_directory(place);
    if (r < 0)
        return r;
    return r == 1 && exists < 0 ? exists : 0;
}

/* Names of snapshots are looked up in the mount of each PATH. */
static bool times_are_known(const struct wb_place *place)
{
    if (check_times(place) == 0)
        return true;
    wrong_usage = true;
    return false;
}

/* Why the list is empty. */
static const char *nothing(const struct wb_place *place)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, since, until, 0);
    const struct wb_control_version *version;

    if (!operations && wb_version_walk_next(walk, &version) == 0)
        return "only changes of attributes recorded (--operations shows them)";
    return since_text || until_text ? "nothing recorded in that time"
                                    : "nothing recorded; it has not changed since the history began";
}

static void fail_directory(const char *path)
{
    wb_cli_fail(path, "is a directory; --containing searches files ('%s --content' searches all below a directory)",
                wb_cli_tool("vfind"));
}

static void show_path(const char *path, bool several, bool first)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    g_autofree char *shown = wb_text_printable(path);
    struct show show = {.verbose = verbose, .operations = operations};
    bool directory = false;
    int64_t r;

    if (!place || !times_are_known(place))
        return;
    r = probe(place, &directory);
    if (r < 0) {
        fail(path, r);
        return;
    }
    show.directory = directory;
    show.now = isatty(STDOUT_FILENO) ? wb_mount_now(place->mount) : 0;
    show.name = strrchr(place->path, '/') ? strrchr(place->path, '/') + 1 : place->path;
    if (several)
        printf("%s%s:\n", first ? "" : "\n", shown);
    if (text && directory) {
        fail_directory(path);
        return;
    }
    r = text ? list_containing(place, &show, shown, NULL) : list(place, &show, NULL);
    if (r < 0)
        fail(path, r);
    else if (r == 0 && !text)
        printf("%s: %s\n", shown, nothing(place));
}

static void show_path_json(const char *path)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    g_autoptr(JsonBuilder) builder = json_builder_new();
    struct show show = {.operations = operations};
    bool directory, known;
    int64_t r;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", path);
    json_builder_end_object(builder);
    wb_json_list_begin(builder, "versions");
    json_builder_begin_object(builder);
    known = place && times_are_known(place);
    r = known ? probe(place, &directory) : 1;
    if (r == 0 && text && directory) {
        fail_directory(path);
    } else if (r == 0) {
        show.name = strrchr(place->path, '/') ? strrchr(place->path, '/') + 1 : place->path;
        r = text ? list_containing(place, &show, NULL, builder) : list(place, &show, NULL);
    }
    if (r < 0)
        fail(path, r);
    json_builder_end_object(builder);
    wb_json_list_end(builder);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check_options() ?: -1;
    if (r >= 0)
        return r;
    for (int i = 1; i < argc && !wb_cli_interrupted() && !ferror(stdout); i++) {
        if (json)
            show_path_json(argv[i]);
        else
            show_path(argv[i], argc > 2, i == 1);
    }
    r = wb_cli_end();
    return r == WB_EXIT_OK && wrong_usage ? WB_EXIT_USAGE : r;
}
