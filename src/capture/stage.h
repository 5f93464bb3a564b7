/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Stages: all that happens to a file's content until it is closed, recorded as one version (history=close).
 *
 *     r = wb_stage_begin(&stage, store, &target, fd, actor);           before the first change
 *     r = wb_stage_content(store, &change, &target, stage, fd, &loss)  before each change, as wb_capture_content
 *     wb_stage_finish(stage, &loss, result); wb_capture_end(&change, result);
 *     r = wb_stage_end(store, stage, &target);                         one ATTR record: the version
 *
 * A stage keeps the state before it: each byte once, when it is lost for the first time, and the
 * attributes in the table of stages. States in between are not kept. The state before counts until the
 * stage has ended, then the one after it: so the records say nothing different of any moment while it lasts.
 *
 * Any other record of the file (a name, an attribute) contains its attributes at that moment; so a stage is ended
 * before. The caller holds the file's lock throughout.
 */

#include "capture/capture.h"
#include "capture/ranges.h"

struct wb_stage {
    int slot;
    struct wb_stage_entry entry;
    struct wb_ranges kept;  /* bytes of the state before that are in the log      */
    struct wb_ranges fresh; /* the same, by the change under way                  */
    uint64_t from, to;      /* what was touched, for people                       */
    uint64_t size_after;
    uint16_t op;
    bool changed;           /* there may be something that needs an end           */
    int64_t doubt;          /* a failed change whose ABORT is still to be written, or 0 */
};

/* `fd`: any descriptor of the file. 0 or -errno. One that could not be ended before goes on. */
int wb_stage_begin(struct wb_stage **ret, struct wb_store *store, const struct wb_target *target, int fd,
                   uint32_t actor);

/* 0, WB_UNCHANGED (nothing need be recorded), or -errno. */
int wb_stage_content(struct wb_store *store, struct wb_change *change, struct wb_target *target, struct wb_stage *stage,
                     int fd, const struct wb_overwrite *overwrite, uint32_t actor);

/* The change was made, or failed. Before wb_capture_end. */
void wb_stage_finish(struct wb_stage *stage, const struct wb_overwrite *overwrite, int result);

/* After wb_capture_end of a change of that `when` (0: not recorded) that failed: did it change anything after all? */
void wb_stage_failed(struct wb_stage *stage, struct wb_store *store, int fd, int64_t when, int result);

/* 0, and it is freed. Where its end could not be written (-errno) it goes on; if it is let go of then, it stays in the
 * table, and the next stage of the file, or recovery, ends it as well. */
int wb_stage_end(struct wb_store *store, struct wb_stage *stage, struct wb_target *target);
struct wb_stage *wb_stage_free(struct wb_stage *stage);

/* For recovery, which ends the stages that a crash left under way. */

/* Whether size or times are others than those in the slot. */
bool wb_stage_looks_changed(const struct wb_stage_entry *entry, const struct wb_attrs *now);
/* A change of these bytes was made. */
void wb_stage_touched(struct wb_stage *stage, uint64_t offset, uint64_t length, uint16_t op);
/* Writes the record of the end, by the name `target` (may be NULL), and frees the slot. 0 or -errno. */
int wb_stage_write_end(struct wb_store *store, const struct wb_stage *stage, struct wb_object log,
                       enum wb_object_file file, const struct wb_target *target);
