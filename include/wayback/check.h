/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_CHECK_H
#define WAYBACK_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include "wayback/error.h"

/*
 * Checks a store, from its header to every recorded byte, and compares it with its tree; repairs it on request. A check
 * without repair writes nothing, takes no lock, and can run while a daemon serves the tree.
 *
 * A repair never removes the only copy of anything: bytes that it cuts off or replaces are first saved in the
 * directory `lost` of the store.
 */

enum wb_check_flags {
    WB_CHECK_REPAIR = 1 << 0,     /* safe repairs: the result equals the original, or is derived data           */
    WB_CHECK_REPAIR_ALL = 1 << 1, /* also repairs that lose something: see the remedy of a finding              */
    WB_CHECK_EXTERNAL = 1 << 2,   /* with a repair flag: files changed outside the mount begin a new history    */
    /*
     * Checks nothing; instead, binds a store that was moved or copied with its tree to the tree as it is now. With
     * REPAIR, only if every file is identified with certainty; with REPAIR_ALL, also if some files lose their history;
     * with neither, only reports what it would do.
     */
    WB_CHECK_REBIND = 1 << 3,
};

enum wb_check_state {
    WB_CHECK_NOTE = 0, /* information; nothing is wrong */
    WB_CHECK_WRONG,    /* wrong, can be repaired        */
    WB_CHECK_LOST,     /* wrong, cannot be repaired     */
    WB_CHECK_REPAIRED, /* was wrong and was repaired    */
};

struct wb_check_finding {
    enum wb_check_state state;
    const char *code;   /* one word, stable: "torn-tail"                                     */
    const char *file;   /* relative to the store; "": the store itself; NULL: see `path`     */
    const char *path;   /* relative to the tree, if the finding is about the tree, else NULL */
    uint64_t from, to;  /* the range of bytes of the file; 0, 0: the whole file              */
    const char *text;   /* the problem                                                       */
    const char *remedy; /* what was done about it, or what a repair would do; "": nothing    */
};

/* Called in the thread that runs the check. A finding and its strings are valid during the call only. */
struct wb_check_listener {
    void (*found)(const struct wb_check_finding *finding, void *data);
    bool (*progress)(uint64_t files, uint64_t bytes, void *data); /* returns false to stop; may be NULL */
    void *data;
};

struct wb_check_result {
    uint64_t files, bytes, records; /* checked in the store                        */
    uint64_t entries;               /* compared with the tree                      */
    uint64_t wrong, lost, repaired; /* findings                                    */
    bool online;                    /* a daemon has the store open for writing     */
};

/*
 * Checks the store of the tree whose root is the directory `tree`; `store` is the path of the store, NULL for
 * tree/.wayback. Returns 0 after a check, with its outcome in *ret; or a negative errno with a line in `why`: there is
 * no store (-ENOENT), a repair was requested and another process has the store open (-EBUSY), the format of the store
 * is newer (-EPROTONOSUPPORT).
 */
int wb_check_store(const char *tree, const char *store, unsigned flags, const struct wb_check_listener *listener,
                   struct wb_check_result *ret, struct wb_error *why);

#endif
