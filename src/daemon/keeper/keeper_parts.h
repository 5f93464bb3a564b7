/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of the keeper share. */

#include "daemon/keeper/keeper.h"
#include "policy/clock.h"
#include "policy/keeper.h"
#include "store/tables/snapshots.h"

/* How much room there is, as it was found last. Monotonic times, in us. */
struct wb_keeper_room {
    uint64_t size;     /* of the history */
    uint64_t grown;    /* what wb_store_note_growth had come to when that was found */
    uint64_t free;     /* on the device, when that was found */
    int64_t measured;  /* 0: not yet */
    int64_t took;      /* to find out */
    double rate;       /* the history grew by so many bytes a second */
    int64_t went;      /* so long it took to forget the last time that room was made */
    int64_t gather_again; /* when it is found out next what a horizon gives back */
    uint64_t tried;    /* 1 + what wb_store_note_growth had come to when all was tried to no avail; 0: never */
    int64_t rests;     /* until then nothing is looked for, since nothing more was there that may go */
    bool all_went;     /* in this look: what no snapshot protects, up to the last moment that may go */
    bool warned_full;  /* more would have to go than may */
    bool warned_nearly; /* max-size is nearly reached */
    bool warned_hard;  /* protected history goes for it */
};

/* max-size: changes are held back while the history has grown (wb_store_note_growth) to more than this. */
struct wb_keeper_pace {
    _Atomic int64_t from, range; /* as long as may be when it is so much more; 0: none is */
};

/* user-max-size. Monotonic times, in us. */
struct wb_keeper_users {
    int64_t measured, took; /* 0: not yet */
    uint64_t freed;         /* bytes, by what was forgotten last */
    atomic_uint waiting;    /* requests */
    atomic_bool wanted;     /* one of them came */
};

struct wb_keeper {
    struct wb_session *session;
    pthread_t thread;
    atomic_bool ends;
    struct wb_policy policy, next; /* `next`: under threads->lock */
    struct wb_policy ageless;      /* `policy` without its rules, for a hard max-size */
    bool ages_give_way;            /* for the rest of this look, `ageless` applies */
    bool has_next, has_policy;
    struct wb_space_waiter *waiters; /* for room (onfull=prune), and moments that stay meanwhile; under threads->lock */
    atomic_bool pleaded;           /* some of them are not answered yet */
    bool full;                     /* one of them is being answered */
    int held_fd;                   /* room to make room with; -1: none (keeper_full.c) */
    int64_t warned_going;
    bool warned_refused;
    struct wb_clock clock;
    bool clock_noted;              /* in the store: that it is doubted */
    int64_t noted_insisted;        /* and for how long it had been */
    bool warned_clock;
    struct wb_keeper_room room;
    struct wb_keeper_pace pace;
    struct wb_keeper_users users;
    bool for_user;                 /* something goes for user-max-size */
    _Atomic uint64_t reclaimable;  /* bytes that go as soon as room is short; a figure of some time ago */
    int64_t limits_now;            /* from which ages count while what `beyond` protects is asked for */
    int64_t beyond;                /* up to where what nothing protects was forgotten beyond the horizon */
    int64_t warned_pinned;         /* the `when` of the snapshot that was reported */
    bool unfinished;               /* some history before the horizon is not deleted yet */
    bool failing;                  /* a failure was reported */
    bool holding;                  /* it was reported that versions are kept because a catalog is damaged */
    int64_t thin_again;            /* monotonic, us: when single versions are looked at next */
};

/* For wb_prune_options and wb_room_measure; `data`: the session (keeper_forget.c). */
bool wb_keeper_is_over(void *data);
/* The same for work at the lowest priority, which also ends when an operation waits for space. */
bool wb_keeper_gives_up(void *data);

/* The settings by which history goes now. */
static inline const struct wb_policy *wb_keeper_policy(const struct wb_keeper *keeper)
{
    return keeper->ages_give_way ? &keeper->ageless : &keeper->policy;
}

/*
 * Makes `horizon` the beginning, and forgets what nothing protects up to `beyond`, if that is not 0. `hurry`: not at
 * idle priority. 0 or -errno, which was reported.
 */
int wb_keeper_forget(struct wb_keeper *keeper, int64_t horizon, int64_t beyond, bool hurry);

/*
 * The same of the history of one user alone (maintain/usage/spent.h), up to `beyond`; nothing is published for it.
 */
struct wb_spent;
int wb_keeper_forget_of(struct wb_keeper *keeper, int64_t beyond, struct wb_spent *spent);

/* user-max-size (keeper_users.c): forgets what has to go; for how long there is nothing more to do, in ns. */
int64_t wb_keeper_look_at_users(struct wb_keeper *keeper);

/* The calling thread has the processor and the disk only when nobody else wants them. */
void wb_keeper_be_idle(void);

/* Reports a failure once, and again only after a success. */
void wb_keeper_report_failure(struct wb_keeper *keeper, int r);

/* Lets single versions go; for how long there is nothing more to do, in ns (keeper_thin.c). `hurry`: as above. */
int64_t wb_keeper_look_at_versions(struct wb_keeper *keeper, const struct wb_keeper_state *state, bool hurry);

/* Forgets what has to go for max-size and reserve; for how long there is nothing more to do, in ns (keeper_room.c). */
int64_t wb_keeper_look_at_room(struct wb_keeper *keeper, const struct wb_snapshots *all);

/*
 * Room is short and nothing else may go: the oldest snapshot of a user who is no keeper is deleted, if it holds what
 * may go otherwise, and the daemon says so. `why`: "max-size", ...; NULL: only whether there is one. 1; 0: there is
 * none; or -errno.
 */
int wb_keeper_take_snapshot(struct wb_keeper *keeper, const char *why);

/* The oldest moment that a waiting request has pinned (keeper_waiters.c); 0: none. `data`: the session. */
int64_t wb_keeper_pinned(void *data);
/* With threads->lock held: whether any request waits for an answer; answers those that were `seen`, or all. */
bool wb_keeper_has_waiters(const struct wb_keeper *keeper);
void wb_keeper_answer_waiters(struct wb_keeper *keeper, bool all, enum wb_space_waiter_state state);
/* With threads->lock held: refuses the request with the oldest pin, which protects the remaining history. Whether there
 * is one. */
bool wb_keeper_refuse_oldest_pin(struct wb_keeper *keeper);

/* Makes room for the requests that wait, and answers them (keeper_full.c). Called with threads->lock held, which it
 * releases meanwhile. */
void wb_keeper_answer(struct wb_keeper *keeper);

void wb_keeper_hold_room(struct wb_keeper *keeper);
void wb_keeper_hold_end(struct wb_keeper *keeper);

/* What time it is, for ages (keeper_clock.c). Before the first change of this mount, and from then on. */
void wb_keeper_clock_begin(struct wb_keeper *keeper);
int64_t wb_keeper_now(struct wb_keeper *keeper);
/* After the last one: what the next mount has to know. */
void wb_keeper_clock_end(struct wb_keeper *keeper);

/* What the state of the store allows now. */
void wb_keeper_plan(struct wb_keeper *keeper, const struct wb_snapshots *all, struct wb_keeper_state *state,
                    struct wb_keeper_plan *plan);
