/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/error.h"

#include "wayback/quote.h"
#include <stdarg.h>
#include <stdio.h>

int wb_error_set(struct wb_error *why, int error, const char *format, ...)
{
    char text[sizeof(why->text)];
    va_list args;

    if (!why)
        return error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* The text must be one line, and names may contain any byte. */
    wb_quote_into(why->text, sizeof(why->text), text);
    return error;
}
