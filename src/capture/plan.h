/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A plan: all records of one change, gathered before any is written.
 *
 * Writing it takes the logs in a fixed order (so that two changes which share logs never wait for each
 * other), gives out one `when` while all are held, announces the change in flight, and appends. So in
 * every log `when` grows, and the records of one change share it.
 */

#include "capture/capture.h"

#define WB_PLAN_MAX 4

struct wb_plan_item {
    struct wb_object object;
    enum wb_object_file file;
    const void *payload;
    size_t payload_length;
    struct wb_record record;
};

struct wb_plan {
    struct wb_store *store;
    struct wb_change *change;
    uint16_t op;
    uint32_t actor;
    struct wb_object where; /* a change with one log: the directory where recovery finds the object */
    unsigned count;
    struct wb_plan_item items[WB_PLAN_MAX];
};

/* Also resets *change: nothing is recorded yet. */
void wb_plan_init(struct wb_plan *plan, struct wb_store *store, struct wb_change *change, enum wb_op op,
                  uint32_t actor);
void wb_change_init(struct wb_change *change, struct wb_store *store);

/* For an object whose times may move although its change fails. */
void wb_change_watch(struct wb_change *change, int fd, struct wb_object object, const struct wb_attrs *attrs);

/*
 * A record for that log, zeroed but for its type: the caller fills the body. The logs of the first two items are those
 * announced to recovery, so records of names come first. Strings must live until
 * wb_plan_write.
 */
struct wb_record *wb_plan_add(struct wb_plan *plan, struct wb_object object, enum wb_object_file file,
                              enum wb_record_type type);

/* An ATTR record of `object` for its own undo log. */
void wb_plan_add_attrs(struct wb_plan *plan, struct wb_object object, const struct wb_attrs *attrs);

/* By which name a record's object was reached; in a catalog the directory goes without saying. */
void wb_via_set(struct wb_record *record, enum wb_object_file file, struct wb_object dir, const char *name);
void wb_via_set_target(struct wb_record *record, enum wb_object_file file, const struct wb_target *target);

/* "self is at parent/name from now on", for self's log. */
void wb_plan_add_place(struct wb_plan *plan, enum wb_object_file file, struct wb_object self,
                       struct wb_object parent, const char *name);

/*
 * 0 or -errno; then nothing is recorded (what had been written is aborted). Catalogs must exist
 * (wb_capture_ensure_catalog); undo logs are made.
 */
int wb_plan_write(struct wb_plan *plan);

/* Says in `log`, whose lock is held, that the change `target` never happened. 0 or -errno. */
int wb_change_abort_locked(struct wb_store *store, struct wb_log *log, int64_t target);

/*
 * Frees the slot of a change, unless an abort is `left` that could not be written: then it is tried again by the
 * next change, and after a crash by recovery.
 */
void wb_change_let_go(struct wb_store *store, int slot, const struct wb_inflight_aside *left);

/*
 * Whether a change may be made although its record could not be written, with `error`: where the store lets it
 * through, the log is noted to have a gap, once for each log that lacks a record. WB_UNCHANGED, or the error.
 */
int wb_change_gap(struct wb_store *store, struct wb_change *change, int error, struct wb_object object,
                  enum wb_object_file file);

/*
 * Where the attributes of `target` are recorded: a directory's in its own catalog; those of a
 * file with one name in the catalog of its parent, so that a new tree costs no log per file; else, or
 * where it has an undo log already, in that.
 */
int wb_attrs_log(struct wb_store *store, struct wb_target *target, struct wb_object *ret_object,
                 enum wb_object_file *ret_file);

/*
 * Attributes of dir_fd/name (or of the fd itself) as users see them: a link in the graveyard is
 * not counted. Any of the results may be NULL.
 */
int wb_capture_stat(struct wb_store *store, int dir_fd, const char *name, struct wb_object *object,
                    struct wb_attrs *attrs);

/* The hints in wb_dir and wb_target are set by whichever thread finds out; they only ever turn true. */
static inline bool wb_hint_get(const bool *hint)
{
    return __atomic_load_n(hint, __ATOMIC_RELAXED);
}
static inline void wb_hint_set(bool *hint)
{
    __atomic_store_n(hint, true, __ATOMIC_RELAXED);
}
