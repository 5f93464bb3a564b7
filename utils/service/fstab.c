/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/fstab.h"

#include <glib.h>
#include <string.h>

/* A disk that is missing must not stop the boot. */
#define FOR_MOUNT ",nofail"

/* Blanks, tabs, line ends and backslashes are octal, as mount(8) reads them. g_free. */
static char *escape(const char *word)
{
    GString *text = g_string_new(NULL);

    for (; *word; word++) {
        if (strchr(" \t\n\\#", *word))
            g_string_append_printf(text, "\\%03o", (unsigned char)*word);
        else
            g_string_append_c(text, *word);
    }
    return g_string_free(text, FALSE);
}

/* The reverse, as mount(8) reads a field. */
static char *unescape(const char *field)
{
    GString *text = g_string_new(NULL);

    for (; *field; field++) {
        if (field[0] == '\\' && strspn(field + 1, "01234567") >= 3 && field[1] <= '3') {
            g_string_append_c(text, (char)((field[1] - '0') * 64 + (field[2] - '0') * 8 + field[3] - '0'));
            field += 3;
        } else {
            g_string_append_c(text, *field);
        }
    }
    return g_string_free(text, FALSE);
}

/* The fields of a line that is not a comment, without empty ones. */
static GPtrArray *split(const char *line)
{
    GPtrArray *fields = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) words = g_strsplit_set(line, " \t", -1);

    for (char **word = words; *word && **word != '#'; word++) {
        if (**word)
            g_ptr_array_add(fields, unescape(*word));
    }
    return fields;
}

static bool is_path(const char *field, const char *path)
{
    size_t length = strlen(field);

    while (length > 1 && field[length - 1] == '/')
        length--;
    return length == strlen(path) && memcmp(field, path, length) == 0;
}

/* Whether it mounts something of Wayback's at the directory. */
static bool is_there(const GPtrArray *fields, const char *directory)
{
    return fields->len >= 4 && is_path(fields->pdata[1], directory) &&
           (strcmp(fields->pdata[2], "wayback") == 0 || strcmp(fields->pdata[2], "fuse.wayback") == 0);
}

/* Whether it mounts the directory over itself. */
static bool is_ours(const GPtrArray *fields, const char *directory)
{
    return is_there(fields, directory) && is_path(fields->pdata[0], directory);
}

typedef bool (*is_sought)(const GPtrArray *fields, const char *directory);

static bool is_other(const GPtrArray *fields, const char *directory)
{
    return is_there(fields, directory) && !is_ours(fields, directory);
}

/* The first such line, and its fields (g_ptr_array_unref); g_free, NULL: there is none. */
static char *find(const char *path, const char *directory, is_sought sought, GPtrArray **ret_fields)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return NULL;
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        GPtrArray *fields = split(*line);

        if (sought(fields, directory)) {
            *ret_fields = fields;
            return g_strdup(*line);
        }
        g_ptr_array_unref(fields);
    }
    return NULL;
}

char *wb_fstab_line(const char *path, const char *directory)
{
    g_autoptr(GPtrArray) fields = NULL;

    return find(path, directory, is_ours, &fields);
}

char *wb_fstab_other(const char *path, const char *directory)
{
    g_autoptr(GPtrArray) fields = NULL;
    g_autofree char *line = find(path, directory, is_other, &fields);

    return line ? g_strdup(fields->pdata[0]) : NULL;
}

char *wb_fstab_options(const char *path, const char *directory)
{
    g_autoptr(GPtrArray) fields = NULL;
    g_autofree char *line = find(path, directory, is_ours, &fields);
    char *options = line ? g_strdup(fields->pdata[3]) : NULL;

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
    g_autoptr(GPtrArray) fields = split(line);

    return fields->len >= 4 && strcmp(fields->pdata[3], options) == 0;
}

char *wb_fstab_edit(const char *text, const char *directory, const char *replacement)
{
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    GString *result = g_string_new(NULL);
    bool found = false;

    for (char **line = lines; *line; line++) {
        g_autoptr(GPtrArray) fields = split(*line);
        bool ours = is_ours(fields, directory), last = !line[1];

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
    g_autofree char *place = escape(directory), *words = escape(all);
    g_autofree char *line = g_strdup_printf("%s  %s  wayback  %s  0  0", place, place, words);

    return wb_fstab_edit(text, directory, former && has_options(former, all) ? former : line);
}
