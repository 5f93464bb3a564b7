/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/fd.h"
#include "client/path.h"
#include "common/json.h"
#include "content/document.h"
#include "vweb/request.h"
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/stat.h>

/* Whether the path is there now, as far as the caller may know. */
static bool is_there(const struct web *web, const char *path)
{
    const char *rest, *name;
    g_autofree char *whole = wb_path_below(path, web->shown, &rest) ? wb_path_join(web->place->path, rest) : NULL;
    _cleanup_fd_ int dir = whole ? wb_fd_open_parent(web->place->mount->root_fd, whole, &name) : -1;
    struct stat st;

    return dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The object that a name gets back may take the place of another one, which the plan should say. */
static void add_replacements(const struct web *web, JsonObject *document)
{
    JsonArray *actions = document_array(document, "actions");

    for (guint i = 0; actions && i < json_array_get_length(actions); i++) {
        JsonObject *action = json_array_get_object_element(actions, i);
        const char *word = document_word(action, "action");
        g_autofree char *path = document_text(action, "path");
        bool brings = g_strcmp0(word, "restore") == 0 || g_strcmp0(word, "copy") == 0 || g_strcmp0(word, "rename") == 0;

        if (brings && path)
            json_object_set_boolean_member(action, "replaces", is_there(web, path));
    }
}

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
    if (dry)
        add_replacements(request->web, document);
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
