/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The copy that `vsend --to` updates: a directory that vreceive serves, here or by ssh(1) on another machine. */

#include "wayback/copy.h"
#include <stdbool.h>

enum wb_target_result {
    WB_TARGET_UNREACHABLE = 1, /* the connection failed; no error line was printed for it, and a retry may succeed */
};

struct wb_send_target {
    const char *name; /* as typed */
    char *directory;
    char *host; /* NULL: here */
    char **remote_shell;
    int pid; /* of the receiver, 0: none */
    int fd;  /* where the stream goes, -1 */
};

/*
 * DIR or HOST:DIR; the name of a directory that exists is one here. `shell`: a command instead of ssh, or NULL. 0, or
 * WB_EXIT_USAGE after an error line. Freed with wb_send_target_clear.
 */
int wb_send_target_parse(const char *text, const char *shell, struct wb_send_target *ret);
void wb_send_target_clear(struct wb_send_target *target);

/* Asks for the state of the copy. 0, WB_TARGET_UNREACHABLE, or -errno after an error line. */
int wb_send_target_status(struct wb_send_target *target, struct wb_copy_point *ret);

/* Starts the receiver; then the stream goes to target->fd. 0, or -errno after an error line. */
int wb_send_target_open(struct wb_send_target *target);

/*
 * Ends the stream and waits for the receiver. 0: the copy has all that was sent; WB_TARGET_UNREACHABLE; or -errno after
 * an error line, unless `failed`: there was one about the sender.
 */
int wb_send_target_close(struct wb_send_target *target, bool failed);
