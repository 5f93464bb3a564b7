/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "report.h"
#include "common/cli.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>

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

static char *report_shown(const struct report *report, const char *path)
{
    const struct wb_place *place = report->place;
    const char *rest;

    if (wb_path_below(path, place->path, &rest))
        return wb_path_join(place->given, rest);
    return wb_path_join(place->mount->private ? place->mount->hello.source : place->mount->point, path);
}

static void report_json(struct report *report, enum revert_action action, const char *shown,
                        const char *other, uint64_t bytes)
{
    fputs(report->printed++ > 0 ? ",\n  " : "\n  ", stdout);
    json_builder_begin_object(report->builder);
    wb_json_string(report->builder, "action", words[action].name);
    wb_json_string(report->builder, "path", shown);
    if (other)
        wb_json_string(report->builder, "from", other);
    if (bytes > 0)
        wb_json_int(report->builder, "bytes", (int64_t)bytes);
    json_builder_end_object(report->builder);
    wb_json_print(stdout, report->builder);
}

static void report_action(struct report *report, const struct revert_event *event)
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

static void report_break(struct report *report, const struct revert_event *event)
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

static void report_shared(const struct report *report, const char *path)
{
    g_autofree char *shown = report_shown(report, path);
    g_autofree char *name = wb_text_printable(shown);

    if (report->json)
        return;
    wb_progress_clear();
    printf("%s: its other names %s with it (--all-links)\n", name, report->dry ? "would change" : "changed");
}

static void report_failure(const struct report *report, const struct revert_event *event)
{
    g_autofree char *shown = report_shown(report, event->path);
    const char *what = event->what ? event->what : "";

    wb_progress_clear();
    if (event->error == -EINTR)
        return; /* wb_cli_end reports it */
    if (event->is_whole)
        wb_cli_fail(shown, "%s", what);
    else
        wb_cli_fail(shown, "%s%s%s", what, *what ? ": " : "", wb_errno_text(event->error));
}

void report_event(void *data, const struct revert_event *event)
{
    struct report *report = data;

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

void report_begin(struct report *report)
{
    g_autofree char *literal = wb_json_literal(report->place->given);
    char iso[WB_WHEN_TEXT_MAX];

    report->builder = json_builder_new();
    if (report->json)
        printf("{\"path\":%s,\"when\":%" G_GINT64_FORMAT ",\"time\":\"%s\",\"dry_run\":%s,\"actions\":[",
               literal, report->when, wb_when_print_iso(report->when, iso), report->dry ? "true" : "false");
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

static bool anything(const struct revert_result *result)
{
    for (int i = 0; i < REVERT_ACTIONS; i++) {
        if (result->counts[i] > 0)
            return true;
    }
    return false;
}

void report_end(const struct report *report, const struct revert_result *result, int64_t before)
{
    const char *given = report->place->given;
    g_autofree char *name = wb_text_printable(given);
    g_autofree char *quoted = wb_text_shell(given);
    g_autofree char *text = summary(result);
    char epoch[WB_WHEN_TEXT_MAX], when[WB_WHEN_TEXT_MAX], then[WB_WHEN_TEXT_MAX];
    const char *all_links = report->all_links ? " --all-links" : "";
    bool undo = anything(result) && !report->dry;

    wb_progress_clear();
    wb_when_print_epoch(before, epoch);
    if (report->json) {
        g_autofree char *command = g_strdup_printf("vrevert %s --time %s%s", quoted, epoch, all_links);
        g_autofree char *literal = wb_json_literal(command);

        fputs("],\"counts\":{", stdout);
        for (int i = 0; i < REVERT_ACTIONS; i++)
            printf("%s\"%s\":%" G_GUINT64_FORMAT, i ? "," : "", words[i].name, result->counts[i]);
        printf("},\"failed\":%" G_GUINT64_FORMAT ",\"undo\":%s}\n", result->failed, undo ? literal : "null");
        return;
    }
    printf("%s%s as of %s (%s): %s\n", report->dry ? "would revert " : "", name,
           wb_when_print(report->when, 1, when), wb_when_print_epoch(report->when, then), text);
    if (undo)
        printf("undo: vrevert %s --time %s%s\n", quoted, epoch, all_links);
}
