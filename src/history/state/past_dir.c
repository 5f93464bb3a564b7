/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads a past directory: its listing, and revisions of its entries. */
#include "history/internal.h"

#include <errno.h>

struct wb_past_dir {
    struct wb_history *history;
    struct wb_revision *revision;
    struct wb_listing *listing;
};

/* ---- past directories ------------------------------------------------------------------------ */

int wb_past_dir_open(struct wb_history *history, struct wb_revision *dir, struct wb_past_dir **ret)
{
    struct wb_past_dir *past;
    struct wb_listing *listing;
    int r = wb_listing_open(history, dir, &listing);

    if (r < 0)
        return r;
    past = g_new0(struct wb_past_dir, 1);
    *past = (struct wb_past_dir){history, wb_revision_ref(dir), listing};
    *ret = past;
    return 0;
}

struct wb_past_dir *wb_past_dir_free(struct wb_past_dir *dir)
{
    if (dir) {
        wb_listing_unref(dir->listing);
        wb_revision_unref(dir->revision);
    }
    g_free(dir);
    return NULL;
}

bool wb_past_dir_is_good(const struct wb_past_dir *dir)
{
    const struct wb_listing *listing = dir->listing;
    struct wb_object log;

    /* A caller that replayed no record may meet a catalog that was created since. */
    if (listing->records > 0 && (wb_catalog_identity(dir->history, listing->dir, &log) < 0 ||
                                 !wb_object_equal(log, listing->log)))
        return false;
    return wb_history_check_gaps(dir->history, listing->dir, WB_FILE_CATALOG, listing->when) == 0 &&
           wb_history_end(dir->history, listing->when, 0) == 0;
}

size_t wb_past_dir_size(const struct wb_past_dir *dir)
{
    return wb_listing_size(dir->listing);
}

static const struct wb_listing_entry *entry_at(const struct wb_past_dir *dir, size_t index)
{
    return &g_array_index(dir->listing->entries, struct wb_listing_entry, index);
}

size_t wb_past_dir_count(const struct wb_past_dir *dir)
{
    return dir->listing->entries->len;
}

const char *wb_past_dir_name(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->name;
}

uint32_t wb_past_dir_type(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->mode & S_IFMT;
}

int64_t wb_past_dir_ctime(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->ctime;
}

struct wb_object wb_past_dir_object(const struct wb_past_dir *dir, size_t index)
{
    return entry_at(dir, index)->object;
}

int wb_past_dir_revision(struct wb_past_dir *dir, size_t index, struct wb_revision **ret)
{
    return wb_listing_revision(dir->history, dir->listing, dir->revision, index, ret);
}
