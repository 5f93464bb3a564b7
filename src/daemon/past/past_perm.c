/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/past_perm.h"

#include "daemon/caller/creds.h"
#include "daemon/past/past_node.h"
#include "history/state/lookback.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* Callers remembered, for how long nobody has to ask again, and how much of each. */
#define KEPT_MAX 4
#define KEPT_IDLE (30 * G_USEC_PER_SEC)
#define DOORS_MAX 256
#define NOW_LASTS (200 * G_TIME_SPAN_MILLISECOND)

/* Beside R_OK and X_OK: asked by wb_past_perm_could_search. */
#define SEARCHED 8

struct key {
    struct wb_object object;
    int mask;
};

struct known {
    struct key key;
    struct wb_access_intervals *times; /* NULL: it was not found */
    int64_t until;               /* what `times` covers */
    struct wb_revision *revision; /* as it was found */
    int64_t asked_now;           /* when `now` was found out, monotonic */
    bool now;
};

struct wb_past_perm {
    uint32_t uid, gid, pid;
    uint64_t generation;
    int64_t used;     /* monotonic */
    int64_t newest;   /* what is known holds up to then */
    GHashTable *known;
    struct wb_rights_memo *memo;
};

static guint key_hash(const void *data)
{
    const struct key *key = data;

    return (guint)((key->object.ino * 8 + (uint64_t)key->mask) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean key_equal(const void *a, const void *b)
{
    const struct key *one = a, *two = b;

    return one->mask == two->mask && wb_object_equal(one->object, two->object);
}

static void known_free(void *data)
{
    struct known *known = data;

    wb_access_intervals_free(known->times);
    wb_revision_unref(known->revision);
    g_free(known);
}

static void past_perm_free(struct wb_past_perm *perm)
{
    g_hash_table_unref(perm->known);
    wb_rights_memo_free(perm->memo);
    g_free(perm);
}

/* ---- kept between requests --------------------------------------------------------------------- */

static uint64_t generation_of(struct wb_past *past)
{
    uint64_t generation;

    pthread_mutex_lock(&past->lock);
    generation = past->generation;
    pthread_mutex_unlock(&past->lock);
    return generation;
}

struct wb_past_perm *wb_past_perm_acquire(const struct wb_request *request)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(request->req);
    struct wb_past *past = request->session->past;
    struct wb_past_perm *perm = NULL;
    GQueue stale = G_QUEUE_INIT;
    int64_t now = g_get_monotonic_time();

    if (ctx->uid == 0)
        return NULL;
    pthread_mutex_lock(&past->lock);
    for (GList *link = past->perm.head, *next; link; link = next) {
        struct wb_past_perm *kept = link->data;

        next = link->next;
        if (now - kept->used > KEPT_IDLE || kept->generation != past->generation)
            g_queue_push_tail(&stale, kept);
        else if (!perm && kept->uid == ctx->uid && kept->gid == ctx->gid && kept->pid == (uint32_t)ctx->pid)
            perm = kept;
        else
            continue;
        g_queue_delete_link(&past->perm, link);
    }
    pthread_mutex_unlock(&past->lock);
    for (struct wb_past_perm *old; (old = g_queue_pop_head(&stale));)
        past_perm_free(old);
    if (!perm) {
        perm = g_new(struct wb_past_perm, 1);
        *perm = (struct wb_past_perm){.uid = ctx->uid, .gid = ctx->gid, .pid = (uint32_t)ctx->pid,
                                   .generation = generation_of(past), .newest = INT64_MIN};
        perm->known = g_hash_table_new_full(key_hash, key_equal, NULL, known_free);
        perm->memo = wb_rights_memo_new();
    }
    return perm;
}

void wb_past_perm_release(const struct wb_request *request, struct wb_past_perm *perm)
{
    struct wb_past *past = request->session->past;
    struct wb_past_perm *oldest = NULL;

    if (!perm)
        return;
    perm->used = g_get_monotonic_time();
    pthread_mutex_lock(&past->lock);
    g_queue_push_tail(&past->perm, perm);
    if (past->perm.length > KEPT_MAX)
        oldest = g_queue_pop_head(&past->perm);
    pthread_mutex_unlock(&past->lock);
    if (oldest)
        past_perm_free(oldest);
}

void wb_past_perm_free_all(struct wb_session *session)
{
    struct wb_past *past = session->past;
    struct wb_past_perm *perm;

    do {
        pthread_mutex_lock(&past->lock);
        perm = g_queue_pop_head(&past->perm);
        pthread_mutex_unlock(&past->lock);
        if (perm)
            past_perm_free(perm);
    } while (perm);
}

/* ---- at one moment --------------------------------------------------------------------------- */

/* Reads the access ACL at the moment of `revision` into `acl`. Its length, 0 if there is none, or -errno. */
static ssize_t read_acl(struct wb_session *session, struct wb_revision *revision, void *acl, size_t size)
{
    ssize_t n = wb_revision_getxattr(session->history, revision, "system.posix_acl_access", acl, size);

    return n == -ENODATA || n == -EOPNOTSUPP ? 0 : n;
}

int wb_past_could_then(struct wb_session *session, fuse_req_t req, struct wb_revision *revision, int mask)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct wb_attrs attrs;
    uint8_t acl[WB_ACL_MAX];
    ssize_t length = 0;
    int r;

    if (ctx->uid == 0)
        return 0;
    r = wb_revision_attrs(session->history, revision, &attrs);
    if (r != 0)
        return r < 0 ? r : -EIO;
    if (ctx->uid != attrs.uid) {
        length = read_acl(session, revision, acl, sizeof(acl));
        if (length < 0)
            return (int)length;
    }
    return wb_caller_would(req, attrs.mode, attrs.uid, attrs.gid, acl, (size_t)length, mask) ? 0
                                                                                             : -EACCES;
}

/* ---- one access -------------------------------------------------------------------------------- */

struct ask {
    const struct wb_request *request;
    int mask;
};

static int could(void *data, struct wb_revision *revision)
{
    const struct ask *ask = data;
    struct wb_session *session = ask->request->session;
    fuse_req_t req = ask->request->req;
    struct wb_attrs attrs;
    int r = wb_revision_attrs(session->history, revision, &attrs);

    if (r != 0)
        return r < 0 ? r : -EIO;
    r = attrs.uid == fuse_req_ctx(req)->uid ? 0 : wb_past_could_then(session, req, revision, ask->mask);
    for (revision = wb_revision_parent(revision); r == 0 && revision; revision = wb_revision_parent(revision))
        r = wb_past_could_then(session, req, revision, X_OK);
    return r;
}

/* The object whose access is checked, as it was at `when`. 0, WB_ABSENT or -errno. */
static int find_at(const struct wb_request *request, const struct wb_past_perm_query *access, int64_t when,
                   struct wb_revision **ret)
{
    struct wb_history *history = request->session->history;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r;

    if (access->hint && wb_object_equal(wb_revision_object(access->hint), access->dir))
        r = wb_revision_shift(history, access->hint, when, &dir);
    else
        r = wb_lookback_dir(history, access->dir, when, &dir);
    if (r == 0 && access->name) {
        r = wb_revision_child(history, dir, access->name, &revision);
        if (r == 0 && !wb_object_equal(wb_revision_object(revision), access->object))
            r = WB_ABSENT;
    }
    if (r == 0)
        *ret = revision ? g_steal_pointer(&revision) : g_steal_pointer(&dir);
    return r;
}

static int find(const struct wb_request *request, const struct wb_past_perm_query *access, int64_t when,
                struct wb_revision **ret)
{
    int r = find_at(request, access, when, ret);

    return r == 0 ? r : find_at(request, access, when - 1, ret); /* the change took it away */
}

/* It may change at any time; within NOW_LASTS the answer counts as the same moment's. */
static int ask_now(const struct wb_request *request, const struct wb_past_perm_query *access, struct known *known)
{
    int64_t now = g_get_monotonic_time();
    int r;

    if (known->asked_now != 0 && now - known->asked_now < NOW_LASTS)
        return 0;
    r = access->may_now(request->session, request->req, known->revision, known->key.mask);
    if (r < 0 && r != -EACCES && r != -EPERM && r != -EIO && r != -ENOENT)
        return r;
    known->now = r == 0;
    known->asked_now = now;
    return 0;
}

static void keep(struct wb_past_perm *perm, struct known *known)
{
    if (g_hash_table_size(perm->known) >= DOORS_MAX)
        g_hash_table_remove_all(perm->known);
    g_hash_table_replace(perm->known, &known->key, known);
}

static int learn(const struct wb_request *request, struct wb_past_perm *perm, const struct wb_past_perm_query *access,
                 int64_t when, const struct key *key, struct known **ret)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct ask ask = {request, access->mask};
    struct wb_access_intervals *times = NULL;
    struct known *known;
    int r = find(request, access, when, &revision);

    if (r == 0)
        r = wb_access_intervals_new(request->session->history, revision, could, &ask, perm->memo, &times);
    if (r < 0 && r != -EIO && r != -ENOENT && r != -ENOTDIR)
        return r;
    known = g_new(struct known, 1);
    *known = (struct known){.key = *key, .times = times, .revision = g_steal_pointer(&revision), .until = when};
    /* Perhaps it can be found by another name, or at another time. */
    keep(perm, known);
    *ret = known;
    return 0;
}

/* Rights may have changed since the last answers. */
static void renew(struct wb_past_perm *perm, int64_t when)
{
    if (when <= perm->newest)
        return;
    g_hash_table_remove_all(perm->known);
    wb_rights_memo_free(perm->memo);
    perm->memo = wb_rights_memo_new();
    perm->newest = when;
}

/* What is known of it up to `when`; its `times` are NULL where nothing is. 0 or -errno. */
static int look_up(struct wb_past_perm *perm, const struct wb_request *request, const struct wb_past_perm_query *access,
                   int64_t when, struct known **ret)
{
    struct key key = {access->name ? access->object : access->dir, access->mask};
    int r = 0;

    renew(perm, when);
    *ret = g_hash_table_lookup(perm->known, &key);
    if (!*ret || !(*ret)->times || when > (*ret)->until)
        r = learn(request, perm, access, when, &key, ret);
    return r;
}

static int is_open_now(const struct wb_request *request, const struct wb_past_perm_query *access, struct known *known)
{
    int r = access->may_now ? ask_now(request, access, known) : 0;

    return r < 0 ? r : !access->may_now || known->now;
}

int wb_past_perm_check(struct wb_past_perm *perm, const struct wb_request *request,
                       const struct wb_past_perm_query *access, int64_t when)
{
    struct known *known;
    int r;

    if (!perm)
        return 1;
    if (wb_object_is_none(access->name ? access->object : access->dir))
        return 0;
    r = look_up(perm, request, access, when, &known);
    if (r < 0 || !known->times || !wb_access_intervals_meet(known->times, when - 1, when + 1))
        return MIN(r, 0);
    return is_open_now(request, access, known);
}

int wb_past_perm_check_since(struct wb_past_perm *perm, const struct wb_request *request,
                             const struct wb_past_perm_query *access, int64_t first, int64_t when)
{
    struct known *known;
    int r;

    if (!perm)
        return 1;
    r = look_up(perm, request, access, when, &known);
    if (r < 0 || !known->times || !wb_access_intervals_hold(known->times, first))
        return MIN(r, 0);
    return is_open_now(request, access, known);
}

/* ---- a directory that lost an object ------------------------------------------------------------ */

static int searched(void *data, struct wb_revision *revision)
{
    const struct ask *ask = data;
    int r = 0;

    for (; r == 0 && revision; revision = wb_revision_parent(revision))
        r = wb_past_could_then(ask->request->session, ask->request->req, revision, X_OK);
    return r;
}

static int learn_searched(struct wb_past_perm *perm, const struct wb_request *request, struct wb_revision *last,
                          struct known **ret)
{
    struct ask ask = {request, X_OK};
    struct wb_access_intervals *times = NULL;
    struct known *known;
    int r = wb_access_intervals_new(request->session->history, last, searched, &ask, perm->memo, &times);

    if (r < 0)
        return r;
    known = g_new(struct known, 1);
    *known = (struct known){.key = {wb_revision_object(last), SEARCHED},
                            .times = times,
                            .revision = wb_revision_ref(last),
                            .until = wb_revision_when(last)};
    keep(perm, known);
    *ret = known;
    return 0;
}

int wb_past_perm_could_search(struct wb_past_perm *perm, const struct wb_request *request, struct wb_revision *last,
                          int64_t when)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct key key = {wb_revision_object(last), SEARCHED};
    struct ask ask = {request, X_OK};
    struct known *known;
    int r = 0;

    if (!perm)
        return 1;
    renew(perm, wb_revision_when(last));
    known = g_hash_table_lookup(perm->known, &key);
    if (!known || known->until < when)
        r = learn_searched(perm, request, last, &known);
    if (r < 0 && r != -EIO && r != -ENOENT && r != -ENOTDIR)
        return r;
    if (r == 0 && wb_access_intervals_know(known->times, when))
        return wb_access_intervals_meet(known->times, when, when + 1);
    /* Unknown: ask about that moment alone. */
    r = wb_lookback_dir(request->session->history, key.object, when, &dir);
    if (r == 0)
        r = searched(&ask, dir);
    return r == 0 ? 1 : r == -EACCES ? 0 : r;
}
