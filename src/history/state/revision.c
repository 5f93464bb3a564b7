/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Revisions: an object at a moment, with the names it is reached by. They hold nothing that later
 * changes could make wrong: where an object is now is found out each time (resolve.c).
 */
#include "history/internal.h"

#include "base/cleanup.h"
#include "format/object_key.h"
#include "store/inflight/spans.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

int wb_revision_new(struct wb_revision *parent, const char *name, struct wb_object object, uint32_t mode,
                    struct wb_revision **ret)
{
    size_t size = strlen(name) + 1;
    struct wb_revision *revision = g_try_malloc0(sizeof(*revision) + size);

    if (!revision)
        return -ENOMEM;
    revision->references = 1;
    revision->object = object;
    revision->type = mode & S_IFMT;
    revision->when = parent ? parent->when : WB_WHEN_PRESENT;
    revision->parent = parent ? wb_revision_ref(parent) : NULL;
    memcpy(revision->name, name, size);
    *ret = revision;
    return 0;
}

int wb_revision_below(struct wb_revision *dir, const char *name, struct wb_object object, uint32_t mode,
                      struct wb_revision **ret)
{
    if (S_ISDIR(mode) && dir->when != WB_WHEN_PRESENT)
        for (const struct wb_revision *at = dir; at && at->when == dir->when; at = at->parent)
            if (wb_object_equal(at->object, object))
                return wb_history_fail(-EIO, "%s: the catalogs say that this directory was inside itself then", name);
    return wb_revision_new(dir, name, object, mode, ret);
}

struct wb_revision *wb_revision_ref(struct wb_revision *revision)
{
    atomic_fetch_add_explicit(&revision->references, 1, memory_order_relaxed);
    return revision;
}

struct wb_revision *wb_revision_unref(struct wb_revision *revision)
{
    /* A loop, not recursion: a path may be thousands of names deep. */
    while (revision && atomic_fetch_sub_explicit(&revision->references, 1, memory_order_acq_rel) == 1) {
        struct wb_revision *parent = revision->parent;

        g_free(revision);
        revision = parent;
    }
    return NULL;
}

struct wb_object wb_revision_object(const struct wb_revision *revision)
{
    return revision->object;
}

int64_t wb_revision_when(const struct wb_revision *revision)
{
    return revision->when;
}

uint32_t wb_revision_type(const struct wb_revision *revision)
{
    return revision->type;
}

const char *wb_revision_name(const struct wb_revision *revision)
{
    return revision->name;
}

struct wb_revision *wb_revision_parent(const struct wb_revision *revision)
{
    return revision->parent;
}

int wb_revision_root(struct wb_history *history, int64_t when, struct wb_revision **ret)
{
    struct wb_object object;
    struct wb_attrs attrs;
    int r = (int)wb_history_end(history, when, 0);

    if (r < 0)
        return r;
    r = wb_object_stat(history->store, history->store->src_fd, NULL, &object, &attrs, NULL);
    if (r < 0)
        return r;
    wb_history_wait_own(history, when);
    r = wb_revision_new(NULL, "", object, attrs.mode, ret);
    if (r == 0)
        (*ret)->when = when;
    return r;
}

int wb_revision_present(struct wb_history *history, struct wb_revision *parent, const char *name,
                        struct wb_object object, uint32_t type, struct wb_revision **ret)
{
    int r = wb_revision_new(parent, name, object, type, ret);

    if (r == 0)
        (*ret)->when = WB_WHEN_PRESENT;
    return r;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* One name of a directory while its catalog is walked. */
struct entry {
    bool present;
    struct wb_object object;
    uint32_t mode;
    int64_t ctime;
    bool recorded; /* a record says so, and not the present */
};

/* As it is now. A directory that is no more has no entries. */
static int look_present(struct wb_history *history, struct wb_revision *dir, const char *name, struct entry *ret)
{
    _cleanup_close_ int fd = -1;
    struct wb_attrs attrs;
    int r;

    *ret = (struct entry){0};
    r = wb_resolve(history, dir, &fd, NULL);
    if (r < 0 || fd < 0)
        return r < 0 ? r : 0;
    r = wb_object_stat(history->store, fd, name, &ret->object, &attrs, NULL);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    ret->present = true;
    ret->mode = attrs.mode;
    ret->ctime = attrs.ctime;
    return 0;
}

/*
 * Whether the name got what it holds now at or before T, though the inode's birth lies after: the
 * newest record about the name that is not after T is the one that bound it. Without one
 * the object was born later, and its record is lost.
 */
static int confirm_birth(struct wb_log_scan *scan, const char *name, struct entry *entry)
{
    const struct wb_record *record;
    const struct wb_slot *slot;
    int r;

    scan->when -= WB_BIRTH_SLACK;
    scan->doubts = true;
    while ((r = wb_log_scan_next(scan, &record)) == 0) {
        slot = wb_log_scan_slot(record, name);
        if (slot && wb_slot_gains(record, slot))
            return 0;
        /* Lost by then; the present holder of the name came while nothing was recorded. */
        if (slot) {
            r = WB_END;
            break;
        }
    }
    if (r == WB_END)
        entry->present = false;
    return r == WB_END ? 0 : r;
}

/*
 * Whether the name holds the same object as at `when`, before the changes that a gap left out: a change that gives an
 * object a name moves its ctime. Changes of the object since the gap are recorded, so its ctime at the gap's end is
 * known. If nobody recorded the changes, one that gave the object its name shows in the object's own log, or still in
 * its ctime.
 */
static bool kept_through(struct wb_history *history, const struct entry *entry, const struct wb_record *gap,
                         int64_t when)
{
    int64_t ctime = entry->ctime;

    if (!entry->present || history->store->exchange_hides)
        return false;
    /* A made-up id, of a file that a copied tree had no history of, has no log of before the copy. */
    if (gap->gap.reason == WB_GAP_UNSEEN && wb_has_birth(entry->object))
        return (entry->recorded || wb_spans_has(history->store, entry->ctime, S_ISDIR(entry->mode))) &&
               wb_own_ctime(history, entry->object, entry->mode, when, &ctime) > 0;
    return wb_rested_since(ctime, gap->gap.since) ||
           (wb_own_ctime(history, entry->object, entry->mode, gap->when, &ctime) > 0 &&
            wb_rested_since(ctime, gap->gap.since));
}

static int look_back(struct wb_history *history, struct wb_revision *dir, const char *name, struct entry *entry,
                     unsigned *ret_records)
{
    const struct wb_record *record;
    const struct wb_slot *slot;
    struct wb_log_scan scan;
    unsigned count = 0;
    unsigned unknown = 0; /* why, enum wb_gap */
    int r;

    r = wb_log_scan_open(&scan, history, dir->object, WB_FILE_CATALOG, dir->when);
    if (r < 0)
        return r;
    scan.through = true;
    for (; (r = wb_log_scan_next(&scan, &record)) == 0; count++) {
        slot = wb_log_scan_slot(record, name);
        if (slot) {
            unknown = 0;
            *entry = (struct entry){slot->present, slot->object, slot->attrs.mode, slot->attrs.ctime, true};
        } else if (wb_log_scan_is_cut(record) && !kept_through(history, entry, record, dir->when)) {
            unknown = record->gap.reason;
        }
    }
    if (r == WB_END && unknown)
        r = wb_history_fail_gap(unknown);
    scan.through = false;
    if (r == WB_END)
        r = entry->present && wb_log_scan_doubts(&scan, entry->object) ? confirm_birth(&scan, name, entry) : 0;
    wb_log_scan_close(&scan);
    *ret_records = count;
    return r;
}

static int child_of_listing(struct wb_history *history, struct wb_listing *listing, struct wb_revision *dir,
                            const char *name, struct wb_revision **ret)
{
    ssize_t index = wb_listing_find(listing, name);
    int r = index < 0 ? WB_ABSENT : wb_listing_revision(history, listing, dir, (size_t)index, ret);

    wb_listing_unref(listing);
    return r;
}

static int find_child(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_revision **ret)
{
    struct wb_listing *listing;
    struct entry entry;
    unsigned records = 0;
    int r;

    if (dir->type != S_IFDIR)
        return -ENOTDIR;
    if (strlen(name) > WB_NAME_MAX)
        return -ENAMETOOLONG;
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EINVAL;
    if (wb_listing_hides(dir, name))
        return WB_ABSENT;
    listing = wb_listing_cached(history, dir);
    if (listing)
        return child_of_listing(history, listing, dir, name, ret);

    r = look_present(history, dir, name, &entry);
    if (r < 0)
        return r;
    if (dir->when != WB_WHEN_PRESENT) {
        r = look_back(history, dir, name, &entry, &records);
        if (r < 0)
            return r;
    }
    /* Programs that walk a directory ask for many names: the next ones shall cost nothing. */
    if (wb_listing_is_worthwhile(history, dir, records) && wb_listing_open(history, dir, &listing) == 0)
        return child_of_listing(history, listing, dir, name, ret);
    return entry.present ? wb_revision_below(dir, name, entry.object, entry.mode, ret) : WB_ABSENT;
}

int wb_revision_child(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_revision **ret)
{
    struct wb_revision *found __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = find_child(history, dir, name, &found);

    r = (int)wb_history_end(history, dir->when, r);
    if (r == 0)
        *ret = g_steal_pointer(&found);
    return r;
}

/*
 * ---- entries of a listing ------------------------------------------------------------------------
 *
 * A program that lists a directory usually requests the attributes of its entries next, so one more walk over the
 * catalog collects its records about all of them (struct wb_hint).
 */

static void take_hint(GHashTable *hints, struct wb_object object, int64_t when, int64_t stage,
                      const struct wb_attrs *attrs)
{
    struct wb_hint *hint = g_hash_table_lookup(hints, &object);

    if (hint) {
        hint->found = true;
        hint->when = when;
        hint->stage = stage;
        hint->attrs = *attrs;
    }
}

/* From the newest record to the oldest: the last one found is the earliest after T. */
static int walk_hints(struct wb_log_scan *scan, GHashTable *hints, uint64_t *ret_seen)
{
    const struct wb_record *record;
    int r;

    *ret_seen = 0;
    while ((r = wb_log_scan_next(scan, &record)) == 0) {
        *ret_seen = MAX(*ret_seen, record->offset + record->total);
        if (record->type == WB_REC_ATTR)
            take_hint(hints, record->attr.object, record->when, record->attr.begin, &record->attr.attrs);
        for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++)
            if (record->name.slots[i].present)
                take_hint(hints, record->name.slots[i].object, record->when, 0, &record->name.slots[i].attrs);
    }
    return r;
}

/* Hints are separate from the entries: most listings are only read. Without memory there are no hints. */
static void find_hints(struct wb_history *history, struct wb_listing *listing)
{
    g_autoptr(GHashTable) hints = g_hash_table_new(wb_object_hash, wb_object_is_key);
    struct wb_object log = WB_OBJECT_NONE;
    struct wb_hint *all;
    struct wb_log_scan scan;
    uint64_t seen = 0;
    int r;

    all = listing->records > 0 ? g_try_new0(struct wb_hint, listing->entries->len) : NULL;
    if (!all)
        return;
    listing->hints = all;
    if (wb_log_scan_open(&scan, history, listing->dir, WB_FILE_CATALOG, listing->when) < 0)
        return;
    for (guint i = 0; i < listing->entries->len; i++) {
        struct wb_listing_entry *entry = &g_array_index(listing->entries, struct wb_listing_entry, i);

        /* Names of one object share the first one's hint. */
        if (!g_hash_table_contains(hints, &entry->object))
            g_hash_table_insert(hints, &entry->object, &all[i]);
    }
    r = scan.source.fd < 0 ? -ENOENT : wb_object_stat(NULL, scan.source.fd, NULL, &log, NULL, NULL);
    if (r == 0)
        r = walk_hints(&scan, hints, &seen);
    wb_log_scan_close(&scan);
    for (guint i = 0; i < listing->entries->len; i++) {
        struct wb_listing_entry *entry = &g_array_index(listing->entries, struct wb_listing_entry, i);
        struct wb_hint *hint = g_hash_table_lookup(hints, &entry->object);

        all[i] = *hint;
        all[i].valid = r == WB_END;
        all[i].log = log;
        all[i].seen = seen;
    }
}

int wb_listing_revision(struct wb_history *history, struct wb_listing *listing, struct wb_revision *dir, size_t index,
                        struct wb_revision **ret)
{
    const struct wb_listing_entry *entry;
    int r;

    if (index >= listing->entries->len)
        return -EINVAL;
    pthread_mutex_lock(&listing->lock);
    if (!listing->hinted)
        find_hints(history, listing);
    listing->hinted = true;
    pthread_mutex_unlock(&listing->lock);
    entry = &g_array_index(listing->entries, struct wb_listing_entry, index);
    r = wb_revision_below(dir, entry->name, entry->object, entry->mode, ret);
    if (r == 0 && listing->hints)
        (*ret)->hint = listing->hints[index];
    return r;
}
