/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is asked for again and again of a node of the past, kept with it: attributes, and names of extended attributes.
 * Only what is settled is (past_open.c), and of the generation it was read in.
 */
#include "daemon/past/past_node.h"

#include <glib.h>
#include <linux/limits.h>
#include <string.h>

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
    r = wb_spot_attrs(session->history, node->spot, ret);
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
    n = wb_spot_listxattr(session->history, node->spot, list, XATTR_LIST_MAX);
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
