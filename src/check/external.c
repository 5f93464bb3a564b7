/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Finds content that changed behind the mount. A past state of a file is made of recorded bytes laid over its present
 * content; if the present content was changed without a record, that result is wrong.
 *
 * Records hold the state before, so only two facts show the state after a change. Many records have the size after the
 * change, or the size it would have had if the disk had not been full. And a change sets the times of the file, hardly
 * later than its record: times well after the last record of a file are those of an unrecorded change (ctime cannot be
 * set, and changes of content set mtime as well). Nothing is reported for files without records, since there is nothing
 * to compare with. A record of a later version may describe any change at its time: of the object whose log it is in,
 * or, in a catalog, of anything that has a name there.
 */
#include "check/checking.h"

#include "store/inflight/stages.h"
#include "store/timeline/timeline.h"
#include "wayback/when.h"
#include <errno.h>

/* size_after becomes 0 if the record does not limit the size. */
static void note_size(struct wb_known *known, int64_t when, unsigned op, uint64_t size)
{
    /* A write may have come to its end early, on a full disk; so at most this size. */
    if (when < known->resized || wb_op_has(op, WB_EFFECT_KEEPS))
        return;
    known->resized = when;
    known->size_after = op == WB_OP_WRITE || op == WB_OP_TRUNCATE ? size : 0;
}

static void note_loss(struct wb_known *known, const struct wb_record *record)
{
    for (uint32_t i = 0; i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];

        if (slot->present && slot->unbind != WB_UNBIND_RENAMED && S_ISREG(slot->attrs.mode) &&
            record->written >= known->lost && wb_object_equal(slot->object, known->object)) {
            known->lost = record->written;
            known->lost_size = slot->attrs.size;
        }
    }
}

void wb_external_note(struct wb_checking *checking, struct wb_object object, const struct wb_record *record)
{
    struct wb_known *known = wb_object_is_none(object) ? NULL : wb_check_known(checking, object);

    if (!known)
        return;
    /*
     * A backward walk gives all records of a write session the `when` of its end, and joined ones that of the newest.
     * Only `written` shows which of them is the newest, and so which one has the size after the changes.
     */
    known->newest = MAX(known->newest, record->written);
    if (record->type == WB_REC_NAME)
        note_loss(known, record);
    if (record->type == WB_REC_DATA)
        note_size(known, record->written, record->op, record->data.size_after);
    else if (record->type == WB_REC_ATTR)
        note_size(known, record->written, record->op, record->attr.size_after);
    else if (record->type == WB_REC_GAP)
        note_size(known, record->written, WB_OP_NONE, 0);
}

void wb_external_note_unknown(struct wb_checking *checking, struct wb_object object, const struct wb_record *record)
{
    struct wb_known *known = wb_object_is_none(object) ? NULL : wb_check_known(checking, object);

    if (known)
        known->beyond = MAX(known->beyond, record->written);
    checking->beyond = MAX(checking->beyond, record->written);
}

/* No record of a later version that may speak of it is newer. */
static int64_t newest_beyond(const struct wb_checking *checking, const struct wb_known *known)
{
    const struct wb_known *dir = g_hash_table_lookup(checking->objects, &known->dir);

    return MAX(known->beyond, dir ? dir->beyond : 0);
}

bool wb_external_is_staged(const struct wb_checking *checking, struct wb_object object)
{
    const struct wb_store probe = {.dir_fd = checking->dir_fd};
    struct wb_stage_entry entry;

    return wb_stages_find(checking->store ? checking->store : &probe, object, &entry, NULL) == 1;
}

/* Whether the content was changed behind the mount; *ret_why is the evidence. */
static bool is_external(struct wb_checking *checking, const struct wb_known *known, const char **ret_why)
{
    int64_t beyond = newest_beyond(checking, known), newest = MAX(known->newest, beyond);

    if (!known->is_file || known->names == 0 || MAX(known->newest, known->beyond) == 0)
        return false;
    /* Which of its directories the records of a later version are in is all the same then. */
    if (known->spread && checking->beyond > beyond)
        return false;
    *ret_why = "it was changed later than its last record";
    if (wb_check_is_beyond(known->mtime, newest) && wb_check_is_beyond(known->ctime, newest))
        return true;
    *ret_why = "it is longer than after its last recorded change";
    return known->resized > beyond && known->size_after > 0 && known->size > known->size_after &&
           !wb_external_is_staged(checking, known->object) &&
           !g_hash_table_contains(checking->aborted, &known->resized) &&
           !wb_check_is_unsettled(checking, known->resized);
}

/* "States before now are not known." */
static int mark(struct wb_checking *checking, const struct wb_known *known)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {.since = 0, .reason = WB_GAP_EXTERNAL}};
    struct wb_log *log;
    int r = wb_store_get_log(checking->store, known->object, WB_FILE_UNDO, true, &log);

    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(checking->store);
    r = wb_log_append_locked(log, &record, NULL, 0);
    if (r == 0)
        wb_timeline_note(checking->store, log, known->object, WB_FILE_UNDO);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(checking->store, log);
    return r < 0 ? r : wb_store_sync_log(checking->store, known->object, WB_FILE_UNDO);
}

int wb_check_external(struct wb_checking *checking)
{
    GHashTableIter iter;
    void *value;

    if (checking->online)
        return 0;
    g_hash_table_iter_init(&iter, checking->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_known *known = value;
        char path[WB_OBJECT_PATH_MAX];
        struct wb_check_where where = {.file = path};
        const char *why;

        if (!is_external(checking, known, &why))
            continue;
        wb_object_path(known->object, WB_FILE_UNDO, path);
        where.path = known->path;
        if (checking->flags & WB_CHECK_EXTERNAL && checking->store && checking->store->writable)
            wb_check_report_mended(checking, mark(checking, known), "external-content", where,
                                   "its versions until now were marked as unknown", "changed outside the mount: %s",
                                   why);
        else
            wb_check_report(checking, WB_CHECK_NOTE, "external-content", where,
                            "its older versions may be wrong; --external marks them as unknown",
                            "changed outside the mount: %s", why);
    }
    return 0;
}
