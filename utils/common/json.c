/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/json.h"
#include "wayback/quote.h"
#include "wayback/when.h"
#include <stdlib.h>
#include <string.h>

/* More errors of one document than this are only counted. */
#define ERRORS_MAX 100

static FILE *out;         /* NULL: without --json */
static GPtrArray *errors; /* of objects as text, for the next document */
static guint errors_left_out;
static bool list_is_open, list_has_elements;

static FILE *output(void)
{
    return out ? out : stdout;
}

/* ---- members --------------------------------------------------------------------------------- */

static void add_base64(JsonBuilder *builder, const char *bytes)
{
    g_autofree char *text = g_base64_encode((const guchar *)bytes, strlen(bytes));

    json_builder_add_string_value(builder, text);
}

static void add_valid(JsonBuilder *builder, const char *bytes)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, -1);

    json_builder_add_string_value(builder, valid);
}

static void begin_bytes(JsonBuilder *builder, const char *key)
{
    g_autofree char *name = g_strconcat(key, "_bytes", NULL);

    json_builder_set_member_name(builder, name);
}

void wb_json_string(JsonBuilder *builder, const char *key, const char *bytes)
{
    json_builder_set_member_name(builder, key);
    add_valid(builder, bytes);
    if (g_utf8_validate(bytes, -1, NULL))
        return;
    begin_bytes(builder, key);
    add_base64(builder, bytes);
}

void wb_json_strings(JsonBuilder *builder, const char *key, const char *const *strings)
{
    bool valid = true;

    json_builder_set_member_name(builder, key);
    json_builder_begin_array(builder);
    for (const char *const *at = strings; *at; at++) {
        add_valid(builder, *at);
        valid = valid && g_utf8_validate(*at, -1, NULL);
    }
    json_builder_end_array(builder);
    if (valid)
        return;
    begin_bytes(builder, key);
    json_builder_begin_array(builder);
    for (const char *const *at = strings; *at; at++) {
        if (g_utf8_validate(*at, -1, NULL))
            json_builder_add_null_value(builder);
        else
            add_base64(builder, *at);
    }
    json_builder_end_array(builder);
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

void wb_json_null(JsonBuilder *builder, const char *key)
{
    json_builder_set_member_name(builder, key);
    json_builder_add_null_value(builder);
}

void wb_json_when(JsonBuilder *builder, int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    wb_json_string(builder, "time", wb_when_print_iso(when, text));
    wb_json_string(builder, "epoch", wb_when_print_epoch(when, text));
}

void wb_json_time(JsonBuilder *builder, const char *key, int64_t when)
{
    if (when == 0) {
        wb_json_null(builder, key);
        return;
    }
    json_builder_set_member_name(builder, key);
    json_builder_begin_object(builder);
    wb_json_when(builder, when);
    json_builder_end_object(builder);
}

/* ---- text ------------------------------------------------------------------------------------ */

/* One line; g_free. */
static char *text_of(JsonNode *root)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autofree char *text = NULL;

    json_generator_set_root(generator, root);
    text = json_generator_to_data(generator, NULL);
    return wb_quote_json(text);
}

static char *take_text(JsonBuilder *builder)
{
    JsonNode *root = json_builder_get_root(builder);
    char *text = text_of(root);

    json_node_unref(root);
    json_builder_reset(builder);
    return text;
}

char *wb_json_literal(const char *bytes)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, -1);
    g_autoptr(JsonNode) node = json_node_init_string(json_node_alloc(), valid);

    return text_of(node);
}

/* The members of the object as text, behind a comma; "" for an empty one and for NULL. g_free. */
static char *take_members(JsonBuilder *builder)
{
    g_autofree char *text = builder ? take_text(builder) : g_strdup("{}");
    size_t length = strlen(text);

    return length <= 2 ? g_strdup("") : g_strdup_printf(",%.*s", (int)(length - 2), text + 1);
}

static void print_begin(const char *members)
{
    fprintf(output(), "{\"schema\":%d%s", WB_JSON_SCHEMA, members);
}

/* With the errors so far. */
static void print_end(void)
{
    if (errors && errors->len > 0)
        fprintf(output(), ",\"error\":%s", (const char *)errors->pdata[0]);
    if (errors && errors->len > 1) {
        fputs(",\"errors\":[", output());
        for (guint i = 0; i < errors->len; i++)
            fprintf(output(), "%s%s", i > 0 ? "," : "", (const char *)errors->pdata[i]);
        fputc(']', output());
    }
    if (errors_left_out > 0)
        fprintf(output(), ",\"errors_left_out\":%u", errors_left_out);
    fputs("}\n", output());
    errors_left_out = 0;
    if (errors)
        g_ptr_array_set_size(errors, 0);
}

/* ---- documents ------------------------------------------------------------------------------- */

void wb_json_document(JsonBuilder *builder)
{
    g_autofree char *members = take_members(builder);

    print_begin(members);
    print_end();
}

char *wb_json_entry_text(JsonBuilder *builder)
{
    g_autofree char *members = take_members(builder);

    return g_strdup_printf("{\"schema\":%d%s}\n", WB_JSON_SCHEMA, members);
}

void wb_json_entry(JsonBuilder *builder)
{
    g_autofree char *text = wb_json_entry_text(builder);

    wb_json_separate();
    fputs(text, output());
}

void wb_json_list_begin(JsonBuilder *head, const char *key)
{
    g_autofree char *members = take_members(head);

    print_begin(members);
    fprintf(output(), ",\"%s\":[", key);
    list_is_open = true;
    list_has_elements = false;
}

void wb_json_list_add(JsonBuilder *element)
{
    g_autofree char *text = take_text(element);

    fprintf(output(), "%s%s", list_has_elements ? "," : "", text);
    list_has_elements = true;
}

void wb_json_list_end(JsonBuilder *tail)
{
    g_autofree char *members = take_members(tail);

    list_is_open = false;
    fprintf(output(), "]%s", members);
    print_end();
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* The first "; " of the message that is neither in '...' nor in parentheses; NULL: there is none. */
static const char *find_remedy(const char *message)
{
    bool quoted = false;
    int depth = 0;

    for (const char *at = message; *at; at++) {
        bool begins = at == message || at[-1] == ' ' || at[-1] == '(';

        if (*at == '\'' && (quoted || begins))
            quoted = !quoted;
        if (quoted)
            continue;
        depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        if (depth <= 0 && g_str_has_prefix(at, "; "))
            return at;
    }
    return NULL;
}

/* The " (" that the ")" at the end of the text belongs to; NULL: it does not end so. */
static char *find_reason(char *text)
{
    size_t at = strlen(text);
    int depth = 0;

    if (at == 0 || text[at - 1] != ')')
        return NULL;
    while (at-- > 1) {
        depth += text[at] == ')' ? 1 : text[at] == '(' ? -1 : 0;
        if (depth == 0)
            return text[at - 1] == ' ' ? text + at - 1 : NULL;
    }
    return NULL;
}

/* The parts of a message, as far as it has them; see "Errors" in docs/contributing.md for its form. */
static void add_parts(JsonBuilder *builder, const char *message)
{
    const char *remedy = find_remedy(message);
    g_autofree char *problem = g_strndup(message, remedy ? (gsize)(remedy - message) : strlen(message));
    char *reason = find_reason(problem);

    if (reason) {
        problem[strlen(problem) - 1] = '\0';
        *reason = '\0';
    }
    wb_json_string(builder, "problem", problem);
    if (reason)
        wb_json_string(builder, "reason", reason + strlen(" ("));
    if (remedy)
        wb_json_string(builder, "remedy", remedy + strlen("; "));
}

void wb_json_error(const char *kind, const char *path, const char *message)
{
    g_autoptr(JsonBuilder) builder = NULL;

    if (!out)
        return;
    if (!errors)
        errors = g_ptr_array_new_with_free_func(g_free);
    if (errors->len >= ERRORS_MAX) {
        errors_left_out++;
        return;
    }
    builder = json_builder_new();
    json_builder_begin_object(builder);
    wb_json_string(builder, "kind", kind);
    if (path)
        wb_json_string(builder, "path", path);
    wb_json_string(builder, "message", message);
    add_parts(builder, message);
    json_builder_end_object(builder);
    g_ptr_array_add(errors, take_text(builder));
}

void wb_json_separate(void)
{
    if (errors && errors->len > 0)
        wb_json_document(NULL);
}

void wb_json_finish(void)
{
    if (list_is_open)
        wb_json_list_end(NULL);
    wb_json_separate();
}

void wb_json_start(FILE *to)
{
    if (!out)
        atexit(wb_json_finish);
    out = to;
}
