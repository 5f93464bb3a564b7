/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/revert_report.h"

#include "client/past_path.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;     /* of one action */
    const char *one, *many; /* in the summary */
} words[REVERT_ACTIONS] = {
    [REVERT_RESTORE] = {"restore", "restored", "restored"},
    [REVERT_RENAME] = {"rename", "renamed back", "renamed back"},
    [REVERT_LINK] = {"link", "linked", "linked"},
    [REVERT_COPY] = {"copy", "copied", "copied"},
    [REVERT_REWRITE] = {"rewrite", "file rewritten", "files rewritten"},
    [REVERT_SET] = {"set", "with attributes set", "with attributes set"},
    [REVERT_BREAK] = {"break", "link broken", "links broken"},
    [REVERT_REMOVE] = {"remove", "removed", "removed"},
};

static char *report_shown(const struct wb_revert_report *report, const char *path)
{
    const struct wb_place *place = report->place;
    const char *rest;

    if (wb_path_below(path, place->path, &rest))
        return wb_path_join(place->given, rest);
    return wb_path_join(place->mount->private ? place->mount->hello.source : place->mount->point, path);
}

static void report_json(struct wb_revert_report *report, enum revert_action action, const char *shown,
                        const char *other, uint64_t bytes)
{
    json_builder_begin_object(report->builder);
    wb_json_string(report->builder, "action", words[action].name);
    wb_json_string(report->builder, "path", shown);
    if (other)
        wb_json_string(report->builder, "from", other);
    if (bytes > 0)
        wb_json_int(report->builder, "bytes", (int64_t)bytes);
    json_builder_end_object(report->builder);
    wb_json_list_add(report->builder);
}

static void report_action(struct wb_revert_report *report, const struct revert_event *event)
{
    g_autofree char *shown = report_shown(report, event->path);
    g_autofree char *from = event->other ? report_shown(report, event->other) : NULL;
    char size[WB_TEXT_SIZE_MAX];

    if (report->json) {
        report_json(report, event->action, shown, from, event->bytes);
    } else if (report->verbose) {
        g_autofree char *name = wb_text_printable(shown);
        g_autofree char *source = from ? wb_text_printable(from) : NULL;

        wb_progress_clear();
        printf("%-8s %s%s%s", words[event->action].name, name, source ? "  from " : "", source ? source : "");
        if (event->bytes > 0)
            printf("  (%s)", wb_text_size(event->bytes, size));
        putchar('\n');
    }
}

static void report_break(struct wb_revert_report *report, const struct revert_event *event)
{
    g_autofree char *shown = report_shown(report, event->path);
    g_autofree char *name = wb_text_printable(shown);
    g_autofree char *keeper = event->other ? report_shown(report, event->other) : NULL;
    g_autofree char *keeper_name = keeper ? wb_text_printable(keeper) : NULL;
    const char *would = report->dry ? "would " : "";

    if (report->json) {
        report_json(report, REVERT_BREAK, shown, keeper, event->bytes);
        return;
    }
    wb_progress_clear();
    if (keeper_name)
        printf("%s: link %sbroken; %s %s its content\n", name, report->dry ? "would be " : "", keeper_name,
               report->dry ? "would keep" : "keeps");
    else
        printf("%s: link %sbroken; its other names %skeep their content\n", name, report->dry ? "would be " : "",
               would);
}

static void report_shared(const struct wb_revert_report *report, const char *path)
{
    g_autofree char *shown = report_shown(report, path);
    g_autofree char *name = wb_text_printable(shown);

    if (report->json)
        return;
    wb_progress_clear();
    printf("%s: its other names %s with it (--all-links)\n", name, report->dry ? "would change" : "changed");
}

static void report_failure(const struct wb_revert_report *report, const struct revert_event *event)
{
    g_autofree char *shown = report_shown(report, event->path);
    const char *what = event->what ? event->what : "";
    struct wb_error why;

    wb_progress_clear();
    if (event->error == -EINTR)
        return; /* wb_cli_end reports it */
    if (event->is_whole) {
        wb_cli_fail(shown, "%s", what);
        return;
    }
    wb_moment_unknown(report->place->mount, event->path, report->when, event->error, &why);
    wb_cli_fail(shown, "%s%s%s", what, *what ? ": " : "", why.text);
}

void wb_revert_report_event(void *data, const struct revert_event *event)
{
    struct wb_revert_report *report = data;

    switch (event->kind) {
    case REVERT_EVENT_ACTION:
        if (event->action == REVERT_BREAK)
            report_break(report, event);
        else
            report_action(report, event);
        break;
    case REVERT_EVENT_SHARED:
        report_shared(report, event->path);
        break;
    case REVERT_EVENT_FAILED:
        report_failure(report, event);
        break;
    }
}

void wb_revert_report_begin(struct wb_revert_report *report)
{
    JsonBuilder *builder = report->builder = json_builder_new();

    if (!report->json)
        return;
    json_builder_begin_object(builder);
    if (report->op)
        wb_json_string(builder, "op", report->op);
    wb_json_string(builder, "path", report->place->given);
    wb_json_when(builder, report->when);
    wb_json_bool(builder, "dry_run", report->dry);
    json_builder_end_object(builder);
    wb_json_list_begin(builder, "actions");
    fflush(stdout);
}

static char *summary(const struct revert_result *result)
{
    GString *text = g_string_new(NULL);
    char size[WB_TEXT_SIZE_MAX];

    for (int i = 0; i < REVERT_ACTIONS; i++) {
        if (result->counts[i] == 0)
            continue;
        g_string_append_printf(text, "%s%" G_GUINT64_FORMAT " %s", text->len ? ", " : "", result->counts[i],
                               result->counts[i] == 1 ? words[i].one : words[i].many);
        if (i == REVERT_REWRITE && result->bytes > 0)
            g_string_append_printf(text, " (%s)", wb_text_size(result->bytes, size));
    }
    if (text->len == 0)
        g_string_append(text, result->failed > 0 ? "nothing was changed"
                                                 : "nothing to do; it has not changed since then");
    return g_string_free(text, FALSE);
}

bool wb_revert_did_anything(const struct revert_result *result)
{
    for (int i = 0; i < REVERT_ACTIONS; i++) {
        if (result->counts[i] > 0)
            return true;
    }
    return false;
}

/* The command that takes the changes of this revert back; g_free. */
static char *reverse_of(const struct wb_revert_report *report, int64_t before)
{
    g_autofree char *quoted = wb_text_shell(report->place->given);
    char epoch[WB_WHEN_TEXT_MAX];

    if (report->reverse)
        return g_strdup(report->reverse);
    return g_strdup_printf("%s %s --time %s%s", wb_cli_tool("vrevert"), quoted, wb_when_print_epoch(before, epoch),
                           report->all_links ? " --all-links" : "");
}

static void end_json(JsonBuilder *builder, const struct revert_result *result, const char *undo)
{
    json_builder_begin_object(builder);
    json_builder_set_member_name(builder, "counts");
    json_builder_begin_object(builder);
    for (int i = 0; i < REVERT_ACTIONS; i++)
        wb_json_int(builder, words[i].name, (int64_t)result->counts[i]);
    json_builder_end_object(builder);
    wb_json_int(builder, "failed", (int64_t)result->failed);
    if (undo)
        wb_json_string(builder, "undo", undo);
    else
        wb_json_null(builder, "undo");
    json_builder_end_object(builder);
    wb_json_list_end(builder);
}

void wb_revert_report_end(const struct wb_revert_report *report, const struct revert_result *result, int64_t before)
{
    g_autofree char *name = wb_text_printable(report->place->given);
    g_autofree char *reverse = reverse_of(report, before);
    g_autofree char *text = summary(result);
    char when[WB_WHEN_TEXT_MAX], then[WB_WHEN_TEXT_MAX];
    bool undo = wb_revert_did_anything(result) && !report->dry;

    wb_progress_clear();
    if (report->json) {
        end_json(report->builder, result, undo ? reverse : NULL);
        return;
    }
    printf("%s%s as of %s (%s): %s\n", report->dry ? "would revert " : "", name,
           wb_when_print(report->when, 1, when), wb_when_print_epoch(report->when, then), text);
    if (undo)
        printf("%s: %s\n", report->reverse_word ? report->reverse_word : "undo", reverse);
}

/* ---- the question -------------------------------------------------------------------------------- */

/* Names that are listed in the question. */
#define ASKED_MAX 10

struct removal {
    const struct wb_revert_report *report;
    GPtrArray *names; /* the first ones */
    uint64_t count;
    uint64_t overwritten; /* files that would get other content */
};

static void note_removal(void *data, const struct revert_event *event)
{
    struct removal *removal = data;

    if (event->kind == REVERT_EVENT_ACTION && event->action == REVERT_REWRITE)
        removal->overwritten++;
    if (event->kind != REVERT_EVENT_ACTION || event->action != REVERT_REMOVE)
        return;
    if (removal->count++ < ASKED_MAX) {
        g_autofree char *shown = report_shown(removal->report, event->path);

        g_ptr_array_add(removal->names, wb_text_printable(shown));
    }
}

char *wb_revert_loss(uint64_t overwritten, uint64_t removed)
{
    g_autofree char *count = wb_text_count(removed, "name that did", "names that did");
    g_autofree char *files = wb_text_count(overwritten, "file", "files");

    if (overwritten > 0 && removed > 0)
        return g_strdup_printf("this overwrites %s and removes %s not exist then", files, count);
    if (overwritten > 0)
        return g_strdup_printf("this overwrites %s", files);
    return removed > 0 ? g_strdup_printf("this removes %s not exist then", count) : NULL;
}

static bool ask(const struct wb_revert_report *report, const struct removal *removal)
{
    g_autofree char *loss = wb_revert_loss(removal->overwritten, removal->count);
    char answer[16] = "";

    fflush(stdout);
    fprintf(stderr, "%s: %s\n", wb_cli_name(), loss);
    for (guint i = 0; i < removal->names->len; i++)
        fprintf(stderr, "    %s\n", (const char *)removal->names->pdata[i]);
    if (removal->count > removal->names->len)
        fprintf(stderr, "    and %" G_GUINT64_FORMAT " more\n", removal->count - removal->names->len);
    fprintf(stderr, "The history keeps them. Remove? [y/N] ");
    if (!fgets(answer, sizeof(answer), stdin) || wb_cli_interrupted())
        answer[0] = '\0';
    if (g_ascii_tolower(answer[0]) == 'y')
        return true;
    if (!wb_cli_interrupted())
        wb_cli_fail(report->place->given, "nothing was changed; --remove does it without a question");
    return false;
}

bool wb_revert_confirm(struct wb_revert_report *report, const struct revert_request *request)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    struct removal removal = {.report = report, .names = names};
    struct revert_listener listener = {.event = note_removal, .data = &removal};
    struct revert_request trial = *request;
    struct revert_result result;

    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return true;
    trial.set = wb_revert_set_new();
    wb_revert_set_add(trial.set, request->path);
    trial.dry = true;
    trial.listener = &listener;
    wb_progress_begin();
    wb_revert_run(&trial, &result);
    wb_progress_clear();
    wb_revert_set_free(trial.set);
    return !result.interrupted && (removal.count == 0 || ask(report, &removal));
}
