/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_PATTERN_H
#define WAYBACK_PATTERN_H

/*
 * Patterns of paths in the syntax of gitignore(5): `*`, `?`, `[a-z]` match within a name; `**` matches any number of
 * directories. A pattern with a `/` at its beginning or in its middle is relative to the top of the tree; others match
 * at any depth. A pattern with a `/` at its end matches directories only. Everything below a matching directory
 * matches. The last pattern that matches a path counts; with `!` before it, it excludes the path again, unless a
 * directory above the path is included.
 *
 * Unlike in git, a pattern that can never match is an error, and so is a slash after a backslash or within [].
 */

#include <stdbool.h>
#include <stddef.h>

/* A list of patterns; free it with wb_patterns_free. Matching is thread-safe, adding is not. */
struct wb_patterns;
struct wb_patterns *wb_patterns_new(void);
void wb_patterns_free(struct wb_patterns *patterns);

/* Why a pattern is invalid: a string constant, and the offset of the wrong byte in the pattern. */
struct wb_pattern_mistake {
    const char *reason;
    size_t at;
};

/* Returns 0, or -EINVAL with *why set. */
int wb_patterns_add(struct wb_patterns *patterns, const char *pattern, struct wb_pattern_mistake *why);

/* `path`: relative to the top of the tree, without a slash at either end. "" is the top, which no pattern matches. */
bool wb_patterns_match(const struct wb_patterns *patterns, const char *path, bool is_directory);

#endif
