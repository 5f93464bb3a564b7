/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * --containing: which versions of a file have a text.
 *
 * They are given in the order of the list, newest first. The list follows the file to its earlier names, and so
 * does this.
 */

#include <json-glib/json-glib.h>
#include "client/saves.h"
#include "common/mount.h"
#include "content/text_search.h"
#include <stdbool.h>

struct containing {
    struct wb_text_search *search;
    const struct wb_place *place;
    const char *name;   /* base name of the path                                             */
    bool several;       /* the list is of several names or objects from here on              */
    GArray *objects;    /* of the changes: struct object                                     */
    uint32_t first, last; /* numbers of versions that have the text; 0: none                  */
    int64_t first_when, last_when;
    bool before;        /* the state before the oldest version has it, too                   */
    GArray *unknown;    /* numbers of versions of which the content is not known             */
    int error;          /* the last reason                                                   */
};

/* Begins with a path; containing_clear ends it. */
void containing_begin(struct containing *containing, struct wb_text_search *search, const struct wb_place *place,
                      const char *name);
void containing_clear(struct containing *containing);

/* Whether the version has the text: 1, 0, or a negative errno: that is not known. Notes it. */
int containing_after(struct containing *containing, const struct wb_save *save);

/* After the last change, the oldest (NULL: there is none): looks at the state before it, or at the only one. */
void containing_end(struct containing *containing, const struct wb_control_version *oldest);

/* "first: version 7, ...; last: version 2, ...". g_free. */
char *containing_summary(const struct containing *containing, bool complete);

/* The same as members of a JSON object, each with a comma before it. */
void containing_json(const struct containing *containing, JsonBuilder *members);

/* An error line, if there are states that are not known. */
void containing_fail(const struct containing *containing);
