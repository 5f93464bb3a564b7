/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The messages of the running daemon: lines to standard error in the foreground, to syslog in the background. libfuse's
 * own messages are written to the same place.
 */

#include <stdbool.h>

void wb_log_msg_init(bool syslog);
void wb_log_msg(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* libfuse's last message, without its newline: why a mount failed. "" if there was none. */
const char *wb_report_last_of_fuse(void);
/* From now on libfuse's messages are kept for wb_report_last_of_fuse, or reported again. */
void wb_report_hold_fuse(bool hold);
