/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_open.h"

#include "daemon/core/number.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <glib.h>

/* Descriptors of a view: the file as it is now, its undo log, its image. */
#define FDS_OF_VIEW 3

/* ---- the table --------------------------------------------------------------------------------- */

static guint content_hash(gconstpointer data)
{
    const struct wb_past_content *content = data;

    return g_int64_hash(&content->when) ^ (guint)content->object.ino ^ (guint)content->object.birth * 31;
}

static gboolean content_equal(gconstpointer left, gconstpointer right)
{
    const struct wb_past_content *a = left, *b = right;

    return a->when == b->when && a->kind == b->kind && wb_object_equal(a->object, b->object);
}

void wb_past_contents_init(struct wb_past *past)
{
    past->contents = g_hash_table_new(content_hash, content_equal);
}

void wb_past_contents_deinit(struct wb_past *past)
{
    g_hash_table_destroy(past->contents);
}

static gboolean is_of(void *key, void *value, void *data)
{
    struct wb_past_content *content = key;
    const struct wb_object *object = data;

    if (object && !wb_object_equal(content->object, *object))
        return FALSE;
    content->listed = false;
    return TRUE;
}

void wb_past_contents_retire(struct wb_past *past, const struct wb_object *object)
{
    g_hash_table_foreach_remove(past->contents, is_of, (void *)(uintptr_t)object);
}

/* ---- one of them --------------------------------------------------------------------------------- */

static void content_free(struct wb_past_content *content)
{
    wb_file_view_free(content->view);
    wb_past_dir_free(content->listing);
    g_free(content);
}

static void content_unref(struct wb_past *past, struct wb_past_content *content)
{
    bool last;

    pthread_mutex_lock(&past->lock);
    last = --content->refs == 0;
    if (last && content->listed)
        g_hash_table_remove(past->contents, content);
    pthread_mutex_unlock(&past->lock);
    if (last)
        content_free(content);
}

/* In a store that lies, one object may be a file by one record and a directory by another. */
static enum wb_share_kind kind_of(const struct wb_past_node *node)
{
    return S_ISDIR(node->node.type) ? WB_SHARE_MEMORY : WB_SHARE_FDS;
}

/* Referenced, or NULL. */
static struct wb_past_content *find(struct wb_past *past, const struct wb_past_node *node)
{
    struct wb_past_content key = {.object = node->node.object,
                                  .when = wb_revision_when(node->revision),
                                  .kind = kind_of(node)},
                           *content = NULL;

    pthread_mutex_lock(&past->lock);
    if (wb_past_is_settled_locked(past, node))
        content = g_hash_table_lookup(past->contents, &key);
    if (content)
        content->refs++;
    pthread_mutex_unlock(&past->lock);
    return content;
}

bool wb_past_content_is_good(struct wb_past_content *content)
{
    return content->view ? wb_file_view_is_good(content->view) : wb_past_dir_is_good(content->listing);
}

static int make(struct wb_session *session, struct wb_past_node *node, struct wb_past_content **ret)
{
    struct wb_past_content *content = g_try_new0(struct wb_past_content, 1);
    int r;

    if (!content)
        return -ENOMEM;
    content->refs = 1;
    content->object = node->node.object;
    content->when = wb_revision_when(node->revision);
    content->kind = kind_of(node);
    content->amount = FDS_OF_VIEW;
    if (S_ISDIR(node->node.type))
        r = wb_past_dir_open(session->history, node->revision, &content->listing);
    else
        r = wb_file_view_open(session->history, node->revision, &content->view);
    if (r == 0 && content->listing)
        content->amount = wb_past_dir_size(content->listing);
    if (r == 0)
        *ret = content;
    else
        content_free(content);
    return r;
}

/* Others may use it, unless what it shows has begun to change; or the one that was made meanwhile is used. */
static struct wb_past_content *publish(struct wb_past *past, const struct wb_past_node *node,
                                       struct wb_past_content *content)
{
    struct wb_past_content *other = NULL;

    pthread_mutex_lock(&past->lock);
    if (wb_past_is_settled_locked(past, node)) {
        other = g_hash_table_lookup(past->contents, content);
        if (other) {
            other->refs++;
        } else {
            g_hash_table_add(past->contents, content);
            content->listed = true;
        }
    }
    pthread_mutex_unlock(&past->lock);
    if (!other)
        return content;
    content_free(content);
    return other;
}

static int open_anew(struct wb_session *session, struct wb_past_node *node, uid_t uid, struct wb_past_content **ret)
{
    int r = S_ISDIR(node->node.type) ? 0 : wb_shares_room(&session->shares, WB_SHARE_FDS, uid, FDS_OF_VIEW);

    if (r == 0)
        r = make(session, node, ret);
    if (r == 0)
        *ret = publish(session->past, node, *ret);
    return r;
}

int wb_past_content_open(struct wb_session *session, struct wb_past_node *node, uid_t uid,
                         struct wb_past_content **ret)
{
    struct wb_past_content *content = find(session->past, node);
    int r = 0;

    if (content && !wb_past_content_is_good(content)) {
        pthread_mutex_lock(&session->past->lock);
        wb_past_contents_retire(session->past, &content->object);
        pthread_mutex_unlock(&session->past->lock);
        content_unref(session->past, content);
        content = NULL;
    }
    if (!content)
        r = open_anew(session, node, uid, &content);
    if (r == 0) {
        r = wb_shares_hold(&session->shares, &content->holders, content->kind, uid, content->amount, false);
        if (r < 0)
            content_unref(session->past, content);
        else
            *ret = content;
    }
    return r;
}

void wb_past_content_close(struct wb_session *session, struct wb_past_content *content, uid_t uid)
{
    if (!content)
        return;
    wb_shares_release(&session->shares, &content->holders, content->kind, uid, content->amount);
    content_unref(session->past, content);
}

/*
 * What nodes and kernel know of a file of the past, while versions of it go (thin/thin.h). Until then, a moment between
 * two that are kept shows one state, and after it the one before. So nothing that was known before may be put together
 * with what is read afterwards: what is known is forgotten before and after, and nothing is kept in between. A file
 * that was opened before gives the bytes it had, or EIO (history/content/view.c).
 */

/* With past->lock held. */
static bool is_altered(const struct wb_past *past, struct wb_object object)
{
    for (guint i = 0; i < past->altered->len; i++)
        if (wb_object_equal(g_array_index(past->altered, struct wb_object, i), object))
            return true;
    return false;
}

/* The mount of a moment can be asked for other moments, but gets no notice when their versions are deleted. */
static bool is_pinned(const struct wb_past *past, const struct wb_past_node *node)
{
    return past->pinned == WB_WHEN_PRESENT || !S_ISREG(node->node.type) ||
           wb_revision_when(node->revision) == past->pinned;
}

bool wb_past_is_settled_locked(const struct wb_past *past, const struct wb_past_node *node)
{
    return node->generation == past->generation && is_pinned(past, node) && !is_altered(past, node->node.object);
}

bool wb_past_is_settled(struct wb_session *session, const struct wb_past_node *node)
{
    struct wb_past *past = session->past;
    bool settled;

    pthread_mutex_lock(&past->lock);
    settled = wb_past_is_settled_locked(past, node);
    pthread_mutex_unlock(&past->lock);
    return settled;
}

/* With past->lock held: no node of the file is found by its name any more; their numbers. */
static GArray *retire(struct wb_session *session, struct wb_object object)
{
    GArray *numbers = g_array_new(FALSE, FALSE, sizeof(fuse_ino_t));

    wb_past_contents_retire(session->past, &object);

    for (struct wb_past_node *node = session->past->nodes; node; node = node->next) {
        if (!wb_past_of(&node->node) || !wb_object_equal(node->node.object, object))
            continue;
        node->generation = 0;
        g_array_append_val(numbers, ((fuse_ino_t){wb_node_ino(session, &node->node)}));
    }
    return numbers;
}

/* If the kernel has forgotten a node meanwhile, it returns an error, which is ignored. */
static void invalidate_nodes(struct wb_session *session, GArray *numbers)
{
    for (guint i = 0; i < numbers->len; i++)
        fuse_lowlevel_notify_inval_inode(session->fuse, g_array_index(numbers, fuse_ino_t, i), 0, 0);
    g_array_unref(numbers);
}

void wb_past_alter_begin(struct wb_session *session, struct wb_object object)
{
    struct wb_past *past = session->past;
    GArray *numbers;

    pthread_mutex_lock(&past->lock);
    g_array_append_val(past->altered, object);
    numbers = retire(session, object);
    pthread_mutex_unlock(&past->lock);
    invalidate_nodes(session, numbers);
}

void wb_past_alter_end(struct wb_session *session, struct wb_object object)
{
    struct wb_past *past = session->past;
    GArray *numbers;

    /* Its nodes first: what is opened until it counts as altered no more is not kept, either. */
    pthread_mutex_lock(&past->lock);
    numbers = retire(session, object);
    for (guint i = 0; i < past->altered->len; i++)
        if (wb_object_equal(g_array_index(past->altered, struct wb_object, i), object)) {
            g_array_remove_index_fast(past->altered, i);
            break;
        }
    pthread_mutex_unlock(&past->lock);
    invalidate_nodes(session, numbers);
}
