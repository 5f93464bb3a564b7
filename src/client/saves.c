/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/saves.h"

#include "client/control.h"
#include <glib.h>

struct wb_save_walk {
    struct wb_version_walk *changes;
    struct wb_save save;              /* the one that was returned last */
    struct wb_control_version next;   /* the change that begins the next one, if has_next */
    bool has_next;
    int end;                          /* not 0: the result at the end of the walk of changes */
};

struct wb_save_walk *wb_save_walk_new(int dir_fd, const char *path, int64_t since, int64_t until)
{
    struct wb_save_walk *walk = g_new0(struct wb_save_walk, 1);

    walk->changes = wb_version_walk_new(dir_fd, path, since, until, 0);
    return walk;
}

struct wb_save_walk *wb_save_walk_free(struct wb_save_walk *walk)
{
    if (walk)
        wb_version_walk_free(walk->changes);
    g_free(walk);
    return NULL;
}

static bool is_gap(const struct wb_control_version *change)
{
    return change->flags & WB_CONTROL_VERSION_GAP;
}

static void begin(struct wb_save *save, const struct wb_control_version *change)
{
    *save = (struct wb_save){.number = change->save, .newest = *change};
}

static void add(struct wb_save *save, const struct wb_control_version *change)
{
    uint64_t end = change->length > UINT64_MAX - change->offset ? UINT64_MAX : change->offset + change->length;

    save->oldest = *change;
    /* Of a version of which the caller may not see a part, the rest is not described. */
    save->newest.flags |= change->flags & WB_CONTROL_VERSION_WITHHELD;
    save->operations++;
    save->moved = save->moved || *change->other;
    if (change->length == 0 || is_gap(change))
        return;
    save->from = save->from == save->to ? change->offset : MIN(save->from, change->offset);
    save->to = MAX(save->to, end);
}

const char *wb_save_operation(const struct wb_save *save)
{
    if (save->operations <= 1 || !save->newest.exists_after)
        return save->newest.op_name;
    return save->oldest.existed_before ? "write" : "create";
}

/* The next change that is listed: 0, or the result at the end. */
static int next_change(struct wb_save_walk *walk, const struct wb_control_version **ret)
{
    int r;

    do
        r = walk->end ?: wb_version_walk_next(walk->changes, ret);
    while (r == 0 && (*ret)->save == 0 && !is_gap(*ret));
    walk->end = r;
    return r;
}

int wb_save_walk_next(struct wb_save_walk *walk, const struct wb_save **ret)
{
    const struct wb_control_version *change = &walk->next;
    int r = walk->has_next ? 0 : next_change(walk, &change);

    if (r != 0)
        return r;
    begin(&walk->save, change);
    do {
        add(&walk->save, change);
        r = next_change(walk, &change);
    } while (r == 0 && !is_gap(change) && change->save == walk->save.number);
    walk->has_next = r == 0;
    if (walk->has_next)
        walk->next = *change;
    /* It is not known where the version began. */
    if (r < 0)
        return r;
    *ret = &walk->save;
    return 0;
}
