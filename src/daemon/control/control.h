/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The requests of <wayback/control.h>, behind wb_ops_control. The kernel checks nothing on paths
 * inside of a request, so all of that is done here, as the caller: directories on the way must be
 * searchable now, and then where the path leads through the past.
 */

#include "control/requests.h"
#include "daemon/core/request.h"
#include "wayback/control.h"

/* What was found out of who made a request. */
struct wb_caller {
    bool asked, at_home;
};

/* Each fills its part of `out` and returns 0 or -errno. */
#define WB_CONTROL_DECLARE(NAME, name, ...) \
    int wb_control_##name(const struct wb_request *request, struct wb_control *out);
WB_CONTROL_REQUESTS(WB_CONTROL_DECLARE)
#undef WB_CONTROL_DECLARE

/* Abandons the thinning that is under way, if there is one. */
void wb_control_thin_drop(struct wb_session *session);

/* Waits for the requests that are still under way. */
void wb_control_wait(struct wb_session *session);

/* ---- paths (control_path.c) ------------------------------------------------------------------ */

/*
 * wb_history_find as the caller: the directory and the last component of a path that may name what no
 * longer exists or what was at a TIME. *ret_name is to g_free.
 */
int wb_control_find(const struct wb_request *request, const char *path, struct wb_revision **ret_dir, char **ret_name);

/* The entry `name` of what wb_control_find found, "" for itself; NAME@TIME works. 0, WB_ABSENT, -errno. */
int wb_control_entry(const struct wb_request *request, struct wb_revision *dir, const char *name,
                     struct wb_revision **ret);

/* What had a name that is gone, just before it lost it. 0, WB_ABSENT or -errno. */
int wb_control_last_state(const struct wb_request *request, struct wb_revision *dir, const char *name,
                          struct wb_revision **ret);

/* The entry, or where there is none what had the name last. WB_ABSENT: nothing ever had it. */
int wb_control_entry_or_last(const struct wb_request *request, struct wb_revision *dir, const char *name,
                             struct wb_revision **ret);

/* Whether the caller may know of the changes of dir/name (control_versions.c): 0, -EACCES or another -errno. */
int wb_control_may_read(const struct wb_request *request, struct wb_revision *dir, const char *name);

/* NAME@TIME stands for the changes of NAME up to then, unless something has that name. 0 or -errno. */
int wb_control_strip_moment(const struct wb_request *request, struct wb_revision *dir, char *name, int64_t *until);

/* Whether the caller could list a directory then, and may now: 0, -ENOTDIR, -EACCES or another -errno. */
int wb_control_may_list(const struct wb_request *request, struct wb_revision *dir);

/*
 * Whether the caller is in the user and mount namespace of the daemon (caller.h). Where that is not known, it is not.
 * The answer is kept for as long as the request takes.
 */
bool wb_control_is_at_home(const struct wb_request *request);

/* The user number is that of root or of who runs the daemon. From a container that does not make a keeper. */
bool wb_control_has_keepers_uid(const struct wb_request *request);

/* Root, or who runs the daemon, at home: everybody's history is theirs to keep. */
bool wb_control_is_keeper(const struct wb_request *request);
/* 0; -EPERM; or -EREMOTE for who would be one at home. */
int wb_control_need_keeper(const struct wb_request *request);

/*
 * wb_store_actor_info for the caller: of other users' processes only the name of the program, unless the caller is a
 * keeper. Command lines hold passwords, and names from private directories.
 */
int wb_control_actor(const struct wb_request *request, uint32_t index, int64_t when, struct wb_actor *ret);

/* For what takes long, with a wb_request: the caller went away, or was interrupted; or the mount ends. */
bool wb_control_is_over(void *request);

/* The kernel forgets a name in `dir` and the attributes of `dir`; of a node. No lock may be held. */
void wb_control_forget_name(struct wb_session *session, struct wb_inode *dir, const char *name);
void wb_control_forget_attrs(struct wb_session *session, struct wb_inode *inode);
