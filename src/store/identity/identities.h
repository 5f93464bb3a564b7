/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The table from inodes to objects, in a tree that was moved or copied with its store: all inodes of such a tree differ
 * from those of the recorded history. The file `identities` gives the object of each inode; an inode that it does not
 * name is an object by itself, as in any tree. `vfsck --rebind` writes it once, and it never changes afterwards.
 *
 * Every look at an inode consults it, so it is a hash table in a file: usually one read, and no memory.
 */

#include "format/format.h"
#include <stddef.h>

struct wb_identities;

/* *ret is NULL if the file does not exist. 0, -EBADMSG if it is not a table, or -errno. */
int wb_identities_open(struct wb_identities **ret, int store_fd);
struct wb_identities *wb_identities_free(struct wb_identities *identities);

/* Replaces the inode's own identity by that of its object. `identities` may be NULL. 0, or -EIO if the place to read is
 * damaged. Thread-safe. */
int wb_identities_map(const struct wb_identities *identities, struct wb_object *object);

/* 1: the file names that inode, and *ret is its object; 0: it does not; -EIO. `identities` may be NULL. */
int wb_identities_find(const struct wb_identities *identities, struct wb_object inode, struct wb_object *ret);

/*
 * Whether the inode is `root`, the object by which a store identifies its tree: 1, 0 or -EIO. A store with identities
 * belongs only to the tree whose root they name, even if another inode itself equals the id, as in the first tree.
 */
int wb_identities_is_root(const struct wb_identities *identities, struct wb_object inode, struct wb_object root);

uint64_t wb_identities_count(const struct wb_identities *identities);
/* Calls `each` for every entry, until it returns something other than 0. -EIO if an entry is damaged. `identities` may
 * be NULL. */
int wb_identities_each(const struct wb_identities *identities,
                       int (*each)(const struct wb_identity *identity, void *data), void *data);

/* The number of damaged places in the file; or -errno. */
int64_t wb_identities_check(const struct wb_identities *identities);

/* Replaces the file. The list must not contain an inode twice. 0 or -errno. */
int wb_identities_write(int store_fd, const struct wb_identity *list, size_t count);

/* The same, entry by entry, in constant memory: of entries with the same inode the first is valid. Freeing the writer
 * before it has published discards everything. */
struct wb_identities_writer;
int wb_identities_begin(struct wb_identities_writer **ret, int store_fd, uint64_t max);
int wb_identities_put(struct wb_identities_writer *writer, const struct wb_identity *identity);
int wb_identities_publish(struct wb_identities_writer *writer);
struct wb_identities_writer *wb_identities_writer_free(struct wb_identities_writer *writer);
