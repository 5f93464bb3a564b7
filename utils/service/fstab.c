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

/* The fields of a line that is not a comment, without empty ones. */
static GPtrArray *split(const char *line)
{
    GPtrArray *fields = g_ptr_array_new_with_free_func(g_free);
    g_auto(GStrv) words = g_strsplit_set(line, " \t", -1);

    for (char **word = words; *word && **words != '#'; word++) {
        if (**word == '#')
            break;
        if (**word)
            g_ptr_array_add(fields, g_strcompress(*word));
    }
    return fields;
}

static bool is_ours(const GPtrArray *fields, const char *directory)
{
    return fields->len >= 4 && strcmp(fields->pdata[1], directory) == 0 &&
           (strcmp(fields->pdata[2], "wayback") == 0 || strcmp(fields->pdata[2], "fuse.wayback") == 0);
}

char *wb_fstab_options(const char *path, const char *directory)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return NULL;
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        g_autoptr(GPtrArray) fields = split(*line);
        char *options;

        if (!is_ours(fields, directory))
            continue;
        options = g_strdup(fields->pdata[3]);
        if (g_str_has_suffix(options, FOR_MOUNT))
            options[strlen(options) - strlen(FOR_MOUNT)] = '\0';
        return options;
    }
    return NULL;
}

bool wb_fstab_has(const char *path, const char *directory)
{
    g_autofree char *options = wb_fstab_options(path, directory);

    return options != NULL;
}

/* `line` takes the place of ours, NULL: nothing does. */
static char *edit(const char *text, const char *directory, const char *replacement)
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

char *wb_fstab_with(const char *text, const char *directory, const char *options)
{
    g_autofree char *place = escape(directory), *words = escape(options);
    g_autofree char *line = g_strdup_printf("%s  %s  wayback  %s" FOR_MOUNT "  0  0", place, place,
                                            *words ? words : "rw");

    return edit(text, directory, line);
}

char *wb_fstab_without(const char *text, const char *directory)
{
    return edit(text, directory, NULL);
}
