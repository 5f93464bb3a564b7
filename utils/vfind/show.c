/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/pager.h"
#include "common/progress.h"
#include "client/path.h"
#include "common/text.h"
#include "content/states.h"
#include "wayback/when.h"
#include <string.h>

static const char *status_of(const struct span *span)
{
    return span->last == 0 ? "present" : span->moved ? "moved" : "deleted";
}

/* The command that restores it; NULL: it is there, or elsewhere. An entry that has come again must not be replaced. */
static char *command_for(const struct find *find, const char *path, const struct span *span, unsigned index,
                         int64_t back)
{
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *word = wb_text_shell(whole);
    char time[WB_WHEN_TEXT_MAX];

    if (span->last == 0 || span->moved)
        return NULL;
    wb_when_print_epoch(back, time);
    return g_strdup_printf("%s --time %s %s%s", wb_cli_tool(index == 0 ? "vrevert" : "vextract"), time,
                           *whole == '-' ? "./" : "", word);
}

/* Where it went: in the same directory, or from the root of the mount; as the user would write it. NULL: not known. */
static char *destination(const struct find *find, const char *path, const struct span *span, bool whole)
{
    const struct wb_mount *mount = find->place->mount;
    const char *base = mount->private ? mount->hello.source : mount->point, *rest;
    g_autofree char *dir = wb_path_parent(path, NULL);
    g_autofree char *below = wb_path_join(find->prefix, dir);

    if (!*span->to)
        return NULL;
    if (*span->to != '/')
        return whole ? wb_path_join(below, span->to) : g_strdup(span->to);
    if (!wb_path_below(span->to + 1, mount->prefix, &rest))
        return g_strdup(span->to);
    return g_strdup_printf("%s/%s", strcmp(base, "/") == 0 ? "" : base, rest);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void show_json(const struct find *find, GString *out, const char *path, const struct entry *entry,
                      const struct span *span, unsigned index, int64_t back)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *command = command_for(find, path, span, index, back);
    g_autofree char *to = span->moved ? destination(find, path, span, true) : NULL;
    g_autofree char *text = NULL;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", whole);
    wb_json_string(builder, "status", status_of(span));
    wb_json_string(builder, "type", wb_text_type(span->mode));
    wb_json_time(builder, "first", span->first);
    wb_json_time(builder, "last", span->last);
    wb_json_bool(builder, "before_history", span->first == 0);
    if (!S_ISDIR(span->mode))
        wb_json_int(builder, "size", (int64_t)find_size(find, entry, span));
    wb_json_int(builder, "inode", (int64_t)span->ino);
    wb_json_int(builder, "span", index + 1);
    wb_json_int(builder, "spans", entry->count);
    if (to)
        wb_json_string(builder, "to", to);
    if (span->actor) {
        wb_json_int(builder, "uid", span->uid);
        wb_json_int(builder, "pid", span->pid);
        wb_json_string(builder, "command", span->command);
    }
    if (command)
        wb_json_string(builder, "restore", command);
    json_builder_end_object(builder);
    text = wb_json_entry_text(builder);
    g_string_append(out, text);
}

/* ---- for people ------------------------------------------------------------------------------ */

#define TIME_COLUMNS 19

static void append_time(GString *out, int64_t when, const char *none)
{
    char text[WB_WHEN_TEXT_MAX];

    if (when != 0)
        wb_when_print(when, 0, text);
    /* The zone is the reader's own. */
    g_string_append_printf(out, "%-*.*s", TIME_COLUMNS, TIME_COLUMNS, when ? text : none);
}

static void append_name(const struct find *find, GString *out, const char *path, const struct entry *entry,
                        const struct span *span, unsigned index)
{
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *shown = wb_text_printable(whole);

    g_string_append_printf(out, "%s%s%s%s", wb_color(span->last == 0 ? WB_COLOR_OFF : span->moved ? WB_COLOR_CYAN
                                                                                              : WB_COLOR_RED),
                           shown, S_ISDIR(span->mode) ? "/" : "", wb_color(WB_COLOR_OFF));
    if (span->moved) {
        g_autofree char *to = destination(find, path, span, false);
        g_autofree char *to_shown = wb_text_printable(to ? to : "(a directory that you may not read)");

        g_string_append_printf(out, " -> %s", to_shown);
    }
    if (!find->all && entry->count > 1)
        g_string_append_printf(out, "%s  (%u other time%s)%s", wb_color(WB_COLOR_FAINT), entry->count - 1,
                               entry->count == 2 ? "" : "s", wb_color(WB_COLOR_OFF));
    else if (find->all && index + 1 == entry->spans->len && entry->count > entry->spans->len)
        g_string_append_printf(out, "%s  (%u earlier)%s", wb_color(WB_COLOR_FAINT),
                               entry->count - entry->spans->len, wb_color(WB_COLOR_OFF));
}

static void show_text(const struct find *find, GString *out, const char *path, const struct entry *entry,
                      const struct span *span, unsigned index, int64_t back)
{
    g_autofree char *command = command_for(find, path, span, index, back);
    char size[WB_TEXT_SIZE_MAX];
    char mark = span->last == 0 ? ' ' : span->moved ? 'M' : 'D';

    g_string_append_printf(out, "%c  ", index > 0 ? g_ascii_tolower(mark) : mark);
    append_time(out, span->first, "before the history");
    g_string_append(out, "  ");
    append_time(out, span->last, "");
    g_string_append_printf(out, "  %8s  ",
                           S_ISDIR(span->mode) ? "-" : wb_text_size(find_size(find, entry, span), size));
    append_name(find, out, path, entry, span, index);
    g_string_append_c(out, '\n');
    if (find->verbose && span->last != 0 && span->actor) {
        g_autofree char *who = wb_text_printable(span->command);

        g_string_append_printf(out, "       %s by %s, process %u: %s\n", span->moved ? "moved" : "removed",
                               wb_text_user(span->uid), span->pid, who);
    }
    if (command)
        g_string_append_printf(out, "       %s%s%s\n", wb_color(WB_COLOR_FAINT), command, wb_color(WB_COLOR_OFF));
}

static void show_gap_json(const struct find *find, GString *out, const char *path, const struct gap *gap)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *text = NULL;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", *whole ? whole : ".");
    wb_json_string(builder, "status", "gap");
    wb_json_string(builder, "type", "directory");
    wb_json_time(builder, "first", gap->since);
    wb_json_time(builder, "last", gap->open ? 0 : gap->until);
    wb_json_string(builder, "detail", gap->reason);
    json_builder_end_object(builder);
    text = wb_json_entry_text(builder);
    g_string_append(out, text);
}

void find_show_gap(struct find *find, GString *out, const char *path, const struct gap *gap)
{
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *shown = wb_text_printable(whole);
    g_autofree char *reason = wb_text_printable(gap->reason);

    if (find->muted > 0 || find->zero)
        return;
    if (find->json) {
        show_gap_json(find, out, path, gap);
        return;
    }
    g_string_append(out, "?  ");
    append_time(out, gap->since, "the beginning");
    g_string_append(out, "  ");
    append_time(out, gap->open ? 0 : gap->until, "now");
    g_string_append_printf(out, "  %8s  %s%s: no history of that time (%s)\n", "-", *shown ? shown : ".",
                           *shown && !g_str_has_suffix(shown, "/") ? "/" : "", reason);
}

/* ---- --content ------------------------------------------------------------------------------- */

/* "vextract --show --time TIME PATH", for the last state that has the text. g_free. */
static char *state_command(const char *path, const char *command, const struct wb_state *state)
{
    g_autofree char *word = wb_text_shell(path);
    char time[WB_WHEN_TEXT_MAX];

    wb_when_print_epoch(state->at, time);
    return g_strdup_printf("%s --time %s %s%s", command, time, *path == '-' ? "./" : "", word);
}

static void add_change(JsonBuilder *builder, const char *key, uint32_t change)
{
    if (change)
        wb_json_int(builder, key, change);
    else
        wb_json_null(builder, key);
}

static void show_content_json(GString *out, const char *whole, const struct span *newest, bool all,
                              const struct find_content *content)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const struct wb_state *first = content->first, *last = content->last;
    g_autofree char *tool = g_strdup_printf("%s --show", wb_cli_tool("vextract"));
    g_autofree char *show = state_command(whole, tool, last);
    g_autofree char *restore = state_command(whole, wb_cli_tool("vrevert"), last);
    g_autofree char *text = NULL;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", whole);
    wb_json_string(builder, "status", status_of(newest));
    wb_json_string(builder, "type", "file");
    wb_json_bool(builder, "contains", content->now);
    wb_json_time(builder, "first", first->when);
    add_change(builder, "first_change", first->change);
    wb_json_time(builder, "last", last->when);
    add_change(builder, "last_change", last->change);
    wb_json_bool(builder, "before_history", first->when == 0);
    wb_json_int(builder, "size", (int64_t)last->size);
    if (all)
        wb_json_int(builder, "period", content->index + 1);
    if (!content->now)
        wb_json_string(builder, "show", show);
    if (!content->now && find_status_of(newest) != FIND_MOVED)
        wb_json_string(builder, "restore", restore);
    json_builder_end_object(builder);
    text = wb_json_entry_text(builder);
    g_string_append(out, text);
}

static void append_changes(GString *out, const struct find_content *content)
{
    g_autofree char *first = content->first->change ? g_strdup_printf("%u", content->first->change) : g_strdup("-");
    g_autofree char *last = content->last->change ? g_strdup_printf("%u", content->last->change) : g_strdup("-");

    g_string_append_printf(out, "  %6s  %6s", first, last);
}

static void show_content_text(GString *out, const char *whole, const struct span *newest,
                              const struct find_content *content)
{
    enum find_status status = find_status_of(newest);
    g_autofree char *shown = wb_text_printable(whole);
    char size[WB_TEXT_SIZE_MAX];
    char mark = content->now ? ' ' : status == FIND_PRESENT ? 'O' : status == FIND_MOVED ? 'M' : 'D';

    g_string_append_printf(out, "%c  ", content->index > 0 ? g_ascii_tolower(mark) : mark);
    append_time(out, content->first->when, "before the history");
    g_string_append(out, "  ");
    append_time(out, content->last->when, "before the history");
    append_changes(out, content);
    g_string_append_printf(out, "  %8s  %s%s%s\n", wb_text_size(content->last->size, size),
                           wb_color(content->now             ? WB_COLOR_OFF
                                    : status == FIND_DELETED ? WB_COLOR_RED
                                                             : WB_COLOR_CYAN),
                           shown, wb_color(WB_COLOR_OFF));
    if (!content->now) {
        g_autofree char *tool = g_strdup_printf("%s --show", wb_cli_tool("vextract"));
        g_autofree char *command = state_command(whole, tool, content->last);

        g_string_append_printf(out, "       %s%s%s\n", wb_color(WB_COLOR_FAINT), command, wb_color(WB_COLOR_OFF));
    }
}

void find_show_content(struct find *find, GString *out, const char *path, const struct span *newest,
                       const struct find_content *content)
{
    g_autofree char *whole = wb_path_join(find->prefix, path);

    if (find->zero) {
        g_string_append(out, whole);
        g_string_append_c(out, '\0');
    } else if (find->json) {
        show_content_json(out, whole, newest, find->all, content);
    } else {
        show_content_text(out, whole, newest, content);
    }
    find->shown++;
}

void find_show_unknown(struct find *find, GString *out, const char *path, const struct find_content *content)
{
    g_autofree char *whole = wb_path_join(find->prefix, path);
    g_autofree char *states = wb_text_count(content->unknown, "version", "versions");

    wb_progress_clear();
    wb_cli_fail(whole, "the content of %s is not known (%s); the text may be there, too", states,
                wb_errno_text(content->error));
    if (find->json) {
        g_autoptr(JsonBuilder) builder = json_builder_new();
        g_autofree char *text = NULL;

        json_builder_begin_object(builder);
        wb_json_string(builder, "path", whole);
        wb_json_string(builder, "status", "unknown");
        wb_json_string(builder, "type", "file");
        wb_json_int(builder, "versions", content->unknown);
        wb_json_string(builder, "detail", wb_errno_text(content->error));
        json_builder_end_object(builder);
        text = wb_json_entry_text(builder);
        g_string_append(out, text);
    }
}

static void print_heading(const struct find *find)
{
    if (find->states)
        printf("%s   %-*s  %-*s  %6s  %6s  %8s  NAME%s\n", wb_color(WB_COLOR_FAINT), TIME_COLUMNS, "FIRST",
               TIME_COLUMNS, "LAST", "CHANGE", "TO", "SIZE", wb_color(WB_COLOR_OFF));
    else
        printf("%s   %-*s  %-*s  %8s  NAME%s\n", wb_color(WB_COLOR_FAINT), TIME_COLUMNS, "FROM", TIME_COLUMNS, "TO",
               "SIZE", wb_color(WB_COLOR_OFF));
}

void find_flush(struct find *find, GString *out)
{
    if (out->len > 0)
        wb_progress_clear();
    if (out->len > 0 && find->pages) {
        /* Not before: it would get the progress as well. */
        wb_pager_begin();
        wb_progress_begin();
        find->pages = false;
    }
    if (out->len > 0 && !find->headed && !find->zero && !find->json)
        print_heading(find);
    find->headed = find->headed || out->len > 0;
    fwrite(out->str, 1, out->len, stdout);
    g_string_truncate(out, 0);
}

void find_show(struct find *find, GString *out, const char *path, const struct entry *entry,
               const struct span *span, unsigned index, int64_t back)
{
    if (find->muted > 0)
        return;
    if (find->zero) {
        g_autofree char *whole = wb_path_join(find->prefix, path);

        g_string_append(out, whole);
        g_string_append_c(out, '\0');
    } else if (find->json) {
        show_json(find, out, path, entry, span, index, back);
    } else {
        show_text(find, out, path, entry, span, index, back);
    }
    find->shown++;
}
