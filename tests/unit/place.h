/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A new directory for the files of a test. */

#include <check.h>
#include <glib.h>
#include <stdlib.h>

#define PLACE_SIZE 192

/* In WAYBACK_TEST_DIR, or in /var/tmp. */
static inline void make_place(char path[PLACE_SIZE], const char *name)
{
    const char *base = g_getenv("WAYBACK_TEST_DIR");

    ck_assert_int_lt(g_snprintf(path, PLACE_SIZE, "%s/wayback-%s-XXXXXX", base ? base : "/var/tmp", name), PLACE_SIZE);
    ck_assert_ptr_nonnull(mkdtemp(path));
}
