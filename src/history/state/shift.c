/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The same object at another moment: its place then, and whether it existed.
 */
#include "history/internal.h"

#include "history/state/lookback.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <string.h>

/* dir's entry `name`, if it is `object`: 0, WB_ABSENT or -errno. */
static int child_is(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_object object,
                    struct wb_revision **ret)
{
    struct wb_revision *child __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_revision_child(history, dir, name, &child);

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
static int descend(struct wb_history *history, GArray *steps, int64_t when, struct wb_revision **ret)
{
    struct wb_revision *at __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_revision_root(history, when, &at);

    for (guint i = steps->len; r == 0 && i-- > 0;) {
        const struct step *step = &g_array_index(steps, struct step, i);
        struct wb_revision *next = NULL;

        r = child_is(history, at, step->name, step->object, &next);
        if (r == 0) {
            wb_revision_unref(at);
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

/* By the names of the revision: right for every object that did not move between the two moments. */
static int by_names(struct wb_history *history, const struct wb_revision *revision, int64_t when,
                    struct wb_revision **ret)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));

    for (; revision->parent; revision = revision->parent)
        add_step(steps, revision->object, revision->name);
    return descend(history, steps, when, ret);
}

/*
 * By the places that the catalogs record for that moment. A directory without a catalog never moved: it was in its
 * present directory, under its present name.
 */
static int by_places(struct wb_history *history, const struct wb_revision *revision, int64_t when,
                     struct wb_revision **ret)
{
    g_autoptr(GArray) steps = g_array_new(FALSE, FALSE, sizeof(struct step));
    struct wb_object at = revision->object, parent, root = history->store->header.root;
    char name[WB_NAME_MAX + 1];
    int r;

    while (!wb_object_equal(at, root)) {
        if (steps->len == WB_RESOLVE_STEPS_MAX)
            return wb_history_fail(-EIO, "directories are nested too deep, or in a ring");
        r = wb_lookback_place(history->store, at, when, &parent, name);
        if (r < 0)
            return r;
        while (r == WB_ABSENT && revision && !wb_object_equal(revision->object, at))
            revision = revision->parent;
        if (r == WB_ABSENT && (!revision || !revision->parent))
            return WB_ABSENT;
        if (r == WB_ABSENT) {
            parent = revision->parent->object;
            g_strlcpy(name, revision->name, sizeof(name));
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
#define SCANS_MAX 8

struct back {
    struct wb_history *history;
    int64_t when;
    struct wb_log_scan scans[SCANS_MAX];
    unsigned count;
};

static void back_end(struct back *back)
{
    while (back->count > 0)
        wb_log_scan_close(&back->scans[--back->count]);
}

/* 0 or -errno. */
static int scan_of(struct back *back, struct wb_object dir, struct wb_log_scan **ret)
{
    struct wb_log_scan found;
    unsigned i = 0;
    int r;

    while (i < back->count && !wb_object_equal(back->scans[i].object, dir))
        i++;
    if (i < back->count) {
        found = back->scans[i];
    } else {
        r = wb_log_scan_open(&found, back->history, dir, WB_FILE_CATALOG, back->when);
        if (r < 0)
            return r;
        if (back->count == SCANS_MAX)
            wb_log_scan_close(&back->scans[--i]);
        else
            back->count++;
    }
    memmove(&back->scans[1], &back->scans[0], i * sizeof(found));
    back->scans[0] = found;
    *ret = &back->scans[0];
    return 0;
}

/* One step. 1: the object got the name from the place that is now in *dir and name; 0: it had the name all the time;
 * WB_ABSENT; -errno. */
static int step_back(struct back *back, struct wb_object *dir, char name[WB_NAME_MAX + 1], int64_t *from)
{
    const struct wb_record *record;
    const struct wb_slot *slot;
    struct wb_log_scan *scan;
    int r = scan_of(back, *dir, &scan);

    while (r == 0 && (r = wb_log_scan_next(scan, &record)) == 0) {
        slot = record->when <= *from ? wb_log_scan_slot(record, name) : NULL;
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

static int shift_file(struct wb_history *history, struct wb_revision *revision, int64_t when, struct wb_revision **ret)
{
    struct wb_revision *dir_revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_object dir = revision->parent->object;
    char name[WB_NAME_MAX + 1] = "";
    int64_t from = revision->when;
    int r;

    g_strlcpy(name, revision->name, sizeof(name));
    if (when > revision->when)
        r = wb_resolve_forward(history, revision->object, when, &dir, name, &from);
    else
        r = go_back(history, &dir, name, revision->when, when);
    if (r != 0)
        return r;
    if (wb_object_equal(dir, revision->parent->object))
        r = wb_revision_shift(history, revision->parent, when, &dir_revision);
    else
        r = wb_lookback_dir(history, dir, when, &dir_revision);
    return r == 0 ? child_is(history, dir_revision, name, revision->object, ret) : r;
}

int wb_revision_shift(struct wb_history *history, struct wb_revision *revision, int64_t when, struct wb_revision **ret)
{
    int r = (int)wb_history_end(history, when, 0);

    if (r < 0)
        return r;
    if (when == revision->when) {
        wb_history_wait_own(history, when);
        *ret = wb_revision_ref(revision);
        return 0;
    }
    if (when != WB_WHEN_PRESENT && wb_born_after(revision->object, when) &&
        (!revision->parent || revision->object.birth - WB_BIRTH_SLACK > when))
        return WB_ABSENT;
    r = by_names(history, revision, when, ret);
    if (r != WB_ABSENT && r != -ENOTDIR)
        return r;
    return revision->type == S_IFDIR ? by_places(history, revision, when, ret)
                                     : shift_file(history, revision, when, ret);
}
