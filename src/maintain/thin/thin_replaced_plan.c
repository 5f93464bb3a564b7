/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which files go that were versions of a name. */
#include "maintain/thin/thin_replaced.h"

#include "maintain/prune/prune_parts.h"
#include "maintain/thin/thin_changes.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/*
 * What had a name of its own for longer, before it took another's, may be something that somebody looks for by that
 * name: a download, a draft. It goes by age alone.
 */
#define ASIDE_MOST (60 * WB_WHEN_SECOND)

struct planning {
    struct wb_thinner *thinner;
    struct wb_thin_saves *saves;
    struct wb_thin_plan *plan;
    GArray *pins;  /* of int64_t              */
    GArray *rules; /* of struct wb_retention  */
    /* Of one name, oldest first: what showed, and of which save that is a version (a guint, NOBODY). */
    GArray *shown, *owners;
};
#define NOBODY G_MAXUINT

static struct wb_thin_save *save_at(const struct planning *planning, guint index)
{
    return &g_array_index(planning->saves->list, struct wb_thin_save, index);
}

static bool is_pinned(const struct planning *planning, int64_t from, int64_t until)
{
    for (guint i = 0; i < planning->pins->len; i++)
        if (g_array_index(planning->pins, int64_t, i) >= from && g_array_index(planning->pins, int64_t, i) < until)
            return true;
    return false;
}

/* ---- the save itself ------------------------------------------------------------------------- */

/* In the graveyard only, and used by nobody: 1 and *ret, 0 or -errno. */
static int find_body(const struct wb_thinner *thinner, struct wb_object object, struct wb_prune_body *ret)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    wb_object_path(object, WB_FILE_DATA, path);
    if (thinner->store->grave_fd < 0)
        return 0;
    if (fstatat(thinner->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = (struct wb_prune_body){.object = object, .ctime = st.st_ctim};
    return S_ISREG(st.st_mode) && st.st_nlink == 1 &&
           !(thinner->options.in_use && thinner->options.in_use(thinner->options.data, object));
}

static void show(struct planning *planning, int64_t from, int64_t until, guint owner)
{
    g_array_append_val(planning->shown, ((struct wb_shown){from, until}));
    g_array_append_val(planning->owners, owner);
}

/* Its versions, while it had the name, are shown. 1: it may go, as far as its changes tell; 0 or -errno. */
static int show_versions(struct planning *planning, guint index)
{
    const struct wb_thin_save *save = save_at(planning, index);
    struct wb_thin_changes changes;
    int64_t from = save->took;
    bool may;
    int r;

    wb_thin_changes_init(&changes, save->object);
    r = wb_thin_changes_read(&changes, &planning->thinner->told);
    may = (r == 0 || r == -ENOENT) && !changes.lost;
    for (guint i = 0; i < changes.list->len; i++) {
        const struct wb_thin_change *change = &g_array_index(changes.list, struct wb_thin_change, i);

        if (change->last <= save->took || change->first >= save->lost)
            continue;
        may &= change->first > save->took && change->last < save->lost;
        /* Until the one before it is removed, it is being saved: that is no version by itself. */
        if (save->in_place && change->last < save->before_removed)
            continue;
        if (change->first > from)
            show(planning, from, change->first, index);
        from = MAX(from, change->last);
    }
    if (from < save->lost)
        show(planning, from, save->lost, index);
    wb_thin_changes_deinit(&changes);
    return r < 0 && r != -ENOENT && r != -EBADMSG ? r : may;
}

/* When the first and the last of what makes it a save was done. */
static int64_t first_of(const struct wb_thin_save *save)
{
    return MIN(save->born, save->took);
}

static int64_t last_of(const struct wb_thin_save *save)
{
    return save->moved ? save->removed : save->lost;
}

/* What was there before may have been left where it was moved to, for somebody to find. */
static bool is_brief(const struct wb_thin_save *save)
{
    return save->took - save->born <= ASIDE_MOST && last_of(save) - save->lost <= ASIDE_MOST &&
           (!save->in_place ||
            (save->before_removed < save->lost && save->before_removed - save->took <= ASIDE_MOST));
}

/* Whether all that is told of it is known here, and of a time that may be forgotten. */
static bool is_known(const struct planning *planning, const struct wb_thin_save *save)
{
    struct wb_thinner *thinner = planning->thinner;
    struct wb_object dir = planning->saves->dir;
    guint moments;

    wb_thin_told_of(&thinner->told, save->object, &moments);
    return moments == save->told + save->named && last_of(save) < thinner->settled &&
           first_of(save) > wb_store_horizon(thinner->store) && is_brief(save) &&
           !is_pinned(planning, save->born, save->took) && !is_pinned(planning, save->lost, last_of(save)) &&
           !wb_thin_told_lacks(&thinner->told, dir, dir, first_of(save), last_of(save));
}

/* ---- what it replaced ------------------------------------------------------------------------ */

/* Whether nothing was changed in (from, until], but that it was `removed` (0: it was not). 1, 0 or -errno. */
static int is_quiet(struct planning *planning, struct wb_object object, int64_t from, int64_t until, int64_t removed)
{
    struct wb_thin_changes changes;
    bool quiet;
    int r;

    wb_thin_changes_init(&changes, object);
    r = wb_thin_changes_read(&changes, &planning->thinner->told);
    quiet = r == 0 || r == -ENOENT;
    for (guint i = 0; quiet && i < changes.list->len; i++) {
        const struct wb_thin_change *change = &g_array_index(changes.list, struct wb_thin_change, i);

        quiet = change->last <= from || change->first > until || (change->first == removed && change->last == removed);
    }
    wb_thin_changes_deinit(&changes);
    return r < 0 && r != -ENOENT && r != -EBADMSG ? r : quiet;
}

/* Saves [newest, oldest] of the list, all of which may go. 0 or -errno. */
static int plan_run(struct planning *planning, guint newest, guint oldest)
{
    const struct wb_thin_save *first = save_at(planning, oldest), *last = save_at(planning, newest);
    GArray *bodies = planning->plan->bodies;
    struct wb_thin_run run = {first->before, first->took, last->lost, bodies->len, oldest - newest + 1, false};
    int r = is_quiet(planning, run.before, run.took, last_of(last), first->in_place ? first->before_removed : 0);

    for (guint i = newest; r > 0 && i <= oldest; i++) {
        struct wb_prune_body body;

        r = find_body(planning->thinner, save_at(planning, i)->object, &body);
        if (r > 0)
            g_array_append_val(bodies, body);
    }
    /* Of some, somebody makes use by now. */
    if (r <= 0)
        g_array_set_size(bodies, run.first);
    else
        g_array_append_val(planning->plan->runs, run);
    return MIN(r, 0);
}

/* ---- one name -------------------------------------------------------------------------------- */

static int take_rule(void *data, const char *path)
{
    struct planning *planning = data;

    return wb_thinner_rule(planning->thinner, path, planning->rules);
}

/* 0; 1: all of the name stays; or -errno. */
static int find_rules(struct planning *planning, const char *name)
{
    struct wb_thinner *thinner = planning->thinner;
    const struct wb_thin_options *options = &thinner->options;

    g_array_set_size(planning->rules, 0);
    if (!wb_object_is_none(options->only) &&
        (!wb_object_equal(options->only_dir, planning->saves->dir) || g_strcmp0(options->only_name, name) != 0))
        return 1;
    if (options->rule)
        return wb_thin_names_one(&thinner->told.names, planning->saves->dir, name, take_rule, planning);
    g_array_append_val(planning->rules, options->retention);
    return 0;
}

/* Each of [newest, oldest] that nothing wants `goes`. 0 or -errno. */
static int decide(struct planning *planning, guint newest, guint oldest)
{
    g_autofree bool *stays = NULL;
    int r = 0;

    g_array_set_size(planning->shown, 0);
    g_array_set_size(planning->owners, 0);
    show(planning, 0, save_at(planning, oldest)->took, NOBODY);
    for (guint i = oldest + 1; r >= 0 && i-- > newest;) {
        struct wb_thin_save *save = save_at(planning, i);
        struct wb_prune_body body;

        r = show_versions(planning, i);
        save->goes = r > 0 && is_known(planning, save);
        if (save->goes) {
            r = find_body(planning->thinner, save->object, &body);
            save->goes = r > 0;
        }
    }
    if (r < 0)
        return r;
    show(planning, save_at(planning, newest)->lost, WB_WHEN_PRESENT, NOBODY);
    stays = g_try_new0(bool, planning->shown->len);
    if (!stays)
        return -ENOMEM;
    r = wb_thinner_decide(planning->thinner, planning->rules,
                          (const struct wb_shown *)(const void *)planning->shown->data, planning->shown->len, stays);
    for (guint i = 0; r == 0 && i < planning->shown->len; i++)
        if (stays[i] && g_array_index(planning->owners, guint, i) != NOBODY)
            save_at(planning, g_array_index(planning->owners, guint, i))->goes = false;
    return r;
}

/* Saves that follow each other at one name. */
static int plan_name(struct planning *planning, guint newest, guint oldest)
{
    guint runs = planning->plan->runs->len;
    int r = find_rules(planning, save_at(planning, newest)->name);

    if (r == 0)
        r = decide(planning, newest, oldest);
    if (r != 0)
        return MIN(r, 0);
    for (guint i = newest, end; r == 0 && i <= oldest; i = end) {
        for (end = i; end <= oldest && save_at(planning, end)->goes;)
            end++;
        if (end > i)
            r = plan_run(planning, i, end - 1);
        end += end == i;
    }
    planning->plan->names += planning->plan->runs->len > runs;
    return r;
}

int wb_thin_plan(struct wb_thinner *thinner, struct wb_thin_saves *saves, struct wb_thin_plan *plan)
{
    struct planning planning = {.thinner = thinner, .saves = saves, .plan = plan,
                                .pins = g_array_new(FALSE, FALSE, sizeof(int64_t)),
                                .rules = g_array_new(FALSE, FALSE, sizeof(struct wb_retention)),
                                .shown = g_array_new(FALSE, FALSE, sizeof(struct wb_shown)),
                                .owners = g_array_new(FALSE, FALSE, sizeof(guint))};
    int r = wb_thinner_pins(thinner, planning.pins);

    for (guint i = 0, end; r == 0 && i < saves->list->len; i = end) {
        for (end = i + 1; end < saves->list->len; end++) {
            const struct wb_thin_save *newer = save_at(&planning, end - 1), *older = save_at(&planning, end);

            if (newer->name != older->name || newer->took_at != older->lost_at)
                break;
        }
        if (thinner->options.stop(thinner->options.data))
            r = -ECANCELED;
        else
            r = plan_name(&planning, i, end - 1);
    }
    g_array_unref(planning.pins);
    g_array_unref(planning.rules);
    g_array_unref(planning.shown);
    g_array_unref(planning.owners);
    return r;
}
