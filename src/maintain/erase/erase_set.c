/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which objects an erasure is about.
 *
 * Everything that ever was bound to one of the names; of directories among it, everything that ever was
 * in them. An object has one past, whatever names it was seen through: so what it was at other
 * names goes too. One exception: a directory that has moved out and lives on at another place is
 * that place's, with all that is in it.
 */
#include "maintain/erase/erase_set.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/object_key.h"
#include "history/locate/lookback.h"
#include "history/source.h"
#include "maintain/erase/erase.h"
#include "store/object/locate.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- objects --------------------------------------------------------------------------------- */

struct wb_doomed *wb_erasure_find(const struct wb_erasure *erasure, struct wb_object object)
{
    return g_hash_table_lookup(erasure->objects, &object);
}

/* `top`: it has or had the erased name itself. */
static struct wb_doomed *add(struct wb_erasure *erasure, struct wb_object object, const struct wb_attrs *attrs,
                             struct wb_erased_name *by, bool top)
{
    struct wb_doomed *doomed = wb_erasure_find(erasure, object);

    by->found = true;
    if (doomed && doomed->by != by && top)
        g_hash_table_add(by->shared, doomed);
    if (doomed)
        return doomed;
    doomed = g_new0(struct wb_doomed, 1);
    doomed->object = object;
    doomed->by = by;
    doomed->lead = top ? wb_spot_object(by->dir) : WB_OBJECT_NONE;
    doomed->is_dir = S_ISDIR(attrs->mode);
    doomed->uid = attrs->uid;
    g_hash_table_insert(erasure->objects, &doomed->object, doomed);
    if (doomed->is_dir)
        g_ptr_array_add(erasure->order, doomed);
    return doomed;
}

/* ---- what is there now ----------------------------------------------------------------------- */

/* top/path, where it is a directory: its entries join the queue. */
static int add_present_entries(struct wb_erasure *erasure, int top, const char *path, GQueue *queue)
{
    _cleanup_closedir_ DIR *stream = wb_opendir_at(top, path);
    struct dirent *entry;
    int r = 0;

    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r))
        g_queue_push_tail(queue, g_strconcat(path, "/", entry->d_name, NULL));
    return r;
}

/* Of what is in the graveyard something is left there, until age takes it away with its log; what came back has one. */
static int went_by_age(const struct wb_erasure *erasure, struct wb_object object)
{
    const struct wb_doomed *doomed = wb_erasure_find(erasure, object);
    int had;

    if (!doomed || !doomed->kept || doomed->here || wb_store_horizon(erasure->store) == 0)
        return 0;
    had = wb_store_has_log(erasure->store, object, WB_FILE_UNDO);
    return had < 0 ? had : !had;
}

int wb_erasure_lives_on(const struct wb_erasure *erasure, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    if (erasure->store->grave_fd < 0)
        return 1;
    wb_object_path(object, WB_FILE_DATA, path);
    if (fstatat(erasure->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return st.st_nlink > 1;
    if (errno != ENOENT)
        return -errno;
    wb_object_path(object, WB_FILE_GONE, path);
    if (fstatat(erasure->store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    r = went_by_age(erasure, object);
    return r < 0 ? r : !r;
}

/* What has the name, in the directory `top`, and all below it, which stays. */
static int add_present(struct wb_erasure *erasure, int top, struct wb_erased_name *target)
{
    GQueue queue = G_QUEUE_INIT;
    int r = 0;

    g_queue_push_tail(&queue, g_strdup(target->name));
    while (r >= 0 && !g_queue_is_empty(&queue)) {
        g_autofree char *path = g_queue_pop_head(&queue);
        bool is_top = strcmp(path, target->name) == 0;
        struct wb_doomed *doomed;
        struct wb_object object;
        struct wb_attrs attrs;
        struct stat st;

        r = wb_object_stat(erasure->store, top, path, &object, &attrs, &st);
        /* Another file system mounted there has no history here. */
        if (r == -ENOENT || r == -EXDEV) {
            r = 0;
        } else if (r >= 0) {
            doomed = add(erasure, object, &attrs, target, is_top);
            doomed->here = true;
            if (doomed->names++ == 0 && erasure->measured)
                doomed->blocks = wb_erase_blocks(top, path, &st);
            /* What had the name itself is told of in the catalog of a directory that goes on. */
            doomed->touched |= erasure->before && is_top;
            if (S_ISDIR(attrs.mode))
                r = add_present_entries(erasure, top, path, &queue);
        }
    }
    g_queue_clear_full(&queue, g_free);
    return r;
}

static int gather_present(struct wb_erasure *erasure, struct wb_erased_name *target)
{
    _cleanup_close_ int fd =
        wb_spot_open_present(erasure->history, target->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct wb_attrs attrs;
    int r;

    if (fd < 0)
        return fd == -EIO || fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_object_stat(erasure->store, fd, target->name, NULL, &attrs, NULL);
    if (r == -ENOENT)
        return WB_ABSENT;
    if (r < 0)
        return r;
    if (erasure->flags & WB_ERASE_PRESENT)
        return -EEXIST;
    if (S_ISDIR(attrs.mode) && !(erasure->flags & WB_ERASE_RECURSIVE))
        return -EISDIR;
    target->present = true;
    return add_present(erasure, fd, target);
}

/* ---- what was -------------------------------------------------------------------------------- */

/* Whether a directory that was here is somewhere else now. */
static int lives_elsewhere(struct wb_erasure *erasure, struct wb_object dir)
{
    _cleanup_close_ int fd = -1;
    int r = wb_store_locate_dir(erasure->store, dir, &fd);

    if (r == 0)
        return 1;
    /* Without a catalog it never moved, and here it is not; at none of its places, it is no more. */
    return r == WB_ABSENT || r == -ENOENT || r == -EIO ? 0 : r;
}

static int add_past(struct wb_erasure *erasure, const struct wb_slot *slot, struct wb_erased_name *by, bool top)
{
    bool known = slot->present && wb_erasure_find(erasure, slot->object);
    struct wb_doomed *doomed;
    int r;

    if (!slot->present || (known && !top))
        return 0;
    doomed = add(erasure, slot->object, &slot->attrs, by, top);
    if (known)
        return 0;
    doomed->touched = erasure->before && top;
    if (!doomed->is_dir)
        return 0;
    r = lives_elsewhere(erasure, slot->object);
    if (r > 0)
        doomed->doom = WB_DOOM_ELSEWHERE;
    return r < 0 ? r : 0;
}

/* Everything that `dir` ever had: under the names of `origin`, or under any name of what was found by one. */
static int gather_past(struct wb_erasure *erasure, struct wb_object dir, const struct wb_origin *origin,
                       struct wb_erased_name *by)
{
    struct wb_source source;
    const struct wb_record *head = &source.head;
    int r = wb_source_open(&source, erasure->store, dir, WB_FILE_CATALOG);

    if (r < 0)
        return r;
    /* Damage hides what it hides: what is behind it is still found. */
    while ((r = wb_source_peek(&source)) == 0 || r == WB_DAMAGED) {
        int added = 0;

        if (r == WB_DAMAGED)
            continue;
        for (uint32_t i = 0; head->type == WB_REC_NAME && i < head->name.count && added >= 0; i++) {
            const struct wb_slot *slot = &head->name.slots[i];
            struct wb_erased_name *target = origin ? wb_erasure_name(origin, slot->name, slot->name_length) : by;

            if (target)
                added = add_past(erasure, slot, target, origin != NULL);
        }
        wb_source_take(&source);
        if (added < 0) {
            r = added;
            break;
        }
    }
    wb_source_close(&source);
    return r < 0 ? r : 0;
}

/* Only -r may erase what was a directory at last. */
static int check_newest(const struct wb_erasure *erasure, const struct wb_erased_name *target)
{
    struct wb_loss_found loss;
    int r;

    if (erasure->flags & WB_ERASE_RECURSIVE)
        return 0;
    r = wb_lookback_loss(erasure->store, wb_spot_object(target->dir), target->name, WB_WHEN_PRESENT, &loss);
    return r == 0 && S_ISDIR(loss.attrs.mode) ? -EISDIR : 0;
}

/* What is there now comes before all that was: a directory that lives at one of the names goes with it, although it
 * was at another one before. */
static int gather_presents(struct wb_erasure *erasure)
{
    for (guint i = 0; i < erasure->targets->len; i++) {
        struct wb_erased_name *target = erasure->targets->pdata[i];
        int r = gather_present(erasure, target);

        if (r == WB_ABSENT)
            r = check_newest(erasure, target);
        if (r == -EISDIR || r == -EEXIST)
            wb_erasure_refuse(erasure, target, r);
        else if (r < 0)
            return r;
    }
    return 0;
}

static void count_objects(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key, *value;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;

        doomed->by->objects += doomed->doom == WB_DOOM_PAST;
    }
    for (guint i = 0; i < erasure->targets->len; i++) {
        struct wb_erased_name *target = erasure->targets->pdata[i];

        g_hash_table_iter_init(&iter, target->shared);
        while (g_hash_table_iter_next(&iter, &key, NULL))
            target->objects += ((const struct wb_doomed *)key)->doom == WB_DOOM_PAST;
        if (!target->found && target->refused == 0)
            wb_erasure_refuse(erasure, target, -ENOENT);
    }
}

int wb_erasure_gather(struct wb_erasure *erasure)
{
    int r = gather_presents(erasure);
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, erasure->origins);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_origin *origin = value;

        r = gather_past(erasure, origin->dir, origin, NULL);
    }
    /* The list grows while it is gone through: breadth first, so that whoever tells of a directory comes
     * before it. */
    for (guint i = 0; r >= 0 && i < erasure->order->len; i++) {
        const struct wb_doomed *doomed = erasure->order->pdata[i];

        if (doomed->doom == WB_DOOM_PAST)
            r = gather_past(erasure, doomed->object, NULL, doomed->by);
    }
    if (r >= 0)
        count_objects(erasure);
    return r;
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* What is buried tells itself; of what moved on, the record by which it left. */
static int owner_of(const struct wb_erasure *erasure, const struct wb_doomed *doomed, uint32_t *ret)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    *ret = doomed->uid;
    if (doomed->here || erasure->store->grave_fd < 0)
        return 0;
    wb_object_path(doomed->object, doomed->is_dir ? WB_FILE_DIR : WB_FILE_DATA, path);
    if (fstatat(erasure->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = st.st_uid;
    return 0;
}

int wb_erasure_permit(const struct wb_erasure *erasure, uint32_t uid)
{
    GHashTableIter iter;
    void *value;

    if (uid == 0)
        return 0;
    g_hash_table_iter_init(&iter, erasure->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;
        uint32_t owner;
        int r;

        if (doomed->doom != WB_DOOM_PAST)
            continue;
        r = owner_of(erasure, doomed, &owner);
        if (r < 0 || owner != uid)
            return r < 0 ? r : -EPERM;
    }
    return 0;
}
