/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/report.h"

#include "wayback/quote.h"
#include <fuse_log.h>
#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

/* Process-wide, like standard error itself. */
static struct {
    bool syslog;
    bool hold;
    char last[512];
} sink;

/* `text` may have names in it, which must not write lines of their own. */
static void put_line(const char *bytes)
{
    char text[1024];

    wb_quote_into(text, sizeof(text), bytes);
    if (sink.syslog)
        syslog(LOG_WARNING, "%s", text);
    else
        fprintf(stderr, "wayback: %s\n", text);
}

static void from_fuse(enum fuse_log_level level, const char *format, va_list args)
{
    char text[512];

    if (level >= FUSE_LOG_DEBUG && !sink.syslog) {
        vfprintf(stderr, format, args); /* numbers only, unless somebody asked for all of it (-d) */
        return;
    }
    vsnprintf(text, sizeof(text), format, args);
    g_strchomp(text);
    if (sink.hold)
        g_strlcpy(sink.last, text, sizeof(sink.last));
    else
        put_line(text);
}

void wb_log_msg_init(bool syslog)
{
    sink.syslog = syslog;
    if (syslog)
        openlog("wayback", LOG_PID, LOG_DAEMON);
    fuse_set_log_func(from_fuse);
}

void wb_report_hold_fuse(bool hold)
{
    sink.hold = hold;
    if (hold)
        sink.last[0] = '\0';
}

const char *wb_report_last_of_fuse(void)
{
    return sink.last;
}

void wb_log_msg(const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    put_line(text);
}
