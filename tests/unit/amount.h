/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <glib.h>

/* How many: fewer under WAYBACK_QUICK, as in the pass of ./run-tests with sanitizers. */
static inline int amount(int all, int quick)
{
    const char *set = g_getenv("WAYBACK_QUICK");

    return set && *set ? quick : all;
}
