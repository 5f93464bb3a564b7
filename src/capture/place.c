/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Catalogs begin with a PLACE record, and are made together with those of all directories above:
 * so every directory that ever changed, or contains one that did, is found from its catalog alone.
 */

#include "capture/plan.h"

#include "store/tables/manifest.h"
#include <errno.h>
#include <string.h>

/* Apart from its caller, which recurses: a record is large. */
static __attribute__((noinline)) int append_place(struct wb_store *store, struct wb_log *log,
                                                  const struct wb_dir *dir)
{
    struct wb_record record = {.type = WB_REC_PLACE};

    record.when = wb_store_tick(store);
    record.place.self = dir->object;
    record.place.parent = dir->parent ? dir->parent->object : WB_OBJECT_NONE;
    record.place.name = dir->parent ? dir->name : "";
    record.place.name_length = (uint8_t)strlen(record.place.name);
    return wb_log_append_locked(log, &record, NULL, 0);
}

int wb_capture_ensure_catalog(struct wb_store *store, struct wb_dir *dir)
{
    struct wb_log *log;
    int64_t last;
    int r;

    if (wb_hint_get(&dir->has_catalog))
        return 0;
    /*
     * The parent first, also where the directory has a catalog: after a power cut the newer of the two may
     * be there without the older. Once per directory and mount, and as deep as the tree. (The
     * hint is all that changes in a parent; it is const for those who only follow the chain.)
     */
    if (dir->parent) {
        r = wb_capture_ensure_catalog(store, (struct wb_dir *)dir->parent);
        if (r < 0)
            return r;
    }
    r = wb_store_get_log(store, dir->object, WB_FILE_CATALOG, true, &log);
    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    /* What was lost is later than the newest record that is left; the PLACE is none of those. */
    last = log->last_when;
    if (log->tail == 0)
        r = append_place(store, log, dir);
    if (r >= 0 && log->tail_is_lost) {
        r = wb_log_record_lost_tail(store, log, last);
        if (r == 0)
            r = wb_manifest_log_mended(store, log, dir->object, WB_FILE_CATALOG);
    }
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    if (r >= 0)
        wb_hint_set(&dir->has_catalog);
    return r;
}

int wb_capture_correct_place(struct wb_store *store, struct wb_log *log, const struct wb_dir *dir)
{
    const struct wb_rec_place *place;
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    bool right = false;
    int r;

    if (!dir->parent)
        return 0;
    r = wb_log_reader_init(&reader, log->fd);
    if (r < 0)
        return r;
    do {
        r = wb_log_reader_prev_effective(&reader, &skip, &record);
    } while (r == 0 && record.type != WB_REC_PLACE);
    if (r == 0) {
        place = &record.place;
        right = wb_object_equal(place->parent, dir->parent->object) && place->name_length == strlen(dir->name) &&
                memcmp(place->name, dir->name, place->name_length) == 0;
    }
    wb_log_reader_deinit(&reader);
    /* If damage hides the newest one, one more is harmless: each is verified. */
    return r < 0 && r != -EBADMSG ? r : right ? 0 : append_place(store, log, dir);
}

int wb_capture_ensure_place(struct wb_store *store, struct wb_target *target)
{
    struct wb_dir *dir = target->self ? target->self : target->parent;

    return dir ? wb_capture_ensure_catalog(store, dir) : 0;
}

int wb_attrs_log(struct wb_store *store, struct wb_target *target, struct wb_object *ret_object,
                 enum wb_object_file *ret_file)
{
    struct wb_dir *dir = target->self ? target->self : target->parent;
    int r = wb_capture_ensure_place(store, target);

    if (r < 0)
        return r;
    if (!target->self) {
        *ret_object = target->object;
        *ret_file = WB_FILE_UNDO;
        if (!wb_hint_get(&target->has_undo)) {
            r = wb_store_has_log(store, target->object, WB_FILE_UNDO);
            if (r < 0)
                return r;
            if (r > 0)
                wb_hint_set(&target->has_undo);
        }
        if (wb_hint_get(&target->has_undo) || !dir || target->nlink != 1)
            return 0;
    }
    *ret_object = dir->object;
    *ret_file = WB_FILE_CATALOG;
    return 0;
}

int wb_capture_stat(struct wb_store *store, int dir_fd, const char *name, struct wb_object *object,
                    struct wb_attrs *attrs)
{
    struct wb_object found;
    struct wb_attrs now;
    int r = wb_object_stat(store, dir_fd, name, &found, &now, NULL);

    if (r < 0)
        return r;
    /* what is found under a name and has one link only is not in the graveyard as well */
    if (attrs && !S_ISDIR(now.mode) && now.nlink > (name ? 1u : 0u)) {
        r = wb_grave_has(store, found, false);
        if (r < 0)
            return r;
        now.nlink -= r > 0;
    }
    if (object)
        *object = found;
    if (attrs)
        *attrs = now;
    return 0;
}
