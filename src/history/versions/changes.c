/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/changes.h"

#include "base/cleanup.h"
#include "history/internal.h"
#include "history/state/lookback.h"
#include "history/versions/versions_walk.h"
#include "store/log/log_scan.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Logs kept open: successive changes are mostly in the same logs. */
#define LOGS 16
/* The maximum number of records searched for one that moved, after its log was rewritten. */
#define SEARCH_MAX 100000
/* The maximum number of older records of a file searched for a name of it. */
#define NAMES_MAX 256

struct open_log {
    struct wb_object object;
    enum wb_object_file file;
    int fd;
    uint64_t used;
};

struct wb_change_reader {
    struct wb_history *history;
    struct wb_times times;
    struct open_log logs[LOGS];
    uint64_t clock;
    uint8_t data[WB_SCAN_BUFFER];
};

/* -EAGAIN while it is being built; the reason, where that failed. */
static int why_not_built(const struct wb_history *history)
{
    int failure = wb_timeline_failure(history->store);

    if (failure == 0)
        return -EAGAIN;
    if (failure == -ENOSPC || failure == -EDQUOT)
        return failure;
    return wb_history_fail(-EIO, "the list of changes cannot be built: %s", g_strerror(-failure));
}

int wb_change_reader_new(struct wb_history *history, struct wb_change_reader **ret)
{
    struct wb_change_reader *reader = g_try_new0(struct wb_change_reader, 1);
    int r;

    if (!reader)
        return -ENOMEM;
    reader->history = history;
    for (unsigned i = 0; i < LOGS; i++)
        reader->logs[i].fd = -1;
    r = wb_times_open(&reader->times, history->store);
    if (r < 0) {
        g_free(reader);
        return r == -EAGAIN ? why_not_built(history) : r;
    }
    *ret = reader;
    return 0;
}

struct wb_change_reader *wb_change_reader_free(struct wb_change_reader *reader)
{
    if (!reader)
        return NULL;
    for (unsigned i = 0; i < LOGS; i++)
        wb_close_fd(&reader->logs[i].fd);
    wb_times_close(&reader->times);
    g_free(reader);
    return NULL;
}

const struct wb_times *wb_change_reader_times(const struct wb_change_reader *reader)
{
    return &reader->times;
}

/* A descriptor that the reader owns, or -errno. */
static int open_log(struct wb_change_reader *reader, struct wb_object object, enum wb_object_file file)
{
    struct open_log *oldest = &reader->logs[0];

    for (unsigned i = 0; i < LOGS; i++) {
        struct open_log *log = &reader->logs[i];

        if (log->fd >= 0 && log->file == file && wb_object_equal(log->object, object)) {
            log->used = ++reader->clock;
            return log->fd;
        }
        if (log->fd < 0 || (oldest->fd >= 0 && log->used < oldest->used))
            oldest = log;
    }
    wb_close_fd(&oldest->fd);
    oldest->fd = wb_store_open_file(reader->history->store, object, file, O_RDONLY | O_CLOEXEC);
    oldest->object = object;
    oldest->file = file;
    oldest->used = ++reader->clock;
    return oldest->fd;
}

/* ---- a record -------------------------------------------------------------------------------------- */

static bool is_change(const struct wb_record *record)
{
    return record->type == WB_REC_NAME || record->type == WB_REC_DATA || record->type == WB_REC_XATTR ||
           record->type == WB_REC_ATTR || record->type == WB_REC_GAP;
}

/* The new offset of a record in a log that was rewritten. */
static int search(int fd, int64_t when, uint64_t *ret)
{
    struct wb_log_reader log;
    struct wb_record record;
    bool found = false;
    int r = wb_log_reader_init(&log, fd);

    if (r < 0)
        return r;
    for (unsigned i = 0; i < SEARCH_MAX && ((r = wb_log_reader_prev(&log, &record)) == 0 || r == WB_DAMAGED); i++) {
        if (r == WB_DAMAGED)
            continue;
        if (record.when < when)
            break;
        if (record.when == when && is_change(&record)) {
            found = true;
            *ret = record.offset;
        }
    }
    wb_log_reader_deinit(&log);
    return r < 0 ? r : found ? 0 : WB_ABSENT;
}

static int read_record(struct wb_change_reader *reader, const struct wb_times_entry *entry, struct wb_record *ret)
{
    int fd = open_log(reader, entry->object, entry->file), r;
    uint64_t offset;

    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_log_probe(fd, entry->offset, reader->data, ret);
    if (r == 0 && ret->when == entry->when)
        return 0;
    if (r < 0 && r != -EBADMSG)
        return r;
    r = search(fd, entry->when, &offset);
    if (r == 0)
        r = wb_log_probe(fd, offset, reader->data, ret);
    return r == -EBADMSG ? WB_ABSENT : r;
}

/* ---- fields of a change ------------------------------------------------------------------------------ */

static void set_name(struct wb_change_name *to, struct wb_object dir, const char *name, size_t length)
{
    *to = (struct wb_change_name){.dir = dir};
    memcpy(to->name, name, length);
}

/* The name shown for a change: the one that lost an object to another place, else the one that got one. */
static const struct wb_slot *main_slot(const struct wb_rec_name *name)
{
    for (uint32_t i = 0; i < name->count; i++)
        if (name->slots[i].unbind == WB_UNBIND_RENAMED)
            return &name->slots[i];
    return &name->slots[0];
}

/* Than those that the change has. */
static bool has_other_names(const struct wb_attrs *attrs, bool named)
{
    return S_ISDIR(attrs->mode) ? !named : attrs->nlink > (named ? 1u : 0u);
}

static void fill_names(const struct wb_record *record, struct wb_object dir, struct wb_listed_change *ret)
{
    const struct wb_slot *slot = main_slot(&record->name);

    for (uint32_t i = 0; i < record->name.count; i++)
        ret->linked |= record->name.slots[i].present && has_other_names(&record->name.slots[i].attrs, true);
    set_name(&ret->at, dir, slot->name, slot->name_length);
    ret->existed_before = slot->present;
    ret->exists_after = slot->unbind == WB_UNBIND_RENAMED || wb_slot_gains(record, slot);
    if (slot->present) {
        ret->object = slot->object;
        ret->mode_before = slot->attrs.mode;
        ret->size_before = slot->attrs.size;
        ret->size_after = slot->unbind == WB_UNBIND_RENAMED ? slot->attrs.size : 0;
    }
    if (slot->unbind == WB_UNBIND_RENAMED) {
        set_name(&ret->other, slot->to_dir, slot->to_name, slot->to_length);
        ret->has_other = true;
    } else if (slot->from_length > 0) {
        set_name(&ret->other, slot->from_dir, slot->from_name, slot->from_length);
        ret->has_other = true;
    }
}

static void fill_object(const struct wb_record *record, const struct wb_times_entry *entry,
                        struct wb_listed_change *ret)
{
    const struct wb_attrs *attrs = wb_record_attrs(record);

    ret->object = record->type == WB_REC_ATTR    ? record->attr.object
                  : record->type == WB_REC_XATTR ? record->xattr.object
                                                 : entry->object;
    ret->existed_before = ret->exists_after = true;
    ret->mode_before = attrs->mode;
    ret->size_before = ret->size_after = attrs->size;
    if (record->type == WB_REC_ATTR) {
        ret->offset = record->attr.offset;
        ret->length = record->attr.length;
        ret->size_after = record->attr.size_after;
    } else if (record->type == WB_REC_DATA) {
        ret->offset = record->data.offset;
        ret->length = record->data.length;
        ret->size_after = record->data.size_after;
    } else {
        memcpy(ret->detail, record->xattr.name, MIN(record->xattr.name_length, WB_NAME_MAX));
    }
    ret->begins = record->flags & (WB_RECORD_BEGINS | WB_RECORD_STAGE);
    if (record->via.length > 0)
        set_name(&ret->at, entry->file == WB_FILE_CATALOG ? entry->object : record->via.dir, record->via.name,
                 record->via.length);
    else if (entry->file == WB_FILE_CATALOG)
        /* The directory's own attributes, or those of an entry, in a record of a version that did not store which. */
        ret->at = (struct wb_change_name){.dir = entry->object,
                                          .unknown = !wb_object_equal(ret->object, entry->object)};
    else
        ret->at.unknown = true;
    ret->linked = has_other_names(attrs, !ret->at.unknown);
}

static void fill_gap(const struct wb_record *record, const struct wb_times_entry *entry, struct wb_listed_change *ret)
{
    ret->object = entry->object;
    ret->existed_before = ret->exists_after = true;
    ret->gap_since = record->gap.since;
    ret->gap_open = record->flags & WB_RECORD_OPEN;
    ret->is_gap = true;
    ret->linked = entry->file != WB_FILE_CATALOG;
    g_strlcpy(ret->detail, wb_gap_reason(record->gap.reason), sizeof(ret->detail));
    ret->at = (struct wb_change_name){.dir = entry->file == WB_FILE_CATALOG ? entry->object : WB_OBJECT_NONE,
                                      .unknown = entry->file != WB_FILE_CATALOG};
    if (entry->file == WB_FILE_CATALOG)
        ret->mode_before = S_IFDIR;
    else if (record->via.length > 0)
        set_name(&ret->at, record->via.dir, record->via.name, record->via.length);
}

/* An open gap lasts as long as it is the newest record; after that the GAP that ends it describes all of it. */
static int has_ended(struct wb_change_reader *reader, const struct wb_times_entry *entry, uint64_t offset)
{
    int fd = open_log(reader, entry->object, entry->file), r;
    struct wb_log_reader log;
    struct wb_record record;

    if (fd < 0)
        return fd;
    r = wb_log_reader_init(&log, fd);
    if (r < 0)
        return r;
    r = wb_log_reader_prev(&log, &record);
    wb_log_reader_deinit(&log);
    return r < 0 ? r : r != 0 || record.offset != offset;
}

/*
 * Finds the name for a change of an object none of whose names the daemon knew: an older record has a name, and the
 * catalogs show what happened to that until the change.
 */
static int trace_name(struct wb_change_reader *reader, const struct wb_times_entry *entry, struct wb_listed_change *ret)
{
    int fd = open_log(reader, entry->object, entry->file), r;
    struct wb_change_name found = {0};
    struct wb_log_reader log;
    struct wb_record record;
    int64_t when = 0;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&log, fd);
    if (r < 0)
        return r;
    wb_log_reader_seek(&log, entry->offset);
    for (unsigned i = 0; when == 0 && i < NAMES_MAX && (r = wb_log_reader_prev(&log, &record)) == 0; i++) {
        if (record.via.length == 0 || record.when >= entry->when)
            continue;
        set_name(&found, record.via.dir, record.via.name, record.via.length);
        when = record.when;
    }
    wb_log_reader_deinit(&log);
    if (r < 0 || when == 0)
        return r < 0 ? r : 0;
    r = wb_resolve_forward(reader->history, entry->object, entry->when, &found.dir, found.name, &when);
    if (r == 0)
        ret->at = found;
    return r == -EIO || r == WB_ABSENT ? 0 : r;
}

int wb_change_read(struct wb_change_reader *reader, const struct wb_times_entry *entry, struct wb_listed_change *ret)
{
    struct wb_record record;
    int r = read_record(reader, entry, &record);

    if (r != 0)
        return r;
    if (!is_change(&record))
        return WB_ABSENT;
    if (record.type == WB_REC_GAP && record.flags & WB_RECORD_OPEN) {
        r = has_ended(reader, entry, record.offset);
        if (r != 0)
            return r < 0 ? r : WB_ABSENT;
    }
    *ret = (struct wb_listed_change){.when = record.when, .op = record.op, .actor = record.actor};
    if (record.type == WB_REC_NAME)
        fill_names(&record, entry->object, ret);
    else if (record.type == WB_REC_GAP)
        fill_gap(&record, entry, ret);
    else
        fill_object(&record, entry, ret);
    return ret->at.unknown && entry->file == WB_FILE_UNDO ? trace_name(reader, entry, ret) : 0;
}

/* ---- places ------------------------------------------------------------------------------------------- */

/* The PLACE of `dir` at an offset of its catalog. 0, WB_ABSENT or -errno. */
static int place_at(struct wb_change_reader *reader, struct wb_object dir, uint64_t offset, int64_t when,
                    struct wb_object *ret_parent, char ret_name[WB_NAME_MAX + 1])
{
    int fd = open_log(reader, dir, WB_FILE_CATALOG), r;
    struct wb_record record;

    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    r = wb_log_probe(fd, offset, reader->data, &record);
    if (r < 0)
        return r == -EBADMSG ? WB_ABSENT : r;
    if (record.type != WB_REC_PLACE || !wb_object_equal(record.place.self, dir) || (when && record.when != when))
        return WB_ABSENT;
    *ret_parent = record.place.parent;
    memcpy(ret_name, record.place.name, record.place.name_length);
    ret_name[record.place.name_length] = '\0';
    return 0;
}

int wb_change_has_moved(struct wb_change_reader *reader, struct wb_object dir)
{
    struct wb_times_entry move;
    int r = wb_times_move(&reader->times, dir, WB_WHEN_PRESENT, &move);

    return r == WB_ABSENT ? 0 : r < 0 ? r : 1;
}

int wb_change_place(struct wb_change_reader *reader, struct wb_object dir, int64_t when, struct wb_object *ret_parent,
                    char ret_name[WB_NAME_MAX + 1], bool *ret_settled)
{
    struct wb_times_entry move;
    int r = wb_times_move(&reader->times, dir, WB_WHEN_PRESENT, &move);

    *ret_settled = r == WB_ABSENT;
    if (r == 0)
        r = wb_times_move(&reader->times, dir, when, &move);
    if (r < 0)
        return r;
    r = r == 0 ? place_at(reader, dir, move.offset, move.when, ret_parent, ret_name)
               : place_at(reader, dir, 0, 0, ret_parent, ret_name);
    /* A catalog that was rewritten, or is damaged there: use the slow search. */
    return r == WB_ABSENT ? wb_lookback_place(reader->history->store, dir, when, ret_parent, ret_name) : r;
}
