/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/node.h"

#include "capture/stage.h"
#include "daemon/core/handle.h"
#include "daemon/core/session.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/*
 * The table is a hash with chains of our own rather than a GHashTable: it must answer -ENOMEM
 * instead of aborting, and a chain through the nodes costs eight bytes each.
 */
#define WB_BUCKETS_FIRST 1024

/* So many other names of a file are remembered. */
#define ALIASES_MAX 16

static void handles_close(struct wb_session *session, struct wb_inode *inode);

static size_t hash_object(struct wb_object object)
{
    uint64_t mixed = (object.ino ^ ((uint64_t)object.birth << 20)) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(mixed >> 20);
}

static struct wb_inode **find_slot(struct wb_nodes *nodes, struct wb_object object)
{
    struct wb_inode **slot = &nodes->buckets[hash_object(object) & (nodes->bucket_count - 1)];

    while (*slot && !wb_object_equal((*slot)->node.object, object))
        slot = &(*slot)->hash_next;
    return slot;
}

/* Twice the buckets once they are full. Without the memory for it, chains grow instead. */
static void maybe_grow(struct wb_nodes *nodes)
{
    struct wb_inode **old = nodes->buckets, **buckets;
    size_t old_count = nodes->bucket_count;

    if (nodes->count < old_count)
        return;
    buckets = g_try_new0(struct wb_inode *, old_count * 2);
    if (!buckets)
        return;
    nodes->buckets = buckets;
    nodes->bucket_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        struct wb_inode *inode = old[i], *next;

        for (; inode; inode = next) {
            struct wb_inode **slot;

            next = inode->hash_next;
            slot = &buckets[hash_object(inode->node.object) & (nodes->bucket_count - 1)];
            inode->hash_next = *slot;
            *slot = inode;
        }
    }
    g_free(old);
}

static struct wb_inode *live_new(struct wb_object object, uint32_t type)
{
    struct wb_inode *inode = g_try_malloc0(S_ISDIR(type) ? sizeof(*inode) : offsetof(struct wb_inode, dirfd));

    if (!inode)
        return NULL;
    inode->node.kind = WB_NODE_LIVE;
    inode->node.type = type;
    inode->node.object = object;
    if (S_ISDIR(type)) {
        inode->dir.object = object;
        inode->dir.fd = -1;
    }
    inode->buried = WB_BURIED_UNKNOWN;
    pthread_mutex_init(&inode->lock, NULL);
    return inode;
}

static void live_free(struct wb_inode *inode)
{
    pthread_mutex_destroy(&inode->lock);
    wb_stage_free(inode->stage);
    for (struct wb_alias *alias; (alias = inode->aliases); g_free(alias))
        inode->aliases = alias->next;
    g_free(inode->name);
    g_free(inode);
}

int wb_nodes_init(struct wb_nodes *nodes, struct wb_object root)
{
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->bucket_count = WB_BUCKETS_FIRST;
    nodes->buckets = g_try_new0(struct wb_inode *, WB_BUCKETS_FIRST);
    nodes->root = live_new(root, S_IFDIR);
    if (!nodes->buckets || !nodes->root)
        return -ENOMEM;
    nodes->root->refs = 1;
    *find_slot(nodes, root) = nodes->root;
    nodes->count = 1;
    return 0;
}

void wb_nodes_deinit(struct wb_session *session)
{
    struct wb_nodes *nodes = &session->nodes;

    for (size_t i = 0; nodes->buckets && i < nodes->bucket_count; i++) {
        struct wb_inode *inode = nodes->buckets[i], *next;

        for (; inode; inode = next) {
            next = inode->hash_next;
            handles_close(session, inode);
            live_free(inode);
        }
    }
    wb_lowers_close_dropped(session);
    g_free(nodes->buckets);
    nodes->buckets = NULL;
    pthread_mutex_destroy(&nodes->lock);
}

static void live_unref_locked(struct wb_session *session, struct wb_inode *inode);

/* With nodes.lock held: the one of that name, or all if `name` is NULL. */
static void drop_aliases(struct wb_session *session, struct wb_inode *inode, const struct wb_inode *parent,
                         const char *name)
{
    struct wb_alias **link = &inode->aliases, *alias;

    while ((alias = *link)) {
        if (name && (alias->parent != parent || strcmp(alias->name, name) != 0)) {
            link = &alias->next;
            continue;
        }
        *link = alias->next;
        live_unref_locked(session, alias->parent);
        g_free(alias);
    }
}

/* With nodes.lock held: the node is about to be known by another name. Without memory for it this one is forgotten. */
static void remember_alias(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_alias *alias;
    unsigned count = 0;
    size_t size;

    if (!session->lowers.caches || wb_inode_is_dir(inode) || !inode->parent || !inode->name)
        return;
    for (alias = inode->aliases; alias; alias = alias->next)
        count++;
    size = strlen(inode->name) + 1;
    alias = count < ALIASES_MAX ? g_try_malloc(sizeof(*alias) + size) : NULL;
    if (!alias)
        return;
    memcpy(alias->name, inode->name, size);
    alias->parent = inode->parent;
    alias->parent->refs++;
    alias->next = inode->aliases;
    inode->aliases = alias;
}

/* A parent is freed with its last child: a loop, because paths can be thousands of names deep. */
static void live_unref_locked(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_nodes *nodes = &session->nodes;

    while (inode && --inode->refs == 0) {
        drop_aliases(session, inode, NULL, NULL);
        struct wb_inode *parent = inode->parent;
        struct wb_inode **slot = find_slot(nodes, inode->node.object);

        if (*slot == inode) {
            *slot = inode->hash_next;
            nodes->count--;
        }
        if (inode->sync_all || inode->lost_names)
            session->moves_unsynced = true;
        if (wb_inode_is_dir(inode))
            wb_dirfd_drop(session, inode);
        handles_close(session, inode);
        live_free(inode);
        inode = parent;
    }
}

struct wb_inode *wb_inode_ref(struct wb_session *session, struct wb_inode *inode)
{
    pthread_mutex_lock(&session->nodes.lock);
    inode->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return inode;
}

void wb_inode_unref(struct wb_session *session, struct wb_inode *inode)
{
    if (!inode)
        return;
    pthread_mutex_lock(&session->nodes.lock);
    live_unref_locked(session, inode);
    pthread_mutex_unlock(&session->nodes.lock);
    wb_lowers_close_dropped(session);
}

void wb_inode_forget(struct wb_session *session, struct wb_inode *inode, uint64_t count)
{
    pthread_mutex_lock(&session->nodes.lock);
    /* The root is the kernel's from the beginning to the end. */
    if (inode != session->nodes.root && inode->node.nlookup > 0) {
        inode->node.nlookup -= count < inode->node.nlookup ? count : inode->node.nlookup;
        if (inode->node.nlookup == 0)
            live_unref_locked(session, inode);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    wb_lowers_close_dropped(session);
}

static void set_name(struct wb_session *session, struct wb_inode *inode, struct wb_inode *parent, char *name)
{
    struct wb_inode *old = inode->parent;

    if (parent)
        parent->refs++;
    g_free(inode->name);
    inode->name = name;
    inode->parent = parent;
    if (wb_inode_is_dir(inode)) {
        inode->dir.name = name;
        inode->dir.parent = parent ? &parent->dir : NULL;
    }
    live_unref_locked(session, old);
}

static char *copy_name(const char *name)
{
    size_t size = strlen(name) + 1;
    char *copy = g_try_malloc(size);

    if (copy)
        memcpy(copy, name, size);
    return copy;
}

/* With nodes.lock held: known by another name that it has, if there is one. */
static void take_alias(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_alias *alias = inode->aliases;
    char *name = alias ? copy_name(alias->name) : NULL;

    set_name(session, inode, name ? alias->parent : NULL, name);
    if (name)
        drop_aliases(session, inode, inode->parent, inode->name);
}

static int bind_locked(struct wb_session *session, struct wb_inode *inode, struct wb_inode *parent, const char *name)
{
    char *copy;

    if (inode->dead) {
        inode->dead = false;
        inode->buried = WB_BURIED_UNKNOWN;
    }
    /* Most lookups say what is known already; keeping the string also keeps it where lock-free
     * readers of a directory's name (the capture floor, under ns_lock) may be reading it. */
    if (inode->parent == parent && inode->name && strcmp(inode->name, name) == 0)
        return 0;
    copy = copy_name(name);
    if (!copy)
        return -ENOMEM;
    drop_aliases(session, inode, parent, name);
    remember_alias(session, inode);
    set_name(session, inode, parent, copy);
    return 0;
}

struct wb_inode *wb_inode_intern(struct wb_session *session, struct wb_object object, uint32_t type,
                                 struct wb_inode *parent, const char *name)
{
    struct wb_nodes *nodes = &session->nodes;
    struct wb_inode *inode;

    pthread_mutex_lock(&nodes->lock);
    inode = *find_slot(nodes, object);
    if (!inode) {
        inode = live_new(object, type);
        if (!inode)
            goto out;
        maybe_grow(nodes);
        *find_slot(nodes, object) = inode;
        nodes->count++;
    }
    inode->refs++;
    if (inode->node.nlookup++ == 0)
        inode->refs++;
    if (name && bind_locked(session, inode, parent, name) < 0) {
        if (--inode->node.nlookup == 0)
            inode->refs--;
        live_unref_locked(session, inode);
        inode = NULL;
    }
out:
    pthread_mutex_unlock(&nodes->lock);
    return inode;
}

struct wb_inode *wb_inode_find(struct wb_session *session, struct wb_object object)
{
    struct wb_inode *inode;

    pthread_mutex_lock(&session->nodes.lock);
    inode = *find_slot(&session->nodes, object);
    if (inode)
        inode->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return inode;
}

int wb_inode_bind(struct wb_session *session, struct wb_inode *inode, struct wb_inode *parent, const char *name,
                  const struct wb_inode *old_parent, const char *old_name)
{
    int r;

    pthread_mutex_lock(&session->nodes.lock);
    r = bind_locked(session, inode, parent, name);
    if (old_name)
        drop_aliases(session, inode, old_parent, old_name);
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

void wb_inode_unbind(struct wb_session *session, struct wb_inode *inode, const struct wb_inode *parent,
                     const char *name, bool last)
{
    pthread_mutex_lock(&session->nodes.lock);
    if (last)
        inode->dead = true;
    /* A directory that died keeps its last place: nothing asks for it, but its children's
     * chain of parents stays whole. */
    if (!wb_inode_is_dir(inode)) {
        drop_aliases(session, inode, parent, last ? NULL : name);
        if (last || (inode->parent == parent && inode->name && strcmp(inode->name, name) == 0))
            take_alias(session, inode);
    }
    pthread_mutex_unlock(&session->nodes.lock);
}

void wb_inode_lock_two(struct wb_inode *a, struct wb_inode *b)
{
    struct wb_inode *first = a < b ? a : b, *second = a < b ? b : a;

    if (first)
        pthread_mutex_lock(&first->lock);
    if (second && second != first)
        pthread_mutex_lock(&second->lock);
}

void wb_inode_unlock_two(struct wb_inode *a, struct wb_inode *b)
{
    if (a)
        pthread_mutex_unlock(&a->lock);
    if (b && b != a)
        pthread_mutex_unlock(&b->lock);
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
    handle->inode->writers++;
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
    handle->inode->writers--;
    *handle->writers_link = handle->writers_next;
    if (handle->writers_next)
        handle->writers_next->writers_link = handle->writers_link;
    handle->writers_link = NULL;
}

/* With nodes.lock held: one handle less. The descriptor if it was the last use, for the caller to free. */
static struct wb_lower *drop_lower(struct wb_session *session, struct wb_handle *handle)
{
    struct wb_lower *lower = handle->lower;

    lower->runs -= handle->runs;
    wb_shares_release(&session->shares, &lower->holders, WB_SHARE_FDS, handle->uid, 1);
    lower->refs--;
    return wb_lower_release(session, lower);
}

/* ---- handles ----------------------------------------------------------------------------------- */

/* With nodes.lock held: the handle gets the node's descriptor of that mode, or `*made` becomes it. */
static int attach(struct wb_session *session, struct wb_handle *handle, struct wb_lower **made, bool asked)
{
    struct wb_inode *inode = handle->inode;
    struct wb_lower *lower = wb_lower_of_mode(inode, (*made)->mode);
    int r = wb_shares_hold(&session->shares, lower ? &lower->holders : &(*made)->holders, WB_SHARE_FDS, handle->uid, 1,
                           asked);

    if (r < 0)
        return r;
    if (!lower) {
        lower = g_steal_pointer(made);
        wb_lower_attach(inode, lower);
    }
    wb_lower_use(session, lower);
    lower->refs++;
    handle->lower = lower;
    handle->fd = lower->fd;
    handle->sync_errors = lower->sync_errors;
    handle->next = inode->handles;
    handle->link = &inode->handles;
    if (handle->next)
        handle->next->link = &handle->next;
    inode->handles = handle;
    return 0;
}

static int add(struct wb_session *session, const struct wb_handle *model, int fd, bool asked, struct wb_handle **ret)
{
    struct wb_handle *handle = g_try_new0(struct wb_handle, 1);
    struct wb_lower *made = wb_lower_new(fd);
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
            handle->inode->refs++;
        pthread_mutex_unlock(&session->nodes.lock);
    } else if (!made) {
        close(fd);
    }
    wb_lower_free(made);
    if (r < 0)
        g_free(handle);
    else if (ret)
        *ret = handle;
    return r;
}

int wb_handle_new(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid, bool asked,
                  struct wb_handle **ret)
{
    return add(session, &(struct wb_handle){.inode = inode, .uid = uid}, fd, asked, ret);
}

void wb_handle_pin(struct wb_session *session, struct wb_inode *inode, int fd, uid_t uid)
{
    add(session, &(struct wb_handle){.inode = inode, .uid = uid, .path_only = true}, fd, false, NULL);
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
    wb_dir_stream_free(handle->stream);
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
        live_unref_locked(session, handle->inode);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    wb_lower_free(lower);
    if (last)
        handle_free(handle);
    wb_lowers_close_dropped(session);
}

bool wb_handle_has_writer(struct wb_session *session, struct wb_inode *inode)
{
    bool has;

    pthread_mutex_lock(&session->nodes.lock);
    has = inode->writers > 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return has;
}

bool wb_handle_retire(struct wb_session *session, struct wb_handle *handle)
{
    bool last;

    pthread_mutex_lock(&session->nodes.lock);
    unlist_writer(handle);
    last = handle->writes && handle->inode->writers == 0;
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

bool wb_handle_runs(struct wb_session *session, struct wb_inode *inode)
{
    bool runs = false;

    pthread_mutex_lock(&session->nodes.lock);
    for (const struct wb_lower *lower = inode->lowers; lower; lower = lower->next)
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

/* The node is freed: whatever still hangs on it goes. */
static void handles_close(struct wb_session *session, struct wb_inode *inode)
{
    while (inode->handles) {
        struct wb_handle *handle = inode->handles;

        wb_lower_free(detach(session, handle));
        handle_free(handle);
    }
    wb_lowers_drop(session, inode);
}
