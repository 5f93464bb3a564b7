/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * rename(2) in all its forms, whole: what both names were, then the rename.
 *
 * A file that is replaced gets a second link in the graveyard first, so that the new name exists
 * at every instant and its old object is never without one. A directory cannot be linked: an
 * empty one that is replaced trades names with the source (RENAME_EXCHANGE), and is then buried
 * from the source's name. A crash between the two leaves it there; recovery finishes the burial.
 */

#include "capture/names.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct rename_ends {
    struct wb_store *store;
    struct wb_dir *old_dir, *new_dir;
    struct wb_entry source, target;
    unsigned flags;
};

static int check_rename(const struct rename_ends *ends)
{
    bool exchange = ends->flags & RENAME_EXCHANGE;

    if (!ends->source.present)
        return -ENOENT;
    if (ends->flags & RENAME_NOREPLACE && ends->target.present)
        return -EEXIST;
    if (exchange && !ends->target.present)
        return -ENOENT;
    if (!ends->target.present || exchange)
        return 0;
    if (wb_object_equal(ends->source.object, ends->target.object))
        return 0; /* two names of one file: rename(2) does nothing */
    if (wb_entry_is_dir(&ends->source) != wb_entry_is_dir(&ends->target))
        return wb_entry_is_dir(&ends->source) ? -ENOTDIR : -EISDIR;
    if (wb_entry_is_dir(&ends->target))
        return wb_entry_check_empty(ends->new_dir, ends->target.name);
    return 0;
}

static enum wb_op rename_op(unsigned flags)
{
    if (flags & RENAME_EXCHANGE)
        return WB_OP_EXCHANGE;
    return flags & RENAME_WHITEOUT ? WB_OP_WHITEOUT : WB_OP_RENAME;
}

/* The slots of both names: in one record, or in one of each catalog. */
static int add_slots(struct wb_plan *plan, const struct rename_ends *ends)
{
    struct wb_object old_dir = ends->old_dir->object, new_dir = ends->new_dir->object;
    struct wb_rec_name *record;
    struct wb_slot *slot;
    int r;

    r = wb_plan_add_name(plan, ends->old_dir, &record);
    if (r < 0)
        return r;
    slot = wb_name_add_slot(record, &ends->source);
    wb_slot_set_to(slot, new_dir, ends->target.name);
    if (ends->flags & RENAME_EXCHANGE)
        wb_slot_set_from(slot, new_dir, ends->target.name);

    if (!wb_object_equal(old_dir, new_dir)) {
        r = wb_plan_add_name(plan, ends->new_dir, &record);
        if (r < 0)
            return r;
    }
    slot = wb_name_add_slot(record, &ends->target);
    wb_slot_set_from(slot, old_dir, ends->source.name);
    if (ends->flags & RENAME_EXCHANGE)
        wb_slot_set_to(slot, old_dir, ends->source.name);
    return 0;
}

/* An object that goes to to_dir/to_name: a directory's place, or the attributes its other names show. */
static int add_moved(struct wb_plan *plan, const struct wb_entry *entry, const struct wb_dir *from_dir,
                     struct wb_dir *moved, const struct wb_dir *to_dir, const char *to_name)
{
    struct wb_dir local = {.object = entry->object, .parent = from_dir, .name = entry->name, .fd = -1};
    int r;

    if (!wb_entry_is_dir(entry)) {
        wb_plan_add_links(plan, entry);
        return 0;
    }
    r = wb_capture_ensure_catalog(plan->store, moved ? moved : &local);
    if (r >= 0)
        wb_plan_add_place(plan, WB_FILE_CATALOG, entry->object, to_dir->object, to_name);
    return r;
}

/* ---- the change itself ----------------------------------------------------------------------- */

static int call_rename(const struct rename_ends *ends, unsigned flags)
{
    return renameat2(ends->old_dir->fd, ends->source.name, ends->new_dir->fd, ends->target.name, flags) < 0
               ? -errno
               : 0;
}

static void set_mtime(int fd, const struct stat *st)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};

    if (utimensat(fd, "", times, AT_EMPTY_PATH) < 0)
        errno = 0; /* a time that is too late is all there is to lose */
}

/*
 * The target trades names with the source and is buried from there. If that fails, the exchange is undone, and so are
 * the times of the directories, which no record would explain.
 */
static int exchange_and_bury(const struct rename_ends *ends, bool *ret_changed)
{
    struct stat old_dir, new_dir;
    int r;

    if (fstat(ends->old_dir->fd, &old_dir) < 0 || fstat(ends->new_dir->fd, &new_dir) < 0)
        return -errno;
    r = call_rename(ends, RENAME_EXCHANGE);
    if (r < 0)
        return r;
    r = wb_grave_bury_name(ends->store, ends->old_dir->fd, ends->source.name, ends->target.object,
                           wb_entry_is_dir(&ends->target));
    if (r < 0) {
        *ret_changed = call_rename(ends, RENAME_EXCHANGE) < 0;
        if (!*ret_changed) {
            set_mtime(ends->old_dir->fd, &old_dir);
            set_mtime(ends->new_dir->fd, &new_dir);
        }
        return r;
    }
    if (ends->flags & RENAME_WHITEOUT)
        mknodat(ends->old_dir->fd, ends->source.name, S_IFCHR, makedev(0, 0));
    return 0;
}

/* *ret_changed: it failed, but not without a trace. */
static int make_rename(const struct rename_ends *ends, bool *ret_changed)
{
    int r;

    *ret_changed = false;
    if (!ends->target.present || ends->flags & RENAME_EXCHANGE)
        return call_rename(ends, ends->flags);
    if (wb_entry_is_dir(&ends->target))
        return exchange_and_bury(ends, ret_changed);
    r = wb_grave_keep_link(ends->store, ends->new_dir->fd, ends->target.name, ends->target.object);
    /* An ordinary user's daemon may not link every file it may replace (fs.protected_hardlinks), and some
     * file systems know no links at all. */
    if (r == -EPERM || r == -EMLINK || r == -EOPNOTSUPP)
        return exchange_and_bury(ends, ret_changed);
    return r < 0 ? r : call_rename(ends, ends->flags);
}

static int record_rename(struct wb_plan *plan, const struct rename_ends *ends, struct wb_dir *moved_dir,
                         struct wb_dir *other_dir)
{
    int r = add_slots(plan, ends);

    if (r >= 0)
        r = add_moved(plan, &ends->source, ends->old_dir, moved_dir, ends->new_dir, ends->target.name);
    if (r >= 0 && ends->flags & RENAME_EXCHANGE)
        r = add_moved(plan, &ends->target, ends->new_dir, other_dir, ends->old_dir, ends->source.name);
    else if (r >= 0)
        wb_plan_add_links(plan, &ends->target);
    return r < 0 ? r : wb_plan_write(plan);
}

/* Not of a directory: without a record of its new place, nothing below it would be found again. */
static int gap_rename(const struct rename_ends *ends, struct wb_change *change, int error)
{
    int r;

    if (wb_entry_is_dir(&ends->source) || (ends->target.present && wb_entry_is_dir(&ends->target)))
        return error;
    r = wb_change_gap_name(ends->store, change, error, ends->old_dir, &ends->source);
    return r < 0 ? r : wb_change_gap_name(ends->store, change, error, ends->new_dir, &ends->target);
}

int wb_capture_rename(struct wb_store *store, struct wb_dir *old_dir, const char *old_name,
                      struct wb_dir *new_dir, const char *new_name, unsigned flags,
                      struct wb_dir *moved_dir, struct wb_dir *other_dir, uint32_t actor)
{
    struct rename_ends ends = {.store = store, .old_dir = old_dir, .new_dir = new_dir, .flags = flags};
    struct wb_change change;
    struct wb_plan plan;
    bool changed;
    int r;

    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
        return -EINVAL;
    if (flags & RENAME_EXCHANGE && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT))
        return -EINVAL;
    r = wb_entry_look(store, old_dir, old_name, &ends.source);
    if (r >= 0)
        r = wb_entry_look(store, new_dir, new_name, &ends.target);
    if (r >= 0)
        r = check_rename(&ends);
    if (r < 0)
        return r;
    if (ends.target.present && wb_object_equal(ends.source.object, ends.target.object))
        return 0;

    wb_plan_init(&plan, store, &change, rename_op(flags), actor);
    if (moved_dir || other_dir)
        atomic_fetch_add(&store->dir_moves, 1);
    r = record_rename(&plan, &ends, moved_dir, other_dir);
    if (r < 0)
        r = gap_rename(&ends, &change, r);
    if (r < 0) {
        old_dir->unrecorded = true;
        wb_capture_end(&change, r);
        return r;
    }

    r = make_rename(&ends, &changed);
    if (r == 0 && ends.target.present && !(ends.flags & RENAME_EXCHANGE))
        wb_store_note_growth(ends.store, actor, ends.target.attrs.uid, ends.target.attrs.size);
    wb_capture_end(&change, changed ? 0 : r);
    return r;
}
