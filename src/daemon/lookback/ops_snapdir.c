/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The directory of snapshots through FUSE. A listing is built when it is read from its beginning; offsets
 * are places in it: 1 and 2 are behind the dots, i + 3 behind entry i.
 */
#include "daemon/past/snapdir.h"

#include "base/checksum.h"
#include "daemon/caller/creds.h"
#include "daemon/core/access.h"
#include "daemon/core/entry.h"
#include "daemon/core/number.h"
#include "daemon/past/past.h"
#include <errno.h>
#include <glib.h>
#include <unistd.h>

ino_t wb_snapdir_ino(struct wb_object directory)
{
    /* Nothing of the past is of that moment. */
    return wb_past_ino(directory, WB_WHEN_PRESENT);
}

int wb_snapdir_may(struct wb_session *session, fuse_req_t req, struct wb_past_node *node, int mask)
{
    struct wb_access access;
    int r;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    r = wb_access_get(session, wb_inode_of(node->parent), &access);
    if (r < 0)
        return r;
    r = wb_caller_may(session, req, access.fd, mask);
    wb_access_put(session, &access);
    return r;
}

static int stat_of(struct wb_session *session, struct wb_past_node *node, struct stat *st)
{
    int64_t changed = wb_snapdir_changed(session);
    struct timespec time = {.tv_sec = changed / WB_WHEN_SECOND, .tv_nsec = changed % WB_WHEN_SECOND};
    struct stat dir;
    int r = wb_access_stat(session, wb_inode_of(node->parent), &dir);

    if (r < 0)
        return r;
    *st = (struct stat){
        .st_ino = wb_snapdir_ino(node->node.object),
        .st_mode = S_IFDIR | 0555,
        .st_nlink = 2,
        .st_uid = dir.st_uid,
        .st_gid = dir.st_gid,
        .st_blksize = 4096,
        .st_atim = time,
        .st_mtim = time,
        .st_ctim = time,
    };
    return 0;
}

void wb_snapdir_lookup(struct wb_session *session, fuse_req_t req, struct wb_inode *inode)
{
    struct fuse_entry_param entry = {0};
    struct wb_past_node *node;
    int r = -ENOMEM;

    node = wb_past_intern_snapdir(session, inode, session->options->snapdir_name);
    if (node)
        r = stat_of(session, node, &entry.attr);
    if (r < 0) {
        wb_past_unref(session, node);
        fuse_reply_err(req, -r);
        return;
    }
    entry.ino = wb_node_ino(session, &node->node);
    /* Another than that of the directory itself. */
    entry.generation = wb_node_generation(node->node.object, WB_WHEN_PRESENT - 1);
    wb_past_give(session, node);
    if (fuse_reply_entry(req, &entry) == -ENOENT)
        wb_past_forget(session, &node->node, 1);
}

void wb_snapdir_getattr(struct wb_session *session, fuse_req_t req, struct wb_past_node *node)
{
    struct stat st;
    int r = stat_of(session, node, &st);

    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, 0);
}

void wb_snapdir_opendir(struct wb_session *session, fuse_req_t req, struct wb_past_node *node,
                        struct fuse_file_info *fi)
{
    struct wb_past_handle *handle;
    int r = wb_snapdir_may(session, req, node, R_OK);

    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    handle = wb_past_handle_new(session, node, NULL, 0);
    if (!handle) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    fi->fh = wb_publish(handle);
    fi->cache_readdir = 0;
    if (fuse_reply_open(req, fi) == -ENOENT)
        wb_past_handle_free(session, handle);
}

/* The kernel reads a directory for one caller at a time. From the beginning, it is looked at anew. */
static int refresh(struct wb_session *session, struct wb_past_node *node,
                   struct wb_past_handle *handle, off_t offset)
{
    if (offset < 0)
        return -EINVAL;
    if (offset > 0 && handle->snapshots)
        return 0;
    handle->snapshots = wb_snapdir_listing_free(handle->snapshots);
    handle->snapshots_free = wb_snapdir_listing_free;
    return wb_snapdir_listing_new(session, node, &handle->snapshots);
}

static const char *entry_at(struct wb_past_node *node, const struct wb_past_handle *handle,
                            off_t offset, ino_t *ret)
{
    if (offset >= 2)
        return wb_snapdir_entry(handle->snapshots, (size_t)offset - 2, ret);
    *ret = offset == 0 ? wb_snapdir_ino(node->node.object) : node->parent->object.ino;
    return offset == 0 ? "." : "..";
}

void wb_snapdir_readdir(struct wb_session *session, fuse_req_t req, struct wb_past_node *node,
                        size_t size, off_t offset, struct fuse_file_info *fi, bool plus)
{
    struct wb_past_handle once = {0}, *handle = fi->fh ? wb_past_handle_of(fi->fh) : &once;
    g_autofree char *buffer = g_try_malloc(size);
    size_t used = 0;
    const char *name;
    ino_t ino;
    int r = buffer ? 0 : -ENOMEM;

    if (r == 0 && !fi->fh)
        r = wb_snapdir_may(session, req, node, R_OK);
    if (r == 0)
        r = refresh(session, node, handle, offset);

    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    while ((name = entry_at(node, handle, offset, &ino))) {
        /* Without attributes: the names are looked up again whenever they are used. */
        struct fuse_entry_param entry = {.attr = {.st_ino = ino, .st_mode = S_IFDIR}};
        size_t room = size - used, length;

        length = plus ? fuse_add_direntry_plus(req, buffer + used, room, name, &entry, offset + 1)
                      : fuse_add_direntry(req, buffer + used, room, name, &entry.attr, offset + 1);
        if (length > room)
            break;
        used += length;
        offset++;
    }
    once.snapshots = wb_snapdir_listing_free(once.snapshots);
    fuse_reply_buf(req, buffer, used);
}
