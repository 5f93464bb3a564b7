/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_CHECK_H
#define WAYBACK_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * Checks a store, from its header to every byte that is kept, and against the tree it is of; mends what can be
 * mended. Without repairing it writes nothing, takes no lock, and works beside a daemon.
 *
 * Nothing is mended by removing the only copy: what is cut off or replaced goes to `lost` in the store first.
 */

enum wb_check_flags {
    WB_CHECK_REPAIR = 1 << 0,     /* what costs nothing: the outcome is exactly what was, or is derived anyway */
    WB_CHECK_REPAIR_ALL = 1 << 1, /* also what takes a decision: see the remedy of a finding                    */
    WB_CHECK_EXTERNAL = 1 << 2,   /* with one of these: what changed behind the mount has no past that is known */
    /*
     * Nothing is checked, but a store that was moved or copied with its tree is bound to the tree as it is now: with
     * REPAIR, where all is certain; with REPAIR_ALL, also where some files have to go without their past; with
     * neither, what would be done is told.
     */
    WB_CHECK_REBIND = 1 << 3,
};

enum wb_check_state {
    WB_CHECK_NOTE = 0, /* worth knowing; nothing is wrong           */
    WB_CHECK_WRONG,    /* wrong, and could be mended                */
    WB_CHECK_LOST,     /* wrong, and there is nothing to mend it by */
    WB_CHECK_REPAIRED, /* was wrong                                 */
};

struct wb_check_finding {
    enum wb_check_state state;
    const char *code;   /* one word, stable: "torn-tail"                                     */
    const char *file;   /* below the store; "": the store itself; NULL: it is about the tree */
    const char *path;   /* below the tree, where it is about the tree, else NULL             */
    uint64_t from, to;  /* which bytes of the file; 0, 0: the whole                          */
    const char *text;   /* what is wrong                                                     */
    const char *remedy; /* what was done about it, or what repairing would do; "": nothing   */
};

struct wb_check_listener {
    void (*found)(const struct wb_check_finding *finding, void *data);
    bool (*progress)(uint64_t files, uint64_t bytes, void *data); /* false: stop; may be NULL */
    void *data;
};

struct wb_check_result {
    uint64_t files, bytes, records; /* of the store, looked at      */
    uint64_t entries;               /* of the tree                  */
    uint64_t wrong, lost, repaired; /* findings                     */
    bool online;                    /* somebody writes it meanwhile */
};

/*
 * Checks the store of the tree whose root is the directory `tree`; `store`: where it is, NULL for
 * tree/.wayback. 0: checked, and *ret tells the outcome; or a negative errno with a line in `why`: there is no
 * store (-ENOENT), somebody has it open and it was to be repaired (-EBUSY), a newer format (-EPROTONOSUPPORT).
 */
int wb_check_store(const char *tree, const char *store, unsigned flags, const struct wb_check_listener *listener,
                   struct wb_check_result *ret, struct wb_problem *why);

#endif
