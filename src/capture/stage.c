/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/stage.h"

#include "base/cleanup.h"
#include "capture/plan.h"
#include "capture/unseen.h"
#include "store/inflight/stages.h"
#include <errno.h>
#include <glib.h>

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

bool wb_stage_looks_changed(const struct wb_stage_entry *entry, const struct wb_attrs *now)
{
    return now->size != entry->attrs.size || now->mtime != entry->attrs.mtime || now->ctime != entry->attrs.ctime;
}

void wb_stage_touched(struct wb_stage *stage, uint64_t offset, uint64_t length, uint16_t op)
{
    stage->op = (uint16_t)(stage->op == WB_OP_NONE || stage->op == op ? op : WB_OP_WRITE);
    stage->from = MIN(stage->from, offset);
    stage->to = MAX(stage->to, length > UINT64_MAX - offset ? UINT64_MAX : offset + length);
    stage->changed = true;
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
                     wb_stage_looks_changed(&stage->entry, &now) ||
                     (stage->doubt && wb_inflight_has(store, stage->doubt));
    stage->doubt = when > 0 && wb_inflight_has(store, when) ? when : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

int wb_stage_write_end(struct wb_store *store, const struct wb_stage *stage, struct wb_object log,
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
            r = wb_stage_write_end(store, stage, log, file, target);
        if (r >= 0 && file == WB_FILE_UNDO)
            wb_hint_set(&target->has_undo);
    } else {
        wb_stages_remove(store, stage->slot);
        (void)wb_stages_sync_removed(store);
    }
    if (r < 0)
        return r;
    wb_stage_free(stage);
    return 0;
}
