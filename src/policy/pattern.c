/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/pattern.h"

#include <errno.h>
#include <fnmatch.h>
#include <glib.h>
#include <string.h>

struct wb_patterns {
    GPtrArray *list;
};

/* One name of a pattern, or `**`. */
struct part {
    bool any_depth;
    char *glob;
};

struct pattern {
    bool out;            /* it began with '!' */
    bool directory_only;
    bool from_top;       /* else `parts` has one element, for the last name of a path */
    GPtrArray *parts;
};

static void free_part(gpointer data)
{
    struct part *part = data;

    g_free(part->glob);
    g_free(part);
}

static void free_pattern(gpointer data)
{
    struct pattern *pattern = data;

    g_ptr_array_unref(pattern->parts);
    g_free(pattern);
}

struct wb_patterns *wb_patterns_new(void)
{
    struct wb_patterns *patterns = g_new0(struct wb_patterns, 1);

    patterns->list = g_ptr_array_new_with_free_func(free_pattern);
    return patterns;
}

void wb_patterns_free(struct wb_patterns *patterns)
{
    if (!patterns)
        return;
    g_ptr_array_unref(patterns->list);
    g_free(patterns);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* fnmatch and git agree about what is well formed; each takes what is not in its own way. The end of the bracket
 * that begins at `at`, or NULL. */
static const char *end_of_bracket(const char *at)
{
    at++;
    if (*at == '!' || *at == '^')
        at++;
    for (bool first = true; first || *at != ']'; first = false, at++) {
        if (*at == '\\')
            at++;
        if (*at == '\0')
            return NULL;
        if (at[0] == '[' && (at[1] == '.' || at[1] == '='))
            return NULL;
        if (at[0] == '[' && at[1] == ':') {
            const char *end = strstr(at + 2, ":]");

            if (end)
                at = end + 1;
        }
    }
    return at;
}

static int wrong(struct wb_pattern_mistake *why, const char *reason, size_t at)
{
    *why = (struct wb_pattern_mistake){reason, at};
    return -EINVAL;
}

static int check_glob(const char *glob, size_t offset, struct wb_pattern_mistake *why)
{
    if (strcmp(glob, ".") == 0 || strcmp(glob, "..") == 0)
        return wrong(why, "no file can have the name . or ..", offset);
    for (const char *at = glob; *at; at++) {
        size_t where = offset + (size_t)(at - glob);

        if (*at == '[') {
            at = end_of_bracket(at);
            if (!at)
                return wrong(why, "a [ without a ] in the same name; for the character itself write \\[", where);
        } else if (*at == '\\' && *++at == '\0') {
            return wrong(why, "a \\ at the end of a name; for the character itself write \\\\", where);
        }
    }
    return 0;
}

static bool is_any_depth(const char *glob)
{
    return g_str_has_prefix(glob, "**") && glob[strspn(glob, "*")] == '\0';
}

static void add_part(struct pattern *pattern, const char *glob, bool any_depth)
{
    struct part *part = g_new0(struct part, 1);

    part->any_depth = any_depth;
    part->glob = g_strdup(glob);
    g_ptr_array_add(pattern->parts, part);
}

/* `text`: without '!' and the slashes at its ends. */
static int add_parts(struct pattern *pattern, const char *text, size_t offset, struct wb_pattern_mistake *why)
{
    g_auto(GStrv) globs = g_strsplit(text, "/", -1);
    int r;

    if (*text == '\0')
        return wrong(why, "it is empty", offset);
    for (char **glob = globs; *glob; glob++) {
        if (**glob == '\0')
            return wrong(why, "a name is missing before or after a /", offset);
        r = check_glob(*glob, offset, why);
        if (r < 0)
            return r;
        add_part(pattern, *glob, pattern->from_top && is_any_depth(*glob));
        offset += strlen(*glob) + 1;
    }
    /* Of `a/` and any depth, `a` itself is not meant: at least one name must follow. */
    if (((struct part *)g_ptr_array_index(pattern->parts, pattern->parts->len - 1))->any_depth)
        add_part(pattern, "*", false);
    return 0;
}

int wb_patterns_add(struct wb_patterns *patterns, const char *text, struct wb_pattern_mistake *why)
{
    struct pattern *pattern = g_new0(struct pattern, 1);
    g_autofree char *bare = NULL;
    const char *at = text;
    size_t length;
    int r;

    pattern->parts = g_ptr_array_new_with_free_func(free_part);
    pattern->out = *at == '!';
    at += pattern->out;
    bare = g_strdup(at);
    length = strlen(bare);
    if (length > 1 && bare[length - 1] == '/') {
        pattern->directory_only = true;
        bare[length - 1] = '\0';
    }
    pattern->from_top = strchr(bare, '/') != NULL;
    length = bare[0] == '/';
    r = add_parts(pattern, bare + length, (size_t)(at - text) + length, why);
    if (r < 0)
        free_pattern(pattern);
    else
        g_ptr_array_add(patterns->list, pattern);
    return r;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* In the locale "C", where the daemon is: bytes, as in git. */
static bool part_matches(const struct part *part, const char *name)
{
    return fnmatch(part->glob, name, 0) == 0;
}

/* Backtracking to the last `**` suffices: the parts before it match as early as possible. */
static bool parts_match(const GPtrArray *parts, char **names, size_t count)
{
    size_t part = 0, name = 0, back_part = 0, back_name = 0;
    bool may_go_back = false;

    while (name < count) {
        const struct part *next = part < parts->len ? g_ptr_array_index(parts, part) : NULL;

        if (next && next->any_depth) {
            may_go_back = true;
            back_part = ++part;
            back_name = name;
        } else if (next && part_matches(next, names[name])) {
            part++;
            name++;
        } else if (may_go_back) {
            part = back_part;
            name = ++back_name;
        } else {
            return false;
        }
    }
    return part == parts->len;
}

/* The path's first `count` names. */
static bool pattern_matches(const struct pattern *pattern, char **names, size_t count, bool is_directory)
{
    if (pattern->directory_only && !is_directory)
        return false;
    if (!pattern->from_top)
        return part_matches(g_ptr_array_index(pattern->parts, 0), names[count - 1]);
    return parts_match(pattern->parts, names, count);
}

bool wb_patterns_match(const struct wb_patterns *patterns, const char *path, bool is_directory)
{
    g_auto(GStrv) names = g_strsplit(path, "/", -1);
    size_t all = g_strv_length(names);

    for (size_t count = 1; count <= all; count++) {
        for (guint i = patterns->list->len; i-- > 0;) {
            const struct pattern *pattern = g_ptr_array_index(patterns->list, i);

            if (!pattern_matches(pattern, names, count, count < all || is_directory))
                continue;
            if (!pattern->out)
                return true;
            break;
        }
    }
    return false;
}
