/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* NAME@TIME: the only file that knows the syntax of such names. */
#include "wayback/at_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int wb_at_sign_check(char mark)
{
    return mark != '\0' && strchr(WB_AT_SIGNS, mark) != NULL;
}

const char *wb_at_split(const char *entry, char mark, const char *later)
{
    const char *end = later ? later - 1 : entry + strlen(entry);

    while (end > entry)
        if (*--end == mark)
            return end + 1;
    return NULL;
}

char *wb_at_join(const char *name, char mark, const char *time)
{
    char *text;

    return asprintf(&text, "%s%c%s", name, mark, time) < 0 ? NULL : text;
}
