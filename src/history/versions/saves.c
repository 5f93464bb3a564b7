/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/saves.h"

#include "wayback/when.h"
#include <string.h>

#define PAUSE (2 * WB_WHEN_SECOND)

/* Whether nothing older belongs to the same version as this change. */
static bool is_first(const struct wb_version *version)
{
    switch (version->kind) {
    case WB_KIND_EMPTIED:
    case WB_KIND_REPLACED:
    case WB_KIND_LOST:
    case WB_KIND_WHOLE:
        return true;
    default:
        return version->begins;
    }
}

/* Threads have numbers of their own: one program run by one user counts as one process. */
static bool is_same_actor(struct wb_store *store, const struct wb_save_mark *newer, const struct wb_version *older,
                          bool soon)
{
    struct wb_actor one, other;

    if (newer->actor == older->actor)
        return true;
    if (wb_store_actor_info(store, newer->actor, newer->when, &one) != 0 ||
        wb_store_actor_info(store, older->actor, older->when, &other) != 0)
        return false;
    return one.uid == other.uid && (one.pid == other.pid || (soon && strcmp(one.command, other.command) == 0));
}

/* Whether the older change only made room for the newer one. */
static bool is_room(const struct wb_save_mark *newer, const struct wb_version *older)
{
    return newer->kind == WB_KIND_CONTENT && (older->kind == WB_KIND_EMPTIED || older->kind == WB_KIND_BORN);
}

static bool belongs(struct wb_store *store, const struct wb_save_mark *newer, const struct wb_version *older)
{
    bool room = is_room(newer, older), soon = newer->when - older->when < PAUSE;

    if (newer->save == 0 || newer->kind == WB_KIND_GAP || older->kind == WB_KIND_WHOLE)
        return false;
    if ((newer->kind == WB_KIND_BORN) != (older->kind == WB_KIND_LOST))
        return false;
    /* Room may be made by path, or through another open file, just before; through the same one, at any time. */
    if (newer->first ? !(room && soon) : !(room || soon))
        return false;
    return is_same_actor(store, newer, older, soon);
}

void wb_save_number(struct wb_store *store, struct wb_save_mark *mark, struct wb_version *version)
{
    version->save = 0;
    if (version->kind == WB_KIND_ATTRIBUTES)
        return;
    if (version->kind == WB_KIND_GAP) {
        mark->kind = WB_KIND_GAP;
        return;
    }
    version->save = belongs(store, mark, version) ? mark->save : mark->save + 1;
    *mark = (struct wb_save_mark){.when = version->began ?: version->when, .save = version->save,
                                  .actor = version->actor, .kind = version->kind, .first = is_first(version)};
}
