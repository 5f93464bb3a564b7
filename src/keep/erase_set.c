/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which objects an erasure is about.
 *
 * Everything that ever was bound to the name; of directories among it, everything that ever was
 * in them. An object has one past, whatever names it was seen through: so what it was at other
 * names goes too. One exception: a directory that has moved out and lives on at another place is
 * that place's, with all that is in it.
 */
#include "keep/erase_set.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "format/object_key.h"
#include "history/lookback.h"
#include "history/source.h"
#include "keep/erase.h"
#include "store/locate.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int wb_erasure_init(struct wb_erasure *erasure, struct wb_history *history, struct wb_spot *dir,
                    const char *name, unsigned flags)
{
    *erasure = (struct wb_erasure){.history = history,
                                   .store = wb_history_store(history),
                                   .flags = flags,
                                   .dir = wb_spot_object(dir),
                                   .name = name};
    erasure->objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    erasure->catalogs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    erasure->departures = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    erasure->actors = g_hash_table_new(NULL, NULL);
    erasure->order = g_ptr_array_new();
    return 0;
}

void wb_erasure_deinit(struct wb_erasure *erasure)
{
    g_clear_pointer(&erasure->order, g_ptr_array_unref);
    g_clear_pointer(&erasure->objects, g_hash_table_unref);
    g_clear_pointer(&erasure->catalogs, g_hash_table_unref);
    g_clear_pointer(&erasure->departures, g_hash_table_unref);
    g_clear_pointer(&erasure->actors, g_hash_table_unref);
}

struct wb_doomed *wb_erasure_find(const struct wb_erasure *erasure, struct wb_object object)
{
    return g_hash_table_lookup(erasure->objects, &object);
}

static struct wb_doomed *add(struct wb_erasure *erasure, struct wb_object object,
                             const struct wb_attrs *attrs, bool here)
{
    struct wb_doomed *doomed = wb_erasure_find(erasure, object);

    if (doomed)
        return doomed;
    doomed = g_new0(struct wb_doomed, 1);
    doomed->object = object;
    doomed->is_dir = S_ISDIR(attrs->mode);
    doomed->here = here;
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

int wb_erasure_lives_on(const struct wb_erasure *erasure, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

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
    return errno == ENOENT ? 1 : -errno;
}

int wb_erasure_note_gone(struct wb_erasure *erasure, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];
    int fd;

    wb_object_path(object, WB_FILE_GONE, path);
    fd = openat(erasure->store->dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    close(fd);
    return 0;
}

int wb_erasure_forget_gone(struct wb_erasure *erasure, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, WB_FILE_GONE, path);
    return unlinkat(erasure->store->dir_fd, path, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* top/name and all below it, which stays. */
static int add_present(struct wb_erasure *erasure, int top, const char *name)
{
    GQueue queue = G_QUEUE_INIT;
    int r = 0;

    g_queue_push_tail(&queue, g_strdup(name));
    while (r >= 0 && !g_queue_is_empty(&queue)) {
        g_autofree char *path = g_queue_pop_head(&queue);
        struct wb_object object;
        struct wb_attrs attrs;

        r = wb_object_stat(erasure->store, top, path, &object, &attrs, NULL);
        /* Another file system mounted there has no history here. */
        if (r == -ENOENT || r == -EXDEV) {
            r = 0;
        } else if (r >= 0) {
            /* What had the name itself is told of in the catalog of a directory that goes on. */
            add(erasure, object, &attrs, true)->touched |= erasure->before && strcmp(path, name) == 0;
            if (S_ISDIR(attrs.mode))
                r = add_present_entries(erasure, top, path, &queue);
        }
    }
    g_queue_clear_full(&queue, g_free);
    return r;
}

static int gather_present(struct wb_erasure *erasure, struct wb_spot *dir)
{
    _cleanup_close_ int fd =
        wb_spot_open_present(erasure->history, dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct wb_attrs attrs;
    int r;

    if (fd < 0)
        return fd == -EIO || fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_object_stat(erasure->store, fd, erasure->name, NULL, &attrs, NULL);
    if (r == -ENOENT)
        return WB_ABSENT;
    if (r < 0)
        return r;
    if (erasure->flags & WB_ERASE_PRESENT)
        return -EEXIST;
    if (S_ISDIR(attrs.mode) && !(erasure->flags & WB_ERASE_RECURSIVE))
        return -EISDIR;
    erasure->present = true;
    return add_present(erasure, fd, erasure->name);
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

static int add_past(struct wb_erasure *erasure, const struct wb_slot *slot, bool top)
{
    struct wb_doomed *doomed;
    int r;

    if (!slot->present || wb_erasure_find(erasure, slot->object))
        return 0;
    doomed = add(erasure, slot->object, &slot->attrs, false);
    doomed->touched = erasure->before && top;
    if (!doomed->is_dir)
        return 0;
    r = lives_elsewhere(erasure, slot->object);
    if (r > 0)
        doomed->doom = WB_DOOM_ELSEWHERE;
    return r < 0 ? r : 0;
}

/* Everything that `dir` ever had under `name`, or under any name. */
static int gather_past(struct wb_erasure *erasure, struct wb_object dir, const char *name)
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

            if (!name ||
                (strlen(name) == slot->name_length && memcmp(name, slot->name, slot->name_length) == 0))
                added = add_past(erasure, slot, name != NULL);
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
static int check_newest(const struct wb_erasure *erasure)
{
    struct wb_loss_found loss;
    int r;

    if (erasure->flags & WB_ERASE_RECURSIVE)
        return 0;
    r = wb_lookback_loss(erasure->store, erasure->dir, erasure->name, WB_WHEN_PRESENT, &loss);
    return r == 0 && S_ISDIR(loss.attrs.mode) ? -EISDIR : 0;
}

int wb_erasure_gather(struct wb_erasure *erasure, struct wb_spot *dir)
{
    int r = gather_present(erasure, dir);

    if (r == WB_ABSENT)
        r = check_newest(erasure);
    if (r >= 0)
        r = gather_past(erasure, erasure->dir, erasure->name);
    /* The list grows while it is gone through: breadth first, so that whoever tells of a directory comes
     * before it. */
    for (guint i = 0; r >= 0 && i < erasure->order->len; i++) {
        const struct wb_doomed *doomed = erasure->order->pdata[i];

        if (doomed->doom == WB_DOOM_PAST)
            r = gather_past(erasure, doomed->object, NULL);
    }
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
