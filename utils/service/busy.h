/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The processes that use a mount, as far as the caller may see them. */

#include <glib.h>
#include <sys/types.h>

struct wb_holder {
    pid_t pid;
    char *command; /* "bash"                                                 */
    char *use;     /* "stands in DIR", "has DIR/f open", "runs DIR/program"   */
};

/* All but this process and `daemon`; an array of struct wb_holder *, g_ptr_array_unref. */
GPtrArray *wb_busy_find(const char *mountpoint, pid_t daemon);

/* "bash 4711 (stands in DIR), vim 4712 (has DIR/f open) and 3 more"; g_free. "": nobody is seen. */
char *wb_busy_print(const GPtrArray *holders);
