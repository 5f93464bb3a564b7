/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/thin/thinner.h"

#include "maintain/rewrite/compact.h"
#include "maintain/thin/thin.h"
#include "maintain/thin/thin_changes.h"
#include "store/object/catalog_path.h"
#include "store/tables/pins.h"
#include "store/tables/snapshots.h"
#include "wayback/when.h"
#include <errno.h>
#include <string.h>

/* Erasures by name, and fast writers, have precedence, but not forever: so many attempts. */
#define ATTEMPTS 20

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
    wb_thin_catalogs_init(&thinner->catalogs, store, options->rule, options->stop, options->data);
    options->own(options->data);
    thinner->settled = wb_store_tick(store);
    options->release(options->data);
    *ret = thinner;
    return 0;
}

struct wb_thinner *wb_thinner_free(struct wb_thinner *thinner)
{
    if (thinner)
        wb_thin_catalogs_deinit(&thinner->catalogs);
    g_free(thinner);
    return NULL;
}

/* The facts about a file whose versions may be dropped. */
struct file {
    struct wb_thin_changes changes;
    GArray *rules; /* of struct wb_retention      */
    GArray *drops; /* of struct wb_thin_drop      */
};

/* ---- which of its versions go ---------------------------------------------------------------- */

static int take_rule(void *data, const char *path)
{
    struct file *file = ((void **)data)[0];

    return wb_thinner_rule(((void **)data)[1], path, file->rules);
}

static void hold(struct wb_thinner *thinner, struct wb_object lacking)
{
    thinner->count->held++;
    thinner->count->lacking = lacking;
}

/* 0; 1: all stays; or -errno. */
static int find_rules(struct wb_thinner *thinner, struct file *file)
{
    const struct wb_thin_changes *changes = &file->changes;
    struct wb_object lacking;
    void *data[] = {file, thinner};
    int r;

    if (!thinner->options.rule) {
        g_array_append_val(file->rules, thinner->options.retention);
        return 0;
    }
    r = wb_thin_names_each(&thinner->catalogs.names, changes->object, changes->vias, changes->links, take_rule, data);
    if (r == 0 && wb_thin_names_doubted(&thinner->catalogs.names, changes->object, changes->vias,
                                        changes->links > 1 || changes->lost, &lacking)) {
        hold(thinner, lacking);
        r = 1;
    }
    return r;
}

/* Whether a catalog may have had a record between the two changes that is not known. */
static bool is_doubted(struct wb_thinner *thinner, const struct wb_thin_changes *changes,
                       const struct wb_thin_change *from, const struct wb_thin_change *until, bool *held)
{
    bool several = changes->links > 1;
    const struct wb_thin_unknown_span *unknown_span =
        wb_thin_catalogs_unknown_span(&thinner->catalogs, several ? WB_OBJECT_NONE : from->dir,
                                      several ? WB_OBJECT_NONE : until->dir, from->first, until->last);

    if (unknown_span && unknown_span->damaged && !*held) {
        *held = true;
        hold(thinner, unknown_span->dir);
    }
    return unknown_span != NULL;
}

/* Of those between the changes. 0, or -errno. */
static int choose(struct wb_thinner *thinner, struct file *file)
{
    const struct wb_thin_changes *changes = &file->changes;
    const struct wb_thin_change *all = (const struct wb_thin_change *)(const void *)changes->list->data;
    int64_t horizon = wb_store_horizon(thinner->store);
    guint count = changes->list->len;
    g_autofree struct wb_shown *shown = g_try_new(struct wb_shown, count + 1);
    g_autofree bool *stays = g_try_new0(bool, count + 1);
    bool held = false;
    int r;

    if (!shown || !stays)
        return -ENOMEM;
    for (guint i = 0; i <= count; i++)
        shown[i] = (struct wb_shown){i > 0 ? all[i - 1].last : 0, i < count ? all[i].first : WB_WHEN_PRESENT};
    r = wb_thinner_decide(thinner, file->rules, shown, count + 1, stays);
    for (guint i = 1; r == 0 && i < count; i++)
        if (!stays[i] && !all[i - 1].in_catalog && !all[i].in_catalog && shown[i].from > horizon &&
            all[i].last < thinner->settled && !is_doubted(thinner, changes, &all[i - 1], &all[i], &held))
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
    bool catalogs = thin.count > 0 && !options->dry_run && options->begin;
    int r;

    /* A crash may have left something of those that went before. */
    if (thin.count == 0 && !file->changes.joined)
        return 0;
    if (catalogs)
        options->begin(options->data, file->changes.object);
    r = wb_thin_log(thinner->store, file->changes.object, &thin);
    if (catalogs)
        options->end(options->data, file->changes.object);
    thinner->count->changed += r == 0 && thin.changed;
    thinner->count->dropped += thin.dropped;
    thinner->count->log_bytes += thin.log_bytes;
    thinner->count->image_bytes += thin.image_bytes;
    return r;
}

static int thin_known(struct wb_thinner *thinner, struct file *file)
{
    unsigned hold;
    int r = wb_thin_changes_read(&file->changes, &thinner->catalogs);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = find_rules(thinner, file);
    if (r != 0)
        return MIN(r, 0);
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
    struct file file = {.rules = g_array_new(FALSE, FALSE, sizeof(struct wb_retention)),
                        .drops = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_drop))};
    int r;

    wb_thin_changes_init(&file.changes, object);
    r = thin_known(thinner, &file);
    wb_thin_changes_deinit(&file.changes);
    g_array_unref(file.rules);
    g_array_unref(file.drops);
    return r;
}

/* ---- telling --------------------------------------------------------------------------------- */

void wb_thin_name_unknown(const struct wb_store *store, struct wb_object dir, char *ret, size_t size)
{
    g_autofree char *path = NULL;
    char file[WB_OBJECT_PATH_MAX];

    wb_object_path(dir, WB_FILE_CATALOG, file);
    if (wb_object_equal(dir, store->header.root))
        g_strlcpy(ret, ".", size);
    else if (wb_catalog_path_of(store, dir, NULL, &path) == 0)
        g_strlcpy(ret, path, size);
    else
        g_strlcpy(ret, file, size);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int thin_attempt(struct wb_thinner *thinner, struct wb_object object,
                        int (*thin)(struct wb_thinner *thinner, struct wb_object object))
{
    uint64_t held = thinner->count->held;
    int r = thinner->catalogs.blind;

    for (int i = 0; r == 0 && i < ATTEMPTS; i++) {
        thinner->count->held = held;
        if (thinner->options.stop(thinner->options.data))
            return -ECANCELED;
        r = thin(thinner, object);
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

static int thin_one(struct wb_thinner *thinner, struct wb_object object)
{
    thinner->count->logs++;
    return thin_attempt(thinner, object, thin_file);
}

static bool is_meant(const struct wb_thinner *thinner, struct wb_object object)
{
    return wb_object_is_none(thinner->options.only) || wb_object_equal(thinner->options.only, object);
}

/* All catalogs are read, then the saves in them are thinned, and then each undo log. */
enum pass { PASS_READ, PASS_NAMES, PASS_LOGS, PASSES };

_Static_assert(WB_THIN_STEPS == PASSES * WB_SHARDS, "each pass goes through all folders");

static int step_on(struct wb_thinner *thinner, enum pass pass, const struct wb_compact_found *found)
{
    if (found->file == WB_FILE_CATALOG && pass == PASS_READ)
        wb_thin_catalogs_read(&thinner->catalogs, found->object);
    else if (found->file == WB_FILE_CATALOG && pass == PASS_NAMES &&
             g_hash_table_contains(thinner->catalogs.replacing, &found->object))
        return thin_attempt(thinner, found->object, wb_thin_replaced);
    else if (found->file == WB_FILE_UNDO && pass == PASS_LOGS && is_meant(thinner, found->object))
        return thin_one(thinner, found->object);
    return 0;
}

int wb_thinner_step(struct wb_thinner *thinner, unsigned step, struct wb_thin_count *count)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    enum pass pass = step / WB_SHARDS;
    int r = wb_compact_gather(thinner->store, step % WB_SHARDS, INT64_MIN, WB_WHEN_PRESENT, list);

    thinner->count = count;
    if (step == WB_SHARDS)
        wb_thin_catalogs_sort(&thinner->catalogs);
    if (r >= 0 && pass == PASS_NAMES)
        r = wb_thin_replaced_rest(thinner, step % WB_SHARDS);
    for (guint i = 0; r >= 0 && i < list->len; i++) {
        if (thinner->options.stop(thinner->options.data))
            return -ECANCELED;
        r = step_on(thinner, pass, &g_array_index(list, struct wb_compact_found, i));
    }
    /* Which directories are not known, nobody knows. */
    if (pass == PASS_READ && r < 0)
        thinner->catalogs.blind = r;
    return pass == PASS_READ ? 0 : MIN(r, 0);
}
