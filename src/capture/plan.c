/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "capture/plan.h"
#include "capture/unseen.h"
#include "format/object_key.h"
#include "store/cache/gaps.h"
#include "store/inflight/spans.h"
#include "store/object/log_index.h"
#include "store/tables/spenders.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

void wb_change_init(struct wb_change *change, struct wb_store *store)
{
    *change = (struct wb_change){.store = store, .slot = -1, .fd = -1};
}

void wb_plan_init(struct wb_plan *plan, struct wb_store *store, struct wb_change *change, enum wb_op op,
                  uint32_t actor)
{
    /* not the items: they are large, and each is set when it is added */
    plan->store = store;
    plan->change = change;
    plan->op = (uint16_t)op;
    plan->actor = actor;
    plan->where = WB_OBJECT_NONE;
    plan->count = 0;
    wb_change_init(change, store);
}

struct wb_record *wb_plan_add(struct wb_plan *plan, struct wb_object object, enum wb_object_file file,
                              enum wb_record_type type)
{
    struct wb_plan_item *item = &plan->items[plan->count++];

    memset(item, 0, sizeof(*item));
    item->object = object;
    item->file = file;
    item->record.type = (uint8_t)type;
    return &item->record;
}

void wb_via_set(struct wb_record *record, enum wb_object_file file, struct wb_object dir, const char *name)
{
    record->via.dir = file == WB_FILE_CATALOG ? WB_OBJECT_NONE : dir;
    record->via.name = name;
    record->via.length = (uint8_t)strlen(name);
}

void wb_via_set_target(struct wb_record *record, enum wb_object_file file, const struct wb_target *target)
{
    if (!target->self && target->parent && target->name)
        wb_via_set(record, file, target->parent->object, target->name);
}

void wb_plan_add_attrs(struct wb_plan *plan, struct wb_object object, const struct wb_attrs *attrs)
{
    struct wb_rec_attr *attr = &wb_plan_add(plan, object, WB_FILE_UNDO, WB_REC_ATTR)->attr;

    attr->object = object;
    attr->attrs = *attrs;
    attr->size_after = attrs->size;
}

void wb_plan_add_place(struct wb_plan *plan, enum wb_object_file file, struct wb_object self,
                       struct wb_object parent, const char *name)
{
    struct wb_rec_place *place = &wb_plan_add(plan, self, file, WB_REC_PLACE)->place;

    place->self = self;
    place->parent = parent;
    place->name = name;
    place->name_length = (uint8_t)strlen(name);
}

/* ---- the logs of a plan ---------------------------------------------------------------------- */

struct held_log {
    struct wb_object object;
    enum wb_object_file file;
    struct wb_log *log;
    uint64_t before; /* where it ended before the change */
};

static int compare_logs(const struct held_log *a, const struct held_log *b)
{
    int r = wb_object_compare(a->object, b->object);

    if (r != 0)
        return r;
    return a->file < b->file ? -1 : a->file > b->file;
}

/* Fills `held`, each log once and in the order of locking, and change->logs in the order of items. */
static unsigned list_logs(struct wb_plan *plan, struct held_log held[WB_CHANGE_LOGS])
{
    struct wb_change *change = plan->change;
    unsigned count = 0;

    change->count = 0;
    for (unsigned i = 0; i < plan->count; i++) {
        struct held_log new = {.object = plan->items[i].object, .file = plan->items[i].file};
        unsigned at = 0, known = 0;

        for (unsigned k = 0; k < count; k++)
            known |= compare_logs(&held[k], &new) == 0;
        if (known)
            continue;
        while (at < count && compare_logs(&held[at], &new) < 0)
            at++;
        memmove(held + at + 1, held + at, (count - at) * sizeof(*held));
        held[at] = new;
        count++;
        change->logs[change->count].object = new.object;
        change->logs[change->count++].file = new.file;
    }
    return count;
}

static struct wb_log *find_log(const struct held_log *held, unsigned count, const struct wb_plan_item *item)
{
    for (unsigned i = 0; i < count; i++)
        if (wb_object_equal(held[i].object, item->object) && held[i].file == item->file)
            return held[i].log;
    return NULL;
}

static void release_logs(struct wb_store *store, struct held_log *held, unsigned opened, unsigned locked)
{
    while (locked > 0)
        pthread_mutex_unlock(&held[--locked].log->lock);
    while (opened > 0)
        wb_store_put_log(store, held[--opened].log);
}

static bool same_log(const struct wb_plan_item *a, const struct wb_plan_item *b)
{
    return a->file == b->file && wb_object_equal(a->object, b->object);
}

/* Of the first `count` items: their records are aborted. *left: where even that could not be written. */
static void abort_items(struct wb_plan *plan, const struct held_log *held, unsigned held_count, unsigned count,
                        struct wb_inflight_aside *left)
{
    for (unsigned k = 0; k < held_count; k++) {
        bool written = false;

        for (unsigned i = 0; i < count; i++)
            written |= find_log(held, held_count, &plan->items[i]) == held[k].log;
        if (!written || wb_change_abort_locked(plan->store, held[k].log, plan->change->when) >= 0)
            continue;
        left->logs[left->count].object = held[k].object;
        left->logs[left->count++].file = held[k].file;
    }
}

/* The caller holds all logs. */
static int append_items(struct wb_plan *plan, const struct held_log *held, unsigned held_count,
                        struct wb_inflight_aside *left)
{
    for (unsigned i = 0; i < plan->count; i++) {
        struct wb_plan_item *item = &plan->items[i];
        struct iovec payload = {(void *)item->payload, item->payload_length};
        int r;

        item->record.op = plan->op;
        item->record.when = plan->change->when;
        item->record.actor = plan->actor;
        for (unsigned k = i + 1; k < plan->count; k++)
            if (same_log(item, &plan->items[k]))
                item->record.flags |= WB_RECORD_MORE;
        r = wb_log_append_locked(find_log(held, held_count, item), &item->record, &payload,
                                 item->payload_length > 0);
        if (r >= 0) {
            wb_store_note_growth(plan->store, plan->actor, wb_spenders_owner(&item->record), item->record.total);
            wb_timeline_note(plan->store, find_log(held, held_count, item), item->object, item->file);
            continue;
        }
        abort_items(plan, held, held_count, i, left);
        return r;
    }
    return 0;
}

/* ---- what was changed by others ----------------------------------------------------------------- */

/* A directory of which the catalog is there: records of the plan go to it. */
static int mark_dir(struct wb_store *store, struct wb_object object, int64_t ctime)
{
    struct wb_dir dir = {.object = object, .fd = -1, .has_catalog = true};

    return wb_capture_unseen(store, object, &dir, NULL, ctime);
}

static int mark_slots(struct wb_store *store, struct wb_object parent, const struct wb_rec_name *record)
{
    int r = 0;

    for (uint32_t i = 0; i < record->count && r >= 0; i++) {
        const struct wb_slot *slot = &record->slots[i];
        struct wb_dir above = {.object = parent, .fd = -1, .has_catalog = true};
        struct wb_dir dir = {.object = slot->object, .parent = &above, .name = slot->name, .fd = -1};

        const struct wb_via via = {parent, slot->name_length, slot->name};

        if (slot->present)
            r = wb_capture_unseen(store, slot->object, S_ISDIR(slot->attrs.mode) ? &dir : NULL, &via,
                                  slot->attrs.ctime);
    }
    return r;
}

/*
 * The change removes the evidence: after it, ctime is a recorded one. So earlier changes by others are marked first.
 * This is the one place that every record passes on its way in.
 */
static int mark_unseen(struct wb_plan *plan)
{
    struct wb_store *store = plan->store;
    int r = 0;

    for (unsigned i = 0; i < plan->count && r >= 0; i++) {
        const struct wb_plan_item *item = &plan->items[i];
        const struct wb_record *record = &item->record;

        if (record->type == WB_REC_NAME) {
            r = mark_dir(store, item->object, record->name.dir.ctime);
            if (r >= 0)
                r = mark_slots(store, item->object, &record->name);
        } else if (record->type == WB_REC_DATA) {
            r = wb_capture_unseen(store, item->object, NULL, &record->via, record->data.attrs.ctime);
        } else if (record->type == WB_REC_ATTR || record->type == WB_REC_XATTR) {
            bool is_attr = record->type == WB_REC_ATTR;
            struct wb_object object = is_attr ? record->attr.object : record->xattr.object;
            int64_t ctime = is_attr ? record->attr.attrs.ctime : record->xattr.attrs.ctime;
            bool is_dir = item->file == WB_FILE_CATALOG && wb_object_equal(object, item->object);

            struct wb_via via = record->via;

            if (item->file == WB_FILE_CATALOG)
                via.dir = item->object;
            r = is_dir ? mark_dir(store, object, ctime) : wb_capture_unseen(store, object, NULL, &via, ctime);
        }
    }
    return r;
}

int wb_plan_write(struct wb_plan *plan)
{
    struct held_log held[WB_PLAN_MAX];
    struct wb_change *change = plan->change;
    unsigned count = list_logs(plan, held);
    struct wb_object second = plan->where;
    enum wb_object_file second_file = WB_FILE_CATALOG;
    struct wb_inflight_aside left = {0};
    int r;

    wb_capture_retry(plan->store);
    r = mark_unseen(plan);
    if (r < 0) {
        change->count = 0;
        return r;
    }
    for (unsigned i = 0; i < count; i++) {
        r = wb_store_get_log(plan->store, held[i].object, held[i].file, true, &held[i].log);
        if (r < 0) {
            release_logs(plan->store, held, i, 0);
            change->count = 0;
            return r;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_mutex_lock(&held[i].log->lock);
        held[i].before = held[i].log->tail;
    }

    if (change->count > 1) {
        second = change->logs[1].object;
        second_file = change->logs[1].file;
    }
    change->slot = wb_inflight_claim(plan->store, &change->when);
    if (change->slot >= 0)
        change->slot = wb_inflight_announce(plan->store, change->slot, change->when, change->logs[0].object,
                                            change->logs[0].file, second, second_file, change->count);
    r = change->slot < 0 ? change->slot : append_items(plan, held, count, &left);
    if (r < 0) {
        left.when = change->when;
        wb_change_let_go(plan->store, change->slot, &left);
        wb_change_init(change, plan->store);
    }
    /* Catalogs have no payloads, so nothing between their heads to be passed over. */
    for (unsigned i = 0; r >= 0 && i < count; i++)
        if (held[i].file == WB_FILE_UNDO)
            wb_log_index(plan->store, held[i].log, held[i].object, held[i].before);
    release_logs(plan->store, held, count, count);
    return r;
}

/* ---- the end of a change --------------------------------------------------------------------- */

/* Takes the records of `target` away again if nothing was appended after them. */
static int cut_change(struct wb_log *log, int64_t target)
{
    struct wb_log_reader reader;
    struct wb_record record;
    uint64_t cut = log->tail;
    int64_t last_when = 0;
    int r;

    r = wb_log_reader_init(&reader, log->fd);
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == 0) {
        /* An INDEX is nobody's change: one that came after it goes with it. */
        if (record.type == WB_REC_INDEX && cut == log->tail)
            continue;
        last_when = record.when;
        if (record.when != target)
            break;
        cut = record.offset;
    }
    wb_log_reader_deinit(&reader);
    if (r < 0)
        return r;
    if (r > WB_END || cut == log->tail)
        return -EBUSY;
    /* Packed meanwhile: then an ABORT revokes it, once there is room for one. */
    if (cut < log->unpacked)
        return -EBUSY;
    /* Listed meanwhile: the manifest must not say that it reaches further than it does. */
    if (cut < log->listed)
        return -EBUSY;
    if (ftruncate(log->fd, (off_t)wb_log_physical(log, cut)) < 0)
        return -errno;
    log->tail = cut;
    log->cuts++;
    if (log->synced > cut)
        log->synced = cut;
    log->last_when = last_when == target ? 0 : last_when;
    wb_log_set_mtime(log->fd, log->last_when);
    return 0;
}

int wb_change_abort_locked(struct wb_store *store, struct wb_log *log, int64_t target)
{
    struct wb_record record = {.type = WB_REC_ABORT, .when = wb_store_tick(store), .abort.target = target};
    int r = wb_log_append_locked(log, &record, NULL, 0);

    /*
     * A full disk fails a change and then the ABORT that says so. Where nothing came after it the
     * record itself is withdrawn instead: otherwise every failing change would leave a version
     * that never was, and keep its in-flight slot.
     */
    return r < 0 ? cut_change(log, target) : r;
}

static bool times_moved(const struct wb_change *change)
{
    struct wb_object object;
    struct wb_attrs attrs;

    return change->fd >= 0 && wb_object_stat(NULL, change->fd, NULL, &object, &attrs, NULL) >= 0 &&
           wb_object_equal(object, change->object) &&
           (attrs.mtime != change->mtime || attrs.ctime != change->ctime);
}

void wb_change_watch(struct wb_change *change, int fd, struct wb_object object, const struct wb_attrs *attrs)
{
    change->fd = fd;
    change->object = object;
    change->mtime = attrs->mtime;
    change->ctime = attrs->ctime;
}

/* 0 or -errno. Where the log is gone, so is the record. */
static int abort_in(struct wb_store *store, struct wb_object object, enum wb_object_file file, int64_t target)
{
    struct wb_log *log;
    int r = wb_store_get_log(store, object, file, false, &log);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    pthread_mutex_lock(&log->lock);
    r = wb_change_abort_locked(store, log, target);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}

void wb_change_let_go(struct wb_store *store, int slot, const struct wb_inflight_aside *left)
{
    if (slot >= 0 && left->count > 0)
        wb_inflight_set_aside(store, slot, left);
    else if (slot >= 0)
        wb_inflight_end(store, slot);
}

int wb_change_gap(struct wb_store *store, struct wb_change *change, int error, struct wb_object object,
                  enum wb_object_file file)
{
    if (error != -ENOSPC && error != -EDQUOT && error != -EIO)
        return error;
    if (!store->lets_through || change->gap_count == WB_CHANGE_LOGS || wb_gap_begin(store, object, file) < 0)
        return error;
    change->gaps[change->gap_count].object = object;
    change->gaps[change->gap_count++].file = file;
    return WB_UNCHANGED;
}

static void end_gaps(struct wb_change *change)
{
    while (change->gap_count > 0) {
        change->gap_count--;
        wb_gap_end(change->store, change->gaps[change->gap_count].object, change->gaps[change->gap_count].file);
    }
}

void wb_capture_retry(struct wb_store *store)
{
    struct wb_inflight_aside aside;
    int slot;

    wb_gaps_flush(store);
    if (!wb_inflight_retry_begin(store))
        return;
    while ((slot = wb_inflight_take_aside(store, &aside)) >= 0) {
        while (aside.count > 0 && abort_in(store, aside.logs[aside.count - 1].object,
                                           aside.logs[aside.count - 1].file, aside.when) >= 0)
            aside.count--;
        if (aside.count > 0) {
            wb_inflight_set_aside(store, slot, &aside);
            break; /* the disk is still full: the others would fail as well */
        }
        wb_inflight_end(store, slot);
    }
    wb_inflight_retry_end(store);
}

void wb_capture_end(struct wb_change *change, int result)
{
    struct wb_inflight_aside left = {.when = change->when};

    end_gaps(change);
    if (change->when == 0)
        return;
    wb_spans_reach(change->store);
    if (result < 0 && times_moved(change))
        result = 0; /* a version of its own: without its record the times before would be lost */
    for (int i = 0; result < 0 && i < change->count; i++) {
        if (abort_in(change->store, change->logs[i].object, change->logs[i].file, change->when) >= 0)
            continue;
        left.logs[left.count].object = change->logs[i].object;
        left.logs[left.count++].file = change->logs[i].file;
    }
    wb_change_let_go(change->store, change->slot, &left);
    wb_change_init(change, change->store);
}
