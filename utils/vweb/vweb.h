/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of `wayback web`: a server for one user. */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include "client/mount.h"
#include "client/past_path.h"

#define WEB_TOKEN_BYTES 32
#define WEB_TOKEN_TEXT (2 * WEB_TOKEN_BYTES + 1)

struct web_restorer;
struct web_tickets;

struct web {
    struct wb_place *place;   /* the directory that is shown                                      */
    char *select;             /* the entry in it that the user named; NULL: none                  */
    char *shown;              /* the absolute path of the directory, as bytes                     */
    bool read_only;           /* --read-only, or nothing in the mount can be changed              */
    const char *why_read_only; /* one sentence for the page; NULL: it is not                      */
    char token[WEB_TOKEN_TEXT];
    GPtrArray *hosts;         /* names that Host may have, without a port                         */
    bool any_address;         /* Host may also be any address: it listens on all of them          */
    struct web_restorer *restorer;
    struct web_tickets *tickets;
};

/* ---- the server (server.c) ---------------------------------------------------------------------- */

struct web_server;

/*
 * Listens on `address` (NULL: 127.0.0.1 and ::1, on the same port) and `port` (0: a free one), and sets web->hosts.
 * NULL after an error line.
 */
struct web_server *web_server_new(struct web *web, const char *address, unsigned port);
unsigned web_server_port(const struct web_server *server);
/* Ends all connections. Returns NULL. */
struct web_server *web_server_free(struct web_server *server);

/* ---- restoring (restore.c) ---------------------------------------------------------------------- */

/*
 * A process that restores. It is forked before the server has threads, and forks again for each restore, so that each
 * is a process of its own in the history, as one of vrevert is, and vundo finds it. NULL after an error line.
 */
struct web_restorer *web_restorer_new(struct web *web);
struct web_restorer *web_restorer_free(struct web_restorer *restorer);

/*
 * Restores `path` of the mount to its state at `when`. *ret is the document of `vrevert --json`, g_free. *ret_before: a
 * time before its first change; 0: none. 0 or -errno. One at a time; others wait.
 */
int web_restore(struct web *web, const char *path, int64_t when, bool dry, char **ret, int64_t *ret_before);

/* ---- the browser (opener.c) --------------------------------------------------------------------- */

/*
 * Opens `url` in the browser of the desktop. The token must not be in the arguments of a process, which everybody can
 * see: the browser is given a file of mode 0600 that leads to it. *ret is its directory, for web_opener_end; NULL:
 * there is no desktop.
 */
void web_open_browser(const char *url, char **ret);
void web_opener_end(char *directory);
