/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The way of an object that was renamed: from name to name, as the catalogs of its directories tell. */
#include "history/internal.h"

#include "store/locate.h"
#include <errno.h>
#include <string.h>

enum loss { STAYED, MOVED, KEPT };

/* The first loss of the object by its present stop; a move takes the stop along. */
static int first_loss(struct wb_history *history, struct wb_object object, int64_t until, struct wb_stop *stop)
{
    struct wb_stop next = {0};
    const struct wb_record *record;
    const struct wb_slot *slot;
    struct wb_trace trace;
    enum loss loss = STAYED;
    int r;

    r = wb_trace_open(&trace, history, stop->dir, WB_FILE_CATALOG, stop->when);
    if (r < 0)
        return r;
    trace.through = true; /* what is found is compared with what is looked for */
    while ((r = wb_trace_next(&trace, &record)) == 0) {
        slot = wb_trace_slot(record, stop->name);
        if (!slot || !slot->present || !wb_object_equal(slot->object, object) || record->when > until)
            continue;
        loss = slot->fate == WB_FATE_MOVED ? MOVED : KEPT;
        next = (struct wb_stop){.dir = slot->to_dir, .when = record->when};
        if (slot->to_length > 0)
            memcpy(next.name, slot->to_name, slot->to_length);
    }
    wb_trace_close(&trace);
    if (r < 0)
        return r;
    if (loss == MOVED)
        *stop = next;
    else if (loss == KEPT)
        stop->when = next.when;
    return (int)loss;
}

/* A lost object was bound to a name again: the newest PLACE in its own log. 1, 0 or -errno. */
static int restored_to(struct wb_history *history, struct wb_object object, enum wb_object_file file,
                       int64_t until, struct wb_stop *stop)
{
    const struct wb_record *record;
    struct wb_trace trace;
    int r;

    r = wb_trace_open(&trace, history, object, file, stop->when);
    if (r < 0)
        return r;
    trace.through = true;
    while ((r = wb_trace_next(&trace, &record)) == 0) {
        if (record->type != WB_REC_PLACE || record->when > until)
            continue;
        *stop = (struct wb_stop){.dir = record->place.parent, .when = record->when};
        memcpy(stop->name, record->place.name, record->place.name_length);
        break;
    }
    wb_trace_close(&trace);
    return r < 0 ? r : r == 0;
}

int wb_way_follow(struct wb_history *history, struct wb_object object, enum wb_object_file file, int64_t until,
                  struct wb_stop stops[2])
{
    for (unsigned steps = 0; steps < WB_LOCATE_STEPS_MAX; steps++) {
        struct wb_stop at = stops[0];
        int r = first_loss(history, object, until, &at);

        if (r == KEPT) {
            r = restored_to(history, object, file, until, &at);
            if (r == 0)
                return 1;
        }
        if (r <= 0)
            return r;
        stops[1] = stops[0];
        stops[0] = at;
    }
    return wb_history_fail(-EIO, "an object was renamed more than %d times", WB_LOCATE_STEPS_MAX);
}

int wb_locate_forward(struct wb_history *history, struct wb_object object, int64_t until, struct wb_object *dir,
                      char name[WB_NAME_MAX + 1], int64_t *when)
{
    struct wb_stop stops[2] = {{.dir = *dir, .when = *when}};
    int r;

    memcpy(stops[0].name, name, WB_NAME_MAX + 1);
    r = wb_way_follow(history, object, WB_FILE_UNDO, until, stops);
    *dir = stops[0].dir;
    *when = stops[0].when;
    memcpy(name, stops[0].name, WB_NAME_MAX + 1);
    return r > 0 ? WB_ABSENT : r;
}
