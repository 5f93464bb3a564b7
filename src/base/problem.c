/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/error.h"

#include <stdarg.h>
#include <stdio.h>

int wb_problem_set(struct wb_problem *why, int error, const char *format, ...)
{
    va_list args;

    if (!why)
        return error;
    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);

    /* One line is promised, and names may hold anything. */
    for (char *c = why->text; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
    return error;
}
