/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a directory of snapshots lists. */
#include "daemon/past/snapdir.h"

#include "base/checksum.h"
#include "daemon/past/pages.h"
#include "daemon/core/entry.h"
#include "store/tables/snapshots.h"
#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct entry {
    char *name;
    ino_t ino;
    int64_t when;
};

struct wb_snapdir_listing {
    GArray *entries;
};

bool wb_snapdir_is(const struct wb_session *session, const char *name)
{
    const struct wb_options *options = session->options;

    return session->history && options->snapdir != WB_SNAPDIR_OFF &&
           strcmp(name, options->snapdir_name) == 0;
}

/*
 * DIR at a snapshot's moment, if it was there and in what the snapshot covers: then, not now, for a
 * directory may have moved in or out since. 0, WB_ABSENT or -errno.
 */
static int at_snapshot(struct wb_session *session, struct wb_revision *dir, const struct wb_snapshot *snapshot,
                       struct wb_object *ret)
{
    struct wb_revision *then __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_revision_shift(session->history, dir, snapshot->when, &then);

    if (r != 0)
        return r;
    if (!wb_revision_is_within(then, snapshot->scope))
        return WB_ABSENT;
    *ret = wb_revision_object(then);
    return 0;
}

/* Of all snapshots, and of deletions from the history. */
static uint64_t checksum_of(struct wb_session *session, const struct wb_snapshots *all)
{
    uint64_t words[4] = {wb_pages_generation(session->past)};

    for (size_t i = 0; all && i < all->count; i++) {
        words[1] = (uint64_t)all->list[i].when;
        words[2] = wb_checksum(all->list[i].name, strlen(all->list[i].name));
        words[3] = wb_checksum(words, sizeof(uint64_t) * 3);
        words[0] = words[3];
    }
    return words[0];
}

int64_t wb_snapdir_changed(struct wb_session *session)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int64_t changed = session->store->header.created;

    if (wb_snapshots_get(session->store, &all) == 0 && all->count > 0)
        changed = all->list[all->count - 1].when;
    if (!session->no_open)
        return changed;
    /* The kernel caches the listing until this time is another one: it has to differ after a deletion, too. */
    return changed - changed % WB_WHEN_SECOND + (int64_t)(checksum_of(session, all) % WB_WHEN_SECOND);
}

/* ---- the listing ----------------------------------------------------------------------------- */

static void clear_entry(gpointer data)
{
    g_free(((struct entry *)data)->name);
}

static struct entry *last_of(GArray *entries)
{
    return entries->len > 0 ? &g_array_index(entries, struct entry, entries->len - 1) : NULL;
}

/* "@GMT-2026.11.21-14.03.00", as clients of SMB ask for previous versions. */
static char *gmt_name(int64_t when)
{
    time_t seconds = (time_t)(when / WB_WHEN_SECOND);
    char text[64];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(text, sizeof(text), "@GMT-%Y.%m.%d-%H.%M.%S", &tm);
    return g_strdup(text);
}

static void add_entry(struct wb_session *session, GArray *entries, const struct wb_snapshot *snapshot,
                      struct wb_object object)
{
    struct entry *last = last_of(entries);
    struct entry entry = {.ino = wb_past_ino(object, snapshot->when), .when = snapshot->when};

    if (session->options->snapnames_gmt) {
        /* Of several in one second the newest is what the name means. */
        if (last && last->when / WB_WHEN_SECOND == entry.when / WB_WHEN_SECOND)
            g_array_set_size(entries, entries->len - 1);
        entry.name = gmt_name(snapshot->when);
    } else {
        entry.name = g_strdup(snapshot->name);
    }
    g_array_append_val(entries, entry);
}

/* Whether another one of its name is what the name means in this directory. */
static bool is_second(struct wb_session *session, struct wb_revision *dir, const struct wb_snapshots *all,
                      const struct wb_snapshot *snapshot)
{
    const struct wb_snapshot *other;
    struct wb_object object;

    for (unsigned nth = 0; (other = wb_snapshots_find(all, snapshot->name, nth)) && other != snapshot; nth++)
        if (at_snapshot(session, dir, other, &object) == 0)
            return !session->options->snapnames_gmt;
    return false;
}

int wb_snapdir_listing_new(struct wb_session *session, struct wb_past_node *node,
                           struct wb_snapdir_listing **ret)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_snapdir_listing *listing;
    int r;

    r = wb_snapshots_get(session->store, &all);
    if (r == 0)
        r = wb_past_revision_of(session, &node->node, &dir);
    if (r < 0)
        return r;
    listing = g_new(struct wb_snapdir_listing, 1);
    listing->entries = g_array_new(FALSE, FALSE, sizeof(struct entry));
    g_array_set_clear_func(listing->entries, clear_entry);
    for (size_t i = 0; i < all->count; i++) {
        struct wb_object object = node->node.object;

        r = at_snapshot(session, dir, &all->list[i], &object);
        /* A snapshot with a damaged past is listed: the process that enters it gets the error. */
        if ((r == 0 || r == -EIO) && !is_second(session, dir, all, &all->list[i]))
            add_entry(session, listing->entries, &all->list[i], object);
    }
    *ret = listing;
    return 0;
}

struct wb_snapdir_listing *wb_snapdir_listing_free(struct wb_snapdir_listing *listing)
{
    if (listing) {
        g_array_free(listing->entries, TRUE);
        g_free(listing);
    }
    return NULL;
}

const char *wb_snapdir_entry(const struct wb_snapdir_listing *listing, size_t index, ino_t *ret)
{
    const struct entry *entry;

    if (index >= listing->entries->len)
        return NULL;
    entry = &g_array_index(listing->entries, struct entry, index);
    *ret = entry->ino;
    return entry->name;
}
