/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The tree of a copy, as it is: which inode is which object of the sender, and where. It is read once, and kept in step
 * with what is done to it. What has no name for the moment is in `receiving`, under its object's id. However large the
 * tree is, it takes the same memory: the rest is in files without a name.
 */

#include "format/stream.h"
#include "store/identity/identities.h"
#include "transfer/receive/copy_names.h"
#include "transfer/wire/table.h"
#include "wayback/error.h"
#include <glib.h>
#include <sys/stat.h>

#define WB_COPY_DEPTH_MAX 4096 /* directories within each other */

struct wb_copied {
    struct wb_object object; /* first: it is found by this              */
    uint64_t names;          /* of wb_copy_names; 0: it has none        */
    bool is_dir;
    bool staged;             /* it has a link in `receiving`            */
    bool fresh;              /* it was made just now                    */
    bool buried;             /* the stream says that the store keeps it */
};

struct wb_copy_tree {
    int root_fd, dir_fd, stage_fd; /* borrowed: the tree, the store, `receiving` */
    dev_t dev;
    struct wb_object root;
    struct wb_identities *identities;
    struct wb_table bound;         /* struct wb_identity: those that are not in `identities` yet */
    struct wb_table objects;       /* struct wb_copied */
    struct wb_copy_names names;
    bool grown;                    /* identities are to be written */
};

/* Reads identities and tree. -EXDEV, with a line, where something is in it that was not received. It is to be
 * closed in any case. */
int wb_copy_tree_open(struct wb_copy_tree *tree, struct wb_error *why);
void wb_copy_tree_close(struct wb_copy_tree *tree);

/* 1 and *ret; 0: the tree has no such object; -errno. */
int wb_copy_tree_find(const struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret);
/* The same, and what is in the graveyard only. */
int wb_copy_tree_know(struct wb_copy_tree *tree, struct wb_object object, bool is_dir, struct wb_copied *ret);
/* The same, whether it is a directory or not. */
int wb_copy_tree_know_any(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret);
/* A new one, which `stage_fd` has under its id. 0 or -errno. */
int wb_copy_tree_add(struct wb_copy_tree *tree, struct wb_object object, struct wb_copied *ret);
/* What was changed of one that is known. 0 or -errno. */
int wb_copy_tree_put(struct wb_copy_tree *tree, const struct wb_copied *copied);
/* Writes the identities, durably, if there are new ones. */
int wb_copy_tree_bind(struct wb_copy_tree *tree);

/* The object that dir_fd/name is, or -errno; -EXDEV: none that was received. */
int wb_copy_tree_identify(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object *ret);

/* A descriptor of a directory, or -errno; -ENOENT: it has no place in the tree; -EXDEV: another one is there. */
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
 * Holds dir_fd/name (wb_hold), which must be that object: whoever owns a directory in the copy may have put something
 * else there. A descriptor or -errno; -EXDEV: it is another one.
 */
int wb_copy_tree_hold(const struct wb_copy_tree *tree, int dir_fd, const char *name, struct wb_object object);

/*
 * Makes what is held writable until its attributes are set: clears "immutable" and "append only" (chattr(1)), and gives
 * an ordinary user the right to write to a file of their own. 0 or -errno.
 */
int wb_copy_tree_unlock(int held);

/* The object has another inode from now on, which `fd` holds; wb_copy_tree_bind writes that. 0 or -errno. */
int wb_copy_tree_rebind(struct wb_copy_tree *tree, struct wb_object object, int fd);

/* A name that it has from now on, or no more; with that it is put. 0 or -errno. */
int wb_copy_tree_add_name(struct wb_copy_tree *tree, struct wb_copied *copied, struct wb_object dir, const char *name);
int wb_copy_tree_remove_name(struct wb_copy_tree *tree, struct wb_copied *copied, struct wb_object dir,
                             const char *name);
