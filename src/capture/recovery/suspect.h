/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A change that was in flight when the last daemon died: recover.c compares its records with the tree.
 */

#include "store/store.h"
#include <stdbool.h>

/* One name the change was about, as it was before. */
struct wb_suspect_slot {
    struct wb_object dir;
    bool present;
    uint8_t unbind;
    struct wb_object object;
    bool is_dir;
    char name[WB_NAME_MAX + 1];
};

#define WB_SUSPECT_LOGS 8
struct wb_suspect {
    struct wb_store *store;
    int64_t when;
    uint16_t op;
    bool several;           /* its records are in several logs */
    struct wb_object where; /* else: the directory of the object, as far as was known */

    unsigned log_count;
    struct {
        struct wb_object object;
        enum wb_object_file file;
        bool recorded, aborted;
    } logs[WB_SUSPECT_LOGS];

    unsigned slot_count;
    struct wb_suspect_slot slots[WB_SLOTS_MAX];

    bool unfinished; /* parts are missing: the change comes after the last */
    bool differs;    /* the object is not as its records say it was */
    int fd;          /* the object, once looked for; -1 */
};

/* An O_PATH descriptor of an object, buried or in suspect->where; logs[0] is its log. Or -errno. `name` (may be
 * NULL): its name there, or "". */
int wb_suspect_find(const struct wb_suspect *suspect, struct wb_object object, char name[WB_NAME_MAX + 1]);
