/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * A lost object bound to a name again, without copying: the way back out of the graveyard.
 *
 * Recorded like every change of a name, so it can be undone. A PLACE record in the object's own log states
 * where it went: its old names say "kept", but the graveyard may not have it any longer.
 */

#include "capture/names.h"
#include "capture/restore.h"
#include "base/cleanup.h"
#include "store/graveyard/body_sums.h"
#include "store/graveyard/bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct restore {
    struct wb_store *store;
    struct wb_dir *dir;
    struct wb_entry victim; /* what has the name now */
    struct wb_object object;
    struct wb_attrs attrs; /* the object's */
    bool is_dir;
    int from_fd; /* directory of a living name, or -1 */
    const char *from_name;
};

void wb_restore_temp_name(struct wb_object object, char name[WB_RESTORE_TEMP_MAX])
{
    char text[WB_OBJECT_TEXT_MAX];

    wb_object_print(object, text);
    snprintf(name, WB_RESTORE_TEMP_MAX, "restore-%s", text);
}

/* Finds the object where the caller says it is, and looks whether the name may be taken. */
static int look(struct restore *restore, const char *name)
{
    _cleanup_close_ int fd = -1;
    struct wb_object found;
    int r;

    r = wb_entry_look(restore->store, restore->dir, name, &restore->victim);
    if (r < 0)
        return r;
    if (restore->is_dir && (restore->victim.present || restore->from_fd >= 0))
        return -EEXIST;
    if (wb_entry_is_dir(&restore->victim))
        return -EISDIR;

    if (restore->from_fd >= 0) {
        r = wb_capture_stat(restore->store, restore->from_fd, restore->from_name, &found, &restore->attrs);
    } else {
        fd = wb_grave_open(restore->store, restore->object, restore->is_dir, O_PATH | O_NOFOLLOW);
        if (fd < 0)
            return fd;
        r = wb_capture_stat(restore->store, fd, NULL, &found, &restore->attrs);
    }
    if (r < 0)
        return r;
    return wb_object_equal(found, restore->object) ? 0 : -ENOENT;
}

static int record(struct restore *restore, struct wb_plan *plan)
{
    enum wb_object_file file = restore->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_rec_name *names;
    struct wb_object from_dir;
    struct wb_slot *slot;
    int r;

    r = wb_plan_add_name(plan, restore->dir, &names);
    if (r < 0)
        return r;
    slot = wb_name_add_slot(names, &restore->victim);
    if (restore->from_fd >= 0) {
        r = wb_object_stat(plan->store, restore->from_fd, NULL, &from_dir, NULL, NULL);
        if (r < 0)
            return r;
        wb_slot_set_from(slot, from_dir, restore->from_name);
    }
    wb_plan_add_place(plan, file, restore->object, restore->dir->object, restore->victim.name);
    if (!restore->is_dir && restore->attrs.nlink > 0) /* its living names show the new count */
        wb_plan_add_attrs(plan, restore->object, &restore->attrs);
    wb_plan_add_links(plan, &restore->victim);
    return wb_plan_write(plan);
}

/* Binds the object to fd/name, which is free. */
static int bind(const struct restore *restore, int fd, const char *name)
{
    if (restore->from_fd < 0)
        return wb_grave_unbury(restore->store, restore->object, restore->is_dir, fd, name);
    return linkat(restore->from_fd, restore->from_name, fd, name, 0) < 0 ? -errno : 0;
}

/* Over a file that has the name: to a name in the store first, so that one rename replaces it. */
static int replace(const struct restore *restore)
{
    struct wb_store *store = restore->store;
    const struct wb_entry *victim = &restore->victim;
    char temp[WB_RESTORE_TEMP_MAX];
    int r;

    r = wb_grave_keep_link(store, restore->dir->fd, victim->name, victim->object);
    if (r == -EPERM || r == -EMLINK || r == -EOPNOTSUPP) {
        /* it may not be linked: then the name is free for a moment */
        r = wb_grave_bury_name(store, restore->dir->fd, victim->name, victim->object, false);
        return r < 0 ? r : bind(restore, restore->dir->fd, victim->name);
    }
    if (r < 0)
        return r;

    wb_restore_temp_name(restore->object, temp);
    r = bind(restore, store->grave_fd, temp);
    if (r < 0)
        return r;
    if (renameat(store->grave_fd, temp, restore->dir->fd, victim->name) < 0) {
        r = -errno;
        wb_restore_take_back(store, restore->object);
    }
    return r;
}

int wb_restore_take_back(struct wb_store *store, struct wb_object object)
{
    char temp[WB_RESTORE_TEMP_MAX];
    struct wb_object found;
    struct wb_attrs attrs;
    int r;

    wb_restore_temp_name(object, temp);
    r = wb_object_stat(store, store->grave_fd, temp, &found, &attrs, NULL);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (attrs.nlink > 1)
        return unlinkat(store->grave_fd, temp, 0) < 0 ? -errno : 0;
    return wb_grave_bury_name(store, store->grave_fd, temp, found, false);
}

/* Whole again before anything is said of it. */
static int restore_whole(struct restore *restore, const char *name, uint32_t actor)
{
    struct wb_store *store = restore->store;
    struct wb_change change;
    struct wb_plan plan;
    int r = restore->from_fd >= 0 || restore->is_dir ? 0 : wb_bundle_unpack(store, restore->object);

    /* As a living file it has no checksums: damage would be its content, and that of its past. */
    if (r == 0 && restore->from_fd < 0 && !restore->is_dir)
        r = wb_body_sums_check_all(store, restore->object);
    if (r == -EBADMSG)
        r = -EIO;
    if (r == 0)
        r = look(restore, name);
    if (r < 0)
        return r;
    if (restore->victim.present && wb_object_equal(restore->victim.object, restore->object))
        return 0;
    if (restore->victim.present) {
        r = wb_restore_take_back(store, restore->object);
        if (r < 0)
            return r;
    }
    wb_plan_init(&plan, store, &change, WB_OP_RESTORE, actor);
    r = record(restore, &plan);
    if (r < 0) {
        restore->dir->unrecorded = true;
        return r;
    }
    r = restore->victim.present ? replace(restore) : bind(restore, restore->dir->fd, name);
    wb_capture_end(&change, r);
    return r;
}

int wb_capture_restore(struct wb_store *store, struct wb_dir *dir, const char *name,
                       struct wb_object object, bool is_dir, int from_dir_fd, const char *from_name,
                       uint32_t actor)
{
    struct restore restore = {
        .store = store,
        .dir = dir,
        .object = object,
        .is_dir = is_dir,
        .from_fd = from_dir_fd,
        .from_name = from_name,
    };
    bool buried = from_dir_fd < 0 && !is_dir;
    int r;

    /* A compaction under way may be about to empty what the graveyard has: it gives up, and none begins before the file
     * has left. */
    if (buried)
        wb_rewriting_own(store);
    r = restore_whole(&restore, name, actor);
    if (buried)
        pthread_mutex_unlock(&store->rewriting);
    return r;
}
