/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ENTRIES: what a directory held, with the objects and attributes, a page at a time: who compares two
 * moments of a tree has no use for inode numbers, which differ with the moment. The listing is made with
 * the first page and kept for those that follow; what a directory held at an instant does not change.
 */
#include "daemon/control/control.h"

#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

struct kept {
    struct wb_paged paged;
    struct wb_object dir;
    int64_t when;
    struct wb_past_dir *listing;
};

static void free_paged(struct wb_paged *paged)
{
    struct kept *kept = (struct kept *)paged;

    wb_past_dir_free(kept->listing);
    g_free(kept);
}

static bool continues(const struct wb_paged *paged, const struct wb_paged *other)
{
    const struct kept *kept = (const struct kept *)paged, *wanted = (const struct kept *)other;

    return kept->when == wanted->when && wb_object_equal(kept->dir, wanted->dir);
}

/* The listing at its first page, or as it was kept. */
static int open_listing(const struct wb_request *request, struct wb_revision *revision, struct kept **ret)
{
    struct wb_past *past = request->session->past;
    struct kept wanted = {.paged.generation = wb_pages_generation(past), .dir = wb_revision_object(revision),
                          .when = wb_revision_when(revision)};
    struct wb_past_dir *listing;
    int r;

    if (request->in->cursor > 0) {
        *ret = (struct kept *)wb_pages_take(&past->entries, &wanted.paged, continues);
        if (*ret)
            return 0;
    }
    r = wb_past_dir_open(request->session->history, revision, &listing);
    if (r != 0)
        return r < 0 ? r : -EIO;
    *ret = g_new(struct kept, 1);
    **ret = wanted;
    (*ret)->listing = listing;
    return 0;
}

/* The directory, if the caller could list it then and may now. */
static int find_dir(const struct wb_request *request, struct wb_revision **ret)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r = wb_control_find(request, request->in->path, &dir, &name);

    if (r == 0)
        r = wb_control_entry(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    r = wb_control_may_list(request, revision);
    if (r == 0)
        *ret = g_steal_pointer(&revision);
    return r;
}

/* One item; its size, 0 where there is no room, or -errno. */
static int put_entry(const struct wb_request *request, struct wb_past_dir *listing, size_t index, uint8_t *data,
                     size_t room)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_control_entry *entry = (struct wb_control_entry *)(void *)data;
    struct wb_object object = wb_past_dir_object(listing, index);
    const char *name = wb_past_dir_name(listing, index);
    size_t size = (sizeof(*entry) + strlen(name) + 1 + 7) & ~(size_t)7;
    struct wb_attrs attrs;
    int r;

    if (size > room)
        return 0;
    r = wb_past_dir_revision(listing, index, &revision);
    if (r == 0)
        r = wb_revision_attrs(request->session->history, revision, &attrs);
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
        /* Entries found before an error are returned first; the next request gets the error again. */
        if (r < 0)
            return out->count > 0 ? 0 : r;
        used += (size_t)r;
        out->count++;
    }
    return 0;
}

int wb_control_entries(const struct wb_request *request, struct wb_control *out)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct kept *kept = NULL;
    int r = find_dir(request, &revision);

    if (r == 0)
        r = open_listing(request, revision, &kept);
    if (r < 0)
        return r;
    r = fill_page(request, kept->listing, out);
    if (r == 0 && out->cursor < wb_past_dir_count(kept->listing) && kept->when != WB_WHEN_PRESENT)
        wb_pages_keep(&request->session->past->entries, &kept->paged, free_paged);
    else
        free_paged(&kept->paged);
    return r;
}
