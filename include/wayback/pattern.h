/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_PATTERN_H
#define WAYBACK_PATTERN_H

/*
 * Patterns of paths, as gitignore(5) has them: `*`, `?`, `[a-z]` within a name; `**` for any number of
 * directories; with a `/` at the beginning or in the middle from the top of the tree, else at any depth; with one
 * at the end, directories only. What is in a directory that matches, matches. The last pattern that matches a
 * path counts, and one with `!` before it takes the path out again, unless a directory above it is in.
 *
 * A pattern that can never match is a mistake here, where git keeps silent; so is a slash after a backslash
 * or within [].
 */

#include <stdbool.h>
#include <stddef.h>

/* A list of patterns. wb_patterns_free. */
struct wb_patterns;
struct wb_patterns *wb_patterns_new(void);
void wb_patterns_free(struct wb_patterns *patterns);

/* Why a pattern is none: a reason that lives for ever, and the byte in the pattern. */
struct wb_pattern_mistake {
    const char *reason;
    size_t at;
};

/* 0, or -EINVAL, and *why is set. */
int wb_patterns_add(struct wb_patterns *patterns, const char *pattern, struct wb_pattern_mistake *why);

/* `path`: from the top of the tree, without a slash at either end. "" is the top, which no pattern is of. */
bool wb_patterns_match(const struct wb_patterns *patterns, const char *path, bool is_directory);

#endif
