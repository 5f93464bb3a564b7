/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The states that a file had under one name, newest first, from the list of its changes, and which of them have a text.
 * What another name of the same file showed before it was renamed belongs to that name.
 */

#include "client/control.h"
#include "client/mount.h"
#include "content/text_search.h"
#include <stdbool.h>

/* The base name under which the object of `version` is found after the change, in the list of changes of `name`. */
const char *wb_version_name_after(const struct wb_control_version *version, const char *name);

/* Whether the file is certainly empty after the change. */
bool wb_version_empties(const struct wb_control_version *version);

#define WB_STATE_UNREAD (-4096) /* no errno */

struct wb_state {
    int64_t when;    /* the time of the change that made it; 0: before the first recorded change         */
    int64_t at;      /* a time at which it can be read                                                    */
    int64_t end;     /* the time of the change that ended it; 0: it is the present                        */
    uint32_t change; /* the number of the version, as vstat has it; 0: before the first one, or a gap     */
    bool gap;        /* changes until `when` were not recorded                                            */
    int64_t came, left; /* the time of the rename that brought it from, or took it to, another name; or 0 */
    int has;         /* wb_states_has, or WB_STATE_UNREAD                                                 */
    uint64_t size;   /* if `has` is 0 or 1                                                                */
};

struct wb_states;

/* For all names of one search; `search` is the caller's, and lives longer. */
struct wb_states *wb_states_new(const struct wb_mount *mount, struct wb_text_search *search);
struct wb_states *wb_states_free(struct wb_states *states);

/*
 * Reads the list of changes of `path`, relative to the mount, in place of the states of the name before. `until`: no
 * changes after this time; 0: all. `end`: when the file ended with its directory; 0: it did not. 0 or -errno.
 */
int wb_states_read(struct wb_states *states, const char *path, int64_t until, int64_t end);

unsigned wb_states_count(const struct wb_states *states);
const struct wb_state *wb_states_get(const struct wb_states *states, unsigned index);

/* Whether the state has the text, as wb_text_search_file says it. Reads it once. */
int wb_states_has(struct wb_states *states, unsigned index);

static inline void wb_states_freep(struct wb_states **states)
{
    wb_states_free(*states);
}
#define _cleanup_states_ __attribute__((cleanup(wb_states_freep)))
