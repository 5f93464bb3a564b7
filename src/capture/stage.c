/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/stage.h"

#include "base/cleanup.h"
#include "capture/plan.h"
#include "capture/recovery/suspect.h"
#include "capture/unseen.h"
#include "store/inflight/stages.h"
#include "store/object/object_log.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

struct wb_stage *wb_stage_free(struct wb_stage *stage)
{
    if (stage) {
        wb_ranges_deinit(&stage->kept);
        wb_ranges_deinit(&stage->fresh);
        g_free(stage);
    }
    return NULL;
}

/* `when` of its newest record, 0 where there is no such log, or -errno. */
static int64_t newest_of(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log *log;
    int64_t newest;
    int r = wb_store_get_log(store, object, file, false, &log);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    pthread_mutex_lock(&log->lock);
    newest = log->last_when;
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return newest;
}

int wb_stage_begin(struct wb_stage **ret, struct wb_store *store, const struct wb_target *target, int fd,
                   uint32_t actor)
{
    g_autofree struct wb_stage *stage = g_try_new0(struct wb_stage, 1);
    struct wb_stage_entry *entry;
    int r;

    if (!stage)
        return -ENOMEM;
    entry = &stage->entry;
    stage->from = UINT64_MAX;
    r = wb_stages_find(store, target->object, entry, &stage->slot);
    if (r > 0) {
        stage->changed = true;
    } else if (r == 0) {
        r = wb_object_stat(store, fd, NULL, &entry->object, &entry->attrs, NULL);
        if (r < 0)
            return r;
        /* If it cannot be recorded now, the attributes in the slot still show it when the stage ends. */
        (void)wb_capture_unseen_target(store, target, entry->attrs.ctime);
        entry->attrs.nlink = target->nlink; /* the graveyard's link is not the user's */
        entry->begin = wb_store_tick(store);
        entry->dir = target->parent ? target->parent->object : WB_OBJECT_NONE;
        entry->actor = actor;
        entry->newest_own = newest_of(store, entry->object, WB_FILE_UNDO);
        entry->newest_dir =
            wb_object_is_none(entry->dir) ? 0 : newest_of(store, entry->dir, WB_FILE_CATALOG);
        if (entry->newest_own < 0 || entry->newest_dir < 0)
            return (int)MIN(entry->newest_own, entry->newest_dir);
        r = stage->slot = wb_stages_add(store, entry);
    }
    if (r < 0)
        return r;
    stage->size_after = entry->attrs.size;
    *ret = g_steal_pointer(&stage);
    return 0;
}

/* Whether size or times are others than those in the slot. */
static bool looks_changed(const struct wb_stage_entry *entry, const struct wb_attrs *now)
{
    return now->size != entry->attrs.size || now->mtime != entry->attrs.mtime || now->ctime != entry->attrs.ctime;
}

void wb_stage_finish(struct wb_stage *stage, const struct wb_overwrite *overwrite, int result)
{
    uint64_t end = overwrite->length > UINT64_MAX - overwrite->offset ? overwrite->size_after
                                                                      : overwrite->offset + overwrite->length;

    stage->changed |= result >= 0;
    for (unsigned i = 0; result >= 0 && i < stage->fresh.count; i++)
        wb_ranges_add(&stage->kept, stage->fresh.items[i].from, stage->fresh.items[i].to);
    wb_ranges_clear(&stage->fresh);
    if (result < 0)
        return;
    stage->op = (uint16_t)(stage->op == WB_OP_NONE || stage->op == overwrite->op ? overwrite->op : WB_OP_WRITE);
    stage->from = MIN(stage->from, overwrite->offset);
    stage->to = MAX(stage->to, end);
    stage->size_after = overwrite->size_after;
}

/*
 * Its record may have had to stay (see wb_capture_end); then the stage needs an end, or it would count for ever. If it
 * is only still to be aborted, that is asked again when the stage ends.
 */
void wb_stage_failed(struct wb_stage *stage, struct wb_store *store, int fd, int64_t when, int result)
{
    struct wb_attrs now;

    if (stage->changed)
        return;
    stage->changed = result == -EIO || wb_object_stat(store, fd, NULL, NULL, &now, NULL) < 0 ||
                     looks_changed(&stage->entry, &now) || (stage->doubt && wb_inflight_has(store, stage->doubt));
    stage->doubt = when > 0 && wb_inflight_has(store, when) ? when : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* `target` may be NULL. */
static int write_end(struct wb_store *store, const struct wb_stage *stage, struct wb_object log,
                     enum wb_object_file file, const struct wb_target *target)
{
    const struct wb_stage_entry *entry = &stage->entry;
    struct wb_change change;
    struct wb_plan plan;
    struct wb_record *record;
    int r;

    wb_plan_init(&plan, store, &change, stage->op ? (enum wb_op)stage->op : WB_OP_WRITE, entry->actor);
    plan.where = entry->dir;
    record = wb_plan_add(&plan, log, file, WB_REC_ATTR);
    record->flags = WB_RECORD_STAGE;
    if (target)
        wb_via_set_target(record, file, target);
    record->attr.object = entry->object;
    record->attr.attrs = entry->attrs;
    record->attr.size_after = stage->size_after;
    record->attr.begin = entry->begin;
    if (stage->from < stage->to) {
        record->attr.offset = stage->from;
        record->attr.length = stage->to - stage->from;
    }
    r = wb_plan_write(&plan);
    if (r < 0)
        return r;
    /* The change that it records was made long ago. */
    wb_capture_end(&change, 0);
    wb_stages_remove(store, stage->slot);
    return 0;
}

int wb_stage_end(struct wb_store *store, struct wb_stage *stage, struct wb_target *target)
{
    struct wb_object log;
    enum wb_object_file file;
    bool changed = stage->changed;
    int r = 0;

    if (!changed && stage->doubt) {
        wb_capture_retry(store);
        changed = wb_inflight_has(store, stage->doubt);
    }
    if (changed) {
        r = wb_attrs_log(store, target, &log, &file);
        if (r >= 0)
            r = write_end(store, stage, log, file, target);
        if (r >= 0 && file == WB_FILE_UNDO)
            wb_hint_set(&target->has_undo);
    } else {
        wb_stages_remove(store, stage->slot);
    }
    if (r < 0)
        return r;
    wb_stage_free(stage);
    return 0;
}

/* ---- after a crash --------------------------------------------------------------------------- */

static void touched(struct wb_stage *stage, uint64_t offset, uint64_t length, uint16_t op)
{
    stage->op = (uint16_t)(stage->op == WB_OP_NONE || stage->op == op ? op : WB_OP_WRITE);
    stage->from = MIN(stage->from, offset);
    stage->to = MAX(stage->to, length > UINT64_MAX - offset ? UINT64_MAX : offset + length);
    stage->changed = true;
}

static void note_lost(struct wb_stage *stage, const struct wb_record *record, char name[WB_NAME_MAX + 1])
{
    touched(stage, record->data.offset, record->data.length, record->op);
    if (record->via.length > 0 && wb_object_equal(record->via.dir, stage->entry.dir)) {
        memcpy(name, record->via.name, record->via.length);
        name[record->via.length] = '\0';
    }
}

/*
 * Looks for the end in that log: 1, 0 (also if there is no log) or -errno. On the way, it notes the loss of the stage,
 * and by which name: changes that never happened have been aborted by now. `last`: raised to the `when` of the newest
 * record before the stage.
 */
static int has_ended(struct wb_store *store, struct wb_object object, enum wb_object_file file, struct wb_stage *stage,
                     char name[WB_NAME_MAX + 1], int64_t *last)
{
    const struct wb_stage_entry *entry = &stage->entry;
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    bool found = false;
    int r = wb_object_log_open(&log, store, object, file);

    if (r <= 0)
        return r;
    while (!found && ((r = wb_log_reader_prev_effective(&log.reader, &skip, &record)) == 0 || r == WB_DAMAGED)) {
        stage->changed |= r == WB_DAMAGED;
        if (r == WB_DAMAGED)
            continue;
        if (record.written < entry->begin) {
            *last = MAX(*last, record.when);
            break;
        }
        if (record.type == WB_REC_DATA && record.flags & WB_RECORD_STAGE)
            note_lost(stage, &record, name);
        found = record.type == WB_REC_ATTR && record.flags & WB_RECORD_STAGE && record.attr.begin == entry->begin &&
                wb_object_equal(record.attr.object, entry->object);
    }
    return r < 0 ? r : found;
}

enum seen { SEEN_UNCHANGED, SEEN_CHANGED, SEEN_UNKNOWN };

/* Whether the log has its record of that `when`: 1, 0 or -errno. */
static int has_record(struct wb_store *store, struct wb_object object, enum wb_object_file file, int64_t when)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record = {.when = when};
    int r = wb_object_log_open(&log, store, object, file);

    if (r <= 0)
        return r;
    while ((r = wb_log_reader_prev(&log.reader, &record)) == WB_DAMAGED || (r == 0 && record.when > when))
        ;
    return r < 0 ? r : r == 0 && record.when == when;
}

/* Whether a record from before the stage is missing, which a power cut took. Where that is not known, it is not. */
static bool lacks_records(struct wb_store *store, const struct wb_stage_entry *entry)
{
    return (entry->newest_own != 0 && has_record(store, entry->object, WB_FILE_UNDO, entry->newest_own) == 0) ||
           (entry->newest_dir != 0 && has_record(store, entry->dir, WB_FILE_CATALOG, entry->newest_dir) == 0);
}

/*
 * Whether the file on the disk is older than its slot: of changes before the stage, a power cut took records and
 * effects, as if they had never been made. All of them may have been made in one tick of ctime; and a file that is not
 * found (`now` is NULL) may have been moved or removed by one of them.
 */
static bool is_older(struct wb_store *store, const struct wb_stage *stage, const struct wb_attrs *now)
{
    const struct wb_stage_entry *entry = &stage->entry;

    /* Not whether this opening is the first after the cut: that one may have ended before it came to the slot. */
    if (entry->begin >= store->stamps.cut)
        return false;
    if (now && now->ctime != entry->attrs.ctime)
        return now->ctime < entry->attrs.ctime;
    return lacks_records(store, entry);
}

/*
 * Then the attributes in the slot are of a state that was lost, and those of the file are what the stage began with.
 * A file that is longer has grown in the stage, which is not recorded, or it was made shorter before, which was lost.
 */
static enum seen look_at_older(struct wb_stage *stage, const struct wb_attrs *now)
{
    struct wb_attrs *before = &stage->entry.attrs;
    uint64_t size = before->size;

    if (now && now->size > size)
        return SEEN_UNKNOWN;
    if (!stage->changed)
        return SEEN_UNCHANGED;
    if (!now)
        return SEEN_UNKNOWN;
    *before = *now;
    before->size = size;
    return SEEN_CHANGED;
}

/*
 * How the tree shows the file, and its name, unless `name` is known. Unchanged: it is just as it was when the
 * stage began, so the change it was begun for never happened. Growth is in no record: that is seen by the size.
 */
static enum seen look_at(struct wb_store *store, struct wb_stage *stage, char name[WB_NAME_MAX + 1], int64_t *last)
{
    const struct wb_attrs *before = &stage->entry.attrs;
    struct wb_suspect suspect = {.store = store, .where = stage->entry.dir, .fd = -1};
    char found[WB_NAME_MAX + 1];
    _cleanup_close_ int fd = -1;
    enum seen seen = SEEN_CHANGED;
    struct wb_attrs now;
    bool is_there;

    suspect.logs[0].object = stage->entry.object;
    suspect.logs[0].file = WB_FILE_UNDO;
    fd = wb_suspect_find(&suspect, stage->entry.object, found);
    if (!name[0])
        g_strlcpy(name, found, sizeof(found)); /* one with several names was written to by any of them */
    is_there = fd >= 0 && wb_object_stat(store, fd, NULL, NULL, &now, NULL) == 0;
    if (is_older(store, stage, is_there ? &now : NULL)) {
        *last = is_there ? MAX(*last, now.ctime) : *last;
        seen = look_at_older(stage, is_there ? &now : NULL);
    }
    if (!is_there) {
        now = *before;
        stage->changed = true;
    }
    if (seen != SEEN_CHANGED || (!stage->changed && !looks_changed(&stage->entry, &now)))
        return seen == SEEN_UNKNOWN ? seen : SEEN_UNCHANGED;
    stage->size_after = now.size;
    if (now.size > before->size)
        touched(stage, before->size, now.size - before->size, stage->op);
    else if (stage->from > stage->to)
        touched(stage, 0, before->size, stage->op);
    return SEEN_CHANGED;
}

static int recover(int slot, const struct wb_stage_entry *entry, void *data)
{
    struct wb_store *store = data;
    struct wb_stage stage = {.slot = slot, .entry = *entry, .from = UINT64_MAX};
    struct wb_dir dir = {.object = entry->dir};
    bool in_catalog = !wb_object_is_none(entry->dir);
    char name[WB_NAME_MAX + 1] = "";
    struct wb_target target = {.object = entry->object, .parent = &dir, .name = name};
    enum seen seen;
    int64_t last = 0;
    int r, undo;

    r = has_ended(store, entry->object, WB_FILE_UNDO, &stage, name, &last);
    if (r == 0 && in_catalog)
        r = has_ended(store, entry->dir, WB_FILE_CATALOG, &stage, name, &last);
    if (r < 0)
        return 0;
    seen = r > 0 ? SEEN_UNCHANGED : look_at(store, &stage, name, &last);
    /* Where the GAP cannot be written, its end is: the state before is what the slot says. */
    if (seen == SEEN_UNCHANGED || (seen == SEEN_UNKNOWN && wb_capture_lost_records(store, entry->object, last) == 0)) {
        wb_stages_remove(store, slot);
        return 0;
    }
    undo = wb_store_has_log(store, entry->object, WB_FILE_UNDO);
    if (undo == 0 && in_catalog)
        in_catalog = wb_store_has_log(store, entry->dir, WB_FILE_CATALOG) == 1;
    else
        in_catalog = false;
    if (undo >= 0)
        write_end(store, &stage, in_catalog ? entry->dir : entry->object, in_catalog ? WB_FILE_CATALOG : WB_FILE_UNDO,
                  name[0] ? &target : NULL);
    return 0;
}

void wb_stages_recover(struct wb_store *store)
{
    wb_stages_each(store, recover, store);
}
