/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which names are erased together. One pass reads and writes each catalog once, for all names of the pass; but after a
 * crash, a request to erase any one of these names must finish the pass. So no name of a pass may be in a directory
 * that the others erase: such names wait for a pass of their own. By then their directory is gone, and mostly they are
 * gone with it. A failure is reported with the name that caused it: if a pass fails, each name is erased by itself.
 */
#include "maintain/erase/erase.h"

#include "capture/capture.h"
#include "history/state/lookback.h"
#include "maintain/bundle/bundle.h"
#include "maintain/erase/erase_set.h"
#include "maintain/rewrite/rewrite.h"
#include "store/tables/manifest.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/*
 * The steps of an erasure, in an order that allows for a crash between any two of them:
 *
 *  1. read everything: which objects, which catalogs have records of them, which processes made them;
 *  2. the commands of the processes: only the records that are erased next show whose they are;
 *  3. contents: graveyard, undo logs, images. An object that lives on gets a log that says that
 *     its past is not known, before any record about it is erased. An object that does not live on is noted before its
 *     file is deleted, since the note alone identifies it then; the note is kept until no record mentions the object;
 *  4. catalogs of other directories, written anew; also those of erased names, if they have records of erased objects
 *     to which these names do not lead: all but the records of what these names had;
 *  5. catalogs of erased directories, those below before those above;
 *  6. the catalogs of the names themselves, written anew.
 *
 * An erasure finds its objects in the catalogs, from the names downward. So a catalog is erased after all objects
 * to which it leads, and those of the names themselves last: after a crash, the rest is
 * found, and erased, when the same erasure is requested again. Between two catalogs of step 6, one name is gone as
 * a whole, and the other leads to all records of what it had: step 4 ensures this. In between, reads of half erased
 * states fail and never return wrong data: a content is deleted before the records that would alter it.
 */

/* ---- removing -------------------------------------------------------------------------------- */

/* Removes a file of an object; its bytes are counted. 1: removed, 0: there was none, or -errno. */
static int remove_file(struct wb_erasure *erasure, struct wb_object object, enum wb_object_file file,
                       uint64_t *bytes)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    int dir_fd = buried ? erasure->store->grave_fd : erasure->store->dir_fd;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    int r;

    if (dir_fd < 0)
        return 0;
    /* Also where the log is missing: the manifest lists it no more. */
    if (file == WB_FILE_UNDO || file == WB_FILE_CATALOG) {
        r = wb_store_drop_log(erasure->store, object, file);
        if (r < 0)
            return r;
    }
    if (file == WB_FILE_DATA) {
        r = wb_manifest_withdraw_body(erasure->store, object, false);
        if (r < 0)
            return r;
    }
    wb_object_path(object, file, path);
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (unlinkat(dir_fd, path, file == WB_FILE_DIR ? AT_REMOVEDIR : 0) < 0)
        return -errno;
    if (S_ISREG(st.st_mode) && st.st_nlink == 1)
        *bytes += (uint64_t)st.st_size;
    return 1;
}

/* A log that begins with "nothing older is known", and before that, where the object is. */
static int begin_anew(struct wb_erasure *erasure, const struct wb_erase_victim *victim)
{
    struct wb_rewrite rewrite;
    struct wb_record place = {.type = WB_REC_PLACE};
    char name[WB_NAME_MAX + 1];
    int r;

    if (victim->is_dir) {
        r = wb_lookback_place(erasure->store, victim->object, WB_WHEN_PRESENT, &place.place.parent, name);
        if (r != 0)
            return r == WB_ABSENT ? 0 : r;
    }
    r = wb_rewrite_begin(&rewrite, erasure->store, victim->object, victim->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    if (r >= 0 && victim->is_dir) {
        place.when = wb_store_tick(erasure->store);
        place.place.self = victim->object;
        place.place.name = name;
        place.place.name_length = (uint8_t)strlen(name);
        r = wb_rewrite_append(&rewrite, &place, -1);
    }
    if (r >= 0 && !victim->is_dir)
        r = wb_erasure_append_places(erasure, victim, 0, &rewrite);
    if (r >= 0)
        r = wb_rewrite_append_gap(&rewrite, 0, wb_store_tick(erasure->store), WB_GAP_ERASED);
    if (r >= 0)
        r = wb_rewrite_commit(&rewrite);
    wb_rewrite_abandon(&rewrite);
    return r;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static int erase_content(struct wb_erasure *erasure, const struct wb_erase_victim *victim)
{
    uint64_t *bytes = &victim->by->bytes;
    int lives = wb_erasure_lives_on(erasure, victim->object);
    int r = lives;

    if (lives > 0) {
        int had = wb_store_has_log(erasure->store, victim->object, WB_FILE_UNDO);

        r = had;
        if (had > 0 || (had == 0 && victim->touched))
            r = begin_anew(erasure, victim);
    }
    if (r >= 0)
        r = remove_file(erasure, victim->object, WB_FILE_DATA, bytes);
    if (r >= 0)
        r = wb_bundle_drop(erasure->store, victim->object);
    if (r >= 0 && !lives)
        r = remove_file(erasure, victim->object, WB_FILE_UNDO, bytes);
    if (r >= 0)
        r = remove_file(erasure, victim->object, WB_FILE_IMAGE, bytes);
    /* Without a record about it elsewhere, that it is gone makes no difference any more. */
    if (r >= 0 && !lives && !victim->touched)
        r = wb_grave_forget_gone(erasure->store, victim->object);
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
        const struct wb_erase_victim *victim = value;
        struct stat st;

        if (victim->scope != WB_ERASE_SCOPE_ALL || victim->is_dir)
            continue;
        r = wb_erasure_is_cut(erasure, victim);
        if (r > 0 && erasure->store->grave_fd >= 0)
            r = wb_grave_has(erasure->store, victim->object, false);
        else if (r > 0)
            r = 0;
        if (r > 0 && wb_bundle_stat(erasure->store, victim->object, WB_FILE_BUNDLE, &st) == WB_ABSENT)
            g_hash_table_add(old, g_memdup2(&victim->object, sizeof(victim->object)));
        else if (r == 0)
            g_hash_table_add(all, g_memdup2(&victim->object, sizeof(victim->object)));
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

/* Makes removals and notes durable before the next step relies on them. */
static int settle(struct wb_erasure *erasure)
{
    struct wb_store *store = erasure->store;

    if (syncfs(store->dir_fd) < 0)
        return -errno;
    return store->grave_fd >= 0 && store->grave_fd != store->dir_fd && syncfs(store->grave_fd) < 0 ? -errno
                                                                                                  : 0;
}

/* A file that is nowhere else, and goes as a whole. 1, 0 or -errno. */
static int is_going(const struct wb_erasure *erasure, const struct wb_erase_victim *victim)
{
    int r;

    if (victim->scope != WB_ERASE_SCOPE_ALL || victim->is_dir)
        return 0;
    r = wb_erasure_is_cut(erasure, victim);
    if (r == 0)
        r = wb_erasure_lives_on(erasure, victim->object);
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
        const struct wb_erase_victim *victim = value;

        r = is_going(erasure, victim);
        if (r <= 0)
            continue;
        r = gone ? wb_grave_note_gone(store, victim->object) : wb_grave_forget_gone(store, victim->object);
        any = true;
    }
    if (r < 0 || !any || !gone)
        return MIN(r, 0);
    /* One file system keeps the order by itself. */
    if (fstat(store->dir_fd, &notes) < 0 || fstat(store->grave_fd, &graves) < 0)
        return -errno;
    return notes.st_dev != graves.st_dev;
}

static int erase_contents(struct wb_erasure *erasure)
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
        const struct wb_erase_victim *victim = value;

        if (victim->scope != WB_ERASE_SCOPE_ALL || victim->is_dir)
            continue;
        r = wb_erasure_is_cut(erasure, victim);
        if (r >= 0)
            r = r > 0 ? wb_erasure_cut_file(erasure, victim, &victim->by->bytes) : erase_content(erasure, victim);
    }
    return r;
}

/* The catalogs that were written come to the disk under other names, and then have their own; none, where `r` is an
 * error. */
static int publish(struct wb_erasure *erasure, int r)
{
    GArray *written = erasure->written;
    guint i = 0;

    if (written->len == 0)
        return r;
    if (r >= 0)
        r = settle(erasure);
    for (; r >= 0 && i < written->len; i++)
        r = wb_rewrite_publish(erasure->store, g_array_index(written, struct wb_object, i), WB_FILE_CATALOG);
    for (; i < written->len; i++)
        wb_rewrite_discard(erasure->store, g_array_index(written, struct wb_object, i), WB_FILE_CATALOG);
    g_array_set_size(written, 0);
    return r < 0 ? r : settle(erasure);
}

static int erase_catalogs(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key, *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->catalogs);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, NULL))
        r = wb_erasure_rewrite_catalog(erasure, *(struct wb_object *)key);
    g_hash_table_iter_init(&iter, erasure->origins);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, &value))
        if (((const struct wb_origin *)value)->crossed)
            r = wb_erasure_rewrite_catalog(erasure, *(struct wb_object *)key);
    return publish(erasure, r);
}

static int erase_directory(struct wb_erasure *erasure, const struct wb_erase_victim *victim)
{
    int r = wb_erasure_is_cut(erasure, victim);
    uint64_t *bytes = &victim->by->bytes;

    if (r != 0)
        return r < 0 ? r : wb_erasure_cut_catalog(erasure, victim, bytes);
    if (victim->here)
        return begin_anew(erasure, victim);
    r = remove_file(erasure, victim->object, WB_FILE_DIR, bytes);
    return r < 0 ? r : remove_file(erasure, victim->object, WB_FILE_CATALOG, bytes);
}

static int erase_directories(struct wb_erasure *erasure)
{
    int r = 0;

    for (guint i = erasure->order->len; r >= 0 && i-- > 0;) {
        const struct wb_erase_victim *victim = erasure->order->pdata[i];

        if (victim->scope == WB_ERASE_SCOPE_ALL)
            r = erase_directory(erasure, victim);
    }
    return r < 0 ? r : 0;
}

static int erase_origins(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->origins);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value))
        r = wb_erasure_rewrite_origin(erasure, value);
    return publish(erasure, r);
}

/* A copy that was sent before still has the records, and no later stream could remove them there. */
static int mark(struct wb_erasure *erasure)
{
    return wb_erased_mark(erasure->store->dir_fd, wb_store_tick(erasure->store));
}

/* Takes away what was gathered and surveyed. 0 or -errno: then the same erasure, done again, finishes it. */
static int erasure_carry_out(struct wb_erasure *erasure)
{
    int r = mark(erasure);

    if (r >= 0)
        r = wb_erasure_rewrite_actors(erasure);
    if (r >= 0)
        r = erase_contents(erasure);
    if (r >= 0)
        r = settle(erasure);
    if (r >= 0)
        r = erase_catalogs(erasure);
    if (r >= 0)
        r = erase_directories(erasure);
    if (r >= 0)
        r = settle(erasure);
    if (r >= 0)
        r = erase_origins(erasure);
    if (r >= 0)
        r = mark(erasure);
    return r < 0 ? r : note_gone(erasure, false);
}

struct job {
    struct wb_history *history;
    unsigned flags;
    int64_t before;
    uid_t by;
};

/* ---- the set --------------------------------------------------------------------------------- */

static int gather(const struct job *job, GPtrArray *names, struct wb_erasure *erasure)
{
    wb_erasure_init(erasure, job->history, job->flags);
    erasure->before = job->before;
    for (guint i = 0; i < names->len;) {
        struct wb_erase_name *name = names->pdata[i];

        name->result = wb_erasure_add(erasure, name->dir, name->name);
        if (name->result == 0)
            i++;
        else
            g_ptr_array_remove_index(names, i);
    }
    return wb_erasure_gather(erasure);
}

/* The names of the set, and only these, are those that were not refused. */
static void take_refused(const struct wb_erasure *erasure, GPtrArray *names)
{
    for (guint i = names->len; i-- > 0;) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];
        struct wb_erase_name *name = names->pdata[i];

        name->result = target->refused;
        if (target->refused == -ENOENT && name->late)
            name->result = 0;
        if (target->refused < 0)
            g_ptr_array_remove_index(names, i);
    }
}

/* Those that are in what others of them erase wait. False: there are none. */
static bool put_aside(const struct wb_erasure *erasure, GPtrArray *names, GPtrArray *later)
{
    guint had = names->len;

    for (guint i = names->len, at = erasure->targets->len; i-- > 0 && names->len > 1;) {
        struct wb_erase_name *name = names->pdata[i];
        const struct wb_erase_victim *dir = wb_erasure_find(erasure, wb_revision_object(name->dir));
        const struct wb_erased_name *target;

        /* Refused ones have left `names`. */
        do
            target = erasure->targets->pdata[--at];
        while (target->refused < 0);
        if (!dir || dir->scope != WB_ERASE_SCOPE_ALL)
            continue;
        name->late = true;
        name->count.objects = target->objects;
        g_ptr_array_insert(later, 0, name);
        g_ptr_array_remove_index(names, i);
    }
    return names->len < had;
}

static int check_owner_of(const struct job *job, struct wb_erase_name *name)
{
    g_autoptr(GPtrArray) one = g_ptr_array_new();
    struct wb_erasure erasure;
    int r;

    g_ptr_array_add(one, name);
    r = gather(job, one, &erasure);
    if (r >= 0)
        r = wb_erasure_check_owner(&erasure, job->by);
    wb_erasure_deinit(&erasure);
    return r;
}

/* Those leave of which not all is the caller's. */
static void sort_out(const struct job *job, GPtrArray *names)
{
    for (guint i = names->len; i-- > 0;) {
        struct wb_erase_name *name = names->pdata[i];

        name->result = check_owner_of(job, name);
        if (name->result < 0)
            g_ptr_array_remove_index(names, i);
    }
}

/* Gathers what goes together, in `erasure`, for the caller to deinit; what does not leaves `names`. 0 or -errno. */
static int choose(const struct job *job, GPtrArray *names, GPtrArray *later, struct wb_erasure *erasure)
{
    for (;;) {
        guint had;
        int r = gather(job, names, erasure);

        if (r < 0)
            return r;
        take_refused(erasure, names);
        if (!put_aside(erasure, names, later)) {
            r = wb_erasure_check_owner(erasure, job->by);
            if (r != -EPERM || names->len <= 1)
                return r;
            had = names->len;
            sort_out(job, names);
            if (names->len == had)
                return -EPERM;
        }
        wb_erasure_deinit(erasure);
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The directory's catalog states that the name did not exist before now: one is made if there is none. */
static int ensure_catalog(struct wb_erasure *erasure, struct wb_revision *dir)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, TRUE, sizeof(struct wb_dir));
    struct wb_dir *dirs;
    int r = wb_store_has_log(erasure->store, wb_revision_object(dir), WB_FILE_CATALOG);

    if (r != 0)
        return r < 0 ? r : 0;
    for (struct wb_revision *at = dir; at; at = wb_revision_parent(at)) {
        struct wb_dir one = {.object = wb_revision_object(at), .name = wb_revision_name(at), .fd = -1};

        g_array_append_val(chain, one);
    }
    dirs = (struct wb_dir *)(void *)chain->data;
    for (guint i = 0; i + 1 < chain->len; i++)
        dirs[i].parent = &dirs[i + 1];
    return wb_capture_ensure_catalog(erasure->store, &dirs[0]);
}

static int ensure_catalogs(struct wb_erasure *erasure)
{
    int r = 0;

    for (guint i = 0; r >= 0 && i < erasure->targets->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];

        if (target->present && target->refused == 0)
            r = ensure_catalog(erasure, target->dir);
    }
    return r;
}

static int carry_out(struct wb_erasure *erasure)
{
    int r = erasure->before ? wb_erasure_settle_moment(erasure) : ensure_catalogs(erasure);

    if (r >= 0)
        r = wb_erasure_survey(erasure);
    if (r >= 0 && erasure->before)
        r = wb_erasure_see(erasure);
    return r < 0 ? r : erasure_carry_out(erasure);
}

/* What went by each name that is in the set still, also if not all of it did. */
static void give_counts(const struct wb_erasure *erasure, GPtrArray *names)
{
    for (guint i = 0, at = 0; i < erasure->targets->len && at < names->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];
        struct wb_erase_name *name = names->pdata[at];

        if (target->refused < 0)
            continue;
        name->count.objects = MAX(name->count.objects, target->objects);
        name->count.bytes += erasure->before ? target->bytes : target->freed.history;
        at++;
    }
}

/* 0, or -errno of all that are in `names` still. */
static int pass(const struct job *job, GPtrArray *names, GPtrArray *later)
{
    struct wb_store *store = wb_history_store(job->history);
    struct wb_erasure erasure;
    int r;

    if (!store->writable)
        return -EROFS;
    r = choose(job, names, later, &erasure);
    /* A compaction under way would bring back what is forgotten: it gives up. */
    wb_rewriting_own(store);
    if (r >= 0 && names->len > 0 && !job->before)
        r = wb_erasure_measure(&erasure);
    if (r >= 0 && names->len > 0) {
        /* Of what fails from here on, some may be gone when it is gone on with. */
        for (guint i = 0; i < names->len; i++)
            ((struct wb_erase_name *)names->pdata[i])->late = true;
        r = carry_out(&erasure);
        give_counts(&erasure, names);
    }
    wb_log_chunks_forget();
    pthread_mutex_unlock(&store->rewriting);
    wb_erasure_deinit(&erasure);
    return r;
}

static void set_results(GPtrArray *names, int r)
{
    for (guint i = 0; i < names->len; i++)
        ((struct wb_erase_name *)names->pdata[i])->result = MIN(r, 0);
}

static void each_alone(const struct job *job, GPtrArray *names)
{
    for (guint i = 0; i < names->len; i++) {
        g_autoptr(GPtrArray) one = g_ptr_array_new();
        int r;

        g_ptr_array_add(one, names->pdata[i]);
        r = pass(job, one, NULL);
        set_results(one, r);
    }
}

static void erase_all(const struct job *job, GPtrArray *names)
{
    g_autoptr(GPtrArray) left = g_ptr_array_ref(names);
    struct wb_store *store = wb_history_store(job->history);

    if (store->writable)
        wb_store_note_forgotten(store, wb_store_tick(store));
    while (left->len > 0) {
        GPtrArray *later = g_ptr_array_new();
        int r = pass(job, left, later);

        if (r < 0 && left->len > 1)
            each_alone(job, left);
        else
            set_results(left, r);
        g_ptr_array_unref(left);
        left = later;
    }
}

/* ---- names asked for -------------------------------------------------------------------------- */

int wb_erase_report(struct wb_error *why, int r, const char *name)
{
    switch (r) {
    case -ENOENT:
        return wb_error_set(why, r, "%s: no history of this name", name);
    case -EPERM:
        return wb_error_set(why, r, "%s: part of its history belongs to other users", name);
    case -EISDIR:
        return wb_error_set(why, r, "%s: is a directory; -r erases it with everything that ever was in it", name);
    case -EEXIST:
        return wb_error_set(why, r, "%s: exists again, so nothing was erased; remove it first", name);
    case -EROFS:
        return wb_error_set(why, r, "%s: the history is read-only here", name);
    case -EUCLEAN:
        return wb_error_set(why, r,
                            "%s: nothing was erased (a catalog is damaged, so the history that newer states "
                            "need is unknown); run vfsck",
                            name);
    default:
        return wb_error_set(why, r, "%s: not erased completely: %s; run this again to finish", name, strerror(-r));
    }
}

void wb_erase_names(struct wb_history *history, struct wb_erase_name *names, size_t count, unsigned flags, uid_t by)
{
    struct job job = {.history = history, .flags = flags, .by = by};
    g_autoptr(GPtrArray) all = g_ptr_array_new();

    for (size_t i = 0; i < count; i++) {
        if (*names[i].name && strlen(names[i].name) <= WB_NAME_MAX)
            g_ptr_array_add(all, &names[i]);
        else
            names[i].result = -EINVAL;
    }
    erase_all(&job, all);
}

int wb_erase(struct wb_history *history, struct wb_revision *dir, const char *name, unsigned flags, int64_t before,
             uid_t by, struct wb_erase_count *ret, struct wb_error *why)
{
    struct wb_erase_name one = {.dir = dir, .name = name};
    struct job job = {history, flags, before, by};
    g_autoptr(GPtrArray) names = g_ptr_array_new();

    if (!*name || strlen(name) > WB_NAME_MAX)
        return wb_error_set(why, -EINVAL, "not a name whose history can be erased: \"%s\"", name);
    g_ptr_array_add(names, &one);
    erase_all(&job, names);
    if (ret)
        *ret = one.count;
    return one.result < 0 ? wb_erase_report(why, one.result, name) : 0;
}

int wb_erase_measure(struct wb_history *history, struct wb_revision *dir, const char *name, uid_t by,
                     struct wb_erase_freed *ret)
{
    struct wb_erasure erasure;
    const struct wb_erased_name *target;
    int r;

    wb_erasure_init(&erasure, history, WB_ERASE_RECURSIVE);
    erasure.measured = true;
    r = wb_erasure_add(&erasure, dir, name);
    if (r == 0)
        r = wb_erasure_gather(&erasure);
    if (r >= 0) {
        target = erasure.targets->pdata[0];
        r = target->refused < 0 ? target->refused : wb_erasure_check_owner(&erasure, by);
    }
    if (r >= 0)
        r = wb_erasure_measure(&erasure);
    if (r >= 0)
        *ret = target->freed;
    wb_erasure_deinit(&erasure);
    return MIN(r, 0);
}

int wb_erase_permitted(struct wb_history *history, struct wb_revision *dir, const char *name, uid_t by)
{
    struct wb_erase_name one = {.dir = dir, .name = name};
    struct job job = {.history = history, .flags = WB_ERASE_RECURSIVE, .by = by};

    return by == 0 ? 0 : check_owner_of(&job, &one);
}
