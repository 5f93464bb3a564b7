/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Operations on a file in a stage; one is under way at a time. */

#include "capture/stage.h"
#include "history_tree.h"

static struct wb_stage *stage;

/* `result`: the result of the change itself; the change is made if that is 0. */
static inline void stage_write(const char *path, uint64_t offset, const char *text, int result)
{
    struct wb_change change;
    struct wb_target target;
    struct wb_overwrite overwrite = {.op = WB_OP_WRITE, .offset = offset, .length = strlen(text), .new_data = text};
    int fd = tree_target(&tree, path, O_RDWR, &target);
    struct stat st;
    int64_t when;

    ck_assert_int_eq(fstat(fd, &st), 0);
    overwrite.size_after = MAX((uint64_t)st.st_size, offset + overwrite.length);
    if (!stage)
        ck_assert_int_eq(wb_stage_begin(&stage, tree.store, &target, fd, op_actor), 0);
    ck_assert_int_ge(wb_stage_content(tree.store, &change, &target, stage, fd, &overwrite, op_actor), 0);
    if (result == 0)
        ck_assert_int_eq(pwrite(fd, text, overwrite.length, (off_t)offset), (ssize_t)overwrite.length);
    wb_stage_finish(stage, &overwrite, result);
    when = change.when;
    wb_capture_end(&change, result);
    if (result < 0)
        wb_stage_failed(stage, tree.store, fd, when, result);
    close(fd);
}

static inline void stage_cut(const char *path, uint64_t size)
{
    struct wb_change change;
    struct wb_target target;
    struct wb_overwrite overwrite = {
        .op = WB_OP_TRUNCATE, .offset = size, .length = UINT64_MAX - size, .size_after = size};
    int fd = tree_target(&tree, path, O_RDWR, &target);

    if (!stage)
        ck_assert_int_eq(wb_stage_begin(&stage, tree.store, &target, fd, op_actor), 0);
    ck_assert_int_ge(wb_stage_content(tree.store, &change, &target, stage, fd, &overwrite, op_actor), 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    wb_stage_finish(stage, &overwrite, 0);
    wb_capture_end(&change, 0);
    close(fd);
}

static inline void stage_over(const char *path)
{
    struct wb_target target;
    int fd = tree_target(&tree, path, O_RDONLY, &target);

    if (stage)
        ck_assert_int_eq(wb_stage_end(tree.store, stage, &target), 0);
    stage = NULL;
    close(fd);
}
