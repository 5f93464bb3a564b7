/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges of files: fallocate in all modes, copy_file_range. */
#include "base/spend.h"
#include "daemon/keeper/again.h"
#include "daemon/core/below.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

/* What fallocate(mode) loses. Returns false where it touches attributes alone. */
static bool fallocate_loss(int mode, uint64_t offset, uint64_t length, uint64_t size,
                           struct wb_loss *loss)
{
    uint64_t end = offset + length;

    *loss = (struct wb_loss){.offset = offset, .length = length, .size_after = size};
    if (mode & FALLOC_FL_PUNCH_HOLE) {
        loss->op = WB_OP_PUNCH;
        loss->to_zero = true;
        return offset < size;
    }
    if (mode & FALLOC_FL_COLLAPSE_RANGE) {
        loss->op = WB_OP_COLLAPSE;
        loss->length = UINT64_MAX - offset;
        loss->size_after = size > length ? size - length : 0;
        return true;
    }
    if (mode & FALLOC_FL_INSERT_RANGE) {
        loss->op = WB_OP_INSERT;
        loss->length = UINT64_MAX - offset;
        loss->size_after = size + length;
        return true;
    }
    if (end > size && !(mode & FALLOC_FL_KEEP_SIZE))
        loss->size_after = end;
    if (mode & FALLOC_FL_ZERO_RANGE) {
        loss->op = WB_OP_ZERO;
        loss->to_zero = true;
        return offset < size || loss->size_after > size;
    }
    /* Plain allocation leaves every byte that is there as it is. */
    loss->op = WB_OP_ALLOCATE;
    if (loss->size_after == size)
        return false;
    if (offset < size) {
        loss->offset = size;
        loss->length = end - size;
    }
    return true;
}

void wb_op_fallocate(struct wb_session *session, fuse_req_t req, struct wb_live *live, int mode,
                     off_t offset, off_t length, struct fuse_file_info *fi)
{
    struct wb_handle *handle = wb_handle_of(fi->fh);
    struct wb_subject subject;
    struct wb_loss loss;
    bool spends;
    int r;

    r = wb_subject_lock(&subject, session, req, live, handle->fd);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    r = wb_subject_kill_privileges(&subject, wb_caller_kills_suidgid(req) ? req : NULL);
    if (r < 0)
        ;
    else if (fallocate_loss(mode, (uint64_t)offset, (uint64_t)length, (uint64_t)subject.st.st_size, &loss))
        r = wb_subject_content(&subject, handle->fd, &loss);
    else
        r = wb_subject_attrs(&subject, loss.op);
    if (r == 0) {
        spends = wb_spend_begin(subject.st.st_gid);
        r = fallocate(handle->fd, mode, offset, length) < 0 ? -errno : 0;
        wb_spend_end(spends);
        r = wb_subject_end(&subject, r);
    }
    wb_subject_unlock(&subject);
    wb_again_reply(req, r == -EBADF ? EACCES : -r);
}

/* As much as the source has: its end is not ours to lock, but less copied than recorded is harmless. */
static size_t available(int fd, off_t offset, size_t length)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || offset >= st.st_size)
        return 0;
    return (uint64_t)(st.st_size - offset) < length ? (size_t)(st.st_size - offset) : length;
}

void wb_op_copy_file_range(struct wb_session *session, fuse_req_t req, off_t offset_in,
                           struct fuse_file_info *fi_in, struct wb_live *out, off_t offset_out,
                           struct fuse_file_info *fi_out, size_t length, int flags)
{
    struct wb_handle *from = wb_handle_of(fi_in->fh), *to = wb_handle_of(fi_out->fh);
    struct wb_subject subject;
    struct wb_loss loss = {.op = WB_OP_COPY, .offset = (uint64_t)offset_out};
    uint64_t end, size;
    ssize_t copied = 0;
    bool spends;
    int r;

    /* Only the destination is locked: two copies crosswise must not wait for each other. */
    r = wb_subject_lock(&subject, session, req, out, to->fd);
    if (r < 0) {
        fuse_reply_err(req, -r);
        return;
    }
    size = (uint64_t)subject.st.st_size;
    loss.length = available(from->fd, offset_in, length);
    end = (uint64_t)offset_out + loss.length;
    loss.size_after = end > size ? end : size;
    if (loss.length > 0) {
        r = wb_subject_kill_privileges(&subject, wb_caller_kills_suidgid(req) ? req : NULL);
        if (r == 0)
            r = wb_subject_content(&subject, to->fd, &loss);
        if (r == 0) {
            spends = wb_spend_begin(subject.st.st_gid);
            copied = copy_file_range(from->fd, &offset_in, to->fd, &offset_out, loss.length,
                                     (unsigned)flags);
            r = copied < 0 ? -errno : 0;
            wb_spend_end(spends);
            r = wb_subject_end(&subject, r);
            if (copied >= 0 && (size_t)copied < loss.length)
                wb_below_note(out, WB_SIZE_UNSURE);
        }
    }
    wb_subject_unlock(&subject);
    if (r < 0)
        wb_again_reply(req, -r);
    else
        fuse_reply_write(req, (size_t)copied);
}
