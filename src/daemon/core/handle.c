/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/handle.h"

#include "daemon/core/session.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void stream_free(struct wb_dir_stream *stream)
{
    if (!stream)
        return;
    pthread_mutex_destroy(&stream->lock);
    g_free(stream);
}

static bool is_writable(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY;
}

/* With nodes.lock held. */
static void list_writer(struct wb_nodes *nodes, struct wb_handle *handle)
{
    handle->writes = true;
    handle->live->writers++;
    handle->writers_next = nodes->writers;
    handle->writers_link = &nodes->writers;
    if (handle->writers_next)
        handle->writers_next->writers_link = &handle->writers_next;
    nodes->writers = handle;
}

static void unlist_writer(struct wb_handle *handle)
{
    if (!handle->writers_link)
        return;
    handle->live->writers--;
    *handle->writers_link = handle->writers_next;
    if (handle->writers_next)
        handle->writers_next->writers_link = handle->writers_link;
    handle->writers_link = NULL;
}

/* ---- descriptors ------------------------------------------------------------------------------- */

/* The flags by which descriptors of one node differ. */
#define WB_LOWER_MODE (O_ACCMODE | O_APPEND | O_NOATIME | O_PATH)

/* With nodes.lock held. */
static struct wb_lower *find_lower(struct wb_live *live, int mode)
{
    struct wb_lower *lower = live->lowers;

    while (lower && lower->mode != mode)
        lower = lower->next;
    return lower;
}

static struct wb_lower *lower_new(int fd)
{
    struct wb_lower *lower = g_try_new0(struct wb_lower, 1);

    if (lower) {
        lower->fd = fd;
        lower->mode = fcntl(fd, F_GETFL) & WB_LOWER_MODE;
        pthread_mutex_init(&lower->lock, NULL);
    }
    return lower;
}

static void lower_free(struct wb_lower *lower)
{
    if (!lower)
        return;
    close(lower->fd);
    pthread_mutex_destroy(&lower->lock);
    g_free(lower);
}

/* With nodes.lock held: one handle less. The descriptor if it was the last one, for the caller to free. */
static struct wb_lower *drop_lower(struct wb_session *session, struct wb_handle *handle)
{
    struct wb_lower *lower = handle->lower, **link = &handle->live->lowers;

    lower->runs -= handle->runs;
    wb_shares_release(&session->shares, &lower->holders, WB_SHARE_FDS, handle->uid, 1);
    if (--lower->refs > 0)
        return NULL;
    while (*link != lower)
        link = &(*link)->next;
    *link = lower->next;
    return lower;
}

/* ---- handles ----------------------------------------------------------------------------------- */

/* With nodes.lock held: the handle gets the node's descriptor of that mode, or `*made` becomes it. */
static int attach(struct wb_session *session, struct wb_handle *handle, struct wb_lower **made, bool asked)
{
    struct wb_live *live = handle->live;
    struct wb_lower *lower = find_lower(live, (*made)->mode);
    int r = wb_shares_hold(&session->shares, lower ? &lower->holders : &(*made)->holders, WB_SHARE_FDS, handle->uid, 1,
                           asked);

    if (r < 0)
        return r;
    if (!lower) {
        lower = g_steal_pointer(made);
        lower->next = live->lowers;
        live->lowers = lower;
    }
    lower->refs++;
    handle->lower = lower;
    handle->fd = lower->fd;
    handle->sync_errors = lower->sync_errors;
    handle->next = live->handles;
    handle->link = &live->handles;
    if (handle->next)
        handle->next->link = &handle->next;
    live->handles = handle;
    return 0;
}

static int add(struct wb_session *session, const struct wb_handle *model, int fd, bool asked, struct wb_handle **ret)
{
    struct wb_handle *handle = g_try_new0(struct wb_handle, 1);
    struct wb_lower *made = lower_new(fd);
    bool writes = !model->path_only && is_writable(fd);
    int r = -ENOMEM;

    if (handle && made) {
        *handle = *model;
        handle->refs = 1;
        pthread_mutex_lock(&session->nodes.lock);
        r = attach(session, handle, &made, asked);
        if (r == 0 && writes)
            list_writer(&session->nodes, handle);
        if (r == 0 && !model->path_only)
            handle->live->refs++;
        pthread_mutex_unlock(&session->nodes.lock);
    } else if (!made) {
        close(fd);
    }
    lower_free(made);
    if (r < 0)
        g_free(handle);
    else if (ret)
        *ret = handle;
    return r;
}

int wb_handle_new(struct wb_session *session, struct wb_live *live, int fd, uid_t uid, bool asked,
                  struct wb_handle **ret)
{
    return add(session, &(struct wb_handle){.live = live, .uid = uid}, fd, asked, ret);
}

void wb_handle_pin(struct wb_session *session, struct wb_live *live, int fd, uid_t uid)
{
    add(session, &(struct wb_handle){.live = live, .uid = uid, .path_only = true}, fd, false, NULL);
}

/* With nodes.lock held. */
static struct wb_lower *detach(struct wb_session *session, struct wb_handle *handle)
{
    *handle->link = handle->next;
    if (handle->next)
        handle->next->link = handle->link;
    unlist_writer(handle);
    return drop_lower(session, handle);
}

static void handle_free(struct wb_handle *handle)
{
    stream_free(handle->stream);
    g_free(handle);
}

void wb_handle_unref(struct wb_session *session, struct wb_handle *handle)
{
    struct wb_lower *lower = NULL;
    bool last;

    if (!handle)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    last = --handle->refs == 0;
    if (last) {
        lower = detach(session, handle);
        wb_live_unref_locked(session, handle->live);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    lower_free(lower);
    if (last)
        handle_free(handle);
}

struct wb_handle *wb_handle_any(struct wb_session *session, struct wb_live *live)
{
    struct wb_handle *handle;

    pthread_mutex_lock(&session->nodes.lock);
    handle = live->handles;
    if (handle)
        handle->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return handle;
}

bool wb_handle_has_writer(struct wb_session *session, struct wb_live *live)
{
    bool has;

    pthread_mutex_lock(&session->nodes.lock);
    has = live->writers > 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return has;
}

bool wb_handle_retire(struct wb_session *session, struct wb_handle *handle)
{
    bool last;

    pthread_mutex_lock(&session->nodes.lock);
    unlist_writer(handle);
    last = handle->writes && handle->live->writers == 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return last;
}

void wb_handle_run(struct wb_session *session, struct wb_handle *handle)
{
    pthread_mutex_lock(&session->nodes.lock);
    handle->runs = true;
    handle->lower->runs++;
    pthread_mutex_unlock(&session->nodes.lock);
}

bool wb_handle_runs(struct wb_session *session, struct wb_live *live)
{
    bool runs = false;

    pthread_mutex_lock(&session->nodes.lock);
    for (const struct wb_lower *lower = live->lowers; lower; lower = lower->next)
        runs = runs || lower->runs > 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return runs;
}

int wb_handle_synced(struct wb_session *session, struct wb_handle *handle, int r)
{
    struct wb_lower *lower = handle->lower;

    pthread_mutex_lock(&session->nodes.lock);
    if (r < 0) {
        lower->sync_error = r;
        lower->sync_errors++;
    } else if (handle->sync_errors != lower->sync_errors) {
        r = lower->sync_error;
    }
    handle->sync_errors = lower->sync_errors;
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

long wb_handle_getdents(struct wb_handle *handle, const void *reader, bool moved, off_t offset, void *data,
                        size_t size)
{
    struct wb_lower *lower = handle->lower;
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

void wb_handles_close(struct wb_session *session, struct wb_live *live)
{
    while (live->handles) {
        struct wb_handle *handle = live->handles;

        lower_free(detach(session, handle));
        handle_free(handle);
    }
}
