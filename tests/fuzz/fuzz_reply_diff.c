/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz_reply.h"

#include "vsnap/diff.h"

void fuzz_compare(const struct wb_mount *mount)
{
    struct diff diff = {.mount = mount, .given = ".", .path = "", .when = {1, 2}};

    diff_compare(&diff, (char *const[2]){(char *)"d", (char *)"e"});
    diff_clear(&diff);
}
