/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * At which times a directory could be listed by somebody. Between two changes of rights, or of place, of the directory
 * and of those above it the answer is the same; so it is asked for once between any two of them.
 */
#include "history/internal.h"
#include "history/names.h"
#include "history/versions_walk.h"
#include <errno.h>

/* What lies before so many changes is told to nobody. */
#define PERIODS_MAX 256

/* [from, the `from` of the one before): newest first. */
struct period {
    int64_t from;
    bool allowed;
};

struct wb_seen {
    GArray *periods;
};

/* Moments at which something changed, and which directories were asked. */
struct moments {
    GArray *whens; /* int64_t, in any order */
    GArray *known; /* struct wb_object          */
};

/* What the records of `dir` say it was like; NULL: nothing about itself. */
static const struct wb_attrs *own_attrs(const struct wb_record *record, struct wb_object dir)
{
    switch (record->type) {
    case WB_REC_NAME:
        return &record->name.dir;
    case WB_REC_ATTR:
        return wb_object_equal(record->attr.object, dir) ? &record->attr.attrs : NULL;
    case WB_REC_XATTR:
        return wb_object_equal(record->xattr.object, dir) ? &record->xattr.attrs : NULL;
    default:
        return NULL;
    }
}

static bool same_rights(const struct wb_attrs *a, const struct wb_attrs *b)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

/*
 * Between two records that tell the same rights nothing changed; where they differ, the older of them is
 * the change. What the newest differs in from the present counts as one, too.
 */
static int add_moments(struct moments *moments, struct wb_history *history, struct wb_object dir)
{
    struct wb_attrs later = {0};
    struct wb_source source;
    int r;

    for (guint i = 0; i < moments->known->len; i++)
        if (wb_object_equal(g_array_index(moments->known, struct wb_object, i), dir))
            return 0;
    g_array_append_val(moments->known, dir);
    r = wb_source_open(&source, history->store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    while ((r = wb_source_peek(&source)) == 0 || r == WB_DAMAGED) {
        const struct wb_record *record = &source.head;
        const struct wb_attrs *attrs;

        if (r == WB_DAMAGED) {
            later = (struct wb_attrs){0};
            continue;
        }
        attrs = own_attrs(record, dir);
        if (record->type == WB_REC_PLACE || record->type == WB_REC_XATTR || (attrs && !same_rights(attrs, &later)))
            g_array_append_val(moments->whens, record->when);
        if (attrs)
            later = *attrs;
        wb_source_take(&source);
    }
    wb_source_close(&source);
    return r < 0 ? r : 0;
}

/* The newest moment before `when`, 0: none. */
static int64_t previous(struct moments *moments, int64_t when)
{
    int64_t found = 0;

    for (guint i = 0; i < moments->whens->len; i++) {
        int64_t at = g_array_index(moments->whens, int64_t, i);

        if (at < when && at > found)
            found = at;
    }
    return found;
}

/* Whether `dir` could be listed at `when`; those above it at that time are asked for their changes. */
static int ask(struct wb_history *history, struct wb_spot *dir, int64_t when, const struct wb_names_options *options,
               struct moments *moments, bool *ret)
{
    struct wb_spot *then __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = wb_spot_shift(history, dir, when, &then);

    *ret = false;
    if (r != 0)
        return r == WB_ABSENT || r == -EIO ? 0 : r; /* what is not known is not shown */
    for (struct wb_spot *at = then; r == 0 && at; at = at->parent)
        r = add_moments(moments, history, at->object);
    if (r == 0) {
        r = options->may(options->data, then);
        *ret = r == 0;
    }
    return r == -EACCES || r == -EIO ? 0 : r;
}

int wb_seen_open(struct wb_history *history, struct wb_spot *dir, const struct wb_names_options *options,
                 struct wb_seen **ret)
{
    struct wb_seen *seen = g_new0(struct wb_seen, 1);
    struct moments moments = {g_array_new(FALSE, FALSE, sizeof(int64_t)),
                              g_array_new(FALSE, FALSE, sizeof(struct wb_object))};
    int64_t when = dir->when, end = when == WB_WHEN_PRESENT ? when : when + 1;
    int r = 0;

    seen->periods = g_array_new(FALSE, FALSE, sizeof(struct period));
    while (r == 0 && seen->periods->len < PERIODS_MAX) {
        struct period period;

        r = ask(history, dir, when, options, &moments, &period.allowed);
        if (r < 0)
            break;
        end = previous(&moments, end);
        period.from = end;
        g_array_append_val(seen->periods, period);
        if (end == 0)
            break;
        when = end - 1;
    }
    g_array_unref(moments.whens);
    g_array_unref(moments.known);
    if (r < 0) {
        wb_seen_free(seen);
        return r;
    }
    *ret = seen;
    return 0;
}

struct wb_seen *wb_seen_free(struct wb_seen *seen)
{
    if (seen) {
        g_array_unref(seen->periods);
        g_free(seen);
    }
    return NULL;
}

bool wb_seen_between(const struct wb_seen *seen, int64_t first, int64_t last)
{
    int64_t until = INT64_MAX;

    for (guint i = 0; i < seen->periods->len; i++) {
        const struct period *period = &g_array_index(seen->periods, struct period, i);

        if (period->allowed && period->from < last && first < until)
            return true;
        until = period->from;
    }
    return false;
}
