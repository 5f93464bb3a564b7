/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/document.h"
#include "common/text.h"
#include "wayback/when.h"
#include <string.h>

JsonObject *document_parse(const char *line)
{
    g_autoptr(JsonParser) parser = json_parser_new();
    JsonNode *root;

    if (!json_parser_load_from_data(parser, line, -1, NULL))
        return NULL;
    root = json_parser_get_root(parser);
    return root && JSON_NODE_HOLDS_OBJECT(root) ? json_object_ref(json_node_get_object(root)) : NULL;
}

static JsonNode *member(JsonObject *object, const char *key, JsonNodeType type)
{
    JsonNode *node = object ? json_object_get_member(object, key) : NULL;

    return node && json_node_get_node_type(node) == type ? node : NULL;
}

const char *document_word(JsonObject *object, const char *key)
{
    JsonNode *node = member(object, key, JSON_NODE_VALUE);

    return node && json_node_get_value_type(node) == G_TYPE_STRING ? json_node_get_string(node) : NULL;
}

char *document_text(JsonObject *object, const char *key)
{
    g_autofree char *bytes_key = g_strconcat(key, "_bytes", NULL);
    const char *encoded = document_word(object, bytes_key);
    g_autofree guchar *bytes = NULL;
    gsize length;

    if (!encoded)
        return g_strdup(document_word(object, key));
    bytes = g_base64_decode(encoded, &length);
    return g_strndup((const char *)bytes, length);
}

int64_t document_int(JsonObject *object, const char *key)
{
    JsonNode *node = member(object, key, JSON_NODE_VALUE);

    return node ? json_node_get_int(node) : 0;
}

JsonObject *document_object(JsonObject *object, const char *key)
{
    JsonNode *node = member(object, key, JSON_NODE_OBJECT);

    return node ? json_node_get_object(node) : NULL;
}

JsonArray *document_array(JsonObject *object, const char *key)
{
    JsonNode *node = member(object, key, JSON_NODE_ARRAY);

    return node ? json_node_get_array(node) : NULL;
}

int64_t document_instant(JsonObject *object, const char *key)
{
    const char *text = document_word(document_object(object, key), "epoch");
    struct wb_time time;

    return text && wb_time_parse(text, 0, &time) == 0 && time.kind == WB_TIME_INSTANT ? time.instant : 0;
}

char *document_error(JsonObject *object)
{
    JsonObject *error = document_object(object, "error");
    const char *message = document_word(error, "message");
    g_autofree char *path = error ? document_text(error, "path") : NULL;
    g_autofree char *text = NULL;

    if (!error)
        return NULL;
    text = path ? g_strdup_printf("%s: %s", path, message ? message : "failed")
                : g_strdup(message ? message : "failed");
    return wb_text_printable(text);
}
