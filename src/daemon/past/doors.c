/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/past/doors.h"

#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "history/locate/lookback.h"
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

/* Beside R_OK and X_OK: asked by wb_doors_could_search. */
#define SEARCHED 8

struct key {
    struct wb_object object;
    int mask;
};

struct known {
    struct key key;
    struct wb_open_times *times; /* NULL: it was not found */
    int64_t until;               /* what `times` covers */
    struct wb_spot *spot;        /* as it was found */
    int64_t asked_now;           /* when `now` was found out, monotonic */
    bool now;
};

struct wb_doors {
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

    wb_open_times_free(known->times);
    wb_spot_unref(known->spot);
    g_free(known);
}

static void doors_free(struct wb_doors *doors)
{
    g_hash_table_unref(doors->known);
    wb_rights_memo_free(doors->memo);
    g_free(doors);
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

struct wb_doors *wb_doors_take(const struct wb_request *request)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(request->req);
    struct wb_past *past = request->session->past;
    struct wb_doors *doors = NULL;
    GQueue stale = G_QUEUE_INIT;
    int64_t now = g_get_monotonic_time();

    if (ctx->uid == 0)
        return NULL;
    pthread_mutex_lock(&past->lock);
    for (GList *link = past->doors.head, *next; link; link = next) {
        struct wb_doors *kept = link->data;

        next = link->next;
        if (now - kept->used > KEPT_IDLE || kept->generation != past->generation)
            g_queue_push_tail(&stale, kept);
        else if (!doors && kept->uid == ctx->uid && kept->gid == ctx->gid && kept->pid == (uint32_t)ctx->pid)
            doors = kept;
        else
            continue;
        g_queue_delete_link(&past->doors, link);
    }
    pthread_mutex_unlock(&past->lock);
    for (struct wb_doors *old; (old = g_queue_pop_head(&stale));)
        doors_free(old);
    if (!doors) {
        doors = g_new(struct wb_doors, 1);
        *doors = (struct wb_doors){.uid = ctx->uid, .gid = ctx->gid, .pid = (uint32_t)ctx->pid,
                                   .generation = generation_of(past), .newest = INT64_MIN};
        doors->known = g_hash_table_new_full(key_hash, key_equal, NULL, known_free);
        doors->memo = wb_rights_memo_new();
    }
    return doors;
}

void wb_doors_give(const struct wb_request *request, struct wb_doors *doors)
{
    struct wb_past *past = request->session->past;
    struct wb_doors *oldest = NULL;

    if (!doors)
        return;
    doors->used = g_get_monotonic_time();
    pthread_mutex_lock(&past->lock);
    g_queue_push_tail(&past->doors, doors);
    if (past->doors.length > KEPT_MAX)
        oldest = g_queue_pop_head(&past->doors);
    pthread_mutex_unlock(&past->lock);
    if (oldest)
        doors_free(oldest);
}

void wb_doors_drop(struct wb_session *session)
{
    struct wb_past *past = session->past;
    struct wb_doors *doors;

    do {
        pthread_mutex_lock(&past->lock);
        doors = g_queue_pop_head(&past->doors);
        pthread_mutex_unlock(&past->lock);
        if (doors)
            doors_free(doors);
    } while (doors);
}

/* ---- one door ---------------------------------------------------------------------------------- */

struct ask {
    const struct wb_request *request;
    int mask;
};

static int could(void *data, struct wb_spot *spot)
{
    const struct ask *ask = data;
    struct wb_session *session = ask->request->session;
    fuse_req_t req = ask->request->req;
    struct wb_attrs attrs;
    int r = wb_spot_attrs(session->history, spot, &attrs);

    if (r != 0)
        return r < 0 ? r : -EIO;
    r = attrs.uid == fuse_req_ctx(req)->uid ? 0 : wb_past_could_then(session, req, spot, ask->mask);
    for (spot = wb_spot_parent(spot); r == 0 && spot; spot = wb_spot_parent(spot))
        r = wb_past_could_then(session, req, spot, X_OK);
    return r;
}

/* What is behind the door, as it was at `when`. 0, WB_ABSENT or -errno. */
static int find_at(const struct wb_request *request, const struct wb_door *door, int64_t when, struct wb_spot **ret)
{
    struct wb_history *history = request->session->history;
    struct wb_spot *dir __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r;

    if (door->hint && wb_object_equal(wb_spot_object(door->hint), door->dir))
        r = wb_spot_shift(history, door->hint, when, &dir);
    else
        r = wb_lookback_dir(history, door->dir, when, &dir);
    if (r == 0 && door->name) {
        r = wb_spot_child(history, dir, door->name, &spot);
        if (r == 0 && !wb_object_equal(wb_spot_object(spot), door->object))
            r = WB_ABSENT;
    }
    if (r == 0)
        *ret = spot ? g_steal_pointer(&spot) : g_steal_pointer(&dir);
    return r;
}

static int find(const struct wb_request *request, const struct wb_door *door, int64_t when, struct wb_spot **ret)
{
    int r = find_at(request, door, when, ret);

    return r == 0 ? r : find_at(request, door, when - 1, ret); /* the change took it away */
}

/* It may change at any time; within NOW_LASTS the answer counts as the same moment's. */
static int ask_now(const struct wb_request *request, struct known *known)
{
    int64_t now = g_get_monotonic_time();
    int r;

    if (known->asked_now != 0 && now - known->asked_now < NOW_LASTS)
        return 0;
    r = wb_past_owns(request->session, request->req, known->spot);
    r = r == 1 ? 0 : r < 0 ? r : wb_past_may_now(request->session, request->req, known->spot, known->key.mask);
    if (r < 0 && r != -EACCES && r != -EPERM && r != -EIO && r != -ENOENT)
        return r;
    known->now = r == 0;
    known->asked_now = now;
    return 0;
}

static void keep(struct wb_doors *doors, struct known *known)
{
    if (g_hash_table_size(doors->known) >= DOORS_MAX)
        g_hash_table_remove_all(doors->known);
    g_hash_table_replace(doors->known, &known->key, known);
}

static int learn(const struct wb_request *request, struct wb_doors *doors, const struct wb_door *door, int64_t when,
                 const struct key *key, struct known **ret)
{
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct ask ask = {request, door->mask};
    struct wb_open_times *times = NULL;
    struct known *known;
    int r = find(request, door, when, &spot);

    if (r == 0)
        r = wb_open_times_new(request->session->history, spot, could, &ask, doors->memo, &times);
    if (r < 0 && r != -EIO && r != -ENOENT && r != -ENOTDIR)
        return r;
    known = g_new(struct known, 1);
    *known = (struct known){.key = *key, .times = times, .spot = g_steal_pointer(&spot), .until = when};
    /* Perhaps it can be found by another name, or at another time. */
    keep(doors, known);
    *ret = known;
    return 0;
}

/* Rights may have changed since the last answers. */
static void renew(struct wb_doors *doors, int64_t when)
{
    if (when <= doors->newest)
        return;
    g_hash_table_remove_all(doors->known);
    wb_rights_memo_free(doors->memo);
    doors->memo = wb_rights_memo_new();
    doors->newest = when;
}

/* What is known of it up to `when`; its `times` are NULL where nothing is. 0 or -errno. */
static int look_up(struct wb_doors *doors, const struct wb_request *request, const struct wb_door *door, int64_t when,
                   struct known **ret)
{
    struct key key = {door->name ? door->object : door->dir, door->mask};
    int r = 0;

    renew(doors, when);
    *ret = g_hash_table_lookup(doors->known, &key);
    if (!*ret || !(*ret)->times || when > (*ret)->until)
        r = learn(request, doors, door, when, &key, ret);
    return r;
}

static int is_open_now(const struct wb_request *request, const struct wb_door *door, struct known *known)
{
    int r = door->now ? ask_now(request, known) : 0;

    return r < 0 ? r : !door->now || known->now;
}

int wb_doors_open(struct wb_doors *doors, const struct wb_request *request, const struct wb_door *door, int64_t when)
{
    struct known *known;
    int r;

    if (!doors)
        return 1;
    if (wb_object_is_none(door->name ? door->object : door->dir))
        return 0;
    r = look_up(doors, request, door, when, &known);
    if (r < 0 || !known->times || !wb_open_times_meet(known->times, when - 1, when + 1))
        return MIN(r, 0);
    return is_open_now(request, door, known);
}

int wb_doors_hold(struct wb_doors *doors, const struct wb_request *request, const struct wb_door *door, int64_t first,
                  int64_t when)
{
    struct known *known;
    int r;

    if (!doors)
        return 1;
    r = look_up(doors, request, door, when, &known);
    if (r < 0 || !known->times || !wb_open_times_hold(known->times, first))
        return MIN(r, 0);
    return is_open_now(request, door, known);
}

/* ---- a directory that lost an object ------------------------------------------------------------ */

static int searched(void *data, struct wb_spot *spot)
{
    const struct ask *ask = data;
    int r = 0;

    for (; r == 0 && spot; spot = wb_spot_parent(spot))
        r = wb_past_could_then(ask->request->session, ask->request->req, spot, X_OK);
    return r;
}

static int learn_searched(struct wb_doors *doors, const struct wb_request *request, struct wb_spot *last,
                          struct known **ret)
{
    struct ask ask = {request, X_OK};
    struct wb_open_times *times = NULL;
    struct known *known;
    int r = wb_open_times_new(request->session->history, last, searched, &ask, doors->memo, &times);

    if (r < 0)
        return r;
    known = g_new(struct known, 1);
    *known = (struct known){.key = {wb_spot_object(last), SEARCHED}, .times = times, .spot = wb_spot_ref(last),
                            .until = wb_spot_when(last)};
    keep(doors, known);
    *ret = known;
    return 0;
}

int wb_doors_could_search(struct wb_doors *doors, const struct wb_request *request, struct wb_spot *last, int64_t when)
{
    struct wb_spot *dir __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct key key = {wb_spot_object(last), SEARCHED};
    struct ask ask = {request, X_OK};
    struct known *known;
    int r = 0;

    if (!doors)
        return 1;
    renew(doors, wb_spot_when(last));
    known = g_hash_table_lookup(doors->known, &key);
    if (!known || known->until < when)
        r = learn_searched(doors, request, last, &known);
    if (r < 0 && r != -EIO && r != -ENOENT && r != -ENOTDIR)
        return r;
    if (r == 0 && wb_open_times_know(known->times, when))
        return wb_open_times_meet(known->times, when, when + 1);
    /* Unknown: ask about that moment alone. */
    r = wb_lookback_dir(request->session->history, key.object, when, &dir);
    if (r == 0)
        r = searched(&ask, dir);
    return r == 0 ? 1 : r == -EACCES ? 0 : r;
}
