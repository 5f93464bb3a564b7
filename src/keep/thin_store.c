/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/thin_store.h"

#include "base/cleanup.h"
#include "keep/compact.h"
#include "keep/thin.h"
#include "keep/thin_names.h"
#include "store/pins.h"
#include "store/snapshots.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

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
    struct wb_thin_names names; /* where there are rules                */
    int blind;       /* -errno: what catalogs tell is not all known     */
    struct wb_thin_count *count;
};

int wb_thinner_begin(struct wb_thinner **ret, struct wb_store *store, const struct wb_thin_options *options,
                     int64_t now)
{
    g_autoptr(GArray) pinned = g_array_new(FALSE, FALSE, sizeof(int64_t));
    struct wb_thinner *thinner;
    int r = store->writable ? wb_store_pinned(store, pinned) : -EROFS;

    if (r < 0)
        return r;
    thinner = g_try_new0(struct wb_thinner, 1);
    if (!thinner)
        return -ENOMEM;
    thinner->store = store;
    thinner->options = *options;
    thinner->now = now;
    thinner->moments = g_array_new(FALSE, FALSE, sizeof(struct moment));
    wb_thin_names_init(&thinner->names, store, options->stop, options->data);
    options->own(options->data);
    thinner->settled = wb_store_tick(store);
    options->release(options->data);
    *ret = thinner;
    return 0;
}

struct wb_thinner *wb_thinner_free(struct wb_thinner *thinner)
{
    if (thinner) {
        wb_thin_names_deinit(&thinner->names);
        g_array_unref(thinner->moments);
    }
    g_free(thinner);
    return NULL;
}

/* ---- what catalogs tell ---------------------------------------------------------------------- */

static gint by_object(const void *a, const void *b)
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
    else if (record->type == WB_REC_GAP && wb_thin_names_lack(&thinner->names, record) < 0)
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
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0) {
        note_record(thinner, &record);
        if (thinner->options.rule && (r = wb_thin_names_take(&thinner->names, dir, &record)) < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

/* ---- what is known of a file ----------------------------------------------------------------- */

static void add_boundary(GArray *list, int64_t first, int64_t last, bool in_catalog)
{
    g_array_append_val(list, ((struct boundary){first, last, in_catalog}));
}

/* What is known of a file whose versions may go. */
struct file {
    struct wb_object object;
    GArray *list;  /* of struct boundary          */
    GArray *vias;  /* of struct wb_thin_name      */
    GArray *rules; /* of struct wb_retention      */
    GArray *drops; /* of struct wb_thin_drop      */
    bool joined;   /* some went before            */
    uint32_t links; /* so many names it had at a time */
};

static uint32_t links_of(const struct wb_record *record)
{
    return record->type == WB_REC_DATA    ? record->data.attrs.nlink
           : record->type == WB_REC_ATTR  ? record->attr.attrs.nlink
           : record->type == WB_REC_XATTR ? record->xattr.attrs.nlink
                                          : 0;
}

/* The changes that the undo log tells. 0, or -errno. */
static int read_undo(struct wb_thinner *thinner, struct file *file)
{
    GArray *list = file->list;
    struct wb_object object = file->object;
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

        file->joined |= record.flags & WB_RECORD_JOINED;
        file->links = MAX(file->links, links_of(&record));
        if (thinner->options.rule)
            wb_thin_names_via(&thinner->names, file->vias, &record);
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

/* ---- which of its versions go ---------------------------------------------------------------- */

static gint by_when(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

    return one < other ? -1 : one > other;
}

/* Moments that stay as they are, in their order. 0 or -errno. */
static int find_pins(struct wb_store *store, GArray *pins)
{
    struct wb_snapshots *all __attribute__((cleanup(wb_snapshots_unrefp))) = NULL;
    int r = wb_snapshots_get(store, &all);

    for (size_t i = 0; r == 0 && i < all->count; i++)
        g_array_append_val(pins, all->list[i].when);
    if (r == 0)
        r = wb_store_pinned(store, pins);
    g_array_sort(pins, by_when);
    return r;
}

/* 0; 1: all stays. */
static int take_rule(void *data, const char *path)
{
    struct file *file = ((void **)data)[0];
    const struct wb_thinner *thinner = ((void **)data)[1];
    const struct wb_retention *rule = path ? thinner->options.rule(thinner->options.data, path) : NULL;

    if (!rule)
        return 1;
    for (guint i = 0; i < file->rules->len; i++)
        if (memcmp(&g_array_index(file->rules, struct wb_retention, i), rule, sizeof(*rule)) == 0)
            return 0;
    g_array_append_vals(file->rules, rule, 1);
    return 0;
}

/* 0; 1: all stays; or -errno. */
static int find_rules(struct wb_thinner *thinner, struct file *file)
{
    void *data[] = {file, thinner};

    if (!thinner->options.rule) {
        g_array_append_val(file->rules, thinner->options.retention);
        return 0;
    }
    return wb_thin_names_each(&thinner->names, file->object, file->vias, file->links, take_rule, data);
}

/* `stays` becomes true of what any rule holds. 0 or -errno. */
static int decide(struct wb_thinner *thinner, const struct file *file, const struct wb_shown *shown, size_t count,
                  bool *stays)
{
    g_autoptr(GArray) pins = g_array_new(FALSE, FALSE, sizeof(int64_t));
    g_autofree bool *held = g_try_new(bool, count);
    int r = held ? find_pins(thinner->store, pins) : -ENOMEM;

    for (guint i = 0; r == 0 && i < file->rules->len; i++) {
        const struct wb_retention *rule = &g_array_index(file->rules, struct wb_retention, i);
        int64_t kept = wb_decide(rule, shown, count, (const int64_t *)(const void *)pins->data, pins->len,
                                 thinner->now, held);

        r = (int)MIN(kept, 0);
        for (size_t k = 0; r == 0 && k < count; k++)
            stays[k] |= held[k];
    }
    return r;
}

/* Of those between the boundaries. 0, or -errno. */
static int choose(struct wb_thinner *thinner, struct file *file)
{
    const struct boundary *all = (const struct boundary *)(const void *)file->list->data;
    int64_t horizon = wb_store_horizon(thinner->store);
    guint changes = file->list->len;
    g_autofree struct wb_shown *shown = g_try_new(struct wb_shown, changes + 1);
    g_autofree bool *stays = g_try_new0(bool, changes + 1);
    int r;

    if (!shown || !stays)
        return -ENOMEM;
    for (guint i = 0; i <= changes; i++)
        shown[i] = (struct wb_shown){i > 0 ? all[i - 1].last : 0, i < changes ? all[i].first : WB_WHEN_PRESENT};
    r = decide(thinner, file, shown, changes + 1, stays);
    for (guint i = 1; r == 0 && i < changes; i++)
        if (!stays[i] && !all[i - 1].in_catalog && !all[i].in_catalog && shown[i].from > horizon &&
            all[i].last < thinner->settled &&
            !wb_thin_names_lacked(&thinner->names, all[i - 1].first, all[i].last))
            g_array_append_val(file->drops, ((struct wb_thin_drop){shown[i].from, shown[i].until}));
    return r;
}

/* ---- one file -------------------------------------------------------------------------------- */

static int drop(struct wb_thinner *thinner, const struct file *file)
{
    const struct wb_thin_options *options = &thinner->options;
    struct wb_thin thin = {.drops = (const struct wb_thin_drop *)(void *)file->drops->data,
                           .count = file->drops->len,
                           .dry_run = options->dry_run, .stop = options->stop, .data = options->data};
    bool told = thin.count > 0 && !options->dry_run && options->begin;
    int r;

    /* A crash may have left something of those that went before. */
    if (thin.count == 0 && !file->joined)
        return 0;
    if (told)
        options->begin(options->data, file->object);
    r = wb_thin_log(thinner->store, file->object, &thin);
    if (told)
        options->end(options->data, file->object);
    thinner->count->changed += r == 0 && thin.changed;
    thinner->count->dropped += thin.dropped;
    thinner->count->log_bytes += thin.log_bytes;
    thinner->count->image_bytes += thin.image_bytes;
    return r;
}

static int thin_known(struct wb_thinner *thinner, struct file *file)
{
    unsigned hold;
    int r = read_undo(thinner, file);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = find_rules(thinner, file);
    if (r != 0)
        return MIN(r, 0);
    add_moments(thinner, file->object, file->list);
    join_boundaries(file->list);
    r = wb_store_hold_pins(thinner->store, &hold);
    if (r < 0)
        return r;
    r = choose(thinner, file);
    if (r == 0)
        r = drop(thinner, file);
    wb_store_release_pins(thinner->store, hold);
    return r;
}

static int thin_file(struct wb_thinner *thinner, struct wb_object object)
{
    struct file file = {.object = object,
                        .list = g_array_new(FALSE, FALSE, sizeof(struct boundary)),
                        .vias = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_name)),
                        .rules = g_array_new(FALSE, FALSE, sizeof(struct wb_retention)),
                        .drops = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_drop))};
    int r = thin_known(thinner, &file);

    g_array_unref(file.list);
    g_array_unref(file.vias);
    g_array_unref(file.rules);
    g_array_unref(file.drops);
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

static bool is_meant(const struct wb_thinner *thinner, struct wb_object object)
{
    return wb_object_is_none(thinner->options.only) || wb_object_equal(thinner->options.only, object);
}

int wb_thinner_step(struct wb_thinner *thinner, unsigned step, struct wb_thin_count *count)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    bool catalogs = step < WB_FOLDERS;
    int r = wb_compact_gather(thinner->store, step % WB_FOLDERS, INT64_MIN, WB_WHEN_PRESENT, list);

    thinner->count = count;
    if (step == WB_FOLDERS) {
        g_array_sort(thinner->moments, by_object);
        wb_thin_names_settle(&thinner->names);
    }
    for (guint i = 0; r >= 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        if (thinner->options.stop(thinner->options.data))
            return -ECANCELED;
        if (catalogs && found->file == WB_FILE_CATALOG)
            r = read_catalog(thinner, found->object);
        else if (!catalogs && found->file == WB_FILE_UNDO && is_meant(thinner, found->object))
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
