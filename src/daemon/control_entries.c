/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ENTRIES: what a directory held, with the objects and attributes, a page at a time: who compares two
 * moments of a tree has no use for inode numbers, which differ with the moment. The listing is made with
 * the first page and kept for those that follow; what a directory held at an instant does not change.
 */
#include "daemon/control.h"

#include "daemon/past.h"
#include "daemon/past_access.h"
#include "daemon/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

/* Two trees are walked side by side, a directory of each at a time. */
#define KEPT_MAX 8

struct kept {
    struct wb_object dir;
    int64_t when;
    uint64_t generation;
    struct wb_past_dir *listing;
};

static void kept_free(struct kept *kept)
{
    wb_past_dir_free(kept->listing);
    g_free(kept);
}

/* Takes it out of those that are kept; NULL: it is not among them. */
static struct wb_past_dir *take(struct wb_past *past, const struct wb_spot *spot)
{
    struct wb_past_dir *listing = NULL;

    pthread_mutex_lock(&past->lock);
    for (GList *link = past->entries.head; link; link = link->next) {
        struct kept *kept = link->data;

        if (kept->when != wb_spot_when(spot) || kept->generation != past->generation ||
            !wb_object_equal(kept->dir, wb_spot_object(spot)))
            continue;
        listing = kept->listing;
        g_queue_delete_link(&past->entries, link);
        g_free(kept);
        break;
    }
    pthread_mutex_unlock(&past->lock);
    return listing;
}

static void keep(struct wb_past *past, const struct wb_spot *spot, uint64_t generation,
                 struct wb_past_dir *listing)
{
    struct kept *kept = g_new(struct kept, 1), *oldest = NULL;

    *kept = (struct kept){wb_spot_object(spot), wb_spot_when(spot), generation, listing};
    pthread_mutex_lock(&past->lock);
    g_queue_push_tail(&past->entries, kept);
    if (past->entries.length > KEPT_MAX)
        oldest = g_queue_pop_head(&past->entries);
    pthread_mutex_unlock(&past->lock);
    if (oldest)
        kept_free(oldest);
}

void wb_entries_drop(struct wb_session *session)
{
    struct wb_past *past = session->past;
    struct kept *kept;

    do {
        pthread_mutex_lock(&past->lock);
        kept = g_queue_pop_head(&past->entries);
        pthread_mutex_unlock(&past->lock);
        if (kept)
            kept_free(kept);
    } while (kept);
}

/* The directory, if the caller could list it then and may now. */
static int find_dir(const struct wb_request *request, struct wb_spot **ret)
{
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_spot *dir __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r = wb_control_find(request, request->in->path, &dir, &name);

    if (r == 0)
        r = wb_control_entry(request, dir, name, &spot);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    if (wb_spot_type(spot) != S_IFDIR)
        return -ENOTDIR;
    r = wb_past_may_now(request->session, request->req, spot, R_OK | X_OK);
    if (r == 0 && wb_spot_when(spot) != WB_WHEN_PRESENT)
        r = wb_past_could_then(request->session, request->req, spot, R_OK | X_OK);
    if (r == 0)
        *ret = g_steal_pointer(&spot);
    return r;
}

/* One item; its size, 0 where there is no room, or -errno. */
static int put_entry(const struct wb_request *request, struct wb_past_dir *listing, size_t index, uint8_t *data,
                     size_t room)
{
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_control_entry *entry = (struct wb_control_entry *)(void *)data;
    struct wb_object object = wb_past_dir_object(listing, index);
    const char *name = wb_past_dir_name(listing, index);
    size_t size = (sizeof(*entry) + strlen(name) + 1 + 7) & ~(size_t)7;
    struct wb_attrs attrs;
    int r;

    if (size > room)
        return 0;
    r = wb_past_dir_spot(listing, index, &spot);
    if (r == 0)
        r = wb_spot_attrs(request->session->history, spot, &attrs);
    if (r != 0)
        return r < 0 ? r : -EIO;
    *entry = (struct wb_control_entry){
        .size = (uint32_t)size,
        .ino = object.ino,
        .birth = object.birth,
        .length = attrs.size,
        .mtime = attrs.mtime,
        .ctime = attrs.ctime,
        .mode = attrs.mode,
        .uid = attrs.uid,
        .gid = attrs.gid,
    };
    memcpy(entry->name, name, strlen(name) + 1);
    return (int)size;
}

static int fill_page(const struct wb_request *request, struct wb_past_dir *listing, struct wb_control *out)
{
    size_t used = 0, count = wb_past_dir_count(listing);
    int r;

    out->cursor = request->in->cursor;
    for (; out->cursor < count; out->cursor++) {
        r = put_entry(request, listing, (size_t)out->cursor, out->data + used, sizeof(out->data) - used);
        if (r == 0)
            break;
        /* What was found before an error is told first; asking on brings the error again. */
        if (r < 0)
            return out->count > 0 ? 0 : r;
        used += (size_t)r;
        out->count++;
    }
    return 0;
}

int wb_control_entries(const struct wb_request *request, struct wb_control *out)
{
    struct wb_past *past = request->session->past;
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_past_dir *listing;
    uint64_t generation;
    int r = find_dir(request, &spot);

    if (r < 0)
        return r;
    pthread_mutex_lock(&past->lock);
    generation = past->generation;
    pthread_mutex_unlock(&past->lock);
    listing = request->in->cursor > 0 ? take(past, spot) : NULL;
    r = listing ? 0 : wb_past_dir_open(request->session->history, spot, &listing);
    if (r != 0)
        return r < 0 ? r : -EIO;
    r = fill_page(request, listing, out);
    if (r == 0 && out->cursor < wb_past_dir_count(listing) && wb_spot_when(spot) != WB_WHEN_PRESENT)
        keep(past, spot, generation, listing);
    else
        wb_past_dir_free(listing);
    return r;
}
