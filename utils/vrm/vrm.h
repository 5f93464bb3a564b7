/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What patterns of paths find below a directory, among names that are there and names that were. Below a directory that
 * was removed, each that ever had its name is looked into; what moved away is found under the name it has now.
 */

#include <glib.h>
#include <stdbool.h>
#include "common/mount.h"
#include "wayback/pattern.h"

struct vrm_hit {
    char *path;   /* in the mount, as requests take it */
    char *shown;  /* as people see it                  */
    bool former;  /* below a directory that is no more */
};

/* Of struct vrm_hit, in the order of a walk; g_ptr_array_unref. What could not be looked at was told as an error. */
GPtrArray *vrm_find(const struct wb_place *place, const struct wb_patterns *patterns);
