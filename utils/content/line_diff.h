/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The lines that differ between two texts, with lines around them, as `diff -u` shows them. */

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

enum wb_line_kind { WB_LINE_BOTH = ' ', WB_LINE_OLD = '-', WB_LINE_NEW = '+' };

/* One line that is shown. The text is a part of one of the two texts, and has its newline if that has one. */
struct wb_diff_line {
    enum wb_line_kind kind;
    guint old, new;    /* its number in each text, from 1; 0: it is not in that one */
    bool begins_hunk;  /* lines before it are left out, or it is the first one      */
    const char *text;
    size_t length;
};

/*
 * The difference with `context` lines around each change: an array of struct wb_diff_line, empty if the texts are
 * equal; g_array_unref. *ret_exact is false if they differ by so much that it may have more lines than are needed.
 */
GArray *wb_lines_diff(const char *old, size_t old_size, const char *new, size_t new_size, guint context,
                      bool *ret_exact);
