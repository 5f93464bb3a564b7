/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One request, as the functions that answer it see it, and their reply. */

#include <json-glib/json-glib.h>
#include "vweb/vweb.h"

struct MHD_Connection;

struct web_request {
    struct web *web;
    struct MHD_Connection *connection;
    JsonObject *body; /* of POST; NULL: none */
};

struct web_reply {
    unsigned status;  /* of HTTP                                                              */
    const char *type; /* of the content                                                       */
    GBytes *bytes;    /* the content, or                                                      */
    int fd;           /* the file that has it; -1: none                                       */
    uint64_t size;    /* of the file                                                          */
    char *file_name;  /* the content is to be saved under this name; NULL: it is to be shown  */
    bool is_image;    /* it is shown alone, and may load and run nothing                      */
};

/* Replies with the object of the builder, which has no members `schema` and `error`. */
JsonBuilder *web_reply_begin(void);
void web_reply_end(struct web_reply *reply, JsonBuilder *builder);

/* Replies with an error. `kind`: "usage", "denied", "absent", "preparing" (try again in a moment) or "failed". */
void web_reply_error(struct web_reply *reply, unsigned status, const char *kind, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* The same for a negative errno; `text` NULL: its usual text. */
void web_reply_errno(struct web_reply *reply, int error, const char *text);

/* ---- arguments: of the query, or members of the body --------------------------------------------- */

/* g_free; NULL: it is not given, or has a NUL. */
char *web_argument(const struct web_request *request, const char *key);

/* The path of the mount that "path" means. False after an error reply. */
bool web_argument_path(const struct web_request *request, struct web_reply *reply, char **ret);

/* An instant, in seconds with decimals; `otherwise` if it is not given. False after an error reply. */
bool web_argument_time(const struct web_request *request, struct web_reply *reply, const char *key, int64_t otherwise,
                       int64_t *ret);

/* A number between the two; `otherwise` if it is not given. False after an error reply. */
bool web_argument_number(const struct web_request *request, struct web_reply *reply, const char *key, int64_t least,
                         int64_t most, int64_t otherwise, int64_t *ret);

/* ---- members of replies -------------------------------------------------------------------------- */

/* A name or a command: the bytes, and as they can be shown in "KEY_shown" if that is different. */
void web_add_text(JsonBuilder *builder, const char *key, const char *bytes);

/* wb_text_user, which is not for threads; g_free. */
char *web_user_name(uint32_t uid);

/* The path below the directory that is shown, "" for that itself. */
const char *web_path_below(const struct web *web, const char *path);

/* ---- the functions of the interface -------------------------------------------------------------- */

typedef void web_function(const struct web_request *request, struct web_reply *reply);

/* look.c */
web_function web_get_session, web_get_list, web_get_versions, web_get_time, web_get_snapshots;
/* content.c */
web_function web_get_content, web_get_image, web_get_diff, web_post_ticket;
void web_get_download(const struct web_request *request, const char *ticket, struct web_reply *reply);
/* changes.c */
web_function web_get_changes, web_get_next, web_get_log;
/* actions.c */
web_function web_post_plan, web_post_restore;
