/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a stream, each frame of which is as it was written, can be carried out: once the first record is in its log,
 * there is no way back. Whoever sends may say what is not so; he may not leave a copy that nobody can use.
 */
#include "transfer/receive/apply_check.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Whether each directory comes to a place: one in itself, or below what is in it, could not be made, and one that
 * nobody takes from where it is has no second one.
 */

static int checking_recall(const struct wb_checking *checking, struct wb_object object, struct wb_sent_object *ret);

/* Where it will be; none: nowhere. */
static int parent_of(const struct wb_checking *checking, struct wb_object dir, struct wb_object *ret)
{
    const struct wb_copy_tree *tree = &checking->applying->tree;
    struct wb_copy_name name;
    struct wb_copied copied;
    struct wb_sent_object sent;
    int r = checking_recall(checking, dir, &sent);

    *ret = sent.parent;
    if (r < 0 || !wb_object_is_none(sent.parent))
        return r;
    r = wb_copy_tree_find(tree, dir, &copied);
    if (r <= 0 || !copied.names)
        return MIN(r, 0);
    r = wb_copy_names_get(&tree->names, copied.names, &name);
    if (r == 0)
        r = checking_recall(checking, name.dir, &sent);
    /* If all entries of its old parent were listed, it will not be there. */
    *ret = sent.listed ? WB_OBJECT_NONE : name.dir;
    return r;
}

/* *ret: how deep it is, 0 where that is not known. */
static int depth_of(const struct wb_checking *checking, struct wb_object dir, unsigned *ret)
{
    struct wb_sent_object sent;
    int r = checking_recall(checking, dir, &sent);

    *ret = sent.depth;
    return r;
}

/* What is known of one directory need not be found once more for those below it. */
static int note_depths(struct wb_checking *checking, struct wb_object dir, unsigned depth)
{
    struct wb_sent_object sent;
    int r = 0;

    for (; r == 0 && !wb_object_equal(dir, checking->applying->tree.root); depth--) {
        r = checking_recall(checking, dir, &sent);
        if (r < 0 || sent.depth > 0)
            return r;
        sent.depth = (uint16_t)depth;
        r = wb_table_put(&checking->sent, &sent);
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

static int each_place(const struct wb_stream_body *body, void *data)
{
    return body->type == WB_FRAME_LISTING && body->list.count > 0 ? check_way(data, body->list.object, false) : 0;
}

/* 1: no listing has the directory or one that it is in, so all its entries are taken from it; 0; -errno. */
static int goes_away(const struct wb_checking *checking, struct wb_object dir)
{
    for (unsigned steps = 0; steps < WB_COPY_DEPTH_MAX; steps++) {
        struct wb_sent_object sent;
        int r = checking_recall(checking, dir, &sent);

        if (r < 0 || !wb_object_is_none(sent.parent) || wb_object_equal(dir, checking->applying->tree.root))
            return r;
        r = parent_of(checking, dir, &dir);
        if (r < 0 || wb_object_is_none(dir))
            return r < 0 ? r : 1;
    }
    return 0;
}

/* A directory is moved only if all entries of its old parent were listed, or if that parent is removed. */
static int each_moved(const void *item, void *data)
{
    struct wb_checking *checking = data;
    const struct wb_copied *copied = item;
    struct wb_sent_object sent, before;
    struct wb_copy_name name;
    int r;

    if (!copied->is_dir || !copied->names)
        return 0;
    r = checking_recall(checking, copied->object, &sent);
    if (r < 0 || wb_object_is_none(sent.parent))
        return r;
    checking->moves = true;
    r = wb_copy_names_get(&checking->applying->tree.names, copied->names, &name);
    if (r == 0)
        r = checking_recall(checking, name.dir, &before);
    if (r < 0 || before.listed)
        return r;
    r = goes_away(checking, name.dir);
    if (r != 0)
        return MIN(r, 0);
    return wb_error_set(checking->applying->why, -EXDEV,
                        "%s: a directory of the copy is not where it was at the "
                        "source; receive the whole tree into another directory",
                        name.name);
}

/* What is moved takes what is below it along. */
static int each_known(const void *item, void *data)
{
    const struct wb_copied *copied = item;

    return copied->is_dir && copied->names ? check_way(data, copied->object, true) : 0;
}

/* After all listings: whether each directory has a place in the end. */
static int wb_check_places(struct wb_checking *checking)
{
    struct wb_table *objects = &checking->applying->tree.objects;
    int r = wb_apply_each(checking->applying, each_place, checking);

    if (r == 0)
        r = wb_table_each(objects, each_moved, checking);
    return r == 0 && checking->moves ? wb_table_each(objects, each_known, checking) : r;
}

/* Whether the records of a stream go on where the logs of the copy end: each log takes only what is not older. */

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
        return wb_error_set(checking->applying->why, r, "%s in the store of the copy cannot be read: %s; run vfsck",
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
        return wb_error_set(checking->applying->why, -EXDEV,
                            "the stream does not begin where the copy ends: "
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
    struct wb_sent_object sent;
    struct wb_log_end end = {0};
    int64_t *last = &sent.last[body->log];
    int r = checking_recall(checking, body->object, &sent);

    if (r == 0 && *last == 0)
        r = look_at_log(checking, body, &end);
    if (r < 0)
        return r;
    if (record->when < MAX(*last, end.last))
        return -EBADMSG;
    *last = record->when;
    return wb_table_put(&checking->sent, &sent);
}

/* What is taken from the copy's own file has to be in it. */
static int check_fill(const struct wb_checking *checking, const struct wb_stream_record *body)
{
    struct wb_copied copied;
    int r = wb_copy_tree_know(&checking->applying->tree, body->object, false, &copied);

    if (r != 0)
        return MIN(r, 0);
    return wb_error_set(checking->applying->why, -EXDEV,
                        "versions were thinned out at the source, and this copy has "
                        "only a part of them; receive the whole tree into another directory");
}

static void note_image(struct wb_checking *checking, const struct wb_record *record)
{
    for (uint32_t i = 0; record->type == WB_REC_DATA && i < record->data.count; i++)
        if (record->data.extents[i].kind == WB_EXTENT_IMAGE)
            checking->largest = MAX(checking->largest,
                                    record->data.extents[i].source + record->data.extents[i].length);
}

/* apply_check.c */
static int wb_check_record(struct wb_checking *checking, const struct wb_stream_record *body)
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

/* What was said so far, which may be nothing. */
static int checking_recall(const struct wb_checking *checking, struct wb_object object, struct wb_sent_object *ret)
{
    int r = wb_table_get(&checking->sent, object, ret);

    if (r == 0)
        *ret = (struct wb_sent_object){.object = object};
    return MIN(r, 0);
}

/* 1: *ret_dir is whether it is a directory; 0: neither the copy nor the stream has it; -errno. */
static int know(struct wb_checking *checking, struct wb_object object, bool *ret_dir)
{
    struct wb_copied copied;
    struct wb_sent_object sent;
    int r = wb_copy_tree_know_any(&checking->applying->tree, object, &copied);

    if (r > 0)
        *ret_dir = copied.is_dir;
    if (r != 0)
        return r;
    r = checking_recall(checking, object, &sent);
    *ret_dir = S_ISDIR(sent.mode);
    return r < 0 ? r : sent.mode != 0;
}

/* What the copy has under that id is of that kind. */
static int check_kind(const struct wb_checking *checking, const struct wb_copied *copied, mode_t mode)
{
    char name[WB_OBJECT_PATH_MAX + WB_NAME_MAX];
    _cleanup_close_ int dir_fd = -1;
    struct stat st;
    int r = wb_copy_tree_place(&checking->applying->tree, copied, &dir_fd, name);

    if (r < 0)
        return r;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return (st.st_mode & S_IFMT) == (mode & S_IFMT) ? 0 : -EBADMSG;
}

static int check_object(struct wb_checking *checking, const struct wb_stream_object *body)
{
    struct wb_copied copied;
    struct wb_sent_object sent;
    int r = checking_recall(checking, body->object, &sent), known;

    if (r < 0)
        return r;
    known = wb_copy_tree_know_any(&checking->applying->tree, body->object, &copied);
    if (known > 0)
        r = check_kind(checking, &copied, body->attrs.mode);
    else if (known == 0 && sent.mode ? (sent.mode & S_IFMT) != (body->attrs.mode & S_IFMT)
                                     : !(body->flags & WB_STREAM_WHOLE))
        r = -EBADMSG;
    if (known < 0 || r < 0)
        return MIN(known, r);
    sent.mode = body->attrs.mode;
    checking->last = *body;
    if (S_ISREG(sent.mode))
        checking->largest = MAX(checking->largest, body->attrs.size);
    return wb_table_put(&checking->sent, &sent);
}

/* Flags of inodes are of files and directories, whole, and not before their version. */
static bool flags_are_right(const struct wb_checking *checking, const struct wb_stream_list *list)
{
    mode_t mode = checking->last.attrs.mode;
    struct wb_flags flags;
    int r = wb_stream_find_flags(list, &flags);

    return r == 0 || (r > 0 && checking->applying->hello.version >= WB_STREAM_VERSION_FLAGS &&
                      (S_ISREG(mode) || S_ISDIR(mode)));
}

static int each_object(const struct wb_stream_body *body, void *data)
{
    struct wb_checking *checking = data;
    bool right = true;

    switch (body->type) {
    case WB_FRAME_RECORD:
        return wb_check_record(checking, &body->record);
    case WB_FRAME_IMAGE:
        checking->largest = MAX(checking->largest, body->bytes.offset + body->bytes.length);
        break;
    case WB_FRAME_IMAGE_HOLE:
        right = checking->applying->hello.version >= WB_STREAM_VERSION_HOLES;
        checking->largest = MAX(checking->largest, body->hole.offset + body->hole.length);
        break;
    case WB_FRAME_OBJECT:
        return check_object(checking, &body->object);
    case WB_FRAME_XATTRS:
        right = wb_object_equal(body->list.object, checking->last.object) && flags_are_right(checking, &body->list);
        break;
    case WB_FRAME_CONTENT:
        right = S_ISREG(checking->last.attrs.mode) && wb_object_equal(body->bytes.object, checking->last.object) &&
                body->bytes.offset + body->bytes.length <= checking->last.attrs.size;
        break;
    case WB_FRAME_HOLE:
        right = checking->applying->hello.version >= WB_STREAM_VERSION_HOLES && S_ISREG(checking->last.attrs.mode) &&
                wb_object_equal(body->hole.object, checking->last.object) &&
                body->hole.offset + body->hole.length <= checking->last.attrs.size;
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

static int check_entry(struct wb_checking *checking, struct wb_object dir, const struct wb_stream_entry *entry)
{
    struct wb_object root = checking->applying->tree.root;
    struct wb_sent_object sent;
    bool is_dir;
    int r;

    if (wb_object_equal(entry->object, root) || (wb_object_equal(dir, root) && is_hidden(entry)))
        return -EBADMSG;
    r = know(checking, entry->object, &is_dir);
    if (r > 0 && is_dir != S_ISDIR(entry->mode))
        r = 0;
    if (r <= 0 || !is_dir)
        return r == 0 ? -EBADMSG : MIN(r, 0);
    /* A directory has one name. */
    r = checking_recall(checking, entry->object, &sent);
    if (r == 0 && !wb_object_is_none(sent.parent))
        r = -EBADMSG;
    sent.parent = dir;
    return r < 0 ? r : wb_table_put(&checking->sent, &sent);
}

/* One would take the place of the other. */
static int check_name(struct wb_checking *checking, const struct wb_stream_entry *entry)
{
    struct wb_object key = wb_table_key(&checking->names, entry->name, entry->length);
    uint64_t count = checking->names.count;
    int r = wb_table_put(&checking->names, &key);

    return r == 0 && checking->names.count == count ? -EBADMSG : r;
}

/* Each directory is listed once, and no listing of another one comes between the parts of its listing. */
static int check_listing(struct wb_checking *checking, const struct wb_stream_list *list)
{
    struct wb_sent_object sent;
    int r = checking_recall(checking, list->object, &sent);

    if (r == 0 &&
        (wb_object_is_none(checking->listing) ? sent.listed : !wb_object_equal(checking->listing, list->object)))
        r = -EBADMSG;
    if (r == 0 && wb_object_is_none(checking->listing))
        r = wb_table_clear(&checking->names);
    sent.listed = true;
    checking->listing = list->last ? WB_OBJECT_NONE : list->object;
    return r < 0 ? r : wb_table_put(&checking->sent, &sent);
}

static int each_listing(const struct wb_stream_body *body, void *data)
{
    struct wb_checking *checking = data;
    size_t position = 0;
    bool is_dir;
    int r;

    if (body->type != WB_FRAME_LISTING)
        return 0;
    r = check_listing(checking, &body->list);
    if (r < 0 || body->list.count == 0)
        return r;
    r = know(checking, body->list.object, &is_dir);
    if (r <= 0 || !is_dir)
        return r < 0 ? r : -EBADMSG;
    for (uint32_t i = 0; r >= 0 && i < body->list.count; i++) {
        struct wb_stream_entry entry;

        wb_stream_next_entry(&body->list, &position, &entry);
        r = check_name(checking, &entry);
        if (r == 0)
            r = check_entry(checking, body->list.object, &entry);
    }
    return MIN(r, 0);
}

/* Whether the file system here has files as large as that. */
static int check_size(const struct wb_checking *checking)
{
    _cleanup_close_ int fd = wb_scratch_open(checking->applying->tree.stage_fd);

    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)checking->largest) == 0)
        return 0;
    return wb_error_set(checking->applying->why, -errno,
                        "it has a file of %" G_GUINT64_FORMAT " bytes, which is "
                        "too large here: %s",
                        checking->largest, g_strerror(errno));
}

int wb_apply_check(struct wb_applying *applying)
{
    struct wb_checking checking = {.applying = applying};
    int r = wb_table_init(&checking.sent, applying->tree.stage_fd, sizeof(struct wb_sent_object));

    if (r == 0)
        r = wb_table_init(&checking.names, applying->tree.stage_fd, sizeof(struct wb_object));
    if (r == 0)
        r = wb_apply_each(applying, each_object, &checking);
    if (r == 0)
        r = wb_apply_each(applying, each_listing, &checking);
    if (r == 0 && !wb_object_is_none(checking.listing))
        r = -EBADMSG;
    if (r == 0)
        r = wb_check_places(&checking);
    if (r == 0)
        r = check_size(&checking);
    wb_table_deinit(&checking.sent);
    wb_table_deinit(&checking.names);
    if (r == -EBADMSG && !*applying->why->text)
        wb_error_set(applying->why, r, "the stream is complete, but invalid; the copy was not changed");
    return r;
}
