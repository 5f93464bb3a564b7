/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vstat.h"
#include "containing.h"
#include "common/cli.h"
#include "client/control.h"
#include "common/mount.h"
#include "common/progress.h"
#include "client/path.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/*
 * vstat: lists the changes of a path, newest first. It only sends requests to the mount and prints the replies; its
 * memory use does not grow with the history.
 */

static gboolean json, verbose;
static int limit = G_MININT; /* not given */
static char *since_text, *until_text, *text;

static const GOptionEntry options[] = {
    {"limit", 'l', 0, G_OPTION_ARG_INT, &limit, "Show only the LIMIT most recent changes", "LIMIT"},
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_text, "Show no changes before TIME", "TIME"},
    {"until", 0, 0, G_OPTION_ARG_STRING, &until_text, "Show no changes after TIME", "TIME"},
    {"containing", 0, 0, G_OPTION_ARG_FILENAME, &text, "Show only changes of a file after which it contains TEXT",
     "TEXT"},
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Show exact times and bytes, sizes before and after, whole commands"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vstat",
    .arguments = "PATH...",
    .summary = "Lists the changes of files and directories, newest first: number, time, operation,\n"
               "bytes, size afterwards, and the user and process. Also works for deleted files.",
    .examples = "  vstat report.txt                   all changes of a file\n"
                "  vstat -l 5 src                     the last five changes in a directory\n"
                "  vstat --since yesterday notes.md   changes since 0:00 yesterday\n"
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
    return r;
}

static void show_version(struct wb_table *table, JsonBuilder *builder, const struct show *show,
                         const struct wb_control_version *version, const int *contains)
{
    wb_progress_clear();
    if (!json) {
        show_row(table, show, version);
        return;
    }
    show_json(builder, version, contains);
    wb_json_list_add(builder);
}

/* Fetches up to `limit` versions to the table or as JSON elements. Their number or -errno. */
static int64_t list(const struct wb_place *place, const struct show *show, struct containing *containing)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, since, until, 0);
    g_autofree struct wb_control_version *oldest = NULL;
    struct wb_table *table = json ? NULL : show_table(stdout, show);
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const struct wb_control_version *version;
    int64_t count = 0;
    int r = 0;

    while ((limit < 0 || count < limit) && !wb_cli_interrupted() && !ferror(stdout) &&
           (r = wb_version_walk_next(walk, &version)) == 0) {
        int contains = containing ? containing_after(containing, version) : 1;

        if (contains == -EINTR)
            break;
        if (containing) {
            g_free(oldest);
            oldest = g_memdup2(version, sizeof(*version));
        }
        if (contains == 0 && !(version->flags & WB_CONTROL_VERSION_GAP))
            continue;
        show_version(table, builder, show, version, containing ? &contains : NULL);
        count++;
    }
    if (containing && r == 1 && !since && !(until && !oldest))
        containing_end(containing, oldest);
    wb_progress_clear();
    wb_table_free(table);
    return r < 0 ? r : count;
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

static void fail_directory(const char *path)
{
    wb_cli_fail(path, "is a directory; --containing searches files ('%s --content' searches all below a directory)",
                wb_cli_tool("vfind"));
}

static void show_path(const char *path, bool several, bool first)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    g_autofree char *shown = wb_text_printable(path);
    struct show show = {.verbose = verbose};
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
        printf("%s: nothing recorded%s\n", shown,
               since_text || until_text ? " in that time" : "; it has not changed since the history began");
}

static void show_path_json(const char *path)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_READ);
    g_autoptr(JsonBuilder) builder = json_builder_new();
    struct show show = {0};
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
