/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "extract.h"
#include "common/cli.h"
#include "common/copy.h"
#include "common/fd.h"
#include "common/path.h"
#include "common/progress.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* One thing to copy: where it is, where it goes, and what people call it. */
struct item {
    int from_dir, to_dir;
    const char *from_name, *to_name;
    const char *path; /* from top_fd */
    const char *shown;
    struct stat st;
};

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
        wb_cli_fail(item->shown, "%s: %s", what, wb_cli_errno(error));
    else
        wb_cli_fail(item->shown, "%s", wb_cli_errno(error));
}

static int copy_attributes(const struct item *item)
{
    const char *what;
    int r = wb_copy_attrs(item->from_dir, item->from_name, &item->st, item->to_dir, item->to_name,
                          WB_ATTRS_LENIENT | WB_ATTRS_TOUCHED, &what);

    if (r < 0)
        fail(item, what, r);
    return 0;
}

static int copy_file(struct extract *extract, const struct item *item)
{
    _cleanup_fd_ int from = openat(item->from_dir, item->from_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_fd_ int to = -1;
    int r;

    if (from < 0)
        return -errno;
    extract->bytes += (uint64_t)item->st.st_size;
    if (extract->dry)
        return 0;
    to = openat(item->to_dir, item->to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return -errno;
    r = wb_copy_data(from, to);
    if (r < 0)
        unlinkat(item->to_dir, item->to_name, 0);
    return r;
}

/* Anything with several names is copied once and linked again. 1: done. */
static int link_again(struct extract *extract, const struct item *item)
{
    const char *first;

    if (item->st.st_nlink < 2)
        return 0;
    first = g_hash_table_lookup(extract->links, &item->st.st_ino);
    if (!first) {
        gint64 *key = g_new(gint64, 1);

        *key = (gint64)item->st.st_ino;
        g_hash_table_insert(extract->links, key, g_strdup(item->path));
        return 0;
    }
    if (!extract->dry && linkat(extract->top_fd, first, item->to_dir, item->to_name, 0) < 0)
        return -errno;
    return 1;
}

static int copy_other(struct extract *extract, const struct item *item)
{
    int r = link_again(extract, item);

    if (r != 0)
        return r < 0 ? r : 0;
    if (S_ISREG(item->st.st_mode))
        r = copy_file(extract, item);
    else if (!extract->dry)
        r = wb_copy_special(item->from_dir, item->from_name, &item->st, item->to_dir, item->to_name);
    if (r < 0) {
        g_hash_table_remove(extract->links, &item->st.st_ino);
        return r;
    }
    return extract->dry ? 0 : copy_attributes(item);
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
        if (mkdirat(item->to_dir, item->to_name, 0700) < 0)
            return -errno;
        to = openat(item->to_dir, item->to_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (to < 0)
            return -errno;
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
    return extract->dry ? 0 : copy_attributes(item);
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
                        .path = to_name, .shown = shown};
    int r;

    extract->top_fd = to_dir;
    extract->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    wb_progress_begin();
    r = copy_item(extract, &item);
    wb_progress_clear();
    g_hash_table_unref(extract->links);
    return r;
}
