/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One name that is erased on request: what of it is found, and what becomes of it. */

#include "daemon/control/control.h"
#include "maintain/erase/erase.h"

struct wb_erasing {
    const struct wb_request *request;
    const char *path;          /* as asked, and WB_CONTROL_ERASE_* */
    unsigned flags;
    struct wb_spot *spot_dir;  /* the directory as history knows it */
    char *name;
    struct wb_live *dir;       /* and as it is now; NULL: it is gone */
    bool present;              /* dir/name is there now */
    bool is_dir;
    unsigned depth;
    int result;                /* positive outcomes as well */
    struct wb_erase_count count;
    struct wb_erase_freed freed; /* of a directory that is there, before its entries are removed */
};

/*
 * All but the past: finds it, whether the caller may, and removes what is there if that is to go. `result`: 0, or why
 * nothing more is to be done.
 */
void wb_erase_present(struct wb_erasing *erase);

/* Finds it, and whether the caller may erase it; nothing changes. Fills `freed`. */
void wb_erase_look(struct wb_erasing *erase);

void wb_erasing_release(struct wb_erasing *erase);
