/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether each directory comes to a place: one in itself, or below what is in it, could not be made, and one that
 * nobody takes from where it is has no second one.
 */
#include "transfer/receive/apply_check.h"

#include <errno.h>

/* Where it will be; none: nowhere. */
static int parent_of(const struct wb_checking *checking, struct wb_object dir, struct wb_object *ret)
{
    const struct wb_copy_tree *tree = &checking->applying->tree;
    struct wb_copy_name name;
    struct wb_copied copied;
    struct wb_told told;
    int r = wb_checking_recall(checking, dir, &told);

    *ret = told.parent;
    if (r < 0 || !wb_object_is_none(told.parent))
        return r;
    r = wb_copy_tree_find(tree, dir, &copied);
    if (r <= 0 || !copied.names)
        return MIN(r, 0);
    r = wb_copy_names_get(&tree->names, copied.names, &name);
    if (r == 0)
        r = wb_checking_recall(checking, name.dir, &told);
    /* All that is to be in that one was told. */
    *ret = told.listed ? WB_OBJECT_NONE : name.dir;
    return r;
}

/* *ret: how deep it is, 0 where that is not known. */
static int depth_of(const struct wb_checking *checking, struct wb_object dir, unsigned *ret)
{
    struct wb_told told;
    int r = wb_checking_recall(checking, dir, &told);

    *ret = told.depth;
    return r;
}

/* What is known of one directory need not be found once more for those below it. */
static int note_depths(struct wb_checking *checking, struct wb_object dir, unsigned depth)
{
    struct wb_told told;
    int r = 0;

    for (; r == 0 && !wb_object_equal(dir, checking->applying->tree.root); depth--) {
        r = wb_checking_recall(checking, dir, &told);
        if (r < 0 || told.depth > 0)
            return r;
        told.depth = (uint16_t)depth;
        r = wb_table_put(&checking->told, &told);
        if (r == 0)
            r = parent_of(checking, dir, &dir);
    }
    return r;
}

/* `lost`: it may be nowhere. */
static int check_way(struct wb_checking *checking, struct wb_object dir, bool lost)
{
    struct wb_object above = dir;
    unsigned steps = 0, known = 0;
    int r = 0;

    while (r == 0 && known == 0 && !wb_object_equal(above, checking->applying->tree.root)) {
        if (wb_object_is_none(above) || steps >= WB_COPY_DEPTH_MAX)
            return lost && wb_object_is_none(above) ? 0 : -EBADMSG;
        r = depth_of(checking, above, &known);
        if (r == 0 && known == 0) {
            r = parent_of(checking, above, &above);
            steps++;
        }
    }
    if (r == 0 && steps + known > WB_COPY_DEPTH_MAX)
        r = -EBADMSG;
    return r == 0 ? note_depths(checking, dir, steps + known) : r;
}

static int each_listing(const struct wb_stream_body *body, void *data)
{
    return body->type == WB_FRAME_LISTING && body->list.count > 0 ? check_way(data, body->list.object, false) : 0;
}

/* 1: neither it nor what it is in is told to be anywhere, so it gives away all that is in it; 0; -errno. */
static int goes_away(const struct wb_checking *checking, struct wb_object dir)
{
    for (unsigned steps = 0; steps < WB_COPY_DEPTH_MAX; steps++) {
        struct wb_told told;
        int r = wb_checking_recall(checking, dir, &told);

        if (r < 0 || !wb_object_is_none(told.parent) || wb_object_equal(dir, checking->applying->tree.root))
            return r;
        r = parent_of(checking, dir, &dir);
        if (r < 0 || wb_object_is_none(dir))
            return r < 0 ? r : 1;
    }
    return 0;
}

/* A directory is taken from where it is only where all that is to be there was told, or that one goes away. */
static int each_moved(const void *item, void *data)
{
    struct wb_checking *checking = data;
    const struct wb_copied *copied = item;
    struct wb_told told, before;
    struct wb_copy_name name;
    int r;

    if (!copied->is_dir || !copied->names)
        return 0;
    r = wb_checking_recall(checking, copied->object, &told);
    if (r < 0 || wb_object_is_none(told.parent))
        return r;
    checking->moves = true;
    r = wb_copy_names_get(&checking->applying->tree.names, copied->names, &name);
    if (r == 0)
        r = wb_checking_recall(checking, name.dir, &before);
    if (r < 0 || before.listed)
        return r;
    r = goes_away(checking, name.dir);
    if (r != 0)
        return MIN(r, 0);
    return wb_problem_set(checking->applying->why, -EXDEV, "%s: a directory of the copy is not where it was at the "
                          "source; receive the whole tree into another directory", name.name);
}

/* What is moved takes what is below it along. */
static int each_known(const void *item, void *data)
{
    const struct wb_copied *copied = item;

    return copied->is_dir && copied->names ? check_way(data, copied->object, true) : 0;
}

int wb_check_places(struct wb_checking *checking)
{
    struct wb_table *objects = &checking->applying->tree.objects;
    int r = wb_apply_each(checking->applying, each_listing, checking);

    if (r == 0)
        r = wb_table_each(objects, each_moved, checking);
    return r == 0 && checking->moves ? wb_table_each(objects, each_known, checking) : r;
}
