/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The table of the requests of <wayback/control.h>, which defines their numbers. The table gives the function of the
 * daemon that carries out a request, the conditions for it (ops_control.c), and the check of its reply
 * (control_check.c).
 */

enum {
    WB_REQUEST_CHANGES = 1 << 0,   /* changes the tree or the store: refused on a read-only mount                */
    WB_REQUEST_SOURCE = 1 << 1,    /* `source` is text                                                           */
    WB_REQUEST_THREAD = 1 << 2,    /* runs in another thread: may wait, or invalidates the kernel's cache        */
    WB_REQUEST_NOTHING = 1 << 3,   /* without a history the reply is empty, and not an error                     */
    WB_REQUEST_RELOCATES = 1 << 4, /* takes relocate_lock exclusively by itself; only with THREAD                */
    WB_REQUEST_PLEADS = 1 << 5,    /* waits for space if the store is full (enospc_retry.h)                      */
    WB_REQUEST_HOME = 1 << 6,      /* only for callers in the daemon's namespaces; implied by CHANGES */
    WB_REQUEST_AS_OTHERS = 1 << 7, /* callers outside of them get EXDEV, not EREMOTE, and can copy instead       */
    WB_REQUEST_LOOK = 1 << 8,      /* reads the past, and may take long                                          */
    WB_REQUEST_KEEPER = 1 << 9,    /* only for root and the user who mounted, in the daemon's namespaces         */
    WB_REQUEST_BARE = 1 << 10,     /* needs no history and has no path                                           */
};

/*
 * X(NAME, name, flags, reply, list): wb_control_`name` carries out WB_CONTROL_`NAME`, check_`reply` checks its reply,
 * and `list` selects how a list in several replies must advance from one to the next (list_advances).
 */
#define WB_CONTROL_REQUESTS(X) \
    X(HELLO, hello, WB_REQUEST_BARE, hello, ONE) \
    X(VERSIONS, versions, WB_REQUEST_LOOK | WB_REQUEST_NOTHING, versions, ONE) \
    X(IDENTIFY, identify, WB_REQUEST_LOOK, identity, ONE) \
    X(CHANGES, changes, WB_REQUEST_LOOK | WB_REQUEST_NOTHING, changes, CHANGES) \
    X(NAMES, names, WB_REQUEST_SOURCE | WB_REQUEST_LOOK, names, ONE) \
    X(ENTRIES, entries, WB_REQUEST_LOOK, entries, COUNT) \
    X(EDITED, edited, WB_REQUEST_LOOK | WB_REQUEST_KEEPER, edited, EDITED) \
    X(USAGE, usage, WB_REQUEST_LOOK, usage, USAGE) \
    X(BUDGET, budget, 0, budget, ONE) \
    X(RESTORE, restore, WB_REQUEST_CHANGES | WB_REQUEST_SOURCE | WB_REQUEST_THREAD | WB_REQUEST_PLEADS | \
      WB_REQUEST_AS_OTHERS, anything, ONE) \
    X(ERASE, erase, WB_REQUEST_CHANGES | WB_REQUEST_THREAD, anything, ONE) \
    X(ERASE_BEFORE, erase_before, WB_REQUEST_CHANGES | WB_REQUEST_THREAD, anything, ONE) \
    X(ERASE_NAMES, erase_names, WB_REQUEST_CHANGES | WB_REQUEST_THREAD, erased, ONE) \
    X(ERASE_MEASURE, erase_measure, WB_REQUEST_LOOK | WB_REQUEST_HOME, anything, ONE) \
    X(ERASE_VERSIONS, erase_versions, WB_REQUEST_CHANGES | WB_REQUEST_THREAD, anything, ONE) \
    X(SNAPSHOT_CREATE, snapshot_create, WB_REQUEST_CHANGES | WB_REQUEST_THREAD | WB_REQUEST_PLEADS, snapshot, ONE) \
    X(SNAPSHOT_LIST, snapshot_list, WB_REQUEST_SOURCE | WB_REQUEST_LOOK, snapshots, COUNT) \
    X(SNAPSHOT_RENAME, snapshot_rename, WB_REQUEST_CHANGES | WB_REQUEST_THREAD | WB_REQUEST_PLEADS, anything, ONE) \
    X(SNAPSHOT_DELETE, snapshot_delete, WB_REQUEST_CHANGES | WB_REQUEST_SOURCE | WB_REQUEST_THREAD | \
      WB_REQUEST_PLEADS, anything, ONE) \
    X(SNAPSHOT_FILES, snapshot_files, WB_REQUEST_SOURCE | WB_REQUEST_LOOK, files, FILES) \
    X(COMPACT, compact, WB_REQUEST_CHANGES | WB_REQUEST_THREAD, compacted, COUNT) \
    X(PRUNE, prune, WB_REQUEST_CHANGES | WB_REQUEST_THREAD | WB_REQUEST_KEEPER, pruned, COUNT) \
    X(THIN, thin, WB_REQUEST_CHANGES | WB_REQUEST_THREAD | WB_REQUEST_KEEPER, thinned, COUNT) \
    X(MOVE, move, WB_REQUEST_CHANGES | WB_REQUEST_SOURCE | WB_REQUEST_THREAD | WB_REQUEST_RELOCATES | \
      WB_REQUEST_KEEPER, moved, ONE)
