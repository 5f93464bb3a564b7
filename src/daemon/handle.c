/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/handle.h"

#include "daemon/ops.h"
#include "daemon/session.h"
#include <fcntl.h>
#include <glib.h>
#include <unistd.h>

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

static struct wb_handle *add(struct wb_session *session, struct wb_live *live, int fd, bool pin)
{
    struct wb_handle *handle = g_try_new0(struct wb_handle, 1);
    bool writes;

    if (!handle) {
        close(fd);
        return NULL;
    }
    handle->fd = fd;
    handle->refs = 1;
    handle->live = live;
    handle->path_only = pin;
    writes = !pin && is_writable(fd);
    pthread_mutex_lock(&session->nodes.lock);
    if (writes)
        list_writer(&session->nodes, handle);
    if (!pin)
        live->refs++;
    handle->next = live->handles;
    live->handles = handle;
    pthread_mutex_unlock(&session->nodes.lock);
    return handle;
}

struct wb_handle *wb_handle_new(struct wb_session *session, struct wb_live *live, int fd)
{
    return add(session, live, fd, false);
}

void wb_handle_pin(struct wb_session *session, struct wb_live *live, int fd)
{
    add(session, live, fd, true);
}

static void handle_free(struct wb_handle *handle)
{
    wb_dir_stream_free(handle->stream);
    close(handle->fd);
    g_free(handle);
}

void wb_handle_unref(struct wb_session *session, struct wb_handle *handle)
{
    struct wb_handle **link;
    bool last;

    if (!handle)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    last = --handle->refs == 0;
    if (last) {
        for (link = &handle->live->handles; *link != handle; link = &(*link)->next)
            ;
        *link = handle->next;
        unlist_writer(handle);
        wb_live_unref_locked(session, handle->live);
    }
    pthread_mutex_unlock(&session->nodes.lock);
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

bool wb_handle_runs(struct wb_session *session, struct wb_live *live)
{
    bool runs = false;

    pthread_mutex_lock(&session->nodes.lock);
    for (const struct wb_handle *handle = live->handles; handle; handle = handle->next)
        runs = runs || handle->runs;
    pthread_mutex_unlock(&session->nodes.lock);
    return runs;
}

void wb_handles_close(struct wb_live *live)
{
    while (live->handles) {
        struct wb_handle *handle = live->handles;

        live->handles = handle->next;
        unlist_writer(handle);
        handle_free(handle);
    }
}
