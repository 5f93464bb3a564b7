/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What nodes and kernel know of a file of the past, while versions of it go (thin/thin.h). Until then, a moment between
 * two that are kept shows one state, and after it the one before. So nothing that was known before may be put together
 * with what is read afterwards: what is known is forgotten before and after, and nothing is kept in between. A file
 * that was opened before gives the bytes it had, or EIO (history/content/view.c).
 */
#include "daemon/past/past_node.h"

#include "daemon/core/number.h"
#include "daemon/past/past_open.h"
#include "wayback/when.h"

#include <glib.h>

/* With past->lock held. */
static bool is_altered(const struct wb_past *past, struct wb_object object)
{
    for (guint i = 0; i < past->altered->len; i++)
        if (wb_object_equal(g_array_index(past->altered, struct wb_object, i), object))
            return true;
    return false;
}

/* In the mount of a moment, others can be asked for; nobody tells it when their versions go. */
static bool is_pinned(const struct wb_past *past, const struct wb_past_node *node)
{
    return past->pinned == WB_WHEN_PRESENT || !S_ISREG(node->node.type) || wb_spot_when(node->spot) == past->pinned;
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

/* Should one be forgotten meanwhile, the kernel knows it no more and says so. */
static void tell_kernel(struct wb_session *session, GArray *numbers)
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
    tell_kernel(session, numbers);
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
    tell_kernel(session, numbers);
}
