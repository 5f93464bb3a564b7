/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vsnap diff: the command line, the moments, and how what was found is shown. */
#include "vsnap.h"

#include "common/json.h"
#include "common/moment.h"
#include "common/pager.h"
#include "client/past_path.h"
#include "common/snapshots.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include "diff.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    char letter;
    const char *word;
    enum wb_color color;
} kinds[] = {
    [CHANGE_ADDED] = {'A', "added", WB_COLOR_GREEN},
    [CHANGE_REMOVED] = {'D', "removed", WB_COLOR_RED},
    [CHANGE_CONTENT] = {'M', "content", WB_COLOR_YELLOW},
    [CHANGE_TYPE] = {'T', "type", WB_COLOR_YELLOW},
    [CHANGE_ATTRIBUTES] = {'P', "attributes", WB_COLOR_BLUE},
    [CHANGE_RENAMED] = {'R', "renamed", WB_COLOR_CYAN},
};

/* ---- output ---------------------------------------------------------------------------------- */

static char *whole_path(const struct diff *diff, const char *path)
{
    if (strcmp(diff->given, ".") == 0)
        return g_strdup(*path ? path : ".");
    return wb_path_join(diff->given, path);
}

static char *shown_path(const struct diff *diff, const char *path, const struct wb_control_entry *entry)
{
    g_autofree char *whole = whole_path(diff, path);
    g_autofree char *shown = wb_text_printable(whole);

    return g_strconcat(shown, S_ISDIR(entry->mode) ? "/" : "", NULL);
}

static void print_text(const struct diff *diff)
{
    for (guint i = 0; i < diff->changes->len && !ferror(stdout); i++) {
        const struct change *change = diff->changes->pdata[i];
        g_autofree char *path = shown_path(diff, change->path, change->after ? change->after : change->before);
        g_autofree char *from = change->from ? shown_path(diff, change->from, change->before) : NULL;

        printf("%s%c %s%s%s%s\n", wb_color(kinds[change->kind].color), kinds[change->kind].letter, from ? from : "",
               from ? " -> " : "", path, wb_color(WB_COLOR_OFF));
    }
    if (diff->changes->len == 0 && !diff->failed && isatty(STDOUT_FILENO))
        puts("no differences");
}

static const char *type_of(const struct wb_control_entry *entry)
{
    switch (entry->mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    default: return "device";
    }
}

static void build_state(JsonBuilder *builder, const char *key, const struct wb_control_entry *entry)
{
    g_autofree char *mode = entry ? g_strdup_printf("%04o", (unsigned)entry->mode & 07777) : NULL;

    if (!entry) {
        wb_json_null(builder, key);
        return;
    }
    json_builder_set_member_name(builder, key);
    json_builder_begin_object(builder);
    wb_json_string(builder, "type", type_of(entry));
    wb_json_int(builder, "size", (int64_t)entry->length);
    wb_json_string(builder, "mode", mode);
    wb_json_int(builder, "uid", entry->uid);
    wb_json_int(builder, "gid", entry->gid);
    json_builder_end_object(builder);
}

static void print_json(const struct diff *diff)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_time(builder, "from", diff->when[0]);
    wb_json_time(builder, "to", diff->when[1]);
    wb_json_bool(builder, "present", diff->present);
    json_builder_set_member_name(builder, "changes");
    json_builder_begin_array(builder);
    for (guint i = 0; i < diff->changes->len; i++) {
        const struct change *change = diff->changes->pdata[i];
        g_autofree char *path = whole_path(diff, change->path);
        g_autofree char *from = change->from ? whole_path(diff, change->from) : NULL;

        json_builder_begin_object(builder);
        wb_json_string(builder, "change", kinds[change->kind].word);
        wb_json_string(builder, "path", path);
        if (from)
            wb_json_string(builder, "from", from);
        build_state(builder, "before", change->before);
        build_state(builder, "after", change->after);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
    wb_json_bool(builder, "complete", !diff->failed);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

/* ---- the moments ----------------------------------------------------------------------------- */

/* 0 or an exit status. */
static int find_moment(const struct wb_place *place, const char *which, const char *text, int64_t *ret)
{
    struct wb_time time;
    int r = wb_time_of(place, which, text, &time);

    if (r != 0)
        return r;
    if (time.kind != WB_TIME_INSTANT)
        return wb_cli_usage("%s: '%s' counts versions of one file; use a time or a snapshot here", which, text);
    r = wb_time_not_future(place, which, text, time.instant);
    if (r == 0)
        r = wb_moment_is_known(place, text, time.instant);
    if (r == 0)
        *ret = time.instant;
    return r;
}

static int unknown(const struct wb_place *place, int64_t when, int error)
{
    struct wb_error why;

    wb_moment_unknown(place->mount, place->path, when, error, &why);
    return wb_cli_fail(place->given, "%s", why.text);
}

/* Whether the second of two words is a moment: else it is the PATH. */
static bool is_moment(const char *word)
{
    _cleanup_place_ struct wb_place *place = NULL;
    g_autoptr(GPtrArray) found = NULL;
    struct wb_time time;
    struct stat st;

    if (vsnap_is_path(word))
        return false;
    if (wb_time_parse_words(word, wb_when_now(), &time) == 0 || lstat(word, &st) < 0)
        return true;
    place = vsnap_place(NULL, WB_MOUNT_READ);
    return place && wb_request_snapshot_list(place->mount->root_fd, "", word, &found) == 0 && found->len > 0;
}

/* The list of changes has paths of the present; PATH may be below a past directory, as in @14:03/dir. */
static bool is_present(const struct wb_place *place)
{
    struct stat st;

    return wb_place_stat(place, &st) == 0 && !(st.st_ino & WB_PAST_INODE);
}

static int run(const char *from, const char *to, const char *path, bool json, bool all)
{
    _cleanup_place_ struct wb_place *place = vsnap_place(path, WB_MOUNT_READ);
    g_autofree char *before = NULL;
    g_autofree char *after = NULL;
    struct diff diff = {.present = !to, .given = path ? path : "."};
    int r;

    if (!place)
        return WB_EXIT_FAILED;
    /* The present is the state as of now: what changes meanwhile does not disturb. */
    diff.when[1] = wb_mount_now(place->mount);
    r = find_moment(place, "A", from, &diff.when[0]);
    if (r == 0 && to)
        r = find_moment(place, "B", to, &diff.when[1]);
    if (r != 0)
        return r;
    diff.mount = place->mount;
    diff.path = place->path;
    r = wb_moment_path(place->mount, place->path, diff.when[0], &before);
    if (r < 0 && r != -ENOENT)
        return unknown(place, diff.when[0], r);
    r = wb_moment_path(place->mount, place->path, diff.when[1], &after);
    if (r < 0 && r != -ENOENT)
        return unknown(place, diff.when[1], r);
    if (!before && !after)
        return wb_cli_fail(diff.given, "did not exist then, nor %s", to ? "at the other time" : "does it exist now");
    wb_progress_begin();
    if (before && after && !all && is_present(place) &&
        wb_changed_collect(place->mount->root_fd, MIN(diff.when[0], diff.when[1]), MAX(diff.when[0], diff.when[1]),
                           WB_CHANGES_MOST, &diff.changed) < 0)
        errno = 0;
    diff_compare(&diff, (char *const[2]){before, after});
    wb_progress_clear();
    if (wb_cli_interrupted()) {
        diff_clear(&diff);
        return wb_cli_fail(diff.given, "interrupted; nothing is shown, because the result is incomplete");
    }
    if (json)
        print_json(&diff);
    else
        print_text(&diff);
    diff_clear(&diff);
    return wb_cli_end();
}

int vsnap_diff(int argc, char **argv)
{
    static gboolean json, no_pager, all;
    static char *color;
    static const GOptionEntry options[] = {
        {"all", 'a', 0, G_OPTION_ARG_NONE, &all,
         "Compare everything, also what was not changed according to the history", NULL},
        WB_CLI_JSON(&json),
        WB_PAGER_OPTIONS(&color, &no_pager),
        WB_CLI_END,
    };
    static const struct wb_cli cli = {
        .name = "vsnap",
        .verb = "diff",
        .arguments = "A [B] [PATH]",
        .summary = "Lists the differences below PATH (the current directory) between the times A and B,\n"
                   "each a snapshot or any TIME; without B, the present. One line per path:\n"
                   "  A added    D removed    R renamed, old -> new    M content changed\n"
                   "  T type changed    P only permissions or owner changed",
        .examples = "  vsnap diff before-upgrade                  changes up to now\n"
                    "  vsnap diff yesterday 14:03 ./src           changes between two times\n"
                    "  vsnap diff before after etc | grep '^D'    removed files\n",
    };
    const char *to = NULL, *path = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0 && wb_color_choose(color) != 0)
        r = WB_EXIT_USAGE;
    if (r >= 0)
        return r;
    if (argc < 2)
        return wb_cli_usage("A is missing: give the name of a snapshot, or a TIME");
    if (argc > 4)
        return wb_cli_usage("at most two times and one PATH ('%s' is extra)", argv[4]);
    if (argc == 4 || (argc == 3 && is_moment(argv[2])))
        to = argv[2];
    else if (argc == 3)
        path = argv[2];
    if (argc == 4)
        path = argv[3];
    if (wb_time_check("A", argv[1]) != 0 || (to && wb_time_check("B", to) != 0))
        return WB_EXIT_USAGE;
    if (!json && !no_pager)
        wb_pager_begin();
    return run(argv[1], to, path, json, all);
}
