/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/recovery/recover.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "capture/plan.h"
#include "capture/restore.h"
#include "capture/stage.h"
#include "capture/undo.h"
#include "capture/unseen.h"
#include "store/cache/gaps.h"
#include "store/identity/flags.h"
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include "store/object/catalog_path.h"
#include "store/object/object_log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

/* A change that was in flight when the last daemon died is compared with the tree, by its records. */

/* One name the change was about, as it was before. */
struct suspect_slot {
    struct wb_object dir;
    bool present;
    uint8_t unbind;
    struct wb_object object;
    bool is_dir;
    char name[WB_NAME_MAX + 1];
};

#define SUSPECT_LOGS 8
struct suspect {
    struct wb_store *store;
    int64_t when;
    uint16_t op;
    bool several;           /* its records are in several logs */
    struct wb_object where; /* else: the directory of the object, as far as was known */

    unsigned log_count;
    struct {
        struct wb_object object;
        enum wb_object_file file;
        bool recorded, aborted;
    } logs[SUSPECT_LOGS];

    unsigned slot_count;
    struct suspect_slot slots[WB_SLOTS_MAX];

    bool unfinished; /* parts are missing: the change comes after the last */
    bool differs;    /* the object is not as its records say it was */
    int fd;          /* the object, once looked for; -1 */
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Opens the directory of a slot; one in the graveyard has no names any more. */
static int open_dir(const struct suspect *suspect, struct wb_object dir)
{
    int fd = -1, r = wb_catalog_path_open_dir(suspect->store, dir, &fd);

    return r == 0 ? fd : r < 0 ? r : -ENOENT;
}

/* Whether dir_fd/name is `object` now: 1, 0 (another or nothing), or -errno. *ret_there: anything. */
static int holds(const struct suspect *suspect, int dir_fd, const char *name, struct wb_object object,
                 bool *ret_there)
{
    struct wb_object found;
    struct wb_attrs attrs;
    int r = wb_object_stat(suspect->store, dir_fd, name, &found, &attrs, NULL);

    *ret_there = r >= 0 || r == -EXDEV;
    if (r < 0)
        return r == -ENOENT || r == -EXDEV ? 0 : r;
    return wb_object_equal(found, object);
}

/* Counts the times of an object that is there as those of the change. */
static void extend_to(const struct suspect *suspect, int dir_fd, const char *name)
{
    struct wb_attrs attrs;

    if (wb_object_stat(NULL, dir_fd, name, NULL, &attrs, NULL) == 0)
        wb_spans_extend(suspect->store, suspect->when, attrs.ctime);
}

/* The same for all objects that a change of names gave new times, at whatever call it ended. */
static void extend_to_names(const struct suspect *suspect)
{
    for (unsigned i = 0; i < suspect->slot_count; i++) {
        const struct suspect_slot *slot = &suspect->slots[i];
        _cleanup_close_ int fd = open_dir(suspect, slot->dir), buried = -1;

        if (slot->present)
            buried = wb_grave_open(suspect->store, slot->object, slot->is_dir, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (buried >= 0)
            extend_to(suspect, buried, NULL);
        if (fd < 0)
            continue;
        extend_to(suspect, fd, NULL);
        extend_to(suspect, fd, slot->name);
    }
}

/* Whether every name is as it was before the change: 1, 0, or -errno if that cannot be determined. */
static int suspect_names_untouched(const struct suspect *suspect)
{
    for (unsigned i = 0; i < suspect->slot_count; i++) {
        const struct suspect_slot *slot = &suspect->slots[i];
        _cleanup_close_ int fd = open_dir(suspect, slot->dir);
        bool there;
        int r;

        if (fd < 0)
            return fd;
        r = holds(suspect, fd, slot->name, slot->object, &there);
        if (r < 0)
            return r;
        if (slot->present ? r == 0 : there)
            return 0;
    }
    return suspect->slot_count > 0;
}

/* A directory replaced by a rename, half way: buries it from the name it was left at. 0 or -errno. */
static int suspect_finish_rename(const struct suspect *suspect)
{
    const struct suspect_slot *source = &suspect->slots[0], *target = &suspect->slots[1];
    _cleanup_close_ int source_fd = -1, target_fd = -1;
    bool there;

    if (suspect->slot_count != 2 || (suspect->op != WB_OP_RENAME && suspect->op != WB_OP_WHITEOUT))
        return 0;
    if (source->unbind != WB_UNBIND_RENAMED) {
        source = &suspect->slots[1];
        target = &suspect->slots[0];
    }
    if (source->unbind != WB_UNBIND_RENAMED || !target->present || target->unbind != WB_UNBIND_KEPT)
        return 0;
    source_fd = open_dir(suspect, source->dir);
    if (source_fd < 0)
        return source_fd;
    target_fd = open_dir(suspect, target->dir);
    if (target_fd < 0)
        return target_fd;
    if (holds(suspect, target_fd, target->name, source->object, &there) != 1 ||
        holds(suspect, source_fd, source->name, target->object, &there) != 1)
        return 0;
    WB_IN_SPAN(suspect->store);
    return wb_grave_bury_name(suspect->store, source_fd, source->name, target->object, target->is_dir);
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Looks through a directory for an inode: its name is not in the records of an object. `name` may be NULL. */
static int search_dir(const struct suspect *suspect, struct wb_object object, char name[WB_NAME_MAX + 1])
{
    _cleanup_closedir_ DIR *stream = NULL;
    _cleanup_close_ int dir_fd = open_dir(suspect, suspect->where);
    struct dirent *entry;
    int r = 0;

    if (dir_fd < 0)
        return dir_fd;
    stream = wb_opendir_at(dir_fd, ".");
    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r)) {
        bool there;

        if ((suspect->store->identities || entry->d_ino == object.ino) &&
            holds(suspect, dir_fd, entry->d_name, object, &there) == 1) {
            int fd = openat(dir_fd, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0 && name)
                g_strlcpy(name, entry->d_name, WB_NAME_MAX + 1);
            return fd < 0 ? -errno : fd;
        }
    }
    return r < 0 ? r : -ENOENT;
}

/* An O_PATH descriptor of an object, buried or in suspect->where; logs[0] is its log. Or -errno. `name` (may be
 * NULL): its name there, or "". */
static int suspect_find(const struct suspect *suspect, struct wb_object object, char name[WB_NAME_MAX + 1])
{
    int fd;

    if (name)
        name[0] = '\0';
    if (wb_object_equal(object, suspect->logs[0].object) && suspect->logs[0].file == WB_FILE_CATALOG)
        return open_dir(suspect, object); /* a directory's own attributes */
    fd = wb_grave_open(suspect->store, object, false, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 || wb_object_is_none(suspect->where) ? fd : search_dir(suspect, object, name);
}

/*
 * Compares without the access time, which every reader of a file changes, among them the daemon itself when it looks at
 * the bytes that are about to be lost. It is evidence only of a change that sets it.
 */
static bool same_attrs(const struct wb_attrs *a, const struct wb_attrs *b, uint16_t op)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->size == b->size &&
           a->mtime == b->mtime && a->ctime == b->ctime && (op != WB_OP_UTIMENS || a->atime == b->atime);
}

/* Whether `length` bytes of the file at `offset` are `old`, or zeros where that is NULL. */
static bool same_bytes(int fd, uint64_t offset, uint64_t length, const uint8_t *old)
{
    uint8_t now[4096];

    while (length > 0) {
        size_t n = length < sizeof(now) ? (size_t)length : sizeof(now);

        if (wb_pread_exact(fd, now, n, offset) < 0)
            return false;
        if (old ? memcmp(now, old, n) : !wb_is_zero(now, n))
            return false;
        offset += n;
        length -= n;
        old = old ? old + n : NULL;
    }
    return true;
}

static bool same_data(int object_fd, int log_fd, const struct wb_record *record)
{
    _cleanup_close_ int fd = -1;
    uint8_t *payload = wb_capture_buffer();
    char path[32];

    fd = open(wb_fd_path(object_fd, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || !payload || wb_log_read_payload(log_fd, record, payload) < 0)
        return false;
    for (uint32_t i = 0; i < record->data.count; i++) {
        const struct wb_extent *extent = &record->data.extents[i];

        /* clones and wide holes may be of any size: such a version is left standing */
        if (extent->kind == WB_EXTENT_IMAGE || extent->length > WB_PAYLOAD_MAX)
            return false;
        if (!same_bytes(fd, extent->offset, extent->length,
                        extent->kind == WB_EXTENT_INLINE ? payload + extent->source : NULL))
            return false;
    }
    return true;
}

/* Cutting a file sets its size, and at once: where that is as before, nothing happened to content, either. */
static bool resizes(const struct wb_record *record)
{
    return record->op == WB_OP_TRUNCATE && record->data.size_after != record->data.attrs.size;
}

static bool same_xattr(int object_fd, int log_fd, const struct wb_record *record)
{
    uint8_t *buffer = wb_capture_buffer();
    size_t half = WB_PAYLOAD_MAX / 2; /* far above what a value may have */
    char name[WB_NAME_MAX + 1];
    ssize_t n;

    if (!buffer || record->payload_length > half)
        return false;
    memcpy(name, record->xattr.name, record->xattr.name_length);
    name[record->xattr.name_length] = '\0';
    n = wb_recorded_xattr(object_fd, name, buffer + half, half);
    if (n < 0)
        return n == -ENODATA && !record->xattr.present;
    return record->xattr.present && (size_t)n == record->payload_length &&
           wb_log_read_payload(log_fd, record, buffer) >= 0 && memcmp(buffer, buffer + half, (size_t)n) == 0;
}

/* Compares one record with the object it is about; sets suspect->differs. */
static void suspect_compare(struct suspect *suspect, int log_fd, const struct wb_record *record)
{
    const struct wb_attrs *then = &record->attr.attrs;
    struct wb_object object = record->attr.object;
    struct wb_attrs now;
    bool found, same;

    if (record->type == WB_REC_DATA) {
        then = &record->data.attrs;
        object = suspect->logs[0].object;
    } else if (record->type == WB_REC_XATTR) {
        then = &record->xattr.attrs;
        object = record->xattr.object;
    }
    if (suspect->differs)
        return;
    if (suspect->fd < 0)
        suspect->fd = suspect_find(suspect, object, NULL);
    /*
     * A change moves the change time, so another one proves that something happened; the same one does not
     * prove the contrary (the kernel's clock has a grain), so the content is looked at too.
     */
    found = suspect->fd >= 0 && wb_object_stat(suspect->store, suspect->fd, NULL, NULL, &now, NULL) >= 0;
    same = found && same_attrs(&now, then, record->op);
    if (same && record->type == WB_REC_DATA && !resizes(record))
        same = same_data(suspect->fd, log_fd, record);
    else if (same && record->type == WB_REC_XATTR)
        same = same_xattr(suspect->fd, log_fd, record);
    suspect->differs = !same;
    if (found)
        wb_spans_extend(suspect->store, suspect->when, now.ctime);
}

static void add_log(struct suspect *suspect, struct wb_object object, enum wb_object_file file)
{
    if (wb_object_is_none(object) || suspect->log_count == SUSPECT_LOGS)
        return;
    for (unsigned i = 0; i < suspect->log_count; i++)
        if (suspect->logs[i].file == file && wb_object_equal(suspect->logs[i].object, object))
            return;
    suspect->logs[suspect->log_count].object = object;
    suspect->logs[suspect->log_count++].file = file;
}

/* Notes the slots of a NAME record, and the logs their objects may have records in. */
static void add_slots(struct suspect *suspect, struct wb_object dir, const struct wb_rec_name *record)
{
    for (uint32_t i = 0; i < record->count && suspect->slot_count < WB_SLOTS_MAX; i++) {
        const struct wb_slot *from = &record->slots[i];
        struct suspect_slot *slot = &suspect->slots[suspect->slot_count++];

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
static int read_log(struct suspect *suspect, unsigned index)
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
            suspect_compare(suspect, log.fd, &record);
    }
    return r < 0 ? r : 0;
}

/*
 * Whether the change never happened. In doubt it happened: a version too many is harmless, since it puts back
 * what is there already; one too few would be a state that cannot be reached any more.
 */
static bool never_happened(const struct suspect *suspect)
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
        return suspect_names_untouched(suspect) == 1;
    return !suspect->several && !suspect->differs;
}

static int abort_log(struct suspect *suspect, unsigned index)
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
static int examine(struct suspect *suspect)
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
    extend_to_names(suspect);
    for (unsigned i = 0; suspect->op == WB_OP_RESTORE && i < suspect->log_count; i++) {
        WB_IN_SPAN(suspect->store);

        r = wb_restore_take_back(suspect->store, suspect->logs[i].object);
        if (r < 0)
            return r;
    }
    if (!never_happened(suspect))
        return suspect_finish_rename(suspect);
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
    struct suspect suspect = {
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

/* ---- stages ---------------------------------------------------------------------------------- */

static void note_lost(struct wb_stage *stage, const struct wb_record *record, char name[WB_NAME_MAX + 1])
{
    wb_stage_touched(stage, record->data.offset, record->data.length, record->op);
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
    /* It was in the graveyard when the stage began: its removal was lost. */
    if (!now && entry->attrs.nlink == 0)
        return true;
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
    struct suspect suspect = {.store = store, .where = stage->entry.dir, .fd = -1};
    char found[WB_NAME_MAX + 1];
    _cleanup_close_ int fd = -1;
    enum seen seen = SEEN_CHANGED;
    struct wb_attrs now;
    bool is_there;

    suspect.logs[0].object = stage->entry.object;
    suspect.logs[0].file = WB_FILE_UNDO;
    fd = suspect_find(&suspect, stage->entry.object, found);
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
    if (seen != SEEN_CHANGED || (!stage->changed && !wb_stage_looks_changed(&stage->entry, &now)))
        return seen == SEEN_UNKNOWN ? seen : SEEN_UNCHANGED;
    stage->size_after = now.size;
    if (now.size > before->size)
        wb_stage_touched(stage, before->size, now.size - before->size, stage->op);
    else if (stage->from > stage->to)
        wb_stage_touched(stage, 0, before->size, stage->op);
    return SEEN_CHANGED;
}

/* Ends a stage that a crash left under way; one that cannot be ended remains so. */
static int recover_stage(int slot, const struct wb_stage_entry *entry, void *data)
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
        wb_stage_write_end(store, &stage, in_catalog ? entry->dir : entry->object,
                           in_catalog ? WB_FILE_CATALOG : WB_FILE_UNDO, name[0] ? &target : NULL);
    return 0;
}

static int has_stage(int slot, const struct wb_stage_entry *entry, void *data)
{
    (void)slot;
    (void)entry;
    (void)data;
    return 1;
}

/* A power cut must not bring back slots that were removed, beside later changes. */
static void recover_stages(struct wb_store *store)
{
    if (wb_stages_each(store, has_stage, NULL) == 0)
        return;
    wb_stages_each(store, recover_stage, store);
    (void)wb_stages_sync_removed(store);
}

/* ---- all ------------------------------------------------------------------------------------- */

int wb_recover(struct wb_store *store, unsigned *ret_aborted)
{
    struct recovery recovery = {.store = store};
    int r = wb_inflight_each(store, examine_entry, &recovery);

    if (r == 0)
        r = wb_inflight_clear(store);
    if (r == 0)
        recover_stages(store);
    if (r == 0)
        wb_gaps_flush(store);
    if (r == 0)
        r = wb_writeback_recover(store);
    if (ret_aborted)
        *ret_aborted = recovery.aborted;
    return r;
}
