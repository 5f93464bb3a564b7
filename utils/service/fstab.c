/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/fstab.h"

#include <glib.h>
#include <libmount.h>
#include <stdio.h>
#include <string.h>

/* A disk that is missing must not stop the boot. */
#define FOR_MOUNT ",nofail"

static void unref_fs(struct libmnt_fs **fs)
{
    mnt_unref_fs(*fs);
}
#define _cleanup_fs_ __attribute__((cleanup(unref_fs)))

/*
 * The fields of a line as mount(8) reads them; mnt_unref_fs. NULL: a comment, or malformed. libmount could edit the
 * whole file, but it writes all lines anew: with one blank between fields, without comments behind them, and without
 * malformed ones. It sees four fields: it refuses words behind them, where systemd mounts the line all the same.
 */
static struct libmnt_fs *parse(const char *line)
{
    const char *end = line;
    FILE *stream;
    struct libmnt_table *table;
    struct libmnt_fs *fs = NULL;

    for (int i = 0; i < 4; i++) {
        end += strspn(end, " \t");
        end += strcspn(end, " \t");
    }
    stream = end > line ? fmemopen((char *)line, (size_t)(end - line), "re") : NULL;
    table = stream ? mnt_new_table() : NULL;
    if (table && mnt_table_parse_stream(table, stream, "/") == 0 && mnt_table_first_fs(table, &fs) == 0) {
        /* A line that looks like one of mountinfo is read as such. */
        if (mnt_fs_is_kernel(fs))
            fs = NULL;
        else
            mnt_ref_fs(fs);
    }
    mnt_unref_table(table);
    if (stream)
        fclose(stream);
    return fs;
}

static bool is_path(const char *field, const char *path)
{
    size_t length = field ? strlen(field) : 0;

    while (length > 1 && field[length - 1] == '/')
        length--;
    return length == strlen(path) && memcmp(field, path, length) == 0;
}

/* Whether it mounts something of Wayback's at the directory. */
static bool is_there(struct libmnt_fs *fs, const char *directory)
{
    const char *type = fs ? mnt_fs_get_fstype(fs) : NULL;

    return type && (strcmp(type, "wayback") == 0 || strcmp(type, "fuse.wayback") == 0) && mnt_fs_get_options(fs) &&
           is_path(mnt_fs_get_target(fs), directory);
}

/* Whether it mounts the directory over itself. */
static bool is_ours(struct libmnt_fs *fs, const char *directory)
{
    return is_there(fs, directory) && is_path(mnt_fs_get_source(fs), directory);
}

static bool is_other(struct libmnt_fs *fs, const char *directory)
{
    return is_there(fs, directory) && !is_ours(fs, directory);
}

typedef bool (*is_sought)(struct libmnt_fs *fs, const char *directory);

/* The first such line, and its fields; g_free, NULL: there is none. */
static char *find(const char *path, const char *directory, is_sought sought, struct libmnt_fs **ret_fs)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return NULL;
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        struct libmnt_fs *fs = parse(*line);

        if (sought(fs, directory)) {
            *ret_fs = fs;
            return g_strdup(*line);
        }
        mnt_unref_fs(fs);
    }
    return NULL;
}

char *wb_fstab_line(const char *path, const char *directory)
{
    _cleanup_fs_ struct libmnt_fs *fs = NULL;

    return find(path, directory, is_ours, &fs);
}

char *wb_fstab_other(const char *path, const char *directory)
{
    _cleanup_fs_ struct libmnt_fs *fs = NULL;
    g_autofree char *line = find(path, directory, is_other, &fs);

    return line ? g_strdup(mnt_fs_get_source(fs)) : NULL;
}

char *wb_fstab_options(const char *path, const char *directory)
{
    _cleanup_fs_ struct libmnt_fs *fs = NULL;
    g_autofree char *line = find(path, directory, is_ours, &fs);
    char *options = line ? g_strdup(mnt_fs_get_options(fs)) : NULL;

    if (options && g_str_has_suffix(options, FOR_MOUNT))
        options[strlen(options) - strlen(FOR_MOUNT)] = '\0';
    return options;
}

bool wb_fstab_has(const char *path, const char *directory)
{
    g_autofree char *line = wb_fstab_line(path, directory);

    return line != NULL;
}

/* `options` of the line are these already. */
static bool has_options(const char *line, const char *options)
{
    _cleanup_fs_ struct libmnt_fs *fs = parse(line);

    return fs && g_strcmp0(mnt_fs_get_options(fs), options) == 0;
}

char *wb_fstab_edit(const char *text, const char *directory, const char *replacement)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    GString *result = g_string_new(NULL);
    bool found = false;

    for (char **line = lines; *line; line++) {
        _cleanup_fs_ struct libmnt_fs *fs = parse(*line);
        bool ours = is_ours(fs, directory), last = !line[1];

        if (ours && (found || !replacement))
            continue;
        g_string_append(result, ours ? replacement : *line);
        found = found || ours;
        if (!last)
            g_string_append_c(result, '\n');
    }
    if (!found && replacement) {
        if (result->len > 0 && result->str[result->len - 1] != '\n')
            g_string_append_c(result, '\n');
        g_string_append_printf(result, "%s\n", replacement);
    }
    return g_string_free(result, FALSE);
}

char *wb_fstab_with(const char *path, const char *text, const char *directory, const char *options)
{
    g_auto(GStrv) list = g_strsplit(options, ",", -1);
    bool has_word = g_strv_contains((const char *const *)list, FOR_MOUNT + 1);
    g_autofree char *all = g_strconcat(*options ? options : "rw", has_word ? "" : FOR_MOUNT, NULL);
    g_autofree char *former = wb_fstab_line(path, directory);
    g_autofree char *place = mnt_mangle(directory), *words = mnt_mangle(all);
    g_autofree char *line = g_strdup_printf("%s  %s  wayback  %s  0  0", place, place, words);

    return wb_fstab_edit(text, directory, former && has_options(former, all) ? former : line);
}
