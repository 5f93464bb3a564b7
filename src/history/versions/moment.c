/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Parses the text after an '@': a time, or the name of a snapshot, which is an instant with a name.
 */
#include "history/history.h"

#include "history/internal.h"
#include "history/state/path.h"
#include "store/tables/snapshots.h"
#include "wayback/at_name.h"
#include "wayback/when.h"
#include <errno.h>

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
    if (!snapshot && nth == 0 && wb_time_parse_name(text, now, ret) == 0) {
        ret->relative = 1; /* a snapshot that is created later may have this name */
        return 0;
    }
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

/*
 * Resolves "base@TIME" inside a directory.
 */

/* Whether changes may still be recorded at or before `when`. The clock may have been set back since the last one. */
static bool is_future(struct wb_store *store, int64_t when)
{
    return when > wb_when_now() && when > (store->writable ? wb_store_tick(store) : wb_store_now(store));
}

/* `base` in `then`, or `then` itself, if that is within the scope: 0, WB_ABSENT or -errno. */
static int entry_of(struct wb_history *history, struct wb_revision *then, const char *base, struct wb_object scope,
                    struct wb_revision **ret)
{
    struct wb_revision *found __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = 0;

    if (*base)
        r = wb_revision_child(history, then, base, &found);
    else
        found = wb_revision_ref(then);
    if (r == 0 && !wb_revision_is_within(found, scope))
        r = WB_ABSENT;
    if (r == 0)
        *ret = g_steal_pointer(&found);
    return r;
}

static int at_instant(struct wb_history *history, struct wb_revision *dir, const char *base, int64_t when,
                      struct wb_object scope, struct wb_revision **ret)
{
    struct wb_revision *then __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *other __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r;

    /* The future is not known, and an answer must not become wrong by a later change. */
    if (is_future(history->store, when))
        return WB_ABSENT;
    r = wb_revision_shift(history, dir, when, &then);
    if (r == 0)
        r = entry_of(history, then, base, scope, ret);
    if (r != WB_ABSENT)
        return r;
    r = wb_path_at(history, dir, "", when, &other);
    if (r != 0 || (then && wb_object_equal(wb_revision_object(then), wb_revision_object(other))))
        return r < 0 ? r : WB_ABSENT;
    return entry_of(history, other, base, scope, ret);
}

static int before_change(struct wb_versions *versions, uint32_t number, struct wb_revision **ret)
{
    struct wb_version version = {0};
    int r;

    do {
        r = wb_versions_next(versions, &version);
    } while (r == 0 && version.change < number);
    return r == 0 ? wb_versions_before(versions, ret) : r == WB_END ? WB_ABSENT : r;
}

static int before(struct wb_history *history, struct wb_revision *dir, const char *base, const struct wb_time *time,
                  struct wb_revision **ret)
{
    struct wb_versions *versions = NULL;
    int r;

    if (time->number == 0)
        return WB_ABSENT;
    r = wb_versions_open(history, dir, base, &versions);
    if (r < 0)
        return r;
    r = time->kind == WB_TIME_CHANGE ? before_change(versions, time->number, ret)
                                     : wb_versions_before_save(versions, time->number, ret);
    /* A damaged record may stand for one or more changes: older counts are not reliable. */
    if (r == WB_DAMAGED)
        r = wb_history_fail(-EIO, "a damaged record among the changes of \"%s\"", base);
    wb_versions_free(versions);
    return r;
}

int wb_revision_at(struct wb_history *history, struct wb_revision *dir, const char *base, const struct wb_time *time,
                   struct wb_object scope, struct wb_revision **ret)
{
    if (wb_revision_type(dir) != S_IFDIR)
        return -ENOTDIR;
    if (time->kind == WB_TIME_INSTANT)
        return at_instant(history, dir, base, time->instant, scope, ret);
    return before(history, dir, base, time, ret);
}
