/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vstat.h"
#include "common/text.h"
#include "content/version_text.h"
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

/* The number of the version, or "-": a gap, or attributes alone. */
static char *number(const struct row *row)
{
    return row->is.change ? g_strdup_printf("%u", row->is.change) : g_strdup("-");
}

void show_row(struct wb_table *table, const struct show *show, const struct row *row)
{
    const struct wb_version_style style = {show->directory, show->verbose, show->name};
    const struct wb_control_version *version = &row->is;
    bool withheld = version->flags & WB_CONTROL_VERSION_WITHHELD;
    char time[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];
    g_autofree char *which = number(row);
    g_autofree char *operation_number = g_strdup_printf("%u", row->operation);
    g_autofree char *op = withheld ? g_strdup("(withheld)") : wb_version_operation(&style, version);
    g_autofree char *op_shown = wb_text_printable(op);
    g_autofree char *name = wb_text_printable(withheld ? "-" : *version->name ? version->name : ".");
    g_autofree char *touched = wb_version_bytes(&style, version);
    g_autofree char *then = withheld ? g_strdup("-") : wb_version_size(&style, version);
    g_autofree char *actor = wb_version_who(&style, version);
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
