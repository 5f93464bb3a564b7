/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/core/shares.h"

#include "daemon/core/dirfd.h"
#include "store/store.h"
#include <errno.h>
#include <glib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of what users may have, the part that is kept for root: one in so many. */
#define FOR_ROOT 8
/* Descriptors of requests under way, of the kernel's connection, of what is cloned ahead or was found lately. */
#define FDS_OWN 256
/* Bytes of listings for all users: more than three million names. */
#define MEMORY_FOR_USERS (UINT64_C(256) << 20)

struct wb_share_user {
    struct wb_share_user *next;
    uid_t uid;
    uint64_t used[WB_SHARE_KINDS];
};

struct wb_holder {
    struct wb_holder *next;
    uid_t uid;
    unsigned times;
};

static const int refusals[WB_SHARE_KINDS] = {
    [WB_SHARE_FDS] = -EMFILE,
    [WB_SHARE_MEMORY] = -ENOMEM,
};

/* What the limit leaves when the store and the requests have theirs, but half of it in any case. */
static uint64_t descriptors_for_users(void)
{
    uint64_t own = WB_LOGS_OPEN + WB_DIRFDS_MAX + FDS_OWN;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1024 / 2;
    if (limit.rlim_cur > 1024)
        own += WB_LOGS_OPEN_MAX;
    return MAX(limit.rlim_cur / 2, limit.rlim_cur > own ? limit.rlim_cur - own : 0);
}

void wb_shares_init(struct wb_shares *shares)
{
    pthread_mutex_init(&shares->lock, NULL);
    shares->kinds[WB_SHARE_FDS].all = descriptors_for_users();
    shares->kinds[WB_SHARE_MEMORY].all = MEMORY_FOR_USERS;
    for (unsigned i = 0; i < WB_SHARE_KINDS; i++)
        shares->kinds[i].all -= shares->kinds[i].all / FOR_ROOT;
}

void wb_shares_deinit(struct wb_shares *shares)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(shares->buckets); i++) {
        struct wb_share_user *next;

        for (struct wb_share_user *user = shares->buckets[i]; user; user = next) {
            next = user->next;
            g_free(user);
        }
    }
    pthread_mutex_destroy(&shares->lock);
}

/* ---- with the lock held ------------------------------------------------------------------------ */

static struct wb_share_user **find_user(struct wb_shares *shares, uid_t uid)
{
    struct wb_share_user **slot = &shares->buckets[(uid ^ uid >> 8) % G_N_ELEMENTS(shares->buckets)];

    while (*slot && (*slot)->uid != uid)
        slot = &(*slot)->next;
    return slot;
}

static int ask(struct wb_shares *shares, enum wb_share_kind kind, uid_t uid, uint64_t amount)
{
    const struct wb_share_user *user = *find_user(shares, uid);
    uint64_t all = shares->kinds[kind].all, used = shares->kinds[kind].used;

    if (uid == 0 || uid == geteuid())
        return 0;
    /* A directory is listed however large it is: of what a user has several of, one is always let through. */
    if (kind == WB_SHARE_MEMORY && (!user || user->used[kind] == 0))
        return 0;
    return used + amount > all || (user ? user->used[kind] : 0) + amount > all - used ? refusals[kind] : 0;
}

static int take(struct wb_shares *shares, enum wb_share_kind kind, uid_t uid, uint64_t amount)
{
    struct wb_share_user **slot = find_user(shares, uid);

    if (!*slot) {
        *slot = g_try_new0(struct wb_share_user, 1);
        if (!*slot)
            return -ENOMEM;
        (*slot)->uid = uid;
    }
    (*slot)->used[kind] += amount;
    shares->kinds[kind].used += amount;
    return 0;
}

/* Users who hold nothing are forgotten. */
static void give(struct wb_shares *shares, enum wb_share_kind kind, uid_t uid, uint64_t amount)
{
    struct wb_share_user **slot = find_user(shares, uid), *user = *slot;

    user->used[kind] -= amount;
    shares->kinds[kind].used -= amount;
    for (unsigned i = 0; i < WB_SHARE_KINDS; i++)
        if (user->used[i] > 0)
            return;
    *slot = user->next;
    g_free(user);
}

static struct wb_holder **find_holder(struct wb_holders *holders, uid_t uid)
{
    struct wb_holder **slot = &holders->first;

    while (*slot && (*slot)->uid != uid)
        slot = &(*slot)->next;
    return slot;
}

/* ---- from outside -------------------------------------------------------------------------------- */

int wb_shares_room(struct wb_shares *shares, enum wb_share_kind kind, uid_t uid, uint64_t amount)
{
    int r;

    pthread_mutex_lock(&shares->lock);
    r = ask(shares, kind, uid, amount);
    pthread_mutex_unlock(&shares->lock);
    return r;
}

int wb_shares_hold(struct wb_shares *shares, struct wb_holders *holders, enum wb_share_kind kind, uid_t uid,
                   uint64_t amount, bool asked)
{
    struct wb_holder **slot, *holder = NULL;
    int r = 0;

    pthread_mutex_lock(&shares->lock);
    slot = find_holder(holders, uid);
    if (!*slot) {
        r = asked ? 0 : ask(shares, kind, uid, amount);
        holder = r == 0 ? g_try_new0(struct wb_holder, 1) : NULL;
        if (r == 0)
            r = holder ? take(shares, kind, uid, amount) : -ENOMEM;
        if (r == 0) {
            holder->uid = uid;
            *slot = g_steal_pointer(&holder);
        }
    }
    if (r == 0)
        (*slot)->times++;
    pthread_mutex_unlock(&shares->lock);
    g_free(holder);
    return r;
}

void wb_shares_release(struct wb_shares *shares, struct wb_holders *holders, enum wb_share_kind kind, uid_t uid,
                       uint64_t amount)
{
    struct wb_holder **slot, *holder;

    pthread_mutex_lock(&shares->lock);
    slot = find_holder(holders, uid);
    holder = *slot;
    if (--holder->times == 0) {
        give(shares, kind, uid, amount);
        *slot = holder->next;
        g_free(holder);
    }
    pthread_mutex_unlock(&shares->lock);
}
