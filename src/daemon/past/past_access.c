/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_access.h"

#include "base/cleanup.h"
#include "daemon/caller/creds.h"
#include "daemon/core/access.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/past_buried.h"
#include "daemon/past/past_node.h"
#include "daemon/past/walk.h"
#include "history/state/lookback.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/stat.h>

/* More than most directories have names: whoever lists one comes back to none of them before all were asked for. */
#define KEPT 16384
/* Directories that were removed one after the other; no path is longer. */
#define STEPS_MAX 4096
/* Directories that lost files which had been moved to them. */
#define LOSERS 16

/* Where the object of a revision was lost. True as long as it stays in the graveyard: moving it changes its ctime. */
struct known {
    struct wb_object object, from;
    char *name;
    struct timespec ctime;
    uint64_t generation;
    uint32_t links;
    struct wb_revision *dir; /* that lost it, at any moment; NULL: that is `from` */
    int64_t when;        /* just before the loss */
};

/* A directory as it is, or was when it was lost itself. */
struct loser {
    struct wb_revision *last;
    uint64_t generation;
};

struct wb_buried_cache {
    pthread_mutex_t lock;
    struct known known[KEPT];
    struct loser losers[LOSERS];
    unsigned next_loser;
};

struct wb_buried_cache *wb_buried_cache_new(void)
{
    struct wb_buried_cache *cache = g_try_new0(struct wb_buried_cache, 1);

    if (cache)
        pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

static void known_clear(struct known *known)
{
    g_free(known->name);
    wb_revision_unref(known->dir);
    *known = (struct known){0};
}

struct wb_buried_cache *wb_buried_cache_free(struct wb_buried_cache *cache)
{
    if (!cache)
        return NULL;
    for (unsigned i = 0; i < KEPT; i++)
        known_clear(&cache->known[i]);
    for (unsigned i = 0; i < LOSERS; i++)
        wb_revision_unref(cache->losers[i].last);
    pthread_mutex_destroy(&cache->lock);
    g_free(cache);
    return NULL;
}

static bool is_same(const struct known *a, const struct known *b)
{
    return wb_object_equal(a->object, b->object) && wb_object_equal(a->from, b->from) && a->name && b->name &&
           strcmp(a->name, b->name) == 0 && a->ctime.tv_sec == b->ctime.tv_sec &&
           a->ctime.tv_nsec == b->ctime.tv_nsec && a->generation == b->generation;
}

/* Fills in links, dir and when of `known`, if they are kept. */
static bool look_up(struct wb_buried_cache *cache, struct known *known)
{
    const struct known *kept = &cache->known[known->object.ino % KEPT];
    bool found;

    pthread_mutex_lock(&cache->lock);
    found = is_same(kept, known);
    if (found) {
        known->links = kept->links;
        known->when = kept->when;
        known->dir = kept->dir ? wb_revision_ref(kept->dir) : NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void keep(struct wb_buried_cache *cache, const struct known *known)
{
    struct known *place = &cache->known[known->object.ino % KEPT], old, mine = *known;

    mine.name = g_strdup(known->name);
    mine.dir = known->dir ? wb_revision_ref(known->dir) : NULL;
    pthread_mutex_lock(&cache->lock);
    old = *place;
    *place = mine;
    pthread_mutex_unlock(&cache->lock);
    known_clear(&old);
}

/* ---- what lost it ----------------------------------------------------------------------------- */

/* Referenced, or NULL: none is kept, or the one kept is as it was before `when`. */
static struct wb_revision *kept_loser(struct wb_past *past, struct wb_object dir, uint64_t generation, int64_t when)
{
    struct wb_buried_cache *cache = past->buried;
    struct wb_revision *found = NULL;

    pthread_mutex_lock(&cache->lock);
    for (unsigned i = 0; i < LOSERS && !found; i++) {
        struct wb_revision *last = cache->losers[i].last;

        if (last && wb_object_equal(wb_revision_object(last), dir) && cache->losers[i].generation == generation &&
            wb_revision_when(last) >= when)
            found = wb_revision_ref(last);
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

static void keep_loser(struct wb_past *past, struct wb_revision *last, uint64_t generation)
{
    struct wb_buried_cache *cache = past->buried;
    struct wb_revision *old;
    unsigned i = 0;

    pthread_mutex_lock(&cache->lock);
    while (i < LOSERS && cache->losers[i].last &&
           !wb_object_equal(wb_revision_object(cache->losers[i].last), wb_revision_object(last)))
        i++;
    if (i == LOSERS)
        i = cache->next_loser++ % LOSERS;
    old = cache->losers[i].last;
    cache->losers[i] = (struct loser){wb_revision_ref(last), generation};
    pthread_mutex_unlock(&cache->lock);
    wb_revision_unref(old);
}

/* `dir`, which was there at `when`, as it is now, or was when it was lost. 0 or -errno. */
static int find_last(struct wb_session *session, struct wb_object dir, int64_t when, struct wb_revision **ret)
{
    struct wb_history *history = session->history;
    struct wb_revision *then __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_unbind_info unbind;
    int r = wb_lookback_dir(history, dir, wb_store_now(session->store), ret);

    if (r != -EIO && r != -ENOENT)
        return r;
    r = wb_lookback_dir(history, dir, when, &then);
    if (r == 0)
        r = wb_revision_find_unbind(history, then, &unbind);
    if (r == 0)
        return wb_lookback_dir(history, dir, unbind.when - 1, ret);
    if (r == WB_ABSENT)
        *ret = g_steal_pointer(&then);
    return MIN(r, 0);
}

/* Files are often lost by the directory that lost others: its way is not looked for each time. */
static int loser_at(struct wb_session *session, struct wb_object dir, int64_t when, uint64_t generation,
                    struct wb_revision **ret)
{
    int r;

    *ret = kept_loser(session->past, dir, generation, when);
    if (*ret)
        return 0;
    r = find_last(session, dir, when, ret);
    if (r == 0)
        keep_loser(session->past, *ret, generation);
    return r;
}

/* Finds the directory that lost the object `known`, and when. 0, -EACCES if no record shows it, or -errno. */
static int find_loser(struct wb_session *session, struct wb_revision *revision, struct known *known)
{
    struct wb_unbind_info unbind;
    int r = wb_revision_find_unbind(session->history, revision, &unbind);

    if (r != 0)
        return r < 0 ? r : -EACCES;
    known->links = unbind.links;
    known->when = unbind.when - 1;
    if (!wb_object_equal(unbind.dir, known->from))
        r = loser_at(session, unbind.dir, known->when, known->generation, &known->dir);
    return r;
}

/* `fd`: of the buried object. Its name is the revision's; ret->dir is to be unreferenced, if there is one. */
static int loser_of(struct wb_session *session, struct wb_revision *revision, int fd, struct known *ret)
{
    struct wb_past *past = session->past;
    struct known known = {.object = wb_revision_object(revision), .name = (char *)wb_revision_name(revision)};
    struct stat st;
    int r = 0;

    if (!wb_revision_parent(revision))
        return -EACCES;
    if (fstat(fd, &st) < 0)
        return -errno;
    known.from = wb_revision_object(wb_revision_parent(revision));
    known.ctime = st.st_ctim;
    pthread_mutex_lock(&past->lock);
    known.generation = past->generation;
    pthread_mutex_unlock(&past->lock);
    if (!look_up(past->buried, &known)) {
        r = find_loser(session, revision, &known);
        if (r == 0)
            keep(past->buried, &known);
    }
    *ret = known;
    return r;
}

/* ---- may the caller -------------------------------------------------------------------------- */

/* Whether it is in the graveyard and has no name left. `fd`: of the object. */
static bool past_is_buried(struct wb_session *session, const struct wb_revision *revision, int fd)
{
    bool is_dir = wb_revision_type(revision) == S_IFDIR;
    struct stat st;

    return fstat(fd, &st) == 0 && (is_dir || st.st_nlink == 1) &&
           wb_grave_has(session->store, wb_revision_object(revision), is_dir) == 1;
}

/* `dir`: at any moment. */
static int could_search(struct wb_session *session, fuse_req_t req, struct wb_revision *dir, int64_t when)
{
    struct wb_request request = {.session = session, .req = req};
    struct wb_past_perm *perm = wb_past_perm_acquire(&request);
    int r = wb_past_perm_could_search(perm, &request, dir, when);

    wb_past_perm_release(&request, perm);
    return r == 0 ? -EACCES : MIN(r, 0);
}

/* Whether the caller may search every directory that leads to `path` (from the root of SRC) now: as above. */
static int past_may_reach_path(struct wb_session *session, fuse_req_t req, const char *path)
{
    struct wb_inode *dir = NULL;
    struct wb_access access;
    g_autofree char *name = NULL;
    int r = wb_walk(session, req, session->nodes.root, path, &dir, &name);

    if (r < 0)
        return r;
    r = wb_access_get(session, dir, &access);
    if (r == 0) {
        r = wb_caller_may(session, req, access.fd, X_OK);
        wb_access_put(session, &access);
    }
    wb_inode_unref(session, dir);
    return r;
}

/* A directory that is there now: whether the caller may come to it. */
static int may_reach_living(struct wb_session *session, fuse_req_t req, struct wb_revision *dir)
{
    struct wb_location location;
    int r = wb_revision_resolve(session->history, dir, &location);

    if (r == 0)
        r = location.state == WB_LINKED ? past_may_reach_path(session, req, location.path) : -EACCES;
    g_free(location.path);
    return r == -ENOENT || r == -ENOTDIR ? -EACCES : r;
}

/*
 * From a removed object to the directory that lost it, which must let the caller search it, then and now. `passed`: the
 * caller came through all that is above the revision.
 */
static int step(struct wb_session *session, fuse_req_t req, struct wb_revision **revision, bool *passed, int *fd)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct known known = {0};
    int r = loser_of(session, *revision, *fd, &known), next;

    if (r < 0)
        return r;
    *passed = *passed && !known.dir;
    dir = known.dir ? known.dir : wb_revision_ref(wb_revision_parent(*revision));
    if (wb_revision_type(*revision) != S_IFDIR && known.links > 1)
        return -EACCES;
    /* The directory it was found in let the caller pass at that moment, and closed nothing to others than itself. */
    if (!*passed)
        r = could_search(session, req, dir, known.when);
    if (r < 0)
        return r;
    next = wb_revision_open_present(session->history, dir, O_PATH | O_CLOEXEC);
    if (next < 0)
        return next == -EIO || next == -ENOENT ? -EACCES : next;
    close(*fd);
    *fd = next;
    wb_revision_unref(*revision);
    *revision = g_steal_pointer(&dir);
    return wb_caller_may(session, req, next, X_OK);
}

/*
 * Whether the caller may reach and search the directory that lost the object now and, unless that is the one it was
 * found in, could search it and everything above it just before the loss: rights that a directory gives since then do
 * not count. Where it was removed in turn, the same of the directory that lost it. An object that had other names when
 * it lost this one is refused: no record says which directory closed those.
 * 0, -EACCES or another -errno.
 */
static int past_may_reach_buried(struct wb_session *session, fuse_req_t req, struct wb_revision *revision)
{
    struct wb_revision *at __attribute__((cleanup(wb_revision_unrefp))) = wb_revision_ref(revision);
    _cleanup_close_ int fd = wb_revision_open_present(session->history, revision, O_PATH | O_CLOEXEC);
    bool passed = true;
    int r = fd < 0 ? fd : 0;

    for (unsigned i = 0; r == 0; i++) {
        r = i < STEPS_MAX ? step(session, req, &at, &passed, &fd) : -EACCES;
        if (r == 0 && !past_is_buried(session, at, fd))
            return may_reach_living(session, req, at);
    }
    return r;
}

/* The path of a node from the root of SRC, g_free; NULL: no name of it is known. */
static char *known_path(struct wb_session *session, struct wb_inode *inode)
{
    GString *path = g_string_new("");
    bool known;

    pthread_mutex_lock(&session->nodes.lock);
    for (; inode != session->nodes.root && inode->parent && inode->name; inode = inode->parent) {
        g_string_prepend(path, inode->name);
        if (inode->parent != session->nodes.root)
            g_string_prepend_c(path, '/');
    }
    known = inode == session->nodes.root && path->len > 0;
    pthread_mutex_unlock(&session->nodes.lock);
    return g_string_free(path, !known);
}

/*
 * The same for an object whose name at the revision was removed while it has another one: whether the caller may reach
 * the name by which the daemon knows it. -EACCES where it knows none.
 */
static int past_may_reach_other(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int fd)
{
    struct wb_inode *inode = wb_inode_find(session, wb_revision_object(revision)), *dir = NULL;
    g_autofree char *path = inode ? known_path(session, inode) : NULL;
    g_autofree char *name = NULL;
    struct wb_access access;
    struct stat own, found;
    int r = -EACCES;

    if (inode)
        wb_inode_unref(session, inode);
    if (path)
        r = wb_walk(session, req, session->nodes.root, path, &dir, &name);
    if (r < 0)
        return r == -ENOENT || r == -ENOTDIR ? -EACCES : r;
    r = wb_access_get(session, dir, &access);
    if (r == 0) {
        r = wb_caller_may(session, req, access.fd, X_OK);
        if (r == 0 && (fstat(fd, &own) < 0 || fstatat(access.fd, name, &found, AT_SYMLINK_NOFOLLOW) < 0 ||
                       own.st_ino != found.st_ino || own.st_dev != found.st_dev))
            r = -EACCES;
        wb_access_put(session, &access);
    }
    wb_inode_unref(session, dir);
    return r;
}

/* Whether `path` (from the root) is what `dir` is called now. */
static bool is_at(struct wb_session *session, struct wb_revision *dir, const char *path)
{
    struct wb_location location;
    bool same = wb_revision_resolve(session->history, dir, &location) == 0 && location.state == WB_LINKED &&
                strcmp(location.path, path) == 0;

    g_free(location.path);
    return same;
}

/*
 * What has moved since may be behind directories that are closed to the caller. Where it is still
 * in the directory it was found in, that one was passed already. `fd`: of the object.
 */
static int may_reach_now(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int fd)
{
    struct wb_location location;
    g_autofree char *path = NULL;
    g_autofree char *parent = NULL;
    const char *slash;
    int r = wb_revision_resolve(session->history, revision, &location);

    path = location.path;
    if (r < 0 || !wb_revision_parent(revision) || location.state == WB_LOST)
        return r;
    if (location.state == WB_UNLINKED && past_is_buried(session, revision, fd))
        return past_may_reach_buried(session, req, revision); /* removed just now */
    if (location.state == WB_UNLINKED)
        return past_may_reach_other(session, req, revision, fd);
    slash = strrchr(path, '/');
    parent = g_strndup(path, slash ? (gsize)(slash - path) : 0);
    if (is_at(session, wb_revision_parent(revision), parent))
        return 0;
    r = past_may_reach_path(session, req, path);
    return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int may_reach(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int fd)
{
    bool is_dir = wb_revision_type(revision) == S_IFDIR;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (wb_grave_has(session->store, wb_revision_object(revision), is_dir) != 1)
        return may_reach_now(session, req, revision, fd);
    /* Owners may read what was removed, whatever lost it: they could have given themselves the right. */
    if (st.st_uid == fuse_req_ctx(req)->uid)
        return 0;
    return is_dir || st.st_nlink == 1 ? past_may_reach_buried(session, req, revision)
                                      : may_reach_now(session, req, revision, fd);
}

int wb_past_may_now(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    fd = wb_revision_open_present(session->history, revision, O_PATH | O_CLOEXEC);
    /* The permissions of an object that no longer exists are unknown. */
    if (fd == -EIO || fd == -ENOENT)
        return -EACCES;
    if (fd < 0)
        return fd;
    r = wb_caller_may(session, req, fd, mask);
    return r == 0 ? may_reach(session, req, revision, fd) : r;
}

int wb_past_owns(struct wb_session *session, fuse_req_t req, struct wb_revision *revision)
{
    uid_t uid = fuse_req_ctx(req)->uid;
    struct wb_attrs attrs;
    struct stat st;
    int r;
    _cleanup_close_ int fd = -1;

    if (uid == 0)
        return 1;
    fd = wb_revision_open_present(session->history, revision, O_PATH | O_CLOEXEC);
    if (fd >= 0)
        return fstat(fd, &st) < 0 ? -errno : st.st_uid == uid;
    if (fd != -EIO && fd != -ENOENT)
        return fd;
    r = wb_revision_attrs(session->history, revision, &attrs);
    return r == 0 ? attrs.uid == uid : r < 0 ? r : -EIO;
}

int wb_past_owns_or_may_now(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask)
{
    int r = wb_past_owns(session, req, revision);

    return r == 1 ? 0 : r < 0 ? r : wb_past_may_now(session, req, revision, mask);
}

/* Every directory above the revision could be searched then. */
static int past_could_reach(struct wb_session *session, fuse_req_t req, struct wb_revision *revision)
{
    int r = 0;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    for (revision = wb_revision_parent(revision); r == 0 && revision; revision = wb_revision_parent(revision))
        if (wb_revision_when(revision) != WB_WHEN_PRESENT)
            r = wb_past_could_then(session, req, revision, X_OK);
    return r;
}

int wb_past_may_enter(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, struct wb_object dir)
{
    struct wb_revision *at = wb_revision_parent(revision);
    int r = past_could_reach(session, req, revision);

    if (fuse_req_ctx(req)->uid == 0 || !at || wb_object_equal(wb_revision_object(at), dir) ||
        wb_object_equal(wb_revision_object(revision), dir))
        return r;
    /* The caller came to `dir` by another way than the one that leads to the revision. */
    for (; r == 0 && at; at = wb_revision_parent(at))
        r = wb_past_may_now(session, req, at, X_OK);
    return r == -EACCES ? -ENOENT : r;
}

int wb_past_may_execute(struct wb_session *session, fuse_req_t req, struct wb_past_node *node)
{
    g_autofree char *names = NULL;
    struct wb_attrs attrs;
    ssize_t length;
    int r;

    if (fuse_req_ctx(req)->uid == 0)
        return 0;
    r = wb_past_attrs(session, node, &attrs);
    if (r != 0)
        return r < 0 ? r : -EIO;
    /* Without the group's x, S_ISGID means nothing to execve(2). */
    if (attrs.mode & S_ISUID || (attrs.mode & S_ISGID && attrs.mode & S_IXGRP))
        return -EPERM;
    names = g_try_malloc(XATTR_LIST_MAX);
    length = names ? wb_past_xattr_names(session, node, names) : -ENOMEM;
    for (ssize_t i = 0; i < length; i += (ssize_t)strlen(names + i) + 1)
        if (strcmp(names + i, "security.capability") == 0)
            return -EPERM;
    return length < 0 ? (int)length : 0;
}

int wb_past_may_have_device(fuse_req_t req, const struct wb_past_node *node)
{
    bool is_device = S_ISCHR(node->node.type) || S_ISBLK(node->node.type);

    return is_device && fuse_req_ctx(req)->uid != 0 ? -EACCES : 0;
}
