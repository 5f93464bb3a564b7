/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which names go together. One pass reads and writes each catalog once, for all of them; but it has to be finished,
 * after a crash, by any of them that is asked for again. So none may be in a directory that the others erase:
 * those wait for a pass of their own, when what they were in is gone, and mostly they with it. And a failure is told
 * by the name that it is of: where a pass fails, each goes by itself.
 */
#include "maintain/erase/erase.h"

#include "capture/capture.h"
#include "maintain/erase/erase_set.h"
#include <errno.h>
#include <string.h>

struct job {
    struct wb_history *history;
    unsigned flags;
    int64_t before;
    uid_t by;
};

/* ---- the set --------------------------------------------------------------------------------- */

static int gather(const struct job *job, GPtrArray *names, struct wb_erasure *erasure)
{
    wb_erasure_init(erasure, job->history, job->flags);
    erasure->before = job->before;
    for (guint i = 0; i < names->len;) {
        struct wb_erase_name *name = names->pdata[i];

        name->result = wb_erasure_add(erasure, name->dir, name->name);
        if (name->result == 0)
            i++;
        else
            g_ptr_array_remove_index(names, i);
    }
    return wb_erasure_gather(erasure);
}

/* The names of the set, and only these, are those that were not refused. */
static void take_refused(const struct wb_erasure *erasure, GPtrArray *names)
{
    for (guint i = names->len; i-- > 0;) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];
        struct wb_erase_name *name = names->pdata[i];

        name->result = target->refused;
        if (target->refused == -ENOENT && name->late)
            name->result = 0;
        if (target->refused < 0)
            g_ptr_array_remove_index(names, i);
    }
}

/* Those that are in what others of them erase wait. False: there are none. */
static bool put_aside(const struct wb_erasure *erasure, GPtrArray *names, GPtrArray *later)
{
    guint had = names->len;

    for (guint i = names->len, at = erasure->targets->len; i-- > 0 && names->len > 1;) {
        struct wb_erase_name *name = names->pdata[i];
        const struct wb_doomed *dir = wb_erasure_find(erasure, wb_spot_object(name->dir));
        const struct wb_erased_name *target;

        /* Refused ones have left `names`. */
        do
            target = erasure->targets->pdata[--at];
        while (target->refused < 0);
        if (!dir || dir->doom != WB_DOOM_PAST)
            continue;
        name->late = true;
        name->count.objects = target->objects;
        g_ptr_array_insert(later, 0, name);
        g_ptr_array_remove_index(names, i);
    }
    return names->len < had;
}

static int permit_one(const struct job *job, struct wb_erase_name *name)
{
    g_autoptr(GPtrArray) one = g_ptr_array_new();
    struct wb_erasure erasure;
    int r;

    g_ptr_array_add(one, name);
    r = gather(job, one, &erasure);
    if (r >= 0)
        r = wb_erasure_permit(&erasure, job->by);
    wb_erasure_deinit(&erasure);
    return r;
}

/* Those leave of which not all is the caller's. */
static void sort_out(const struct job *job, GPtrArray *names)
{
    for (guint i = names->len; i-- > 0;) {
        struct wb_erase_name *name = names->pdata[i];

        name->result = permit_one(job, name);
        if (name->result < 0)
            g_ptr_array_remove_index(names, i);
    }
}

/* Gathers what goes together, in `erasure`, for the caller to deinit; what does not leaves `names`. 0 or -errno. */
static int choose(const struct job *job, GPtrArray *names, GPtrArray *later, struct wb_erasure *erasure)
{
    for (;;) {
        guint had;
        int r = gather(job, names, erasure);

        if (r < 0)
            return r;
        take_refused(erasure, names);
        if (!put_aside(erasure, names, later)) {
            r = wb_erasure_permit(erasure, job->by);
            if (r != -EPERM || names->len <= 1)
                return r;
            had = names->len;
            sort_out(job, names);
            if (names->len == had)
                return -EPERM;
        }
        wb_erasure_deinit(erasure);
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* "There is no such name before now" is told by the directory's catalog: made where there is none. */
static int ensure_catalog(struct wb_erasure *erasure, struct wb_spot *dir)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, TRUE, sizeof(struct wb_dir));
    struct wb_dir *dirs;
    int r = wb_store_has_log(erasure->store, wb_spot_object(dir), WB_FILE_CATALOG);

    if (r != 0)
        return r < 0 ? r : 0;
    for (struct wb_spot *at = dir; at; at = wb_spot_parent(at)) {
        struct wb_dir one = {.object = wb_spot_object(at), .name = wb_spot_name(at), .fd = -1};

        g_array_append_val(chain, one);
    }
    dirs = (struct wb_dir *)(void *)chain->data;
    for (guint i = 0; i + 1 < chain->len; i++)
        dirs[i].parent = &dirs[i + 1];
    return wb_capture_ensure_catalog(erasure->store, &dirs[0]);
}

static int ensure_catalogs(struct wb_erasure *erasure)
{
    int r = 0;

    for (guint i = 0; r >= 0 && i < erasure->targets->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];

        if (target->present && target->refused == 0)
            r = ensure_catalog(erasure, target->dir);
    }
    return r;
}

static int carry_out(struct wb_erasure *erasure)
{
    int r = erasure->before ? wb_erasure_settle_moment(erasure) : ensure_catalogs(erasure);

    if (r >= 0)
        r = wb_erasure_survey(erasure);
    if (r >= 0 && erasure->before)
        r = wb_erasure_see(erasure);
    return r < 0 ? r : wb_erasure_carry_out(erasure);
}

/* What went by each name that is in the set still, also if not all of it did. */
static void give_counts(const struct wb_erasure *erasure, GPtrArray *names)
{
    for (guint i = 0, at = 0; i < erasure->targets->len && at < names->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];
        struct wb_erase_name *name = names->pdata[at];

        if (target->refused < 0)
            continue;
        name->count.objects = MAX(name->count.objects, target->objects);
        name->count.bytes += erasure->before ? target->bytes : target->freed.history;
        at++;
    }
}

/* 0, or -errno of all that are in `names` still. */
static int pass(const struct job *job, GPtrArray *names, GPtrArray *later)
{
    struct wb_store *store = wb_history_store(job->history);
    struct wb_erasure erasure;
    int r;

    if (!store->writable)
        return -EROFS;
    r = choose(job, names, later, &erasure);
    /* A compaction under way would bring back what is forgotten: it gives up. */
    wb_rewriting_own(store);
    if (r >= 0 && names->len > 0 && !job->before)
        r = wb_erasure_measure(&erasure);
    if (r >= 0 && names->len > 0) {
        /* Of what fails from here on, some may be gone when it is gone on with. */
        for (guint i = 0; i < names->len; i++)
            ((struct wb_erase_name *)names->pdata[i])->late = true;
        r = carry_out(&erasure);
        give_counts(&erasure, names);
    }
    wb_log_chunks_forget();
    pthread_mutex_unlock(&store->rewriting);
    wb_erasure_deinit(&erasure);
    return r;
}

static void set_results(GPtrArray *names, int r)
{
    for (guint i = 0; i < names->len; i++)
        ((struct wb_erase_name *)names->pdata[i])->result = MIN(r, 0);
}

static void each_alone(const struct job *job, GPtrArray *names)
{
    for (guint i = 0; i < names->len; i++) {
        g_autoptr(GPtrArray) one = g_ptr_array_new();
        int r;

        g_ptr_array_add(one, names->pdata[i]);
        r = pass(job, one, NULL);
        set_results(one, r);
    }
}

static void erase_all(const struct job *job, GPtrArray *names)
{
    g_autoptr(GPtrArray) left = g_ptr_array_ref(names);

    while (left->len > 0) {
        GPtrArray *later = g_ptr_array_new();
        int r = pass(job, left, later);

        if (r < 0 && left->len > 1)
            each_alone(job, left);
        else
            set_results(left, r);
        g_ptr_array_unref(left);
        left = later;
    }
}

/* ---- names asked for -------------------------------------------------------------------------- */

int wb_erase_tell(struct wb_problem *why, int r, const char *name)
{
    switch (r) {
    case -ENOENT:
        return wb_problem_set(why, r, "%s: no history of this name", name);
    case -EPERM:
        return wb_problem_set(why, r, "%s: part of its history belongs to other users", name);
    case -EISDIR:
        return wb_problem_set(why, r, "%s: is a directory; -r erases it with everything that ever was in it", name);
    case -EEXIST:
        return wb_problem_set(why, r, "%s: exists again, so nothing was erased; remove it first", name);
    case -EROFS:
        return wb_problem_set(why, r, "%s: the history is read-only here", name);
    case -EUCLEAN:
        return wb_problem_set(why, r, "%s: nothing was erased (a catalog is damaged, so the history that newer states "
                              "need is unknown); run vfsck", name);
    default:
        return wb_problem_set(why, r, "%s: not erased completely: %s; run this again to finish", name,
                              strerror(-r));
    }
}

void wb_erase_names(struct wb_history *history, struct wb_erase_name *names, size_t count, unsigned flags, uid_t by)
{
    struct job job = {.history = history, .flags = flags, .by = by};
    g_autoptr(GPtrArray) all = g_ptr_array_new();

    for (size_t i = 0; i < count; i++) {
        if (*names[i].name && strlen(names[i].name) <= WB_NAME_MAX)
            g_ptr_array_add(all, &names[i]);
        else
            names[i].result = -EINVAL;
    }
    erase_all(&job, all);
}

int wb_erase(struct wb_history *history, struct wb_spot *dir, const char *name, unsigned flags, int64_t before,
             uid_t by, struct wb_erase_count *ret, struct wb_problem *why)
{
    struct wb_erase_name one = {.dir = dir, .name = name};
    struct job job = {history, flags, before, by};
    g_autoptr(GPtrArray) names = g_ptr_array_new();

    if (!*name || strlen(name) > WB_NAME_MAX)
        return wb_problem_set(why, -EINVAL, "not a name whose history can be erased: \"%s\"", name);
    g_ptr_array_add(names, &one);
    erase_all(&job, names);
    if (ret)
        *ret = one.count;
    return one.result < 0 ? wb_erase_tell(why, one.result, name) : 0;
}

int wb_erase_measure(struct wb_history *history, struct wb_spot *dir, const char *name, uid_t by,
                     struct wb_erase_freed *ret)
{
    struct wb_erasure erasure;
    const struct wb_erased_name *target;
    int r;

    wb_erasure_init(&erasure, history, WB_ERASE_RECURSIVE);
    erasure.measured = true;
    r = wb_erasure_add(&erasure, dir, name);
    if (r == 0)
        r = wb_erasure_gather(&erasure);
    if (r >= 0) {
        target = erasure.targets->pdata[0];
        r = target->refused < 0 ? target->refused : wb_erasure_permit(&erasure, by);
    }
    if (r >= 0)
        r = wb_erasure_measure(&erasure);
    if (r >= 0)
        *ret = target->freed;
    wb_erasure_deinit(&erasure);
    return MIN(r, 0);
}

int wb_erase_permitted(struct wb_history *history, struct wb_spot *dir, const char *name, uid_t by)
{
    struct wb_erase_name one = {.dir = dir, .name = name};
    struct job job = {.history = history, .flags = WB_ERASE_RECURSIVE, .by = by};

    return by == 0 ? 0 : permit_one(&job, &one);
}
