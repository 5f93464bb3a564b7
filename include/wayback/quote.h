/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_QUOTE_H
#define WAYBACK_QUOTE_H

#include <stddef.h>

/*
 * Names and command lines hold any bytes. Printed as they are, they could write lines of their own, send sequences to
 * the terminal, or reverse the direction of text. Whatever prints them quotes them here: control characters (those of
 * C1, too), characters that are not visible, like marks of direction, and bytes that are not UTF-8.
 *
 * All functions are thread-safe; results are to g_free.
 */

/* For a line of text: \n, \t, and \xNN for each byte of any other. */
char *wb_quote_text(const char *bytes);

/* The same without allocating, cut to `size` bytes with the NUL, never within a character. Returns the length. */
size_t wb_quote_into(char *to, size_t size, const char *bytes);

/* One word of a shell: as it is, in '...', or, where it has such characters, in $'...' with \NNN for each byte. */
char *wb_quote_word(const char *bytes);

/* JSON text, which may have such characters in its strings only: there as \uNNNN. It must be UTF-8. */
char *wb_quote_json(const char *json);

#endif
