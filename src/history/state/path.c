/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/state/path.h"

#include "history/internal.h"
#include <errno.h>
#include <string.h>

/* The names from the root down to `dir`, and `name` if it is not empty. They belong to the revision and the string. */
static GPtrArray *names_of(const struct wb_revision *dir, const char *name)
{
    GPtrArray *names = g_ptr_array_new();

    if (*name)
        g_ptr_array_add(names, (void *)name);
    for (; dir->parent; dir = dir->parent)
        g_ptr_array_add(names, (void *)dir->name);
    for (guint i = 0; i < names->len / 2; i++) {
        void *first = names->pdata[i];

        names->pdata[i] = names->pdata[names->len - 1 - i];
        names->pdata[names->len - 1 - i] = first;
    }
    return names;
}

/*
 * From the root at `when` down the names, as far as they lead through directories. 0; or WB_ABSENT, and *ret is the
 * last directory that was there, *ret_missing the name that led to none; or -errno.
 */
static int descend(struct wb_history *history, struct wb_bindings *bindings, const GPtrArray *names, int64_t when,
                   struct wb_revision **ret, const char **ret_missing)
{
    struct wb_revision *at __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_revision_root(history, when, &at);

    for (guint i = 0; r == 0 && i < names->len; i++) {
        struct wb_revision *next __attribute__((cleanup(wb_revision_unrefp))) = NULL;

        *ret_missing = names->pdata[i];
        r = bindings ? wb_bindings_child(bindings, at, names->pdata[i], &next)
                     : wb_revision_child(history, at, names->pdata[i], &next);
        if (r == 0 && next->type != S_IFDIR)
            r = WB_ABSENT;
        if (r == 0) {
            wb_revision_unref(at);
            at = g_steal_pointer(&next);
        }
    }
    if (r == 0 || r == WB_ABSENT)
        *ret = g_steal_pointer(&at);
    return r;
}

int wb_path_at(struct wb_history *history, const struct wb_revision *dir, const char *name, int64_t when,
               struct wb_revision **ret)
{
    g_autoptr(GPtrArray) names = names_of(dir, name);
    const char *missing;
    int r = descend(history, NULL, names, when, ret, &missing);

    if (r == WB_ABSENT)
        *ret = wb_revision_unref(*ret);
    return r;
}

int wb_path_since(struct wb_bindings *bindings, const struct wb_revision *dir, int64_t *ret)
{
    int64_t when;
    int r = 0;

    *ret = 0;
    for (; r >= 0 && dir->parent; dir = dir->parent) {
        r = wb_bindings_change(bindings, dir->parent, dir->name, &when);
        if (r == 0)
            *ret = MAX(*ret, when);
    }
    return MIN(r, 0);
}

/*
 * The newest change, at or before the moment of `last`, by which the path down to `missing` in it may have led
 * elsewhere. 0, WB_ABSENT or -errno.
 */
static int change_of(struct wb_bindings *bindings, struct wb_revision *last, const char *missing, int64_t *ret)
{
    int64_t change = 0, since;
    int r = wb_bindings_change(bindings, last, missing, &change);

    if (r >= 0)
        r = wb_path_since(bindings, last, &since);
    if (r < 0)
        return r;
    *ret = MAX(change, since);
    return *ret == 0 ? WB_ABSENT : 0;
}

int wb_path_previous(struct wb_history *history, struct wb_bindings *bindings, const struct wb_revision *dir,
                     const char *name, int64_t *before, struct wb_revision **ret)
{
    g_autoptr(GPtrArray) names = names_of(dir, name);
    int64_t horizon = wb_store_horizon(history->store);

    while (*before > horizon + 1) {
        struct wb_revision *last __attribute__((cleanup(wb_revision_unrefp))) = NULL;
        const char *missing = NULL;
        int r = descend(history, bindings, names, *before - 1, &last, &missing);

        if (r == 0)
            *ret = g_steal_pointer(&last);
        if (r != WB_ABSENT)
            return r;
        r = change_of(bindings, last, missing, before);
        if (r != 0)
            return r;
    }
    return WB_ABSENT;
}
