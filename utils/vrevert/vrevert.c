/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrevert.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/changed.h"
#include "common/cli.h"
#include "common/moment.h"
#include "common/progress.h"
#include "common/revert_report.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * vrevert: makes a file, or a directory with all below it, what it was at a moment. client/revert/revert.h
 * says how.
 */

static struct wb_moment_options moment_options = {.change = WB_CHANGE_NONE};
static char **commands; /* NULL: not given */
static gboolean dry_run, json, verbose, no_sync, all_links, remove_files;

static const GOptionEntry options[] = {
    {"time", 't', 0, G_OPTION_ARG_STRING, &moment_options.time, "Revert to the state at TIME", "TIME"},
    {"change", 'c', 0, G_OPTION_ARG_INT, &moment_options.change,
     "Revert to the state before the N-th most recent version (1 is the last; see vstat)", "N"},
    {"command", 0, 0, G_OPTION_ARG_STRING_ARRAY, &commands,
     "Revert only what commands that contain TEXT changed, and nothing else changed since", "TEXT"},
    {"all-links", 0, 0, G_OPTION_ARG_NONE, &all_links,
     "Change files with several names in place, which changes names outside PATH, too", NULL},
    {"remove", 0, 0, G_OPTION_ARG_NONE, &remove_files,
     "Remove files that did not exist then without a question on the terminal", NULL},
    {"no-sync", 0, 0, G_OPTION_ARG_NONE, &no_sync, "Do not wait until the changes are on stable storage", NULL},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Print each action"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vrevert",
    .arguments = "PATH...",
    .summary = "Reverts files, and directories with everything below them, to a past state: content, names\n"
               "and attributes. Later changes are kept in the history; a revert can be reverted.",
    .examples = "  vrevert report.txt --change 1         undo the last save\n"
                "  vrevert src --time 14:03 -n           list what would be done\n"
                "  vrevert src --time \"2 hours ago\"      do it\n"
                "  vrevert deleted.txt --time yesterday  restore a deleted file\n"
                "  vrevert *.c doc --time 10m            several paths, all to the same time\n"
                "  vrevert src --command \"rm -rf\"        what this command changed, and no later edits (see vlog)\n",
    .paths_min = 1,
};

static bool wrong_usage; /* found out only when a PATH was looked at */
static unsigned paths_done;

static bool is_alone; /* there is one PATH, so that undoing the newest restore there takes back exactly this one */

/* One PATH, looked at before anything is changed. */
struct request {
    struct wb_place *place;
    struct wb_moment moment;
    struct revert_set *set;
    struct by_command by_command; /* with --command */
};

static void request_free(void *data)
{
    struct request *request = data;

    wb_place_free(request->place);
    wb_moment_clear(&request->moment);
    by_command_clear(&request->by_command);
    g_free(request);
}

/* Whether --time is a time, and not the name of a snapshot. */
static bool is_time(const struct wb_place *place, const char *given, struct wb_time *ret)
{
    const char *text = wb_time_text(place, given);
    g_autoptr(GPtrArray) found = NULL;

    if (wb_time_today(place->mount, text, ret) || wb_time_parse_words(text, wb_mount_now(place->mount), ret) == 0)
        return true;
    return wb_time_parse_free(text, wb_mount_now(place->mount), ret) == 0 &&
           (wb_request_snapshot_list(place->mount->root_fd, place->path, text, &found) < 0 || found->len == 0);
}

/* An age means one instant for all, however long the first of them takes. */
static void fix_time(const struct wb_place *place)
{
    static bool fixed;
    char text[WB_WHEN_TEXT_MAX];
    struct wb_time time;

    if (!fixed && moment_options.time && is_time(place, moment_options.time, &time) &&
        time.kind == WB_TIME_INSTANT && time.instant <= wb_mount_now(place->mount)) {
        moment_options.shown = moment_options.time;
        moment_options.time = g_strdup(wb_when_print_epoch(time.instant, text));
    }
    fixed = true;
}

/* With --command alone, the moment is before the first change by the commands. 0, or the exit status. */
static int fix_time_by_command(const struct wb_place *place)
{
    struct by_command by_command;
    char text[WB_WHEN_TEXT_MAX];
    int r = by_command_find(place, 0, (const char *const *)commands, &by_command);

    if (r == 0 && by_command.first == 0)
        r = wb_cli_fail(place->given, "no such command changed anything there; '%s' lists the commands",
                        wb_cli_tool("vlog"));
    if (r == 0)
        moment_options.time = g_strdup(wb_when_print_epoch(by_command.first - 1, text));
    by_command_clear(&by_command);
    return r;
}

/* Finds PATH and the moment. 0, or the exit status after an error line. */
static int look_for(const char *path, GPtrArray *requests)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, dry_run ? WB_MOUNT_READ : WB_MOUNT_WRITE);
    _cleanup_moment_ struct wb_moment moment = {0};
    struct request *request;
    struct stat st;
    int r;

    if (!place)
        return WB_EXIT_FAILED;
    if (wb_place_stat(place, &st) == 0 && (st.st_ino & WB_PAST_INODE))
        return wb_cli_fail(path, "is a past state, which cannot change; name the present path and give the time with "
                                 "--time");
    r = commands && !moment_options.time ? fix_time_by_command(place) : 0;
    if (r != 0)
        return r;
    fix_time(place);
    r = wb_moment_resolve(place, &moment_options, &moment);
    if (r == 0 && !moment.path && !*place->path)
        r = wb_cli_fail(path, "did not exist then; give a later time");
    if (r != 0)
        return r;
    request = g_new0(struct request, 1);
    request->place = g_steal_pointer(&place);
    request->moment = moment;
    moment = (struct wb_moment){0};
    g_ptr_array_add(requests, request);
    return 0;
}

/* PATHs of one mount that are reverted to the same time are one set. */
static GPtrArray *make_sets(const GPtrArray *requests)
{
    GPtrArray *sets = g_ptr_array_new_with_free_func(wb_revert_set_free);

    for (guint i = 0; i < requests->len; i++) {
        struct request *request = requests->pdata[i];

        for (guint j = 0; j < i && !request->set; j++) {
            const struct request *other = requests->pdata[j];

            if (other->place->mount == request->place->mount && other->moment.when == request->moment.when)
                request->set = other->set;
        }
        if (!request->set) {
            request->set = wb_revert_set_new();
            g_ptr_array_add(sets, request->set);
        }
        wb_revert_set_add(request->set, request->place->path);
    }
    return sets;
}

/* Which part of a directory has to be looked at; NULL: all of it. */
static void find_changed(const struct request *request, struct revert_request *wanted, struct wb_changed **changed)
{
    const struct wb_place *place = request->place;
    struct stat st;

    *changed = wb_changed_free(*changed);
    if (commands) {
        wanted->extent = wb_changed_extent;
        wanted->extent_data = request->by_command.changed;
        return;
    }
    if (request->moment.path && wb_place_stat(place, &st) == 0 && S_ISDIR(st.st_mode) &&
        wb_changed_since(place->mount->root_fd, place->path, request->moment.when, changed) < 0)
        errno = 0;
    wanted->extent = *changed ? wb_changed_extent_of_names : NULL;
    wanted->extent_data = *changed;
}

/* Not in the dry run that prepares the question. */
static void report_kept(const struct request *request)
{
    for (guint i = 0; request->by_command.kept && i < request->by_command.kept->len; i++) {
        g_autofree char *path = wb_path_join(request->place->given, request->by_command.kept->pdata[i]);

        wb_cli_warn(path, "kept, because another command changed it, too; '%s' lists its versions",
                    wb_cli_tool("vstat"));
    }
}

/* Whether nothing is reverted, PATH itself neither. */
static bool is_kept(const struct request *request)
{
    return commands && wb_changed_extent(request->by_command.changed, request->place->path) == REVERT_NOTHING;
}

static void run(struct request *request)
{
    _cleanup_changed_ struct wb_changed *changed = NULL;
    struct wb_place *place = request->place;
    const struct wb_moment *moment = &request->moment;
    struct wb_control_hello hello;
    struct wb_revert_report report = {.place = place, .when = moment->when, .dry = dry_run, .json = json,
                            .verbose = verbose || dry_run, .all_links = all_links};
    struct revert_listener listener = {.event = wb_revert_report_event, .data = &report};
    struct revert_request wanted = {.mount = place->mount, .path = place->path, .source = moment->path,
                                    .when = moment->when, .set = request->set, .dry = dry_run, .sync = !no_sync,
                                    .all_links = all_links, .listener = &listener};
    struct revert_result result = {0};
    int64_t before;

    /* After all that was changed so far, and before what follows. */
    if (wb_mount_refresh(place->mount, &hello) < 0) {
        wb_cli_fail(place->given, "the daemon does not answer");
        return;
    }
    before = hello.now;
    if (commands &&
        by_command_find(place, moment->when + 1, (const char *const *)commands, &request->by_command) != 0)
        return;
    report_kept(request);
    wb_progress_begin();
    find_changed(request, &wanted, &changed);
    wb_progress_clear();
    if (!json && !dry_run && !remove_files && !is_kept(request) && !wb_revert_confirm(&report, &wanted))
        return;
    /* The answer may have taken long. */
    if (!json && !dry_run && !remove_files && isatty(STDIN_FILENO))
        find_changed(request, &wanted, &changed);
    wb_revert_report_begin(&report);
    wb_progress_begin();
    if (!is_kept(request))
        wb_revert_run(&wanted, &result);
    wb_progress_clear();
    if (result.unplaced > 0 && !dry_run)
        wb_cli_warn(place->given, "some entries could not be restored, so nothing was removed; fix the errors "
                                  "above and run this again");
    if (!moment->path && !json && result.counts[REVERT_REMOVE] > 0)
        printf("%s did not exist then and %s removed\n", place->given, dry_run ? "would be" : "was");
    /* An incomplete dry run is not printed. */
    if (json || !dry_run || !wb_cli_interrupted())
        wb_revert_report_end(&report, &result, before);
    if (is_alone && !json && !dry_run && wb_revert_did_anything(&result)) {
        g_autofree char *quoted = wb_text_shell(place->given);

        printf("or:   %s %s\n", wb_cli_tool("vundo"), quoted);
    }
    if (!wb_cli_interrupted())
        paths_done++;
    g_object_unref(report.builder);
}

int main(int argc, char **argv)
{
    g_autoptr(GPtrArray) requests = g_ptr_array_new_with_free_func(request_free);
    g_autoptr(GPtrArray) sets = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (wb_moment_check(&moment_options) != 0)
        return WB_EXIT_USAGE;
    if (commands && moment_options.change != WB_CHANGE_NONE)
        return wb_cli_usage("--command and --change exclude each other");
    if (commands && !moment_options.time && argc > 2)
        return wb_cli_usage("--command without --time is for one PATH");
    if (!moment_options.time && moment_options.change == WB_CHANGE_NONE && !commands)
        return wb_cli_usage("the state is missing: use --time TIME or --change N ('%s' lists the versions)",
                            wb_cli_tool("vstat"));
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++) {
        wb_json_separate();
        wrong_usage |= look_for(argv[i], requests) == WB_EXIT_USAGE;
    }
    sets = make_sets(requests);
    is_alone = argc == 2;
    for (guint i = 0; i < requests->len && !wb_cli_interrupted(); i++) {
        wb_json_separate();
        run(requests->pdata[i]);
    }
    if (dry_run)
        wb_cli_stopped("nothing was changed");
    else
        wb_cli_stopped("%u of %d paths reverted; run the same command again to finish", paths_done, argc - 1);
    r = wb_cli_end();
    return r == WB_EXIT_OK && wrong_usage ? WB_EXIT_USAGE : r;
}
