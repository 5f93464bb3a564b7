/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/ui.h"
#include "content/document.h"
#include "vbrowse/job.h"
#include "client/path.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Results are drawn as they come, but not more often. */
#define DRAW_US 100000

/* ---- filters ------------------------------------------------------------------------------------------- */

/* NULL: the user pressed Escape; "": no filter. */
static char *ask(struct ui *ui, const char *label, const char *now)
{
    return screen_prompt(label, now ? now : "", ui_draw, ui);
}

void search_name(struct ui *ui)
{
    struct browse *browse = ui->browse;
    char *text = ask(ui, "Names with: ", browse->name_filter);

    if (!text)
        return;
    g_free(browse->name_filter);
    browse->name_filter = *text ? text : NULL;
    if (!*text)
        g_free(text);
    browse_entries_show(browse);
}

void search_command(struct ui *ui)
{
    g_autofree char *text = ask(ui, "Changed by commands with: ", ui->browse->command_filter);

    if (!text)
        return;
    g_clear_pointer(&ui->browse->command_filter, g_free);
    browse_commands_begin(ui->browse, *text ? text : NULL);
}

/* ---- content ------------------------------------------------------------------------------------------- */

struct results {
    struct ui *ui;
    char *path;    /* the directory, as the tool was given it */
    char *error;   /* NULL: none                              */
    guint unknown; /* files of which versions cannot be read  */
    int64_t drawn; /* when the list was drawn last            */
};

/* A file of which a version has the text, as a document of vfind --content. */
static void add_result(void *data, const char *line)
{
    g_autoptr(JsonObject) document = document_parse(line);
    g_autofree char *path = document ? document_text(document, "path") : NULL;
    const char *status = document_word(document, "status"), *rest;
    struct results *results = data;
    struct browse *browse = results->ui->browse;
    struct browse_entry *entry;
    bool gone;

    if (document && !results->error)
        results->error = document_error(document);
    if (!path || !status || !wb_path_below(path, results->path, &rest) || !*rest)
        return;
    results->unknown += strcmp(status, "unknown") == 0;
    gone = strcmp(status, "deleted") == 0 || strcmp(status, "moved") == 0;
    entry = g_new0(struct browse_entry, 1);
    entry->name = g_strdup(rest);
    entry->mode = S_IFREG;
    entry->size = (uint64_t)document_int(document, "size");
    entry->time = document_instant(document, "last");
    entry->moved = strcmp(status, "moved") == 0;
    if (!(json_object_has_member(document, "contains") && json_object_get_boolean_member(document, "contains")))
        entry->at = entry->time;
    if (gone)
        entry->ended = entry->time + 1;
    browse_add_result(browse, entry);
    if (g_get_monotonic_time() - results->drawn < DRAW_US)
        return;
    ui_draw(results->ui);
    screen_show();
    results->drawn = g_get_monotonic_time();
}

void search_content(struct ui *ui)
{
    struct browse *browse = ui->browse;
    g_autofree char *text = ask(ui, "Files of which a version contains: ", NULL);
    g_autofree char *option = text ? g_strconcat("--content=", text, NULL) : NULL;
    g_autofree char *top = browse_top(browse);
    struct results results = {.ui = ui};
    struct job job = {.label = "searching", .tool = "vfind", .call = "wayback find", .line = add_result,
                      .data = &results};

    if (!text || !*text)
        return;
    results.path = browse_absolute(browse, browse_level(browse)->path);
    browse_stop(browse);
    browse_changes_stop(browse);
    g_clear_pointer(&browse->name_filter, g_free);
    g_free(browse->search);
    browse->search = g_strdup(text);
    browse_clear(browse);
    browse_versions_begin(browse);
    job.arguments = (const char *const[]){option, "--json", "--", results.path, NULL};
    job.directory = top;
    ui_draw(ui);
    job_run(&job);
    browse->incomplete = job.stopped;
    if (job.stopped)
        ui_say(ui, "stopped; %u files found so far", browse->entries->len);
    else if (results.error)
        ui_fail(ui, "%s", results.error);
    else if (results.unknown > 0)
        ui_fail(ui, "%u of these files have versions that cannot be read", results.unknown);
    else
        ui_say(ui, browse->entries->len == 1 ? "%u file found" : "%u files found", browse->entries->len);
    job_clear(&job);
    g_free(results.error);
    g_free(results.path);
}

/* ---- a time ---------------------------------------------------------------------------------------------- */

/* The instant that `text` means for the directory that is shown. False after a message. */
static bool find_time(struct ui *ui, const char *text, int64_t *ret)
{
    const struct browse *browse = ui->browse;
    const char *path = browse_level(browse)->path;
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    struct wb_moment moment = {0};
    struct wb_error why = {""};
    struct wb_time time;
    int r = wb_time_find(browse->mount, path, text, &time, &snapshot);

    if (r == -ENODATA)
        ui_fail(ui, "the snapshot %s does not cover this directory", text);
    else if (r < 0)
        ui_fail(ui, "'%s' is neither a time nor a snapshot; for example 14:03, yesterday, 2h30m, 2026-11-20T09:30",
                text);
    if (r < 0)
        return false;
    if (time.kind != WB_TIME_INSTANT) {
        r = wb_moment_before(browse->mount, path, &time, &moment, &why);
        time.instant = moment.when;
        wb_moment_clear(&moment);
    }
    if (r == 0)
        r = wb_moment_known(browse->mount, text, time.instant, &why);
    if (r == 0 && time.instant > wb_mount_now(browse->mount))
        r = wb_error_set(&why, -EINVAL, "'%s' is in the future", text);
    if (r < 0)
        ui_fail(ui, "%s", why.text);
    *ret = time.instant;
    return r == 0;
}

bool search_go_to(struct ui *ui, const char *typed)
{
    struct browse *browse = ui->browse;
    g_autofree char *given = g_strstrip(g_strdup(typed));
    const char *text = wb_time_text(browse->place, given);
    g_autofree char *path = g_strdup(browse_level(browse)->path);
    int64_t when = WB_WHEN_PRESENT;

    if (*text && strcmp(text, "now") != 0 && !find_time(ui, text, &when))
        return false;
    if (browse_go(browse, path, when))
        return true;
    ui_fail(ui, "%s", browse->error);
    g_clear_pointer(&browse->error, g_free);
    return false;
}

void search_time(struct ui *ui)
{
    g_autofree char *text = ask(ui, "Time (14:03, yesterday, 2h, a snapshot; empty: now): ", NULL);

    if (text)
        search_go_to(ui, text);
}
