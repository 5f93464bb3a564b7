/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What went away behind the mount of the sender left no record of that. Where no record tells of it at all, nobody can
 * reach it any more; where one does, it shows what it was as long as it is that still.
 */
#include "transfer/receive/apply_lost.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/folder.h"
#include "store/log/log.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>

struct marking {
    struct wb_applying *applying;
    struct wb_table *lost;
};

static int mark(const struct marking *marking, struct wb_object object, unsigned marks)
{
    struct wb_lost lost;
    int r = wb_object_is_none(object) ? 0 : wb_table_get(marking->lost, object, &lost);

    if (r <= 0)
        return r;
    lost.marks |= marks;
    return wb_table_put(marking->lost, &lost);
}

/* ---- the logs ------------------------------------------------------------------------------------------- */

static int mark_slots(const struct marking *marking, const struct wb_rec_name *name)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < name->count; i++) {
        const struct wb_slot *slot = &name->slots[i];

        r = mark(marking, slot->object, WB_LOST_TOLD | (slot->present ? WB_LOST_SHOWN : 0));
        if (r == 0)
            r = mark(marking, slot->to_dir, WB_LOST_TOLD);
        if (r == 0)
            r = mark(marking, slot->from_dir, WB_LOST_TOLD);
    }
    return r;
}

static int mark_record(const struct marking *marking, const struct wb_record *record)
{
    int r;

    switch (record->type) {
    case WB_REC_NAME:
        return mark_slots(marking, &record->name);
    case WB_REC_ATTR:
        return mark(marking, record->attr.object, WB_LOST_TOLD);
    case WB_REC_XATTR:
        return mark(marking, record->xattr.object, WB_LOST_TOLD);
    case WB_REC_PLACE:
        r = mark(marking, record->place.self, WB_LOST_TOLD);
        return r < 0 ? r : mark(marking, record->place.parent, WB_LOST_TOLD);
    default:
        return 0;
    }
}

static int each_log(void *data, int fd, const char *name)
{
    const struct marking *marking = data;
    struct wb_log_reader reader;
    struct wb_record record;
    struct wb_object object;
    enum wb_object_file file;
    _cleanup_close_ int log_fd = -1;
    int r;

    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG))
        return 0;
    log_fd = wb_open_own(fd, name, O_RDONLY, 0);
    r = log_fd < 0 ? log_fd : wb_log_reader_init(&reader, log_fd);
    if (r < 0)
        return r;
    /* What a damaged record told is not known: vfsck says so of this log. */
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED) {
        r = r == 0 ? mark_record(marking, &record) : 0;
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

/* ---- the stream ----------------------------------------------------------------------------------------- */

/* What it became last, which no OBJECT tells, is not known. */
static int each_frame(const struct wb_stream_body *body, void *data)
{
    const struct marking *marking = data;
    struct wb_record record;
    int r;

    if (body->type == WB_FRAME_OBJECT)
        return mark(marking, body->object.object, WB_LOST_CURRENT);
    if (body->type != WB_FRAME_RECORD || body->record.log >= WB_STREAM_ACTORS)
        return 0;
    r = wb_record_decode(body->record.data, body->record.length, 0, &record);
    if (r < 0)
        return r;
    if (record.type == WB_REC_DATA || record.type == WB_REC_GAP)
        return mark(marking, body->record.object, WB_LOST_CHANGED);
    if (record.type == WB_REC_ATTR)
        return mark(marking, record.attr.object, WB_LOST_CHANGED);
    return record.type == WB_REC_XATTR ? mark(marking, record.xattr.object, WB_LOST_CHANGED) : 0;
}

int wb_lost_mark(struct wb_applying *applying, struct wb_table *lost)
{
    struct marking marking = {applying, lost};
    int r = lost->count > 0 ? wb_apply_each(applying, each_frame, &marking) : 0;

    for (unsigned i = 0; r == 0 && i < WB_FOLDERS && lost->count > 0; i++)
        r = wb_folder_each(applying->tree.dir_fd, i, each_log, &marking);
    return r;
}

bool wb_lost_is_kept(const struct wb_lost *lost, bool is_dir)
{
    bool exact = !is_dir && (lost->marks & WB_LOST_CURRENT || !(lost->marks & WB_LOST_CHANGED));

    return lost->marks & WB_LOST_TOLD && (exact || !(lost->marks & WB_LOST_SHOWN));
}
