/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Whether something was accessible to the caller at the time of a change. A change shows more than stat(2) does (names,
 * commands), so it is shown only to callers who could have looked at the object just before or just after. The owner
 * at that time always could. Results are kept for the next page.
 */

#include "daemon/core/request.h"
#include "history/versions/open_times.h"

struct wb_past_perm;

struct wb_past_perm_query {
    struct wb_revision *hint; /* where `dir` is known already, at any moment; NULL: by the catalogs */
    struct wb_object dir;
    const char *name;        /* of `object` in `dir` just before or after; NULL: `dir` itself is meant */
    struct wb_object object;
    int mask;                /* R_OK, X_OK; everything above must be searchable, too */
    /* Whether the caller may access the object now, too: 0, -EACCES or another -errno. NULL: that is not required. */
    int (*may_now)(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask);
};

/* Whether the caller could access the object at the moment of the revision: 0, -EACCES or another -errno. `mask`: R_OK,
 * W_OK, X_OK. */
int wb_past_could_then(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask);

/* Of this caller; with wb_past_perm_release to be given back at the end of the request. NULL for root: all is open. */
struct wb_past_perm *wb_past_perm_acquire(const struct wb_request *request);
void wb_past_perm_release(const struct wb_request *request, struct wb_past_perm *perm);

/* 1, 0 or -errno; what is not known is closed. Ask for the newest first: others are found out anew. */
int wb_past_perm_check(struct wb_past_perm *perm, const struct wb_request *request,
                       const struct wb_past_perm_query *access, int64_t when);

/*
 * Whether it was open at all times from `first` to `when`, for sums over what happened in it. It must be open now, too,
 * if it is asked. The same result.
 */
int wb_past_perm_check_since(struct wb_past_perm *perm, const struct wb_request *request,
                             const struct wb_past_perm_query *access, int64_t first, int64_t when);

/*
 * Whether `dir` and everything above it could be searched at that moment; asked in any order. `last` is `dir` as it is
 * now, or was last. The same result.
 */
int wb_past_perm_could_search(struct wb_past_perm *perm, const struct wb_request *request, struct wb_revision *last,
                          int64_t when);

void wb_past_perm_free_all(struct wb_session *session);
