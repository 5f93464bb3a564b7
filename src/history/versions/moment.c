/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parses the text after an '@': a time, or the name of a snapshot, which is an instant with a name.
 */
#include "history/history.h"

#include "history/internal.h"
#include "store/tables/snapshots.h"
#include "wayback/at_name.h"
#include "wayback/when.h"

/* The newest snapshot of the second that begins at `second`; else that instant itself. */
static int64_t within_second(const struct wb_snapshots *all, int64_t second)
{
    for (size_t i = all->count; i-- > 0 && all->list[i].when >= second;)
        if (all->list[i].when < second + WB_WHEN_SECOND)
            return all->list[i].when;
    return second;
}

int wb_history_time(struct wb_history *history, const char *text, int64_t now, unsigned nth, struct wb_time *ret,
                    struct wb_object *ret_scope)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    const struct wb_snapshot *snapshot;
    bool is_time;
    int r;

    *ret_scope = WB_OBJECT_NONE;
    is_time = wb_time_parse(text, now, ret) == 0;
    if (is_time && nth > 0)
        return WB_NOT_TIME;
    if (is_time && !ret->truncated)
        return 0;
    r = wb_snapshots_get(history->store, &all);
    if (r < 0)
        return wb_history_fail(r, "cannot read the snapshots: %s", g_strerror(-r));
    if (is_time) {
        ret->instant = within_second(all, ret->instant);
        return 0;
    }
    snapshot = wb_snapshots_find(all, text, nth);
    if (!snapshot)
        return WB_NOT_TIME;
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .instant = snapshot->when};
    *ret_scope = snapshot->scope;
    return 0;
}

bool wb_revision_is_within(const struct wb_revision *revision, struct wb_object scope)
{
    bool within = wb_object_is_none(scope);

    for (; !within && revision; revision = revision->parent)
        within = wb_object_equal(revision->object, scope);
    return within;
}

int wb_history_parse_entry(struct wb_history *history, const char *entry, int64_t now, unsigned nth, size_t *ret_base,
                           struct wb_time *ret, struct wb_object *ret_scope)
{
    const char *time = NULL;
    int r = WB_NOT_TIME;

    while (r == WB_NOT_TIME && (time = wb_at_split(entry, history->at_sign, time)))
        r = wb_history_time(history, time, now, nth, ret, ret_scope);
    if (r == 0)
        *ret_base = (size_t)(time - 1 - entry);
    return r;
}

int wb_history_at(struct wb_history *history, struct wb_revision *dir, const char *entry, struct wb_revision **ret)
{
    int r = WB_ABSENT;

    for (unsigned nth = 0; r == WB_ABSENT; nth++) {
        g_autofree char *base = NULL;
        struct wb_object scope;
        struct wb_time time;
        size_t length;

        r = wb_history_parse_entry(history, entry, wb_store_now(history->store), nth, &length, &time, &scope);
        if (r != 0)
            return r == WB_NOT_TIME ? WB_ABSENT : r;
        base = g_strndup(entry, length);
        r = wb_revision_at(history, dir, base, &time, scope, ret);
        if (wb_object_is_none(scope))
            break;
    }
    return r;
}
