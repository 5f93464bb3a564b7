/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The lines of a configuration file, without their meaning:
 *
 *     # a comment
 *     [section]
 *     key = value
 *
 * GLib's GKeyFile reads the same, but knows no lines and columns, stops at the first mistake and cannot
 * have `[` in the name of a section, which patterns of files have.
 */

#include <stddef.h>

struct wb_config_line {
    unsigned number;         /* from 1 */
    unsigned column;         /* of the key, or of the section's name; from 1, in characters */
    unsigned value_column;
    const char *section;     /* "" before the first one */
    const char *key;         /* NULL: the section begins here */
    const char *value;       /* without blanks at its ends */
};

/* One thing that is wrong. `text`: which key, why, what is allowed; a line. */
struct wb_config_mistake {
    unsigned line, column;   /* from 1; column 0: the whole line */
    char text[256];
};
typedef void (*wb_config_complain)(const struct wb_config_mistake *mistake, void *data);

typedef void (*wb_config_take)(const struct wb_config_line *line, void *data);

/* Calls `take` for each section and key in their order, `complain` for lines that are neither. The arguments of these
 * calls live as long as the call. */
void wb_config_read_lines(const char *text, size_t length, wb_config_take take, wb_config_complain complain,
                          void *data);

/* Complains, with a text made by format. */
void wb_config_complain_of(wb_config_complain complain, void *data, unsigned line, unsigned column,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
