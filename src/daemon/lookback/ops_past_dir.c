/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Directories of the past. A listing is built once, at opendir, and offsets are places in it:
 * 1 and 2 are behind the dots, i + 3 behind entry i.
 */
#include "daemon/past/past.h"

#include "daemon/core/entry.h"
#include "daemon/past/moment.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_open.h"
#include "daemon/past/snapdir.h"
#include <errno.h>
#include <glib.h>
#include <unistd.h>

void wb_past_opendir(struct wb_session *session, fuse_req_t req, struct wb_node *node,
                     struct fuse_file_info *fi)
{
    struct wb_past_node *past = wb_past_of(node);
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_past_content *content = NULL;
    struct wb_past_handle *handle;
    int r;

    r = wb_past_may_now(session, req, past->spot, R_OK);
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
    wb_past_handle_free(session, wb_past_handle_of(fi->fh));
    fuse_reply_err(req, 0);
}

static ino_t node_ino(struct wb_node *node)
{
    struct wb_past_node *past = wb_past_of(node);

    if (wb_snapdir_of(node))
        return wb_snapdir_ino(node->object);
    return past ? wb_past_ino(node->object, wb_spot_when(past->spot)) : node->object.ino;
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
    st->st_ino = wb_past_ino(wb_past_dir_object(listing, index), wb_spot_when(node->spot));
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
    struct wb_past_handle *handle = wb_past_handle_of(fi->fh);
    g_autofree char *buffer = g_try_malloc(size);
    size_t used = 0;
    const char *name;
    struct stat st;

    if (!buffer || offset < 0) {
        fuse_reply_err(req, buffer ? EINVAL : ENOMEM);
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
