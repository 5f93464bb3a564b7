/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vstat.h"
#include "common/text.h"
#include "wayback/when.h"
#include <string.h>

struct wb_table *show_table(FILE *out, const struct show *show)
{
    struct wb_column columns[WB_TABLE_COLUMNS_MAX];
    unsigned n = 0;

    columns[n++] = (struct wb_column){"VERSION", 1};
    if (show->operations)
        columns[n++] = (struct wb_column){"CHANGE", 1};
    if (show->now)
        columns[n++] = (struct wb_column){"AGE", 1};
    columns[n++] = (struct wb_column){"TIME", 0};
    columns[n++] = (struct wb_column){"OPERATION", 0};
    if (show->directory)
        columns[n++] = (struct wb_column){"NAME", 0};
    if (show->directory || show->operations || show->verbose)
        columns[n++] = (struct wb_column){"BYTES", 0};
    if (!show->directory && !show->operations)
        columns[n++] = (struct wb_column){"LINES", 1};
    columns[n++] = (struct wb_column){"SIZE", 1};
    columns[n++] = (struct wb_column){"WHO", 0};
    return wb_table_new(out, columns, n);
}

/*
 * The other name of a rename or link: the former or the new one. The list of a directory shows a rename inside it at
 * the name that was lost; the list of a file that had the other name before shows it at the name that it had.
 */
static void append_other(GString *text, const struct show *show, const struct wb_control_version *version)
{
    bool lost = !version->exists_after;

    if (strcmp(version->op_name, "exchange") == 0) {
        g_string_append_printf(text, " with %s", version->other);
        return;
    }
    if (strcmp(version->op_name, "rename") == 0 && version->existed_before &&
        strcmp(version->name, show->directory ? version->other : show->name) != 0)
        lost = true;
    if (lost && !show->directory && strcmp(version->other, show->name) == 0)
        g_string_append_printf(text, " from %s", version->name);
    else
        g_string_append_printf(text, " %s %s", lost ? "to" : "from", version->other);
}

/* "gap since 2026-11-22 14:03:07": the changes of that time are unknown. */
static char *gap(const struct show *show, const struct wb_control_version *version)
{
    char since[WB_WHEN_TEXT_MAX] = "the beginning";

    if (version->offset > 0)
        wb_text_time((int64_t)version->offset, show->verbose, since);
    return *version->detail ? g_strdup_printf("gap since %s (%s)", since, version->detail)
                            : g_strdup_printf("gap since %s", since);
}

/* "write (thinned out since 2026-11-22 14:03:07)": the states since then were deleted; the one before is shown. */
static void append_thinned(GString *text, const struct show *show, const struct wb_control_version *version)
{
    char since[WB_WHEN_TEXT_MAX];

    wb_text_time(version->thinned_since, show->verbose, since);
    g_string_append_printf(text, " (thinned out since %s)", since);
}

/* "rename from draft.txt", "setxattr user.note", "write (as .report.swp)". */
static char *operation(const struct show *show, const struct wb_control_version *version)
{
    GString *text;

    if (version->flags & WB_CONTROL_VERSION_GAP)
        return gap(show, version);
    text = g_string_new(version->op_name);
    if (*version->detail)
        g_string_append_printf(text, " %s", version->detail);
    if (*version->other)
        append_other(text, show, version);
    if (!show->directory && *version->name && strcmp(version->name, show->name) != 0 &&
        strcmp(version->other, show->name) != 0)
        g_string_append_printf(text, " (as %s)", version->name);
    if (version->flags & WB_CONTROL_VERSION_THINNED)
        append_thinned(text, show, version);
    return g_string_free(text, FALSE);
}

/* "4.0 KiB at 12 KiB", or "-" if the change affected no bytes. */
static char *bytes(const struct show *show, const struct wb_control_version *version)
{
    char length[WB_TEXT_SIZE_MAX], offset[WB_TEXT_SIZE_MAX];

    if (version->length == 0)
        return g_strdup("-");
    if (show->verbose)
        return g_strdup_printf("%" G_GUINT64_FORMAT " at %" G_GUINT64_FORMAT, version->length,
                               version->offset);
    if (version->offset < 1024) /* a place, not an amount: without "B" */
        return g_strdup_printf("%s at %u", wb_text_size(version->length, length), (unsigned)version->offset);
    return g_strdup_printf("%s at %s", wb_text_size(version->length, length),
                           wb_text_size(version->offset, offset));
}

static char *size(const struct show *show, const struct wb_control_version *version)
{
    char text[WB_TEXT_SIZE_MAX];

    if (!version->exists_after)
        return g_strdup("gone");
    /* A catalog does not always record the size of an entry. */
    if (show->directory && version->size_after == 0)
        return g_strdup("-");
    if (show->verbose && version->existed_before && version->size_before != version->size_after)
        return g_strdup_printf("%" G_GUINT64_FORMAT " -> %" G_GUINT64_FORMAT, version->size_before,
                               version->size_after);
    if (show->verbose)
        return g_strdup_printf("%" G_GUINT64_FORMAT, version->size_after);
    return g_strdup(wb_text_size(version->size_after, text));
}

static char *who(const struct show *show, const struct wb_control_version *version)
{
    g_autofree char *shown = wb_text_printable(version->command);

    if (version->pid == 0 && !*version->command)
        return g_strdup(version->uid ? wb_text_user(version->uid) : "-");
    if (show->verbose)
        return g_strdup_printf("%s:%s %u %s", wb_text_user(version->uid), wb_text_group(version->gid),
                               version->pid, shown);
    return g_strdup_printf("%s %u %s", wb_text_user(version->uid), version->pid, shown);
}

/* The number of the version, or "-": a gap, or attributes alone. */
static char *number(const struct row *row)
{
    return row->is.change ? g_strdup_printf("%u", row->is.change) : g_strdup("-");
}

void show_row(struct wb_table *table, const struct show *show, const struct row *row)
{
    const struct wb_control_version *version = &row->is;
    bool withheld = version->flags & WB_CONTROL_VERSION_WITHHELD;
    char time[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];
    g_autofree char *which = number(row);
    g_autofree char *operation_number = g_strdup_printf("%u", row->operation);
    g_autofree char *op = withheld ? g_strdup("(withheld)") : operation(show, version);
    g_autofree char *op_shown = wb_text_printable(op);
    g_autofree char *name = wb_text_printable(withheld ? "-" : *version->name ? version->name : ".");
    g_autofree char *touched = bytes(show, version);
    g_autofree char *then = withheld ? g_strdup("-") : size(show, version);
    g_autofree char *actor = who(show, version);
    const char *cells[WB_TABLE_COLUMNS_MAX];
    unsigned n = 0;

    cells[n++] = which;
    if (show->operations)
        cells[n++] = operation_number;
    if (show->now)
        cells[n++] = wb_text_age(show->now - version->when, age);
    cells[n++] = wb_text_time(version->when, show->verbose, time);
    cells[n++] = op_shown;
    if (show->directory)
        cells[n++] = name;
    if (show->directory || show->operations || show->verbose)
        cells[n++] = touched;
    if (!show->directory && !show->operations)
        cells[n++] = row->lines;
    cells[n++] = then;
    cells[n++] = actor;
    wb_table_add(table, cells);
}

static void add_contains(JsonBuilder *builder, int contains)
{
    json_builder_set_member_name(builder, "contains");
    if (contains < 0)
        json_builder_add_null_value(builder);
    else
        json_builder_add_boolean_value(builder, contains > 0);
}

void show_json(JsonBuilder *builder, const struct show *show, const struct row *row)
{
    const struct wb_control_version *version = &row->is;

    json_builder_begin_object(builder);
    if (version->change)
        wb_json_int(builder, "change", version->change);
    else
        wb_json_null(builder, "change");
    if (show->operations)
        wb_json_int(builder, "operation", row->operation);
    wb_json_when(builder, version->when);
    if (row->contains)
        add_contains(builder, *row->contains);
    wb_json_bool(builder, "withheld", version->flags & WB_CONTROL_VERSION_WITHHELD);
    if (version->flags & WB_CONTROL_VERSION_WITHHELD) {
        json_builder_end_object(builder);
        return;
    }
    wb_json_string(builder, "op", version->op_name);
    if (version->flags & WB_CONTROL_VERSION_GAP)
        wb_json_time(builder, "since", (int64_t)version->offset);
    else
        wb_json_int(builder, "offset", (int64_t)version->offset);
    if (version->flags & WB_CONTROL_VERSION_THINNED)
        wb_json_time(builder, "thinned_since", version->thinned_since);
    wb_json_int(builder, "length", (int64_t)version->length);
    wb_json_int(builder, "size_before", (int64_t)version->size_before);
    wb_json_int(builder, "size_after", (int64_t)version->size_after);
    wb_json_bool(builder, "existed_before", version->existed_before);
    wb_json_bool(builder, "exists_after", version->exists_after);
    wb_json_int(builder, "uid", version->uid);
    wb_json_int(builder, "gid", version->gid);
    wb_json_int(builder, "pid", version->pid);
    wb_json_string(builder, "command", version->command);
    if (*version->name)
        wb_json_string(builder, "name", version->name);
    if (*version->other)
        wb_json_string(builder, "other", version->other);
    if (*version->detail)
        wb_json_string(builder, "detail", version->detail);
    if (!show->operations) {
        wb_json_int(builder, "operations", row->operations);
        wb_json_time(builder, "began", row->began);
    }
    json_builder_end_object(builder);
}
