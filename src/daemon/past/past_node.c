/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_node.h"

#include "base/checksum.h"
#include "daemon/core/number.h"
#include "daemon/past/past.h"
#include "daemon/past/past_open.h"
#include "daemon/past/snapdir.h"
#include "daemon/system/report.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a program may pause on its way through a tree and still be on the same walk. */
#define WB_PAST_PAUSE (2 * G_USEC_PER_SEC)

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
    wb_revision_unref(node->revision);
    g_free(node->names);
    g_free(node->name);
    g_free(node);
}

/* With the lock held: it is listed as kept no more. */
static void unlist_kept(struct wb_past *past, struct wb_past_handle *handle)
{
    *(handle->newer ? &handle->newer->older : &past->kept_newest) = handle->older;
    *(handle->older ? &handle->older->newer : &past->kept_oldest) = handle->newer;
    past->kept--;
    handle->kept = false;
    handle->node->kept = NULL;
}

static void list_kept(struct wb_past *past, struct wb_past_handle *handle)
{
    handle->newer = NULL;
    handle->older = past->kept_newest;
    *(past->kept_newest ? &past->kept_newest->newer : &past->kept_oldest) = handle;
    past->kept_newest = handle;
    past->kept++;
    handle->kept = true;
    handle->node->kept = handle;
}

/* With the lock held: the node is freed. No request is under way for it. */
static void close_kept(struct wb_past *past, struct wb_past_node *node)
{
    struct wb_past_handle *handle = node->kept;

    if (!handle)
        return;
    unlist_kept(past, handle);
    handle->next = past->closing;
    past->closing = handle;
}

/* Frees a node that nobody has, and its parents likewise: a loop, for they may be thousands. Returns a
 * live parent whose reference the caller drops outside of the lock. */
static struct wb_inode *unref_locked(struct wb_past *past, struct wb_past_node *node)
{
    while (node && --node->refs == 0) {
        struct wb_node *parent = node->parent;
        struct wb_inode *inode = wb_inode_of(parent);

        if (g_hash_table_lookup(past->table, node) == node)
            g_hash_table_remove(past->table, node);
        unchain(past, node);
        close_kept(past, node);
        node_free(node);
        if (inode)
            return inode;
        node = wb_past_counted(parent);
    }
    return NULL;
}

static void close_handles(struct wb_session *session);

void wb_past_unref(struct wb_session *session, struct wb_past_node *node)
{
    struct wb_inode *inode;

    if (!node)
        return;
    pthread_mutex_lock(&session->past->lock);
    inode = unref_locked(session->past, node);
    pthread_mutex_unlock(&session->past->lock);
    wb_inode_unref(session, inode);
    close_handles(session);
}

/* `revision` NULL: a directory of snapshots. */
static struct wb_past_node *node_new(struct wb_session *session, struct wb_node *parent, const char *name,
                                     struct wb_revision *revision)
{
    struct wb_past_node *node = g_try_new0(struct wb_past_node, 1);
    struct wb_inode *inode = wb_inode_of(parent);
    size_t size = strlen(name) + 1;

    if (!node)
        return NULL;
    node->name = g_try_malloc(size);
    if (!node->name) {
        g_free(node);
        return NULL;
    }
    memcpy(node->name, name, size);
    node->node.kind = revision ? WB_NODE_PAST : WB_NODE_SNAPDIR;
    node->node.type = revision ? wb_revision_type(revision) : S_IFDIR;
    node->node.object = revision ? wb_revision_object(revision) : parent->object;
    node->revision = revision ? wb_revision_ref(revision) : NULL;
    node->parent = parent;
    node->refs = 1;
    if (inode)
        wb_inode_ref(session, inode);
    else
        wb_past_counted(parent)->refs++;
    return node;
}

struct wb_past_node *wb_past_intern(struct wb_session *session, struct wb_node *parent, const char *name,
                                    uint64_t process, int64_t instant, struct wb_revision *revision)
{
    struct wb_past *past = session->past;
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    node = find_locked(past, parent, name, process);
    if (node && wb_object_equal(node->node.object, wb_revision_object(revision)) &&
        node->node.type == wb_revision_type(revision) &&
        wb_revision_when(node->revision) == wb_revision_when(revision)) {
        node->instant = instant;
        ref_locked(node);
    } else {
        node = node_new(session, parent, name, revision);
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

struct wb_past_node *wb_past_intern_snapdir(struct wb_session *session, struct wb_inode *inode, const char *name)
{
    struct wb_past *past = session->past;
    struct wb_past_node key = {.parent = &inode->node, .name = (char *)name};
    struct wb_past_node *node;

    pthread_mutex_lock(&past->lock);
    /* It holds nothing that a new generation could make wrong. */
    node = g_hash_table_lookup(past->table, &key);
    if (node) {
        ref_locked(node);
    } else {
        node = node_new(session, &inode->node, name, NULL);
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
    struct wb_inode *inode = NULL;

    pthread_mutex_lock(&session->past->lock);
    if (node->nlookup > 0) {
        node->nlookup -= count < node->nlookup ? count : node->nlookup;
        if (node->nlookup == 0)
            inode = unref_locked(session->past, self);
    }
    pthread_mutex_unlock(&session->past->lock);
    wb_inode_unref(session, inode);
    close_handles(session);
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
    if (handle->snapshots)
        handle->snapshots_free(handle->snapshots);
    g_free(handle);
}

/* Those that close_kept left. */
static void close_handles(struct wb_session *session)
{
    struct wb_past *past = session->past;
    struct wb_past_handle *handle, *next;

    if (!__atomic_load_n(&past->closing, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&past->lock);
    handle = g_steal_pointer(&past->closing);
    pthread_mutex_unlock(&past->lock);
    for (; handle; handle = next) {
        next = handle->next;
        handle_free(session, handle);
    }
}

struct wb_past_handle *wb_past_handle_new_kept(struct wb_session *session, struct wb_past_node *node,
                                               struct wb_past_content *content, uid_t uid)
{
    struct wb_past_handle *handle = g_try_new0(struct wb_past_handle, 1);

    if (!handle) {
        wb_past_content_close(session, content, uid);
        return NULL;
    }
    handle->node = node;
    handle->content = content;
    handle->uid = uid;
    return handle;
}

struct wb_past_handle *wb_past_handle_new(struct wb_session *session, struct wb_past_node *node,
                                          struct wb_past_content *content, uid_t uid)
{
    struct wb_past_handle *handle = wb_past_handle_new_kept(session, node, content, uid);
    struct wb_past *past = session->past;

    if (!handle)
        return NULL;
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

/* ---- kept ones ------------------------------------------------------------------------------- */

/* A file takes three descriptors. */
#define MAX_KEPT 32

/* With the lock held: its directories are in use as well. */
static struct wb_past_handle *begin_use(struct wb_past *past, struct wb_past_handle *handle)
{
    if (!handle)
        return NULL;
    handle->users++;
    if (past->kept_newest != handle) {
        unlist_kept(past, handle);
        list_kept(past, handle);
    }
    for (struct wb_past_node *node = handle->node; node; node = wb_past_of(node->parent))
        node->asked = g_get_monotonic_time();
    return handle;
}

struct wb_past_handle *wb_past_kept_find(struct wb_session *session, struct wb_past_node *node)
{
    struct wb_past_handle *handle;

    pthread_mutex_lock(&session->past->lock);
    handle = begin_use(session->past, node->kept);
    pthread_mutex_unlock(&session->past->lock);
    return handle;
}

bool wb_past_kept_is(struct wb_session *session, struct wb_past_node *node)
{
    bool is;

    pthread_mutex_lock(&session->past->lock);
    is = node->kept;
    pthread_mutex_unlock(&session->past->lock);
    return is;
}

/* With the lock held. Returns the handle if it is to be freed, without the lock. */
static struct wb_past_handle *end_keeping(struct wb_past *past, struct wb_past_handle *handle)
{
    if (handle->kept)
        unlist_kept(past, handle);
    return handle->users == 0 ? handle : NULL;
}

struct wb_past_handle *wb_past_kept_keep(struct wb_session *session, struct wb_past_node *node,
                                         struct wb_past_handle *handle)
{
    struct wb_past *past = session->past;
    struct wb_past_handle *other, *evicted = NULL;

    pthread_mutex_lock(&past->lock);
    other = node->kept;
    if (!other) {
        node->was_kept = true;
        list_kept(past, handle);
        if (past->kept > MAX_KEPT)
            evicted = end_keeping(past, past->kept_oldest);
        other = g_steal_pointer(&handle);
    }
    begin_use(past, other);
    pthread_mutex_unlock(&past->lock);
    if (handle)
        handle_free(session, handle);
    if (evicted)
        handle_free(session, evicted);
    return other;
}

void wb_past_kept_put(struct wb_session *session, struct wb_past_handle *handle)
{
    bool last;

    pthread_mutex_lock(&session->past->lock);
    last = --handle->users == 0 && !handle->kept;
    pthread_mutex_unlock(&session->past->lock);
    if (last)
        handle_free(session, handle);
}

void wb_past_kept_drop(struct wb_session *session, struct wb_past_node *node, struct wb_past_handle *handle)
{
    pthread_mutex_lock(&session->past->lock);
    if (node->kept == handle)
        unlist_kept(session->past, handle);
    pthread_mutex_unlock(&session->past->lock);
    wb_past_kept_put(session, handle);
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
    while (!session->no_open && g_hash_table_iter_next(&iter, &node, NULL))
        g_ptr_array_add(nodes, node);
    /* Without OPENDIR the kernel caches the listings of all of them. */
    for (struct wb_past_node *each = past->nodes; session->no_open && each; each = each->next)
        g_ptr_array_add(nodes, each);
    pthread_mutex_unlock(&past->lock);
    /* Numbers only: should one be forgotten meanwhile, the kernel knows it no more and says so. */
    for (guint i = 0; i < nodes->len; i++)
        fuse_lowlevel_notify_inval_inode(session->fuse, wb_node_ino(session, nodes->pdata[i]), 0, 0);
}

void wb_past_nodes_init(struct wb_past *past)
{
    past->table = g_hash_table_new(node_hash, node_equal);
}

void wb_past_nodes_free(struct wb_session *session)
{
    struct wb_past *past = session->past;

    while (past->handles) {
        struct wb_past_handle *handle = past->handles;

        past->handles = handle->next;
        handle_free(session, handle);
    }
    while (past->kept_oldest) {
        struct wb_past_handle *handle = past->kept_oldest;

        unlist_kept(past, handle);
        handle_free(session, handle);
    }
    close_handles(session);
    while (past->nodes) {
        struct wb_past_node *node = past->nodes;

        past->nodes = node->next;
        node_free(node);
    }
    g_hash_table_destroy(past->table);
}

/* What identifies things of the past to the kernel, to users and to the history; and who asks. */

/* A small file of /proc. Its length, 0 where it cannot be read. */
static size_t read_proc(int pid, const char *name, char *text, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

uint64_t wb_past_process(fuse_req_t req)
{
    char text[2048];
    unsigned long long begun;
    const char *at;
    int pid = fuse_req_ctx(req)->pid; /* the thread's number, in fact */
    uint64_t words[2];

    if (pid <= 0 || !read_proc(pid, "status", text, sizeof(text)))
        return 0;
    at = strstr(text, "\nTgid:");
    if (!at || sscanf(at + strlen("\nTgid:"), "%d", &pid) != 1 ||
        !read_proc(pid, "stat", text, sizeof(text)))
        return 0;
    /* The command may hold anything, a ')' too; the time of birth is the 20th field behind it. */
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                              " %llu", &begun) != 1)
        return 0;
    words[0] = (uint64_t)pid;
    words[1] = begun;
    return wb_checksum(words, sizeof(words)) | 1;
}

struct place {
    struct wb_object object;
    char *name;
};

/* The chain from a directory up to the root, taken at once, because a rename may alter it. */
static int chain_of(struct wb_session *session, struct wb_inode *inode, GArray *chain)
{
    int r = 0;

    pthread_mutex_lock(&session->nodes.lock);
    for (; inode != session->nodes.root; inode = inode->parent) {
        struct place place = {.object = inode->node.object};

        if (!inode->parent || !inode->name) {
            r = -ESTALE;
            break;
        }
        place.name = g_strdup(inode->name);
        g_array_append_val(chain, place);
    }
    pthread_mutex_unlock(&session->nodes.lock);
    return r;
}

int wb_past_revision_of(struct wb_session *session, struct wb_node *node, struct wb_revision **ret)
{
    struct wb_past_node *past = wb_past_of(node);
    struct wb_revision *revision = NULL;
    GArray *chain;
    int r;

    if (past) {
        *ret = wb_revision_ref(past->revision);
        return 0;
    }
    if (wb_snapdir_of(node))
        node = wb_snapdir_of(node)->parent;
    chain = g_array_new(FALSE, FALSE, sizeof(struct place));
    r = chain_of(session, wb_inode_of(node), chain);
    if (r == 0)
        r = wb_revision_root(session->history, WB_WHEN_PRESENT, &revision);
    for (guint i = chain->len; i-- > 0;) {
        struct place *place = &g_array_index(chain, struct place, i);

        if (r == 0) {
            struct wb_revision *next = NULL;

            r = wb_revision_present(session->history, revision, place->name, place->object,
                                    i == 0 ? node->type : S_IFDIR, &next);
            wb_revision_unref(revision);
            revision = next;
        }
        g_free(place->name);
    }
    g_array_free(chain, TRUE);
    if (r == 0)
        *ret = revision;
    return r;
}

/* ---- problems -------------------------------------------------------------------------------- */

int wb_past_result(struct wb_session *session, int r)
{
    struct wb_past *past = session->past;
    const char *problem = wb_history_error();
    uint64_t check;
    bool known = false;

    if (r > 0)
        r = -EIO;
    if (r != -EIO)
        return r;
    if (!*problem)
        problem = "a state cannot be read (input/output error), and no reason is known; see the kernel's log, or run "
                  "vfsck";
    check = wb_checksum(problem, strlen(problem));
    pthread_mutex_lock(&past->lock);
    for (unsigned i = 0; i < G_N_ELEMENTS(past->reported); i++)
        known = known || past->reported[i] == check;
    if (!known)
        past->reported[past->reported_count++ % G_N_ELEMENTS(past->reported)] = check;
    pthread_mutex_unlock(&past->lock);
    if (!known)
        wb_log_msg("%s", problem);
    return r;
}

int wb_past_result_of_tool(struct wb_session *session, int r)
{
    if (*wb_history_error())
        return wb_past_result(session, r);
    return r > 0 ? -EIO : r;
}

/*
 * What is asked for again and again of a node of the past, kept with it: attributes, and names of extended attributes.
 * Only what is settled is (past_open.c), and of the generation it was read in.
 */

bool wb_past_knows_attrs(struct wb_session *session, struct wb_past_node *node)
{
    bool known;

    pthread_mutex_lock(&session->past->lock);
    known = node->has_attrs && wb_past_is_settled_locked(session->past, node);
    pthread_mutex_unlock(&session->past->lock);
    return known;
}

int wb_past_attrs(struct wb_session *session, struct wb_past_node *node, struct wb_attrs *ret)
{
    struct wb_past *past = session->past;
    uint64_t generation;
    bool known;
    int r;

    pthread_mutex_lock(&past->lock);
    generation = past->generation;
    known = node->has_attrs && wb_past_is_settled_locked(past, node);
    if (known)
        *ret = node->attrs;
    pthread_mutex_unlock(&past->lock);
    if (known)
        return 0;
    r = wb_revision_attrs(session->history, node->revision, ret);
    if (r != 0)
        return r;
    pthread_mutex_lock(&past->lock);
    node->attrs = *ret;
    node->has_attrs = generation == past->generation && wb_past_is_settled_locked(past, node);
    pthread_mutex_unlock(&past->lock);
    return 0;
}

ssize_t wb_past_xattr_names(struct wb_session *session, struct wb_past_node *node, char *list)
{
    struct wb_past *past = session->past;
    char *copy = NULL;
    uint64_t generation;
    ssize_t n = -1;

    pthread_mutex_lock(&past->lock);
    generation = past->generation;
    if (node->has_names && wb_past_is_settled_locked(past, node)) {
        n = (ssize_t)node->names_length;
        if (n > 0)
            memcpy(list, node->names, (size_t)n);
    }
    pthread_mutex_unlock(&past->lock);
    if (n >= 0)
        return n;
    n = wb_revision_listxattr(session->history, node->revision, list, XATTR_LIST_MAX);
    if (n < 0)
        return n;
    copy = n > 0 ? g_try_malloc((size_t)n) : NULL;
    if (n > 0 && !copy)
        return n;
    if (n > 0)
        memcpy(copy, list, (size_t)n);
    pthread_mutex_lock(&past->lock);
    g_free(node->names);
    node->names = copy;
    node->names_length = (size_t)n;
    node->has_names = generation == past->generation && wb_past_is_settled_locked(past, node);
    pthread_mutex_unlock(&past->lock);
    return n;
}
