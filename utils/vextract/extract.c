/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "extract.h"
#include "common/cli.h"
#include "client/copy/copy.h"
#include "client/copy/flags.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* One thing to copy: where it is, where it goes, and what people call it. */
struct item {
    int from_dir, to_dir;
    const char *from_name, *to_name;
    const char *path; /* in the copy, "" for itself */
    const char *shown;
    struct stat st;
};

/* The first name that an object with several got. */
struct link {
    gint64 past;    /* the key: its inode in the past */
    char *path;     /* in the copy */
    struct stat st; /* of the copy */
};

static void link_free(void *data)
{
    struct link *link = data;

    g_free(link->path);
    g_free(link);
}

static int copy_item(struct extract *extract, struct item *item);

/* Errors after which nothing further would succeed. */
static bool is_fatal(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EINTR || error == -EROFS || error == -ENOTCONN;
}

static void fail(const struct item *item, const char *what, int error)
{
    wb_progress_clear();
    if (what)
        wb_cli_fail(item->shown, "%s: %s", what, wb_errno_text(error));
    else
        wb_cli_fail(item->shown, "%s", wb_errno_text(error));
}

/* One to be made immutable or append-only, when everything is in its place. */
struct locked {
    char *path; /* below the copy, "" for itself */
    char *shown;
    int locks;
    dev_t dev;
    ino_t ino;
};

static void locked_clear(void *data)
{
    struct locked *locked = data;

    g_free(locked->path);
    g_free(locked->shown);
}

/*
 * While it is empty: some flags can be set only then, and entries made in a directory inherit some. Locks are noted,
 * to be set at the end.
 */
static void copy_flags(struct extract *extract, const struct item *item, int from, int to)
{
    struct locked locked = {0};
    struct stat st;
    int r = wb_copy_unlocked_flags(from, to, &locked.locks);

    if (r == 0 && locked.locks) {
        r = fstat(to, &st) < 0 ? -errno : 0;
        locked.path = g_strdup(item->path);
        locked.shown = g_strdup(item->shown);
        locked.dev = st.st_dev;
        locked.ino = st.st_ino;
        g_array_append_val(extract->locked, locked);
    }
    if (r < 0)
        fail(item, "the flags (chattr)", r);
}

/* `to`: what was made, open or held. */
static int copy_attributes(const struct item *item, int to)
{
    const char *what;
    int r = wb_copy_attrs(item->from_dir, item->from_name, &item->st, to,
                          WB_ATTRS_LENIENT | WB_ATTRS_TOUCHED | WB_ATTRS_NO_FLAGS, &what);

    if (r < 0)
        fail(item, what, r);
    return 0;
}

void extract_lock(const struct extract *extract)
{
    for (guint i = extract->locked->len; i-- > 0;) {
        const struct locked *locked = &g_array_index(extract->locked, struct locked, i);
        _cleanup_fd_ int held = *locked->path ? wb_open_beneath(extract->top_fd, locked->path, O_PATH | O_NOFOLLOW)
                                              : wb_held_open(extract->top_fd, O_PATH);
        _cleanup_fd_ int fd = -1;
        struct stat st;
        int r = held < 0 ? held : fstat(held, &st) < 0 ? -errno : 0;

        if (r == 0 && (st.st_dev != locked->dev || st.st_ino != locked->ino))
            r = -ESTALE;
        if (r == 0)
            r = fd = wb_held_open(held, O_RDONLY);
        if (r >= 0)
            r = wb_set_locks(fd, locked->locks);
        /* A mode that forbids an ordinary user to open it: they may not lock it either. */
        if (r < 0 && r != -EACCES)
            wb_cli_fail(locked->shown, "the copy could not be made %s: %s",
                        locked->locks & FS_IMMUTABLE_FL ? "immutable" : "append-only", wb_errno_text(r));
    }
}

/* The copy itself, while it is made: everything in it is found from here. */
static int note_top(struct extract *extract, const struct item *item, int to)
{
    if (*item->path)
        return 0;
    extract->top_fd = wb_held_open(to, O_PATH);
    return MIN(extract->top_fd, 0);
}

/* A descriptor of the copy of a file, link, fifo, socket or device, or -errno. */
static int copy_object(struct extract *extract, const struct item *item)
{
    bool is_file = S_ISREG(item->st.st_mode);
    _cleanup_fd_ int from = is_file ? openat(item->from_dir, item->from_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    _cleanup_fd_ int to = -1;
    int r;

    if (is_file && from < 0)
        return -errno;
    r = to = wb_copy_make(item->from_dir, item->from_name, &item->st, item->to_dir, item->to_name);
    if (r >= 0)
        r = note_top(extract, item, to);
    if (r == 0 && is_file) {
        copy_flags(extract, item, from, to);
        r = wb_copy_data(from, to);
    }
    if (r < 0 && to >= 0)
        unlinkat(item->to_dir, item->to_name, 0);
    return r < 0 ? r : wb_fd_steal(&to);
}

/* Whether it can be read. */
static int try_file(const struct item *item)
{
    _cleanup_fd_ int from = openat(item->from_dir, item->from_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return from < 0 ? -errno : 0;
}

/* Anything with several names is copied once and linked again: 1. 0: it is to be copied; `first`: and noted. */
static int link_again(struct extract *extract, const struct item *item, struct link **first)
{
    _cleanup_fd_ int dir = -1;
    _cleanup_fd_ int held = -1;
    const char *name;
    int r;

    *first = NULL;
    if (item->st.st_nlink < 2)
        return 0;
    *first = g_hash_table_lookup(extract->links, &item->st.st_ino);
    if (!*first) {
        *first = g_new0(struct link, 1);
        (*first)->past = (gint64)item->st.st_ino;
        (*first)->path = g_strdup(item->path);
        g_hash_table_insert(extract->links, &(*first)->past, *first);
        return 0;
    }
    if (extract->dry)
        return 1;
    dir = wb_fd_open_parent(extract->top_fd, (*first)->path, &name);
    held = dir < 0 ? dir : wb_hold(dir, name, &(*first)->st);
    r = held < 0 ? held : wb_held_link(held, item->to_dir, item->to_name);
    return r < 0 ? r : 1;
}

static int copy_other(struct extract *extract, const struct item *item)
{
    bool is_file = S_ISREG(item->st.st_mode);
    guint locked = extract->locked->len;
    _cleanup_fd_ int to = -1;
    struct link *first;
    int r = link_again(extract, item, &first);

    if (r != 0)
        return r < 0 ? r : 0;
    if (extract->dry)
        r = is_file ? try_file(item) : 0;
    else
        r = to = copy_object(extract, item);
    if (r >= 0 && first && !extract->dry && fstat(to, &first->st) < 0)
        r = -errno;
    if (r < 0) {
        g_hash_table_remove(extract->links, &item->st.st_ino);
        g_array_set_size(extract->locked, locked);
        return r;
    }
    if (is_file)
        extract->bytes += (uint64_t)item->st.st_size;
    return extract->dry ? 0 : copy_attributes(item, to);
}

/* 0 with what failed inside counted, or -errno: not even the directory. */
static int copy_directory(struct extract *extract, const struct item *item)
{
    _cleanup_fd_ int from = openat(item->from_dir, item->from_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int to = -1;
    g_autoptr(GPtrArray) names = from < 0 ? NULL : wb_fd_names(from);

    if (!names)
        return -errno;
    if (!extract->dry) {
        int r = to = wb_copy_make(item->from_dir, item->from_name, &item->st, item->to_dir, item->to_name);

        if (r >= 0)
            r = note_top(extract, item, to);
        if (r < 0)
            return r;
        copy_flags(extract, item, from, to);
    }
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *path = wb_path_join(item->path, names->pdata[i]);
        g_autofree char *shown = wb_path_join(item->shown, names->pdata[i]);
        struct item child = {.from_dir = from, .to_dir = to, .from_name = names->pdata[i],
                             .to_name = names->pdata[i], .path = path, .shown = shown};
        int r = copy_item(extract, &child);

        if (r < 0) {
            if (is_fatal(r))
                return r;
            fail(&child, NULL, r);
            extract->failed++;
        }
    }
    /* Last: what was made in it moved its times, and its mode may forbid making anything. */
    return extract->dry ? 0 : copy_attributes(item, to);
}

static int copy_item(struct extract *extract, struct item *item)
{
    int r;

    if (wb_cli_interrupted())
        return -EINTR;
    if (fstatat(item->from_dir, item->from_name, &item->st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    r = S_ISDIR(item->st.st_mode) ? copy_directory(extract, item) : copy_other(extract, item);
    if (r < 0)
        return r;
    if (S_ISDIR(item->st.st_mode))
        extract->directories++;
    else
        extract->files++;
    wb_progress_add(1, 0);
    if (extract->verbose) {
        g_autofree char *shown = wb_text_printable(item->shown);

        wb_progress_clear();
        puts(shown);
    }
    return 0;
}

int extract_run(struct extract *extract, int from_dir, const char *from_name, int to_dir, const char *to_name,
                const char *shown)
{
    struct item item = {.from_dir = from_dir, .to_dir = to_dir, .from_name = from_name, .to_name = to_name,
                        .path = "", .shown = shown};
    int r;

    extract->top_fd = -1;
    extract->locked = g_array_new(FALSE, FALSE, sizeof(struct locked));
    g_array_set_clear_func(extract->locked, locked_clear);
    extract->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, link_free);
    wb_progress_begin();
    r = copy_item(extract, &item);
    wb_progress_clear();
    g_hash_table_unref(extract->links);
    return r;
}

void extract_end(struct extract *extract)
{
    g_clear_pointer(&extract->locked, g_array_unref);
    if (extract->top_fd >= 0)
        close(extract->top_fd);
    extract->top_fd = -1;
}
