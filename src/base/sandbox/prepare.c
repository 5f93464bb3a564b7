/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/sandbox/prepare.h"

#include <errno.h>
#include <glib.h>
#include <time.h>

#define ERRORS_MAX 256

/* As long as they are open, the C library keeps their tables. */
static GIConv kept[2];

void wb_sandbox_prepare(void)
{
    const char *charset;

    tzset();
    if (!g_get_charset(&charset) && !kept[0]) {
        kept[0] = g_iconv_open("UTF-8", charset);
        kept[1] = g_iconv_open(charset, "UTF-8");
    }
    /* GLib keeps each text. */
    for (int error = 1; error < ERRORS_MAX; error++)
        (void)g_strerror(error);
}

/* EINVAL: a flag, E2BIG: a structure, that an older kernel does not know; or too many layers of Landlock. */
bool wb_sandbox_is_missing(int r)
{
    return r == -EOPNOTSUPP || r == -EPERM || r == -ENOSYS || r == -EINVAL || r == -E2BIG;
}
