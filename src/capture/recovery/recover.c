/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "capture/recovery/recover.h"
#include "capture/plan.h"
#include "capture/restore.h"
#include "capture/stage.h"
#include "capture/recovery/suspect.h"
#include "store/cache/gaps.h"
#include "store/object/object_log.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static void add_log(struct wb_suspect *suspect, struct wb_object object, enum wb_object_file file)
{
    if (wb_object_is_none(object) || suspect->log_count == WB_SUSPECT_LOGS)
        return;
    for (unsigned i = 0; i < suspect->log_count; i++)
        if (suspect->logs[i].file == file && wb_object_equal(suspect->logs[i].object, object))
            return;
    suspect->logs[suspect->log_count].object = object;
    suspect->logs[suspect->log_count++].file = file;
}

/* Notes the slots of a NAME record, and the logs their objects may have records in. */
static void add_slots(struct wb_suspect *suspect, struct wb_object dir, const struct wb_rec_name *record)
{
    for (uint32_t i = 0; i < record->count && suspect->slot_count < WB_SLOTS_MAX; i++) {
        const struct wb_slot *from = &record->slots[i];
        struct wb_suspect_slot *slot = &suspect->slots[suspect->slot_count++];

        slot->dir = dir;
        slot->present = from->present;
        slot->unbind = from->unbind;
        slot->object = from->object;
        slot->is_dir = from->present && S_ISDIR(from->attrs.mode);
        memcpy(slot->name, from->name, from->name_length);
        slot->name[from->name_length] = '\0';
        if (from->present)
            add_log(suspect, from->object, slot->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO);
    }
}

/* Reads what log `index` says of the change; a log that is not there says nothing. */
static int read_log(struct wb_suspect *suspect, unsigned index)
{
    struct wb_object object = suspect->logs[index].object;
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    bool newest = true;
    int r = wb_object_log_open(&log, suspect->store, object, suspect->logs[index].file);

    if (r <= 0)
        return r;
    while ((r = wb_log_reader_prev(&log.reader, &record)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED || record.when > suspect->when) {
            if (r == 0 && record.type == WB_REC_ABORT && record.abort.target == suspect->when)
                suspect->logs[index].aborted = true;
            continue;
        }
        if (record.when < suspect->when)
            break;
        suspect->logs[index].recorded = true;
        suspect->op = record.op;
        suspect->unfinished |= newest && record.flags & WB_RECORD_MORE;
        newest = false;
        if (record.type == WB_REC_NAME)
            add_slots(suspect, object, &record.name);
        else if (!suspect->several && !suspect->logs[index].aborted)
            wb_suspect_compare(suspect, log.fd, &record);
    }
    return r < 0 ? r : 0;
}

/*
 * Whether the change never happened. In doubt it happened: a version too many is harmless, since it puts back
 * what is there already; one too few would be a state that cannot be reached any more.
 */
static bool never_happened(const struct wb_suspect *suspect)
{
    for (unsigned i = 0; i < suspect->log_count; i++)
        if (suspect->logs[i].aborted)
            return true; /* it had failed; the abort did not get to all of its logs */
    /* Slots, logs and tree did not get to the disk at the same time: a change of long ago may seem to be under way. */
    if (suspect->when < suspect->store->stamps.cut)
        return false;
    if (suspect->unfinished)
        return true;
    if (suspect->slot_count > 0)
        return wb_suspect_names_untouched(suspect) == 1;
    return !suspect->several && !suspect->differs;
}

static int abort_log(struct wb_suspect *suspect, unsigned index)
{
    struct wb_log *log;
    int r = wb_store_get_log(suspect->store, suspect->logs[index].object, suspect->logs[index].file, false,
                             &log);

    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    r = wb_change_abort_locked(suspect->store, log, suspect->when);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(suspect->store, log);
    return r;
}

/* 1: aborted, 0: left standing, or -errno. */
static int examine(struct wb_suspect *suspect)
{
    bool recorded = false;
    int r;

    /* the list grows while it is read: names lead to the logs of their objects */
    for (unsigned i = 0; i < suspect->log_count; i++) {
        r = read_log(suspect, i);
        if (r < 0)
            return r;
        recorded |= suspect->logs[i].recorded;
    }
    if (!recorded)
        return 0;
    for (unsigned i = 0; suspect->op == WB_OP_RESTORE && i < suspect->log_count; i++) {
        r = wb_restore_take_back(suspect->store, suspect->logs[i].object);
        if (r < 0)
            return r;
    }
    if (!never_happened(suspect))
        return wb_suspect_finish_rename(suspect);
    for (unsigned i = 0; i < suspect->log_count; i++) {
        r = suspect->logs[i].recorded && !suspect->logs[i].aborted ? abort_log(suspect, i) : 0;
        if (r < 0)
            return r;
    }
    return 1;
}

struct recovery {
    struct wb_store *store;
    unsigned aborted;
};

static int examine_entry(const struct wb_inflight_entry *entry, void *data)
{
    struct recovery *recovery = data;
    struct wb_suspect suspect = {
        .store = recovery->store,
        .when = entry->when,
        .several = entry->logs > 1,
        .where = entry->logs > 1 ? WB_OBJECT_NONE : entry->b,
        .fd = -1,
    };
    int r;

    add_log(&suspect, entry->a, entry->a_kind);
    if (suspect.several)
        add_log(&suspect, entry->b, entry->b_kind);
    r = examine(&suspect);
    if (suspect.fd >= 0)
        close(suspect.fd);
    /*
     * What cannot be examined, or aborted on a full disk, is left standing as if it had happened: a
     * store must not refuse to open for that.
     */
    recovery->aborted += r > 0;
    return 0;
}

int wb_recover(struct wb_store *store, unsigned *ret_aborted)
{
    struct recovery recovery = {.store = store};
    int r = wb_inflight_each(store, examine_entry, &recovery);

    if (r == 0)
        r = wb_inflight_clear(store);
    if (r == 0)
        wb_stages_recover(store);
    if (r == 0)
        wb_gaps_flush(store);
    if (r == 0)
        r = wb_writeback_recover(store);
    if (ret_aborted)
        *ret_aborted = recovery.aborted;
    return r;
}
