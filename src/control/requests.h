/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The requests of <wayback/control.h> in one table, from which come their dispatch in the daemon (ops_control.c), what
 * each needs there, and the checks of replies (control_check.c). The header for tools has their numbers.
 */

enum {
    WB_REQUEST_CHANGES = 1 << 0,   /* the tree or the store: not through a read-only mount               */
    WB_REQUEST_SOURCE = 1 << 1,    /* `source` is text                                                   */
    WB_REQUEST_THREAD = 1 << 2,    /* may wait for others, or invalidates the kernel's cache             */
    WB_REQUEST_NOTHING = 1 << 3,   /* without a history the answer is "none", and not an error           */
    WB_REQUEST_RELOCATES = 1 << 4, /* takes relocate_lock exclusively by itself, with THREAD             */
    WB_REQUEST_PLEADS = 1 << 5,    /* waits for room where the store has none, as any change (enospc_retry.h) */
    WB_REQUEST_HOME = 1 << 6,      /* for callers in the daemon's namespaces (caller.h); CHANGES implies it */
    WB_REQUEST_AS_OTHERS = 1 << 7, /* callers outside of them are refused like other users, and may do it otherwise */
    WB_REQUEST_LOOK = 1 << 8,      /* looks back, and may take long                                      */
    WB_REQUEST_KEEPER = 1 << 9,    /* for root and the user who mounted, in the daemon's namespaces      */
    WB_REQUEST_BARE = 1 << 10,     /* needs no history and has no path                                   */
};

/*
 * X(NAME, name, flags, reply, list): WB_CONTROL_NAME is carried out by wb_control_name, check_`reply` checks what it
 * returns, and `list` is how a list of several replies ends (list_advances).
 */
#define WB_CONTROL_REQUESTS(X) \
    X(HELLO, hello, WB_REQUEST_BARE, hello, ONE) \
    X(VERSIONS, versions, WB_REQUEST_LOOK | WB_REQUEST_NOTHING, versions, ONE) \
    X(IDENTIFY, identify, WB_REQUEST_LOOK, identity, ONE) \
    X(CHANGES, changes, WB_REQUEST_LOOK | WB_REQUEST_NOTHING, changes, CHANGES) \
    X(NAMES, names, WB_REQUEST_SOURCE | WB_REQUEST_LOOK, names, ONE) \
    X(ENTRIES, entries, WB_REQUEST_LOOK, entries, COUNT) \
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
