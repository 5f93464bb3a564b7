/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Names that come and go: create and its like, link, unlink, rmdir.
 */

#include "capture/names.h"
#include "base/cleanup.h"
#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int wb_entry_look(struct wb_store *store, const struct wb_dir *dir, const char *name, struct wb_entry *ret)
{
    int r;

    *ret = (struct wb_entry){.name = name};
    if (!*name)
        return -ENOENT;
    r = wb_capture_stat(store, dir->fd, name, &ret->object, &ret->attrs);
    if (r < 0 && r != -ENOENT)
        return r;
    ret->present = r >= 0;
    return 0;
}

int wb_entry_check_empty(const struct wb_dir *dir, const char *name)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(dir->fd, name);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return -errno;
    return wb_next_entry(stream, &entry, &r) ? -ENOTEMPTY : r;
}

int wb_plan_add_name(struct wb_plan *plan, struct wb_dir *dir, struct wb_rec_name **ret)
{
    int r = wb_capture_ensure_catalog(plan->store, dir);

    if (r < 0)
        return r;
    *ret = &wb_plan_add(plan, dir->object, WB_FILE_CATALOG, WB_REC_NAME)->name;
    return wb_object_stat(plan->store, dir->fd, NULL, NULL, &(*ret)->dir, NULL);
}

struct wb_slot *wb_name_add_slot(struct wb_rec_name *record, const struct wb_entry *entry)
{
    struct wb_slot *slot = &record->slots[record->count++];

    slot->name = entry->name;
    slot->name_length = (uint8_t)strlen(entry->name);
    slot->present = entry->present;
    if (entry->present) {
        slot->unbind = WB_UNBIND_KEPT;
        slot->object = entry->object;
        slot->attrs = entry->attrs;
    }
    return slot;
}

void wb_slot_set_to(struct wb_slot *slot, struct wb_object dir, const char *name)
{
    slot->unbind = WB_UNBIND_RENAMED;
    slot->to_dir = dir;
    slot->to_name = name;
    slot->to_length = (uint8_t)strlen(name);
}

void wb_slot_set_from(struct wb_slot *slot, struct wb_object dir, const char *name)
{
    slot->from_dir = dir;
    slot->from_name = name;
    slot->from_length = (uint8_t)strlen(name);
}

void wb_plan_add_links(struct wb_plan *plan, const struct wb_entry *entry)
{
    if (entry->present && !S_ISDIR(entry->attrs.mode) && entry->attrs.nlink > 1)
        wb_plan_add_attrs(plan, entry->object, &entry->attrs);
}

/* ---- birth and link -------------------------------------------------------------------------- */

/* The plan's first record: dir/name, which must not be there. */
static int add_absent(struct wb_plan *plan, struct wb_dir *dir, const char *name, struct wb_slot **ret)
{
    struct wb_entry entry;
    struct wb_rec_name *record;
    int r = wb_entry_look(plan->store, dir, name, &entry);

    if (r == -EXDEV || (r >= 0 && entry.present))
        return -EEXIST;
    if (r >= 0)
        r = wb_plan_add_name(plan, dir, &record);
    if (r < 0)
        return r;
    *ret = wb_name_add_slot(record, &entry);
    return 0;
}

int wb_capture_birth(struct wb_store *store, struct wb_change *change, struct wb_dir *dir, const char *name,
                     enum wb_op op, uint32_t actor)
{
    struct wb_plan plan;
    struct wb_slot *slot;
    int r;

    wb_plan_init(&plan, store, change, op, actor);
    r = add_absent(&plan, dir, name, &slot);
    if (r >= 0)
        r = wb_plan_write(&plan);
    return r < 0 ? wb_change_gap(store, change, r, dir->object, WB_FILE_CATALOG) : r;
}

static int record_link(struct wb_store *store, struct wb_change *change, struct wb_dir *dir, const char *name,
                       struct wb_target *source, int source_fd, const char *from_name, uint32_t actor)
{
    struct wb_plan plan;
    struct wb_slot *slot;
    struct wb_attrs attrs;
    struct wb_object object;
    enum wb_object_file file;
    struct wb_record *record;
    struct wb_rec_attr *attr;
    int r;

    wb_plan_init(&plan, store, change, WB_OP_LINK, actor);
    r = add_absent(&plan, dir, name, &slot);
    if (r < 0)
        return r;
    if (source->parent && from_name)
        wb_slot_set_from(slot, source->parent->object, from_name);

    if (!source->unborn) {
        r = wb_object_stat(store, source_fd, NULL, NULL, &attrs, NULL);
        if (r >= 0)
            r = wb_attrs_log(store, source, &object, &file);
        if (r < 0)
            return r;
        attrs.nlink = source->nlink;
        record = wb_plan_add(&plan, object, file, WB_REC_ATTR);
        if (source->parent && from_name)
            wb_via_set(record, file, source->parent->object, from_name);
        attr = &record->attr;
        attr->object = source->object;
        attr->attrs = attrs;
        attr->size_after = attrs.size;
        if (file == WB_FILE_UNDO)
            wb_hint_set(&source->has_undo);
    }
    return wb_plan_write(&plan);
}

int wb_capture_link(struct wb_store *store, struct wb_change *change, struct wb_dir *dir, const char *name,
                    struct wb_target *source, int source_fd, const char *from_name, uint32_t actor)
{
    int error = record_link(store, change, dir, name, source, source_fd, from_name, actor), r = error;

    if (r < 0)
        r = wb_change_gap(store, change, error, dir->object, WB_FILE_CATALOG);
    if (r == WB_UNCHANGED && !source->unborn)
        r = wb_change_gap(store, change, error, source->object, WB_FILE_UNDO);
    if (r < 0)
        wb_capture_end(change, r);
    return r;
}

/* ---- removal --------------------------------------------------------------------------------- */

static int check_removable(const struct wb_entry *entry, bool is_dir)
{
    if (!entry->present)
        return -ENOENT;
    if (is_dir != wb_entry_is_dir(entry))
        return is_dir ? -ENOTDIR : -EISDIR;
    return 0;
}

static int record_removal(struct wb_plan *plan, struct wb_dir *dir, const struct wb_entry *entry)
{
    struct wb_rec_name *record;
    int r = wb_plan_add_name(plan, dir, &record);

    if (r < 0)
        return r;
    wb_name_add_slot(record, entry);
    wb_plan_add_links(plan, entry);
    return wb_plan_write(plan);
}

int wb_change_gap_name(struct wb_store *store, struct wb_change *change, int error, const struct wb_dir *dir,
                       const struct wb_entry *entry)
{
    int r = wb_change_gap(store, change, error, dir->object, WB_FILE_CATALOG);

    if (r == WB_UNCHANGED && entry->present && !S_ISDIR(entry->attrs.mode) && entry->attrs.nlink > 1)
        r = wb_change_gap(store, change, error, entry->object, WB_FILE_UNDO);
    return r;
}

int wb_capture_remove(struct wb_store *store, struct wb_dir *dir, const char *name, bool is_dir,
                      uint32_t actor)
{
    struct wb_change change;
    struct wb_plan plan;
    struct wb_entry entry;
    bool readable = true;
    int r;

    r = wb_entry_look(store, dir, name, &entry);
    if (r >= 0)
        r = check_removable(&entry, is_dir);
    if (r >= 0 && is_dir) {
        r = wb_entry_check_empty(dir, name);
        if (r == -EACCES) {
            readable = false;
            r = 0;
        }
    }
    if (r < 0)
        return r;

    wb_plan_init(&plan, store, &change, is_dir ? WB_OP_RMDIR : WB_OP_UNLINK, actor);
    r = record_removal(&plan, dir, &entry);
    if (r < 0)
        r = wb_change_gap_name(store, &change, r, dir, &entry);
    if (r < 0) {
        wb_capture_end(&change, r);
        return r;
    }

    /*
     * Only rmdir(2) can determine whether a directory that we may not read is empty. It removes
     * the inode, but the slot describes an empty directory completely.
     */
    if (readable)
        r = wb_grave_bury_name(store, dir->fd, name, entry.object, is_dir);
    else
        r = unlinkat(dir->fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
    if (r == 0)
        wb_store_note_growth(store, actor, entry.attrs.uid, entry.attrs.size);
    wb_capture_end(&change, r);
    return r;
}
