/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Makes a path what it was at an instant T.
 *
 * A revert walks the state at T top-down, through the mount, and makes the present equal to it by ordinary system
 * calls, so that the kernel checks every right and the daemon records every change: a revert can be reverted. It makes
 * three passes, each of which can be repeated:
 *
 *   1. place.c, walk.c  Every name of T gets the object that it had then. The object is in its place already, is
 *                       restored from the graveyard, is renamed or linked from its present name, or (if that name is
 *                       outside of the path, or the object is lost) is copied. Files get their content and attributes.
 *   2. sweep.c          Entries that did not exist at T are removed, into history. Not before pass 1 has ended, because
 *                       it may need any of them.
 *   3. sweep.c          Directories get their attributes, bottom-up, and everything is synced.
 *
 * Nothing outside of the path is changed, and no symbolic link is followed. A file with names outside is not changed
 * either (links.c), except with --all-links. If a revert was interrupted, the same revert finishes the work: it leaves
 * objects that are in their places alone, and removes those that were put aside (their names are `.vrevert-*`).
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include "client/mount.h"

enum revert_action {
    REVERT_RESTORE, /* from the graveyard: the same object            */
    REVERT_RENAME,  /* from its present name                          */
    REVERT_LINK,    /* a further name of an object                    */
    REVERT_COPY,    /* a new object with the old content              */
    REVERT_REWRITE, /* content                                        */
    REVERT_SET,     /* attributes                                     */
    REVERT_BREAK,   /* a new file, because names outside keep the other */
    REVERT_REMOVE,
    REVERT_ACTIONS,
};

enum revert_event_kind {
    REVERT_EVENT_ACTION, /* an action was (with `dry`: would be) done                  */
    REVERT_EVENT_SHARED, /* with `all_links`: names outside changed together with `path` */
    REVERT_EVENT_FAILED, /* `path` could not be reverted                                */
};

struct revert_event {
    enum revert_event_kind kind;
    enum revert_action action;
    const char *path;  /* relative to the root_fd of the mount */
    const char *other; /* where it came from; of BREAK: the name that keeps its content; NULL: none, or not known */
    uint64_t bytes;    /* of content that was written                                */
    int error;         /* FAILED: negative errno; 0: none                            */
    const char *what;  /* FAILED: the step or the attribute that failed, or NULL     */
    bool is_whole;     /* FAILED: `what` is the whole description                    */
};

/* Called for each event, in the thread of the revert. */
struct revert_listener {
    void (*event)(void *data, const struct revert_event *event);
    void *data;
};

/* How much of a path a revert concerns. */
enum revert_extent {
    REVERT_NOTHING, /* it is left alone, with everything below it */
    REVERT_BELOW,   /* only some of the entries below it          */
    REVERT_ITSELF,  /* it, and of the entries below it those that are concerned themselves */
};

struct revert_result {
    uint64_t counts[REVERT_ACTIONS];
    uint64_t bytes;    /* of content that was written */
    uint64_t failed;   /* events FAILED               */
    uint64_t unplaced; /* names that did not get their object; if there are any, nothing is removed */
    bool interrupted;  /* wb_watch_stopped() */
};

struct revert_request {
    const struct wb_mount *mount;
    const char *path;       /* relative to mount->root_fd; "": the root itself          */
    const char *source;     /* the path as it was (wb_moment_path); NULL: nothing was there, so `path` is removed */
    int64_t when;           /* T                                                        */
    struct revert_set *set; /* has `path`                                               */
    bool dry;               /* change nothing, report only                              */
    bool sync;              /* fsync what was changed                                   */
    bool all_links;         /* change files of several names in place                   */
    const struct revert_listener *listener; /* or NULL */
    /* For each path in `path`; NULL: all are concerned. The entries of a directory with REVERT_BELOW are visited. */
    enum revert_extent (*extent)(const void *data, const char *path);
    const void *extent_data;
};

/* The PATHs that are reverted to the same time together. */
struct revert_set;
struct revert_set *wb_revert_set_new(void);
void wb_revert_set_free(void *set);
void wb_revert_set_add(struct revert_set *set, const char *path);

/* Makes request->path what it was. Failures are events, and counted in *ret. */
void wb_revert_run(const struct revert_request *request, struct revert_result *ret);
