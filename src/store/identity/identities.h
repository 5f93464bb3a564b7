/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Which object an inode is, in a tree that was moved or copied with its store: there, all inodes are others than those
 * the history is of. The file `identities` says of each which it was; what it does not name is an object by itself, as
 * in any tree. It is written once, by `vfsck --rebind`, and never changed afterwards.
 *
 * It is asked whenever an inode is looked at, so it is a hash table in a file: one read, as a rule, and no memory.
 */

#include "format/format.h"
#include <stddef.h>

struct wb_identities;

/* NULL in *ret where there is no such file. 0, -EBADMSG where it is not a table, or -errno. */
int wb_identities_open(struct wb_identities **ret, int store_fd);
struct wb_identities *wb_identities_free(struct wb_identities *identities);

/* Replaces the inode's own identity by that of the object it is. `identities` may be NULL. 0, or -EIO where
 * what would tell is damaged. Thread-safe. */
int wb_identities_map(const struct wb_identities *identities, struct wb_object *object);

/* 1: the file names that inode, and *ret is its object; 0: it does not; -EIO. `identities` may be NULL. */
int wb_identities_find(const struct wb_identities *identities, struct wb_object inode, struct wb_object *ret);

/*
 * Whether the inode is `root`, the object that a store has its tree by: 1, 0 or -EIO. A store with identities belongs
 * to the tree whose root they name, and to no other, also where the inode itself equals the id, as in the first tree.
 */
int wb_identities_is_root(const struct wb_identities *identities, struct wb_object inode, struct wb_object root);

uint64_t wb_identities_count(const struct wb_identities *identities);
/* Every one, until `each` returns something other than 0. -EIO where one is damaged. `identities` may be NULL. */
int wb_identities_each(const struct wb_identities *identities,
                       int (*each)(const struct wb_identity *identity, void *data), void *data);

/* How many places of the file are damaged; or -errno. */
int64_t wb_identities_check(const struct wb_identities *identities);

/* Writes the file anew. No two have the same inode. 0 or -errno. */
int wb_identities_write(int store_fd, const struct wb_identity *list, size_t count);

/* The same, one by one, in the memory of one: of those with the same inode the first counts. What is not published when
 * it is freed was never there. */
struct wb_identities_writer;
int wb_identities_begin(struct wb_identities_writer **ret, int store_fd, uint64_t most);
int wb_identities_put(struct wb_identities_writer *writer, const struct wb_identity *identity);
int wb_identities_publish(struct wb_identities_writer *writer);
struct wb_identities_writer *wb_identities_writer_free(struct wb_identities_writer *writer);
