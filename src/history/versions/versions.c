/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The list of changes of a name or a directory. versions_walk.c merges the logs and describes each change;
 * this file decides where the walk begins.
 */
#include "history/history.h"

#include "base/cleanup.h"
#include "history/internal.h"
#include "history/state/lookback.h"
#include "history/state/path.h"
#include "history/versions/saves.h"
#include "history/versions/versions_walk.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

struct wb_versions {
    struct wb_history *history;
    struct wb_revision *dir; /* as requested: its object is found without a search */
    char *name;          /* as requested                                   */
    struct wb_revision *place; /* the directory of the name at the walk's present moment: `dir`, or the one that had its
                            * path before */
    struct wb_bindings *bindings;
    int64_t reached;     /* of the last change that was processed          */
    struct wb_walk walk;
    struct wb_note note; /* the version last returned */
    bool damaged;        /* reported by the next call */
    uint32_t change;
    struct wb_save_mark mark;
};

/* ---- where the walk begins ------------------------------------------------------------------- */

/* The present object of dir/name; WB_ABSENT if there is none, or none of this tree. */
static int look_present(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_object *object,
                        struct wb_attrs *attrs)
{
    _cleanup_close_ int fd = wb_revision_open_present(history, dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r;

    if (fd == -EIO || fd == -ENOENT)
        return WB_ABSENT;
    if (fd < 0)
        return fd;
    r = wb_object_stat(history->store, fd, name, object, attrs, NULL);
    return r == -ENOENT || r == -EXDEV || r == -ENOTDIR ? WB_ABSENT : r;
}

/* A directory, as the entry dir/name: changes of its entries, and of itself. */
static int begin_directory(struct wb_versions *versions, struct wb_object dir, const char *name,
                           struct wb_object self, bool alive, int64_t before)
{
    static const struct wb_attrs directory = {.mode = S_IFDIR};
    struct wb_walk *walk = &versions->walk;
    int r;

    walk->self = self;
    walk->own_before = before;
    r = wb_log_cursor_open(&walk->own, walk->store, self, WB_FILE_CATALOG);
    if (r < 0 || wb_object_is_none(dir))
        return r;
    return wb_walk_add(walk, dir, name, true, self, &directory, alive, before);
}

/* The directory of a revision itself, at its present or last place. */
static int begin_self(struct wb_versions *versions)
{
    struct wb_history *history = versions->history;
    struct wb_revision *parent = wb_revision_parent(versions->dir);
    struct wb_object self = wb_revision_object(versions->dir), at, found;
    char name[WB_NAME_MAX + 1];
    int r;

    if (!parent)
        return begin_directory(versions, WB_OBJECT_NONE, "", self, true, WB_WHEN_PRESENT);
    r = wb_lookback_place(history->store, self, WB_WHEN_PRESENT, &at, name);
    if (r != 0) {
        at = wb_revision_object(parent);
        g_strlcpy(name, wb_revision_name(versions->dir), sizeof(name));
        r = look_present(history, parent, name, &found, NULL);
    } else {
        _cleanup_close_ int fd = -1;

        r = wb_catalog_path_open_dir(history->store, at, &fd);
        if (r == 0)
            r = wb_object_stat(history->store, fd, name, &found, NULL, NULL);
    }
    return begin_directory(versions, at, name, self, r == 0 && wb_object_equal(found, self),
                           WB_WHEN_PRESENT);
}

static int begin(struct wb_versions *versions, const char *name)
{
    struct wb_history *history = versions->history;
    struct wb_object dir = wb_revision_object(versions->dir), object = WB_OBJECT_NONE;
    struct wb_unbind_record unbind;
    struct wb_attrs attrs = {0};
    int r;

    if (!*name && wb_revision_type(versions->dir) == S_IFDIR)
        return begin_self(versions);
    r = look_present(history, versions->dir, name, &object, &attrs);
    if (r < 0)
        return r;
    if (r == 0 && S_ISDIR(attrs.mode))
        return begin_directory(versions, dir, name, object, true, WB_WHEN_PRESENT);
    if (r == WB_ABSENT) {
        r = wb_lookback_find_unbind(history->store, dir, name, WB_WHEN_PRESENT, &unbind);
        if (r == 0 && S_ISDIR(unbind.attrs.mode))
            return begin_directory(versions, dir, name, unbind.object, false, unbind.when + 1);
        r = WB_ABSENT;
    }
    return wb_walk_add(&versions->walk, dir, name, false, object, &attrs, r == 0, WB_WHEN_PRESENT);
}

/* ---- continuation with the earlier owner of the path --------------------------------------------- */

/* The entry of `place` before that moment. */
static int begin_before(struct wb_versions *versions, struct wb_revision *place, int64_t before)
{
    struct wb_revision *entry __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_history *history = versions->history;
    struct wb_object dir = wb_revision_object(place);
    struct wb_attrs attrs = {0};
    struct wb_unbind_record unbind;
    int r = wb_bindings_child(versions->bindings, place, versions->name, &entry);

    if (r == 0)
        r = wb_revision_attrs(history, entry, &attrs);
    if (r < 0)
        return r;
    if (versions->change == 0 && entry && wb_revision_type(entry) == S_IFDIR)
        return begin_directory(versions, dir, versions->name, wb_revision_object(entry), true, before);
    if (versions->change == 0 && !entry) {
        r = wb_lookback_find_unbind(history->store, dir, versions->name, before - 1, &unbind);
        if (r < 0)
            return r;
        if (r == 0 && S_ISDIR(unbind.attrs.mode))
            return begin_directory(versions, dir, versions->name, unbind.object, false, unbind.when + 1);
    }
    return wb_walk_add(&versions->walk, dir, versions->name, false, entry ? wb_revision_object(entry) : WB_OBJECT_NONE,
                       &attrs, entry != NULL, before);
}

/*
 * The newest directory before *before that had the path of the present one; *before becomes the moment at which it lost
 * it, if that is earlier. 0, WB_ABSENT or -errno.
 */
static int previous_place(struct wb_versions *versions, int64_t *before)
{
    struct wb_revision *place __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int64_t since;
    int r = wb_path_since(versions->bindings, versions->place, &since);

    if (r < 0 || since == 0)
        return r < 0 ? r : WB_ABSENT;
    *before = MIN(*before, since);
    r = wb_path_previous(versions->history, versions->bindings, versions->place, "", before, &place);
    if (r != 0)
        return r;
    wb_revision_unref(versions->place);
    versions->place = g_steal_pointer(&place);
    return 0;
}

/*
 * The name was absent before the oldest change of it that its directory knows. Before that change, and before the
 * directory got its path, the name belongs to an entry of the directory that had the path. Lineage `index` ends.
 */
static int follow_name(struct wb_versions *versions, unsigned index)
{
    int64_t before = versions->walk.lineages[index].reached;
    int r;

    wb_walk_drop(&versions->walk, index);
    do {
        r = previous_place(versions, &before);
        if (r != 0)
            return MIN(r, 0);
    } while (wb_bindings_never_was(versions->bindings, versions->place, versions->name));
    return begin_before(versions, versions->place, before);
}

/* The listed directory was created by the change that was reached: continue with the one that had the path before
 * it. */
static int follow_directory(struct wb_versions *versions)
{
    struct wb_revision *found __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_store *store = versions->history->store;
    int64_t before = versions->reached, lost;
    struct wb_object parent;
    bool alive = true;
    int r;

    r = wb_path_previous(versions->history, versions->bindings, versions->dir, versions->name, &before, &found);
    wb_walk_deinit(&versions->walk);
    versions->walk.own = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    versions->walk.self = WB_OBJECT_NONE;
    if (r != 0 || !wb_revision_parent(found))
        return MIN(r, 0);
    parent = wb_revision_object(wb_revision_parent(found));
    /* The change by which it lost the name is listed, unless it is the one that was reached. */
    if (before < versions->reached) {
        r = wb_lookback_change(store, parent, wb_revision_name(found), before, &lost);
        alive = r != 0 || lost != before;
    }
    return begin_directory(versions, parent, wb_revision_name(found), wb_revision_object(found), alive,
                           alive ? before : before + 1);
}

/* The next record of every log has been read. 1 if the walk has another log to read now, 0, or -errno. */
static int follow_path(struct wb_versions *versions)
{
    struct wb_walk *walk = &versions->walk;
    int r;

    if (!wb_object_is_none(walk->self)) {
        if (walk->count > 0 || walk->own.full || versions->change == 0 ||
            wb_object_equal(walk->self, versions->history->store->header.root))
            return 0;
        r = follow_directory(versions);
        return r < 0 ? r : 1;
    }
    for (unsigned i = 0; i < walk->count; i++) {
        const struct wb_lineage *lineage = &walk->lineages[i];

        if (!lineage->follows && !lineage->bound && !lineage->catalog.full) {
            r = follow_name(versions, i);
            return r < 0 ? r : 1;
        }
    }
    return 0;
}

/* Reads the next change. 0, WB_DAMAGED (call again) or -errno. */
static int fill(struct wb_versions *versions)
{
    int r, followed;

    do {
        r = wb_walk_fill(&versions->walk);
        followed = r == 0 ? follow_path(versions) : 0;
    } while (followed > 0);
    /* If the earlier owner of the path is not known, changes are missing from the list. */
    return followed == -EIO ? WB_DAMAGED : followed < 0 ? followed : r;
}

/* ---- the beginning ------------------------------------------------------------------------------- */

int wb_versions_open(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_versions **ret)
{
    struct wb_versions *versions;
    int r;

    if (strlen(name) > WB_NAME_MAX)
        return -ENAMETOOLONG;
    if (!*name && wb_revision_type(dir) != S_IFDIR && wb_revision_parent(dir)) {
        name = wb_revision_name(dir);
        dir = wb_revision_parent(dir);
    }
    if (wb_revision_type(dir) != S_IFDIR)
        return -ENOTDIR;
    versions = g_try_new0(struct wb_versions, 1);
    if (!versions)
        return -ENOMEM;
    versions->history = history;
    versions->dir = wb_revision_ref(dir);
    versions->place = wb_revision_ref(dir);
    versions->name = g_strdup(name);
    versions->walk.store = history->store;
    versions->walk.own = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    versions->bindings = wb_bindings_new(history);
    r = versions->bindings ? begin(versions, name) : -ENOMEM;
    if (r < 0) {
        wb_versions_free(versions);
        return r;
    }
    *ret = versions;
    return 0;
}

struct wb_versions *wb_versions_free(struct wb_versions *versions)
{
    if (!versions)
        return NULL;
    wb_walk_deinit(&versions->walk);
    wb_revision_unref(versions->dir);
    wb_revision_unref(versions->place);
    wb_bindings_free(versions->bindings);
    g_free(versions->name);
    g_free(versions);
    return NULL;
}

void wb_versions_rest(struct wb_versions *versions)
{
    wb_bindings_rest(versions->bindings);
}

/* ---- the walk -------------------------------------------------------------------------------- */

int wb_versions_next(struct wb_versions *versions, struct wb_version *ret)
{
    int64_t when;
    int r;

    do {
        if (versions->damaged) {
            versions->damaged = false;
            return WB_DAMAGED;
        }
        r = fill(versions);
        if (r != 0)
            return r;
        when = wb_walk_next_when(&versions->walk);
        if (when == 0 || when <= wb_store_horizon(versions->history->store))
            return WB_END;
        memset(&versions->note, 0, sizeof(versions->note));
        versions->reached = when;
        r = wb_walk_step(&versions->walk, when, &versions->note);
        if (r < 0)
            return r;
        versions->damaged = r == WB_DAMAGED;
    } while (versions->note.rank == 0);

    versions->note.version.change = ++versions->change;
    if (!wb_object_is_none(versions->walk.self) && versions->note.version.kind != WB_KIND_ATTRIBUTES &&
        !versions->note.version.is_gap)
        versions->note.version.kind = WB_KIND_WHOLE;
    wb_save_number(versions->history->store, &versions->mark, &versions->note.version);
    *ret = versions->note.version;
    return 0;
}

bool wb_versions_is_plain(const struct wb_versions *versions, struct wb_object *ret)
{
    const struct wb_walk *walk = &versions->walk;
    const struct wb_lineage *lineage = &walk->lineages[0];

    if (versions->place != versions->dir || walk->count != 1 || !wb_object_is_none(walk->self) || lineage->follows ||
        !lineage->bound || lineage->is_dir || lineage->undo_reached != versions->reached)
        return false;
    *ret = lineage->object;
    return true;
}

struct wb_save_mark wb_versions_mark(const struct wb_versions *versions)
{
    return versions->mark;
}

int wb_versions_pass(struct wb_versions *versions, int64_t when, uint32_t change, const struct wb_save_mark *mark)
{
    struct wb_walk *walk = &versions->walk;
    int64_t next, names;
    int r;

    do {
        r = fill(versions);
        if (r == WB_DAMAGED)
            continue;
        next = r < 0 ? 0 : wb_walk_next_when(walk);
        if (next == 0 || next < when)
            break;
        names = wb_walk_next_name(walk);
        versions->reached = next;
        if (names < next) {
            r = wb_walk_pass_undo(walk, MAX(names + 1, when));
        } else {
            memset(&versions->note, 0, sizeof(versions->note));
            r = wb_walk_step(walk, next, &versions->note);
        }
    } while (r >= 0);
    memset(&versions->note, 0, sizeof(versions->note));
    versions->damaged = false;
    versions->change = change;
    versions->mark = *mark;
    return MIN(r, 0);
}

struct wb_object wb_versions_self(const struct wb_versions *versions)
{
    return versions->walk.self;
}

/* A directory of the walk as it was then. */
static int dir_at(struct wb_versions *versions, struct wb_object dir, int64_t when, struct wb_revision **ret)
{
    if (wb_object_equal(dir, wb_revision_object(versions->dir)))
        return wb_revision_shift(versions->history, versions->dir, when, ret);
    if (wb_object_equal(dir, wb_revision_object(versions->place)))
        return wb_revision_shift(versions->history, versions->place, when, ret);
    return wb_lookback_dir(versions->history, dir, when, ret);
}

/* The state before the change of which `note` is. */
static int before(struct wb_versions *versions, const struct wb_note *note, struct wb_revision **ret)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    const struct wb_walk *walk = &versions->walk;
    struct wb_object at = note->before_dir;
    int64_t when = note->version.when - 1;
    const char *name = note->before_name;
    int r;

    if (note->rank == 0)
        return -EINVAL;
    if (!wb_object_is_none(walk->self)) {
        if (wb_object_equal(walk->self, versions->history->store->header.root))
            return wb_revision_root(versions->history, when, ret);
        /* The directory itself, at the place to which the walk has followed it. */
        if (walk->count == 0 || !walk->lineages[0].bound)
            return WB_ABSENT;
        at = walk->lineages[0].dir;
        name = walk->lineages[0].name;
    } else if (!note->version.existed_before) {
        return WB_ABSENT;
    }
    r = dir_at(versions, at, when, &dir);
    return r == 0 ? wb_revision_child(versions->history, dir, name, ret) : r;
}

int wb_versions_before(struct wb_versions *versions, struct wb_revision **ret)
{
    return before(versions, &versions->note, ret);
}

int wb_versions_before_save(struct wb_versions *versions, uint32_t number, struct wb_revision **ret)
{
    g_autofree struct wb_note *first = g_try_new0(struct wb_note, 1);
    struct wb_version version = {0};
    int r;

    if (!first)
        return -ENOMEM;
    while ((r = wb_versions_next(versions, &version)) == 0 && version.save <= number) {
        if (version.save == number)
            *first = versions->note;
        /* Of a directory always: its place is known only while the walk is there. */
        if (version.save == number && versions->mark.first && versions->mark.kind != WB_KIND_CONTENT)
            return before(versions, first, ret);
    }
    if (r < 0 || r == WB_DAMAGED)
        return r;
    return first->rank == 0 ? WB_ABSENT : before(versions, first, ret);
}
