/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include <fnmatch.h>
#include <string.h>

int find_match_regex(struct find_match *match)
{
    g_autoptr(GError) error = NULL;
    /* Names are bytes. */
    GRegexCompileFlags flags = G_REGEX_OPTIMIZE;

    if (!g_utf8_validate(match->pattern, -1, NULL))
        flags |= G_REGEX_RAW;
    if (match->ignore_case)
        flags |= G_REGEX_CASELESS;
    match->regex = g_regex_new(match->pattern, flags, 0, &error);
    return match->regex ? 0 : wb_cli_usage("--regex: %s", error->message);
}

int find_match_types(struct find_match *match, const char *letters)
{
    static const struct {
        char letter;
        mode_t type;
    } types[] = {{'f', S_IFREG}, {'d', S_IFDIR}, {'l', S_IFLNK},  {'p', S_IFIFO},
                 {'s', S_IFSOCK}, {'b', S_IFBLK}, {'c', S_IFCHR}};

    for (; *letters; letters++) {
        unsigned i = 0;

        if (*letters == ',')
            continue;
        while (i < G_N_ELEMENTS(types) && types[i].letter != *letters)
            i++;
        if (i == G_N_ELEMENTS(types))
            return wb_cli_usage("--type: '%c' is not a type; use f (file), d (directory), l (symbolic link), p (fifo), "
                                "s (socket), b or c (device)", *letters);
        if (match->type_count < G_N_ELEMENTS(match->types))
            match->types[match->type_count++] = types[i].type;
    }
    return match->type_count > 0 ? 0 : wb_cli_usage("--type: the types are missing, for example f or d");
}

bool find_match_name(const struct find_match *match, const char *path, const char *name)
{
    const char *text = match->whole ? path : name;

    if (!match->pattern)
        return true;
    if (match->regex) {
        /* What is no UTF-8 cannot be matched by characters; its valid likeness can. */
        g_autofree char *valid = g_utf8_make_valid(text, -1);

        return g_regex_match(match->regex, g_regex_get_compile_flags(match->regex) & G_REGEX_RAW ? text : valid, 0,
                             NULL);
    }
    return fnmatch(match->pattern, text,
                   (match->whole ? FNM_PATHNAME : 0) | (match->ignore_case ? FNM_CASEFOLD : 0)) == 0;
}
