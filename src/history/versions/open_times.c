/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/open_times.h"

#include "history/internal.h"
#include "history/state/rights.h"
#include <errno.h>

/* At times before this many changes, no access is assumed. */
#define PERIODS_MAX 256

/* [from, `from` of the previous one): newest first. */
struct period {
    int64_t from;
    bool allowed;
};

struct wb_access_intervals {
    int64_t until;
    GArray *periods;
};

/* The maximum number of objects. */
#define MEMO_MAX 512

struct wb_rights_memo {
    GHashTable *known; /* struct wb_rights, by its place */
    GHashTable *dirs;  /* struct wb_revision by its object and T: directories above others */
};

static guint revision_hash(const void *key)
{
    const struct wb_revision *revision = key;

    return (guint)((revision->object.ino * 31 + (uint64_t)revision->when) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean revision_equal(const void *a, const void *b)
{
    const struct wb_revision *one = a, *two = b;

    return one->when == two->when && wb_object_equal(one->object, two->object);
}

static void revision_unref(void *revision)
{
    wb_revision_unref(revision);
}

static void rights_unref(void *rights)
{
    wb_rights_unref(rights);
}

struct wb_rights_memo *wb_rights_memo_new(void)
{
    struct wb_rights_memo *memo = g_new(struct wb_rights_memo, 1);

    memo->known = g_hash_table_new_full(wb_rights_place_hash, wb_rights_place_equal, NULL, rights_unref);
    memo->dirs = g_hash_table_new_full(revision_hash, revision_equal, revision_unref, NULL);
    return memo;
}

struct wb_rights_memo *wb_rights_memo_free(struct wb_rights_memo *memo)
{
    if (memo) {
        g_hash_table_unref(memo->known);
        g_hash_table_unref(memo->dirs);
        g_free(memo);
    }
    return NULL;
}

/* ---- periods ------------------------------------------------------------------------------------ */

/* State of one query: `used` has the rights of all objects visited, by place. */
struct look {
    struct wb_history *history;
    struct wb_rights_memo *memo;
    GHashTable *used;
};

static int use(struct look *look, struct wb_object log, struct wb_object about, enum wb_object_file file)
{
    struct wb_rights_place place = {log, about, file};
    GHashTable *known = look->memo ? look->memo->known : NULL;
    struct wb_rights *rights;
    int r;

    if (g_hash_table_contains(look->used, &place))
        return 0;
    rights = known ? g_hash_table_lookup(known, &place) : NULL;
    if (!rights) {
        r = wb_rights_of(look->history, &place, &rights);
        if (r < 0)
            return r;
        if (known) {
            if (g_hash_table_size(known) == MEMO_MAX)
                g_hash_table_remove_all(known);
            atomic_fetch_add(&rights->references, 1);
            g_hash_table_insert(known, &rights->place, rights);
        }
    } else {
        atomic_fetch_add(&rights->references, 1);
    }
    g_hash_table_insert(look->used, &rights->place, rights);
    return 0;
}

static int use_path(struct look *look, struct wb_revision *revision)
{
    int r = 0;

    if (revision->type != S_IFDIR) {
        r = use(look, revision->parent->object, revision->object, WB_FILE_CATALOG);
        if (r == 0)
            r = use(look, revision->object, revision->object, WB_FILE_UNDO);
        revision = revision->parent;
    }
    for (; r == 0 && revision; revision = revision->parent)
        r = use(look, revision->object, revision->object, WB_FILE_CATALOG);
    return r;
}

/* The newest moment before `when`, 0: none; -1: not known, because older ones are not remembered. */
static int64_t previous(struct look *look, int64_t when)
{
    int64_t found = 0;
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, look->used);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        struct wb_rights *rights = value;
        guint i = 0;

        while (i < rights->whens->len && g_array_index(rights->whens, int64_t, i) >= when)
            i++;
        if (i < rights->whens->len)
            found = MAX(found, g_array_index(rights->whens, int64_t, i));
        else if (rights->cut)
            return -1;
    }
    return found;
}

/* wb_revision_shift, which resolves the directories above once for all objects below them. */
static int shift(struct look *look, struct wb_revision *revision, int64_t when, struct wb_revision **ret)
{
    struct wb_revision *parent __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *child __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    GHashTable *dirs = look->memo ? look->memo->dirs : NULL;
    struct wb_revision key = {.when = when}, *known;

    if (!dirs || !revision->parent || when == revision->when)
        return wb_revision_shift(look->history, revision, when, ret);
    key.object = revision->parent->object;
    known = g_hash_table_lookup(dirs, &key);
    if (known) {
        parent = wb_revision_ref(known);
    } else if (shift(look, revision->parent, when, &parent) == 0) {
        if (g_hash_table_size(dirs) == MEMO_MAX)
            g_hash_table_remove_all(dirs);
        g_hash_table_add(dirs, wb_revision_ref(parent));
    }
    if (!parent || wb_revision_child(look->history, parent, revision->name, &child) != 0 ||
        !wb_object_equal(child->object, revision->object))
        return wb_revision_shift(look->history, revision, when, ret);
    *ret = g_steal_pointer(&child);
    return 0;
}

/* Whether `revision` was open at `when`; adds the changes of the directories above it at that time. */
static int ask_then(struct look *look, struct wb_revision *revision, int64_t when, wb_open_ask ask, void *data,
                    bool *ret)
{
    struct wb_revision *then __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = shift(look, revision, when, &then);

    *ret = false;
    if (r != 0)
        return r == WB_ABSENT || r == -EIO ? 0 : r; /* an unknown state is not shown */
    r = use_path(look, then);
    if (r == 0) {
        r = ask(data, then);
        *ret = r == 0;
    }
    return r == -EACCES || r == -EIO ? 0 : r;
}

int wb_access_intervals_new(struct wb_history *history, struct wb_revision *revision, wb_open_ask ask, void *data,
                            struct wb_rights_memo *memo, struct wb_access_intervals **ret)
{
    struct wb_access_intervals *times = g_new0(struct wb_access_intervals, 1);
    struct look look = {
        history, memo, g_hash_table_new_full(wb_rights_place_hash, wb_rights_place_equal, NULL, rights_unref)};
    int64_t when = revision->when, end = when == WB_WHEN_PRESENT ? when : when + 1;
    int r = 0;

    times->until = when;
    times->periods = g_array_new(FALSE, FALSE, sizeof(struct period));
    while (times->periods->len < PERIODS_MAX) {
        struct period period;

        r = ask_then(&look, revision, when, ask, data, &period.allowed);
        if (r < 0)
            break;
        period.from = previous(&look, end);
        if (period.from < 0)
            break;
        end = period.from;
        g_array_append_val(times->periods, period);
        if (end == 0)
            break;
        when = end - 1;
    }
    g_hash_table_unref(look.used);
    if (r < 0) {
        wb_access_intervals_free(times);
        return r;
    }
    *ret = times;
    return 0;
}

struct wb_access_intervals *wb_access_intervals_free(struct wb_access_intervals *times)
{
    if (times) {
        g_array_unref(times->periods);
        g_free(times);
    }
    return NULL;
}

bool wb_access_intervals_know(const struct wb_access_intervals *times, int64_t when)
{
    GArray *periods = times->periods;

    return when <= times->until && periods->len > 0 &&
           g_array_index(periods, struct period, periods->len - 1).from <= when;
}

bool wb_access_intervals_meet(const struct wb_access_intervals *times, int64_t first, int64_t last)
{
    int64_t until = INT64_MAX;

    for (guint i = 0; i < times->periods->len; i++) {
        const struct period *period = &g_array_index(times->periods, struct period, i);

        if (period->allowed && period->from < last && first < until)
            return true;
        until = period->from;
    }
    return false;
}

bool wb_access_intervals_hold(const struct wb_access_intervals *times, int64_t first)
{
    for (guint i = 0; i < times->periods->len; i++) {
        const struct period *period = &g_array_index(times->periods, struct period, i);

        if (!period->allowed)
            return false;
        if (period->from <= first)
            return true;
    }
    return false;
}
