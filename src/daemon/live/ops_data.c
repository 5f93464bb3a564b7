/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Content: open, read, write, and what changes the size. */
#include "daemon/core/kcache_invalidate.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/spend.h"
#include "daemon/core/below.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/live/io.h"
#include "daemon/live/mutation.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "daemon/system/report.h"
#include "store/cache/preclone.h"
#include "store/inflight/stages.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Before a change of content through an open file. Without a handle nobody knows which changes belong to one open: the
 * process and the pauses alone tell its versions apart.
 */
static int content_through(struct wb_mutation *mutation, int fd, struct wb_handle *handle,
                           struct wb_overwrite *overwrite)
{
    int r;

    overwrite->begins = handle && !atomic_load(&handle->changed);
    r = wb_mutation_content(mutation, fd, overwrite);
    if (r == 0 && handle)
        atomic_store(&handle->changed, true);
    return r;
}

/* Ranges of files: fallocate in all modes, copy_file_range. */

/* What fallocate(mode) loses. Returns false where it touches attributes alone. */
static bool fallocate_loss(int mode, uint64_t offset, uint64_t length, uint64_t size, struct wb_overwrite *overwrite)
{
    uint64_t end = offset + length;

    *overwrite = (struct wb_overwrite){.offset = offset, .length = length, .size_after = size};
    if (mode & FALLOC_FL_PUNCH_HOLE) {
        overwrite->op = WB_OP_PUNCH;
        overwrite->to_zero = true;
        return offset < size;
    }
    if (mode & FALLOC_FL_COLLAPSE_RANGE) {
        overwrite->op = WB_OP_COLLAPSE;
        overwrite->length = UINT64_MAX - offset;
        overwrite->size_after = size > length ? size - length : 0;
        return true;
    }
    if (mode & FALLOC_FL_INSERT_RANGE) {
        overwrite->op = WB_OP_INSERT;
        overwrite->length = UINT64_MAX - offset;
        overwrite->size_after = size + length;
        return true;
    }
    if (end > size && !(mode & FALLOC_FL_KEEP_SIZE))
        overwrite->size_after = end;
    if (mode & FALLOC_FL_ZERO_RANGE) {
        overwrite->op = WB_OP_ZERO;
        overwrite->to_zero = true;
        return offset < size || overwrite->size_after > size;
    }
    /* Plain allocation leaves every byte that is there as it is. */
    overwrite->op = WB_OP_ALLOCATE;
    if (overwrite->size_after == size)
        return false;
    if (offset < size) {
        overwrite->offset = size;
        overwrite->length = end - size;
    }
    return true;
}

void wb_op_fallocate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                     int mode, off_t offset, off_t length)
{
    struct wb_mutation mutation;
    struct wb_overwrite overwrite;
    struct wb_io io;
    bool spends;
    int r;

    r = wb_io_write(session, req, inode, handle, &io);
    if (r == 0) {
        r = wb_mutation_lock(&mutation, session, req, inode, io.fd);
        if (r < 0)
            wb_io_put(session, &io);
    }
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_mutation_kill_privileges(&mutation, wb_caller_kills_suidgid(req) ? req : NULL);
    if (r < 0)
        ;
    else if (fallocate_loss(mode, (uint64_t)offset, (uint64_t)length, (uint64_t)mutation.st.st_size, &overwrite))
        r = content_through(&mutation, io.fd, handle, &overwrite);
    else
        r = wb_mutation_attrs(&mutation, overwrite.op);
    if (r == 0) {
        spends = wb_spend_begin(mutation.st.st_gid);
        r = fallocate(io.fd, mode, offset, length) < 0 ? -errno : 0;
        wb_spend_end(spends);
        r = wb_mutation_end(&mutation, r);
    }
    wb_mutation_unlock(&mutation);
    wb_io_put(session, &io);
    if (r == 0)
        wb_kcache_invalidate_attrs(session, inode);
    wb_enospc_retry_reply(req, r == -EBADF ? EACCES : -r);
}

/* As much as the source has: its end is not ours to lock, but less copied than recorded is harmless. */
static size_t available(int fd, off_t offset, size_t length)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || offset >= st.st_size)
        return 0;
    return (uint64_t)(st.st_size - offset) < length ? (size_t)(st.st_size - offset) : length;
}

static int copy_range(struct wb_mutation *mutation, fuse_req_t req, int from, off_t offset_in, int to,
                      struct wb_handle *handle, off_t offset_out, size_t length, unsigned flags, ssize_t *copied)
{
    struct wb_overwrite overwrite = {.op = WB_OP_COPY, .offset = (uint64_t)offset_out};
    uint64_t end, size = (uint64_t)mutation->st.st_size;
    bool spends;
    int r;

    *copied = 0;
    overwrite.length = available(from, offset_in, length);
    end = (uint64_t)offset_out + overwrite.length;
    overwrite.size_after = end > size ? end : size;
    if (overwrite.length == 0)
        return 0;
    r = wb_mutation_kill_privileges(mutation, wb_caller_kills_suidgid(req) ? req : NULL);
    if (r == 0)
        r = content_through(mutation, to, handle, &overwrite);
    if (r < 0)
        return r;
    spends = wb_spend_begin(mutation->st.st_gid);
    *copied = copy_file_range(from, &offset_in, to, &offset_out, overwrite.length, flags);
    r = *copied < 0 ? -errno : 0;
    wb_spend_end(spends);
    r = wb_mutation_end(mutation, r);
    if (*copied >= 0 && (size_t)*copied < overwrite.length)
        wb_below_note(mutation->inode, WB_SIZE_UNSURE);
    return r;
}

void wb_op_copy_file_range(struct wb_session *session, fuse_req_t req, struct wb_inode *in, struct wb_handle *from,
                           off_t offset_in, struct wb_inode *out, struct wb_handle *to, off_t offset_out,
                           size_t length, int flags)
{
    struct wb_io source, target = {.fd = -1};
    struct wb_mutation mutation;
    ssize_t copied = 0;
    int r;

    r = wb_io_read(session, req, in, from, 0, &source);
    if (r == 0)
        r = wb_io_write(session, req, out, to, &target);
    if (r == 0 && target.lower && target.appends)
        r = -EPERM;
    /* Only the destination is locked: two copies crosswise must not wait for each other. */
    if (r == 0)
        r = wb_mutation_lock(&mutation, session, req, out, target.fd);
    if (r < 0) {
        wb_io_put(session, &target);
        wb_io_put(session, &source);
        fuse_reply_err(req, -r);
        return;
    }
    r = copy_range(&mutation, req, source.fd, offset_in, target.fd, to, offset_out, length, (unsigned)flags, &copied);
    wb_mutation_unlock(&mutation);
    wb_io_put(session, &target);
    wb_io_put(session, &source);
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_write(req, (size_t)copied);
}

/*
 * What fsync promises: everything it covers is on stable storage, and the undo records of it were
 * there before. Logs are synced first, the file after them.
 */

/* Everything that was recorded and buried. With sync_lock held: who needs it while it is under way
 * waits for it. */
static int sync_everything(struct wb_session *session)
{
    int r = wb_store_sync_all(session->store);

    for (unsigned i = 0; i < 256 && r == 0; i++) {
        /* Graves are shared by the low byte of the inode number: any object of it will do. */
        if (!atomic_exchange(&session->graves[i], 0))
            continue;
        r = wb_grave_sync(session->store, (struct wb_object){.ino = i});
        if (r < 0)
            session->graves[i] = 1;
    }
    return r;
}

int wb_sync_history(struct wb_session *session)
{
    int r;

    pthread_mutex_lock(&session->sync_lock);
    r = sync_everything(session);
    pthread_mutex_unlock(&session->sync_lock);
    return r;
}

/* 0 where the node's own logs are all there is to sync; WB_END when everything was synced. */
static int maybe_sync_everything(struct wb_session *session, struct wb_inode *inode)
{
    int r = 0;

    pthread_mutex_lock(&session->sync_lock);
    if (inode->sync_all || inode->lost_names || session->moves_unsynced) {
        /* Taken back before the work, so that what happens meanwhile raises them again. */
        inode->sync_all = inode->lost_names = false;
        session->moves_unsynced = false;
        r = sync_everything(session);
        if (r < 0)
            session->moves_unsynced = true;
        else
            r = WB_END;
    }
    pthread_mutex_unlock(&session->sync_lock);
    return r;
}

static int sync_log_of_parent(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_object parent = WB_OBJECT_NONE;

    pthread_mutex_lock(&session->nodes.lock);
    if (inode->parent)
        parent = inode->parent->node.object;
    pthread_mutex_unlock(&session->nodes.lock);
    if (wb_object_is_none(parent))
        return 0;
    return wb_store_sync_log(session->store, parent, WB_FILE_CATALOG);
}

/* All records about this node: which logs have them depends on its names, past and present. */
static int sync_records(struct wb_session *session, struct wb_inode *inode)
{
    bool is_dir = wb_inode_is_dir(inode);
    int r;

    if (!session->recording || inode->unborn)
        return 0;
    /* Whatever is synced takes with it what the file system did meanwhile, names of other directories too: not before
     * their records. */
    wb_store_write_logs(session->store);
    r = maybe_sync_everything(session, inode);
    if (r != 0)
        return r < 0 ? r : 0;
    r = wb_store_sync_log(session->store, inode->node.object, is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r == 0)
        r = sync_log_of_parent(session, inode);
    if (r == 0)
        r = wb_store_sync_common(session->store);
    return r;
}

/* The records of the node, then the file. */
static int sync_in_order(struct wb_session *session, struct wb_inode *inode, int fd, bool data_only)
{
    int r = sync_records(session, inode);

    if (r < 0)
        return r;
    if (session->recording)
        wb_store_write_logs(session->store);
    return (data_only ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0;
}

/* Undo records first, then the file: what fsync(2) promises. */
static int sync_file(struct wb_session *session, struct wb_inode *inode, int fd, bool data_only)
{
    int r = wb_enospc_retry_recorded(wb_stage_end_now(session, inode, fd));

    if (r < 0)
        return r;
    if (!session->recording)
        return sync_in_order(session, inode, fd, data_only);
    r = wb_stages_sync_begin(session->store);
    if (r == 0)
        r = sync_in_order(session, inode, fd, data_only);
    wb_stages_sync_end(session->store);
    if (r == 0 && !wb_inode_is_dir(inode))
        wb_store_note_clean(session->store, inode->node.object);
    return r;
}

void wb_op_fsync(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 bool data_only)
{
    struct wb_io io;
    int r = wb_io_sync(session, req, inode, handle, &io);

    if (r == 0) {
        wb_io_sync_begin(session, &io);
        r = wb_io_sync_end(session, inode, handle, &io, sync_file(session, inode, io.fd, data_only));
    }
    wb_io_put(session, &io);
    wb_enospc_retry_reply(req, -r);
}

void wb_op_fsyncdir(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle)
{
    /* Not data_only: a directory has nothing but names, and they are what is asked for. */
    wb_op_fsync(session, req, inode, handle, false);
}

#define WB_RELEASE_TRIES 10
#define WB_RELEASE_PAUSE_US 2000

int wb_handle_opened(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, bool asked,
                     struct fuse_file_info *fi)
{
    struct wb_handle *handle;
    int r = wb_handle_new(session, inode, fd, fuse_req_ctx(req)->uid, asked, &handle);

    if (r < 0)
        return r;
    if (fi->flags & WB_OPEN_FOR_EXEC)
        wb_handle_run(session, handle);
    fi->fh = wb_publish(handle);
    fi->keep_cache = !session->options->read_only;
    /* A close ends a stage. */
    fi->noflush = !(wb_stages_may_be(session) && handle->writes);
    return 0;
}

/* Reading through a descriptor that is open for writing alone is a question of permission. */
static int as_permission(int r)
{
    return r == -EBADF ? -EACCES : r;
}

int wb_truncate(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, int fd, struct wb_handle *handle,
                off_t size, bool stamp, bool kill_suidgid)
{
    struct wb_mutation mutation;
    struct wb_overwrite overwrite = {.op = WB_OP_TRUNCATE, .size_after = (uint64_t)size, .begins = true};
    char path[32];
    off_t old;
    int r;

    r = wb_mutation_lock(&mutation, session, req, inode, fd);
    if (r < 0)
        return r;
    old = mutation.st.st_size;
    r = wb_mutation_kill_privileges(&mutation, kill_suidgid ? req : NULL);
    overwrite.offset = (uint64_t)(size < old ? size : old);
    overwrite.length = size < old ? UINT64_MAX - overwrite.offset : (uint64_t)(size - old);
    if (r == 0 && session->recording && size > 0)
        r = wb_store_before_truncate(session->store, inode->node.object);
    if (r < 0)
        ;
    else if (size != old)
        r = as_permission(handle ? content_through(&mutation, fd, handle, &overwrite)
                                 : wb_mutation_content(&mutation, fd, &overwrite));
    else
        r = wb_mutation_attrs(&mutation, WB_OP_TRUNCATE);
    if (r == 0) {
        /* ftruncate(2) sets the times always, truncate(2) where the size changes: each caller
         * gets what the system call he made does. */
        r = stamp ? ftruncate(fd, size) : truncate(wb_fd_path(fd, path), size);
        r = wb_mutation_end(&mutation, r < 0 ? -errno : 0);
    }
    wb_mutation_unlock(&mutation);
    return r;
}

/*
 * The kernel sends us O_RDONLY | O_TRUNC before it asks whether the file is being executed (with a way to
 * write it asks first), and then answers ETXTBSY for a file that is empty by now. So we ask, too: execve(2)
 * opens files with a flag of its own. The release of a program that has just ended may still be on its way.
 */
static bool is_text_busy(struct wb_session *session, struct wb_inode *inode)
{
    for (int tries = 0; tries < WB_RELEASE_TRIES; tries++) {
        if (!wb_handle_runs(session, inode))
            return false;
        g_usleep(WB_RELEASE_PAUSE_US);
    }
    return true;
}

/* Its writer goes, and with the last one the stage ends. */
static void drop_handle(struct wb_session *session, struct wb_handle *handle)
{
    /* Where the end cannot be written the stage goes on until it can. */
    if (wb_handle_retire(session, handle) && wb_stage_end_unwritten(session, handle->inode, handle->fd) < 0)
        wb_log_msg("a version could not be recorded at the close of its file; trying again");
    wb_handle_unref(session, handle);
}

void wb_op_open(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct fuse_file_info *fi)
{
    bool appends = (fi->flags & O_ACCMODE) != O_RDONLY && fi->flags & O_APPEND;
    struct wb_handle *handle = NULL;
    _cleanup_close_ int fd = -1;
    int r;

    /* No O_APPEND, O_SYNC, O_DIRECT below, nor O_NOATIME for writing: offsets come from the kernel, syncs as
     * FSYNC, and what is read and written there is ours to read before. O_TRUNC needs a writable
     * descriptor even where the caller's own is for reading alone. */
    if ((fi->flags & O_ACCMODE) == O_RDONLY && (fi->flags & O_TRUNC) && is_text_busy(session, inode))
        fd = -ETXTBSY;
    else if ((fi->flags & O_ACCMODE) == O_RDONLY && !(fi->flags & O_TRUNC))
        fd = wb_open_readable(session, inode, fi->flags);
    else
        fd = wb_open_writable(session, inode);
    /* An append-only file (chattr +a) is written through a descriptor that appends, or not at all. */
    if (fd == -EPERM && appends && !(fi->flags & O_TRUNC))
        fd = wb_access_open(session, inode, O_RDWR | O_APPEND);
    else
        appends = false;
    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    r = wb_handle_opened(session, req, inode, wb_steal_fd(&fd), false, fi);
    if (r == 0) {
        handle = wb_handle_of_request(fi);
        handle->appends = appends;
    }
    if (r == 0 && wb_below_is_resized(inode, handle->fd)) {
        fi->keep_cache = 0;
        wb_kcache_invalidate_attrs(session, inode);
    }
    /* After that: what is cut off belongs to the stage of who opens it. */
    if (r == 0 && fi->flags & O_TRUNC) {
        r = wb_truncate(session, req, inode, handle->fd, handle, 0, true, wb_open_kills_suidgid(req, fi));
        if (r < 0)
            drop_handle(session, handle);
    }
    if (r < 0)
        wb_enospc_retry_reply(req, -r);
    else
        fuse_reply_open(req, fi);
}

void wb_op_release(struct wb_session *session, fuse_req_t req, struct wb_handle *handle)
{
    /* Of a CREATE before the kernel had learned that there are no handles. */
    if (!handle) {
        fuse_reply_err(req, 0);
        return;
    }
    /* The last words of who wrote, as a rule: nothing more will be wanted of what was cloned ahead. */
    if (handle->writes && wb_recorder(session))
        wb_preclone_release(session->store, handle->inode->node.object);
    drop_handle(session, handle);
    fuse_reply_err(req, 0);
}

/* ---- read ------------------------------------------------------------------------------------ */

static pthread_key_t buffer_key;

struct buffer {
    size_t size;
    char *data;
};

static void free_buffer(void *data)
{
    struct buffer *buffer = data;

    free(buffer->data);
    g_free(buffer);
}

static void make_buffer_key(void)
{
    pthread_key_create(&buffer_key, free_buffer);
}

/* One buffer per worker, as large as its largest read. */
static char *read_buffer(size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct buffer *buffer;

    pthread_once(&once, make_buffer_key);
    buffer = pthread_getspecific(buffer_key);
    if (!buffer) {
        buffer = g_try_new0(struct buffer, 1);
        if (!buffer)
            return NULL;
        pthread_setspecific(buffer_key, buffer);
    }
    if (buffer->size < size) {
        free(buffer->data);
        buffer->data = wb_alloc_transfer(size);
        buffer->size = buffer->data ? size : 0;
    }
    return buffer->data;
}

void wb_op_read(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle, int flags,
                size_t size, off_t offset)
{
    char *buffer = read_buffer(size);
    struct wb_io io;
    size_t length;
    int r;

    if (!buffer) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    r = wb_io_read(session, req, inode, handle, flags, &io);
    if (r == 0)
        r = wb_pread_full(io.fd, buffer, size, (uint64_t)offset, &length);
    wb_io_put(session, &io);
    if (r < 0)
        fuse_reply_err(req, r == -EBADF ? EACCES : -r);
    else
        fuse_reply_buf(req, buffer, length);
}

/* ---- write ----------------------------------------------------------------------------------- */

static ssize_t write_locked(struct wb_mutation *mutation, int fd, struct wb_handle *handle, const char *data,
                            size_t size, off_t offset, bool mapped, fuse_req_t by)
{
    uint64_t end = (uint64_t)offset + size, old = (uint64_t)mutation->st.st_size;
    struct wb_overwrite overwrite = {
        .op = mapped ? WB_OP_MMAP : WB_OP_WRITE,
        .offset = (uint64_t)offset,
        .length = size,
        .size_after = end > old ? end : old,
        .new_data = data,
    };
    ssize_t written;
    bool spends;
    int r;

    r = wb_mutation_kill_privileges(mutation, by);
    if (r < 0)
        return r;
    r = as_permission(content_through(mutation, fd, handle, &overwrite));
    if (r < 0)
        return r;
    spends = wb_spend_begin(mutation->st.st_gid);
    written = pwrite(fd, data, size, offset);
    if (written < 0)
        written = -errno;
    wb_spend_end(spends);
    wb_mutation_end(mutation, written < 0 ? (int)written : 0);
    if (written >= 0 && (size_t)written < size)
        wb_below_note(mutation->inode, WB_SIZE_UNSURE);
    return written;
}

/*
 * Whether no FSYNC may follow a synchronous write: through the page cache the kernel sends one, past it not every
 * version does. The flags are those of this write: RWF_DSYNC and fcntl(F_SETFL) count.
 */
static bool syncs_itself(const struct fuse_file_info *fi)
{
    return fi->flags & O_DIRECT && fi->flags & (O_SYNC | O_DSYNC);
}

/* The write itself, with the lock of the mutation. Returns the bytes written or -errno. */
static ssize_t write_mutation(struct wb_mutation *mutation, fuse_req_t req, const struct wb_io *io,
                              struct wb_handle *handle, const char *data, size_t size, off_t from,
                              const struct fuse_file_info *fi)
{
    bool mapped = fi->writepage;

    /* A handle that appends was opened by a caller that appends. */
    if (io->appends && (from != mutation->st.st_size || (io->lower && !(fi->flags & O_APPEND))))
        return -EPERM;
    if (mapped && wb_keeper_has_spent(mutation->session, mutation->st.st_uid))
        return -EDQUOT;
    return write_locked(mutation, io->fd, handle, data, size, from, mapped,
                        !mapped && wb_open_kills_suidgid(req, fi) ? req : NULL);
}

void wb_op_write(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 const char *data, size_t size, off_t offset, const struct fuse_file_info *fi)
{
    bool mapped = fi->writepage, misplaced;
    off_t from = offset, end;
    struct wb_mutation mutation;
    struct wb_io io;
    ssize_t written;
    int r;

    r = wb_io_write(session, req, inode, handle, &io);
    /* Write-back of a mapping comes from the kernel, long after whoever stored the bytes. */
    if (r == 0) {
        r = wb_mutation_lock(&mutation, session, mapped ? NULL : req, inode, io.fd);
        if (r < 0)
            wb_io_put(session, &io);
    }
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    /* Nobody knows whose bytes these are: they take room as the owner's. */
    if (mapped)
        wb_enospc_retry_spend_for(session, mutation.st.st_uid);
    end = mutation.st.st_size;
    misplaced = !mapped && wb_below_misplaces(inode, fi->flags, offset, end);
    if (misplaced)
        from = end;
    written = write_mutation(&mutation, req, &io, handle, data, size, from, fi);
    wb_mutation_unlock(&mutation);
    if (mapped && written >= 0)
        wb_kcache_invalidate_attrs_later(session, inode);
    if (written >= 0 && syncs_itself(fi)) {
        wb_io_sync_begin(session, &io);
        r = wb_io_sync_end(session, inode, handle, &io, sync_file(session, inode, io.fd, true));
        if (r < 0)
            written = r;
    }
    wb_io_put(session, &io);
    if (written < 0)
        wb_enospc_retry_reply(req, (int)-written);
    else
        fuse_reply_write(req, (size_t)written);
    /* Not before the reply: until then, the kernel holds the pages that it wrote to. */
    if (misplaced)
        wb_kcache_invalidate_content(session, inode, MIN(offset, end));
}

void wb_op_lseek(struct wb_session *session, fuse_req_t req, struct wb_inode *inode, struct wb_handle *handle,
                 off_t offset, int whence)
{
    struct wb_io io;
    off_t r = wb_io_read(session, req, inode, handle, 0, &io);

    if (r == 0) {
        r = lseek(io.fd, offset, whence);
        if (r < 0)
            r = -errno;
    }
    wb_io_put(session, &io);
    if (r < 0)
        fuse_reply_err(req, (int)-r);
    else
        fuse_reply_lseek(req, r);
}
