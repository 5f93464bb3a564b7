/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lost content: before a file's bytes change, those that really change go to its undo log.
 *
 * Operations that lose nothing (append, extend, rewrite of equal bytes) leave an ATTR record
 * where attributes go; all others DATA records in the undo log, as many as the bytes need. They
 * share one `when`, and all are written before the change is made.
 */
#include "capture/undo.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "capture/extents.h"
#include "capture/unseen.h"
#include "store/cache/preclone.h"
#include "store/identity/flags.h"
#include "store/object/log_index.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/*
 * Before-images that cost nothing: blocks shared with the file, in ID.image (FICLONERANGE).
 *
 * A checksum reveals damage to the image, but costs what the clone avoids: the content is read. So only ranges of up to
 * CHECKED_RANGE get one (check == 0: none), which includes every write, and not a truncated file of 1 GiB. The
 * blocks of the others are those of the file itself, so they are as reliable as the file.
 *
 * A file rewritten in a row is cloned ahead (store/cache/preclone.h).
 */

#define CHECKED_RANGE (16u << 20)
#define CHECKED_STEP 4096

static int undo_writer_open_log(struct wb_undo_writer *writer);

static uint64_t align_down(uint64_t value, uint64_t block)
{
    return value - value % block;
}

static uint64_t align_up(uint64_t value, uint64_t block)
{
    return align_down(value + block - 1, block);
}

/* One FICLONERANGE to the end of the image: 0, WB_UNCHANGED (it must be copied), or -errno. */
static int share(int image, int fd, uint64_t from, uint64_t to, uint64_t block, uint64_t *ret_source)
{
    struct stat st;

    if (fstat(image, &st) < 0)
        return -errno;
    struct file_clone_range range = {
        .src_fd = fd,
        .src_offset = from,
        .src_length = to - from,
        .dest_offset = align_up((uint64_t)st.st_size, block),
    };
    if (ioctl(image, FICLONERANGE, &range) < 0) {
        /* what refuses to share (no data checksums, a swap file, another device) is copied; so is what
         * the kernel was interrupted in: only a full or broken disk is an error */
        return errno == ENOSPC || errno == EIO || errno == EDQUOT ? -errno : WB_UNCHANGED;
    }
    *ret_source = range.dest_offset;
    return 0;
}

/*
 * Keeps [from, to) of the file, or as much of its middle as is aligned, in ID.image: a clone, or a part of
 * one made ahead. 0 and the range that was kept; WB_UNCHANGED: it must be copied. To be called for every range
 * that is about to change, however small: clones made ahead depend on it.
 */
static int undo_clone(struct wb_undo_writer *writer, uint64_t from, uint64_t to, struct wb_undo_image *ret)
{
    struct wb_store *store = writer->store;
    struct wb_object object = writer->target->object;
    bool large = to - from >= WB_LARGE_RANGE;
    _cleanup_close_ int image = -1;
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;
    uint64_t block, ahead;
    int r;

    *ret = (struct wb_undo_image){.from = from, .to = to};
    /* a block that is in a clone is kept already: copying it would keep it twice */
    if (wb_preclone_consume(store, object, from, to, to - from >= WB_PRECLONE_UNIT, &ret->source))
        return 0;
    if (!store->can_clone || !large)
        return WB_UNCHANGED;
    if (fstat(writer->fd, &st) < 0)
        return -errno;
    block = (uint64_t)st.st_blksize;
    if (block < 512 || block > WB_LARGE_RANGE)
        return WB_UNCHANGED;
    ret->from = align_up(from, block);
    ret->to = align_down(to, block);
    if (ret->to <= ret->from || ret->to - ret->from < WB_LARGE_RANGE / 2)
        return WB_UNCHANGED;

    /* the log first: it makes the directory the image goes to */
    r = undo_writer_open_log(writer);
    if (r < 0)
        return r;
    wb_object_path(object, WB_FILE_IMAGE, path);
    image = wb_open_own(store->dir_fd, path, O_RDWR | O_CREAT, 0600);
    if (image < 0)
        return image;
    ahead = align_down(wb_preclone_plan(store, object, from, to, (uint64_t)st.st_size), block);
    if (ahead > ret->to && share(image, writer->fd, ret->from, ahead, block, &ret->source) == 0) {
        ret->to = ahead < to ? ahead : to;
        wb_preclone_keep(store, object, image, ret->from, ahead, ret->source, ret->to, block);
        return 0;
    }
    return share(image, writer->fd, ret->from, ret->to, block, &ret->source);
}

/*
 * Attributes and extended attributes, as they were before a change of them.
 */

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

/* The attributes of `target`, which `fd` is of, before the change: 0 or -errno. */
static int attrs_before(struct wb_store *store, const struct wb_target *target, int fd, struct wb_attrs *ret)
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
    r = attrs_before(store, target, fd, &attrs);
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
    r = attrs_before(store, target, fd, &attrs);
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

static GPrivate thread_buffer = G_PRIVATE_INIT(free);

uint8_t *wb_capture_buffer(void)
{
    uint8_t *buffer = g_private_get(&thread_buffer);

    if (!buffer) {
        buffer = wb_alloc_transfer(WB_PAYLOAD_MAX);
        if (buffer)
            g_private_set(&thread_buffer, buffer);
    }
    return buffer;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int undo_writer_open_log(struct wb_undo_writer *writer)
{
    int r;

    if (writer->log)
        return 0;
    r = wb_capture_ensure_place(writer->store, writer->target);
    if (r >= 0)
        r = wb_store_get_log(writer->store, writer->target->object, WB_FILE_UNDO, true, &writer->log);
    if (r >= 0)
        wb_hint_set(&writer->target->has_undo);
    return r;
}

/* Takes the log, and holds it until the last part is written: no other `when` comes between. */
static int begin(struct wb_undo_writer *writer)
{
    struct wb_target *target = writer->target;
    struct wb_change *change = writer->change;
    int r = undo_writer_open_log(writer);

    if (r < 0)
        return r;
    wb_capture_retry(writer->store);
    pthread_mutex_lock(&writer->log->lock);
    writer->before = writer->log->tail;
    writer->begun = true;
    change->slot = wb_inflight_claim(writer->store, &change->when);
    if (change->slot < 0)
        return change->slot;
    change->count = 1;
    change->logs[0].object = target->object;
    change->logs[0].file = WB_FILE_UNDO;
    /* one log; the second entry names the directory in which recovery looks for the file */
    change->slot = wb_inflight_announce(writer->store, change->slot, change->when, target->object, WB_FILE_UNDO,
                                        target->parent ? target->parent->object : WB_OBJECT_NONE,
                                        WB_FILE_CATALOG, 1);
    return change->slot < 0 ? change->slot : 0;
}

static int write_part(struct wb_undo_writer *writer, bool more)
{
    struct wb_record *record = &writer->record;
    struct iovec payload = {writer->buffer, writer->used};
    bool first = !writer->begun;
    int r;

    if (!writer->begun) {
        r = begin(writer);
        if (r < 0)
            return r;
    }
    record->type = WB_REC_DATA;
    record->flags = (more ? WB_RECORD_MORE : 0) | (writer->stage ? WB_RECORD_STAGE : 0) |
                    (writer->overwrite->begins && !writer->stage ? WB_RECORD_BEGINS : 0);
    record->op = (uint16_t)writer->overwrite->op;
    record->when = writer->change->when;
    record->actor = writer->actor;
    if (first)
        wb_via_set_target(record, WB_FILE_UNDO, writer->target);
    r = wb_log_append_locked(writer->log, record, &payload, writer->used > 0);
    if (r >= 0) {
        wb_store_note_growth(writer->store, writer->actor, record->data.attrs.uid, record->total);
        wb_timeline_note(writer->store, writer->log, writer->target->object, WB_FILE_UNDO);
    }
    record->via.length = 0; /* recorded once per change */
    record->data.count = 0;
    writer->used = 0;
    return r;
}

/* With the log's lock. */
static void abort_change(struct wb_undo_writer *writer)
{
    struct wb_change *change = writer->change;
    struct wb_inflight_aside left = {.when = change->when};

    if (writer->log->tail != writer->before &&
        wb_change_abort_locked(writer->store, writer->log, change->when) < 0) {
        left.logs[left.count].object = writer->target->object;
        left.logs[left.count++].file = WB_FILE_UNDO;
    }
    wb_change_let_go(writer->store, change->slot, &left);
    wb_change_init(change, writer->store);
}

/* Releases the log; r < 0: aborts the records written so far. Returns r, or -errno if the change may not be made. */
static int finish(struct wb_undo_writer *writer, int r)
{
    if (writer->begun && r >= 0) {
        wb_log_index(writer->store, writer->log, writer->target->object, writer->before);
        pthread_mutex_unlock(&writer->log->lock);
        r = wb_store_before_overwrite(writer->store, writer->target->object);
        pthread_mutex_lock(&writer->log->lock);
    }
    if (writer->begun && r < 0)
        abort_change(writer);
    if (writer->begun)
        pthread_mutex_unlock(&writer->log->lock);
    if (writer->log)
        wb_store_put_log(writer->store, writer->log);
    return r;
}

/* ---- extents --------------------------------------------------------------------------------- */

/* `source`: of an image; `bytes`: of inline bytes, inside writer->buffer at or after `used`. */
static int add_extent(struct wb_undo_writer *writer, enum wb_extent_kind kind, uint64_t offset, uint64_t length,
                      uint64_t source, const uint8_t *bytes)
{
    struct wb_rec_data *data = &writer->record.data;
    struct wb_extent *last = data->count > 0 ? &data->extents[data->count - 1] : NULL;
    int r;

    if (last && last->kind == kind && kind != WB_EXTENT_IMAGE && last->offset + last->length == offset) {
        last->length += length;
    } else {
        if (data->count == WB_EXTENTS_MAX) {
            r = write_part(writer, true);
            if (r < 0)
                return r;
        }
        data->extents[data->count++] = (struct wb_extent){
            .offset = offset,
            .length = length,
            .source = kind == WB_EXTENT_INLINE ? writer->used : source,
            .kind = kind,
        };
    }
    if (writer->stage)
        wb_ranges_add(&writer->stage->fresh, offset, offset + length);
    if (kind == WB_EXTENT_INLINE) {
        /* kept bytes close up: the bytes left out between them take no room in the record */
        if (bytes != writer->buffer + writer->used)
            memmove(writer->buffer + writer->used, bytes, length);
        writer->used += length;
    }
    return 0;
}

/* Reads and compares one piece of [from, to); *ret_done: how much of it. */
static int copy_piece(struct wb_undo_writer *writer, uint64_t from, uint64_t to, uint64_t *ret_done)
{
    const struct wb_overwrite *overwrite = writer->overwrite;
    const uint8_t *fresh = overwrite->new_data;
    size_t room = WB_PAYLOAD_MAX - writer->used, length;
    struct wb_run_scan scan;
    struct wb_run run;
    uint8_t *piece;
    int r;

    if (room < 4096 && room < to - from) {
        r = write_part(writer, true);
        if (r < 0)
            return r;
        room = WB_PAYLOAD_MAX;
    }
    length = to - from < room ? (size_t)(to - from) : room;
    piece = writer->buffer + writer->used;
    r = wb_pread_exact(writer->fd, piece, length, from);
    if (r < 0)
        return r == -ENODATA ? -EIO : r; /* shorter than it said: changed behind our back */

    wb_run_scan_init(&scan, piece, fresh ? fresh + (from - overwrite->offset) : NULL, overwrite->to_zero, length);
    while (wb_run_scan_next(&scan, &run)) {
        r = add_extent(writer, run.zero ? WB_EXTENT_ZERO : WB_EXTENT_INLINE, from + run.offset, run.length,
                       0, piece + run.offset);
        if (r < 0)
            return r;
    }
    *ret_done = length;
    return 0;
}

/* Where the hole at `from` ends (== from: there is none) and the data after it, within `to`. */
static void find_data(int fd, uint64_t from, uint64_t to, uint64_t *ret_data, uint64_t *ret_end)
{
    off_t data = lseek(fd, (off_t)from, SEEK_DATA), end;

    *ret_data = data >= 0 ? (uint64_t)data : errno == ENXIO ? to : from;
    if (*ret_data > to)
        *ret_data = to;
    end = data >= 0 && *ret_data < to ? lseek(fd, (off_t)*ret_data, SEEK_HOLE) : -1;
    *ret_end = end > 0 && (uint64_t)end < to ? (uint64_t)end : to;
}

static int copy_range(struct wb_undo_writer *writer, uint64_t from, uint64_t to)
{
    bool sparse = !writer->overwrite->new_data && to - from >= WB_LARGE_RANGE;
    uint64_t end = sparse ? from : to, data, done;
    int r = 0;

    if (from < to && !writer->buffer && !(writer->buffer = wb_capture_buffer()))
        return -ENOMEM;
    while (from < to) {
        if (from == end) {
            find_data(writer->fd, from, to, &data, &end);
            if (data > from && !writer->overwrite->to_zero)
                r = add_extent(writer, WB_EXTENT_ZERO, from, data - from, 0, NULL);
            if (r < 0)
                return r;
            from = data;
            continue;
        }
        r = copy_piece(writer, from, end, &done);
        if (r < 0)
            return r;
        from += done;
    }
    return 0;
}

/* One extent for as much of the range as fits in the buffer: a reader verifies an extent as a whole. */
static int add_checked(struct wb_undo_writer *writer, uint64_t from, uint64_t to, uint64_t source, uint64_t *ret_done)
{
    uint64_t length = MIN(to - from, align_down(WB_PAYLOAD_MAX - writer->used, CHECKED_STEP));
    uint8_t *bytes;
    int r = length == 0 ? write_part(writer, true) : 0;

    *ret_done = length;
    if (length == 0 || r < 0)
        return r;
    if (!writer->buffer && !(writer->buffer = wb_capture_buffer()))
        return -ENOMEM;
    bytes = writer->buffer + writer->used;
    r = wb_pread_exact(writer->fd, bytes, length, from);
    if (r < 0)
        return r == -ENODATA ? -EIO : r; /* shorter than it said: changed behind our back */
    r = add_extent(writer, WB_EXTENT_IMAGE, from, length, source, NULL);
    if (r >= 0)
        writer->record.data.extents[writer->record.data.count - 1].check = wb_checksum(bytes, length);
    return r;
}

static int add_image(struct wb_undo_writer *writer, const struct wb_undo_image *image)
{
    uint64_t done;
    int r = 0;

    if (image->to - image->from > CHECKED_RANGE)
        return add_extent(writer, WB_EXTENT_IMAGE, image->from, image->to - image->from, image->source, NULL);
    for (uint64_t at = image->from; r >= 0 && at < image->to; at += done)
        r = add_checked(writer, at, image->to, image->source + (at - image->from), &done);
    return r;
}

static int keep_range(struct wb_undo_writer *writer, uint64_t from, uint64_t to)
{
    struct wb_undo_image image;
    int r = undo_clone(writer, from, to, &image);

    if (r == WB_UNCHANGED)
        return copy_range(writer, from, to);
    if (r < 0)
        return r;
    r = copy_range(writer, from, image.from);
    if (r >= 0)
        r = add_image(writer, &image);
    if (r >= 0)
        wb_store_note_growth(writer->store, writer->actor, writer->record.data.attrs.uid, image.to - image.from);
    return r < 0 ? r : copy_range(writer, image.to, to);
}

/* ---- the operation --------------------------------------------------------------------------- */

/* The part of the file's content that the operation may alter or cut off. */
static void lost_range(const struct wb_overwrite *overwrite, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
    uint64_t end =
        overwrite->length > UINT64_MAX - overwrite->offset ? UINT64_MAX : overwrite->offset + overwrite->length;

    *ret_to = end < size ? end : size;
    switch (overwrite->op) {
    case WB_OP_TRUNCATE:
        *ret_from = overwrite->size_after;
        *ret_to = size;
        break;
    case WB_OP_ALLOCATE: /* adds blocks and size, never content */
        *ret_from = *ret_to;
        break;
    default:
        *ret_from = overwrite->offset;
        if (overwrite->size_after < size)
            *ret_to = size;
    }
    if (*ret_from > *ret_to)
        *ret_from = *ret_to;
}

/* Nothing is lost; times change, and the size perhaps: that is a version all the same. */
static int record_attrs(struct wb_undo_writer *writer, const struct wb_attrs *attrs)
{
    struct wb_plan plan;
    struct wb_object object;
    enum wb_object_file file;
    struct wb_record *record;
    struct wb_rec_attr *attr;
    int r;

    r = wb_attrs_log(writer->store, writer->target, &object, &file);
    if (r < 0)
        return r;
    wb_plan_init(&plan, writer->store, writer->change, writer->overwrite->op, writer->actor);
    if (writer->target->parent)
        plan.where = writer->target->parent->object;
    record = wb_plan_add(&plan, object, file, WB_REC_ATTR);
    wb_via_set_target(record, file, writer->target);
    record->flags = writer->overwrite->begins ? WB_RECORD_BEGINS : 0;
    attr = &record->attr;
    attr->object = writer->target->object;
    attr->attrs = *attrs;
    attr->offset = writer->overwrite->offset;
    attr->length = writer->overwrite->length;
    attr->size_after = writer->overwrite->size_after;
    r = wb_plan_write(&plan);
    if (r >= 0 && file == WB_FILE_UNDO)
        wb_hint_set(&writer->target->has_undo);
    return r;
}

/* What is kept of a stage is the state before it: nothing at or past its size, and nothing twice. */
static int keep_gaps(struct wb_undo_writer *writer, uint64_t from, uint64_t to)
{
    const struct wb_stage *stage = writer->stage;
    uint64_t end = MIN(to, stage->entry.attrs.size), source;
    struct wb_range gap;
    int r = 0;

    for (; r >= 0 && from < to; from = gap.to) {
        if (!wb_ranges_gap(&stage->kept, from, end, &gap))
            gap = (struct wb_range){to, to};
        /* What need not be kept changes all the same: clones made ahead are no good for it any more. */
        if (gap.from > from)
            wb_preclone_consume(writer->store, writer->target->object, from, gap.from, false, &source);
        if (gap.from < gap.to)
            r = keep_range(writer, gap.from, gap.to);
    }
    return r;
}

static void writer_init(struct wb_undo_writer *writer, struct wb_store *store, struct wb_change *change,
                        struct wb_target *target, int fd, const struct wb_overwrite *overwrite, uint32_t actor)
{
    /* not the record's extents: those above `count` are never looked at */
    memset(writer, 0, offsetof(struct wb_undo_writer, record));
    memset(&writer->record, 0, offsetof(struct wb_record, data.extents));
    writer->store = store;
    writer->change = change;
    writer->target = target;
    writer->overwrite = overwrite;
    writer->fd = fd;
    writer->actor = actor;
    writer->record.data.offset = overwrite->offset;
    writer->record.data.length = overwrite->length;
    writer->record.data.size_after = overwrite->size_after;
}

static int capture(struct wb_store *store, struct wb_change *change, struct wb_target *target, struct wb_stage *stage,
                   int fd, const struct wb_overwrite *overwrite, uint32_t actor)
{
    struct wb_undo_writer writer;
    struct wb_attrs attrs;
    uint64_t from, to;
    int r;

    wb_change_init(change, store);
    if (target->unborn || (overwrite->op == WB_OP_WRITE && overwrite->length == 0))
        return WB_UNCHANGED;
    r = attrs_before(store, target, fd, &attrs);
    if (r < 0)
        return r;

    writer_init(&writer, store, change, target, fd, overwrite, actor);
    /* The change takes the evidence away, as in plan.c. A stage looked when it began. */
    r = stage ? 0 : wb_capture_unseen_target(store, target, attrs.ctime);
    if (r < 0)
        return r;
    writer.stage = stage;
    writer.record.data.attrs = stage ? stage->entry.attrs : attrs;
    lost_range(overwrite, attrs.size, &from, &to);
    r = stage ? keep_gaps(&writer, from, to) : keep_range(&writer, from, to);
    if (r >= 0 && (writer.begun || writer.record.data.count > 0))
        r = write_part(&writer, false);
    else if (r >= 0 && !stage)
        r = record_attrs(&writer, &attrs);
    r = finish(&writer, r);
    if (r >= 0)
        wb_change_watch(change, fd, target->object, &attrs);
    return r;
}

int wb_capture_content(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                       const struct wb_overwrite *overwrite, uint32_t actor)
{
    int r = capture(store, change, target, NULL, fd, overwrite, actor);

    if (r >= 0)
        return r;
    r = wb_change_gap(store, change, r, target->object, WB_FILE_UNDO);
    if (r == WB_UNCHANGED)
        wb_preclone_release(store, target->object); /* its bytes are no more what they were when they were cloned */
    return r;
}

int wb_stage_content(struct wb_store *store, struct wb_change *change, struct wb_target *target, struct wb_stage *stage,
                     int fd, const struct wb_overwrite *overwrite, uint32_t actor)
{
    int r = capture(store, change, target, stage, fd, overwrite, actor);

    if (r < 0)
        wb_ranges_clear(&stage->fresh);
    return r;
}
