/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a stream, each frame of which is as it was written, can be carried out: once the first record is in its log,
 * there is no way back. Whoever sends may say what is not so; he may not leave a copy that nobody can use.
 */
#include "transfer/receive/apply_check.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int wb_checking_recall(const struct wb_checking *checking, struct wb_object object, struct wb_told *ret)
{
    int r = wb_table_get(&checking->told, object, ret);

    if (r == 0)
        *ret = (struct wb_told){.object = object};
    return MIN(r, 0);
}

/* 1: *ret_dir is whether it is a directory; 0: neither the copy nor the stream has it; -errno. */
static int know(struct wb_checking *checking, struct wb_object object, bool *ret_dir)
{
    struct wb_copied copied;
    struct wb_told told;
    int r = wb_copy_tree_know_any(&checking->applying->tree, object, &copied);

    if (r > 0)
        *ret_dir = copied.is_dir;
    if (r != 0)
        return r;
    r = wb_checking_recall(checking, object, &told);
    *ret_dir = S_ISDIR(told.mode);
    return r < 0 ? r : told.mode != 0;
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
    struct wb_told told;
    int r = wb_checking_recall(checking, body->object, &told), known;

    if (r < 0)
        return r;
    known = wb_copy_tree_know_any(&checking->applying->tree, body->object, &copied);
    if (known > 0)
        r = check_kind(checking, &copied, body->attrs.mode);
    else if (known == 0 && told.mode ? (told.mode & S_IFMT) != (body->attrs.mode & S_IFMT)
                                     : !(body->flags & WB_STREAM_WHOLE))
        r = -EBADMSG;
    if (known < 0 || r < 0)
        return MIN(known, r);
    told.mode = body->attrs.mode;
    checking->last = *body;
    if (S_ISREG(told.mode))
        checking->largest = MAX(checking->largest, body->attrs.size);
    return wb_table_put(&checking->told, &told);
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
    struct wb_told told;
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
    r = wb_checking_recall(checking, entry->object, &told);
    if (r == 0 && !wb_object_is_none(told.parent))
        r = -EBADMSG;
    told.parent = dir;
    return r < 0 ? r : wb_table_put(&checking->told, &told);
}

/* One would take the place of the other. */
static int check_name(struct wb_checking *checking, const struct wb_stream_entry *entry)
{
    struct wb_object key = wb_table_key(&checking->names, entry->name, entry->length);
    uint64_t count = checking->names.count;
    int r = wb_table_put(&checking->names, &key);

    return r == 0 && checking->names.count == count ? -EBADMSG : r;
}

/* Each directory is told once, and nothing between its parts. */
static int check_listing(struct wb_checking *checking, const struct wb_stream_list *list)
{
    struct wb_told told;
    int r = wb_checking_recall(checking, list->object, &told);

    if (r == 0 && (wb_object_is_none(checking->listing) ? told.listed
                                                        : !wb_object_equal(checking->listing, list->object)))
        r = -EBADMSG;
    if (r == 0 && wb_object_is_none(checking->listing))
        r = wb_table_clear(&checking->names);
    told.listed = true;
    checking->listing = list->last ? WB_OBJECT_NONE : list->object;
    return r < 0 ? r : wb_table_put(&checking->told, &told);
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
    return wb_problem_set(checking->applying->why, -errno, "it has a file of %" G_GUINT64_FORMAT " bytes, which is "
                          "too large here: %s", checking->largest, g_strerror(errno));
}

int wb_apply_check(struct wb_applying *applying)
{
    struct wb_checking checking = {.applying = applying};
    int r = wb_table_init(&checking.told, applying->tree.stage_fd, sizeof(struct wb_told));

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
    wb_table_deinit(&checking.told);
    wb_table_deinit(&checking.names);
    if (r == -EBADMSG && !*applying->why->text)
        wb_problem_set(applying->why, r, "the stream is complete, but invalid; the copy was not changed");
    return r;
}
