/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/mounts.h"

#include <glib.h>
#include <libmount.h>
#include <stdio.h>
#include <string.h>

static void listed_free(void *data)
{
    struct wb_listed *listed = data;

    mnt_unref_fs(listed->fs);
    g_free(listed);
}

static void add(GPtrArray *list, struct libmnt_fs *fs)
{
    struct wb_listed *listed = g_new0(struct wb_listed, 1);

    mnt_ref_fs(fs);
    listed->fs = fs;
    listed->id = mnt_fs_get_id(fs);
    listed->parent = mnt_fs_get_parent_id(fs);
    listed->device = mnt_fs_get_devno(fs);
    listed->root = mnt_fs_get_root(fs);
    listed->point = mnt_fs_get_target(fs);
    listed->type = mnt_fs_get_fstype(fs);
    listed->source = mnt_fs_get_source(fs);
    listed->source = listed->source ? listed->source : "";
    listed->options = mnt_fs_get_fs_options(fs);
    g_ptr_array_add(list, listed);
}

/*
 * If a source is "/dev/root", libmount looks for the device of the root file system, and may search all disks for it,
 * again for each such line. Any user can give a FUSE file system this source.
 */
static char *without_dev_root(const char *text)
{
    g_autoptr(GRegex) regex = g_regex_new("( - \\S+ /dev)/root ", G_REGEX_RAW, 0, NULL);

    return g_regex_replace(regex, text, -1, 0, "\\1//root ", 0, NULL);
}

GPtrArray *wb_listed_parse(const char *text)
{
    GPtrArray *list = g_ptr_array_new_with_free_func(listed_free);
    g_autofree char *safe = without_dev_root(text);
    FILE *stream = safe && *safe ? fmemopen(safe, strlen(safe), "re") : NULL;
    struct libmnt_table *table = mnt_new_table();
    struct libmnt_iter *iter = mnt_new_iter(MNT_ITER_FORWARD);
    struct libmnt_fs *fs;

    /* libmount looks at the path of the list for the number of a process: "/" cannot be in a mount that hangs. */
    if (stream && table && iter && mnt_table_parse_stream(table, stream, "/") == 0)
        while (mnt_table_next_fs(table, iter, &fs) == 0)
            if (mnt_fs_is_kernel(fs))
                add(list, fs);
    if (stream)
        fclose(stream);
    mnt_free_iter(iter);
    mnt_unref_table(table);
    return list;
}

GPtrArray *wb_listed_of_process(pid_t pid)
{
    g_autofree char *path = g_strdup_printf("/proc/%ld/mountinfo", (long)pid), *text = NULL;

    return g_file_get_contents(pid == 0 ? "/proc/self/mountinfo" : path, &text, NULL, NULL) ? wb_listed_parse(text)
                                                                                            : NULL;
}

GPtrArray *wb_listed_mounts(void)
{
    GPtrArray *list = wb_listed_of_process(0);

    return list ? list : wb_listed_parse("");
}

char *wb_listed_option(const struct wb_listed *listed, const char *name)
{
    char *value = NULL;
    size_t length = 0;

    if (mnt_optstr_get_option(listed->options, name, &value, &length) != 0)
        return NULL;
    return value ? g_strndup(value, length) : g_strdup("");
}

bool wb_listed_user(const struct wb_listed *listed, uid_t *ret)
{
    /* Options of others can have paths in them, and so any text. */
    bool is_fuse = g_str_has_prefix(listed->type, "fuse");
    g_autofree char *user = is_fuse ? wb_listed_option(listed, "user_id") : NULL;
    guint64 number;

    if (!user || !g_ascii_string_to_unsigned(user, 10, 0, G_MAXUINT32, &number, NULL))
        return false;
    *ret = (uid_t)number;
    return true;
}
