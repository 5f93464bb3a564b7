/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vweb/request.h"
#include "client/errno_text.h"
#include "client/path.h"
#include "common/json.h"
#include "common/text.h"
#include "content/document.h"
#include "vweb/guard.h"
#include "wayback/when.h"
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <string.h>

/* ---- replies ------------------------------------------------------------------------------------- */

JsonBuilder *web_reply_begin(void)
{
    JsonBuilder *builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_int(builder, "schema", 1);
    return builder;
}

void web_reply_end(struct web_reply *reply, JsonBuilder *builder)
{
    g_autoptr(JsonGenerator) generator = json_generator_new();
    g_autoptr(JsonNode) root = NULL;
    gsize length;
    char *text;

    json_builder_end_object(builder);
    root = json_builder_get_root(builder);
    json_generator_set_root(generator, root);
    text = json_generator_to_data(generator, &length);
    reply->type = "application/json";
    reply->bytes = g_bytes_new_take(text, length);
    if (reply->status == 0)
        reply->status = MHD_HTTP_OK;
}

void web_reply_error(struct web_reply *reply, unsigned status, const char *kind, const char *format, ...)
{
    g_autoptr(JsonBuilder) builder = web_reply_begin();
    g_autofree char *bytes = NULL;
    g_autofree char *message = NULL;
    va_list arguments;

    va_start(arguments, format);
    bytes = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    message = wb_text_printable(bytes);
    json_builder_set_member_name(builder, "error");
    json_builder_begin_object(builder);
    wb_json_string(builder, "kind", kind);
    wb_json_string(builder, "message", message);
    json_builder_end_object(builder);
    reply->status = status;
    web_reply_end(reply, builder);
}

void web_reply_errno(struct web_reply *reply, int error, const char *text)
{
    static const struct {
        int error;
        unsigned status;
        const char *kind;
    } kinds[] = {{ENOENT, MHD_HTTP_NOT_FOUND, "absent"},      {ENODATA, MHD_HTTP_NOT_FOUND, "absent"},
                 {ENOTDIR, MHD_HTTP_NOT_FOUND, "absent"},     {ELOOP, MHD_HTTP_NOT_FOUND, "absent"},
                 {EXDEV, MHD_HTTP_NOT_FOUND, "absent"},       {EACCES, MHD_HTTP_FORBIDDEN, "denied"},
                 {EPERM, MHD_HTTP_FORBIDDEN, "denied"},       {EROFS, MHD_HTTP_FORBIDDEN, "denied"},
                 {EINVAL, MHD_HTTP_BAD_REQUEST, "usage"},     {ENAMETOOLONG, MHD_HTTP_BAD_REQUEST, "usage"},
                 {EAGAIN, MHD_HTTP_SERVICE_UNAVAILABLE, "preparing"}};
    const char *kind = "failed";
    unsigned status = MHD_HTTP_INTERNAL_SERVER_ERROR;

    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (kinds[i].error == ABS(error)) {
            status = kinds[i].status;
            kind = kinds[i].kind;
        }
    }
    web_reply_error(reply, status, kind, "%s", text && *text ? text : wb_errno_text(error));
}

/* ---- arguments ----------------------------------------------------------------------------------- */

char *web_argument(const struct web_request *request, const char *key)
{
    const char *value = NULL;
    size_t size = 0;

    if (request->body)
        return document_text(request->body, key);
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, key, strlen(key), &value, &size) !=
            MHD_YES || !value || strlen(value) != size)
        return NULL;
    return g_strdup(value);
}

bool web_argument_path(const struct web_request *request, struct web_reply *reply, char **ret)
{
    g_autofree char *path = web_argument(request, "path");

    *ret = NULL;
    if (path && web_path_is_fine(path))
        *ret = wb_path_join(request->web->place->path, path);
    else
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage",
                        "'path' is missing, or is not a path below the directory that is shown");
    return *ret != NULL;
}

bool web_argument_time(const struct web_request *request, struct web_reply *reply, const char *key, int64_t otherwise,
                       int64_t *ret)
{
    g_autofree char *text = web_argument(request, key);
    struct wb_time time;

    *ret = otherwise;
    if (!text || !*text)
        return true;
    /* No words: their meaning would depend on the time of the request. */
    if (strspn(text, "0123456789.") == strlen(text) && wb_time_parse(text, 0, &time) == 0 &&
        time.kind == WB_TIME_INSTANT) {
        *ret = time.instant;
        return true;
    }
    web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "'%s' must be a number of seconds since the epoch", key);
    return false;
}

bool web_argument_number(const struct web_request *request, struct web_reply *reply, const char *key, int64_t least,
                         int64_t most, int64_t otherwise, int64_t *ret)
{
    g_autofree char *text = web_argument(request, key);
    gint64 value;

    *ret = otherwise;
    if (!text)
        return true;
    if (g_ascii_string_to_signed(text, 10, least, most, &value, NULL)) {
        *ret = value;
        return true;
    }
    web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage",
                    "'%s' must be a number from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, key, least, most);
    return false;
}

/* ---- members ------------------------------------------------------------------------------------- */

void web_add_text(JsonBuilder *builder, const char *key, const char *bytes)
{
    g_autofree char *shown = wb_text_printable(bytes);
    g_autofree char *name = g_strconcat(key, "_shown", NULL);

    wb_json_string(builder, key, bytes);
    if (strcmp(shown, bytes) != 0)
        wb_json_string(builder, name, shown);
}

char *web_user_name(uint32_t uid)
{
    static GMutex lock;
    char *name;

    g_mutex_lock(&lock);
    name = g_strdup(wb_text_user(uid));
    g_mutex_unlock(&lock);
    return name;
}

const char *web_path_below(const struct web *web, const char *path)
{
    const char *rest;

    return wb_path_below(path, web->place->path, &rest) ? rest : path;
}
