/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/revert/revert_parts.h"

#include "client/fd.h"
#include "client/path.h"
#include <errno.h>

/* The path that an object had before it, or a directory above it, was put aside. */
static char *own_name(const struct revert *revert, const char *path)
{
    GHashTableIter iter;
    void *aside, *name;
    const char *rest;

    g_hash_table_iter_init(&iter, revert->aside_of);
    while (g_hash_table_iter_next(&iter, &aside, &name)) {
        if (wb_path_below(path, aside, &rest))
            return wb_path_join(name, rest);
    }
    return g_strdup(path);
}

static void emit(struct revert *revert, const struct revert_event *event)
{
    if (revert->listener)
        revert->listener->event(revert->listener->data, event);
}

void revert_report(struct revert *revert, enum revert_action action, const char *path, const char *other,
                   uint64_t bytes)
{
    g_autofree char *from = other && action != REVERT_BREAK ? own_name(revert, other) : NULL;
    struct revert_event event = {.kind = REVERT_EVENT_ACTION, .action = action, .path = path,
                                 .other = from ? from : other, .bytes = bytes};

    revert->result.counts[action]++;
    revert->result.bytes += bytes;
    emit(revert, &event);
}

void revert_report_shared(struct revert *revert, const char *path)
{
    struct revert_event event = {.kind = REVERT_EVENT_SHARED, .path = path};

    emit(revert, &event);
}

static void fail(struct revert *revert, const char *path, const char *what, int error, bool is_whole)
{
    struct revert_event event = {.kind = REVERT_EVENT_FAILED, .path = path, .what = what, .error = error,
                                 .is_whole = is_whole};

    revert->result.failed++;
    emit(revert, &event);
}

int revert_fail(struct revert *revert, const char *path, const char *what, int error)
{
    fail(revert, path, what, error, error == 0);
    return error == -EINTR || error == -ENOSPC || error == -EDQUOT || error == -ENOTCONN || error == -EROFS ? error
                                                                                                           : 0;
}

int revert_fail_mount(struct revert *revert, const char *path)
{
    fail(revert, path, "another file system is mounted here; unmount it, then run this again", -EXDEV, true);
    return 0;
}

bool revert_is_mount(const struct revert *revert, int dir, const char *name, const struct stat *st)
{
    return st->st_dev != revert->dev || (S_ISDIR(st->st_mode) && wb_fd_is_mount(dir, name));
}

bool revert_has(GHashTable *inodes, uint64_t inode)
{
    return g_hash_table_contains(inodes, &inode);
}

void revert_add(GHashTable *inodes, uint64_t inode)
{
    gint64 *key;

    if (revert_has(inodes, inode))
        return;
    key = g_new(gint64, 1);
    *key = (gint64)inode;
    g_hash_table_add(inodes, key);
}

void revert_touch_directory(struct revert *revert, int fd)
{
    struct stat st;

    if (fstatat(fd, ".", &st, 0) == 0)
        revert_add(revert->touched, st.st_ino);
}

enum revert_extent revert_extent_of(const struct revert *revert, const char *path)
{
    return revert->extent ? revert->extent(revert->extent_data, path) : REVERT_ITSELF;
}
