/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/json.h"
#include "wayback/quote.h"
#include "wayback/when.h"

void wb_json_string(JsonBuilder *builder, const char *key, const char *bytes)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, -1);

    json_builder_set_member_name(builder, key);
    json_builder_add_string_value(builder, valid);
}

void wb_json_int(JsonBuilder *builder, const char *key, int64_t value)
{
    json_builder_set_member_name(builder, key);
    json_builder_add_int_value(builder, value);
}

void wb_json_bool(JsonBuilder *builder, const char *key, bool value)
{
    json_builder_set_member_name(builder, key);
    json_builder_add_boolean_value(builder, value);
}

void wb_json_when(JsonBuilder *builder, int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    wb_json_int(builder, "when", when);
    wb_json_string(builder, "time", wb_when_print_iso(when, text));
}

static char *text_of(JsonNode *root)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autofree char *text = NULL;

    json_generator_set_root(generator, root);
    text = json_generator_to_data(generator, NULL);
    return wb_quote_json(text);
}

char *wb_json_text(JsonBuilder *builder)
{
    JsonNode *root = json_builder_get_root(builder);
    char *text = text_of(root);

    json_node_unref(root);
    json_builder_reset(builder);
    return text;
}

void wb_json_print(FILE *out, JsonBuilder *builder)
{
    g_autofree char *text = wb_json_text(builder);

    fputs(text, out);
}

char *wb_json_literal(const char *bytes)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, -1);
    g_autoptr(JsonNode) node = json_node_init_string(json_node_alloc(), valid);

    return text_of(node);
}
