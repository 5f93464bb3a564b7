/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_QUOTE_H
#define WAYBACK_QUOTE_H

#include <stddef.h>

/*
 * Quotes names and command lines for printing. They can contain any bytes: printed unquoted, they could add lines, send
 * control sequences to the terminal, or reverse the direction of text. Quoted are control characters (including C1),
 * invisible characters such as direction marks, and bytes that are not UTF-8.
 *
 * All functions are thread-safe. The caller frees results with g_free.
 */

/* For a line of text: \n, \t, and \xNN for each byte of any other quoted character. */
char *wb_quote_text(const char *bytes);

/* As wb_quote_text, without allocating: writes at most `size` bytes including the NUL, and never a part of a character.
 * Returns the length. */
size_t wb_quote_into(char *to, size_t size, const char *bytes);

/* One word of a shell: unquoted, in '...', or, if it has such characters, in $'...' with \NNN for each byte of them. */
char *wb_quote_word(const char *bytes);

/* The version of the JSON that all programs print; docs/json.md describes it. */
#define WB_JSON_SCHEMA 1

/* JSON text in UTF-8, which may contain such characters only in its strings: replaces them by \uNNNN. */
char *wb_quote_json(const char *json);

#endif
