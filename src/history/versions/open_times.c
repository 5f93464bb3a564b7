/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/open_times.h"

#include "history/internal.h"
#include "history/versions/versions_walk.h"
#include <errno.h>

/* At times before this many changes, no access is assumed. */
#define PERIODS_MAX 256

/* [from, `from` of the previous one): newest first. */
struct period {
    int64_t from;
    bool allowed;
};

struct wb_open_times {
    int64_t until;
    GArray *periods;
};

/* The maximum number of changes remembered for one object in one log, and of objects. */
#define MOMENTS_MAX 1024
#define MEMO_MAX 512

/* A log that records the rights of `about`: of a file, the catalog of its directory and its undo log. */
struct place {
    struct wb_object log, about;
    enum wb_object_file file;
};

struct moments {
    struct place place;
    GArray *whens; /* int64_t, newest first */
    bool cut;      /* there are older ones  */
    unsigned references;
};

struct wb_rights_memo {
    GHashTable *known; /* struct moments, by its place */
    GHashTable *dirs;  /* struct wb_spot by its object and T: directories above others */
};

static guint place_hash(const void *key)
{
    const struct place *place = key;

    return (guint)((place->log.ino * 31 + place->about.ino + place->file) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean place_equal(const void *a, const void *b)
{
    const struct place *one = a, *two = b;

    return one->file == two->file && wb_object_equal(one->log, two->log) && wb_object_equal(one->about, two->about);
}

static guint spot_hash(const void *key)
{
    const struct wb_spot *spot = key;

    return (guint)((spot->object.ino * 31 + (uint64_t)spot->when) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static gboolean spot_equal(const void *a, const void *b)
{
    const struct wb_spot *one = a, *two = b;

    return one->when == two->when && wb_object_equal(one->object, two->object);
}

static void spot_unref(void *spot)
{
    wb_spot_unref(spot);
}

static void moments_unref(void *data)
{
    struct moments *moments = data;

    if (--moments->references > 0)
        return;
    g_array_unref(moments->whens);
    g_free(moments);
}

struct wb_rights_memo *wb_rights_memo_new(void)
{
    struct wb_rights_memo *memo = g_new(struct wb_rights_memo, 1);

    memo->known = g_hash_table_new_full(place_hash, place_equal, NULL, moments_unref);
    memo->dirs = g_hash_table_new_full(spot_hash, spot_equal, spot_unref, NULL);
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

/* The attributes of `about` in a record; for a directory, in its own catalog; NULL: none. */
static const struct wb_attrs *attrs_of(const struct wb_record *record, const struct place *place)
{
    bool undo = place->file == WB_FILE_UNDO; /* has one object only */

    switch (record->type) {
    case WB_REC_NAME:
        if (wb_object_equal(place->log, place->about))
            return &record->name.dir;
        for (uint32_t i = 0; i < record->name.count; i++)
            if (record->name.slots[i].present && wb_object_equal(record->name.slots[i].object, place->about))
                return &record->name.slots[i].attrs;
        return NULL;
    case WB_REC_ATTR:
        return undo || wb_object_equal(record->attr.object, place->about) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return undo || wb_object_equal(record->xattr.object, place->about) ? &record->xattr.attrs : NULL;
    case WB_REC_DATA:
        return &record->data.attrs;
    default:
        return NULL;
    }
}

static bool same_rights(const struct wb_attrs *a, const struct wb_attrs *b)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/* An ACL, or a place, may have changed, whatever the attributes are. */
static bool is_moment(const struct wb_record *record, const struct place *place)
{
    return record->type == WB_REC_PLACE || (record->type == WB_REC_XATTR && attrs_of(record, place)) ||
           (record->type == WB_REC_NAME && !wb_object_equal(place->log, place->about) && attrs_of(record, place));
}

/*
 * Between two records with the same rights nothing changed; if they differ, the older of them is the change. A
 * difference between the newest and the present counts as one, too.
 */
static int read_moments(struct wb_history *history, const struct place *place, struct moments **ret)
{
    struct moments *moments;
    struct wb_attrs later = {0};
    struct wb_source source;
    int r = wb_source_open(&source, history->store, place->log, place->file);

    if (r < 0)
        return r;
    moments = g_new(struct moments, 1);
    *moments = (struct moments){*place, g_array_new(FALSE, FALSE, sizeof(int64_t)), false, 1};
    while (!moments->cut && ((r = wb_source_peek(&source)) == 0 || r == WB_DAMAGED)) {
        const struct wb_record *record = &source.head;
        const struct wb_attrs *attrs;

        if (r == WB_DAMAGED) {
            later = (struct wb_attrs){0};
            continue;
        }
        attrs = attrs_of(record, place);
        if (is_moment(record, place) || (attrs && !same_rights(attrs, &later)))
            g_array_append_val(moments->whens, record->when);
        moments->cut = moments->whens->len == MOMENTS_MAX;
        if (attrs)
            later = *attrs;
        wb_source_take(&source);
    }
    wb_source_close(&source);
    if (r < 0) {
        moments_unref(moments);
        return r;
    }
    *ret = moments;
    return 0;
}

/* ---- periods ------------------------------------------------------------------------------------ */

/* State of one query: `used` has the moments of all objects visited, by place. */
struct look {
    struct wb_history *history;
    struct wb_rights_memo *memo;
    GHashTable *used;
};

static int use(struct look *look, struct wb_object log, struct wb_object about, enum wb_object_file file)
{
    struct place place = {log, about, file};
    GHashTable *known = look->memo ? look->memo->known : NULL;
    struct moments *moments;
    int r;

    if (g_hash_table_contains(look->used, &place))
        return 0;
    moments = known ? g_hash_table_lookup(known, &place) : NULL;
    if (!moments) {
        r = read_moments(look->history, &place, &moments);
        if (r < 0)
            return r;
        if (known) {
            if (g_hash_table_size(known) == MEMO_MAX)
                g_hash_table_remove_all(known);
            moments->references++;
            g_hash_table_insert(known, &moments->place, moments);
        }
    } else {
        moments->references++;
    }
    g_hash_table_insert(look->used, &moments->place, moments);
    return 0;
}

static int use_path(struct look *look, struct wb_spot *spot)
{
    int r = 0;

    if (spot->type != S_IFDIR) {
        r = use(look, spot->parent->object, spot->object, WB_FILE_CATALOG);
        if (r == 0)
            r = use(look, spot->object, spot->object, WB_FILE_UNDO);
        spot = spot->parent;
    }
    for (; r == 0 && spot; spot = spot->parent)
        r = use(look, spot->object, spot->object, WB_FILE_CATALOG);
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
        struct moments *moments = value;
        guint i = 0;

        while (i < moments->whens->len && g_array_index(moments->whens, int64_t, i) >= when)
            i++;
        if (i < moments->whens->len)
            found = MAX(found, g_array_index(moments->whens, int64_t, i));
        else if (moments->cut)
            return -1;
    }
    return found;
}

/* wb_spot_shift, which resolves the directories above once for all objects below them. */
static int shift(struct look *look, struct wb_spot *spot, int64_t when, struct wb_spot **ret)
{
    struct wb_spot *parent __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_spot *child __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    GHashTable *dirs = look->memo ? look->memo->dirs : NULL;
    struct wb_spot key = {.when = when}, *known;

    if (!dirs || !spot->parent || when == spot->when)
        return wb_spot_shift(look->history, spot, when, ret);
    key.object = spot->parent->object;
    known = g_hash_table_lookup(dirs, &key);
    if (known) {
        parent = wb_spot_ref(known);
    } else if (shift(look, spot->parent, when, &parent) == 0) {
        if (g_hash_table_size(dirs) == MEMO_MAX)
            g_hash_table_remove_all(dirs);
        g_hash_table_add(dirs, wb_spot_ref(parent));
    }
    if (!parent || wb_spot_child(look->history, parent, spot->name, &child) != 0 ||
        !wb_object_equal(child->object, spot->object))
        return wb_spot_shift(look->history, spot, when, ret);
    *ret = g_steal_pointer(&child);
    return 0;
}

/* Whether `spot` was open at `when`; adds the changes of the directories above it at that time. */
static int ask_then(struct look *look, struct wb_spot *spot, int64_t when, wb_open_ask ask, void *data, bool *ret)
{
    struct wb_spot *then __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = shift(look, spot, when, &then);

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

int wb_open_times_new(struct wb_history *history, struct wb_spot *spot, wb_open_ask ask, void *data,
                      struct wb_rights_memo *memo, struct wb_open_times **ret)
{
    struct wb_open_times *times = g_new0(struct wb_open_times, 1);
    struct look look = {history, memo, g_hash_table_new_full(place_hash, place_equal, NULL, moments_unref)};
    int64_t when = spot->when, end = when == WB_WHEN_PRESENT ? when : when + 1;
    int r = 0;

    times->until = when;
    times->periods = g_array_new(FALSE, FALSE, sizeof(struct period));
    while (times->periods->len < PERIODS_MAX) {
        struct period period;

        r = ask_then(&look, spot, when, ask, data, &period.allowed);
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
        wb_open_times_free(times);
        return r;
    }
    *ret = times;
    return 0;
}

struct wb_open_times *wb_open_times_free(struct wb_open_times *times)
{
    if (times) {
        g_array_unref(times->periods);
        g_free(times);
    }
    return NULL;
}

bool wb_open_times_know(const struct wb_open_times *times, int64_t when)
{
    GArray *periods = times->periods;

    return when <= times->until && periods->len > 0 &&
           g_array_index(periods, struct period, periods->len - 1).from <= when;
}

bool wb_open_times_meet(const struct wb_open_times *times, int64_t first, int64_t last)
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

bool wb_open_times_hold(const struct wb_open_times *times, int64_t first)
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
