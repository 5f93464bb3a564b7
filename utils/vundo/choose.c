/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vundo.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/text.h"
#include <string.h>
#include <unistd.h>

/* ---- --op ---------------------------------------------------------------------------------------- */

static struct restore *by_id(const struct vundo *vundo)
{
    char id[WB_WHEN_TEXT_MAX], first[WB_WHEN_TEXT_MAX], second[WB_WHEN_TEXT_MAX];
    struct restore *found = NULL;

    for (guint i = 0; i < vundo->restores->len; i++) {
        struct restore *restore = vundo->restores->pdata[i];

        if (!g_str_has_prefix(restore_id(restore, id), vundo->id))
            continue;
        if (found) {
            wb_cli_fail(vundo->place->given, "--op: '%s' is the beginning of several IDs (%s, %s); give more of it",
                        vundo->id, restore_short_id(vundo->restores, restore, first),
                        restore_short_id(vundo->restores, found, second));
            return NULL;
        }
        found = restore;
    }
    if (!found)
        wb_cli_fail(vundo->place->given, "--op: no restore has the ID '%s'; --list shows the IDs", vundo->id);
    return found;
}

static struct restore *named(const struct vundo *vundo)
{
    struct restore *restore = by_id(vundo);
    char id[WB_WHEN_TEXT_MAX], time[WB_WHEN_TEXT_MAX];

    if (!restore || !restore->undone_by || is_unfinished(vundo, restore))
        return wb_cli_interrupted() ? NULL : restore;
    wb_cli_fail(vundo->place->given, "the restore %s was undone at %s; to take that back use --op %s", vundo->id,
                wb_text_time(restore->undone_by->first, false, time),
                restore_short_id(vundo->restores, restore->undone_by, id));
    return NULL;
}

/* ---- the newest ---------------------------------------------------------------------------------- */

static bool is_in_reach(const struct vundo *vundo, const struct restore *restore)
{
    return wb_path_below(restore->top, vundo->place->path, NULL);
}

/* Restores and redos by others are left to them: --op undoes these, too. */
static bool is_own(const struct restore *restore)
{
    return restore->uid == geteuid();
}

/* If the newest of all is an undo (or with --redo a redo) that was interrupted, the restore that it undid. */
static struct restore *interrupted(const struct vundo *vundo)
{
    for (guint i = 0; i < vundo->restores->len; i++) {
        struct restore *restore = vundo->restores->pdata[i];

        if (!is_own(restore) || !is_in_reach(vundo, restore))
            continue;
        if (!restore->inverts || (restore_depth(restore) % 2 == 0) != vundo->redo ||
            !is_unfinished(vundo, restore->inverts))
            return NULL;
        return restore->inverts;
    }
    return NULL;
}

/* An undo of an unknown restore, newer than the chosen one: then the order of the restores is not known. */
static const struct restore *obscure(const struct vundo *vundo, const struct restore *chosen)
{
    for (guint i = 0; i < vundo->restores->len; i++) {
        const struct restore *restore = vundo->restores->pdata[i];

        if (restore == chosen)
            return NULL;
        if (restore->by_undo && !restore->inverts && !restore->inverts_text && !restore->undone_by &&
            is_own(restore) && is_in_reach(vundo, restore))
            return restore;
    }
    return NULL;
}

static struct restore *refuse_obscure(const struct vundo *vundo, const struct restore *obscure)
{
    char id[WB_WHEN_TEXT_MAX];

    wb_cli_fail(vundo->place->given, "the history does not show which restore was undone last, in %s (commands in "
                                     "wayback.conf, or vrm); choose one of --list with --op",
                restore_short_id(vundo->restores, obscure, id));
    return NULL;
}

/* Says why there is none, and names the newest that is out of reach. */
static struct restore *explain(const struct vundo *vundo, const struct restore *newer)
{
    const char *verb = vundo->redo ? "redo" : "undo", *given = vundo->place->given;
    char id[WB_WHEN_TEXT_MAX];

    if (newer) {
        wb_cli_fail(given, "nothing to redo: the restore %s was made after the last undo; --op undoes any of --list",
                    restore_short_id(vundo->restores, newer, id));
        return NULL;
    }
    for (guint i = 0; i < vundo->restores->len; i++) {
        const struct restore *restore = vundo->restores->pdata[i];
        g_autofree char *top = vundo_shown(vundo, restore->top);

        if (restore->undone_by || (restore_depth(restore) % 2 == 1) != vundo->redo)
            continue;
        restore_short_id(vundo->restores, restore, id);
        if (is_in_reach(vundo, restore))
            wb_cli_fail(given, "nothing of yours to %s here; the newest is by %s: --op %s", verb,
                        wb_text_user(restore->uid), id);
        else
            wb_cli_fail(given, "nothing to %s only here; the newest is of %s: name that, or use --op %s", verb, top,
                        id);
        return NULL;
    }
    wb_cli_fail(given, "nothing to %s: the history shows no %s here%s", verb,
                vundo->redo ? "undo" : "restore by vrevert",
                vundo->restores->len > 0 ? " that is not taken back; --list shows them" : "");
    return NULL;
}

struct restore *choose(const struct vundo *vundo)
{
    struct restore *found = vundo->id ? NULL : interrupted(vundo);
    const struct restore *newer = NULL, *hidden;

    if (vundo->id)
        return named(vundo);
    if (found || wb_cli_interrupted())
        return found;
    for (guint i = 0; i < vundo->restores->len; i++) {
        struct restore *restore = vundo->restores->pdata[i];
        unsigned depth = restore_depth(restore);

        if (restore->undone_by || !is_own(restore) || !is_in_reach(vundo, restore))
            continue;
        /* The array begins with the newest. */
        if (!vundo->redo && !restore->by_undo && (!found || restore->effective > found->effective))
            found = restore;
        if (vundo->redo && !restore->by_undo && !newer)
            newer = restore;
        if (vundo->redo && depth % 2 == 1 && !found)
            found = restore;
    }
    hidden = obscure(vundo, found);
    if (hidden)
        return refuse_obscure(vundo, hidden);
    if (found && newer && newer->first > found->first)
        return explain(vundo, newer);
    return found ? found : explain(vundo, NULL);
}
