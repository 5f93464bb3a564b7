/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/state/lookback.h"

#include "history/internal.h"
#include "history/log_cursor.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <string.h>

struct wb_store *wb_history_store(const struct wb_history *history)
{
    return history->store;
}

static int damaged(struct wb_object dir, const struct wb_log_cursor *source)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(dir, WB_FILE_CATALOG, path);
    return wb_history_fail(-EIO, "record at %" PRIu64 " of %s is damaged (checksum)",
                           source->reader.damaged_from, path);
}

static int lost_track(struct wb_object dir)
{
    char text[WB_OBJECT_TEXT_MAX];

    wb_object_print(dir, text);
    return wb_history_fail(-EIO, "directory %s was not at the place in its catalog", text);
}

/* The newest change of the name up to `until`; `unbind`: one by which it lost an object. 0, WB_ABSENT or -errno. */
static int newest_change(const struct wb_store *store, struct wb_object dir, const char *name, int64_t until,
                         bool unbind, struct wb_unbind_record *ret)
{
    int64_t horizon = wb_store_horizon(store);
    struct wb_log_cursor source;
    const struct wb_slot *slot;
    int r;

    r = wb_log_cursor_open(&source, store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    for (; (r = wb_log_cursor_peek(&source)) == 0; wb_log_cursor_take(&source)) {
        const struct wb_record *head = &source.head;

        if (head->when <= horizon) {
            r = WB_END;
            break;
        }
        if (head->type != WB_REC_NAME || head->when > until)
            continue;
        slot = wb_record_slot(head, name);
        if (!slot || (unbind && !slot->present))
            continue;
        *ret = (struct wb_unbind_record){head->when, head->op, slot->object, slot->attrs};
        break;
    }
    if (r == WB_DAMAGED)
        r = damaged(dir, &source);
    wb_log_cursor_close(&source);
    return r == WB_END ? WB_ABSENT : r;
}

int wb_lookback_find_unbind(const struct wb_store *store, struct wb_object dir, const char *name, int64_t until,
                       struct wb_unbind_record *ret)
{
    return newest_change(store, dir, name, until, true, ret);
}

int wb_lookback_change(const struct wb_store *store, struct wb_object dir, const char *name, int64_t until,
                       int64_t *ret)
{
    struct wb_unbind_record found;
    int r = newest_change(store, dir, name, until, false, &found);

    if (r == 0)
        *ret = found.when;
    return r;
}

int wb_lookback_place(const struct wb_store *store, struct wb_object dir, int64_t when,
                      struct wb_object *ret_parent, char ret_name[WB_NAME_MAX + 1])
{
    struct wb_log_cursor source;
    bool found = false, settled = false;
    int r;

    r = wb_log_cursor_open(&source, store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    /* A place counts from its record on; the first one of a catalog, from ever on. */
    for (; !settled && (r = wb_log_cursor_peek(&source)) == 0; wb_log_cursor_take(&source)) {
        const struct wb_record *head = &source.head;

        if (head->type != WB_REC_PLACE)
            continue;
        found = true;
        settled = head->when <= when;
        *ret_parent = head->place.parent;
        memcpy(ret_name, head->place.name, head->place.name_length);
        ret_name[head->place.name_length] = '\0';
    }
    if (r == WB_DAMAGED)
        r = damaged(dir, &source);
    wb_log_cursor_close(&source);
    if (r < 0)
        return r;
    return found ? 0 : WB_ABSENT;
}

struct step {
    struct wb_object object;
    char name[WB_NAME_MAX + 1];
};

int wb_lookback_dir(struct wb_history *history, struct wb_object dir, int64_t when, struct wb_revision **ret)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, FALSE, sizeof(struct step));
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_object root = history->store->header.root;
    int r;

    for (struct wb_object at = dir, parent; !wb_object_equal(at, root); at = parent) {
        struct step step = {.object = at};

        if (chain->len == WB_RESOLVE_STEPS_MAX)
            return -ELOOP;
        r = wb_lookback_place(history->store, at, when, &parent, step.name);
        if (r != 0)
            return r < 0 ? r : lost_track(at);
        g_array_append_val(chain, step);
    }
    r = wb_revision_root(history, when, &revision);
    for (guint i = chain->len; r == 0 && i-- > 0;) {
        const struct step *step = &g_array_index(chain, struct step, i);
        struct wb_revision *child = NULL;

        r = wb_revision_child(history, revision, step->name, &child);
        if (r == 0) {
            wb_revision_unref(revision);
            revision = child;
            if (!wb_object_equal(wb_revision_object(child), step->object))
                r = lost_track(step->object);
        }
    }
    if (r != 0)
        return r < 0 ? r : lost_track(dir);
    *ret = g_steal_pointer(&revision);
    return 0;
}

int wb_lookback_lost(struct wb_history *history, struct wb_object dir, const char *name, int64_t when,
                     struct wb_revision **ret)
{
    struct wb_revision *root __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_unbind_record unbind;
    int r = wb_lookback_find_unbind(history->store, dir, name, when, &unbind);

    if (r == 0 && unbind.when != when)
        r = WB_ABSENT;
    if (r == 0)
        r = wb_revision_root(history, when - 1, &root);
    /* A name that no entry has: the revision is found by its object. */
    if (r == 0)
        r = wb_revision_below(root, "..", dir, S_IFDIR, &revision);
    return r == 0 ? wb_revision_below(revision, name, unbind.object, unbind.attrs.mode, ret) : r;
}
