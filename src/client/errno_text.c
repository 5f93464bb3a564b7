/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/errno_text.h"
#include <errno.h>
#include <glib.h>
#include <stdlib.h>

const char *wb_errno_text(int error)
{
    error = abs(error);
    switch (error) {
    case ENOENT: return "no such file or directory";
    case EACCES: return "permission denied";
    case EPERM: return "not permitted; only the owner or root may do this";
    case EREMOTE: return "not permitted from another user or mount namespace than the daemon's (a container, a "
                         "sandbox, a service with its own mounts); run this outside, or with 'nsenter -t PID -m', "
                         "where PID is that of the wayback process";
    case EROFS: return "read-only: this is a past state, or the mount has -o ro";
    case ENOTTY: return "not in a Wayback mount";
    case ENOTCONN: return "the daemon of the mount has ended; unmount it (fusermount3 -u) and mount it again";
    case EIO: return "this state cannot be restored: it was deleted by age, or a record that it needs is damaged, or "
                     "the disk failed; see the log of the daemon";
    case ENOSPC: return "no space left; free space on the file system of the tree and its store, then run this again";
    case EDQUOT: return "disk quota exceeded; free space, then run this again";
    case ENAMETOOLONG: return "the path is too long; change to a directory in it and use a relative path";
    case ELOOP: return "the path contains a symbolic link; use the real path";
    case EINTR: return "interrupted";
    case EPROTO: return "invalid reply from the mount; is it a Wayback mount of the same version?";
    case EOVERFLOW: return "the result does not fit into memory; name a smaller part";
    case EOPNOTSUPP: return "the file system cannot do this";
    default: return g_strerror(error);
    }
}
