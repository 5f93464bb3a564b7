/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a stream, each frame of which is as it was written, can be carried out: once the first record is in its log,
 * there is no way back. Whoever sends may say what is not so; he may not leave a copy that nobody can use.
 */
#include "transfer/apply.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct checking {
    struct wb_applying *applying;
    struct wb_stream_object last; /* the object told last; none: 0 */
    struct wb_table told;         /* struct told                   */
};

/* What the stream says of an object. */
struct told {
    struct wb_object object; /* first: it is found by this        */
    uint32_t mode;           /* 0: it was not told                */
    bool placed;             /* a directory that was given a name */
};

/* What was said so far, if nothing else nothing. 0 or -errno. */
static int recall(const struct checking *checking, struct wb_object object, struct told *ret)
{
    int r = wb_table_get(&checking->told, object, ret);

    if (r == 0)
        *ret = (struct told){.object = object};
    return MIN(r, 0);
}

/* 1: *ret_dir is whether it is a directory; 0: neither the copy nor the stream has it; -errno. */
static int know(struct checking *checking, struct wb_object object, bool *ret_dir)
{
    struct wb_copied copied;
    struct told told;
    int r = wb_copy_tree_know_any(&checking->applying->tree, object, &copied);

    if (r > 0)
        *ret_dir = copied.is_dir;
    if (r != 0)
        return r;
    r = recall(checking, object, &told);
    *ret_dir = S_ISDIR(told.mode);
    return r < 0 ? r : told.mode != 0;
}

static bool check_record(const struct checking *checking, const struct wb_stream_record *body)
{
    const struct wb_stream_hello *hello = &checking->applying->hello;
    struct wb_record record;

    if (body->log >= WB_STREAM_ACTORS)
        return true;
    /* What a stage keeps counts by the end of it. */
    return wb_record_decode(body->data, body->length, 0, &record) == 0 && record.when <= hello->until &&
           (record.when > hello->since || record.type == WB_REC_DATA);
}

/* What is taken from the copy's own file has to be in it. */
static int check_fill(const struct checking *checking, const struct wb_stream_record *body)
{
    struct wb_copied copied;
    int r = body->flags & WB_STREAM_FILL ? wb_copy_tree_know(&checking->applying->tree, body->object, false, &copied)
                                         : 1;

    if (r != 0)
        return MIN(r, 0);
    return wb_problem_set(checking->applying->why, -EXDEV, "versions were thinned out at the source of which this copy "
                          "has a part, and not the file: receive all of it into another directory");
}

static int check_object(struct checking *checking, const struct wb_stream_object *body)
{
    bool was_dir = false;
    struct told told;
    int known = know(checking, body->object, &was_dir), r = recall(checking, body->object, &told);

    if (known < 0 || r < 0)
        return MIN(known, r);
    if (known ? was_dir != S_ISDIR(body->attrs.mode) : !(body->flags & WB_STREAM_WHOLE))
        return -EBADMSG;
    told.mode = body->attrs.mode;
    checking->last = *body;
    return wb_table_put(&checking->told, &told);
}

static int each_object(const struct wb_stream_body *body, void *data)
{
    struct checking *checking = data;
    bool right = true;
    int r;

    switch (body->type) {
    case WB_FRAME_RECORD:
        r = check_fill(checking, &body->record);
        if (r < 0)
            return r;
        right = check_record(checking, &body->record);
        break;
    case WB_FRAME_OBJECT:
        return check_object(checking, &body->object);
    case WB_FRAME_XATTRS:
        right = wb_object_equal(body->list.object, checking->last.object);
        break;
    case WB_FRAME_CONTENT:
        right = S_ISREG(checking->last.attrs.mode) && wb_object_equal(body->bytes.object, checking->last.object) &&
                body->bytes.offset + body->bytes.length <= checking->last.attrs.size;
        break;
    default:
        break;
    }
    return right ? 0 : -EBADMSG;
}

static bool is_hidden(const struct wb_stream_entry *entry)
{
    static const char *const names[] = {WB_STORE_NAME, WB_STAGING_NAME};

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++)
        if (entry->length == strlen(names[i]) && memcmp(entry->name, names[i], entry->length) == 0)
            return true;
    return false;
}

static int check_entry(struct checking *checking, struct wb_object dir, const struct wb_stream_entry *entry)
{
    struct wb_object root = checking->applying->tree.root;
    struct told told;
    bool is_dir;
    int r;

    if (wb_object_equal(entry->object, root) || (wb_object_equal(dir, root) && is_hidden(entry)))
        return -EBADMSG;
    r = know(checking, entry->object, &is_dir);
    if (r <= 0 || !is_dir)
        return r == 0 ? -EBADMSG : MIN(r, 0);
    /* A directory has one name. */
    r = recall(checking, entry->object, &told);
    if (r == 0 && told.placed)
        r = -EBADMSG;
    told.placed = true;
    return r < 0 ? r : wb_table_put(&checking->told, &told);
}

static int each_listing(const struct wb_stream_body *body, void *data)
{
    struct checking *checking = data;
    size_t position = 0;
    bool is_dir;
    int r;

    if (body->type != WB_FRAME_LISTING || body->list.count == 0)
        return 0;
    r = know(checking, body->list.object, &is_dir);
    if (r <= 0 || !is_dir)
        return r < 0 ? r : -EBADMSG;
    for (uint32_t i = 0; r >= 0 && i < body->list.count; i++) {
        struct wb_stream_entry entry;

        wb_stream_next_entry(&body->list, &position, &entry);
        r = check_entry(checking, body->list.object, &entry);
    }
    return MIN(r, 0);
}

int wb_apply_check(struct wb_applying *applying)
{
    struct checking checking = {.applying = applying};
    int r = wb_table_init(&checking.told, applying->tree.stage_fd, sizeof(struct told));

    if (r == 0)
        r = wb_apply_each(applying, each_object, &checking);
    if (r == 0)
        r = wb_apply_each(applying, each_listing, &checking);
    wb_table_deinit(&checking.told);
    if (r == -EBADMSG)
        wb_problem_set(applying->why, r, "the stream is whole, but says what cannot be so: the copy is as it was");
    return r;
}
