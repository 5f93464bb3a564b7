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

/* "2026-11-21 14:02:11  root  tar xf linux.tar (4711)"; printed with its first line. */
static void begin_group(struct show *show, const struct wb_change *change)
{
    g_autofree char *command = wb_text_printable(change->command);
    bool known = change->entry->actor != 0;
    char time[WB_WHEN_TEXT_MAX];
    GString *header = g_string_new(NULL);

    wb_text_time(change->entry->when, show->verbose, time);
    g_string_printf(header, "%s%s%s  ", wb_color(WB_COLOR_YELLOW), time, wb_color(WB_COLOR_OFF));
    if (change->entry->flags & WB_CONTROL_CHANGE_GAP)
        g_string_append(header, "nothing was recorded");
    else if (!known)
        g_string_append(header, "unknown user and process");
    else if (*command)
        g_string_append_printf(header, "%s  %s%s%s (%u)", wb_text_user(change->uid), wb_color(WB_COLOR_BOLD), command,
                               wb_color(WB_COLOR_OFF), change->pid);
    else
        g_string_append_printf(header, "%s  process %u", wb_text_user(change->uid), change->pid);
    g_free(show->header);
    show->header = g_string_free(header, FALSE);
    show->gap = change->entry->flags & WB_CONTROL_CHANGE_GAP;
    show->actor = change->entry->actor;
}

bool show_is_full(const struct show *show)
{
    return show->limit >= 0 && show->lines >= show->limit;
}

static void print_line(struct show *show, const char *op, const char *rest, uint64_t bytes)
{
    char size[WB_TEXT_SIZE_MAX];
    unsigned width = wb_text_width(op);

    if (show_is_full(show))
        return;
    if (show->header) {
        printf("%s%s\n", show->begun ? "\n" : "", show->header);
        show->begun = true;
        g_clear_pointer(&show->header, g_free);
    }
    printf("    %s%s%s%s%*s %s%s", show->time, wb_color(color_of(op)), op, wb_color(WB_COLOR_OFF),
           (int)(width < OP_WIDTH ? OP_WIDTH - width : 0), "", show->path, rest);
    if (bytes > 0)
        printf("%s, %s%s", wb_color(WB_COLOR_FAINT), wb_text_size(bytes, size), wb_color(WB_COLOR_OFF));
    putchar('\n');
    show->lines++;
}

static bool is_birth(const char *op)
{
    return op && (strcmp(op, "create") == 0 || strcmp(op, "mkdir") == 0 || strcmp(op, "mknod") == 0 ||
                  strcmp(op, "symlink") == 0);
}

static void end_line(struct show *show)
{
    g_autofree char *op = NULL;

    if (!show->open)
        return;
    /* Attributes that a program sets of a file that it has just made are no news. */
    for (guint i = 0; !is_birth(show->op) && i < show->attributes->len; i += 2)
        print_line(show, show->attributes->pdata[i], show->attributes->pdata[i + 1], 0);
    g_ptr_array_set_size(show->attributes, 0);
    if (show->op) {
        op = show->count > 1 && show->operations ? g_strdup_printf("%s ×%" G_GUINT64_FORMAT, show->op, show->count)
                                                 : g_strdup(show->op);
        print_line(show, op, show->rest, show->bytes);
    }
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

static bool is_one_of(const char *op, const char *const *ops)
{
    return op && g_strv_contains(ops, op);
}

static bool is_content(const char *op)
{
    static const char *const ops[] = {"write", "mmap",     "truncate", "allocate", "punch",
                                      "zero",  "collapse", "insert",   "copy",     NULL};

    return is_one_of(op, ops);
}

static bool is_attributes(const char *op)
{
    static const char *const ops[] = {"chmod", "chown", "utimens", "setxattr", "removexattr", NULL};

    return is_one_of(op, ops);
}

static bool is_emptied(const struct wb_change *change)
{
    return strcmp(change->op, "truncate") == 0 && change->entry->size_after == 0;
}

static bool is_of_group(const struct show *show, const struct wb_change *change)
{
    return (show->begun || show->header) && change->entry->actor == show->actor &&
           show->gap == !!(change->entry->flags & WB_CONTROL_CHANGE_GAP);
}

/* Whether an older change belongs to the version of the line (history/versions/saves.c has the same rule). */
static bool is_same_version(const struct show *show, const struct wb_change *change)
{
    bool room = show->op && (is_birth(change->op) || is_emptied(change));
    bool soon = show->oldest - change->entry->when < 2 * WB_WHEN_SECOND;

    if (show->complete ? !(room && soon && is_content(show->op)) : !(room || soon))
        return false;
    return is_attributes(change->op) || is_content(change->op) ? !show->op || is_content(show->op)
                                                               : is_birth(change->op);
}

/* Runs of one operation on one file are one line, or all changes of a version. */
static bool folds(const struct show *show, const struct wb_change *change, const char *path)
{
    if (!show->open || show->verbose || *change->other || strcmp(show->path, path) != 0)
        return false;
    return show->operations ? !*change->detail && strcmp(show->op, change->op) == 0 : is_same_version(show, change);
}

/* As the line has it; g_free. */
static char *shown_path(const struct show *show, const struct wb_change *change)
{
    bool is_dir = S_ISDIR(change->entry->mode_before) || strcmp(change->op, "mkdir") == 0;
    g_autofree char *name = printable(show, change->path);
    bool bare = !g_str_has_suffix(name, "/") && strcmp(name, ".") != 0;

    return g_strconcat(name, is_dir && bare ? "/" : "", NULL);
}

static void add_attributes(struct show *show, const struct wb_change *change)
{
    g_ptr_array_add(show->attributes, g_strdup(change->op));
    g_ptr_array_add(show->attributes, rest_of(show, change));
}

static void fold(struct show *show, const struct wb_change *change)
{
    if (!show->operations && is_attributes(change->op)) {
        add_attributes(show, change);
        return;
    }
    show->count++;
    /* Bytes that were cut off were not written. */
    if (show->operations || !is_emptied(change))
        show->bytes += change->entry->length;
    if (show->operations)
        return;
    g_free(show->op);
    show->op = g_strdup(show->count == 1 || is_birth(change->op) ? change->op : "write");
    if (!show->rest)
        show->rest = rest_of(show, change);
}

static void begin_line(struct show *show, const struct wb_change *change, const char *path)
{
    const struct wb_control_change *entry = change->entry;

    show->open = true;
    show->path = g_strdup(path);
    show->count = show->bytes = 0;
    if (!show->attributes)
        show->attributes = g_ptr_array_new_with_free_func(g_free);
    if (!show->operations && !show->verbose && is_attributes(change->op)) {
        add_attributes(show, change);
        return;
    }
    show->op = g_strdup(change->op);
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

void show_change(struct show *show, const struct wb_change *change)
{
    g_autofree char *path = shown_path(show, change);
    bool of_group = is_of_group(show, change);

    if (of_group && folds(show, change, path)) {
        fold(show, change);
    } else {
        end_line(show);
        if (!of_group)
            begin_group(show, change);
        begin_line(show, change, path);
    }
    show->complete = change->entry->flags & WB_CONTROL_CHANGE_BEGINS || is_birth(change->op) || is_emptied(change) ||
                     !(is_content(change->op) || is_attributes(change->op));
    show->oldest = change->entry->when;
}

void show_end(struct show *show)
{
    end_line(show);
    g_clear_pointer(&show->header, g_free);
    if (show->attributes)
        g_ptr_array_unref(g_steal_pointer(&show->attributes));
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
