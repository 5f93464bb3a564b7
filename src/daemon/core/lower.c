/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/lower.h"

#include "daemon/core/handle.h"
#include "daemon/core/session.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So many at most are cached: opening one again costs less than a record. */
#define MAX_CACHED 4096

struct wb_dir_stream *wb_dir_stream_new(void)
{
    struct wb_dir_stream *stream = g_try_new0(struct wb_dir_stream, 1);

    if (!stream)
        return NULL;
    stream->data = g_try_malloc(WB_DIRENTS_SIZE);
    if (!stream->data) {
        g_free(stream);
        return NULL;
    }
    pthread_mutex_init(&stream->lock, NULL);
    stream->moved = true;
    return stream;
}

void wb_dir_stream_free(struct wb_dir_stream *stream)
{
    if (!stream)
        return;
    pthread_mutex_destroy(&stream->lock);
    g_free(stream->data);
    g_free(stream);
}

struct wb_lower *wb_lower_new(int fd)
{
    struct wb_lower *lower = g_try_new0(struct wb_lower, 1);

    if (lower) {
        lower->fd = fd;
        lower->mode = fcntl(fd, F_GETFL) & WB_LOWER_MODE;
        pthread_mutex_init(&lower->lock, NULL);
    }
    return lower;
}

int wb_lower_free(struct wb_lower *lower)
{
    int r;

    if (!lower)
        return 0;
    r = close(lower->fd) < 0 ? -errno : 0;
    wb_dir_stream_free(lower->stream);
    pthread_mutex_destroy(&lower->lock);
    g_free(lower);
    return r;
}

/* ---- with nodes.lock held -------------------------------------------------------------------- */

struct wb_lower *wb_lower_of_mode(const struct wb_inode *inode, int mode)
{
    struct wb_lower *lower = inode->lowers;

    while (lower && lower->mode != mode)
        lower = lower->next;
    return lower;
}

void wb_lower_attach(struct wb_inode *inode, struct wb_lower *lower)
{
    lower->inode = inode;
    lower->next = inode->lowers;
    inode->lowers = lower;
}

static void list_idle(struct wb_lowers *lowers, struct wb_lower *lower)
{
    lower->idle = true;
    lower->turn = lowers->turn;
    lower->newer = NULL;
    lower->older = lowers->newest;
    *(lowers->newest ? &lowers->newest->newer : &lowers->oldest) = lower;
    lowers->newest = lower;
}

static void unlist_idle(struct wb_lowers *lowers, struct wb_lower *lower)
{
    if (!lower->idle)
        return;
    lower->idle = false;
    *(lower->newer ? &lower->newer->older : &lowers->newest) = lower->older;
    *(lower->older ? &lower->older->newer : &lowers->oldest) = lower->newer;
}

void wb_lower_use(struct wb_session *session, struct wb_lower *lower)
{
    unlist_idle(&session->lowers, lower);
}

static void unlink_lower(struct wb_lower *lower)
{
    struct wb_lower **link = &lower->inode->lowers;

    while (*link != lower)
        link = &(*link)->next;
    *link = lower->next;
}

struct wb_lower *wb_lower_release(struct wb_session *session, struct wb_lower *lower)
{
    if (lower->refs > 0 || lower->users > 0)
        return NULL;
    if (lower->cached) {
        list_idle(&session->lowers, lower);
        return NULL;
    }
    unlink_lower(lower);
    return lower;
}

void wb_lower_detach(struct wb_session *session, struct wb_lower *lower)
{
    unlist_idle(&session->lowers, lower);
    unlink_lower(lower);
    if (!lower->cached)
        return;
    session->lowers.count--;
    wb_shares_release(&session->shares, &lower->holders, WB_SHARE_FDS, lower->uid, 1);
}

void wb_lowers_drop(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_lower *lower;

    while ((lower = inode->lowers)) {
        wb_lower_detach(session, lower);
        lower->next = session->lowers.closing;
        session->lowers.closing = lower;
    }
}

/* ---- for operations -------------------------------------------------------------------------- */

void wb_lowers_init(struct wb_session *session, bool caches)
{
    uint64_t all = session->shares.kinds[WB_SHARE_FDS].all;

    session->lowers.caches = caches;
    session->lowers.limit = (unsigned)MIN(all, UINT_MAX);
    session->lowers.max = (unsigned)MIN(all / 2, MAX_CACHED);
}

void wb_lowers_close_dropped(struct wb_session *session)
{
    struct wb_lower *lower, *next;

    if (!__atomic_load_n(&session->lowers.closing, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&session->nodes.lock);
    lower = g_steal_pointer(&session->lowers.closing);
    pthread_mutex_unlock(&session->nodes.lock);
    for (; lower; lower = next) {
        next = lower->next;
        wb_lower_free(lower);
    }
}

/* With nodes.lock held. */
static struct wb_lower *begin_use(struct wb_session *session, struct wb_lower *lower)
{
    if (lower) {
        wb_lower_use(session, lower);
        lower->users++;
    }
    return lower;
}

struct wb_lower *wb_lower_find(struct wb_session *session, struct wb_inode *inode, const int *modes, size_t count)
{
    struct wb_lower *lower = NULL;

    pthread_mutex_lock(&session->nodes.lock);
    for (size_t i = 0; i < count && !lower; i++)
        lower = wb_lower_of_mode(inode, modes[i]);
    begin_use(session, lower);
    pthread_mutex_unlock(&session->nodes.lock);
    return lower;
}

struct wb_lower *wb_lower_any(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_lower *lower;

    pthread_mutex_lock(&session->nodes.lock);
    lower = inode->lowers;
    while (lower && lower->mode & O_PATH && lower->next)
        lower = lower->next;
    begin_use(session, lower);
    pthread_mutex_unlock(&session->nodes.lock);
    return lower;
}

/* With nodes.lock held: the cache takes it, where there is one. */
static int cache(struct wb_session *session, struct wb_lower *lower, uid_t uid, bool asked)
{
    struct wb_lowers *lowers = &session->lowers;
    int r;

    if (!lowers->caches || lower->cached)
        return 0;
    if (lowers->count >= lowers->limit)
        return -EMFILE;
    r = wb_shares_hold(&session->shares, &lower->holders, WB_SHARE_FDS, uid, 1, asked);
    if (r < 0)
        return r;
    lower->cached = true;
    lower->uid = uid;
    lowers->count++;
    return 0;
}

int wb_lower_add(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid, bool asked,
                 struct wb_lower **ret)
{
    struct wb_lower *made = wb_lower_new(fd), *lower;
    int r;

    if (!made) {
        close(fd);
        return -ENOMEM;
    }
    pthread_mutex_lock(&session->nodes.lock);
    lower = wb_lower_of_mode(inode, made->mode);
    r = cache(session, lower ? lower : made, uid, asked);
    if (r == 0 && !lower) {
        lower = g_steal_pointer(&made);
        wb_lower_attach(inode, lower);
    }
    if (r == 0)
        *ret = begin_use(session, lower);
    pthread_mutex_unlock(&session->nodes.lock);
    wb_lower_free(made);
    return r;
}

void wb_lower_put(struct wb_session *session, struct wb_lower *lower, bool wrote)
{
    if (!lower)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    lower->users--;
    lower->written = lower->written || (wrote && lower->cached);
    lower = wb_lower_release(session, lower);
    pthread_mutex_unlock(&session->nodes.lock);
    wb_lower_free(lower);
}

long wb_lower_getdents(struct wb_lower *lower, const void *reader, bool moved, off_t offset, void *data, size_t size)
{
    long n = 0;

    pthread_mutex_lock(&lower->lock);
    if ((moved || lower->reader != reader) && lseek(lower->fd, offset, SEEK_SET) < 0)
        n = -errno;
    lower->reader = n < 0 ? NULL : reader;
    if (n == 0)
        n = syscall(SYS_getdents64, lower->fd, data, size);
    if (n < 0 && lower->reader)
        n = -errno;
    pthread_mutex_unlock(&lower->lock);
    return n;
}
