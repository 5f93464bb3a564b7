/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vlog.h"
#include "common/json.h"
#include "common/pager.h"
#include "common/text.h"
#include "wayback/when.h"
#include <string.h>
#include <sys/stat.h>

/* Room for the operation and how often. */
#define OP_WIDTH 16

static enum wb_color color_of(const char *op)
{
    static const char *const births[] = {"create", "mkdir", "mknod", "symlink", "link", "restore"};
    static const char *const deaths[] = {"unlink", "rmdir"};
    static const char *const moves[] = {"rename", "exchange", "whiteout"};

    for (unsigned i = 0; i < G_N_ELEMENTS(births); i++)
        if (strcmp(op, births[i]) == 0)
            return WB_COLOR_GREEN;
    for (unsigned i = 0; i < G_N_ELEMENTS(deaths); i++)
        if (strcmp(op, deaths[i]) == 0)
            return WB_COLOR_RED;
    for (unsigned i = 0; i < G_N_ELEMENTS(moves); i++)
        if (strcmp(op, moves[i]) == 0)
            return WB_COLOR_CYAN;
    return WB_COLOR_OFF;
}

/* "root  tar xf linux.tar (4711)   2026-11-21 14:02:11" */
static void begin_group(struct show *show, const struct wb_change *change)
{
    g_autofree char *command = wb_text_printable(change->command);
    bool known = change->entry->actor != 0;
    char time[WB_WHEN_TEXT_MAX];

    wb_text_time(change->entry->when, show->verbose, time);
    if (show->begun)
        putchar('\n');
    printf("%s%s%s  ", wb_color(WB_COLOR_YELLOW), time, wb_color(WB_COLOR_OFF));
    if (change->entry->flags & WB_CONTROL_CHANGE_GAP)
        printf("nothing was recorded\n");
    else if (!known)
        printf("unknown user and process\n");
    else if (*command)
        printf("%s  %s%s%s (%u)\n", wb_text_user(change->uid), wb_color(WB_COLOR_BOLD), command,
               wb_color(WB_COLOR_OFF), change->pid);
    else
        printf("%s  process %u\n", wb_text_user(change->uid), change->pid);
    show->begun = true;
    show->gap = change->entry->flags & WB_CONTROL_CHANGE_GAP;
    show->actor = change->entry->actor;
}

static void end_line(struct show *show)
{
    g_autofree char *op = NULL;
    char bytes[WB_TEXT_SIZE_MAX];
    unsigned width;

    if (!show->open)
        return;
    op = show->count > 1 ? g_strdup_printf("%s ×%" G_GUINT64_FORMAT, show->op, show->count) : g_strdup(show->op);
    width = wb_text_width(op);
    printf("    %s%s%s%s%*s %s%s", show->time, wb_color(color_of(show->op)), op, wb_color(WB_COLOR_OFF),
           (int)(width < OP_WIDTH ? OP_WIDTH - width : 0), "", show->path, show->rest);
    if (show->bytes > 0)
        printf("%s, %s%s", wb_color(WB_COLOR_FAINT), wb_text_size(show->bytes, bytes), wb_color(WB_COLOR_OFF));
    putchar('\n');
    g_clear_pointer(&show->op, g_free);
    g_clear_pointer(&show->path, g_free);
    g_clear_pointer(&show->rest, g_free);
    show->open = false;
}

/* A name for people: PATH itself is shown as the user named it. */
static char *printable(const struct show *show, const char *path)
{
    return wb_text_printable(strcmp(path, ".") == 0 ? show->self : path);
}

/* " no history since 2026-11-22 14:03:07 (records lost in a power cut)" */
static char *gap_of(const struct show *show, const struct wb_change *change, const char *reason)
{
    char since[WB_WHEN_TEXT_MAX] = "the beginning";

    if (change->entry->offset > 0)
        wb_text_time((int64_t)change->entry->offset, show->verbose, since);
    return g_strdup_printf(": no history since %s%s (%s)", since,
                           change->entry->flags & WB_CONTROL_CHANGE_OPEN ? ", up to now" : "", reason);
}

static char *rest_of(const struct show *show, const struct wb_change *change)
{
    g_autofree char *other = printable(show, change->other);
    g_autofree char *detail = wb_text_printable(change->detail);

    if (change->entry->flags & WB_CONTROL_CHANGE_GAP)
        return gap_of(show, change, detail);
    if (*other && strcmp(change->op, "exchange") == 0)
        return g_strdup_printf(" <-> %s", other);
    if (*other && (strcmp(change->op, "link") == 0 || strcmp(change->op, "restore") == 0))
        return g_strdup_printf(" from %s", other);
    if (*other)
        return g_strdup_printf(" -> %s", other);
    return *detail ? g_strdup_printf(" %s", detail) : g_strdup("");
}

/* Runs of one operation on one file are one line. */
static bool folds(const struct show *show, const struct wb_change *change, const char *path)
{
    return show->open && !show->verbose && !*change->other && !*change->detail &&
           strcmp(show->op, change->op) == 0 && strcmp(show->path, path) == 0;
}

void show_change(struct show *show, const struct wb_change *change)
{
    const struct wb_control_change *entry = change->entry;
    bool is_dir = S_ISDIR(entry->mode_before) || strcmp(change->op, "mkdir") == 0;
    g_autofree char *name = printable(show, change->path);
    bool bare = !g_str_has_suffix(name, "/") && strcmp(name, ".") != 0;
    g_autofree char *path = g_strconcat(name, is_dir && bare ? "/" : "", NULL);

    if (!show->begun || entry->actor != show->actor || show->gap != !!(entry->flags & WB_CONTROL_CHANGE_GAP)) {
        end_line(show);
        begin_group(show, change);
    }
    if (folds(show, change, path)) {
        show->count++;
        show->bytes += entry->length;
        return;
    }
    end_line(show);
    show->open = true;
    show->op = g_strdup(change->op);
    show->path = g_steal_pointer(&path);
    show->rest = rest_of(show, change);
    show->count = 1;
    show->bytes = entry->length;
    if (show->verbose) {
        char *rest = show->rest;

        wb_text_time(entry->when, show->verbose, show->time);
        g_strlcat(show->time, "  ", sizeof(show->time));
        if (entry->length > 0) {
            show->rest = g_strdup_printf("%s, %" G_GUINT64_FORMAT " at %" G_GUINT64_FORMAT ", size %" G_GUINT64_FORMAT
                                         " -> %" G_GUINT64_FORMAT, rest, entry->length, entry->offset,
                                         entry->size_before, entry->size_after);
            g_free(rest);
        }
        show->bytes = 0;
    }
}

void show_end(struct show *show)
{
    end_line(show);
    fflush(stdout);
}

static void end_json(JsonBuilder *builder, const struct wb_control_change *entry)
{
    if (entry->ino != 0) {
        g_autofree char *object = g_strdup_printf("%016" G_GINT64_MODIFIER "x-%016" G_GINT64_MODIFIER "x",
                                                  (guint64)entry->ino, (guint64)entry->birth);

        wb_json_string(builder, "object", object);
    }
    json_builder_end_object(builder);
    wb_json_entry(builder);
}

void show_json(const struct wb_change *change)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    const struct wb_control_change *entry = change->entry;

    json_builder_begin_object(builder);
    wb_json_when(builder, entry->when);
    wb_json_string(builder, "op", change->op);
    wb_json_string(builder, "path", change->path);
    if (entry->flags & WB_CONTROL_CHANGE_GAP) {
        wb_json_time(builder, "since", (int64_t)entry->offset);
        wb_json_bool(builder, "open", entry->flags & WB_CONTROL_CHANGE_OPEN);
        wb_json_string(builder, "detail", change->detail);
        end_json(builder, entry);
        return;
    }
    if (*change->other)
        wb_json_string(builder, "other", change->other);
    if (*change->detail)
        wb_json_string(builder, "detail", change->detail);
    wb_json_bool(builder, "name_known", !(entry->flags & WB_CONTROL_CHANGE_UNKNOWN));
    wb_json_int(builder, "offset", (int64_t)entry->offset);
    wb_json_int(builder, "length", (int64_t)entry->length);
    wb_json_int(builder, "size_before", (int64_t)entry->size_before);
    wb_json_int(builder, "size_after", (int64_t)entry->size_after);
    wb_json_bool(builder, "existed_before", entry->existed_before);
    wb_json_bool(builder, "exists_after", entry->exists_after);
    if (entry->actor != 0) {
        wb_json_int(builder, "uid", change->uid);
        wb_json_int(builder, "gid", change->gid);
        wb_json_int(builder, "pid", change->pid);
        wb_json_string(builder, "command", change->command);
    }
    end_json(builder, entry);
}
