/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The checks of each request: token, Host, Origin, path; and tickets for downloads. Nothing here knows of HTTP. */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include "vweb/vweb.h"

/* 32 random bytes of the kernel in hexadecimal digits. False: it has none. */
bool web_token_make(char token[WEB_TOKEN_TEXT]);

/* Whether they are equal, in a time that does not depend on where they differ. `given` may be NULL. */
bool web_token_is(const char *token, const char *given);

/*
 * Whether a request with this Host came for us. A page of somebody else whose name was bound to our address (DNS
 * rebinding) has its own name there.
 */
bool web_host_is_ours(const struct web *web, const char *host);

/* Whether Origin is this server, as the request named it. */
bool web_origin_is_ours(const char *origin, const char *host);

/* Whether `path` stays below the directory: it has no "", "." or ".." between slashes, no slash at an end, and is not
 * too long. */
bool web_path_is_fine(const char *path);

/*
 * A download begins as a link that the browser follows, which cannot have the token: it has a ticket instead, a random
 * name that is good for one download within a minute.
 */
struct web_tickets *web_tickets_new(void);
struct web_tickets *web_tickets_free(struct web_tickets *tickets);

struct web_ticket {
    char *path;   /* of the mount, perhaps of the past */
    char *name;   /* of the file */
};

/* Takes over neither. Writes the ticket to `text`. False: there are too many. */
bool web_tickets_add(struct web_tickets *tickets, const char *path, const char *name, char text[WEB_TOKEN_TEXT]);
/* Takes it away; web_ticket_free. NULL: there is none, or its minute is over. */
struct web_ticket *web_tickets_take(struct web_tickets *tickets, const char *text);
void web_ticket_free(void *ticket);
