/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The steps of an erasure, in an order that allows for a crash between any two of them:
 *
 *  1. read everything: which objects, which catalogs tell of them, which processes made them;
 *  2. the commands of the processes: only the records that go next tell whose they are;
 *  3. contents: graveyard, undo logs, images. An object that lives on gets a log that says that
 *     its past is not known, before any record about it goes. One that does not is noted before its file goes,
 *     since by that alone it is known, and until no record tells of it;
 *  4. catalogs of other directories, written anew;
 *  5. catalogs of erased directories, those below before those above;
 *  6. the catalog of the name itself, written anew.
 *
 * What an erasure is about is read from the catalogs, from the name downward. So catalogs go after all
 * that they lead to, and the one everything begins with goes last: whatever a crash leaves is
 * found, and finished, when the same erasure is asked for again. In between, states of what is
 * half erased are refused, never wrong: a content goes before the records that would alter it.
 */
#include "keep/erase.h"

#include "capture/capture.h"
#include "keep/bundle.h"
#include "keep/erase_set.h"
#include "keep/rewrite.h"
#include "store/received.h"
#include "history/lookback.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- removing -------------------------------------------------------------------------------- */

/* Removes a file of an object; its bytes are counted. 1: removed, 0: there was none, or -errno. */
static int remove_file(struct wb_erasure *erasure, struct wb_object object, enum wb_object_file file,
                       struct wb_erase_count *count)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    int dir_fd = buried ? erasure->store->grave_fd : erasure->store->dir_fd;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    if (dir_fd < 0)
        return 0;
    wb_object_path(object, file, path);
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (unlinkat(dir_fd, path, file == WB_FILE_DIR ? AT_REMOVEDIR : 0) < 0)
        return -errno;
    if (S_ISREG(st.st_mode) && st.st_nlink == 1)
        count->bytes += (uint64_t)st.st_size;
    if (file == WB_FILE_UNDO || file == WB_FILE_CATALOG)
        wb_store_drop_log(erasure->store, object, file);
    return 1;
}

/* A log that begins with "nothing older is known"; a catalog tells where its directory is before. */
static int begin_anew(struct wb_erasure *erasure, const struct wb_doomed *doomed)
{
    struct wb_rewrite rewrite;
    struct wb_record place = {.type = WB_REC_PLACE};
    char name[WB_NAME_MAX + 1];
    int r;

    if (doomed->is_dir) {
        r = wb_lookback_place(erasure->store, doomed->object, WB_WHEN_PRESENT, &place.place.parent, name);
        if (r != 0)
            return r == WB_ABSENT ? 0 : r;
    }
    r = wb_rewrite_begin(&rewrite, erasure->store, doomed->object,
                         doomed->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r >= 0 && doomed->is_dir) {
        place.when = wb_store_tick(erasure->store);
        place.place.self = doomed->object;
        place.place.name = name;
        place.place.name_length = (uint8_t)strlen(name);
        r = wb_rewrite_append(&rewrite, &place, -1);
    }
    if (r >= 0)
        r = wb_rewrite_append_gap(&rewrite, 0, wb_store_tick(erasure->store), WB_GAP_ERASED);
    if (r >= 0)
        r = wb_rewrite_commit(&rewrite);
    wb_rewrite_abandon(&rewrite);
    return r;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static int erase_content(struct wb_erasure *erasure, const struct wb_doomed *doomed,
                         struct wb_erase_count *count)
{
    int lives = wb_erasure_lives_on(erasure, doomed->object);
    int r = lives;

    if (lives > 0) {
        int had = wb_store_has_log(erasure->store, doomed->object, WB_FILE_UNDO);

        r = had;
        if (had > 0 || (had == 0 && doomed->touched))
            r = begin_anew(erasure, doomed);
    }
    if (r >= 0)
        r = remove_file(erasure, doomed->object, WB_FILE_DATA, count);
    if (r >= 0)
        r = wb_bundle_drop(erasure->store, doomed->object);
    if (r >= 0 && !lives)
        r = remove_file(erasure, doomed->object, WB_FILE_UNDO, count);
    if (r >= 0)
        r = remove_file(erasure, doomed->object, WB_FILE_IMAGE, count);
    /* Without a record about it elsewhere, that it is gone makes no difference any more. */
    if (r >= 0 && !lives && !doomed->touched)
        r = wb_erasure_forget_gone(erasure, doomed->object);
    return r < 0 ? r : 0;
}

/*
 * What is cut, and is a deleted file still, needs its bundle; but not the one that has what it was before it came back.
 * Any other has none to need.
 */
static int sort_by_bundle(struct wb_erasure *erasure, GHashTable *all, GHashTable *old)
{
    GHashTableIter iter;
    void *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;
        struct stat st;

        if (doomed->doom != WB_DOOM_PAST || doomed->is_dir)
            continue;
        r = wb_erasure_is_cut(erasure, doomed);
        if (r > 0 && erasure->store->grave_fd >= 0)
            r = wb_grave_has(erasure->store, doomed->object, false);
        else if (r > 0)
            r = 0;
        if (r > 0 && wb_bundle_stat(erasure->store, doomed->object, WB_FILE_BUNDLE, &st) == WB_ABSENT)
            g_hash_table_add(old, g_memdup2(&doomed->object, sizeof(doomed->object)));
        else if (r == 0)
            g_hash_table_add(all, g_memdup2(&doomed->object, sizeof(doomed->object)));
    }
    return r < 0 ? r : 0;
}

/* From bundles that others need as well, first of all: then no file is left without its bundle. */
static int erase_from_bundles(struct wb_erasure *erasure)
{
    g_autoptr(GHashTable) all = wb_bundle_objects_new();
    g_autoptr(GHashTable) old = wb_bundle_objects_new();
    GHashTableIter iter;
    void *key;
    int r = sort_by_bundle(erasure, all, old);

    if (r == 0)
        r = wb_bundle_forget(erasure->store, all);
    if (r == 0)
        r = wb_bundle_forget_old(erasure->store, old);
    /* Those whose file is gone already, or is in the tree. */
    g_hash_table_iter_init(&iter, all);
    while (r == 0 && g_hash_table_iter_next(&iter, &key, NULL))
        if (wb_grave_has(erasure->store, *(struct wb_object *)key, false) == 0)
            r = wb_bundle_drop(erasure->store, *(struct wb_object *)key);
    return r;
}

/* What was removed stays removed, and what was noted noted, before the next step relies on it. */
static int settle(struct wb_erasure *erasure)
{
    struct wb_store *store = erasure->store;

    if (syncfs(store->dir_fd) < 0)
        return -errno;
    return store->grave_fd >= 0 && store->grave_fd != store->dir_fd && syncfs(store->grave_fd) < 0 ? -errno
                                                                                                  : 0;
}

/* A file that is nowhere else, and goes as a whole. 1, 0 or -errno. */
static int is_going(const struct wb_erasure *erasure, const struct wb_doomed *doomed)
{
    int r;

    if (doomed->doom != WB_DOOM_PAST || doomed->is_dir)
        return 0;
    r = wb_erasure_is_cut(erasure, doomed);
    if (r == 0)
        r = wb_erasure_lives_on(erasure, doomed->object);
    return r < 0 ? r : r == 0;
}

/* All that are going to be gone; or that is forgotten again. 1: the disk has to know first, 0 or -errno. */
static int note_gone(struct wb_erasure *erasure, bool gone)
{
    const struct wb_store *store = erasure->store;
    struct stat notes, graves;
    GHashTableIter iter;
    void *value;
    bool any = false;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;

        r = is_going(erasure, doomed);
        if (r <= 0)
            continue;
        r = gone ? wb_erasure_note_gone(erasure, doomed->object) : wb_erasure_forget_gone(erasure, doomed->object);
        any = true;
    }
    if (r < 0 || !any || !gone)
        return MIN(r, 0);
    /* One file system keeps the order by itself. */
    if (fstat(store->dir_fd, &notes) < 0 || fstat(store->grave_fd, &graves) < 0)
        return -errno;
    return notes.st_dev != graves.st_dev;
}

static int erase_contents(struct wb_erasure *erasure, struct wb_erase_count *count)
{
    GHashTableIter iter;
    void *value;
    int r = note_gone(erasure, true);

    if (r > 0)
        r = settle(erasure);
    if (r >= 0)
        r = erase_from_bundles(erasure);
    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_doomed *doomed = value;

        if (doomed->doom != WB_DOOM_PAST)
            continue;
        count->objects++;
        if (doomed->is_dir)
            continue;
        r = wb_erasure_is_cut(erasure, doomed);
        if (r >= 0)
            r = r > 0 ? wb_erasure_cut_file(erasure, doomed, &count->bytes) : erase_content(erasure, doomed, count);
    }
    return r;
}

static int erase_catalogs(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->catalogs);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, NULL))
        r = wb_erasure_rewrite_catalog(erasure, *(struct wb_object *)key, false);
    return r;
}

static int erase_directory(struct wb_erasure *erasure, const struct wb_doomed *doomed, struct wb_erase_count *count)
{
    int r = wb_erasure_is_cut(erasure, doomed);

    if (r != 0)
        return r < 0 ? r : wb_erasure_cut_catalog(erasure, doomed, &count->bytes);
    if (doomed->here)
        return begin_anew(erasure, doomed);
    r = remove_file(erasure, doomed->object, WB_FILE_DIR, count);
    return r < 0 ? r : remove_file(erasure, doomed->object, WB_FILE_CATALOG, count);
}

static int erase_directories(struct wb_erasure *erasure, struct wb_erase_count *count)
{
    int r = 0;

    for (guint i = erasure->order->len; r >= 0 && i-- > 0;) {
        const struct wb_doomed *doomed = erasure->order->pdata[i];

        if (doomed->doom == WB_DOOM_PAST)
            r = erase_directory(erasure, doomed, count);
    }
    return r < 0 ? r : 0;
}

/* A copy that was sent before tells of it still, and nothing that is sent from now on could change that. */
static int mark(struct wb_erasure *erasure)
{
    return wb_erased_mark(erasure->store->dir_fd, wb_store_tick(erasure->store));
}

static int carry_out(struct wb_erasure *erasure, struct wb_erase_count *count)
{
    int r = mark(erasure);

    if (r >= 0)
        r = wb_erasure_rewrite_actors(erasure);
    if (r >= 0)
        r = erase_contents(erasure, count);
    if (r >= 0)
        r = settle(erasure);
    if (r >= 0)
        r = erase_catalogs(erasure);
    if (r >= 0)
        r = erase_directories(erasure, count);
    if (r >= 0)
        r = settle(erasure);
    if (r >= 0)
        r = wb_erasure_rewrite_catalog(erasure, erasure->dir, erasure->present && !erasure->before);
    if (r >= 0)
        r = mark(erasure);
    return r < 0 ? r : note_gone(erasure, false);
}

/* "There is no such name before now" is told by the directory's catalog: made where there is none. */
static int ensure_catalog(struct wb_erasure *erasure, struct wb_spot *dir)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, TRUE, sizeof(struct wb_dir));
    struct wb_dir *dirs;
    int r = wb_store_has_log(erasure->store, erasure->dir, WB_FILE_CATALOG);

    if (r != 0)
        return r < 0 ? r : 0;
    for (struct wb_spot *at = dir; at; at = wb_spot_parent(at)) {
        struct wb_dir one = {.object = wb_spot_object(at), .name = wb_spot_name(at), .fd = -1};

        g_array_append_val(chain, one);
    }
    dirs = (struct wb_dir *)(void *)chain->data;
    for (guint i = 0; i + 1 < chain->len; i++)
        dirs[i].parent = &dirs[i + 1];
    return wb_capture_ensure_catalog(erasure->store, &dirs[0]);
}

static int tell(struct wb_problem *why, int r, const char *name)
{
    switch (r) {
    case -ENOENT:
        return wb_problem_set(why, r, "%s: no history of such a name", name);
    case -EPERM:
        return wb_problem_set(why, r, "%s: not all of its history is the caller's own", name);
    case -EISDIR:
        return wb_problem_set(why, r, "%s: is a directory; -r erases it with all that ever was in it", name);
    case -EEXIST:
        return wb_problem_set(why, r, "%s: is there again; nothing was erased, remove it first", name);
    case -EROFS:
        return wb_problem_set(why, r, "%s: the history is read-only here", name);
    case -EUCLEAN:
        return wb_problem_set(why, r, "%s: nothing was erased: a catalog is damaged (see vfsck), and what newer states "
                              "need is not known", name);
    default:
        return wb_problem_set(why, r, "%s: not erased completely: %s; do it again to finish", name,
                              strerror(-r));
    }
}

int wb_erase(struct wb_history *history, struct wb_spot *dir, const char *name, unsigned flags, int64_t before,
             uid_t by, struct wb_erase_count *ret, struct wb_problem *why)
{
    struct wb_erase_count count = {0};
    struct wb_erasure erasure;
    int r;

    if (!*name || strlen(name) > WB_NAME_MAX)
        return wb_problem_set(why, -EINVAL, "not a name whose history can be erased: \"%s\"", name);
    wb_erasure_init(&erasure, history, dir, name, flags);
    erasure.before = before;
    r = erasure.store->writable ? 0 : -EROFS;
    if (r >= 0)
        r = wb_erasure_gather(&erasure, dir);
    if (r >= 0)
        r = wb_erasure_permit(&erasure, by);
    /* A compaction under way would bring back what is forgotten: it gives up. */
    wb_rewriting_own(erasure.store);
    if (r >= 0 && g_hash_table_size(erasure.objects) == 0)
        r = -ENOENT;
    if (r >= 0 && erasure.present && !before)
        r = ensure_catalog(&erasure, dir);
    if (r >= 0 && before)
        r = wb_erasure_settle_moment(&erasure);
    if (r >= 0)
        r = wb_erasure_survey(&erasure);
    if (r >= 0 && before)
        r = wb_erasure_see(&erasure);
    if (r >= 0)
        r = carry_out(&erasure, &count);
    wb_log_chunks_forget();
    pthread_mutex_unlock(&erasure.store->rewriting);
    wb_erasure_deinit(&erasure);
    if (ret)
        *ret = count;
    return r < 0 ? tell(why, r, name) : 0;
}

int wb_erase_permitted(struct wb_history *history, struct wb_spot *dir, const char *name, uid_t by)
{
    struct wb_erasure erasure;
    int r;

    if (by == 0)
        return 0;
    wb_erasure_init(&erasure, history, dir, name, WB_ERASE_RECURSIVE);
    r = wb_erasure_gather(&erasure, dir);
    if (r >= 0)
        r = wb_erasure_permit(&erasure, by);
    wb_erasure_deinit(&erasure);
    return r;
}
