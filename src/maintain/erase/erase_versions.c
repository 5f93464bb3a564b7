/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The changes from the first that is named to the last become two: for a moment before the first, or between them, both
 * are undone together (WB_RECORD_JOINED), so that of each byte only what the oldest of them tells is needed. Thinning
 * leaves the heads of what it drops, since no record may move; here the log is written anew, with nobody writing, and
 * what is left of the changes tells attributes, sizes and ranges of the state before them only.
 */
#include "maintain/erase/erase_versions_parts.h"

#include "base/cleanup.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include <errno.h>
#include <fcntl.h>

/* Records that never counted may hold what goes, too. */
static bool is_dead(const struct wb_erasing *erasing, const struct wb_erasing_entry *entry,
                    const struct wb_record *record)
{
    if (entry->counts)
        return record->type == WB_REC_FILLER && record->filler.until == 0;
    return wb_erasing_has(erasing, record->type == WB_REC_ABORT ? record->abort.target : record->written);
}

static int copy(struct wb_erasing *erasing)
{
    struct wb_log_reader reader;
    struct wb_record record, until = {.when = erasing->what->until};
    bool ended = false;
    int r = wb_log_reader_init(&reader, erasing->fd);

    if (r < 0)
        return r;
    wb_log_reader_seek(&reader, 0);
    for (guint i = erasing->entries->len; i-- > 0;) {
        const struct wb_erasing_entry *entry = &g_array_index(erasing->entries, struct wb_erasing_entry, i);

        r = wb_log_reader_next(&reader, &record);
        if (r != 0 || record.offset != entry->offset) {
            r = r < 0 ? r : -EBADMSG;
            break;
        }
        if (erasing->begun && !ended && record.written > erasing->what->until) {
            ended = true;
            r = erasing->last == until.when ? 0 : wb_erasing_make_attr(erasing, &until);
            if (r == 0)
                r = wb_erasing_put(erasing, false);
        }
        if (r == 0 && entry->told) {
            record.when = entry->when;
            r = wb_erasing_make(erasing, &record);
        } else if (r == 0 && !is_dead(erasing, entry, &record)) {
            r = wb_erasing_put(erasing, false);
            if (r == 0)
                r = wb_rewrite_append(&erasing->rewrite, &record, erasing->fd);
        }
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    if (r == 0 && !ended && erasing->last != until.when)
        r = wb_erasing_make_attr(erasing, &until);
    return r == 0 ? wb_erasing_put(erasing, false) : r;
}

static int write_anew(struct wb_erasing *erasing, uint64_t *bytes)
{
    struct stat before, after;
    int r = fstat(erasing->fd, &before) < 0 ? -errno : 0;

    erasing->payload = g_try_malloc(WB_PAYLOAD_MAX);
    erasing->made.payload = g_try_malloc(WB_PAYLOAD_MAX);
    if (r == 0 && (!erasing->payload || !erasing->made.payload))
        r = -ENOMEM;
    if (r == 0)
        r = wb_rewrite_begin(&erasing->rewrite, erasing->store, erasing->what->object, WB_FILE_UNDO);
    if (r == 0)
        r = copy(erasing);
    if (r == 0)
        r = wb_erasure_rewrite_actors(erasing->erasure);
    if (r == 0 && fstat(erasing->rewrite.log->fd, &after) == 0 && after.st_size < before.st_size)
        *bytes += (uint64_t)(before.st_size - after.st_size);
    if (r == 0)
        r = wb_rewrite_commit(&erasing->rewrite);
    wb_rewrite_abandon(&erasing->rewrite);
    g_free(erasing->payload);
    g_free(erasing->made.payload);
    return r;
}

static int erase(struct wb_erasing *erasing, struct wb_control_erased_versions *ret)
{
    const struct wb_erase_versions *what = erasing->what;
    struct wb_store *store = erasing->store;
    int r;

    erasing->fd = wb_store_open_file(store, what->object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    erasing->image_fd = wb_store_open_file(store, what->object, WB_FILE_IMAGE, O_RDONLY | O_CLOEXEC);
    if (erasing->fd < 0)
        return erasing->fd == -ENOENT ? WB_CONTROL_REFUSED_NONE : erasing->fd;
    /* Also what an earlier attempt was kept from, whatever is asked for now. */
    r = what->dry_run ? 0 : wb_erasure_clean_image(store, what->object, &ret->bytes);
    if (r == 0)
        r = wb_erasing_look(erasing);
    if (r != 0)
        return r;
    ret->versions = erasing->dropped;
    if (what->dry_run)
        return 0;
    /* A copy that was sent before tells of it still. */
    r = wb_erased_mark(store->dir_fd, wb_store_tick(store));
    if (r == 0)
        r = write_anew(erasing, &ret->bytes);
    if (r == 0)
        r = wb_erasure_clean_image(store, what->object, &ret->bytes);
    return r == 0 ? wb_erased_mark(store->dir_fd, wb_store_tick(store)) : r;
}

int wb_erase_versions(struct wb_store *store, const struct wb_erase_versions *what,
                      struct wb_control_erased_versions *ret)
{
    struct wb_erasure erasure = {.store = store, .actors = g_hash_table_new(NULL, NULL)};
    struct wb_erasing erasing = {.store = store, .what = what, .erasure = &erasure, .fd = -1, .image_fd = -1,
                              .size_after = UINT64_MAX,
                              .entries = g_array_new(FALSE, FALSE, sizeof(struct wb_erasing_entry)),
                              .last_ops = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                              .names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};
    unsigned hold;
    int r;

    wb_extent_map_init(&erasing.map);
    /* As in wb_erase: a compaction under way gives up. */
    wb_rewriting_own(store);
    r = store->writable ? wb_store_hold_pins(store, &hold) : -EROFS;
    if (r == 0) {
        r = erase(&erasing, ret);
        wb_store_release_pins(store, hold);
    }
    wb_log_chunks_forget();
    pthread_mutex_unlock(&store->rewriting);
    wb_close_fd(&erasing.fd);
    wb_close_fd(&erasing.image_fd);
    wb_extent_map_deinit(&erasing.map);
    g_hash_table_unref(erasing.names);
    g_hash_table_unref(erasing.last_ops);
    g_array_unref(erasing.entries);
    g_hash_table_unref(erasure.actors);
    return r == -EBADMSG ? WB_CONTROL_REFUSED_DAMAGED : r;
}
