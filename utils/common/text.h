/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Words and numbers for people. Results named `text` are the caller's to g_free. */

#include "wayback/when.h"
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* "0", "512 B", "3.4 KiB", "12 MiB". */
#define WB_TEXT_SIZE_MAX 24
const char *wb_text_size(uint64_t bytes, char text[WB_TEXT_SIZE_MAX]);

/* A time that has passed: "45s", "12m", "3h", "5d", "7w", "2y"; "0s" for what lies ahead. */
#define WB_TEXT_AGE_MAX 24
const char *wb_text_age(int64_t nanoseconds, char text[WB_TEXT_AGE_MAX]);

/* "1 file", "3 files". */
char *wb_text_count(uint64_t count, const char *one, const char *many);

/* The user's name, or the number where there is none. Cached; do not free. */
const char *wb_text_user(uint32_t uid);
const char *wb_text_group(uint32_t gid);

/* "file", "directory", ... */
const char *wb_text_type(mode_t mode);

/* A time in a row of a table: local and without a zone; `exact`: as ISO 8601, with all its digits. Returns `text`. */
const char *wb_text_time(int64_t when, bool exact, char text[WB_WHEN_TEXT_MAX]);

/*
 * Names and command lines as they can be shown: valid UTF-8, control characters as \n, \t or \xNN,
 * so that a file's name cannot speak to the terminal.
 */
char *wb_text_printable(const char *bytes);

/* Columns it takes on a terminal; sequences of wb_color take none. */
unsigned wb_text_width(const char *text);

/* Cut to `width` columns, ending in an ellipsis. */
char *wb_text_cut(const char *text, unsigned width);

/* The program in a command line: "make" of "/usr/bin/make -j all", "?" of ""; with its verb: "wayback restore". */
char *wb_text_program(const char *command);

/* A bar of `value` where `most` and more has `width` columns; at least a sign for a value that is not 0. */
char *wb_text_bar(uint64_t value, uint64_t most, unsigned width);

/* `when` as the begin of an hour, a day or another period of `width` ns, by local time. */
int64_t wb_text_period(int64_t when, int64_t width);

/* As a shell takes it for one word: quoted only where it has to be. */
char *wb_text_shell(const char *word);
