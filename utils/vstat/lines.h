/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The lines of text that a version changed: its content is read, and compared with the one before it. */

#include "client/saves.h"
#include "common/mount.h"
#include <glib.h>

struct lines {
    const struct wb_place *place;
    const char *name;  /* base name of the path                                         */
    bool lost;         /* the file came from another name: older content is not looked for under this one */
    uint64_t left;     /* so many bytes are still read: a long list is not to wait long */
    GBytes *before;    /* the content before the version compared last, NULL: not known */
    int64_t before_when; /* from then on, until that version began                      */
    char *before_name;
};

enum lines_result {
    LINES_UNKNOWN,   /* too large, no text, or not to be read */
    LINES_SAME,      /* the content is the same as before     */
    LINES_DIFFERENT, /* and both numbers are known            */
};

void lines_begin(struct lines *lines, const struct wb_place *place, const char *name);
void lines_clear(struct lines *lines);

/* Versions are given newest first. */
enum lines_result lines_compare(struct lines *lines, const struct wb_save *save, unsigned *ret_added,
                                unsigned *ret_removed);
