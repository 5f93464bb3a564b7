/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include "client/fd.h"
#include "common/moment.h"
#include "common/pager.h"
#include "common/progress.h"
#include "common/snapshots.h"
#include "content/states.h"
#include "wayback/at_name.h"
#include "wayback/when.h"
#include <string.h>
#include <sys/stat.h>

/*
 * vfind: every name that ever existed below a directory. vfind.h says how the tree of them is walked.
 */

static gboolean json, verbose, all, zero, ignore_case, regex, deleted, present, moved, no_pager;
static char *since_text, *until_text, *types, *color, *content;
static int maxdepth = -1;

static const GOptionEntry options[] = {
    {"ignore-case", 'i', 0, G_OPTION_ARG_NONE, &ignore_case, "Ignore the difference of upper and lower case", NULL},
    {"regex", 0, 0, G_OPTION_ARG_NONE, &regex, "PATTERN is a regular expression, found anywhere in the name", NULL},
    {"deleted", 0, 0, G_OPTION_ARG_NONE, &deleted, "List only deleted names", NULL},
    {"present", 0, 0, G_OPTION_ARG_NONE, &present, "List only names that exist now", NULL},
    {"moved", 0, 0, G_OPTION_ARG_NONE, &moved, "List only names whose file or directory has another name now", NULL},
    {"since", 0, 0, G_OPTION_ARG_STRING, &since_text, "List only names that existed at TIME or later", "TIME"},
    {"until", 0, 0, G_OPTION_ARG_STRING, &until_text, "List only names that existed at TIME or earlier", "TIME"},
    {"type", 0, 0, G_OPTION_ARG_STRING, &types, "List only files (f), directories (d), links (l), p, s, b, c",
     "TYPES"},
    {"content", 0, 0, G_OPTION_ARG_FILENAME, &content,
     "List only files of which a recorded version, or the present one, contains TEXT", "TEXT"},
    {"depth", 'd', 0, G_OPTION_ARG_INT, &maxdepth, "Descend at most N levels below PATH", "N"},
    {"maxdepth", 0, G_OPTION_FLAG_HIDDEN, G_OPTION_ARG_INT, &maxdepth, NULL, NULL}, /* its former name */
    {"all", 'a', 0, G_OPTION_ARG_NONE, &all, "List all periods in which a name existed, not only the last one", NULL},
    {"null", '0', 0, G_OPTION_ARG_NONE, &zero, "Print only the paths, each ended by NUL (for xargs -0)", NULL},
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "As --all, with the users and processes that removed the names"),
    WB_PAGER_OPTIONS(&color, &no_pager),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vfind",
    .arguments = "[PATTERN] [PATH]",
    .summary = "Lists every name that ever existed below PATH (this directory): present names, deleted ones (D) with\n"
               "the command that restores them, and moved ones (M) with their new path. PATTERN is a shell pattern\n"
               "for the name, or for the path below PATH if it contains a '/'.",
    .examples = "  vfind 'report*'               find a lost report\n"
                "  vfind --deleted --type f '*' src  all deleted files of src\n"
                "  vfind 'src/*.c' --since 2d    files that existed at some time of the last two days\n"
                "  vfind --content 'dear Ann' ./  files that have, or once had, this text\n"
                "  vfind ./                      everything\n"
                "  vfind --json | jq -r 'select(.status == \"deleted\") | .restore'\n",
    .paths_min = 0,
    .paths_max = 2,
};

static struct find find = {.maxdepth = -1};

static int check_times(void)
{
    return wb_time_range(find.place, since_text, until_text, wb_cli_tool("vstat"), &find.match.since,
                         &find.match.until);
}

/* Whether --content can find anything with the other options; 0 or WB_EXIT_USAGE. */
static int check_content(const struct find_match *match)
{
    bool files = match->type_count == 0;

    if (!content)
        return 0;
    if (!*content)
        return wb_cli_usage("--content: the text is empty");
    for (unsigned i = 0; i < match->type_count; i++)
        files = files || match->types[i] == S_IFREG;
    return files ? 0 : wb_cli_usage("--content finds files only; add f to --type, or leave --type out");
}

static int check_options(void)
{
    struct find_match *match = &find.match;
    int r = check_times();

    if (r == 0 && types)
        r = find_match_types(match, types);
    if (r == 0)
        r = check_content(match);
    if (r == 0)
        r = wb_color_choose(color);
    if (r != 0)
        return r;
    if (json && zero)
        return wb_cli_usage("--json and --null exclude each other");
    if (maxdepth < -1 || maxdepth == 0)
        return wb_cli_usage("--depth: %d is invalid; it must be 1 or more", maxdepth);
    match->status = (deleted ? FIND_DELETED : 0) | (present ? FIND_PRESENT : 0) | (moved ? FIND_MOVED : 0);
    match->ignore_case = ignore_case;
    find.maxdepth = maxdepth;
    find.all = (all || verbose) && !zero;
    find.verbose = verbose;
    find.json = json;
    find.zero = zero;
    return 0;
}

/*
 * With one argument: is it a path? A pattern for names would match nothing then. With --content it may be the name of a
 * directory, which would not be listed.
 */
static bool is_path(const char *text)
{
    return (content && g_file_test(text, G_FILE_TEST_IS_DIR)) || *text == '/' || g_str_has_suffix(text, "/") ||
           strcmp(text, ".") == 0 || strcmp(text, "..") == 0 || g_str_has_prefix(text, "./") ||
           g_str_has_prefix(text, "../");
}

static int take_pattern(const char *pattern)
{
    struct find_match *match = &find.match;

    match->pattern = pattern;
    match->whole = strchr(pattern, '/') != NULL;
    return regex ? find_match_regex(match) : 0;
}

/* Something that exists now and has this name itself: it wins over the past. */
static bool is_real(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && !(st.st_ino & WB_PAST_INODE);
}

/* PATH for commands that change the present: NAME@TIME is NAME. */
static char *present_path(const struct wb_place *place)
{
    g_auto(GStrv) parts = g_strsplit(place->given, "/", -1);
    GString *path = g_string_new(NULL);
    const char *end = place->given;
    struct wb_time time;

    for (char **part = parts; *part; part++) {
        g_autofree char *given = g_strndup(place->given, (gsize)(end - place->given) + strlen(*part));
        const char *text = wb_at_split(*part, place->mount->at_sign, NULL);

        end += strlen(*part) + 1;
        if (text && wb_time_parse_name(text, wb_when_now(), &time) == 0 && !is_real(given))
            (*part)[text - *part - 1] = '\0';
        if (part > parts && (**part || (part == parts + 1 && !*parts[0])))
            g_string_append_c(path, '/');
        g_string_append(path, *part);
    }
    if (strcmp(path->str, ".") == 0)
        g_string_truncate(path, 0);
    return g_string_free(path, FALSE);
}

static void run(void)
{
    _cleanup_text_search_ struct wb_text_search *search = content ? wb_text_search_new(content) : NULL;

    if (content) {
        find.states = wb_states_new(find.place->mount, search);
        wb_progress_begin();
    }
    find_run(&find);
    if (content)
        wb_progress_clear();
    find.states = wb_states_free(find.states);
}

int main(int argc, char **argv)
{
    const char *path = ".";
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r < 0)
        r = check_options() ?: -1;
    if (r >= 0)
        return r;
    if (argc == 3)
        path = argv[2];
    else if (argc == 2 && is_path(argv[1]))
        path = argv[1];
    if (argc > 1 && path != argv[1] && take_pattern(argv[1]) != 0)
        return WB_EXIT_USAGE;
    find.place = wb_place_find(path, WB_MOUNT_READ);
    if (!find.place)
        return wb_cli_end();
    r = check_times();
    if (r != 0)
        return r;
    find.prefix = present_path(find.place);
    find.pages = !json && !zero && !no_pager;
    if (find.pages && !content) {
        wb_pager_begin();
        find.pages = false;
    }
    run();
    if (find.shown == 0 && argc == 2 && path != argv[1] && g_file_test(argv[1], G_FILE_TEST_IS_DIR))
        wb_cli_warn(NULL, "no name matches '%s'; to list the directory of that name: %s %s/", argv[1],
                    wb_cli_tool("vfind"), argv[1]);
    find.place = wb_place_free(find.place);
    return wb_cli_end();
}
