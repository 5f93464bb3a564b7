/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Attributes and extended attributes, as they were before a change of them.
 */

#include "capture/undo.h"
#include "base/io.h"
#include "store/identity/flags.h"
#include <errno.h>
#include <string.h>

#define XATTR_SMALL 256

/* What the kernel changes by itself along with attributes: chmod rewrites the mask of an access
 * ACL, chown drops file capabilities. */
static const char *implied_xattr(enum wb_op op)
{
    switch (op) {
    case WB_OP_CHMOD:
        return "system.posix_acl_access";
    case WB_OP_CHOWN:
        return "security.capability";
    default:
        return NULL;
    }
}

/*
 * The value before: its length, or -ENODATA where there is none. It works on O_PATH descriptors, those of symbolic
 * links too (it reaches the link itself, not its target).
 */
static ssize_t read_xattr(int fd, const char *name, void *value)
{
    ssize_t n = wb_recorded_xattr(fd, name, value, XATTR_SMALL);

    /* The kernel takes as much memory for it as it is given room: as a rule there is nothing, or little. */
    if (n == -ERANGE)
        n = wb_recorded_xattr(fd, name, value, WB_PAYLOAD_MAX);
    return n == -EOPNOTSUPP ? -ENODATA : n;
}

int wb_attrs_before(struct wb_store *store, const struct wb_target *target, int fd, struct wb_attrs *ret)
{
    int r = 0;

    if (target->known)
        *ret = *target->known;
    else
        r = wb_object_stat(store, fd, NULL, NULL, ret, NULL);
    if (r >= 0 && !target->self)
        ret->nlink = target->nlink; /* the graveyard's link is not the user's */
    return r;
}

static int record_xattr(struct wb_plan *plan, struct wb_target *target, int fd, const struct wb_attrs *attrs,
                        const char *name, const void *value, ssize_t length)
{
    enum wb_object_file file = target->self ? WB_FILE_CATALOG : WB_FILE_UNDO;
    struct wb_record *record;
    struct wb_rec_xattr *xattr;
    int r = wb_capture_ensure_place(plan->store, target);

    if (r < 0)
        return r;
    record = wb_plan_add(plan, target->object, file, WB_REC_XATTR);
    wb_via_set_target(record, file, target);
    xattr = &record->xattr;
    xattr->object = target->object;
    xattr->attrs = *attrs;
    xattr->present = length >= 0;
    xattr->name = name;
    xattr->name_length = (uint8_t)strlen(name);
    if (length > 0) {
        plan->items[plan->count - 1].payload = value;
        plan->items[plan->count - 1].payload_length = (size_t)length;
    }
    r = wb_plan_write(plan);
    if (r >= 0)
        wb_change_watch(plan->change, fd, target->object, attrs);
    if (r >= 0 && !target->self)
        wb_hint_set(&target->has_undo);
    return r;
}

static int record_attr_change(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                        enum wb_op op, uint32_t actor)
{
    const char *implied = implied_xattr(op);
    uint8_t *value = implied ? wb_capture_buffer() : NULL;
    struct wb_plan plan;
    struct wb_attrs attrs;
    struct wb_object object;
    enum wb_object_file file;
    struct wb_record *record;
    struct wb_rec_attr *attr;
    ssize_t length = -ENODATA;
    int r;

    wb_plan_init(&plan, store, change, op, actor);
    if (target->parent)
        plan.where = target->parent->object;
    if (target->unborn)
        return WB_UNCHANGED;
    r = wb_attrs_before(store, target, fd, &attrs);
    if (r < 0)
        return r;
    if (implied && !value)
        return -ENOMEM;
    if (implied && !S_ISLNK(attrs.mode))
        length = read_xattr(fd, implied, value);
    if (length >= 0) /* that record holds the attributes as well */
        return record_xattr(&plan, target, fd, &attrs, implied, value, length);
    if (length != -ENODATA)
        return (int)length;

    r = wb_attrs_log(store, target, &object, &file);
    if (r < 0)
        return r;
    record = wb_plan_add(&plan, object, file, WB_REC_ATTR);
    wb_via_set_target(record, file, target);
    attr = &record->attr;
    attr->object = target->object;
    attr->attrs = attrs;
    attr->size_after = attrs.size;
    r = wb_plan_write(&plan);
    if (r >= 0)
        wb_change_watch(change, fd, target->object, &attrs);
    if (r >= 0 && file == WB_FILE_UNDO)
        wb_hint_set(&target->has_undo);
    return r;
}

static int record_one_xattr(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                            const char *name, enum wb_op op, uint32_t actor)
{
    uint8_t *value = wb_capture_buffer();
    struct wb_plan plan;
    struct wb_attrs attrs;
    ssize_t length;
    int r;

    wb_plan_init(&plan, store, change, op, actor);
    if (target->parent)
        plan.where = target->parent->object;
    if (target->unborn)
        return WB_UNCHANGED;
    if (strlen(name) > WB_NAME_MAX)
        return -ERANGE;
    if (!value)
        return -ENOMEM;
    r = wb_attrs_before(store, target, fd, &attrs);
    if (r < 0)
        return r;
    length = read_xattr(fd, name, value);
    if (length < 0 && (length != -ENODATA || op == WB_OP_REMOVEXATTR))
        return (int)length;
    return record_xattr(&plan, target, fd, &attrs, name, value, length);
}

/* ---- whether or not it can be recorded ------------------------------------------------------- */

static int or_gap(struct wb_store *store, struct wb_change *change, const struct wb_target *target, int r)
{
    return r < 0 ? wb_change_gap(store, change, r, target->object, target->self ? WB_FILE_CATALOG : WB_FILE_UNDO) : r;
}

int wb_capture_attrs(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                     enum wb_op op, uint32_t actor)
{
    return or_gap(store, change, target, record_attr_change(store, change, target, fd, op, actor));
}

int wb_capture_xattr(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                     const char *name, enum wb_op op, uint32_t actor)
{
    return or_gap(store, change, target, record_one_xattr(store, change, target, fd, name, op, actor));
}
