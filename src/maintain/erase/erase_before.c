/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Erases only history before a moment. The log of an object that states of the moment or later need is cut there: it is
 * written anew without the records up to the moment, and begins with a GAP of that moment, which ends every walk to an
 * older state and none to a newer one. Objects that no such state needs are erased as a whole, as in any erasure.
 *
 * Some records take effect later than they were written, and the moment is moved for them: an object's inode may be
 * born after the record by which it was there, content lost in a stage counts from the stage's end, and joined changes
 * from the newest of them. The first moves the moment of all objects, as names of it may be anywhere; the others move
 * that of their file.
 */
#include "maintain/erase/erase_set.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "history/state/lookback.h"
#include "history/log_cursor.h"
#include "maintain/prune/prune.h"
#include "maintain/rewrite/rewrite.h"
#include "store/cache/preclone.h"
#include "store/inflight/stages.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Creations under way at a moment, one after the other: more than there ever are. */
#define ROUNDS 64

/* ---- the moment -------------------------------------------------------------------------------- */

/* Whether names of `dir` changed so shortly before the moment that a birth may lie after it: 1, 0 or -errno. */
static int changed_shortly(const struct wb_erasure *erasure, struct wb_object dir)
{
    struct wb_log_cursor source;
    bool found = false;
    int r = wb_log_cursor_open(&source, erasure->store, dir, WB_FILE_CATALOG);

    if (r < 0)
        return r;
    for (; !found && ((r = wb_log_cursor_peek(&source)) == 0 || r == WB_DAMAGED); wb_log_cursor_take(&source)) {
        if (r == WB_DAMAGED)
            continue;
        if (source.head.when <= erasure->before - WB_PRUNE_SLACK)
            break;
        found = source.head.type == WB_REC_NAME && source.head.when <= erasure->before;
    }
    wb_log_cursor_close(&source);
    return r < 0 ? r : found;
}

static void hold(GHashTable *births, const char *name, size_t length, int64_t birth)
{
    g_hash_table_insert(births, g_strndup(name, length), g_memdup2(&birth, sizeof(birth)));
}

/* Collects the births of the present entries of `dir`. A directory that does not exist any more has none. */
static int births_now(const struct wb_erasure *erasure, struct wb_object dir, GHashTable *births)
{
    _cleanup_closedir_ DIR *stream = NULL;
    struct wb_object object;
    struct dirent *entry;
    _cleanup_close_ int fd = -1;
    int r = wb_catalog_path_open_dir(erasure->store, dir, &fd);

    if (r != 0)
        return r == WB_ABSENT || r == -ENOENT || r == -EIO ? 0 : r;
    stream = wb_opendir_at(fd, ".");
    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r))
        if (wb_object_stat(erasure->store, dirfd(stream), entry->d_name, &object, NULL, NULL) == 0)
            hold(births, entry->d_name, strlen(entry->d_name), object.birth);
    return r;
}

/* *lowest falls to the `when` of what bound a name up to the moment to an object that was born after it. */
static int look_for_births(const struct wb_erasure *erasure, struct wb_object dir, const struct wb_origin *only,
                           int64_t *lowest)
{
    g_autoptr(GHashTable) births = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    struct wb_log_cursor source;
    int r = changed_shortly(erasure, dir);

    if (r <= 0)
        return r;
    r = births_now(erasure, dir, births);
    if (r == 0)
        r = wb_log_cursor_open(&source, erasure->store, dir, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    for (; (r = wb_log_cursor_peek(&source)) == 0 || r == WB_DAMAGED; wb_log_cursor_take(&source)) {
        const struct wb_record *head = &source.head;

        if (r == WB_DAMAGED)
            continue;
        if (head->when <= erasure->before - WB_PRUNE_SLACK)
            break;
        for (uint32_t i = 0; head->type == WB_REC_NAME && i < head->name.count; i++) {
            const struct wb_slot *slot = &head->name.slots[i];
            g_autofree char *name = g_strndup(slot->name, slot->name_length);
            const int64_t *birth = g_hash_table_lookup(births, name);

            if (head->when <= erasure->before && birth && *birth > erasure->before &&
                (!only || g_hash_table_contains(only->names, name)))
                *lowest = MIN(*lowest, head->when);
            hold(births, name, slot->name_length, slot->present ? slot->object.birth : 0);
        }
    }
    wb_log_cursor_close(&source);
    return r < 0 ? r : 0;
}

int wb_erasure_settle_moment(struct wb_erasure *erasure)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        int64_t lowest = INT64_MAX;
        GHashTableIter iter;
        void *value;
        int r = 0;

        g_hash_table_iter_init(&iter, erasure->origins);
        while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
            const struct wb_origin *origin = value;

            r = look_for_births(erasure, origin->dir, origin, &lowest);
        }
        for (guint i = 0; r >= 0 && i < erasure->order->len; i++) {
            const struct wb_erase_victim *victim = erasure->order->pdata[i];

            if (victim->scope == WB_ERASE_SCOPE_ALL)
                r = look_for_births(erasure, victim->object, NULL, &lowest);
        }
        if (r < 0 || lowest == INT64_MAX)
            return r;
        erasure->before = lowest - 1;
    }
    return -EAGAIN;
}

/* ---- what is needed ------------------------------------------------------------------------------ */

int wb_erasure_is_cut(const struct wb_erasure *erasure, const struct wb_erase_victim *victim)
{
    if (!erasure->before)
        return 0;
    if (victim->here || victim->needed)
        return 1;
    return victim->is_dir ? 0 : wb_erasure_lives_on(erasure, victim->object);
}

int wb_erasure_see(const struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *value;
    int r = 1;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (erasure->blind && r > 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erase_victim *victim = value;

        if (victim->scope == WB_ERASE_SCOPE_ALL)
            r = wb_erasure_is_cut(erasure, victim);
    }
    return r == 0 ? -EUCLEAN : MIN(r, 0);
}

/* ---- logs -------------------------------------------------------------------------------------- */

/* The facts about a log before it is cut. */
struct cut {
    int64_t after; /* the records that are later stay                     */
    int64_t gap;   /* `when` of the GAP it begins with; 0: there is none  */
    bool worth;    /* there is something to be taken, or it is damaged    */
};

/*
 * Content of a stage counts from its end, and joined changes from the newest of them: if that is after the moment, the
 * records are kept, with all later ones. So are GAPs of a stage.
 */
static int look(const struct wb_erasure *erasure, struct wb_object object, int fd, struct cut *cut)
{
    int64_t moment = cut->after, oldest = INT64_MAX;
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED) {
            cut->worth = true;
            continue;
        }
        r = wb_log_skip_judge(&skip, &record);
        if (r < 0)
            break;
        if (r > 0 && record.type == WB_REC_GAP)
            record.when = wb_stages_gap_when(erasure->store, object, &skip, &record);
        if (r > 0 && record.when > moment)
            cut->after = MIN(cut->after, record.written - 1);
        if (record.offset == 0 && record.type == WB_REC_GAP && record.gap.reason == WB_GAP_ERASED)
            cut->gap = record.written;
        else
            oldest = record.written;
    }
    wb_log_reader_deinit(&reader);
    cut->worth |= oldest <= cut->after;
    return MIN(r, 0);
}

static int begin_with_place(struct wb_erasure *erasure, struct wb_object dir, int64_t when,
                            struct wb_rewrite *rewrite)
{
    struct wb_record record = {.type = WB_REC_PLACE, .when = when, .place.self = dir};
    char name[WB_NAME_MAX + 1];
    int r = wb_lookback_place(erasure->store, dir, when, &record.place.parent, name);

    if (r != 0)
        return r == WB_ABSENT ? -EIO : r;
    record.place.name = name;
    record.place.name_length = (uint8_t)strlen(name);
    return wb_rewrite_append(rewrite, &record, -1);
}

static uint64_t size_of(int fd)
{
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* `fd`: of the log as it is, -1: there is none yet. */
static int write_anew(struct wb_erasure *erasure, const struct wb_erase_victim *victim, int fd, int64_t after,
                      uint64_t *bytes)
{
    uint64_t old_size = size_of(fd), new_size;
    struct wb_rewrite rewrite;
    int r = wb_rewrite_begin(&rewrite, erasure->store, victim->object, victim->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);

    if (r >= 0 && victim->is_dir)
        r = begin_with_place(erasure, victim->object, after, &rewrite);
    else if (r >= 0)
        r = wb_erasure_append_places(erasure, victim, after, &rewrite);
    if (r >= 0)
        r = wb_rewrite_append_gap(&rewrite, 0, after, WB_GAP_ERASED);
    if (r >= 0 && fd >= 0)
        r = wb_rewrite_copy(&rewrite, fd, &(struct wb_rewrite_copy){.after = after, .gaps = true});
    new_size = r >= 0 ? rewrite.log->tail : old_size;
    if (r >= 0)
        r = wb_rewrite_commit(&rewrite);
    wb_rewrite_abandon(&rewrite);
    if (r >= 0 && new_size < old_size)
        *bytes += old_size - new_size;
    return r;
}

/* ---- images ------------------------------------------------------------------------------------ */

static int compare_extents(const void *a, const void *b)
{
    const struct wb_extent *x = a, *y = b;

    return x->source < y->source ? -1 : x->source > y->source;
}

/* What the records of a log have in its image, in order of where that is. */
static int gather_extents(int fd, GArray *extents)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0)
        for (uint32_t i = 0; record.type == WB_REC_DATA && i < record.data.count; i++)
            if (record.data.extents[i].kind == WB_EXTENT_IMAGE)
                g_array_append_val(extents, record.data.extents[i]);
    wb_log_reader_deinit(&reader);
    g_array_sort(extents, compare_extents);
    return r == WB_DAMAGED ? -EIO : MIN(r, 0);
}

static int punch(int fd, uint64_t from, uint64_t to)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    return from < to && fallocate(fd, mode, (off_t)from, (off_t)(to - from)) < 0 ? -errno : 0;
}

/*
 * All of the image that no record has goes, to the byte: also what was cloned ahead and never referred to, and what
 * shares a block with something that is needed.
 */
int wb_erasure_clean_image(struct wb_store *store, struct wb_object object, uint64_t *bytes)
{
    g_autoptr(GArray) extents = g_array_new(FALSE, FALSE, sizeof(struct wb_extent));
    _cleanup_close_ int log = wb_store_open_file(store, object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    _cleanup_close_ int fd = -1;
    struct stat before, after;
    uint64_t at = 0;
    int r = 0;

    wb_preclone_release(store, object);
    fd = wb_store_open_file(store, object, WB_FILE_IMAGE, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &before) < 0)
        return -errno;
    if (log >= 0)
        r = gather_extents(log, extents);
    for (guint i = 0; r == 0 && i < extents->len; i++) {
        const struct wb_extent *extent = &g_array_index(extents, struct wb_extent, i);

        r = punch(fd, at, MIN(extent->source, (uint64_t)before.st_size));
        at = MAX(at, extent->source + extent->length);
    }
    if (r == 0)
        r = punch(fd, at, (uint64_t)before.st_size);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (fstat(fd, &after) == 0 && after.st_blocks < before.st_blocks)
        *bytes += (uint64_t)(before.st_blocks - after.st_blocks) * 512;
    return r;
}

/* ---- objects ----------------------------------------------------------------------------------- */

int wb_erasure_cut_file(struct wb_erasure *erasure, const struct wb_erase_victim *victim, uint64_t *bytes)
{
    _cleanup_close_ int fd = wb_store_open_file(erasure->store, victim->object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    struct cut cut = {.after = erasure->before};
    int r = 0;

    if (fd < 0 && (fd != -ENOENT || !victim->touched))
        return fd == -ENOENT ? 0 : fd;
    if (fd >= 0)
        r = look(erasure, victim->object, fd, &cut);
    cut.worth |= victim->touched && cut.gap < cut.after;
    if (r == 0 && cut.worth)
        r = write_anew(erasure, victim, fd, cut.after, bytes);
    return r < 0 ? r : wb_erasure_clean_image(erasure->store, victim->object, bytes);
}

int wb_erasure_cut_catalog(struct wb_erasure *erasure, const struct wb_erase_victim *victim, uint64_t *bytes)
{
    _cleanup_close_ int fd = wb_store_open_file(erasure->store, victim->object, WB_FILE_CATALOG, O_RDONLY | O_CLOEXEC);

    /* Without one, nothing ever changed in it. */
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    return write_anew(erasure, victim, fd, erasure->before, bytes);
}
