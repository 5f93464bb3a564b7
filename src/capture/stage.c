/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/stage.h"

#include "base/cleanup.h"
#include "capture/plan.h"
#include "capture/suspect.h"
#include "store/object_log.h"
#include "store/stages.h"
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
        entry->attrs.nlink = target->nlink; /* the graveyard's link is not the user's */
        entry->begin = wb_store_tick(store);
        entry->dir = target->parent ? target->parent->object : WB_OBJECT_NONE;
        entry->actor = actor;
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

void wb_stage_settle(struct wb_stage *stage, const struct wb_loss *loss, int result)
{
    uint64_t end = loss->length > UINT64_MAX - loss->offset ? loss->size_after : loss->offset + loss->length;

    stage->changed |= result >= 0;
    for (unsigned i = 0; result >= 0 && i < stage->fresh.count; i++)
        wb_ranges_add(&stage->kept, stage->fresh.items[i].from, stage->fresh.items[i].to);
    wb_ranges_clear(&stage->fresh);
    if (result < 0)
        return;
    stage->op = (uint16_t)(stage->op == WB_OP_NONE || stage->op == loss->op ? loss->op : WB_OP_WRITE);
    stage->from = MIN(stage->from, loss->offset);
    stage->to = MAX(stage->to, end);
    stage->size_after = loss->size_after;
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
    /* The change it tells of was made long ago. */
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
 * Looks for the end in that log: 1, 0 (also where there is no log) or -errno. On the way, what the stage lost is
 * noted, and by which name: changes that never happened have been aborted by now.
 */
static int has_ended(struct wb_store *store, struct wb_object object, enum wb_object_file file, struct wb_stage *stage,
                     char name[WB_NAME_MAX + 1])
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
        if (record.written < entry->begin)
            break;
        if (record.type == WB_REC_DATA && record.flags & WB_RECORD_STAGE)
            note_lost(stage, &record, name);
        found = record.type == WB_REC_ATTR && record.flags & WB_RECORD_STAGE && record.attr.begin == entry->begin &&
                wb_object_equal(record.attr.object, entry->object);
    }
    return r < 0 ? r : found;
}

/*
 * What the tree shows of it, and what it is called, unless `name` is known. False: it is just as it was when the stage
 * began, so the change it was begun for never happened. Growth is in no record: that is told by the size.
 */
static bool look_at(struct wb_store *store, struct wb_stage *stage, char name[WB_NAME_MAX + 1])
{
    const struct wb_attrs *before = &stage->entry.attrs;
    struct wb_suspect suspect = {.store = store, .where = stage->entry.dir, .fd = -1};
    char found[WB_NAME_MAX + 1];
    _cleanup_close_ int fd = -1;
    struct wb_attrs now;

    suspect.logs[0].object = stage->entry.object;
    suspect.logs[0].file = WB_FILE_UNDO;
    fd = wb_suspect_find(&suspect, stage->entry.object, found);
    if (!name[0])
        g_strlcpy(name, found, sizeof(found)); /* one with several names was written to by any of them */
    if (fd < 0 || wb_object_stat(store, fd, NULL, NULL, &now, NULL) < 0) {
        now = *before;
        stage->changed = true;
    }
    if (!stage->changed && !looks_changed(&stage->entry, &now))
        return false;
    stage->size_after = now.size;
    if (now.size > before->size)
        touched(stage, before->size, now.size - before->size, stage->op);
    else if (stage->from > stage->to)
        touched(stage, 0, before->size, stage->op);
    return true;
}

static int recover(int slot, const struct wb_stage_entry *entry, void *data)
{
    struct wb_store *store = data;
    struct wb_stage stage = {.slot = slot, .entry = *entry, .from = UINT64_MAX};
    struct wb_dir dir = {.object = entry->dir};
    bool in_catalog = !wb_object_is_none(entry->dir);
    char name[WB_NAME_MAX + 1] = "";
    struct wb_target target = {.object = entry->object, .parent = &dir, .name = name};
    int r, undo;

    r = has_ended(store, entry->object, WB_FILE_UNDO, &stage, name);
    if (r == 0 && in_catalog)
        r = has_ended(store, entry->dir, WB_FILE_CATALOG, &stage, name);
    if (r > 0 || (r == 0 && !look_at(store, &stage, name))) {
        wb_stages_remove(store, slot);
        return 0;
    }
    if (r != 0)
        return 0;
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
