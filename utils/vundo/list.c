/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vundo.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/table.h"
#include "common/text.h"
#include <stdio.h>

char *list_counts(const struct restore *restore)
{
    GString *text = g_string_new(NULL);

    if (restore->added > 0)
        g_string_append_printf(text, " +%" G_GUINT64_FORMAT, restore->added);
    if (restore->removed > 0)
        g_string_append_printf(text, " -%" G_GUINT64_FORMAT, restore->removed);
    if (restore->changed > 0)
        g_string_append_printf(text, " ~%" G_GUINT64_FORMAT, restore->changed);
    if (text->len > 0)
        g_string_erase(text, 0, 1);
    else
        g_string_append(text, "-");
    return g_string_free(text, FALSE);
}

static void list_json(const struct vundo *vundo, const struct restore *restore)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();
    g_autofree char *shown = vundo_shown(vundo, restore->top);
    char id[WB_WHEN_TEXT_MAX];

    json_builder_begin_object(builder);
    wb_json_string(builder, "op", restore_id(restore, id));
    wb_json_string(builder, "state", restore_state(restore));
    wb_json_when(builder, restore->first);
    wb_json_time(builder, "end", restore->last);
    wb_json_string(builder, "path", shown);
    wb_json_int(builder, "uid", restore->uid);
    wb_json_int(builder, "pid", restore->pid);
    wb_json_string(builder, "command", restore->command);
    wb_json_int(builder, "changes", (int64_t)restore->changes);
    wb_json_int(builder, "added", (int64_t)restore->added);
    wb_json_int(builder, "removed", (int64_t)restore->removed);
    wb_json_int(builder, "changed", (int64_t)restore->changed);
    if (restore->inverts)
        wb_json_string(builder, "inverts", restore_id(restore->inverts, id));
    if (restore->undone_by)
        wb_json_string(builder, "undone_by", restore_id(restore->undone_by, id));
    json_builder_end_object(builder);
    wb_json_entry(builder);
}

static void list_row(const struct vundo *vundo, struct wb_table *table, const struct restore *restore)
{
    g_autofree char *shown = vundo_shown(vundo, restore->top);
    g_autofree char *path = wb_text_printable(shown);
    g_autofree char *command = wb_text_printable(restore->command);
    g_autofree char *counts = list_counts(restore);
    char id[WB_WHEN_TEXT_MAX], time[WB_WHEN_TEXT_MAX], age[WB_TEXT_AGE_MAX];
    const char *cells[] = {restore_short_id(vundo->restores, restore, id),
                           wb_text_time(restore->first, false, time),
                           wb_text_age(wb_mount_now(vundo->place->mount) - restore->first, age),
                           wb_text_user(restore->uid),
                           restore_state(restore),
                           counts,
                           path,
                           command};

    wb_table_add(table, cells);
}

void list(const struct vundo *vundo)
{
    static const struct wb_column columns[] = {{"ID", 0}, {"TIME", 0},  {"AGE", 1},  {"USER", 0},
                                               {"STATE", 0}, {"NAMES", 0}, {"PATH", 0}, {"COMMAND", 0}};
    struct wb_table *table = wb_table_new(stdout, columns, vundo->verbose ? 8 : 7);
    guint count = 0;

    for (guint i = 0; i < vundo->restores->len && !wb_cli_interrupted(); i++) {
        const struct restore *restore = vundo->restores->pdata[i];

        if (!wb_path_below(restore->top, vundo->place->path, NULL))
            continue;
        count++;
        if (vundo->json)
            list_json(vundo, restore);
        else
            list_row(vundo, table, restore);
    }
    wb_table_free(table);
    if (count == 0 && !vundo->json)
        printf("%s: no restore by vrevert is recorded here\n", vundo->place->given);
}
