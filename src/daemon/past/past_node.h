/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Nodes of the past: what a fuse_ino_t of something at T stands for.
 *
 * There is one node per parent and name, so that the kernel never meets one directory under two
 * names. A name whose time is relative ("5m", "~2") has one per calling process instead: a
 * program that walks a tree meets one instant and not a new one with every step. A node that
 * means something else by now is replaced in the table and lives on, unlisted, until the kernel
 * forgets it.
 *
 * A directory of snapshots (snapdir.h) is counted and kept like a node of the past, and is the parent
 * of some; it has no revision.
 *
 * Parents outlive their children, live ones too: an address in a key is never somebody else's.
 * past->lock guards the table and every counter; nothing but nodes.lock is taken under it, and not
 * the other way round.
 */

#include "daemon/core/lane.h"
#include "daemon/core/published.h"
#include "daemon/core/session.h"
#include <glib.h>

struct wb_buried_cache;
struct wb_milestones;
struct wb_past_content;
struct wb_snapdir_listing;

struct wb_past_node {
    struct wb_node node;
    struct wb_past_node *previous, *next; /* all there are, listed in the table or not */
    struct wb_revision *revision;         /* NULL: a directory of snapshots */
    struct wb_node *parent;  /* counted */
    char *name;              /* in parent, as it was asked for */
    uint64_t process;        /* whose: 0 where the time is absolute */
    uint32_t refs;           /* the kernel (1 for all), children, operations */
    uint32_t opened;         /* handles on it and on everything below */
    struct wb_past_handle *kept; /* for requests without a handle, or NULL */
    atomic_bool was_kept;    /* there was one at some time */
    int64_t asked;           /* monotonic: when it was last looked up */
    uint64_t generation;     /* of the history it was made from (vrm makes a new one) */
    int64_t instant;         /* what its name said, as long as that cannot mean anything else; else 0 */
    bool has_attrs;
    struct wb_attrs attrs;   /* at T; they are asked for again and again */
    bool has_names;
    char *names;             /* of extended attributes at T, NULL: none; likewise */
    size_t names_length;
};

/* What is open: fi->fh of a past node. */
struct wb_past_handle {
    struct wb_past_handle *previous, *next;
    struct wb_past_node *node;   /* the kernel's reference lasts as long */
    struct wb_past_content *content; /* a file or directory (past_open.h) */
    uid_t uid;                   /* who holds it */
    bool kept;                   /* by the node, for requests that come without a handle */
    unsigned users;              /* such requests under way */
    struct wb_past_handle *newer, *older; /* in past->kept_*: kept ones */
    struct wb_snapdir_listing *snapshots; /* a directory of snapshots */
    struct wb_snapdir_listing *(*snapshots_free)(struct wb_snapdir_listing *);
};

/* What answers in pages are continued from (pages.h). */
struct wb_paged;
struct wb_pages {
    pthread_mutex_t lock;
    GQueue kept;
    unsigned most;
};

struct wb_past {
    pthread_mutex_t lock;
    GHashTable *table;
    struct wb_past_node *nodes;
    struct wb_past_handle *handles;
    struct wb_past_handle *kept_newest, *kept_oldest;
    unsigned kept;           /* how many */
    struct wb_past_handle *closing; /* kept by nodes that were freed: to be freed without the lock */
    GHashTable *contents;    /* what is open, to be shared (past_open.h); under `lock` */
    uint64_t generation;
    int64_t pinned;          /* -o at=: of other moments, versions go without a word (store/tables/pins.h) */
    GArray *altered;         /* struct wb_object: files of which versions are going (past_open.c) */
    struct wb_pages walks;   /* of versions (control_versions.c) */
    struct wb_milestones *milestones; /* in long lists of versions (milestones.h) */
    struct wb_pages lists;   /* of names (control_names.c) */
    struct wb_pages entries; /* of directories (control_entries.c) */
    struct wb_pages usages;  /* of what history takes (control_usage.c) */
    struct wb_pages edits;   /* of changed entries (control_edited.c) */
    GQueue perm;             /* what was open to whom (past_perm.c); under `lock` */
    struct wb_buried_cache *buried; /* which directories lost what (past_access.c) */
    struct wb_lane names;    /* look-backs for calls of POSIX (past_later.h): the kernel has the directory locked */
    struct wb_lane looks;    /* those beyond POSIX, which take longer (ops_control.c) */
    struct wb_lane changes;  /* those beyond POSIX that change something (ops_control.c), and all of root's */
    uint64_t reported[32];   /* checksums of problems that were reported */
    unsigned reported_count;
};

/*
 * Where a look-back of that user waits, which would else be in `lane`. Root restores while others go on changing names:
 * a list of changes that is read more slowly than it grows would have no end.
 */
static inline struct wb_lane *wb_past_lane(struct wb_past *past, uid_t uid, struct wb_lane *lane)
{
    return uid == 0 ? &past->changes : lane;
}

static inline struct wb_past_node *wb_past_of(struct wb_node *node)
{
    return node->kind == WB_NODE_PAST ? (struct wb_past_node *)node : NULL;
}

static inline struct wb_past_node *wb_snapdir_of(struct wb_node *node)
{
    return node->kind == WB_NODE_SNAPDIR ? (struct wb_past_node *)node : NULL;
}

/* Either of them: whatever is counted here. NULL for a live node. */
static inline struct wb_past_node *wb_past_counted(struct wb_node *node)
{
    return node->kind == WB_NODE_LIVE ? NULL : (struct wb_past_node *)node;
}

/*
 * The node of parent/name, referenced, if it is still good: `instant` is what its name says now
 * (0: it is inherited from the parent). NULL: there is none.
 */
struct wb_past_node *wb_past_find(struct wb_session *session, struct wb_node *parent,
                                  const char *name, int64_t instant);

/* The node of a relative time that the process met before, referenced, or NULL. `pinned`: it goes on
 * meaning that whatever has happened since. */
struct wb_past_node *wb_past_find_relative(struct wb_session *session, struct wb_node *parent,
                                           const char *name, uint64_t process, bool *ret_pinned);

/* parent/name is `revision` (a reference is taken): its node, made where need be, referenced. NULL: no memory. */
struct wb_past_node *wb_past_intern(struct wb_session *session, struct wb_node *parent, const char *name,
                                    uint64_t process, int64_t instant, struct wb_revision *revision);

/* The directory of snapshots `name` of a live directory: its node, made where need be, referenced. NULL: no
 * memory. */
struct wb_past_node *wb_past_intern_snapdir(struct wb_session *session, struct wb_inode *inode, const char *name);

/* The kernel gets the caller's reference; it may have one already. */
void wb_past_give(struct wb_session *session, struct wb_past_node *node);
void wb_past_unref(struct wb_session *session, struct wb_past_node *node);

/* Takes over the content that `uid` holds, or NULL for none, also on failure (NULL: no memory). */
struct wb_past_handle *wb_past_handle_new(struct wb_session *session, struct wb_past_node *node,
                                          struct wb_past_content *content, uid_t uid);
void wb_past_handle_free(struct wb_session *session, struct wb_past_handle *handle);
/* The same, for wb_past_kept_keep: not listed, and counted on no node. */
struct wb_past_handle *wb_past_handle_new_kept(struct wb_session *session, struct wb_past_node *node,
                                               struct wb_past_content *content, uid_t uid);

/*
 * Requests that come without a handle share one that the node keeps. A few are kept, and the least recently used one is
 * freed first. `find` returns it, used until `put`, or NULL. `keep` takes over a new one and returns it likewise, or
 * the one that another request has made meanwhile.
 */
struct wb_past_handle *wb_past_kept_find(struct wb_session *session, struct wb_past_node *node);
struct wb_past_handle *wb_past_kept_keep(struct wb_session *session, struct wb_past_node *node,
                                         struct wb_past_handle *handle);
void wb_past_kept_put(struct wb_session *session, struct wb_past_handle *handle);
/* The node keeps it no longer. */
void wb_past_kept_drop(struct wb_session *session, struct wb_past_node *node, struct wb_past_handle *handle);
/* Whether the node keeps one. */
bool wb_past_kept_is(struct wb_session *session, struct wb_past_node *node);

static inline struct wb_past_handle *wb_past_handle_of(uint64_t fh)
{
    return wb_published(fh);
}

/* Attributes at T, kept with the node (past_node.c). 0 or -errno. */
int wb_past_attrs(struct wb_session *session, struct wb_past_node *node, struct wb_attrs *ret);

/* Whether they are kept. */
bool wb_past_knows_attrs(struct wb_session *session, struct wb_past_node *node);

/* The same as a struct stat (ops_past.c). */
int wb_past_stat(struct wb_session *session, struct wb_past_node *node, struct stat *st);

/*
 * Names of extended attributes at T, each with its NUL, into `list` of XATTR_LIST_MAX bytes: the length, or
 * -errno. Kept with the node: the kernel asks for an ACL whenever somebody passes a directory, and each answer
 * would cost a walk over what changed in it since.
 */
ssize_t wb_past_xattr_names(struct wb_session *session, struct wb_past_node *node, char *list);

/* The revision of a node: a past one's own, a live one's made of its chain of parents, for a directory of
 * snapshots that of the directory they are of. 0 or -errno. */
int wb_past_revision_of(struct wb_session *session, struct wb_node *node, struct wb_revision **ret);

/* All of them, at the beginning and the end of the session. */
void wb_past_nodes_init(struct wb_past *past);
void wb_past_nodes_free(struct wb_session *session);

/* The process that makes the request: its number combined with its start time. 0 if that is unknown. */
uint64_t wb_past_process(fuse_req_t req);

/* A part of the past was deleted (vrm): nothing in the caches is valid any more, here or in the kernel. */
void wb_past_renew(struct wb_session *session);

/*
 * Versions of a file are deleted between begin and end: cached data about its past is dropped, and nothing is cached
 * until the end (past_open.c). settled: data read from the node may be cached, here and by the kernel; to be called
 * after the data was read.
 */
void wb_past_alter_begin(struct wb_session *session, struct wb_object object);
void wb_past_alter_end(struct wb_session *session, struct wb_object object);
bool wb_past_is_settled(struct wb_session *session, const struct wb_past_node *node);
bool wb_past_is_settled_locked(const struct wb_past *past, const struct wb_past_node *node);

/* For -EIO, the problem is logged, each one once. Returns `r`, or -EIO for any positive one. */
int wb_past_result(struct wb_session *session, int r);
/* The same for a request of a tool, which reports the error itself: without a reason, nothing is reported here. */
int wb_past_result_of_tool(struct wb_session *session, int r);
