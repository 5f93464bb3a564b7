/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of a row about one change, for people: vstat and vbrowse list changes in the same words. */

#include <stdbool.h>
#include "client/saves.h"

struct wb_version_style {
    bool directory;   /* the changes are of its entries: their names are shown elsewhere */
    bool verbose;     /* exact times and bytes, sizes before and after                   */
    const char *name; /* base name asked for                                             */
};

/*
 * A version as if it were one change: the last one of it, with the state before the first one, the range of all, and
 * the number of the version in `change` (0: a gap). `name`: base name of the path; NULL: of a directory.
 */
struct wb_control_version wb_version_describe(const struct wb_save *save, const char *name);

/* "rename from draft.txt", "setxattr user.note", "write (as .report.swp)". Not printable yet: wb_text_printable. */
char *wb_version_operation(const struct wb_version_style *style, const struct wb_control_version *version);

/* "4.0 KiB at 12 KiB", or "-" if the change affected no bytes. The caller frees this and all others with g_free. */
char *wb_version_bytes(const struct wb_version_style *style, const struct wb_control_version *version);

/* The size after the change, or "gone". */
char *wb_version_size(const struct wb_version_style *style, const struct wb_control_version *version);

/* "ann 4711 vi report.txt": the user, the process and its command, as they can be printed. */
char *wb_version_who(const struct wb_version_style *style, const struct wb_control_version *version);
