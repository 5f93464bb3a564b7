/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The descriptor of one operation: that of its handle, or, if it came without one, a descriptor of the node. The latter
 * is a cached one, or is opened for the operation and cached (core/lower.h). It refers to the inode that
 * the node has always meant, or the operation fails with ESTALE.
 *
 * Call these functions without ns_lock and without the lock of a node (core/access.h).
 */

#include "daemon/core/handle.h"
#include "daemon/core/session.h"

/* Whether reading does not move the access time: `flags`, of the caller's open, or the mount say so. */
bool wb_reads_quietly(const struct wb_session *session, const struct wb_inode *inode, int flags);
/*
 * A descriptor to read through, of a file or directory. It does not move the access time where `flags`, of the caller's
 * open, have O_NOATIME or the mount says so. Descriptor or -errno.
 */
int wb_open_readable(struct wb_session *session, struct wb_inode *inode, int flags);
/* A descriptor to write through, for reading as well if the file's mode lets us. */
int wb_open_writable(struct wb_session *session, struct wb_inode *inode);

struct wb_io {
    int fd;
    bool appends;           /* the file is append-only: nothing but appends succeeds */
    bool writes;            /* it was asked for to write */
    struct wb_lower *lower; /* NULL: the handle's */
};

/* For reading. `flags` of the caller's descriptor: O_NOATIME counts. 0 or -errno. */
int wb_io_read(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle, int flags,
               struct wb_io *ret);
/* For writing, and for reading as well if the file's mode permits it. 0 or -errno. */
int wb_io_write(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                struct wb_io *ret);
/* For fsync(2): the one that content was written through, if there is one. 0 or -errno. */
int wb_io_sync(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
               struct wb_io *ret);
void wb_io_put(struct wb_session *session, struct wb_io *io);

/*
 * Around a sync through the descriptor: `end` gets its result and returns the one for the caller, including errors of
 * descriptors that were closed meanwhile. Each such error is returned once, to the first caller.
 */
void wb_io_sync_begin(struct wb_session *session, struct wb_io *io);
int wb_io_sync_end(struct wb_session *session, struct wb_inode *inode, struct wb_handle *handle, struct wb_io *io,
                   int r);

/* An error that no sync has returned yet, or 0. */
int wb_io_take_error(struct wb_session *session, struct wb_inode *inode);

/* Closes cached descriptors, the least recently used first, until there is room for another one. Errors of write-back
 * that happened before are kept with the node. 0, or -EMFILE: all that are left must stay open. */
int wb_io_make_room(struct wb_session *session);

/* Now and then, in a thread of its own: closes descriptors to write through that have not been used for a while. */
void wb_io_close_unused(struct wb_session *session);

/* Leads to an inode while, and after, it loses a name. */
struct wb_pin {
    struct wb_lower *lower;
    int fd;
};

#define WB_PIN_NONE ((struct wb_pin){.fd = -1})

/*
 * Before a name of a file or directory is removed, with the locks, and after wb_io_make_room without them: *ret is a
 * descriptor (O_PATH) that is to lead to the inode afterwards, or none. Without handles each file that loses the only
 * name it is known by needs one, since a program may have it open; with handles, each that goes to no graveyard.
 * `links`: how many names it has. 0 or -errno: there can be none, and nothing else would lead to the inode.
 */
int wb_io_pin_begin(struct wb_session *session, uid_t uid, struct wb_inode *inode, const struct wb_inode *dir,
                    int dir_fd, const char *name, nlink_t links, bool buried, struct wb_pin *ret);
/* When the node has forgotten the name, with the locks, or if it was not `removed`. */
void wb_io_pin_end(struct wb_session *session, uid_t uid, struct wb_inode *inode, struct wb_pin *pin, bool removed);

/* A new file is open, and the kernel gets no handle of it: its descriptor, taken over, is cached. 0 or -errno. */
int wb_io_keep(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, struct fuse_file_info *fi);

/* The mode is about to change to `mode`. If that forbids to read or write the file, which may be open so, it is opened
 * while that is possible. */
void wb_io_before_chmod(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, mode_t mode);
