/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/ui.h"
#include "vbrowse/content.h"
#include "content/document.h"
#include "vbrowse/job.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/revert_report.h"
#include "common/text.h"
#include <string.h>
#include <sys/stat.h>

/*
 * Restoring and undoing. The tools vrevert, vextract and vundo do it, so that all checks, and what the history shows of
 * a restore, are theirs. A dry run says what would be lost, and the user is asked.
 */

/* Lines in the question. */
#define LISTED_MAX 5
/* Each is a run of vrevert, and an undo of its own. */
#define GROUPS_MAX 20

/* One run of vrevert: paths that are restored to the same time. */
struct group {
    int64_t when;
    GPtrArray *paths; /* as tools take them */
};

/* A restore of this run, which may have needed several processes. */
struct restored {
    GArray *pids;
};

/* What a dry run said. */
struct plan {
    char *top;          /* the directory that paths are shown below */
    GHashTable *seen;   /* a directory may be restored with each of several paths */
    GPtrArray *actions; /* printable lines, the first ones */
    GPtrArray *removed; /* printable names, the first ones */
    uint64_t count, removals, overwritten;
    char *op;           /* of an undo; NULL: none */
    char *error;        /* printable; NULL: none  */
};

void action_restored_free(void *data)
{
    struct restored *restored = data;

    g_array_unref(restored->pids);
    g_free(restored);
}

static void group_free(void *data)
{
    struct group *group = data;

    g_ptr_array_unref(group->paths);
    g_free(group);
}

static void plan_init(struct plan *plan, const struct browse *browse)
{
    *plan = (struct plan){.top = browse_top(browse),
                          .seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                          .actions = g_ptr_array_new_with_free_func(g_free),
                          .removed = g_ptr_array_new_with_free_func(g_free)};
}

static void plan_clear(struct plan *plan)
{
    g_ptr_array_unref(plan->actions);
    g_ptr_array_unref(plan->removed);
    g_hash_table_unref(plan->seen);
    g_free(plan->top);
    g_free(plan->op);
    g_free(plan->error);
}

/* ---- a dry run --------------------------------------------------------------------------------------- */

static void note_action(struct plan *plan, JsonObject *action)
{
    const char *word = document_word(action, "action");
    g_autofree char *path = document_text(action, "path");
    g_autofree char *printable = NULL;
    g_autofree char *row = NULL;
    const char *shown = path;

    if (!word || !path)
        return;
    if (wb_path_below(path, plan->top, &shown) && !*shown)
        shown = ".";
    printable = wb_text_printable(shown);
    row = g_strdup_printf("  %-8s %s", word, printable);
    if (!g_hash_table_add(plan->seen, g_strdup(row)))
        return;
    plan->count++;
    plan->overwritten += strcmp(word, "rewrite") == 0;
    if (strcmp(word, "remove") == 0) {
        if (plan->removals++ < LISTED_MAX)
            g_ptr_array_add(plan->removed, g_strdup_printf("    %s", printable));
        return;
    }
    if (plan->actions->len < LISTED_MAX)
        g_ptr_array_add(plan->actions, g_steal_pointer(&row));
}

static void note_document(void *data, const char *line)
{
    g_autoptr(JsonObject) document = document_parse(line);
    JsonArray *actions = document_array(document, "actions");
    struct plan *plan = data;

    for (guint i = 0; actions && i < json_array_get_length(actions); i++)
        note_action(plan, json_array_get_object_element(actions, i));
    if (!plan->error && document)
        plan->error = document_error(document);
    if (!plan->op && document)
        plan->op = g_strdup(document_word(document, "op"));
}

/* False after a message: it would fail, or the user stopped it. */
static bool try_it(struct ui *ui, const char *tool, const char *call, const char *const *arguments, struct plan *plan)
{
    g_autofree char *top = browse_top(ui->browse);
    struct job job = {.label = "looking what would be done", .tool = tool, .call = call, .arguments = arguments,
                      .directory = top, .line = note_document, .data = plan};
    g_autofree char *last = NULL;
    bool fine;

    job_run(&job);
    last = job_last_line(&job);
    /* If only some of it cannot be done, the question names that. */
    fine = !job.stopped && (plan->count > 0 || (job.status == 0 && !plan->error));
    if (job.stopped)
        ui_say(ui, "stopped; nothing was changed");
    else if (!fine && plan->error)
        ui_fail(ui, "%s", plan->error);
    else if (!fine && *last)
        ui_fail(ui, "%s", last);
    else if (!fine)
        ui_fail(ui, "%s failed with status %d; nothing was changed", call, job.status);
    job_clear(&job);
    return fine;
}

/* What would be done, in the words of vrevert; true: the user agrees. */
static bool is_confirmed(struct ui *ui, const struct plan *plan, const char *heading, const char *verb)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    g_autofree char *loss = wb_revert_loss(plan->overwritten, plan->removals);
    g_autofree char *question = plan->removals > 0 ? g_strdup("The history keeps them. Remove? [y/N]")
                                                   : g_strdup_printf("%s? [y/N]", verb);
    uint64_t others = plan->count - plan->removals;

    g_ptr_array_add(lines, g_strdup(heading));
    for (guint i = 0; i < plan->actions->len; i++)
        g_ptr_array_add(lines, g_strdup(plan->actions->pdata[i]));
    if (others > plan->actions->len)
        g_ptr_array_add(lines, g_strdup_printf("    and %" G_GUINT64_FORMAT " more", others - plan->actions->len));
    if (loss)
        g_ptr_array_add(lines, g_strdup_printf("%s%s", loss, plan->removals > 0 ? "" : "; the history keeps it"));
    for (guint i = 0; i < plan->removed->len; i++)
        g_ptr_array_add(lines, g_strdup(plan->removed->pdata[i]));
    if (plan->removals > plan->removed->len)
        g_ptr_array_add(lines,
                        g_strdup_printf("    and %" G_GUINT64_FORMAT " more", plan->removals - plan->removed->len));
    if (plan->error)
        g_ptr_array_add(lines, g_strdup_printf("not all of it can be done: %s", plan->error));
    ui_draw(ui);
    if (screen_ask(lines, question, ui_draw, ui))
        return true;
    ui_say(ui, "nothing was changed");
    return false;
}

/* Runs it; true: it changed, or may have changed, something. Its messages go to the status line or to a pane. */
static bool do_it(struct ui *ui, const char *label, const char *tool, const char *call, const char *const *arguments,
                  GArray *pids)
{
    g_autofree char *top = browse_top(ui->browse);
    struct job job = {.label = label, .tool = tool, .call = call, .arguments = arguments, .directory = top,
                      .errors = true};
    bool done;

    job_run(&job);
    done = job.status == 0;
    if (pids)
        g_array_append_val(pids, job.pid);
    if (done) {
        g_autofree char *first = g_strndup(job.output->str, strcspn(job.output->str, "\n"));
        const char *summary = strstr(first, "): ");

        ui_say(ui, "%s", summary ? summary + 3 : first);
    } else if (job.stopped) {
        g_autofree char *last = job_last_line(&job);

        ui_fail(ui, "%s", last);
    } else {
        GPtrArray *lines = g_ptr_array_new_with_free_func(g_free);
        g_autofree char *title = g_strdup_printf(" %s: not all of it was done", call);

        content_add_lines(lines, job.output->str, job.output->len);
        viewer_show(ui, title, lines);
        ui_fail(ui, "%s: not all of it was done", call);
    }
    job_clear(&job);
    return done;
}

/* ---- what is restored ----------------------------------------------------------------------------------- */

/* The marked entries, or the one under the cursor. */
static GPtrArray *find_targets(const struct browse *browse, bool only_current)
{
    GPtrArray *targets = g_ptr_array_new();

    for (guint i = 0; !only_current && i < browse->entries->len; i++) {
        struct browse_entry *entry = browse->entries->pdata[i];

        if (entry->tagged)
            g_ptr_array_add(targets, entry);
    }
    if (targets->len == 0 && browse_current(browse))
        g_ptr_array_add(targets, browse_current(browse));
    return targets;
}

/* False after a message: for one of them no time is known. */
static bool have_times(struct ui *ui, const GPtrArray *targets)
{
    for (guint i = 0; i < targets->len; i++) {
        struct browse_entry *entry = targets->pdata[i];

        if (!browse_find_whole(ui->browse, entry)) {
            ui_say(ui, "stopped; nothing was changed");
            return false;
        }
        if (browse_time_of(ui->browse, entry) == 0) {
            ui_fail(ui, "%s: choose a version (Tab) or a time (t) first", entry->name);
            return false;
        }
    }
    if (targets->len == 0)
        ui_fail(ui, "there is nothing to restore here");
    return targets->len > 0;
}

static void add_to_group(GPtrArray *groups, int64_t when, char *path)
{
    struct group *group = NULL;

    for (guint i = 0; i < groups->len && !group; i++)
        if (((struct group *)groups->pdata[i])->when == when)
            group = groups->pdata[i];
    if (!group) {
        group = g_new0(struct group, 1);
        group->when = when;
        group->paths = g_ptr_array_new_with_free_func(g_free);
        g_ptr_array_add(groups, group);
    }
    g_ptr_array_add(group->paths, path);
}

/* NULL after a message. */
static GPtrArray *make_groups(struct ui *ui, const GPtrArray *targets)
{
    g_autoptr(GPtrArray) groups = g_ptr_array_new_with_free_func(group_free);
    const struct browse *browse = ui->browse;
    int64_t common = browse_common_time(browse, targets);

    if (common < 0) {
        ui_say(ui, "stopped; nothing was changed");
        return NULL;
    }
    for (guint i = 0; i < targets->len; i++) {
        add_to_group(groups, common ? common : browse_time_of(browse, targets->pdata[i]),
                     browse_path_of(browse, targets->pdata[i]));
        if (groups->len > GROUPS_MAX) {
            ui_fail(ui, "there is no one time for all of these; choose a time (t), or mark fewer");
            return NULL;
        }
    }
    return g_steal_pointer(&groups);
}

/* A private mount is for reading: what changes the tree would be refused. */
static bool is_mounted(struct ui *ui)
{
    if (!ui->browse->mount->private)
        return true;
    ui_fail(ui, "the tree is not mounted; mount it with 'wayback SRC' first, or restore elsewhere (R)");
    return false;
}

/* The arguments of vrevert; `time` and the paths stay the caller's. */
static const char **arguments_of(const struct group *group, const char *time, const char *first, const char *second)
{
    GPtrArray *arguments = g_ptr_array_new();

    g_ptr_array_add(arguments, (char *)"--time");
    g_ptr_array_add(arguments, (char *)time);
    g_ptr_array_add(arguments, (char *)first);
    if (second)
        g_ptr_array_add(arguments, (char *)second);
    g_ptr_array_add(arguments, (char *)"--");
    for (guint i = 0; i < group->paths->len; i++)
        g_ptr_array_add(arguments, group->paths->pdata[i]);
    g_ptr_array_add(arguments, NULL);
    return (const char **)g_ptr_array_free(arguments, FALSE);
}

static bool try_groups(struct ui *ui, const GPtrArray *groups, struct plan *plan)
{
    for (guint i = 0; i < groups->len; i++) {
        const struct group *group = groups->pdata[i];
        char time[WB_WHEN_TEXT_MAX];
        g_autofree const char **arguments =
            arguments_of(group, wb_when_print_epoch(group->when, time), "--dry-run", "--json");

        if (!try_it(ui, "vrevert", "wayback restore", arguments, plan))
            return false;
    }
    return true;
}

static char *heading_of(const GPtrArray *targets, const GPtrArray *groups)
{
    const struct browse_entry *first = targets->pdata[0];
    g_autofree char *name = wb_text_printable(first->name);
    char time[WB_WHEN_TEXT_MAX];

    if (groups->len > 1)
        return g_strdup_printf("Restore %u names, each as it was before it was deleted:", targets->len);
    wb_text_time(((const struct group *)groups->pdata[0])->when, false, time);
    if (targets->len > 1)
        return g_strdup_printf("Restore %u names as of %s:", targets->len, time);
    return g_strdup_printf("Restore %s as of %s:", name, time);
}

static void restore_groups(struct ui *ui, const GPtrArray *targets, const GPtrArray *groups)
{
    struct restored *restored = g_new0(struct restored, 1);
    bool done = true;

    restored->pids = g_array_new(FALSE, FALSE, sizeof(pid_t));
    g_ptr_array_add(ui->restores, restored);
    for (guint i = 0; done && i < groups->len; i++) {
        const struct group *group = groups->pdata[i];
        char time[WB_WHEN_TEXT_MAX];
        g_autofree const char **arguments =
            arguments_of(group, wb_when_print_epoch(group->when, time), "--remove", NULL);

        done = do_it(ui, "restoring", "vrevert", "wayback restore", arguments, restored->pids);
    }
    if (done && targets->len > 1)
        ui_say(ui, "%u names restored; u undoes it", targets->len);
    else if (done)
        ui_say(ui, "%s: %s; u undoes it", ((const struct browse_entry *)targets->pdata[0])->name, ui->status);
}

void action_restore(struct ui *ui, bool only_current)
{
    g_autoptr(GPtrArray) targets = find_targets(ui->browse, only_current);
    g_autoptr(GPtrArray) groups = NULL;
    g_autofree char *heading = NULL;
    struct plan plan;

    if (!is_mounted(ui) || !have_times(ui, targets))
        return;
    groups = make_groups(ui, targets);
    if (!groups)
        return;
    heading = heading_of(targets, groups);
    plan_init(&plan, ui->browse);
    if (try_groups(ui, groups, &plan)) {
        if (plan.count == 0) {
            ui_say(ui, "nothing to do; it has not changed since then");
        } else if (is_confirmed(ui, &plan, heading, "Restore")) {
            restore_groups(ui, targets, groups);
            browse_reload(ui->browse);
        }
    }
    plan_clear(&plan);
}

/* ---- elsewhere ---------------------------------------------------------------------------------------------- */

/* The path that the user typed, with ~ for their home, and absolute; g_free. */
static char *expand(const char *typed)
{
    g_autofree char *here = g_get_current_dir();

    if (typed[0] == '~' && (typed[1] == '/' || typed[1] == '\0'))
        return g_build_filename(g_get_home_dir(), typed + 1, NULL);
    return *typed == '/' ? g_strdup(typed) : g_build_filename(here, typed, NULL);
}

static char *output_of(const char *typed, const struct browse_entry *entry)
{
    g_autofree char *out = expand(typed);
    g_autofree char *base = g_path_get_basename(entry->name);

    if (g_str_has_suffix(out, "/") || g_file_test(out, G_FILE_TEST_IS_DIR))
        return g_build_filename(out, base, NULL);
    return g_steal_pointer(&out);
}

static bool extract(struct ui *ui, const struct browse_entry *entry, const char *typed)
{
    g_autofree char *path = browse_path_of(ui->browse, entry);
    g_autofree char *top = browse_top(ui->browse);
    g_autofree char *out = output_of(typed, entry);
    char time[WB_WHEN_TEXT_MAX];
    const char *arguments[] = {"--time", wb_when_print_epoch(browse_time_of(ui->browse, entry), time), "--output", out,
                               "--", path, NULL};
    struct job job = {.label = "copying", .tool = "vextract", .call = "wayback extract", .arguments = arguments,
                      .directory = top, .errors = true};
    bool done;

    job_run(&job);
    done = job.status == 0;
    if (done) {
        ui_say(ui, "%s: restored to %s", entry->name, out);
    } else {
        g_autofree char *last = job_last_line(&job);

        ui_fail(ui, "%s", last);
    }
    job_clear(&job);
    return done;
}

void action_restore_elsewhere(struct ui *ui)
{
    g_autoptr(GPtrArray) targets = find_targets(ui->browse, false);
    g_autofree char *typed = NULL;
    bool done = true;

    if (!have_times(ui, targets))
        return;
    typed = screen_prompt("Restore to (a directory or a new name): ", "", ui_draw, ui);
    if (!typed || !*typed)
        return;
    if (targets->len > 1) {
        g_autofree char *out = expand(typed);

        if (!g_file_test(out, G_FILE_TEST_IS_DIR)) {
            ui_fail(ui, "%s: is no directory; several names need one", out);
            return;
        }
    }
    for (guint i = 0; done && i < targets->len; i++)
        done = extract(ui, targets->pdata[i], typed);
    if (done && targets->len > 1)
        ui_say(ui, "%u names restored to %s", targets->len, typed);
    browse_reload(ui->browse);
}

/* ---- undo ------------------------------------------------------------------------------------------------------ */

struct id_search {
    const GArray *pids;
    GPtrArray *ids;
};

/* A line of vundo --list: newest first. */
static void note_id(void *data, const char *line)
{
    g_autoptr(JsonObject) document = document_parse(line);
    const char *op = document_word(document, "op");
    struct id_search *search = data;

    for (guint i = 0; op && i < search->pids->len; i++) {
        if (g_array_index(search->pids, pid_t, i) == document_int(document, "pid") &&
            !json_object_has_member(document, "undone_by") && search->ids->len < search->pids->len) {
            g_ptr_array_add(search->ids, g_strdup(op));
            break;
        }
    }
}

/* The restores that the history shows of these processes, newest first. */
static GPtrArray *find_ids(const char *top, const struct restored *restored)
{
    GPtrArray *ids = g_ptr_array_new_with_free_func(g_free);
    struct id_search search = {restored->pids, ids};
    const char *arguments[] = {"--list", "--json", "--", ".", NULL};
    struct job job = {.label = "looking for the restore", .tool = "vundo", .call = "wayback undo",
                      .arguments = arguments, .directory = top, .line = note_id, .data = &search};

    job_run(&job);
    job_clear(&job);
    return ids;
}

/* "Undo the restore of 2026-11-27 19:23:33:"; the ID of a restore is its time. g_free. */
static char *undo_heading(const struct plan *plan)
{
    struct wb_time time;
    char text[WB_WHEN_TEXT_MAX];

    if (!plan->op || wb_time_parse(plan->op, 0, &time) != 0 || time.kind != WB_TIME_INSTANT)
        return g_strdup("Undo the last restore:");
    return g_strdup_printf("Undo the restore of %s:", wb_text_time(time.instant, false, text));
}

/* Undoes the restore `id` below `path`, or the newest one there (NULL). */
static bool undo_one(struct ui *ui, const char *path, const char *id)
{
    g_autofree char *given = id ? g_strconcat("--op=", id, NULL) : NULL;
    const char *arguments[] = {"--dry-run", "--json", given ? given : "--", given ? "--" : path, given ? path : NULL,
                               NULL};
    g_autofree char *heading = NULL;
    struct plan plan;
    bool done = false;

    plan_init(&plan, ui->browse);
    if (try_it(ui, "vundo", "wayback undo", arguments, &plan))
        heading = undo_heading(&plan);
    if (heading && is_confirmed(ui, &plan, heading, "Undo")) {
        g_autofree char *op = g_strconcat("--op=", plan.op ? plan.op : "", NULL);
        const char *final[] = {"--remove", op, "--", path, NULL};

        done = do_it(ui, "undoing", "vundo", "wayback undo", final, NULL);
        if (done)
            ui_say(ui, "undone; 'wayback redo' takes that back");
    }
    plan_clear(&plan);
    return done;
}

void action_undo(struct ui *ui)
{
    const struct restored *restored = ui->restores->len ? ui->restores->pdata[ui->restores->len - 1] : NULL;
    g_autofree char *top = browse_top(ui->browse);
    g_autofree char *here = browse_word(browse_level(ui->browse)->path);
    g_autoptr(GPtrArray) ids = NULL;
    bool done = true;

    if (!is_mounted(ui))
        return;
    ids = restored ? find_ids(top, restored) : NULL;
    if (ids && ids->len > 0) {
        for (guint i = 0; done && i < ids->len; i++)
            done = undo_one(ui, ".", ids->pdata[i]);
    } else {
        done = undo_one(ui, here, NULL);
    }
    if (!done)
        return;
    if (ids && ids->len > 0)
        g_ptr_array_set_size(ui->restores, (gint)ui->restores->len - 1);
    browse_reload(ui->browse);
}
