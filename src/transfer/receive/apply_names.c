/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names. What has a name that it is not to have is parked in `receiving` first, and what is in a directory that gets no
 * other; then each name gets what it is to have; what is left over goes to the graveyard, or away. Each step looks at
 * what is there, so that it may be gone through again after a crash in any of them.
 */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/held.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include "store/identity/flags.h"
#include "store/log/log.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum lost_mark {
    WB_LOST_REPORTED = 1, /* a record names it: in the graveyard it is no orphan */
    WB_LOST_SHOWN = 2,    /* a record shows that it had a name                   */
    WB_LOST_CHANGED = 4,  /* the stream changes it...                            */
    WB_LOST_CURRENT = 8   /* ...and contains its new state                       */
};

struct wb_lost {
    struct wb_object object; /* first: it is found by this */
    uint32_t marks;          /* enum lost_mark          */
};

/*
 * There is no record of the removal of an object behind the mount of the sender. If no record names the object at all,
 * no request can reach it any more. If one does, the past shows the object as it was, if it is still in that state.
 */

struct marking {
    struct wb_applying *applying;
    struct wb_table *lost;
};

static int lost_mark(struct wb_applying *applying, struct wb_table *lost);

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

        r = mark(marking, slot->object, WB_LOST_REPORTED | (slot->present ? WB_LOST_SHOWN : 0));
        if (r == 0)
            r = mark(marking, slot->to_dir, WB_LOST_REPORTED);
        if (r == 0)
            r = mark(marking, slot->from_dir, WB_LOST_REPORTED);
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
        return mark(marking, record->attr.object, WB_LOST_REPORTED);
    case WB_REC_XATTR:
        return mark(marking, record->xattr.object, WB_LOST_REPORTED);
    case WB_REC_PLACE:
        r = mark(marking, record->place.self, WB_LOST_REPORTED);
        return r < 0 ? r : mark(marking, record->place.parent, WB_LOST_REPORTED);
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
    /* The content of a damaged record is unknown; vfsck reports the damage of this log. */
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 || r == WB_DAMAGED) {
        r = r == 0 ? mark_record(marking, &record) : 0;
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

/* ---- the stream ----------------------------------------------------------------------------------------- */

/* An object that the stream changes without an OBJECT frame is in an unknown state. */
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

/* Sets the marks of all in the table: at the cost of reading all logs, if there are any. 0 or -errno. */
static int lost_mark(struct wb_applying *applying, struct wb_table *lost)
{
    struct marking marking = {applying, lost};
    int r = lost->count > 0 ? wb_apply_each(applying, each_frame, &marking) : 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS && lost->count > 0; i++)
        r = wb_shard_each(applying->tree.dir_fd, i, each_log, &marking);
    return r;
}

/* Whether it goes to the graveyard. A directory was emptied, so it is not what it was. */
static bool lost_is_kept(const struct wb_lost *lost, bool is_dir)
{
    bool exact = !is_dir && (lost->marks & WB_LOST_CURRENT || !(lost->marks & WB_LOST_CHANGED));

    return lost->marks & WB_LOST_REPORTED && (exact || !(lost->marks & WB_LOST_SHOWN));
}

struct naming {
    struct wb_applying *applying;
    struct wb_copy_tree *tree;
    struct wb_object dir;   /* of the listing at hand        */
    struct wb_table wanted; /* struct wanted: of all of that */
    struct wb_table placed; /* struct wb_object: directories that a listing has */
    GArray *gone;           /* struct wb_object: directories in none, still to be emptied */
    struct wb_table lost;   /* struct wb_lost: without a name, and the stream does not say that it is kept */
};

/* What a name is to be. */
struct wanted {
    struct wb_object name; /* first: by wb_table_key */
    struct wb_object object;
};

/* The directory at hand; -ENOENT: it is not in the tree, and nothing is to be in it. */
static int open_dir(struct naming *naming, bool is_empty)
{
    int fd = wb_copy_tree_open_dir(naming->tree, naming->dir);

    if (fd == -ENOENT && !is_empty)
        return wb_error_set(naming->applying->why, -EXDEV,
                            "the stream has names in a directory that the "
                            "copy does not have");
    if (fd >= 0) {
        int r = wb_copy_tree_unlock(fd);

        if (r < 0) {
            close(fd);
            return r;
        }
    }
    return fd;
}

/*
 * Holds the object before it gets another name, or loses one. A file needs no right to write for that. A descriptor or
 * -errno.
 */
static int hold(const struct naming *naming, const struct wb_copied *copied, int dir_fd, const char *name)
{
    int held = wb_copy_tree_hold(naming->tree, dir_fd, name, copied->object);
    int r = held < 0 ? held : copied->is_dir ? wb_copy_tree_unlock(held) : wb_flags_clear_locks(held);

    if (held == -EXDEV)
        return wb_error_set(naming->applying->why, held, "%s: it is not the object that was received", name);
    if (r < 0)
        wb_close_fd(&held);
    return r < 0 ? r : held;
}

/* Into a directory of the store. What somebody exchanged it with at the last moment goes back. */
static int move_in(int held, int from_dir, const char *from, int to_dir, const char *to)
{
    int r = wb_held_rename(held, from_dir, from, to_dir, to, RENAME_NOREPLACE);

    if (r == -ESTALE)
        (void)!renameat2(to_dir, to, from_dir, from, RENAME_NOREPLACE);
    return r;
}

/* ---- parking ------------------------------------------------------------------------------------------ */

/* A directory without a name that is to get none. */
static int note_gone(struct naming *naming, const struct wb_copied *copied)
{
    struct wb_object placed;
    int r = copied->is_dir && copied->staged ? wb_table_get(&naming->placed, copied->object, &placed) : 1;

    if (r == 0)
        g_array_append_val(naming->gone, copied->object);
    return MIN(r, 0);
}

static int park(struct naming *naming, int fd, const char *name, struct wb_object object)
{
    struct wb_copied copied;
    char stage[WB_OBJECT_TEXT_MAX];
    _cleanup_close_ int held = -1;
    int r = wb_copy_tree_find(naming->tree, object, &copied);

    if (r <= 0)
        return r < 0 ? r : -EXDEV;
    wb_object_print(object, stage);
    held = hold(naming, &copied, fd, name);
    if (held < 0)
        return held;
    if (copied.staged)
        r = unlinkat(fd, name, 0) < 0 ? -errno : 0;
    else
        r = move_in(held, fd, name, naming->tree->stage_fd, stage);
    if (r < 0)
        return r;
    copied.staged = true;
    r = wb_copy_tree_remove_name(naming->tree, &copied, naming->dir, name);
    return r == 0 && naming->gone ? note_gone(naming, &copied) : r;
}

/* 1: it is to be there, and it is what is to have that name; 0; or -errno. */
static int is_wanted(const struct naming *naming, const char *name, struct wb_object object)
{
    struct wanted wanted;
    int r = wb_table_get(&naming->wanted, wb_table_key(&naming->wanted, name, strlen(name)), &wanted);

    return r > 0 ? wb_object_equal(wanted.object, object) : r;
}

/* Those that are not to be there, each with its end. They are many, and taken away when the directory was read. */
static int find_others(struct naming *naming, int fd, struct wb_scratch *names)
{
    bool is_root = wb_object_equal(naming->dir, naming->tree->root);
    _cleanup_closedir_ DIR *stream = wb_opendir_at(fd, ".");
    struct wb_object object;
    struct dirent *entry;
    uint64_t at;
    int r = 0;

    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r)) {
        if (is_root && (strcmp(entry->d_name, WB_STORE_NAME) == 0 || strcmp(entry->d_name, WB_STAGING_NAME) == 0))
            continue;
        r = wb_copy_tree_identify(naming->tree, fd, entry->d_name, &object);
        if (r == 0)
            r = is_wanted(naming, entry->d_name, object);
        if (r == 0)
            r = wb_scratch_append(names, entry->d_name, strlen(entry->d_name) + 1, &at);
        r = MIN(r, 0);
    }
    return r;
}

static int park_found(struct naming *naming, int fd, const struct wb_scratch *names)
{
    char name[WB_NAME_MAX + 1];
    struct wb_object object;
    int r = 0;

    for (uint64_t at = 0; r == 0 && at < names->size; at += strlen(name) + 1) {
        r = wb_scratch_read(names, name, (size_t)MIN(sizeof(name), names->size - at), at);
        if (r == 0)
            r = wb_copy_tree_identify(naming->tree, fd, name, &object);
        if (r == 0)
            r = park(naming, fd, name, object);
    }
    return r;
}

static int park_others(struct naming *naming)
{
    _cleanup_close_ int fd = open_dir(naming, naming->wanted.count == 0);
    struct wb_scratch names = {0};
    int r;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_scratch_init(&names, naming->tree->stage_fd, 0);
    if (r == 0)
        r = find_others(naming, fd, &names);
    if (r == 0)
        r = park_found(naming, fd, &names);
    wb_scratch_deinit(&names);
    return r;
}

/* A listing comes in parts, and what is not to be there is known after the last. */
static int park_by(struct naming *naming, const struct wb_stream_list *list)
{
    size_t position = 0;
    int r = wb_object_equal(naming->dir, list->object) ? 0 : wb_table_clear(&naming->wanted);

    naming->dir = list->object;
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        struct wb_stream_entry entry;
        struct wanted wanted;

        wb_stream_next_entry(list, &position, &entry);
        wanted = (struct wanted){wb_table_key(&naming->wanted, entry.name, entry.length), entry.object};
        r = wb_table_put(&naming->wanted, &wanted);
        if (r == 0 && S_ISDIR(entry.mode))
            r = wb_table_put(&naming->placed, &entry.object);
    }
    if (r == 0 && list->last) {
        r = park_others(naming);
        naming->dir = WB_OBJECT_NONE;
    }
    return r;
}

static int each_to_park(const struct wb_stream_body *body, void *data)
{
    struct naming *naming = data;
    struct wb_copied copied;
    int r;

    if (body->type == WB_FRAME_LISTING)
        return park_by(naming, &body->list);
    if (body->type != WB_FRAME_OBJECT || !(body->object.flags & WB_STREAM_BURIED))
        return 0;
    r = wb_copy_tree_know(naming->tree, body->object.object, S_ISDIR(body->object.attrs.mode), &copied);
    if (r <= 0)
        return r;
    copied.buried = true;
    return wb_copy_tree_put(naming->tree, &copied);
}

/*
 * An object whose directory was removed behind the mount of the sender may still be in that directory here, as the
 * stream has no listing of it. If it were left there, it would be moved to the graveyard, and could not be put in the
 * place that it has now.
 */
static int each_to_empty(const void *item, void *data)
{
    struct naming *naming = data;
    int r = note_gone(naming, item);

    while (r == 0 && naming->gone->len > 0) {
        naming->dir = g_array_index(naming->gone, struct wb_object, naming->gone->len - 1);
        g_array_set_size(naming->gone, naming->gone->len - 1);
        r = park_others(naming);
    }
    return r;
}

static int empty_gone(struct naming *naming)
{
    int r = wb_table_clear(&naming->wanted);

    naming->gone = g_array_new(FALSE, FALSE, sizeof(struct wb_object));
    if (r == 0)
        r = wb_table_each(&naming->tree->objects, each_to_empty, naming);
    g_array_unref(naming->gone);
    naming->gone = NULL;
    return r;
}

/* ---- placing ------------------------------------------------------------------------------------------ */

static int place(struct naming *naming, int fd, const char *name, struct wb_object object)
{
    struct wb_copied copied;
    char from[WB_OBJECT_PATH_MAX + WB_NAME_MAX];
    _cleanup_close_ int from_fd = -1, held = -1;
    int r = wb_copy_tree_know_any(naming->tree, object, &copied);

    if (r <= 0)
        return r < 0 ? r
                     : wb_error_set(naming->applying->why, -EXDEV,
                                    "%s: the stream has a file that the copy "
                                    "does not have",
                                    name);
    if (copied.is_dir && !copied.staged && copied.names)
        return wb_error_set(naming->applying->why, -EXDEV, "%s: a directory of the copy is not where it was received",
                            name);
    r = wb_copy_tree_place(naming->tree, &copied, &from_fd, from);
    if (r == 0)
        r = held = hold(naming, &copied, from_fd, from);
    if (r < 0)
        return r;
    r = copied.is_dir ? wb_held_rename(held, from_fd, from, fd, name, RENAME_NOREPLACE) : wb_held_link(held, fd, name);
    if (r < 0)
        return r;
    if (copied.is_dir)
        copied.staged = false;
    return wb_copy_tree_add_name(naming->tree, &copied, naming->dir, name);
}

static int each_to_place(const struct wb_stream_body *body, void *data)
{
    struct naming *naming = data;
    _cleanup_close_ int fd = -1;
    size_t position = 0;
    int r = 0;

    if (body->type != WB_FRAME_LISTING)
        return 0;
    naming->dir = body->list.object;
    fd = open_dir(naming, body->list.count == 0);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    for (uint32_t i = 0; r == 0 && i < body->list.count; i++) {
        struct wb_stream_entry entry;
        char name[WB_NAME_MAX + 1];
        struct stat st;

        wb_stream_next_entry(&body->list, &position, &entry);
        memcpy(name, entry.name, entry.length);
        name[entry.length] = '\0';
        /* What is there after parking is what is to be there. */
        if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            r = errno == ENOENT ? place(naming, fd, name, entry.object) : -errno;
    }
    return r;
}

/* ---- what is left --------------------------------------------------------------------------------------- */

static bool in_grave(struct naming *naming, const struct wb_copied *copied)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    wb_copy_grave(copied, path);
    return fstatat(naming->tree->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A file that lost a name and has others is linked there, as it is where it comes from. */
static int bury(struct naming *naming, struct wb_copied *copied)
{
    char from[WB_OBJECT_PATH_MAX + WB_NAME_MAX], grave[WB_OBJECT_PATH_MAX];
    _cleanup_close_ int from_fd = -1, held = -1;
    int r = wb_copy_tree_place(naming->tree, copied, &from_fd, from);

    if (r < 0)
        return r;
    wb_copy_grave(copied, grave);
    held = hold(naming, copied, from_fd, from);
    if (held < 0)
        return held;
    if (!copied->is_dir) {
        r = wb_held_link(held, naming->tree->dir_fd, grave);
        return r == -EEXIST ? 0 : r;
    }
    r = move_in(held, from_fd, from, naming->tree->dir_fd, grave);
    if (r == 0)
        copied->staged = false;
    return r;
}

static int each_to_doubt(const void *item, void *data)
{
    struct naming *naming = data;
    const struct wb_copied *copied = item;
    struct wb_lost lost = {.object = copied->object};

    if (!copied->staged || copied->names || copied->buried || in_grave(naming, copied))
        return 0;
    return wb_table_put(&naming->lost, &lost);
}

/* 1: it goes to the graveyard, or is there; 0; or -errno. */
static int is_kept(const struct naming *naming, const struct wb_copied *copied)
{
    struct wb_lost lost;
    int r = wb_table_get(&naming->lost, copied->object, &lost);

    return r > 0 ? lost_is_kept(&lost, copied->is_dir) : r < 0 ? r : copied->buried || !copied->names;
}

static int settle(struct naming *naming, struct wb_copied *copied)
{
    bool was_staged = copied->staged;
    char stage[WB_OBJECT_TEXT_MAX];
    int r = is_kept(naming, copied);

    if (r > 0)
        r = (copied->is_dir && copied->names) || wb_object_equal(copied->object, naming->tree->root) ||
            in_grave(naming, copied) ? 0 : bury(naming, copied);
    if (r == 0 && copied->staged) {
        wb_object_print(copied->object, stage);
        r = unlinkat(naming->tree->stage_fd, stage, copied->is_dir ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
        copied->staged = false;
    }
    return r == 0 && was_staged ? wb_copy_tree_put(naming->tree, copied) : r;
}

static int each_to_settle(const void *item, void *data)
{
    struct wb_copied copied = *(const struct wb_copied *)item;

    return settle(data, &copied);
}

int wb_apply_names(struct wb_applying *applying)
{
    struct naming naming = {.applying = applying, .tree = &applying->tree};
    int r = wb_table_init(&naming.wanted, applying->tree.stage_fd, sizeof(struct wanted));

    if (r == 0)
        r = wb_table_init(&naming.placed, applying->tree.stage_fd, sizeof(struct wb_object));
    if (r == 0)
        r = wb_table_init(&naming.lost, applying->tree.stage_fd, sizeof(struct wb_lost));
    if (r == 0)
        r = wb_apply_each(applying, each_to_park, &naming);
    if (r == 0)
        r = empty_gone(&naming);
    if (r == 0)
        r = wb_apply_each(applying, each_to_place, &naming);
    if (r == 0)
        r = wb_table_each(&applying->tree.objects, each_to_doubt, &naming);
    if (r == 0)
        r = lost_mark(applying, &naming.lost);
    if (r == 0)
        r = wb_table_each(&applying->tree.objects, each_to_settle, &naming);
    wb_table_deinit(&naming.lost);
    wb_table_deinit(&naming.wanted);
    wb_table_deinit(&naming.placed);
    return r;
}
