/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The past: attributes and content. */
#include "daemon/past/past.h"

#include "base/io.h"
#include "daemon/caller/creds.h"
#include "daemon/core/entry.h"
#include "daemon/core/handle.h"
#include "daemon/core/session.h"
#include "daemon/past/moment.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_open.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/snapdir.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- attributes ------------------------------------------------------------------------------ */

static struct timespec instant_of(int64_t when)
{
    int64_t seconds = when / WB_WHEN_SECOND, rest = when % WB_WHEN_SECOND;

    if (rest < 0) {
        seconds--;
        rest += WB_WHEN_SECOND;
    }
    return (struct timespec){.tv_sec = seconds, .tv_nsec = rest};
}

/* Records of version 1 do not contain the number of blocks: it is as if there were no holes. */
static blkcnt_t blocks_of(const struct wb_attrs *attrs)
{
    if (attrs->blocks > 0)
        return (blkcnt_t)(attrs->blocks - 1);
    return S_ISREG(attrs->mode) || S_ISDIR(attrs->mode) ? (blkcnt_t)((attrs->size + 4095) / 4096 * 8) : 0;
}

int wb_past_stat(struct wb_session *session, struct wb_past_node *node, struct stat *st)
{
    struct wb_attrs attrs;
    int r = wb_past_attrs(session, node, &attrs);

    if (r != 0)
        return wb_past_result(session, r);
    *st = (struct stat){
        .st_ino = wb_past_ino(node->node.object, wb_revision_when(node->revision)),
        .st_mode = attrs.mode,
        .st_nlink = attrs.nlink,
        .st_uid = attrs.uid,
        .st_gid = attrs.gid,
        .st_rdev = attrs.rdev,
        .st_size = (off_t)attrs.size,
        .st_blksize = 4096,
        .st_blocks = blocks_of(&attrs),
        .st_atim = instant_of(attrs.atime),
        .st_mtim = instant_of(attrs.mtime),
        .st_ctim = instant_of(attrs.ctime),
    };
    return 0;
}

void wb_past_getattr(struct wb_session *session, fuse_req_t req, struct wb_node *node)
{
    struct stat st;
    int r = wb_past_stat(session, wb_past_of(node), &st);

    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, wb_past_is_settled(session, wb_past_of(node)) ? WB_TIMEOUT : 0);
}

/* ---- content --------------------------------------------------------------------------------- */

void wb_past_readlink(struct wb_session *session, fuse_req_t req, struct wb_node *node)
{
    g_autofree char *target = NULL;
    int r = wb_revision_readlink(session->history, wb_past_of(node)->revision, &target);

    if (r != 0)
        fuse_reply_err(req, -wb_past_result(session, r));
    else
        fuse_reply_readlink(req, target);
}

/*
 * Who may read a program can read its memory while it runs, and the kernel goes by the mode as it was: so whoever could
 * read it then executes it only if they may read it now.
 */
static int may_open_file(struct wb_session *session, fuse_req_t req, struct wb_past_node *past, bool to_execute)
{
    int r;

    if (!to_execute)
        return wb_past_may_now(session, req, past->revision, R_OK);
    r = wb_past_could_then(session, req, past->revision, R_OK);
    if (r == 0 || r == -EACCES)
        r = wb_past_may_now(session, req, past->revision, r == 0 ? R_OK | X_OK : X_OK);
    return r == 0 ? wb_past_may_execute(session, req, past) : r;
}

void wb_past_open(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                  struct fuse_file_info *fi)
{
    struct wb_past_node *past = wb_past_of(node);
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_past_content *content = NULL;
    struct wb_past_handle *handle;
    int r;

    r = may_open_file(session, req, past, fi->flags & WB_OPEN_FOR_EXEC);
    if (r == 0)
        r = S_ISREG(node->type) ? wb_past_content_open(session, past, uid, &content) : -EINVAL;
    if (r != 0) {
        fuse_reply_err(req, -wb_past_result(session, r));
        return;
    }
    handle = wb_past_handle_new(session, past, content, uid);
    if (!handle) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    fi->fh = wb_publish(handle);
    /* What others have read of it may be of a version that has gone. */
    if (wb_past_is_settled(session, past))
        fi->keep_cache = 1;
    else
        fi->direct_io = 1;
    fi->noflush = 1;
    if (fuse_reply_open(req, fi) == -ENOENT)
        wb_past_handle_free(session, handle);
}

/*
 * The handle of a request, or, if it came without one, that of the node, used until `put`. If versions of a file were
 * deleted since it was read through this node, the node means something else by now: its content is returned as long as
 * it is open, and afterwards EIO. `anew`: a directory is read from the beginning.
 */
static int get_handle(struct wb_session *session, fuse_req_t req, struct wb_past_node *past, uint64_t fh, bool anew,
                      struct wb_past_handle **ret)
{
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_past_content *content = NULL;
    struct wb_past_handle *handle;
    bool settled;
    int r;

    *ret = fh ? wb_past_handle_of(fh) : wb_past_kept_find(session, past);
    if (fh)
        return 0;
    settled = wb_past_is_settled(session, past);
    if (*ret && (settled || anew) && !wb_past_content_is_good((*ret)->content)) {
        wb_past_kept_drop(session, past, *ret);
        *ret = NULL;
    }
    if (*ret)
        return 0;
    if (!settled && past->was_kept && S_ISREG(past->node.type))
        return -EIO;
    r = wb_past_may_now(session, req, past->revision, R_OK);
    if (r == 0)
        r = wb_past_content_open(session, past, uid, &content);
    if (r != 0)
        return r;
    handle = wb_past_handle_new_kept(session, past, content, uid);
    if (!handle)
        return -ENOMEM;
    *ret = wb_past_kept_keep(session, past, handle);
    return 0;
}

static void put_handle(struct wb_session *session, uint64_t fh, struct wb_past_handle *handle)
{
    if (!fh && handle)
        wb_past_kept_put(session, handle);
}

void wb_past_release(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                     struct fuse_file_info *fi)
{
    if (fi->fh)
        wb_past_handle_free(session, wb_past_handle_of(fi->fh));
    fuse_reply_err(req, 0);
}

void wb_past_read(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                  off_t offset, struct fuse_file_info *fi)
{
    g_autofree char *buffer = wb_alloc_transfer(size);
    struct wb_past_handle *handle = NULL;
    ssize_t n;

    if (!buffer) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    n = S_ISREG(node->type) ? get_handle(session, req, wb_past_of(node), fi->fh, false, &handle) : -EINVAL;
    if (n == 0)
        n = wb_file_view_pread(handle->content->view, buffer, size, (uint64_t)offset);
    put_handle(session, fi->fh, handle);
    if (n < 0)
        fuse_reply_err(req, -wb_past_result(session, (int)n));
    else
        fuse_reply_buf(req, buffer, (size_t)n);
}

void wb_past_lseek(struct wb_session *session, fuse_req_t req, struct wb_node *node, off_t offset,
                   int whence, struct fuse_file_info *fi)
{
    struct wb_past_handle *handle = NULL;
    uint64_t found = 0;
    int r;

    if (!S_ISREG(node->type) || (whence != SEEK_DATA && whence != SEEK_HOLE)) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    r = offset < 0 ? -ENXIO : get_handle(session, req, wb_past_of(node), fi->fh, false, &handle);
    if (r == 0)
        r = wb_file_view_seek(handle->content->view, (uint64_t)offset, whence == SEEK_HOLE, &found);
    put_handle(session, fi->fh, handle);
    if (r < 0)
        fuse_reply_err(req, -wb_past_result(session, r));
    else
        fuse_reply_lseek(req, (off_t)found);
}

/* ---- flags ----------------------------------------------------------------------------------- */

void wb_past_flags(struct wb_session *session, fuse_req_t req, struct wb_node *node, unsigned command)
{
    struct fsxattr fsx = {0};
    struct wb_flags then;
    int flags, r;

    if (_IOC_DIR(command) & _IOC_WRITE) {
        fuse_reply_err(req, EROFS);
        return;
    }
    r = wb_revision_flags(session->history, wb_past_of(node)->revision, &then);
    if (r != 0) {
        fuse_reply_err(req, r == -EOPNOTSUPP ? ENOTTY : -wb_past_result(session, r));
        return;
    }
    if (command == FS_IOC_GETFLAGS) {
        flags = (int)then.flags;
        fuse_reply_ioctl(req, 0, &flags, sizeof(flags));
        return;
    }
    fsx.fsx_xflags = then.xflags;
    fsx.fsx_projid = then.project;
    fsx.fsx_extsize = then.extent_size;
    fsx.fsx_cowextsize = then.cow_extent_size;
    fuse_reply_ioctl(req, 0, &fsx, sizeof(fsx));
}

/* ---- extended attributes --------------------------------------------------------------------- */

/* 1, 0 or -errno. */
static int has_xattr(struct wb_session *session, struct wb_past_node *node, const char *name)
{
    g_autofree char *list = g_try_malloc(XATTR_LIST_MAX);
    ssize_t n = list ? wb_past_xattr_names(session, node, list) : -ENOMEM;

    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1)
        if (strcmp(list + i, name) == 0)
            return 1;
    return n < 0 ? (int)n : 0;
}

void wb_past_getxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                      const char *name, size_t size)
{
    g_autofree char *value = size > 0 ? g_try_malloc(size) : NULL;
    ssize_t n = has_xattr(session, wb_past_of(node), name);

    /* These are for who may read the file: then, which the kernel has asked, and now. */
    if (n > 0 && g_str_has_prefix(name, "user.")) {
        int r = wb_past_may_now(session, req, wb_past_of(node)->revision, R_OK);

        n = r < 0 ? r : n;
    }
    if (n == 0)
        n = -ENODATA;
    else if (n > 0 && size > 0 && !value)
        n = -ENOMEM;
    else if (n > 0)
        n = wb_revision_getxattr(session->history, wb_past_of(node)->revision, name, value, size);
    if (n < 0)
        fuse_reply_err(req, -wb_past_result(session, (int)n));
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, value, (size_t)n);
}

void wb_past_listxattr(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size)
{
    g_autofree char *list = g_try_malloc(XATTR_LIST_MAX);
    ssize_t n = -ENOMEM;

    if (list)
        n = wb_past_xattr_names(session, wb_past_of(node), list);
    if (n > 0)
        n = (ssize_t)wb_xattr_list_filter(req, list, (size_t)n);
    if (n >= 0 && size > 0 && (size_t)n > size)
        n = -ERANGE;
    if (n < 0)
        fuse_reply_err(req, -wb_past_result(session, (int)n));
    else if (size == 0)
        fuse_reply_xattr(req, (size_t)n);
    else
        fuse_reply_buf(req, list, (size_t)n);
}

/*
 * Directories of the past. A listing is built once, at opendir, and offsets are places in it:
 * 1 and 2 are behind the dots, i + 3 behind entry i.
 */

void wb_past_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                     struct fuse_file_info *fi)
{
    struct wb_past_node *past = wb_past_of(node);
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_past_content *content = NULL;
    struct wb_past_handle *handle;
    int r;

    r = wb_past_may_now(session, req, past->revision, R_OK);
    if (r == 0)
        r = wb_past_content_open(session, past, uid, &content);
    if (r != 0) {
        fuse_reply_err(req, -wb_past_result(session, r));
        return;
    }
    handle = wb_past_handle_new(session, past, content, uid);
    if (!handle) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    fi->fh = wb_publish(handle);
    fi->cache_readdir = wb_moment_is_fixed(session);
    fi->keep_cache = wb_moment_is_fixed(session);
    if (fuse_reply_open(req, fi) == -ENOENT)
        wb_past_handle_free(session, handle);
}

void wb_past_releasedir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                        struct fuse_file_info *fi)
{
    wb_past_release(session, req, node, fi);
}

static ino_t node_ino(struct wb_node *node)
{
    struct wb_past_node *past = wb_past_of(node);

    if (wb_snapdir_of(node))
        return wb_snapdir_ino(node->object);
    return past ? wb_past_ino(node->object, wb_revision_when(past->revision)) : node->object.ino;
}

/* What stands at `offset`: its name, or NULL behind the last. */
static const char *entry_at(const struct wb_session *session, struct wb_past_node *node,
                            const struct wb_past_dir *listing, off_t offset, struct stat *st)
{
    struct wb_node *above = &node->node == session->root ? &node->node : node->parent;
    size_t index = (size_t)offset - 2;

    *st = (struct stat){.st_mode = S_IFDIR};
    if (offset < 2) {
        st->st_ino = node_ino(offset == 0 ? &node->node : above);
        return offset == 0 ? "." : "..";
    }
    if (index >= wb_past_dir_count(listing))
        return NULL;
    st->st_ino = wb_past_ino(wb_past_dir_object(listing, index), wb_revision_when(node->revision));
    st->st_mode = wb_past_dir_type(listing, index);
    return wb_past_dir_name(listing, index);
}

/*
 * With `plus` the kernel would take attributes along. It gets none: names of the past are looked
 * up again whenever they are used, so they would be rebuilt twice.
 */
static void list(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size, off_t offset,
                 struct fuse_file_info *fi, bool plus)
{
    g_autofree char *buffer = g_try_malloc(size);
    struct wb_past_handle *handle = NULL;
    size_t used = 0;
    const char *name;
    struct stat st;
    int r;

    if (!buffer || offset < 0) {
        fuse_reply_err(req, buffer ? EINVAL : ENOMEM);
        return;
    }
    r = get_handle(session, req, wb_past_of(node), fi->fh, offset == 0, &handle);
    if (r != 0) {
        fuse_reply_err(req, -wb_past_result(session, r));
        return;
    }
    while ((name = entry_at(session, wb_past_of(node), handle->content->listing, offset, &st))) {
        struct fuse_entry_param entry = {.attr = st};
        size_t room = size - used, length;

        length = plus ? fuse_add_direntry_plus(req, buffer + used, room, name, &entry, offset + 1)
                      : fuse_add_direntry(req, buffer + used, room, name, &st, offset + 1);
        if (length > room)
            break;
        used += length;
        offset++;
    }
    put_handle(session, fi->fh, handle);
    fuse_reply_buf(req, buffer, used);
}

void wb_past_readdir(struct wb_session *session, fuse_req_t req, struct wb_node *node, size_t size,
                     off_t offset, struct fuse_file_info *fi)
{
    list(session, req, node, size, offset, fi, false);
}

void wb_past_readdirplus(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                         size_t size, off_t offset, struct fuse_file_info *fi)
{
    list(session, req, node, size, offset, fi, true);
}
