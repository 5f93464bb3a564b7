/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Removes files that were versions of a name. Their records in the catalog are overwritten: in the records by which
 * they were made and took the name, only the directory's own attributes remain; and in the record by which the last of
 * several in a row lost the name, the file that was there before all of them loses it. No record changes its offset,
 * and the new catalog replaces the old one as in packing. Each file is noted before (ID.gone), and deleted after that:
 * so after a crash, a file is either recorded as before, or has a note, and the next thinning deletes it.
 */
#include "maintain/thin/thin_replaced.h"

#include "base/cleanup.h"
#include "maintain/prune/prune_parts.h"
#include "maintain/thin/thin_changes.h"
#include "maintain/thin/thin_parts.h"
#include "store/directory/shard.h"
#include "store/log/log_scan.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include "store/timeline/timeline.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- files that were versions of a name, once no record mentions them any more ---- */

/* The note has to be there for as long as the file is. */
static void forget_gone(const struct wb_thinner *thinner, struct wb_object object)
{
    if (wb_grave_has(thinner->store, object, false) == 0)
        wb_grave_forget_gone(thinner->store, object);
}

/* Removes those that no record mentions, with their notes (of struct wb_prune_body). 0 or -ECANCELED. */
static int thin_remove_bodies(struct wb_thinner *thinner, GArray *bodies)
{
    const struct wb_thin_options *options = &thinner->options;
    struct wb_prune_count count = {0};
    struct wb_prune prune = {.store = thinner->store, .bodies = bodies, .count = &count,
                             .held = g_array_new(FALSE, FALSE, sizeof(int)),
                             .bundles = wb_bundle_objects_new(),
                             .options = {.before = WB_WHEN_PRESENT, .dry_run = options->dry_run,
                                         .stop = options->stop, .own = options->own, .release = options->release,
                                         .in_use = options->in_use, .data = options->data}};
    int r = wb_prune_remove_bodies(&prune);

    for (guint i = 0; !options->dry_run && i < bodies->len; i++)
        forget_gone(thinner, g_array_index(bodies, struct wb_prune_body, i).object);
    thinner->count->bodies += count.bodies;
    thinner->count->body_bytes += count.body_bytes;
    thinner->count->log_bytes += count.log_bytes;
    thinner->count->image_bytes += count.image_bytes;
    thinner->count->kept += count.kept;
    if (count.error)
        thinner->count->error = count.error;
    g_array_unref(prune.held);
    g_hash_table_unref(prune.bundles);
    return r;
}

/* ---- what a crash left ----------------------------------------------------------------------- */

struct rest {
    struct wb_thinner *thinner;
    GArray *bodies;
};

static int take_noted(void *data, int fd, const char *name)
{
    struct rest *rest = data;
    struct wb_thinner *thinner = rest->thinner;
    struct wb_prune_body body = {0};
    char path[WB_OBJECT_PATH_MAX];
    enum wb_object_file file;
    struct stat st;
    guint moments;

    if (wb_object_file_parse(name, &body.object, &file) < 0 || file != WB_FILE_GONE)
        return 0;
    wb_object_path(body.object, WB_FILE_DATA, path);
    wb_thin_catalogs_moments(&thinner->catalogs, body.object, &moments);
    if (moments == 0 && !thinner->options.dry_run)
        forget_gone(thinner, body.object);
    if (moments > 0 || fstatat(thinner->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    body.ctime = st.st_ctim;
    g_array_append_val(rest->bodies, body);
    return 0;
}

int wb_thin_replaced_rest(struct wb_thinner *thinner, unsigned shard)
{
    struct rest rest = {thinner, NULL};
    int r;

    /* All catalogs must be known completely to be sure that none of them mentions a file. */
    if (thinner->catalogs.blind || thinner->catalogs.unknown_spans->len > 0 || thinner->store->grave_fd < 0)
        return 0;
    rest.bodies = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_body));
    r = wb_shard_each(thinner->store->dir_fd, shard, take_noted, &rest);
    if (r == 0 && rest.bodies->len > 0 && !thinner->options.dry_run)
        r = thin_remove_bodies(thinner, rest.bodies);
    g_array_unref(rest.bodies);
    return r;
}

#define ATTR_SIZE 152u /* of a record of a directory's own attributes */

struct replacing {
    struct wb_thinner *thinner;
    struct wb_thin_saves saves;
    struct wb_thin_plan plan;
    struct wb_log_edits edits;
    GArray *indexes;
    int fd;
    uint8_t data[WB_SCAN_BUFFER];
};

/* ---- the edits ----------------------------------------------------------------------------- */

/* Empties the record; `until`, unless 0: up to that change, no state is kept. */
static int empty(struct replacing *work, const struct wb_record *was, uint64_t from, int64_t until)
{
    struct wb_record record = {.type = until ? WB_REC_THINNED : WB_REC_FILLER, .op = WB_OP_NONE, .when = was->when,
                               .flags = was->flags & WB_RECORD_MORE};

    if (until) {
        /* Others, which went some other time, ended there. */
        record.flags |= was->flags & WB_RECORD_THINNED;
        record.thinned.until = until;
    }
    return wb_log_edits_empty(&work->edits, &record, from, was->offset + was->total);
}

/* Of a change of names, the directory's attributes stay. */
static int empty_names(struct replacing *work, uint64_t offset, int64_t until)
{
    uint8_t bytes[WB_HEAD_SIZE + WB_BODY_MAX + 16];
    struct wb_record record, attr = {.type = WB_REC_ATTR, .op = WB_OP_NONE, .flags = WB_RECORD_MORE};
    int length, r = wb_log_probe(work->fd, offset, work->data, &record);

    if (r < 0)
        return r;
    if (record.type != WB_REC_NAME || record.total < ATTR_SIZE + WB_FILLER_SIZE)
        return -EBADMSG;
    attr.when = record.when;
    attr.actor = record.actor;
    attr.attr.object = work->saves.dir;
    attr.attr.attrs = record.name.dir;
    attr.attr.size_after = record.name.dir.size;
    length = wb_record_encode(&attr, bytes);
    if (length < 0)
        return length;
    length += wb_record_encode_end(&attr, bytes + length);
    if (length != ATTR_SIZE)
        return -EBADMSG;
    wb_log_edits_bytes(&work->edits, offset, bytes, ATTR_SIZE, ATTR_SIZE);
    return empty(work, &record, offset + ATTR_SIZE, until);
}

/* In a record by which `was` lost a name, puts `now` in its place. */
static int replace_loser(struct replacing *work, uint64_t offset, struct wb_object was, struct wb_object now,
                      const struct wb_attrs *attrs)
{
    struct wb_record record;
    int r = wb_log_probe(work->fd, offset, work->data, &record);

    if (r < 0)
        return r;
    for (uint32_t i = 0; record.type == WB_REC_NAME && i < record.name.count; i++) {
        struct wb_slot *slot = &record.name.slots[i];

        if (!slot->present || !wb_object_equal(slot->object, was))
            continue;
        slot->object = now;
        slot->attrs = *attrs;
        record.flags |= WB_RECORD_THINNED;
        return wb_log_edits_replace(&work->edits, &record);
    }
    return -EBADMSG;
}

/* What the last of them went through, the file before them did: it lost the name, and perhaps was removed elsewhere. */
static int edit_end(struct replacing *work, const struct wb_thin_save *first, const struct wb_thin_save *last)
{
    const struct wb_attrs *attrs = first->in_place ? &first->before_removed_attrs : &first->before_attrs;
    int r = replace_loser(work, last->lost_at, last->object, first->before, &first->before_attrs);

    if (r == 0 && last->moved)
        r = replace_loser(work, last->removed_at, last->object, first->before, attrs);
    return r;
}

static int edit_save(struct replacing *work, const struct wb_thin_save *save, int64_t until)
{
    const struct wb_thin_attr *attrs = wb_thin_saves_attrs(&work->saves, save->object);
    int r = empty_names(work, save->born_at, 0);

    if (r == 0)
        r = empty_names(work, save->took_at, until);
    if (r == 0 && save->in_place)
        r = empty_names(work, save->before_removed_at, 0);
    for (guint i = 0; r == 0 && i < save->attr_records; i++) {
        struct wb_record record;

        r = wb_log_probe(work->fd, attrs[i].offset, work->data, &record);
        if (r == 0 && record.type != WB_REC_ATTR)
            r = -EBADMSG;
        if (r == 0)
            r = empty(work, &record, record.offset, 0);
    }
    return r;
}

/* Saves [newest, oldest] of the list. */
static int edit_run(struct replacing *work, guint newest, guint oldest)
{
    const struct wb_thin_save *all = (const struct wb_thin_save *)(const void *)work->saves.list->data;
    int r = edit_end(work, &all[oldest], &all[newest]);

    for (guint i = newest; r == 0 && i <= oldest; i++)
        r = edit_save(work, &all[i], i == oldest ? all[newest].lost : 0);
    return r;
}

/* The edits of a planned run, if the catalog still has it: an erasure may have written the catalog anew in between.
 * `ends` leads from `lost` to the save. */
static int edit_planned(struct replacing *work, struct wb_thin_run *run, GHashTable *ends)
{
    const struct wb_thin_save *all = (const struct wb_thin_save *)(const void *)work->saves.list->data;
    const struct wb_thin_save *last = g_hash_table_lookup(ends, &run->lost);
    guint newest, i;

    if (!last)
        return 0;
    for (i = newest = (guint)(last - all); all[i].took > run->took; i++)
        if (i + 1 == work->saves.list->len || all[i + 1].name != last->name || all[i + 1].lost_at != all[i].took_at)
            return 0;
    run->done = all[i].took == run->took && wb_object_equal(all[i].before, run->before);
    return run->done ? edit_run(work, newest, i) : 0;
}

static int edit_all(struct replacing *work)
{
    g_autoptr(GHashTable) ends = g_hash_table_new(g_int64_hash, g_int64_equal);
    const struct wb_thin_options *options = &work->thinner->options;
    int r = 0;

    for (guint i = 0; i < work->saves.list->len; i++) {
        struct wb_thin_save *save = &g_array_index(work->saves.list, struct wb_thin_save, i);

        g_hash_table_insert(ends, &save->lost, save);
    }
    for (guint i = 0; r == 0 && i < work->plan.runs->len; i++)
        r = options->stop(options->data) ? -ECANCELED
                                         : edit_planned(work, &g_array_index(work->plan.runs, struct wb_thin_run, i),
                                                         ends);
    return r;
}

/* ---- in the compaction's hands --------------------------------------------------------------- */

static bool is_over(void *data)
{
    const struct wb_thinner *thinner = data;

    return thinner->options.stop(thinner->options.data);
}

/* Collects the INDEX records of the catalog, if any: they have copies of changed records. */
static int find_indexes(struct replacing *work)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, work->fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0)
        if (record.type == WB_REC_INDEX)
            g_array_append_val(work->indexes, record);
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

static int look(void *data, struct wb_object object, enum wb_object_file file, int fd)
{
    struct replacing *work = data;
    struct wb_store *store = work->thinner->store;
    int r;

    work->fd = fd;
    wb_thin_saves_deinit(&work->saves);
    wb_thin_saves_init(&work->saves, object);
    r = wb_thin_saves_find(&work->saves, fd, is_over, work->thinner);
    if (r == 0)
        r = edit_all(work);
    if (r == 0 && work->edits.list->len > 0)
        r = find_indexes(work);
    if (r == 0 && work->edits.list->len > 0)
        r = wb_log_edits_indexes(&work->edits, fd, work->indexes);
    if (r < 0 || work->edits.list->len == 0)
        return r;
    wb_log_edits_settle(&work->edits);
    if (!work->thinner->options.dry_run)
        r = wb_erased_mark_thinned(store->dir_fd, wb_store_tick(store));
    return r < 0 ? r : 1;
}

static int rewrite_catalog(struct replacing *work)
{
    struct wb_thinner *thinner = work->thinner;
    const struct wb_thin_options *options = &thinner->options;
    struct wb_compact_forget forget = {.look = look, .edits = &work->edits, .data = work};
    struct wb_compact compact = {.flags = options->dry_run ? WB_COMPACT_DRY : 0, .before = WB_WHEN_PRESENT,
                                 .stop = options->stop, .stop_data = options->data, .forget = &forget};
    int r = wb_compact_log(thinner->store, &compact, work->saves.dir, WB_FILE_CATALOG);

    if (r < 0 || compact.changed == 0)
        return r;
    /* The timeline leads to changes whose records are gone. */
    if (!options->dry_run)
        wb_timeline_drop(thinner->store, work->saves.dir, WB_FILE_CATALOG);
    thinner->count->changed += work->plan.names;
    if (compact.old_size > compact.new_size)
        thinner->count->log_bytes += compact.old_size - compact.new_size;
    return 1;
}

/* ---- one directory --------------------------------------------------------------------------- */

static void each_body(const struct replacing *work, void (*visit)(void *data, struct wb_object object))
{
    const struct wb_thin_options *options = &work->thinner->options;

    for (guint i = 0; visit && !options->dry_run && i < work->plan.bodies->len; i++)
        visit(options->data, g_array_index(work->plan.bodies, struct wb_prune_body, i).object);
}

/* Bodies that records still mention are needed. */
static void count_run(struct replacing *work, const struct wb_thin_run *run)
{
    if (run->done)
        work->thinner->count->dropped += run->count;
    for (guint i = run->first; !run->done && i < run->first + run->count; i++)
        g_array_index(work->plan.bodies, struct wb_prune_body, i).needed = true;
}

static int carry_out(struct replacing *work)
{
    const struct wb_thin_options *options = &work->thinner->options;
    int r = 0;

    for (guint i = 0; r == 0 && !options->dry_run && i < work->plan.bodies->len; i++)
        r = wb_grave_note_gone(work->thinner->store, g_array_index(work->plan.bodies, struct wb_prune_body, i).object);
    /* The catalog may be on the disk before them. */
    if (r == 0 && !options->dry_run && syncfs(work->thinner->store->dir_fd) < 0)
        r = -errno;
    each_body(work, options->begin);
    if (r == 0)
        r = rewrite_catalog(work);
    each_body(work, options->end);
    if (r <= 0)
        return r;
    for (guint i = 0; i < work->plan.runs->len; i++)
        count_run(work, &g_array_index(work->plan.runs, struct wb_thin_run, i));
    return thin_remove_bodies(work->thinner, work->plan.bodies);
}

static int find_and_plan(struct replacing *work)
{
    _cleanup_close_ int fd =
        wb_store_open_file(work->thinner->store, work->saves.dir, WB_FILE_CATALOG, O_RDONLY | O_CLOEXEC);
    int r = fd < 0 ? fd : wb_thin_saves_find(&work->saves, fd, is_over, work->thinner);

    return r == 0 && work->saves.list->len > 0 ? wb_thin_plan(work->thinner, &work->saves, &work->plan) : r;
}

int wb_thin_replaced(struct wb_thinner *thinner, struct wb_object dir)
{
    g_autofree struct replacing *work = NULL;
    unsigned hold;
    int r;

    r = wb_store_hold_pins(thinner->store, &hold);
    if (r < 0)
        return r;
    work = g_new0(struct replacing, 1);
    work->thinner = thinner;
    wb_thin_saves_init(&work->saves, dir);
    wb_log_edits_init(&work->edits);
    work->plan = (struct wb_thin_plan){g_array_new(FALSE, FALSE, sizeof(struct wb_thin_run)),
                                       g_array_new(FALSE, FALSE, sizeof(struct wb_prune_body))};
    work->indexes = g_array_new(FALSE, FALSE, sizeof(struct wb_record));
    r = find_and_plan(work);
    if (r == 0 && work->plan.runs->len > 0)
        r = carry_out(work);
    wb_store_release_pins(thinner->store, hold);
    g_array_unref(work->indexes);
    g_array_unref(work->plan.runs);
    g_array_unref(work->plan.bodies);
    wb_log_edits_deinit(&work->edits);
    wb_thin_saves_deinit(&work->saves);
    /* The catalog was deleted meanwhile, or its damage counts as an unknown span by now. */
    return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

/* ---- which files that were versions of a name are removed ---- */

/*
 * A file that had its own name for longer, before it took another one, may be something that a user looks for by that
 * first name: a download, a draft. It is removed only by age.
 */
#define ASIDE_MOST (60 * WB_WHEN_SECOND)

struct planning {
    struct wb_thinner *thinner;
    struct wb_thin_saves *saves;
    struct wb_thin_plan *plan;
    GArray *pins;  /* of int64_t              */
    GArray *rules; /* of struct wb_retention  */
    /* Of one name, oldest first: what showed, and of which save that is a version (a guint, NOBODY). */
    GArray *shown, *owners;
};
#define NOBODY G_MAXUINT

static struct wb_thin_save *save_at(const struct planning *planning, guint index)
{
    return &g_array_index(planning->saves->list, struct wb_thin_save, index);
}

static bool is_pinned(const struct planning *planning, int64_t from, int64_t until)
{
    for (guint i = 0; i < planning->pins->len; i++)
        if (g_array_index(planning->pins, int64_t, i) >= from && g_array_index(planning->pins, int64_t, i) < until)
            return true;
    return false;
}

/* ---- the save itself ------------------------------------------------------------------------- */

/* In the graveyard only, and used by nobody: 1 and *ret, 0 or -errno. */
static int find_body(const struct wb_thinner *thinner, struct wb_object object, struct wb_prune_body *ret)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    wb_object_path(object, WB_FILE_DATA, path);
    if (thinner->store->grave_fd < 0)
        return 0;
    if (fstatat(thinner->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    *ret = (struct wb_prune_body){.object = object, .ctime = st.st_ctim};
    return S_ISREG(st.st_mode) && st.st_nlink == 1 &&
           !(thinner->options.in_use && thinner->options.in_use(thinner->options.data, object));
}

static void show(struct planning *planning, int64_t from, int64_t until, guint owner)
{
    g_array_append_val(planning->shown, ((struct wb_shown){from, until}));
    g_array_append_val(planning->owners, owner);
}

/* Adds its versions of the time when it had the name. 1: its changes allow it to be removed; 0 or -errno. */
static int show_versions(struct planning *planning, guint index)
{
    const struct wb_thin_save *save = save_at(planning, index);
    struct wb_thin_changes changes;
    int64_t from = save->took;
    bool may;
    int r;

    wb_thin_changes_init(&changes, save->object);
    r = wb_thin_changes_read(&changes, &planning->thinner->catalogs);
    may = (r == 0 || r == -ENOENT) && !changes.lost;
    for (guint i = 0; i < changes.list->len; i++) {
        const struct wb_thin_change *change = &g_array_index(changes.list, struct wb_thin_change, i);

        if (change->last <= save->took || change->first >= save->lost)
            continue;
        may &= change->first > save->took && change->last < save->lost;
        /* Until the one before it is removed, it is being saved: that is no version by itself. */
        if (save->in_place && change->last < save->before_removed)
            continue;
        if (change->first > from)
            show(planning, from, change->first, index);
        from = MAX(from, change->last);
    }
    if (from < save->lost)
        show(planning, from, save->lost, index);
    wb_thin_changes_deinit(&changes);
    return r < 0 && r != -ENOENT && r != -EBADMSG ? r : may;
}

/* When the first and the last of what makes it a save was done. */
static int64_t first_of(const struct wb_thin_save *save)
{
    return MIN(save->born, save->took);
}

static int64_t last_of(const struct wb_thin_save *save)
{
    return save->moved ? save->removed : save->lost;
}

/* Whether its other names, and the name to which the file before it was moved, existed only briefly: users may look for
 * a file by such a name. */
static bool is_brief(const struct wb_thin_save *save)
{
    return save->took - save->born <= ASIDE_MOST && last_of(save) - save->lost <= ASIDE_MOST &&
           (!save->in_place ||
            (save->before_removed < save->lost && save->before_removed - save->took <= ASIDE_MOST));
}

/* Whether all records of it are known here, and are of a time that may be thinned. */
static bool is_known(const struct planning *planning, const struct wb_thin_save *save)
{
    struct wb_thinner *thinner = planning->thinner;
    struct wb_object dir = planning->saves->dir;
    guint moments;

    wb_thin_catalogs_moments(&thinner->catalogs, save->object, &moments);
    return moments == save->attr_records + save->named && last_of(save) < thinner->settled &&
           first_of(save) > wb_store_horizon(thinner->store) && is_brief(save) &&
           !is_pinned(planning, save->born, save->took) && !is_pinned(planning, save->lost, last_of(save)) &&
           !wb_thin_catalogs_unknown_span(&thinner->catalogs, dir, dir, first_of(save), last_of(save));
}

/* ---- what it replaced ------------------------------------------------------------------------ */

/* Whether nothing was changed in (from, until], but that it was `removed` (0: it was not). 1, 0 or -errno. */
static int is_quiet(struct planning *planning, struct wb_object object, int64_t from, int64_t until, int64_t removed)
{
    struct wb_thin_changes changes;
    bool quiet;
    int r;

    wb_thin_changes_init(&changes, object);
    r = wb_thin_changes_read(&changes, &planning->thinner->catalogs);
    quiet = r == 0 || r == -ENOENT;
    for (guint i = 0; quiet && i < changes.list->len; i++) {
        const struct wb_thin_change *change = &g_array_index(changes.list, struct wb_thin_change, i);

        quiet = change->last <= from || change->first > until || (change->first == removed && change->last == removed);
    }
    wb_thin_changes_deinit(&changes);
    return r < 0 && r != -ENOENT && r != -EBADMSG ? r : quiet;
}

/* Saves [newest, oldest] of the list, all of which may go. 0 or -errno. */
static int plan_run(struct planning *planning, guint newest, guint oldest)
{
    const struct wb_thin_save *first = save_at(planning, oldest), *last = save_at(planning, newest);
    GArray *bodies = planning->plan->bodies;
    struct wb_thin_run run = {first->before, first->took, last->lost, bodies->len, oldest - newest + 1, false};
    int r = is_quiet(planning, run.before, run.took, last_of(last), first->in_place ? first->before_removed : 0);

    for (guint i = newest; r > 0 && i <= oldest; i++) {
        struct wb_prune_body body;

        r = find_body(planning->thinner, save_at(planning, i)->object, &body);
        if (r > 0)
            g_array_append_val(bodies, body);
    }
    /* Of some, somebody makes use by now. */
    if (r <= 0)
        g_array_set_size(bodies, run.first);
    else
        g_array_append_val(planning->plan->runs, run);
    return MIN(r, 0);
}

/* ---- one name -------------------------------------------------------------------------------- */

static int take_rule(void *data, const char *path)
{
    struct planning *planning = data;

    return wb_thinner_rule(planning->thinner, path, planning->rules);
}

/* 0; 1: all of the name stays; or -errno. */
static int find_rules(struct planning *planning, const char *name)
{
    struct wb_thinner *thinner = planning->thinner;
    const struct wb_thin_options *options = &thinner->options;

    g_array_set_size(planning->rules, 0);
    if (!wb_object_is_none(options->only) &&
        (!wb_object_equal(options->only_dir, planning->saves->dir) || g_strcmp0(options->only_name, name) != 0))
        return 1;
    if (options->rule)
        return wb_thin_names_one(&thinner->catalogs.names, planning->saves->dir, name, take_rule, planning);
    g_array_append_val(planning->rules, options->retention);
    return 0;
}

/* Each of [newest, oldest] that nothing wants `goes`. 0 or -errno. */
static int decide(struct planning *planning, guint newest, guint oldest)
{
    g_autofree bool *stays = NULL;
    int r = 0;

    g_array_set_size(planning->shown, 0);
    g_array_set_size(planning->owners, 0);
    show(planning, 0, save_at(planning, oldest)->took, NOBODY);
    for (guint i = oldest + 1; r >= 0 && i-- > newest;) {
        struct wb_thin_save *save = save_at(planning, i);
        struct wb_prune_body body;

        r = show_versions(planning, i);
        save->goes = r > 0 && is_known(planning, save);
        if (save->goes) {
            r = find_body(planning->thinner, save->object, &body);
            save->goes = r > 0;
        }
    }
    if (r < 0)
        return r;
    show(planning, save_at(planning, newest)->lost, WB_WHEN_PRESENT, NOBODY);
    stays = g_try_new0(bool, planning->shown->len);
    if (!stays)
        return -ENOMEM;
    r = wb_thinner_decide(planning->thinner, planning->rules,
                          (const struct wb_shown *)(const void *)planning->shown->data, planning->shown->len, stays);
    for (guint i = 0; r == 0 && i < planning->shown->len; i++)
        if (stays[i] && g_array_index(planning->owners, guint, i) != NOBODY)
            save_at(planning, g_array_index(planning->owners, guint, i))->goes = false;
    return r;
}

/* Saves that follow each other at one name. */
static int plan_name(struct planning *planning, guint newest, guint oldest)
{
    guint runs = planning->plan->runs->len;
    int r = find_rules(planning, save_at(planning, newest)->name);

    if (r == 0)
        r = decide(planning, newest, oldest);
    if (r != 0)
        return MIN(r, 0);
    for (guint i = newest, end; r == 0 && i <= oldest; i = end) {
        for (end = i; end <= oldest && save_at(planning, end)->goes;)
            end++;
        if (end > i)
            r = plan_run(planning, i, end - 1);
        end += end == i;
    }
    planning->plan->names += planning->plan->runs->len > runs;
    return r;
}

int wb_thin_plan(struct wb_thinner *thinner, struct wb_thin_saves *saves, struct wb_thin_plan *plan)
{
    struct planning planning = {.thinner = thinner, .saves = saves, .plan = plan,
                                .pins = g_array_new(FALSE, FALSE, sizeof(int64_t)),
                                .rules = g_array_new(FALSE, FALSE, sizeof(struct wb_retention)),
                                .shown = g_array_new(FALSE, FALSE, sizeof(struct wb_shown)),
                                .owners = g_array_new(FALSE, FALSE, sizeof(guint))};
    int r = wb_thinner_pins(thinner, planning.pins);

    for (guint i = 0, end; r == 0 && i < saves->list->len; i = end) {
        for (end = i + 1; end < saves->list->len; end++) {
            const struct wb_thin_save *newer = save_at(&planning, end - 1), *older = save_at(&planning, end);

            if (newer->name != older->name || newer->took_at != older->lost_at)
                break;
        }
        if (thinner->options.stop(thinner->options.data))
            r = -ECANCELED;
        else
            r = plan_name(&planning, i, end - 1);
    }
    g_array_unref(planning.pins);
    g_array_unref(planning.rules);
    g_array_unref(planning.shown);
    g_array_unref(planning.owners);
    return r;
}
