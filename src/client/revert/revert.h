/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Making a path what it was at an instant T.
 *
 * The state at T is walked top-down, through the mount, and the present is made like it by
 * ordinary system calls, so that the kernel checks every right and the daemon records every
 * change: a revert can be reverted. Three passes, each of which can be repeated:
 *
 *   1. place.c, walk.c  every name of T gets the object it had then: it stays, comes back out
 *                       of the graveyard, is renamed or linked from where it lives now, or (if it lives
 *                       outside of the path named, or is lost) is copied. Files get their
 *                       content and attributes.
 *   2. sweep.c          what has no place at T is removed, into history. Only now: until all
 *                       is placed, anything may still be needed.
 *   3. sweep.c          directories get their attributes, bottom-up, and all is synced.
 *
 * Nothing outside of the path is changed, no link is ever followed out of it. A file with names outside is
 * never changed either (links.c), except with --all-links. A revert that was
 * interrupted is finished by running it again: objects in their places already are left alone, and
 * those that were put aside are found (their names are `.vrevert-*`) and removed.
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include "client/mount.h"

enum revert_action {
    REVERT_RESTORE, /* out of the graveyard: the same object          */
    REVERT_RENAME,  /* from where it lives now                        */
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
    REVERT_EVENT_FAILED, /* nothing was done at `path`                                  */
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

struct revert_result {
    uint64_t counts[REVERT_ACTIONS];
    uint64_t bytes;    /* of content that was written */
    uint64_t failed;   /* events FAILED               */
    uint64_t unplaced; /* names that could not be given back their object; nothing is removed then */
    bool interrupted;  /* wb_watch_stopped() */
};

struct revert_request {
    const struct wb_mount *mount;
    const char *path;       /* relative to mount->root_fd, "" for that itself           */
    const char *source;     /* the path as it was (wb_moment_path); NULL: nothing was there, so `path` is removed */
    int64_t when;           /* T                                                        */
    struct revert_set *set; /* has `path`                                               */
    bool dry;               /* change nothing, report only                              */
    bool sync;              /* fsync what was changed                                   */
    bool all_links;         /* change files of several names in place                   */
    const struct revert_listener *listener; /* or NULL */
};

/* The PATHs that go back to the same time together. */
struct revert_set;
struct revert_set *wb_revert_set_new(void);
void wb_revert_set_free(void *set);
void wb_revert_set_add(struct revert_set *set, const char *path);

/* Makes request->path what it was. Failures are events, and counted in *ret. */
void wb_revert_run(const struct revert_request *request, struct revert_result *ret);
