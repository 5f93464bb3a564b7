/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The same object at another moment: its place then, and whether it existed.
 */
#include "history/internal.h"

#include "history/locate/lookback.h"
#include "store/object/locate.h"
#include <errno.h>
#include <string.h>

/* dir's entry `name`, if it is `object`: 0, WB_ABSENT or -errno. */
static int child_is(struct wb_history *history, struct wb_spot *dir, const char *name, struct wb_object object,
                    struct wb_spot **ret)
{
    struct wb_spot *child __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = wb_spot_child(history, dir, name, &child);

    if (r != 0)
        return r;
    if (!wb_object_equal(child->object, object))
        return WB_ABSENT;
    *ret = g_steal_pointer(&child);
    return 0;
}

struct step {
    struct wb_object object;
    char name[WB_NAME_MAX + 1];
};

/* From the root at `when` down the steps, the last step first. */
static int descend(struct wb_history *history, GArray *steps, int64_t when, struct wb_spot **ret)
{
    struct wb_spot *at __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r = wb_spot_root(history, when, &at);

    for (guint i = steps->len; r == 0 && i-- > 0;) {
        const struct step *step = &g_array_index(steps, struct step, i);
        struct wb_spot *next = NULL;

        r = child_is(history, at, step->name, step->object, &next);
        if (r == 0) {
            wb_spot_unref(at);
            at = next;
        }
    }
    if (r == 0)
        *ret = g_steal_pointer(&at);
    return r;
}

static void add_step(GArray *steps, struct wb_object object, const char *name)
{
    struct step step = {.object = object};

    g_strlcpy(step.name, name, sizeof(step.name));
    g_array_append_val(steps, step);
}

/* By the names of the spot: right for every object that did not move between the two moments. */
static int by_names(struct wb_history *history, const struct wb_spot *spot, int64_t when, struct wb_spot **ret)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));

    for (; spot->parent; spot = spot->parent)
        add_step(steps, spot->object, spot->name);
    return descend(history, steps, when, ret);
}

/*
 * By the places that the catalogs record for that moment. A directory without a catalog never moved: it was in its
 * present directory, under its present name.
 */
static int by_places(struct wb_history *history, const struct wb_spot *spot, int64_t when,
                     struct wb_spot **ret)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));
    struct wb_object at = spot->object, parent, root = history->store->header.root;
    char name[WB_NAME_MAX + 1];
    int r;

    while (!wb_object_equal(at, root)) {
        if (steps->len == WB_LOCATE_STEPS_MAX)
            return wb_history_fail(-EIO, "directories are nested too deep, or in a ring");
        r = wb_lookback_place(history->store, at, when, &parent, name);
        if (r < 0)
            return r;
        while (r == WB_ABSENT && spot && !wb_object_equal(spot->object, at))
            spot = spot->parent;
        if (r == WB_ABSENT && (!spot || !spot->parent))
            return WB_ABSENT;
        if (r == WB_ABSENT) {
            parent = spot->parent->object;
            g_strlcpy(name, spot->name, sizeof(name));
        }
        add_step(steps, at, name);
        at = parent;
    }
    return descend(history, steps, when, ret);
}

/* ---- files ----------------------------------------------------------------------------------- */

/*
 * Catalogs that are read backward, each from where the previous read ended, so no part is read twice. The most recently
 * used ones are kept.
 */
#define TRACES 8

struct back {
    struct wb_history *history;
    int64_t when;
    struct wb_trace traces[TRACES];
    unsigned count;
};

static void back_end(struct back *back)
{
    while (back->count > 0)
        wb_trace_close(&back->traces[--back->count]);
}

/* 0 or -errno. */
static int trace_of(struct back *back, struct wb_object dir, struct wb_trace **ret)
{
    struct wb_trace found;
    unsigned i = 0;
    int r;

    while (i < back->count && !wb_object_equal(back->traces[i].object, dir))
        i++;
    if (i < back->count) {
        found = back->traces[i];
    } else {
        r = wb_trace_open(&found, back->history, dir, WB_FILE_CATALOG, back->when);
        if (r < 0)
            return r;
        if (back->count == TRACES)
            wb_trace_close(&back->traces[--i]);
        else
            back->count++;
    }
    memmove(&back->traces[1], &back->traces[0], i * sizeof(found));
    back->traces[0] = found;
    *ret = &back->traces[0];
    return 0;
}

/* One step. 1: the object got the name from the place that is now in *dir and name; 0: it had the name all the time;
 * WB_ABSENT; -errno. */
static int step_back(struct back *back, struct wb_object *dir, char name[WB_NAME_MAX + 1], int64_t *from)
{
    const struct wb_record *record;
    const struct wb_slot *slot;
    struct wb_trace *trace;
    int r = trace_of(back, *dir, &trace);

    while (r == 0 && (r = wb_trace_next(trace, &record)) == 0) {
        slot = record->when <= *from ? wb_trace_slot(record, name) : NULL;
        if (!slot)
            continue;
        if (slot->from_length == 0)
            return WB_ABSENT;
        *from = record->when - 1;
        *dir = slot->from_dir;
        memcpy(name, slot->from_name, slot->from_length);
        name[slot->from_length] = '\0';
        return 1;
    }
    return MIN(r, 0);
}

/*
 * Back from (dir, name) at `from`: the newest record by which the object got the name gives its previous place.
 * WB_ABSENT if it was created there after `when`.
 */
static int go_back(struct wb_history *history, struct wb_object *dir, char name[WB_NAME_MAX + 1], int64_t from,
                   int64_t when)
{
    struct back back = {.history = history, .when = when};
    int r;

    do
        r = step_back(&back, dir, name, &from); /* always to an older record */
    while (r == 1);
    back_end(&back);
    return r;
}

static int shift_file(struct wb_history *history, struct wb_spot *spot, int64_t when, struct wb_spot **ret)
{
    struct wb_spot *dir_spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_object dir = spot->parent->object;
    char name[WB_NAME_MAX + 1] = "";
    int64_t from = spot->when;
    int r;

    g_strlcpy(name, spot->name, sizeof(name));
    if (when > spot->when)
        r = wb_locate_forward(history, spot->object, when, &dir, name, &from);
    else
        r = go_back(history, &dir, name, spot->when, when);
    if (r != 0)
        return r;
    if (wb_object_equal(dir, spot->parent->object))
        r = wb_spot_shift(history, spot->parent, when, &dir_spot);
    else
        r = wb_lookback_dir(history, dir, when, &dir_spot);
    return r == 0 ? child_is(history, dir_spot, name, spot->object, ret) : r;
}

int wb_spot_shift(struct wb_history *history, struct wb_spot *spot, int64_t when, struct wb_spot **ret)
{
    int r = (int)wb_history_end(history, when, 0);

    if (r < 0)
        return r;
    if (when == spot->when) {
        wb_history_settle(history, when);
        *ret = wb_spot_ref(spot);
        return 0;
    }
    if (when != WB_WHEN_PRESENT && wb_born_after(spot->object, when) &&
        (!spot->parent || spot->object.birth - WB_BIRTH_SLACK > when))
        return WB_ABSENT;
    r = by_names(history, spot, when, ret);
    if (r != WB_ABSENT && r != -ENOTDIR)
        return r;
    return spot->type == S_IFDIR ? by_places(history, spot, when, ret) : shift_file(history, spot, when, ret);
}
