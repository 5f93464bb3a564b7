/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/thin_store.h"

#include "base/cleanup.h"
#include "keep/compact.h"
#include "keep/thin.h"
#include "store/snapshots.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>

/* Whoever forgets by name, or writes faster than can be read, comes first; but not for ever. */
#define ATTEMPTS 20
/* What catalogs tell is held in memory, 24 bytes each: beyond this, nothing is thinned. */
#define MOMENTS_MAX (8u << 20)

/* A catalog tells something of the object, at that moment. */
struct moment {
    struct wb_object object;
    int64_t when;
};

/* Changes between which nothing is kept; as a rule it is one. */
struct boundary {
    int64_t first, last;
    bool in_catalog;
};

struct wb_thinner {
    struct wb_store *store;
    struct wb_thin_options options;
    int64_t now;
    int64_t settled; /* no change of this moment or before is under way */
    GArray *moments; /* of struct moment                                */
    int blind;       /* -errno: what catalogs tell is not all known     */
    struct wb_thin_count *count;
};

int wb_thinner_begin(struct wb_thinner **ret, struct wb_store *store, const struct wb_thin_options *options,
                     int64_t now)
{
    struct wb_thinner *thinner;

    if (!store->writable)
        return -EROFS;
    thinner = g_try_new0(struct wb_thinner, 1);
    if (!thinner)
        return -ENOMEM;
    thinner->store = store;
    thinner->options = *options;
    thinner->now = now;
    thinner->moments = g_array_new(FALSE, FALSE, sizeof(struct moment));
    options->own(options->data);
    thinner->settled = wb_store_tick(store);
    options->release(options->data);
    *ret = thinner;
    return 0;
}

struct wb_thinner *wb_thinner_free(struct wb_thinner *thinner)
{
    if (thinner)
        g_array_unref(thinner->moments);
    g_free(thinner);
    return NULL;
}

/* ---- what catalogs tell ---------------------------------------------------------------------- */

static int by_object(const void *a, const void *b)
{
    const struct moment *one = a, *other = b;

    if (one->object.ino != other->object.ino)
        return one->object.ino < other->object.ino ? -1 : 1;
    if (one->object.birth != other->object.birth)
        return one->object.birth < other->object.birth ? -1 : 1;
    return one->when < other->when ? -1 : one->when > other->when;
}

static void note(struct wb_thinner *thinner, struct wb_object object, int64_t when)
{
    if (thinner->moments->len >= MOMENTS_MAX)
        thinner->blind = -E2BIG;
    else if (!wb_object_is_none(object))
        g_array_append_val(thinner->moments, ((struct moment){object, when}));
}

static void note_record(struct wb_thinner *thinner, const struct wb_record *record)
{
    if (record->type == WB_REC_NAME)
        for (uint32_t i = 0; i < record->name.count; i++)
            note(thinner, record->name.slots[i].object, record->when);
    else if (record->type == WB_REC_ATTR)
        note(thinner, record->attr.object, record->when);
    else if (record->type == WB_REC_XATTR)
        note(thinner, record->xattr.object, record->when);
    else if (record->type == WB_REC_GAP)
        thinner->blind = -ENODATA;
}

static int read_catalog(struct wb_thinner *thinner, struct wb_object dir)
{
    _cleanup_close_ int fd = wb_store_open_file(thinner->store, dir, WB_FILE_CATALOG, O_RDONLY | O_CLOEXEC);
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0)
        note_record(thinner, &record);
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

/* ---- one file -------------------------------------------------------------------------------- */

static void add_boundary(GArray *list, int64_t first, int64_t last, bool in_catalog)
{
    g_array_append_val(list, ((struct boundary){first, last, in_catalog}));
}

/* The changes that the undo log tells. 0, or -errno. */
static int read_undo(struct wb_thinner *thinner, struct wb_object object, GArray *list)
{
    _cleanup_close_ int fd = wb_store_open_file(thinner->store, object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r;

    if (fd < 0)
        return fd;
    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0) {
        struct boundary *newest = list->len ? &g_array_index(list, struct boundary, list->len - 1) : NULL;

        if (newest && newest->last == record.when)
            newest->first = record.written;
        else
            add_boundary(list, record.written, record.when, false);
    }
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

static void add_moments(const struct wb_thinner *thinner, struct wb_object object, GArray *list)
{
    const struct moment *all = (const struct moment *)(void *)thinner->moments->data;
    const struct moment least = {object, INT64_MIN};
    guint low = 0, high = thinner->moments->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (by_object(&all[middle], &least) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < thinner->moments->len && wb_object_equal(all[low].object, object); low++)
        add_boundary(list, all[low].when, all[low].when, true);
}

static gint by_last(const void *a, const void *b)
{
    const struct boundary *one = a, *other = b;

    return one->last < other->last ? -1 : one->last > other->last;
}

/* Sorted; parts of one change become one. */
static void join_boundaries(GArray *list)
{
    guint n = 0;

    g_array_sort(list, by_last);
    for (guint i = 0; i < list->len; i++) {
        struct boundary *one = &g_array_index(list, struct boundary, i);
        struct boundary *before = n > 0 ? &g_array_index(list, struct boundary, n - 1) : NULL;

        if (before && before->last >= one->first) {
            before->first = MIN(before->first, one->first);
            before->last = one->last;
            before->in_catalog = true; /* never by itself: something is in two logs */
        } else {
            g_array_index(list, struct boundary, n++) = *one;
        }
    }
    g_array_set_size(list, n);
}

static int64_t *pins_of(struct wb_store *store, size_t *ret_count)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int64_t *pins;

    if (wb_snapshots_get(store, &all) < 0)
        return NULL;
    pins = g_try_new(int64_t, all->count + 1);
    for (size_t i = 0; pins && i < all->count; i++)
        pins[i] = all->list[i].when;
    *ret_count = all->count;
    return pins;
}

/* Which versions go, of those between the boundaries: 0, or -errno. */
static int choose(struct wb_thinner *thinner, const GArray *list, GArray *drops)
{
    const struct boundary *all = (const struct boundary *)(const void *)list->data;
    int64_t horizon = wb_store_horizon(thinner->store), r;
    size_t count = list->len + 1, pin_count = 0;
    g_autofree struct wb_shown *shown = g_try_new(struct wb_shown, count);
    g_autofree bool *stays = g_try_new(bool, count);
    g_autofree int64_t *pins = pins_of(thinner->store, &pin_count);

    if (!shown || !stays || !pins)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        shown[i] = (struct wb_shown){i > 0 ? all[i - 1].last : 0, i < list->len ? all[i].first : WB_WHEN_PRESENT};
    r = wb_decide(&thinner->options.retention, shown, count, pins, pin_count, thinner->now, stays);
    if (r < 0)
        return (int)r;
    for (size_t i = 1; i < list->len; i++)
        if (!stays[i] && !all[i - 1].in_catalog && !all[i].in_catalog && shown[i].from > horizon &&
            all[i].last < thinner->settled)
            g_array_append_val(drops, ((struct wb_thin_drop){shown[i].from, shown[i].until}));
    return 0;
}

static int thin_file(struct wb_thinner *thinner, struct wb_object object)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct boundary));
    g_autoptr(GArray) drops = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_drop));
    struct wb_thin thin = {.dry_run = thinner->options.dry_run, .stop = thinner->options.stop,
                           .data = thinner->options.data};
    int r = read_undo(thinner, object, list);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    add_moments(thinner, object, list);
    join_boundaries(list);
    r = choose(thinner, list, drops);
    if (r < 0)
        return r;
    thin.drops = (const struct wb_thin_drop *)(void *)drops->data;
    thin.count = drops->len;
    r = wb_thin_log(thinner->store, object, &thin);
    thinner->count->changed += r == 0 && thin.changed;
    thinner->count->dropped += thin.dropped;
    thinner->count->log_bytes += thin.log_bytes;
    thinner->count->image_bytes += thin.image_bytes;
    return r;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int thin_one(struct wb_thinner *thinner, struct wb_object object)
{
    int r = thinner->blind;

    thinner->count->logs++;
    for (int i = 0; r == 0 && i < ATTEMPTS; i++) {
        if (thinner->options.stop(thinner->options.data))
            return -ECANCELED;
        r = thin_file(thinner, object);
        if (r != -EAGAIN && r != -ECANCELED)
            break;
        r = i + 1 < ATTEMPTS ? 0 : r;
    }
    if (r < 0) {
        thinner->count->kept++;
        thinner->count->error = r;
    }
    return 0;
}

int wb_thinner_step(struct wb_thinner *thinner, unsigned step, struct wb_thin_count *count)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    bool catalogs = step < WB_COMPACT_FOLDERS;
    int r = wb_compact_gather(thinner->store, step % WB_COMPACT_FOLDERS, INT64_MIN, WB_WHEN_PRESENT, list);

    thinner->count = count;
    if (step == WB_COMPACT_FOLDERS)
        qsort(thinner->moments->data, thinner->moments->len, sizeof(struct moment), by_object);
    for (guint i = 0; r >= 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        if (thinner->options.stop(thinner->options.data))
            return -ECANCELED;
        if (catalogs && found->file == WB_FILE_CATALOG)
            r = read_catalog(thinner, found->object);
        else if (!catalogs && found->file == WB_FILE_UNDO)
            r = thin_one(thinner, found->object);
        if (catalogs && r < 0) {
            thinner->blind = r;
            r = 0;
        }
    }
    if (catalogs && r < 0)
        thinner->blind = r;
    return catalogs ? 0 : MIN(r, 0);
}
