/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/rewrite/compact.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/rewrite/pack.h"
#include "maintain/rewrite/tried.h"
#include "maintain/usage/room.h"
#include "store/log/log_index.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

/* Smaller than this, a log takes a block or two however it is written. */
#define WORTH (8u << 10)
/* What a new file has to save, and be it of a small log. */
#define SAVES_AT_LEAST 4096
/* So much without an INDEX gets one before it is packed: or whoever walks back would unpack all of it for its heads. */
#define WITHOUT_INDEX (64u << 10)
/* So many times what is packed has to be free: what it becomes, and whatever is written meanwhile. */
#define ROOM_FOR 2
/* How often what was appended meanwhile is copied before it is given up. */
#define ATTEMPTS 5

struct work {
    struct wb_store *store;
    struct wb_compact *compact;
    struct wb_log *log;
    struct wb_pack_job job;
    char path[WB_OBJECT_PATH_MAX];
    int fd;
    unsigned cuts;    /* as they were in the beginning */
    uint64_t end;     /* of what the new file has of the log  */
    uint64_t at;      /* how long the file is                */
    uint64_t old_size;
    uint64_t forget_end; /* see struct wb_compact_forget */
};

static bool is_wanted(void *data)
{
    struct work *work = data;

    return atomic_load(&work->store->rewrite_wanted) > 0 ||
           (work->compact->flags & WB_COMPACT_IDLE && atomic_load(&work->store->rewrite_awaited) > 0) ||
           (work->compact->stop && work->compact->stop(work->compact->stop_data));
}

bool wb_compact_has_room(const struct wb_store *store, struct wb_compact *compact, uint64_t size)
{
    uint64_t room, reserve;
    struct statvfs device;
    bool has;

    if (!(compact->flags & WB_COMPACT_IDLE) || fstatvfs(store->dir_fd, &device) < 0)
        return true;
    room = (uint64_t)device.f_bavail * device.f_frsize;
    reserve = compact->reserve ? wb_room_bytes(compact->reserve, &device) : 0;
    has = room > reserve && (room - reserve) / ROOM_FOR > size;
    compact->lacked_room |= !has;
    return has;
}

static uint64_t file_size(const struct work *work, uint64_t tail)
{
    return wb_log_physical(work->log, tail);
}

/* Under the log's lock: what is there now. Whether anything is to be done. */
static bool look(struct work *work, struct wb_object object, enum wb_object_file file)
{
    struct wb_log *log = work->log;
    uint64_t rest = log->tail - log->unpacked;
    bool worth = work->compact->flags & WB_COMPACT_UNDO ? log->unpacked > 0 : rest >= WORTH;

    /* As it was: the INDEX must not be what it saves. */
    work->old_size = file_size(work, log->tail);
    if (worth && !work->compact->forget && rest >= WITHOUT_INDEX && file == WB_FILE_UNDO &&
        work->compact->before == WB_WHEN_PRESENT &&
        !(work->compact->flags & (WB_COMPACT_UNDO | WB_COMPACT_DRY | WB_COMPACT_STATS)))
        wb_log_index_now(work->store, log, object);
    if (work->compact->flags & WB_COMPACT_STATS)
        worth = false;
    work->cuts = log->cuts;
    work->end = log->tail;
    return worth;
}

/* Bytes appended since go behind what the file has; after it they are on the disk: 0, -EAGAIN where they never end. */
static int catch_up(struct work *work)
{
    struct wb_log *log = work->log;
    bool cut, fresh = true;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < ATTEMPTS; i++) {
        pthread_mutex_lock(&log->lock);
        cut = log->cuts != work->cuts;
        work->job.end = log->tail;
        if (!cut && !fresh && work->end == log->tail) {
            r = wb_log_exchange_locked(log, work->store->dir_fd, work->path, WB_PACK_NEW, work->end);
            pthread_mutex_unlock(&log->lock);
            return r;
        }
        pthread_mutex_unlock(&log->lock);
        if (cut)
            return -EAGAIN;
        r = wb_pack_copy(&work->job, work->end, work->at);
        work->at += work->job.end - work->end;
        work->end = work->job.end;
        if (r == 0 && fdatasync(work->fd) < 0)
            r = -errno;
        fresh = false;
    }
    return r < 0 ? r : -EAGAIN;
}

/* The file beside the log, with all of it below work->end: 0, WB_PACK_WASTE, or -errno. */
static int write_file(struct work *work)
{
    uint64_t tail = work->end, packed;
    int r;

    if (work->compact->flags & WB_COMPACT_UNDO) {
        work->end = work->at = 0;
        return 0;
    }
    work->job.end = tail;
    if (work->compact->forget) {
        work->job.end = MAX(work->forget_end, work->log->unpacked);
        work->job.overlay = work->compact->forget->overlay;
        work->job.overlay_data = work->compact->forget->data;
    }
    r = wb_pack_write(&work->job, &work->end, &work->at);
    if (r != 0)
        return r;
    /* All of it has to be in the pack: what is behind is copied as it is. */
    if (work->compact->forget)
        return work->end < work->forget_end ? -EBADMSG : 0;
    packed = work->at + (tail - work->end);
    return packed > work->old_size - work->old_size / 10 || packed + SAVES_AT_LEAST > work->old_size ? WB_PACK_WASTE
                                                                                                     : 0;
}

static int rewrite(struct work *work)
{
    uint64_t tail = work->end;
    int r;

    work->job = (struct wb_pack_job){.from = work->log->fd, .to = work->fd, .stop = is_wanted, .stop_data = work};
    work->job.before = work->compact->before;
    r = write_file(work);
    if (r != 0)
        return r;
    work->compact->changed++;
    if (work->compact->flags & WB_COMPACT_DRY) {
        work->compact->new_size += work->at + (tail - work->end);
        return 0;
    }
    r = catch_up(work);
    /* Its name, too; what is appended from now on relies on it when it is synced. */
    if (r == 0)
        r = wb_log_sync(work->log, work->store->dir_fd, work->path);
    if (r == 0)
        work->compact->new_size += work->at;
    return r;
}

/* A new file beside the log, which gets its name. */
static int do_beside(struct work *work, struct wb_object object, enum wb_object_file file)
{
    int r;

    wb_object_path(object, file, work->path);
    work->fd = wb_create_own(work->store->dir_fd, WB_PACK_NEW, O_RDWR);
    if (work->fd < 0)
        return work->fd;
    r = rewrite(work);
    close(work->fd);
    if (r != 0 || work->compact->flags & WB_COMPACT_DRY)
        unlinkat(work->store->dir_fd, WB_PACK_NEW, 0);
    return r;
}

/* What is forgotten goes from the log itself, where that can be: more than 0; else 0, or -errno. */
static int forget_in_place(struct work *work, bool full)
{
    const struct wb_compact_forget *forget = work->compact->forget;
    int r = 0;

    if (forget && forget->in_place && !(work->compact->flags & WB_COMPACT_DRY))
        r = forget->in_place(forget->data, work->log, full);
    work->compact->changed += r > 0;
    return r;
}

/* The compaction of an opened log, with the right to write logs anew. */
static int do_log(struct work *work, struct wb_object object, enum wb_object_file file)
{
    struct wb_compact *compact = work->compact;
    uint64_t changed = compact->changed;
    bool worth;
    int r;

    pthread_mutex_lock(&work->log->lock);
    worth = look(work, object, file);
    pthread_mutex_unlock(&work->log->lock);
    /* While one log lacks room, all have their turn again each time round. */
    worth = worth && !(compact->flags & WB_COMPACT_IDLE && wb_tried_has(compact->tried, object, file, work->end));
    compact->logs++;
    compact->length += work->end;
    compact->old_size += work->old_size;
    if (compact->forget) {
        r = compact->forget->look(compact->forget->data, object, file, work->log->fd, &work->forget_end);
        worth = r > 0;
        if (worth) {
            r = forget_in_place(work, false);
            worth = r == 0;
        }
        if (r < 0)
            return r;
    }
    worth = worth && wb_compact_has_room(work->store, compact, work->old_size);
    r = worth ? do_beside(work, object, file) : WB_PACK_WASTE;
    if (worth && r == WB_PACK_WASTE)
        wb_tried_note(compact->tried, object, file, work->end);
    /* How much may be written is not known before: a quota shows by this. */
    if (r == -ENOSPC || r == -EDQUOT) {
        int done;

        compact->changed = changed;
        done = forget_in_place(work, true);
        r = done < 0 ? done : done > 0 ? WB_PACK_WASTE : r;
    }
    if (r != 0)
        compact->new_size += work->old_size;
    compact->packed += work->log->unpacked > 0;
    return r < 0 ? r : 0;
}

int wb_compact_own(struct wb_store *store, const struct wb_compact *compact)
{
    if (!store->writable)
        return -EROFS;
    if (!(compact->flags & WB_COMPACT_IDLE))
        wb_rewriting_await(store);
    else if (pthread_mutex_trylock(&store->rewriting) != 0)
        return -ECANCELED;
    return 0;
}

int wb_compact_log(struct wb_store *store, struct wb_compact *compact, struct wb_object object,
                   enum wb_object_file file)
{
    struct work work = {.store = store, .compact = compact};
    int r;

    r = wb_compact_own(store, compact);
    if (r < 0)
        return r;
    r = wb_store_get_log(store, object, file, false, &work.log);
    if (r == 0) {
        r = do_log(&work, object, file);
        wb_store_put_log(store, work.log);
    }
    r = r == -ENOENT ? 0 : r;
    if (r == 0 && compact->forget && compact->forget->done)
        r = compact->forget->done(compact->forget->data, object);
    pthread_mutex_unlock(&store->rewriting);
    return r;
}
