/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Nodes: what a fuse_ino_t stands for. The number is the node's address (the root's is
 * FUSE_ROOT_ID); the conversion is made in dispatch.c and nowhere else.
 *
 * A node is live (an object of SRC as it is now), past (an object at T), or the directory of
 * snapshots of a live one, which no disk knows. Live nodes are found by their object, so hard links share
 * one; a node knows one living name, holds no descriptor and costs less than 300 bytes; with no_open, it may keep
 * descriptors (lower.h) and further names. It exists as long as the kernel, a child, a handle or an operation
 * refers to it.
 */

#include "capture/capture.h"
#include "format/format.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct wb_session;
struct wb_handle;
struct wb_lower;
struct wb_dirfd;
struct wb_stage;

enum wb_node_kind {
    WB_NODE_LIVE = 1,
    WB_NODE_PAST = 2,
    WB_NODE_SNAPDIR = 3, /* of its parent, a live directory */
};

/* The first member of struct wb_inode and of struct wb_past_node. */
struct wb_node {
    uint8_t kind;            /* enum wb_node_kind */
    uint32_t type;           /* S_IFMT bits */
    uint64_t nlookup;        /* references of the kernel */
    struct wb_object object;
};

/* Whether the graveyard has a link of an object, which its st_nlink then counts. */
enum wb_buried { WB_BURIED_UNKNOWN, WB_BURIED_NO, WB_BURIED_YES };

#define WB_SIZE_UNSEEN 0 /* no look at the file has been taken */
#define WB_SIZE_UNSURE (-1) /* a change failed: the next one looks */

/* Another name of a file, under which it was looked up before. */
struct wb_alias {
    struct wb_alias *next;
    struct wb_inode *parent; /* counted */
    char name[];
};

struct wb_inode {
    struct wb_node node;
    struct wb_inode *hash_next;
    struct wb_inode *parent;   /* counted; NULL: the root, or no living name is known */
    char *name;                /* in parent */
    struct wb_alias *aliases;  /* newest first; if descriptors are cached (lower.h): without one a name is needed */
    uint32_t refs;             /* kernel (1 for all), children, handles, operations */
    uint32_t writers;          /* handles that are open for writing; under nodes.lock */
    atomic_bool dead;          /* no name is left                                                 */
    bool unborn;               /* O_TMPFILE that never had one                                    */
    bool sync_all;             /* its past is spread over several logs: fsync must sync them all  */
    bool lost_names;           /* directory: names went to the graveyard since its last fsync     */
    bool no_privileges;        /* known to have no suid, sgid or file capability; under `lock`    */
    bool has_undo;             /* hint of the capture floor; under `lock`                         */
    atomic_uint recording;     /* of what generation of rules, and what they say (recording.c) */
    _Atomic uint64_t covered;  /* what is not recorded has its GAP; as long as no more were ended */
    _Atomic int64_t cover_when; /* since when */
    bool overdue;              /* the end of its stage could not be written (stage.h); under `lock` */
    atomic_uchar buried;       /* enum wb_buried: what is known */
    pthread_mutex_t lock;      /* content and attributes of a file or directory, while they change */
    struct wb_handle *handles; /* open ones, newest first */
    struct wb_lower *lowers;   /* their descriptors, one for each mode; under nodes.lock */
    atomic_bool append_only;   /* it was made so (chattr +a), after it was opened to write; by live/io.c */
    int sync_error;            /* of a descriptor that was closed, until fsync returns it; under nodes.lock */
    _Atomic uint64_t file_handle; /* wb_object_handle of its inode; 0: not known (live/io.c) */
    atomic_bool never_quiet;   /* we may not open it with O_NOATIME; by live/io.c */
    /* Content that is being changed (stage.h); under `lock`, but for whether there is one. */
    _Atomic(struct wb_stage *) stage;
    _Atomic int64_t size_left; /* WB_SIZE_*, or the size + 1 that the last change through the mount left (below.h) */
    atomic_bool resized_below; /* the size has been another one since: somebody writes below the mount */
    /* From here on of directories only: the nodes of all others end here. */
    struct wb_dirfd *dirfd;    /* in the cache of descriptors */
    struct wb_dir dir;         /* as the capture floor sees it; `fd` is not used here */
};

struct wb_nodes {
    pthread_mutex_t lock;
    struct wb_inode **buckets;
    size_t bucket_count, count;
    struct wb_inode *root;
    struct wb_handle *writers; /* all handles that are open for writing */
};

int wb_nodes_init(struct wb_nodes *nodes, struct wb_object root);
void wb_nodes_deinit(struct wb_session *session);

static inline struct wb_inode *wb_inode_of(struct wb_node *node)
{
    return node->kind == WB_NODE_LIVE ? (struct wb_inode *)node : NULL;
}

static inline bool wb_inode_is_dir(const struct wb_inode *inode)
{
    return S_ISDIR(inode->node.type);
}

/* The directory as the capture floor wants it for one operation, with a descriptor of its own;
 * what it found out meanwhile is kept for the next. The hint only ever turns true. */
static inline struct wb_dir wb_inode_dir(const struct wb_inode *inode, int fd)
{
    return (struct wb_dir){
        .object = inode->dir.object,
        .parent = inode->dir.parent,
        .name = inode->dir.name,
        .fd = fd,
        .has_catalog = __atomic_load_n(&inode->dir.has_catalog, __ATOMIC_RELAXED),
    };
}

static inline void wb_inode_learn(struct wb_inode *inode, const struct wb_dir *dir)
{
    if (dir->has_catalog)
        __atomic_store_n(&inode->dir.has_catalog, true, __ATOMIC_RELAXED);
}

/*
 * The node of `object`, made where there is none, with one more reference of the kernel and one of
 * the caller; parent/name (NULL: nameless) becomes the name it is known by. NULL: no memory.
 */
struct wb_inode *wb_inode_intern(struct wb_session *session, struct wb_object object, uint32_t type,
                                 struct wb_inode *parent, const char *name);

/* The node of `object` if the kernel knows it, referenced; else NULL. */
struct wb_inode *wb_inode_find(struct wb_session *session, struct wb_object object);

struct wb_inode *wb_inode_ref(struct wb_session *session, struct wb_inode *inode);
void wb_inode_unref(struct wb_session *session, struct wb_inode *inode);

/* The locks of two nodes, in the order of their addresses; either may be NULL, or both the same. */
void wb_inode_lock_two(struct wb_inode *a, struct wb_inode *b);
void wb_inode_unlock_two(struct wb_inode *a, struct wb_inode *b);

/* The kernel drops `count` of its references. */
void wb_inode_forget(struct wb_session *session, struct wb_inode *inode, uint64_t count);

/*
 * parent/name is a living name of it: the one it is known by from now on. A dead node lives again. old_parent/old_name
 * is a name that it has no longer; `old_name` NULL: it keeps all.
 */
int wb_inode_bind(struct wb_session *session, struct wb_inode *inode, struct wb_inode *parent, const char *name,
                  const struct wb_inode *old_parent, const char *old_name);

/* parent/name is no name of it any longer. `last`: it has no other; it is dead then. */
void wb_inode_unbind(struct wb_session *session, struct wb_inode *inode, const struct wb_inode *parent,
                     const char *name, bool last);
