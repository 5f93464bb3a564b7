/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/steps.h"

#include "common/json.h"

void wb_steps_begin(const char *directory, bool dry_run)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", directory);
    wb_json_bool(builder, "dry_run", dry_run);
    json_builder_end_object(builder);
    wb_json_list_begin(builder, "steps");
}

void wb_steps_add(const char *step, const char *detail)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "step", step);
    wb_json_string(builder, "detail", detail);
    json_builder_end_object(builder);
    wb_json_list_add(builder);
}

void wb_steps_end(const char *key, bool value)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_bool(builder, key, value);
    json_builder_end_object(builder);
    wb_json_list_end(builder);
}
