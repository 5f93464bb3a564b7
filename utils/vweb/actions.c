/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/json.h"
#include "content/document.h"
#include "vweb/request.h"
#include <errno.h>
#include <microhttpd.h>

/* Restoring, after a plan of it. Both replies are the document of `vrevert --json`, and `before`. */

static void restore(const struct web_request *request, struct web_reply *reply, bool dry)
{
    g_autofree char *path = NULL;
    g_autofree char *text = NULL;
    g_autoptr(JsonObject) document = NULL;
    g_autoptr(JsonBuilder) builder = NULL;
    g_autoptr(JsonNode) root = NULL;
    int64_t when = 0, before = 0;
    int r;

    if (!web_argument_path(request, reply, &path) || !web_argument_time(request, reply, "epoch", 0, &when))
        return;
    if (when <= 0 || when > wb_mount_now(request->web->place->mount)) {
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "'epoch' is missing, or in the future");
        return;
    }
    if (!dry && request->web->read_only) {
        web_reply_error(reply, MHD_HTTP_FORBIDDEN, "denied", "%s", request->web->why_read_only);
        return;
    }
    r = web_restore(request->web, path, when, dry, &text, &before);
    document = r == 0 ? document_parse(text) : NULL;
    if (!document) {
        web_reply_errno(reply, r < 0 ? r : -EIO, "the restore ended early; the same restore finishes it");
        return;
    }
    builder = json_builder_new();
    json_builder_begin_object(builder);
    wb_json_time(builder, "before", before);
    json_builder_end_object(builder);
    root = json_builder_get_root(builder);
    json_object_set_member(document, "before",
                           json_node_copy(json_object_get_member(json_node_get_object(root), "before")));
    reply->status = MHD_HTTP_OK;
    reply->type = "application/json";
    {
        g_autoptr(JsonNode) node = json_node_alloc();
        gsize length;
        char *whole;

        json_node_init_object(node, document);
        whole = json_to_string(node, FALSE);
        length = strlen(whole);
        reply->bytes = g_bytes_new_take(whole, length);
    }
}

void web_post_plan(const struct web_request *request, struct web_reply *reply)
{
    restore(request, reply, true);
}

void web_post_restore(const struct web_request *request, struct web_reply *reply)
{
    restore(request, reply, false);
}
