/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The tree of a copy, as it is: which inode is which object of the sender, and where. It is read once, and kept in step
 * with what is done to it. What has no name for the moment is in `receiving`, under its object's id.
 */

#include "format/stream.h"
#include "store/identities.h"
#include "wayback/error.h"
#include <glib.h>
#include <sys/stat.h>

struct wb_copy_name {
    struct wb_object dir;
    char name[WB_NAME_MAX + 1];
};

struct wb_copied {
    struct wb_object object; /* first: it is found by this */
    bool is_dir;
    bool staged;             /* it has a link in `receiving` */
    bool fresh;              /* it was made just now         */
    GArray *names;           /* struct wb_copy_name          */
};

struct wb_copy_tree {
    int root_fd, dir_fd, stage_fd; /* borrowed: the tree, the store, `receiving` */
    dev_t dev;
    struct wb_object root;
    GHashTable *inodes;  /* struct wb_identity, by inode */
    GHashTable *objects; /* struct wb_copied             */
    bool grown;          /* identities are to be written */
};

/* Reads identities and tree. -EXDEV, with a line, where something is in it that was not received. */
int wb_copy_tree_open(struct wb_copy_tree *tree, struct wb_problem *why);
void wb_copy_tree_close(struct wb_copy_tree *tree);

struct wb_copied *wb_copy_tree_find(const struct wb_copy_tree *tree, struct wb_object object);
/* The same, and what is in the graveyard only. NULL: the copy has no such object. */
struct wb_copied *wb_copy_tree_know(struct wb_copy_tree *tree, struct wb_object object, bool is_dir);
/* A new one, which `stage_fd` has under its id. */
int wb_copy_tree_add(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied **ret);
/* Writes the identities, durably, if there are new ones. */
int wb_copy_tree_bind(struct wb_copy_tree *tree);

/* The object that dir_fd/name is, or -errno; -EXDEV: none that was received. */
int wb_copy_tree_identify(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object *ret);

/* A descriptor of a directory, or -errno; -ENOENT: it has no place in the tree. */
int wb_copy_tree_open_dir(const struct wb_copy_tree *tree, struct wb_object dir);

/* Where it is: a descriptor to close in *ret_fd, and its name there. */
int wb_copy_tree_place(const struct wb_copy_tree *tree, const struct wb_copied *copied, int *ret_fd,
                       char ret_name[WB_OBJECT_PATH_MAX + WB_NAME_MAX]);

/* Its name in the graveyard, relative to dir_fd. */
static inline void wb_copy_grave(const struct wb_copied *copied, char path[WB_OBJECT_PATH_MAX])
{
    wb_object_path(copied->object, copied->is_dir ? WB_FILE_DIR : WB_FILE_DATA, path);
}

/*
 * An ordinary user may not write to what of his own is read-only: it gets that right until its attributes are set. 0 or
 * -errno.
 */
int wb_copy_tree_unlock(int dir_fd, const char *name);

void wb_copied_add_name(struct wb_copied *copied, struct wb_object dir, const char *name);
void wb_copied_remove_name(struct wb_copied *copied, struct wb_object dir, const char *name);
