/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reading directories. Offsets are those of the file system below, so they mean the same however the
 * directory changes meanwhile. Each opendir has a buffer, and shares the descriptor with others; readers without a
 * handle share both.
 */
#include "daemon/live/io.h"
#include "daemon/live/ops.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/past/snapdir.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* struct linux_dirent64: the C library has the same layout under this name. */
typedef struct dirent64 dirent_raw;

void wb_op_opendir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi)
{
    struct wb_dir_stream *stream;
    struct wb_handle *handle;
    int fd, r;

    fd = wb_open_readable(session, inode, fi->flags);
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    r = wb_handle_new(session, inode, fd, fuse_req_ctx(req)->uid, false, &handle);
    stream = r == 0 ? wb_dir_stream_new() : NULL;
    if (!stream) {
        if (r == 0)
            wb_handle_unref(session, handle);
        fuse_reply_err(req, r < 0 ? -r : ENOMEM);
        return;
    }
    handle->stream = stream;
    fi->fh = wb_publish(handle);
    fuse_reply_open(req, fi);
}

/* A request to read a directory. */
struct listing {
    struct wb_session *session;
    fuse_req_t req;
    struct wb_inode *inode;
    struct wb_lower *lower;
    struct wb_dir_stream *stream;
    bool plus;
};

/* Stands at `offset`: from the buffer where it follows on, anew otherwise (rewinddir sees what is new). */
static void seek(struct wb_dir_stream *stream, off_t offset)
{
    if (offset != 0 && offset == stream->offset)
        return;
    stream->moved = true;
    stream->offset = offset;
    stream->position = stream->length = 0;
}

/* The entry at the stream's position: 0, WB_END or -errno. */
static int peek(const struct listing *listing, dirent_raw **ret)
{
    struct wb_dir_stream *stream = listing->stream;

    if (stream->position >= stream->length) {
        long n;

        if (!stream->data)
            stream->data = g_try_malloc(WB_DIRENTS_SIZE);
        if (!stream->data)
            return -ENOMEM;
        n = wb_lower_getdents(listing->lower, stream, stream->moved, stream->offset, stream->data,
                              WB_DIRENTS_SIZE);
        if (n < 0)
            return (int)n;
        stream->moved = false;
        if (n == 0)
            return WB_END;
        stream->position = 0;
        stream->length = (size_t)n;
    }
    *ret = (dirent_raw *)(stream->data + stream->position);
    return 0;
}

static void advance(struct wb_dir_stream *stream, const dirent_raw *entry)
{
    stream->offset = entry->d_off;
    stream->position += entry->d_reclen;
}

/* Appends one entry to the reply: its length there, 0 where it is passed over, -ENOSPC: full. */
static ssize_t add_entry(const struct listing *listing, const dirent_raw *dirent, char *buffer, size_t room)
{
    struct wb_session *session = listing->session;
    fuse_req_t req = listing->req;
    bool plus = listing->plus;
    struct fuse_entry_param entry = {0};
    bool looked_up = false;
    size_t length;
    int r;

    if (wb_name_is_hidden(session, listing->inode, dirent->d_name))
        return 0;
    entry.attr.st_ino = dirent->d_ino;
    entry.attr.st_mode = (mode_t)DTTOIF(dirent->d_type);
    length = plus ? fuse_add_direntry_plus(req, NULL, 0, dirent->d_name, &entry, 0)
                  : fuse_add_direntry(req, NULL, 0, dirent->d_name, &entry.attr, 0);
    if (length > room)
        return -ENOSPC;
    if (plus && !wb_is_dots(dirent->d_name)) {
        r = wb_entry_fill(session, listing->inode, listing->lower->fd, dirent->d_name, &entry, NULL);
        if (r == -ENOENT)
            return 0;
        looked_up = r == 0;
        if (!looked_up) {
            /* Listed without attributes; whoever asks for it gets the error from lookup. */
            entry = (struct fuse_entry_param){.attr.st_ino = dirent->d_ino};
            entry.attr.st_mode = (mode_t)DTTOIF(dirent->d_type);
        }
    }
    if (plus)
        fuse_add_direntry_plus(req, buffer, room, dirent->d_name, &entry, dirent->d_off);
    else
        fuse_add_direntry(req, buffer, room, dirent->d_name, &entry.attr, dirent->d_off);
    return (ssize_t)length;
}

/* The directory of snapshots stands behind what is really there. Its entry's length, 0 where it has none. */
static size_t add_snapdir(const struct listing *listing, char *buffer, size_t room)
{
    struct wb_session *session = listing->session;
    fuse_req_t req = listing->req;
    const char *name = session->options->snapdir_name;
    struct fuse_entry_param entry = {.attr.st_mode = S_IFDIR};
    struct stat st;
    size_t length;

    if (session->options->snapdir != WB_SNAPDIR_VISIBLE || !wb_snapdir_is(session, name) ||
        fstatat(listing->lower->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    entry.attr.st_ino = wb_snapdir_ino(listing->inode->node.object);
    length = listing->plus ? fuse_add_direntry_plus(req, buffer, room, name, &entry, WB_SNAPDIR_OFFSET)
                           : fuse_add_direntry(req, buffer, room, name, &entry.attr, WB_SNAPDIR_OFFSET);
    return length <= room ? length : 0;
}

static int read_entries(const struct listing *listing, off_t offset, char *buffer, size_t size, size_t *ret)
{
    int r = 0;

    *ret = 0;
    if (offset == WB_SNAPDIR_OFFSET)
        return 0;
    seek(listing->stream, offset);
    while (r == 0) {
        dirent_raw *dirent = NULL;
        ssize_t added;

        r = peek(listing, &dirent);
        if (r != 0)
            break;
        added = add_entry(listing, dirent, buffer + *ret, size - *ret);
        if (added < 0)
            break;
        *ret += (size_t)added;
        advance(listing->stream, dirent);
    }
    if (r == WB_END)
        *ret += add_snapdir(listing, buffer + *ret, size - *ret);
    /* An error after some entries comes again with the next call. */
    return r < 0 && *ret == 0 ? r : 0;
}

/* The stream of readers without a handle. */
static struct wb_dir_stream *shared_stream(struct wb_session *session, struct wb_lower *lower)
{
    pthread_mutex_lock(&session->nodes.lock);
    if (!lower->stream)
        lower->stream = wb_dir_stream_new();
    pthread_mutex_unlock(&session->nodes.lock);
    return lower->stream;
}

static int begin(struct listing *listing, struct wb_handle *handle, struct wb_io *io)
{
    int r = wb_io_read(listing->session, listing->req, listing->inode, handle, 0, io);

    if (r < 0)
        return r;
    listing->lower = handle ? handle->lower : io->lower;
    listing->stream = handle ? handle->stream : shared_stream(listing->session, io->lower);
    return listing->stream ? 0 : -ENOMEM;
}

void wb_op_readdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                   size_t size, off_t offset, bool plus)
{
    struct listing listing = {.session = session, .req = req, .inode = inode, .plus = plus};
    g_autofree char *buffer = g_try_malloc(size);
    struct wb_io io = {.fd = -1};
    size_t length;
    int r = buffer ? begin(&listing, handle, &io) : -ENOMEM;

    if (r == 0) {
        pthread_mutex_lock(&listing.stream->lock);
        r = read_entries(&listing, offset, buffer, size, &length);
        if (!handle && listing.stream->position >= listing.stream->length)
            g_clear_pointer(&listing.stream->data, g_free);
        pthread_mutex_unlock(&listing.stream->lock);
    }
    wb_io_put(session, &io);
    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_buf(req, buffer, length);
}
