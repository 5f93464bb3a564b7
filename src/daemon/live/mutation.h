/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A change under way: the node whose content, attributes or extended attributes an operation alters,
 * locked, and what the capture floor must know of it. The calls between lock and unlock do
 * nothing where no history is kept, so that an operation reads the same either way:
 *
 *     wb_mutation_lock(&mutation, session, req, inode, fd);
 *     r = wb_mutation_attrs(&mutation, WB_OP_CHMOD);
 *     if (r == 0)
 *         r = wb_mutation_end(&mutation, the system call);
 *     wb_mutation_unlock(&mutation);
 */

#include "daemon/core/session.h"

struct wb_mutation {
    struct wb_session *session;
    struct wb_inode *inode;
    struct wb_inode *parent; /* referenced */
    struct wb_target target;
    char name[WB_NAME_MAX + 1]; /* of the target */
    struct wb_change change;
    bool staged;            /* the change is part of inode->stage, and loses this */
    struct wb_overwrite overwrite;
    struct stat st;         /* as it is before the change; nlink as users see it */
    struct wb_attrs attrs;  /* the same for the first record, if one is written */
    uint32_t actor;
    int fd;
    int64_t size_after;     /* of the change of content that was begun; -1: none was */
};

/* `fd`: any descriptor of the node, obtained before. `req` NULL: nobody in particular (write-back
 * of a mapping). 0, or -errno with nothing locked. */
int wb_mutation_lock(struct wb_mutation *mutation, struct wb_session *session, fuse_req_t req, struct wb_inode *inode,
                     int fd);
void wb_mutation_unlock(struct wb_mutation *mutation);

/* Each begins a change: 0 or -errno. `read_fd` is open for reading. */
int wb_mutation_content(struct wb_mutation *mutation, int read_fd, const struct wb_overwrite *overwrite);
int wb_mutation_attrs(struct wb_mutation *mutation, enum wb_op op);
int wb_mutation_xattr(struct wb_mutation *mutation, const char *name, enum wb_op op);

/* The change was made, or failed with a negative errno. Returns `result`. */
int wb_mutation_end(struct wb_mutation *mutation, int result);

/*
 * What the kernel leaves to the daemon (FUSE_HANDLE_KILLPRIV_V2): a file whose content changes loses its file
 * capabilities and, where `by` is the caller who changes it, its suid bit, and its sgid bit if the group may execute
 * the file or the caller is not in the group. Recorded as separate changes. Call it before the content changes, and
 * change nothing if it fails: 0 or -errno. The kernel's cached mode is invalidated before this returns.
 */
int wb_mutation_kill_privileges(struct wb_mutation *mutation, fuse_req_t by);

/* Who is asking, as records name them. */
uint32_t wb_actor_of(struct wb_session *session, fuse_req_t req);

/* Whether the caller's changes of content clear suid and sgid, where the kernel does not say. */
bool wb_caller_kills_suidgid(fuse_req_t req);

/* The same for an open with O_TRUNC and a write; libfuse passes the kernel's word on since 3.18.3. */
static inline bool wb_open_kills_suidgid(fuse_req_t req, const struct fuse_file_info *fi)
{
#ifdef WB_FUSE_HAS_KILL_SUIDGID
    return fi->kill_suidgid;
#else
    return wb_caller_kills_suidgid(req);
#endif
}

/* Everything that was recorded and buried so far to stable storage. */
int wb_sync_history(struct wb_session *session);
