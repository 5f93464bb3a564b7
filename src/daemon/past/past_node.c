/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_node.h"
#include "daemon/past/doors.h"

#include "daemon/core/number.h"
#include "daemon/past/milestones.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_buried.h"
#include "daemon/past/past_open.h"
#include "daemon/past/snapdir.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

/* How long a program may pause on its way through a tree and still be on the same walk. */
#define WB_PAST_PAUSE (2 * G_USEC_PER_SEC)

/* Look-backs of one user at a time, at least: two processors are busy with them then. Of all users: for memory. */
#define WB_LOOKS_MIN 2
#define WB_LOOKS_THREADS 64
/* The present does not wait for the past; but where nothing else is to be done, this costs nothing. */
#define WB_LOOKS_NICE 5
/* Requests that change something and may wait long, of one user at a time; of root, as many as there are. */
#define WB_CHANGES_PER_USER 16

/* ---- the table ------------------------------------------------------------------------------- */

static guint node_hash(gconstpointer data)
{
    const struct wb_past_node *node = data;

    return g_str_hash(node->name) ^ g_direct_hash(node->parent) ^ (guint)node->process;
}

static gboolean node_equal(gconstpointer left, gconstpointer right)
{
    const struct wb_past_node *a = left, *b = right;

    return a->parent == b->parent && a->process == b->process && strcmp(a->name, b->name) == 0;
}

static struct wb_past_node *find_locked(struct wb_past *past, struct wb_node *parent,
                                        const char *name, uint64_t process)
{
    struct wb_past_node key = {.parent = parent, .process = process};
    struct wb_past_node *node;

    key.name = (char *)name;
    node = g_hash_table_lookup(past->table, &key);
    return node && node->generation == past->generation ? node : NULL;
}

static struct wb_past_node *ref_locked(struct wb_past_node *node)
{
    if (node) {
        node->refs++;
        node->asked = g_get_monotonic_time();
    }
    return node;
}

struct wb_past_node *wb_past_find(struct wb_session *session, struct wb_node *parent,
                                  const char *name, int64_t instant)
{
    struct wb_past *past = session->past;
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    node = find_locked(past, parent, name, 0);
    node = ref_locked(node && node->instant == instant ? node : NULL);
    pthread_mutex_unlock(&past->lock);
    return node;
}

struct wb_past_node *wb_past_find_relative(struct wb_session *session, struct wb_node *parent,
                                           const char *name, uint64_t process, bool *ret_pinned)
{
    struct wb_past *past = session->past;
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    node = find_locked(past, parent, name, process);
    *ret_pinned = node && S_ISDIR(node->node.type) &&
                  (node->opened > 0 || g_get_monotonic_time() - node->asked < WB_PAST_PAUSE);
    ref_locked(node);
    pthread_mutex_unlock(&past->lock);
    return node;
}

static void unchain(struct wb_past *past, struct wb_past_node *node)
{
    if (node->previous)
        node->previous->next = node->next;
    else
        past->nodes = node->next;
    if (node->next)
        node->next->previous = node->previous;
}

static void chain(struct wb_past *past, struct wb_past_node *node)
{
    node->next = past->nodes;
    if (node->next)
        node->next->previous = node;
    past->nodes = node;
}

static void node_free(struct wb_past_node *node)
{
    wb_spot_unref(node->spot);
    g_free(node->names);
    g_free(node->name);
    g_free(node);
}

/* Frees a node that nobody has, and its parents likewise: a loop, for they may be thousands. Returns a
 * live parent whose reference the caller drops outside of the lock. */
static struct wb_live *unref_locked(struct wb_past *past, struct wb_past_node *node)
{
    while (node && --node->refs == 0) {
        struct wb_node *parent = node->parent;
        struct wb_live *live = wb_live_of(parent);

        if (g_hash_table_lookup(past->table, node) == node)
            g_hash_table_remove(past->table, node);
        unchain(past, node);
        node_free(node);
        if (live)
            return live;
        node = wb_past_counted(parent);
    }
    return NULL;
}

void wb_past_unref(struct wb_session *session, struct wb_past_node *node)
{
    struct wb_live *live;

    if (!node)
        return;
    pthread_mutex_lock(&session->past->lock);
    live = unref_locked(session->past, node);
    pthread_mutex_unlock(&session->past->lock);
    wb_live_unref(session, live);
}

/* `spot` NULL: a directory of snapshots. */
static struct wb_past_node *node_new(struct wb_session *session, struct wb_node *parent,
                                     const char *name, struct wb_spot *spot)
{
    struct wb_past_node *node = g_try_new0(struct wb_past_node, 1);
    struct wb_live *live = wb_live_of(parent);
    size_t size = strlen(name) + 1;

    if (!node)
        return NULL;
    node->name = g_try_malloc(size);
    if (!node->name) {
        g_free(node);
        return NULL;
    }
    memcpy(node->name, name, size);
    node->node.kind = spot ? WB_NODE_PAST : WB_NODE_SNAPDIR;
    node->node.type = spot ? wb_spot_type(spot) : S_IFDIR;
    node->node.object = spot ? wb_spot_object(spot) : parent->object;
    node->spot = spot ? wb_spot_ref(spot) : NULL;
    node->parent = parent;
    node->refs = 1;
    if (live)
        wb_live_ref(session, live);
    else
        wb_past_counted(parent)->refs++;
    return node;
}

struct wb_past_node *wb_past_intern(struct wb_session *session, struct wb_node *parent,
                                    const char *name, uint64_t process, int64_t instant,
                                    struct wb_spot *spot)
{
    struct wb_past *past = session->past;
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    node = find_locked(past, parent, name, process);
    if (node && wb_object_equal(node->node.object, wb_spot_object(spot)) &&
        node->node.type == wb_spot_type(spot) && wb_spot_when(node->spot) == wb_spot_when(spot)) {
        node->instant = instant;
        ref_locked(node);
    } else {
        node = node_new(session, parent, name, spot);
        if (node) {
            node->process = process;
            node->instant = instant;
            node->generation = past->generation;
            node->asked = g_get_monotonic_time();
            chain(past, node);
            g_hash_table_add(past->table, node);
        }
    }
    pthread_mutex_unlock(&past->lock);
    return node;
}

struct wb_past_node *wb_past_intern_snapdir(struct wb_session *session, struct wb_live *live,
                                            const char *name)
{
    struct wb_past *past = session->past;
    struct wb_past_node key = {.parent = &live->node, .name = (char *)name};
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    /* It holds nothing that a new generation could make wrong. */
    node = g_hash_table_lookup(past->table, &key);
    if (node) {
        ref_locked(node);
    } else {
        node = node_new(session, &live->node, name, NULL);
        if (node) {
            chain(past, node);
            g_hash_table_add(past->table, node);
        }
    }
    pthread_mutex_unlock(&past->lock);
    return node;
}

/* ---- references ------------------------------------------------------------------------------ */

void wb_past_give(struct wb_session *session, struct wb_past_node *node)
{
    pthread_mutex_lock(&session->past->lock);
    if (node->node.nlookup++ > 0)
        node->refs--;
    pthread_mutex_unlock(&session->past->lock);
}

void wb_past_forget(struct wb_session *session, struct wb_node *node, uint64_t count)
{
    struct wb_past_node *self = wb_past_counted(node);
    struct wb_live *live = NULL;

    pthread_mutex_lock(&session->past->lock);
    if (node->nlookup > 0) {
        node->nlookup -= count < node->nlookup ? count : node->nlookup;
        if (node->nlookup == 0)
            live = unref_locked(session->past, self);
    }
    pthread_mutex_unlock(&session->past->lock);
    wb_live_unref(session, live);
}

/* With the lock held: a handle was opened (+1) or closed (-1) on it. */
static void count_handle(struct wb_past_node *node, int change)
{
    for (; node; node = wb_past_of(node->parent)) {
        node->opened += (uint32_t)change;
        node->asked = g_get_monotonic_time();
    }
}

static void handle_free(struct wb_session *session, struct wb_past_handle *handle)
{
    wb_past_content_close(session, handle->content, handle->uid);
    wb_snapdir_listing_free(handle->snapshots);
    g_free(handle);
}

struct wb_past_handle *wb_past_handle_new(struct wb_session *session, struct wb_past_node *node,
                                          struct wb_past_content *content, uid_t uid)
{
    struct wb_past_handle *handle = g_try_new0(struct wb_past_handle, 1);
    struct wb_past *past = session->past;

    if (!handle) {
        wb_past_content_close(session, content, uid);
        return NULL;
    }
    handle->node = node;
    handle->content = content;
    handle->uid = uid;
    pthread_mutex_lock(&past->lock);
    handle->next = past->handles;
    if (handle->next)
        handle->next->previous = handle;
    past->handles = handle;
    count_handle(node, 1);
    pthread_mutex_unlock(&past->lock);
    return handle;
}

void wb_past_handle_free(struct wb_session *session, struct wb_past_handle *handle)
{
    struct wb_past *past = session->past;

    pthread_mutex_lock(&past->lock);
    if (handle->previous)
        handle->previous->next = handle->next;
    else
        past->handles = handle->next;
    if (handle->next)
        handle->next->previous = handle->previous;
    count_handle(handle->node, -1);
    pthread_mutex_unlock(&past->lock);
    handle_free(session, handle);
}

/* ---- as a whole ------------------------------------------------------------------------------ */

void wb_past_renew(struct wb_session *session)
{
    struct wb_past *past = session->past;
    g_autoptr(GPtrArray) nodes = g_ptr_array_new();
    GHashTableIter iter;
    gpointer node;

    pthread_mutex_lock(&past->lock);
    past->generation++;
    wb_past_contents_retire(past, NULL);
    g_hash_table_iter_init(&iter, past->table);
    while (g_hash_table_iter_next(&iter, &node, NULL))
        g_ptr_array_add(nodes, node);
    pthread_mutex_unlock(&past->lock);
    /* Numbers only: should one be forgotten meanwhile, the kernel knows it no more and says so. */
    for (guint i = 0; i < nodes->len; i++)
        fuse_lowlevel_notify_inval_inode(session->fuse, wb_node_ino(session, nodes->pdata[i]), 0, 0);
}

int wb_past_init(struct wb_session *session)
{
    struct wb_past *past = g_try_new0(struct wb_past, 1);
    unsigned looks;

    if (!past)
        return -ENOMEM;
    past->buried = wb_buried_cache_new();
    past->milestones = wb_milestones_new();
    if (!past->buried || !past->milestones) {
        wb_buried_cache_free(past->buried);
        wb_milestones_free(past->milestones);
        g_free(past);
        return -ENOMEM;
    }
    pthread_mutex_init(&past->lock, NULL);
    past->table = g_hash_table_new(node_hash, node_equal);
    past->generation = 1;
    past->pinned = WB_WHEN_PRESENT;
    wb_control_pages_init(past);
    wb_past_contents_init(past);
    past->altered = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
    g_queue_init(&past->doors);
    looks = MAX(WB_LOOKS_MIN, g_get_num_processors() / 2);
    wb_lane_init(&past->names, session, looks, WB_LOOKS_THREADS, WB_LOOKS_NICE);
    wb_lane_init(&past->looks, session, looks, WB_LOOKS_THREADS, WB_LOOKS_NICE);
    wb_lane_init(&past->changes, session, WB_CHANGES_PER_USER, UINT_MAX, 0);
    past->changes.root_is_free = true;
    session->past = past;
    return 0;
}

void wb_past_deinit(struct wb_session *session)
{
    struct wb_past *past = session->past;

    wb_lane_deinit(&past->names);
    wb_lane_deinit(&past->looks);
    wb_lane_deinit(&past->changes);
    wb_control_pages_drop(past);
    wb_doors_drop(session);
    while (past->handles) {
        struct wb_past_handle *handle = past->handles;

        past->handles = handle->next;
        handle_free(session, handle);
    }
    while (past->nodes) {
        struct wb_past_node *node = past->nodes;

        past->nodes = node->next;
        node_free(node);
    }
    wb_past_contents_deinit(past);
    g_hash_table_destroy(past->table);
    g_array_unref(past->altered);
    wb_buried_cache_free(past->buried);
    wb_milestones_free(past->milestones);
    pthread_mutex_destroy(&past->lock);
    g_free(past);
    session->past = NULL;
}
