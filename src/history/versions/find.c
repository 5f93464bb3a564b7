/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Resolves paths given to tools: of objects that exist, that were deleted, or that are named at a moment. The last
 * component is left to the caller, which may need its history and not its state.
 */
#include "history/history.h"

#include "history/internal.h"
#include "history/state/lookback.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

int wb_history_split(const char *path, char ***ret)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    g_autoptr(GPtrArray) kept = g_ptr_array_new_with_free_func(g_free);

    for (char **part = parts; *part; part++) {
        if (**part == '\0' || strcmp(*part, ".") == 0)
            continue;
        if (strlen(*part) > WB_NAME_MAX)
            return -ENAMETOOLONG;
        if (strcmp(*part, "..") != 0)
            g_ptr_array_add(kept, g_strdup(*part));
        else if (kept->len > 0)
            g_ptr_array_remove_index(kept, kept->len - 1);
        else
            return -EACCES;
    }
    g_ptr_array_add(kept, NULL);
    *ret = (char **)g_ptr_array_free(g_steal_pointer(&kept), FALSE);
    return 0;
}

/*
 * The last state of a deleted entry: as it was just before its name was removed. `dir` may itself be a deleted
 * directory, whose entries were removed before it.
 */
static int last_state(struct wb_history *history, struct wb_revision *dir, const char *part, struct wb_revision **ret)
{
    struct wb_revision *then __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_unbind_record unbind;
    int r;

    r = wb_lookback_find_unbind(history->store, wb_revision_object(dir), part, wb_revision_when(dir), &unbind);
    if (r != 0)
        return r;
    r = wb_revision_shift(history, dir, unbind.when - 1, &then);
    return r == 0 ? wb_revision_child(history, then, part, ret) : r;
}

/* One step down. `*gone`: the path leads through the last state of a deleted object. */
static int step(struct wb_history *history, struct wb_revision *dir, const char *part, bool *gone,
                struct wb_revision **ret)
{
    int r;

    /* A real entry takes precedence over the other meaning of its name. */
    r = wb_revision_child(history, dir, part, ret);
    if (r == WB_ABSENT) {
        r = wb_history_at(history, dir, part, ret);
        if (r == 0)
            *gone = false;
    }
    if (r == WB_ABSENT && (*gone || wb_revision_when(dir) == WB_WHEN_PRESENT)) {
        r = last_state(history, dir, part, ret);
        *gone = true;
    }
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    return wb_revision_type(*ret) == S_IFDIR ? 0 : -ENOTDIR;
}

int wb_history_find(struct wb_history *history, struct wb_revision *dir, const char *path, struct wb_revision **ret_dir,
                    char **ret_name)
{
    struct wb_revision *at __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_auto(GStrv) parts = NULL;
    bool gone = false;
    guint count;
    int r;

    r = wb_history_split(path, &parts);
    if (r < 0)
        return r;
    if (wb_revision_type(dir) != S_IFDIR)
        return -ENOTDIR;
    count = g_strv_length(parts);
    at = wb_revision_ref(dir);
    for (guint i = 0; i + 1 < count; i++) {
        struct wb_revision *next = NULL;

        r = step(history, at, parts[i], &gone, &next);
        if (next) {
            wb_revision_unref(at);
            at = next;
        }
        if (r < 0)
            return r;
    }
    *ret_name = g_strdup(count > 0 ? parts[count - 1] : "");
    *ret_dir = g_steal_pointer(&at);
    return 0;
}
