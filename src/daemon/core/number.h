/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* From nodes to the numbers that the kernel has for them, and back. */

#include "daemon/core/published.h"
#include "daemon/core/session.h"

/*
 * The node's number for the kernel, which shows it to everybody (name_to_handle_at(2)): no address, but a permutation
 * of one. 0 and FUSE_ROOT_ID mean something else: what would become one of them is permuted once more.
 */
static inline fuse_ino_t wb_node_ino(const struct wb_session *session, const struct wb_node *node)
{
    uint64_t number;

    if (node == session->root)
        return FUSE_ROOT_ID;
    number = wb_publish(node);
    do
        number = wb_permute(&session->numbers, number);
    while (number <= FUSE_ROOT_ID);
    return (fuse_ino_t)number;
}

/* The node of a number other than FUSE_ROOT_ID that wb_node_ino made. */
static inline struct wb_node *wb_node_of_ino(const struct wb_session *session, fuse_ino_t ino)
{
    uint64_t number = ino;

    do
        number = wb_unpermute(&session->numbers, number);
    while (number <= FUSE_ROOT_ID);
    return wb_published(number);
}
