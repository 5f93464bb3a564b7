/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What fsync promises: everything it covers is on stable storage, and the undo records of it were
 * there before. Logs are synced first, the file after them.
 */
#include "daemon/keeper/again.h"
#include "daemon/live/change.h"
#include "daemon/live/ops.h"
#include "daemon/live/stage.h"
#include "store/inflight/stages.h"

#include <errno.h>
#include <unistd.h>

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
static int maybe_sync_everything(struct wb_session *session, struct wb_live *live)
{
    int r = 0;

    pthread_mutex_lock(&session->sync_lock);
    if (live->sync_all || live->lost_names || session->moves_unsynced) {
        /* Taken back before the work, so that what happens meanwhile raises them again. */
        live->sync_all = live->lost_names = false;
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

static int sync_log_of_parent(struct wb_session *session, struct wb_live *live)
{
    struct wb_object parent = WB_OBJECT_NONE;

    pthread_mutex_lock(&session->nodes.lock);
    if (live->parent)
        parent = live->parent->node.object;
    pthread_mutex_unlock(&session->nodes.lock);
    if (wb_object_is_none(parent))
        return 0;
    return wb_store_sync_log(session->store, parent, WB_FILE_CATALOG);
}

/* All records that tell of this node: where they are depends on its names, past and present. */
static int sync_records(struct wb_session *session, struct wb_live *live)
{
    bool is_dir = wb_live_is_dir(live);
    int r;

    if (!session->recording || live->unborn)
        return 0;
    /* Whatever is synced takes with it what the file system did meanwhile, names of other directories too: not before
     * their records. */
    wb_store_write_logs(session->store);
    r = maybe_sync_everything(session, live);
    if (r != 0)
        return r < 0 ? r : 0;
    r = wb_store_sync_log(session->store, live->node.object,
                          is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r == 0)
        r = sync_log_of_parent(session, live);
    if (r == 0)
        r = wb_store_sync_common(session->store);
    return r;
}

/* The records of the node, then the file. */
static int sync_in_order(struct wb_session *session, struct wb_live *live, int fd, bool data_only)
{
    int r = sync_records(session, live);

    if (r < 0)
        return r;
    if (session->recording)
        wb_store_write_logs(session->store);
    return (data_only ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0;
}

int wb_sync_file(struct wb_session *session, struct wb_live *live, int fd, bool data_only)
{
    int r = wb_again_recorded(wb_stage_end_now(session, live, fd));

    if (r < 0)
        return r;
    if (!session->recording)
        return sync_in_order(session, live, fd, data_only);
    r = wb_stages_sync_begin(session->store);
    if (r == 0)
        r = sync_in_order(session, live, fd, data_only);
    wb_stages_sync_end(session->store);
    if (r == 0 && !wb_live_is_dir(live))
        wb_store_note_clean(session->store, live->node.object);
    return r;
}

void wb_op_fsync(struct wb_session *session, fuse_req_t req, struct wb_live *live, bool data_only,
                 struct fuse_file_info *fi)
{
    struct wb_handle *handle = wb_handle_of(fi->fh);
    int r = wb_sync_file(session, live, handle->fd, data_only);

    wb_again_reply(req, -wb_handle_synced(session, handle, r));
}

void wb_op_fsyncdir(struct wb_session *session, fuse_req_t req, struct wb_live *live, bool data_only,
                    struct fuse_file_info *fi)
{
    /* Not data_only: a directory has nothing but names, and they are what is asked for. */
    wb_op_fsync(session, req, live, false, fi);
}
