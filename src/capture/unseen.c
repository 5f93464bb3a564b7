/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "capture/unseen.h"

#include "base/cleanup.h"
#include "store/graveyard/bundle.h"
#include "store/inflight/lost_content.h"
#include "store/inflight/spans.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* Whether a record holds the state of the object itself just before it; others of a catalog are of its entries. */
static bool is_of(const struct wb_record *record, struct wb_object object)
{
    switch (record->type) {
    case WB_REC_NAME:
    case WB_REC_DATA:
        return true;
    case WB_REC_ATTR:
        return wb_object_equal(record->attr.object, object);
    case WB_REC_XATTR:
        return wb_object_equal(record->xattr.object, object);
    default:
        return false;
    }
}

struct known {
    int64_t last; /* `when` of the newest record, or 0 */
    int64_t seen; /* no later than the last look at the object that found no change by others, as the log shows */
};

/* A PLACE may have been written just now, for the GAP. */
static int last_change(const struct wb_log *log, struct wb_object object, struct known *ret)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, log->fd);

    if (r < 0)
        return r;
    *ret = (struct known){-1, -1};
    while (ret->seen < 0 && (r = wb_log_reader_prev(&reader, &record)) == 0) {
        if (record.type == WB_REC_PLACE)
            continue;
        if (ret->last < 0)
            ret->last = record.when;
        /* A GAP of that reason was appended by a look. */
        if (is_of(&record, object) || (record.type == WB_REC_GAP && record.gap.reason == WB_GAP_UNSEEN))
            ret->seen = record.when;
    }
    /* What cannot be read is as late as can be. */
    if (ret->last < 0)
        ret->last = r == WB_END ? 0 : log->last_when;
    ret->seen = MAX(ret->seen, 0);
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

static int append_gap(struct wb_store *store, struct wb_log *log, struct wb_object object, enum wb_object_file file,
                      const struct wb_via *via, int64_t ctime)
{
    bool is_dir = file == WB_FILE_CATALOG, lost_slot = wb_spans_lost_slot(store, ctime, is_dir);
    int64_t before = wb_spans_before(store, ctime, is_dir), after = wb_spans_after(store, ctime, is_dir);
    struct wb_record record = {.type = WB_REC_GAP, .gap = {.reason = WB_GAP_UNSEEN}};
    struct known known;
    int r = last_change(log, object, &known);

    if (r < 0)
        return r;
    record.when = wb_store_tick(store);
    /* Since Wayback has recorded again, the object is as it was found. The clock of records may be ahead. */
    record.gap.until = MIN(MAX(after, known.last), record.when);
    if (lost_slot) {
        /* All that is recorded of the file was recorded before the stage whose slot was lost, or in it. */
        record.gap.since = MIN(MAX(before, known.last), record.when);
        record.gap.reason = WB_GAP_POWER;
    } else {
        /* Others may have changed it before, too, in any pause since it was looked at: the later ctime hides that. */
        if (object.birth > UINT32_MAX) /* else a generation, no time (object_stat.c) */
            known.seen = MAX(known.seen, object.birth);
        record.gap.since = MIN(MIN(wb_spans_pause(store, known.seen), before), record.when);
    }
    if (via)
        record.via = *via;
    r = wb_log_append_locked(log, &record, NULL, 0);
    /* A later look recognizes the GAP by its end, or else by its begin (spans.c). */
    if (r == 0 && record.gap.since < before && !(after > known.last && after < record.when)) {
        record.when = wb_store_tick(store);
        record.gap.since = before;
        r = wb_log_append_locked(log, &record, NULL, 0);
    }
    if (r < 0)
        return r;
    wb_timeline_note(store, log, object, file);
    return !lost_slot;
}

static int mark(struct wb_store *store, struct wb_object object, struct wb_dir *as_dir,
                const struct wb_via *via, int64_t ctime)
{
    enum wb_object_file file = as_dir ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_log *log;
    int r = as_dir ? wb_capture_ensure_catalog(store, as_dir) : 0;

    if (r >= 0)
        r = wb_store_get_log(store, object, file, true, &log);
    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    r = wb_spans_is_marked(store, log->fd, ctime, as_dir != NULL);
    if (r == 0) {
        /* Others may have moved it. Before the GAP: from its `when` on, this is the place. */
        r = as_dir ? wb_capture_correct_place(store, log, as_dir) : 0;
        if (r == 0)
            r = append_gap(store, log, object, file, via, ctime);
    } else {
        r = MIN(r, 0);
    }
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}

int wb_capture_unseen(struct wb_store *store, struct wb_object object, struct wb_dir *as_dir, const struct wb_via *via,
                      int64_t ctime)
{
    return wb_spans_has(store, ctime, as_dir != NULL) ? 0 : mark(store, object, as_dir, as_dir ? NULL : via, ctime);
}

int wb_capture_unseen_entry(struct wb_store *store, struct wb_object object, struct wb_dir *parent, const char *name,
                            int64_t ctime)
{
    const struct wb_via via = {parent->object, (uint8_t)strlen(name), name};
    int r;

    if (wb_spans_has(store, ctime, false))
        return 0;
    r = wb_capture_ensure_catalog(store, parent);
    return r < 0 ? r : mark(store, object, NULL, &via, ctime);
}

int wb_capture_unseen_target(struct wb_store *store, const struct wb_target *target, int64_t ctime)
{
    const struct wb_via none = {0};

    if (target->parent && target->name)
        return wb_capture_unseen_entry(store, target->object, target->parent, target->name, ctime);
    return wb_capture_unseen(store, target->object, NULL, &none, ctime);
}

int wb_capture_lost_records(struct wb_store *store, struct wb_object object, int64_t since)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {.since = since, .reason = WB_GAP_POWER}};
    struct wb_log *log;
    int r = wb_store_get_log(store, object, WB_FILE_UNDO, true, &log);

    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    record.when = wb_store_tick(store);
    r = wb_log_append_locked(log, &record, NULL, 0);
    if (r == 0)
        wb_timeline_note(store, log, object, WB_FILE_UNDO);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}

int wb_capture_lost_content(struct wb_store *store, struct wb_object object, int fd)
{
    _cleanup_close_ int log_fd = wb_store_open_file(store, object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    struct stat bundle;
    int64_t since;
    int r = log_fd < 0 && log_fd != -ENOENT ? log_fd : wb_lost_content_find(store, fd, log_fd, &since);

    /* A bundle is on the disk before it has a name. */
    if (r > 0 && wb_bundle_stat(store, object, WB_FILE_BUNDLE, &bundle) == 0)
        return 0;
    return r > 0 ? wb_capture_lost_records(store, object, since) : r;
}
