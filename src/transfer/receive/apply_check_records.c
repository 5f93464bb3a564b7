/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether the records of a stream go on where the logs of the copy end: each log takes only what is not older. */
#include "transfer/receive/apply_check.h"

#include "store/log/log.h"
#include <errno.h>
#include <string.h>

/* What the log has now. One that is not there has nothing. */
static int look_at_log(struct wb_checking *checking, const struct wb_stream_record *body, struct wb_log_end *ret)
{
    struct wb_log *log __attribute__((cleanup(wb_log_freep))) = NULL;
    char path[WB_OBJECT_PATH_MAX];
    int r;

    wb_apply_log_path(body, path);
    *ret = (struct wb_log_end){.known = true};
    r = wb_log_open(&log, checking->applying->tree.dir_fd, path, false);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return wb_problem_set(checking->applying->why, r, "%s in the store of the copy cannot be read: %s; run vfsck",
                              path, g_strerror(-r));
    ret->last = log->last_when;
    ret->tail = log->tail;
    return 0;
}

/* What the stream refers to by its place has to be there. */
static int check_actor(struct wb_checking *checking, const struct wb_stream_record *body,
                       const struct wb_record *record)
{
    struct wb_log_end *end = &checking->common[0];
    int r = end->known ? 0 : look_at_log(checking, body, end);

    if (r < 0 || body->offset < end->tail)
        return r;
    if (body->offset > end->tail)
        return wb_problem_set(checking->applying->why, -EXDEV, "the stream does not begin where the copy ends: "
                              "records of users and processes are missing in between");
    if (record->when < end->last)
        return -EBADMSG;
    end->tail += body->length;
    end->last = record->when;
    return 0;
}

/* Which of them are here already nobody can know who sends. */
static int check_snapshot(struct wb_checking *checking, const struct wb_record *record)
{
    struct wb_log_end *end = &checking->common[1];

    if (record->when < end->last)
        return -EBADMSG;
    end->last = record->when;
    return 0;
}

static int check_order(struct wb_checking *checking, const struct wb_stream_record *body,
                       const struct wb_record *record)
{
    struct wb_told told;
    struct wb_log_end end = {0};
    int64_t *last = &told.last[body->log];
    int r = wb_checking_recall(checking, body->object, &told);

    if (r == 0 && *last == 0)
        r = look_at_log(checking, body, &end);
    if (r < 0)
        return r;
    if (record->when < MAX(*last, end.last))
        return -EBADMSG;
    *last = record->when;
    return wb_table_put(&checking->told, &told);
}

/* What is taken from the copy's own file has to be in it. */
static int check_fill(const struct wb_checking *checking, const struct wb_stream_record *body)
{
    struct wb_copied copied;
    int r = wb_copy_tree_know(&checking->applying->tree, body->object, false, &copied);

    if (r != 0)
        return MIN(r, 0);
    return wb_problem_set(checking->applying->why, -EXDEV, "versions were thinned out at the source, and this copy has "
                          "only a part of them; receive the whole tree into another directory");
}

static void note_image(struct wb_checking *checking, const struct wb_record *record)
{
    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++)
        if (record->data.extents[i].kind == WB_EXTENT_IMAGE)
            checking->largest = MAX(checking->largest,
                                    record->data.extents[i].source + record->data.extents[i].length);
}

int wb_check_record(struct wb_checking *checking, const struct wb_stream_record *body)
{
    const struct wb_stream_hello *hello = &checking->applying->hello;
    struct wb_record record;
    int r = wb_record_decode(body->data, body->length, 0, &record);

    if (r < 0)
        return -EBADMSG;
    if (body->log == WB_STREAM_ACTORS)
        return check_actor(checking, body, &record);
    if (body->log == WB_STREAM_SNAPSHOTS)
        return check_snapshot(checking, &record);
    /* What a stage keeps counts by the end of it. */
    if (record.when > hello->until || record.when <= 0 || (record.when <= hello->since && record.type != WB_REC_DATA))
        return -EBADMSG;
    r = body->flags & WB_STREAM_FILL ? check_fill(checking, body) : 0;
    if (r < 0)
        return r;
    note_image(checking, &record);
    return check_order(checking, body, &record);
}
