/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The file wayback.conf in a store: where it is, whether it has changed, reading it. The daemon serves the tree even
 * if the file has mistakes.
 */

#include "daemon/options/options.h"
#include "policy/config.h"
#include <sys/stat.h>

/* Identifies one state of the file. */
struct wb_config_stamp {
    bool there;
    ino_t ino;
    off_t size;
    struct timespec mtime, ctime;
};

/* Whether the file in the store differs from `stamp`, which is updated. */
bool wb_config_file_changed(int store_fd, struct wb_config_stamp *stamp);

/* Called with one line for each mistake: FILE:LINE:COLUMN: text. */
typedef void (*wb_config_report)(const char *line, void *data);

/*
 * Reads `name` in dir_fd; messages call it `label`. If there is no such file: -ENOENT, and *ret has the defaults. Else
 * 0, or a negative errno after `report` was called at least once, and *ret must not be used. Call wb_config_deinit in
 * any case.
 */
int wb_config_file_read(int dir_fd, const char *name, const char *label, struct wb_config *ret,
                        wb_config_report report, void *data);

/* Where it is, for messages. g_free. */
char *wb_config_file_path(const char *source, const char *store);

/* A new store gets comments that teach; a file that is there already stays. 0 or -errno. */
int wb_config_file_make(int store_fd);

/* Says what is kept from now on, where a history has just begun (config_new.c). */
struct wb_session;
void wb_config_report_new(const struct wb_session *session);

/* `wayback --check-config` and `--config-path`: the exit status. */
int wb_config_check(const struct wb_options *options);

/* Prints wrong usage as JSON (docs/json.md), where --json is given. */
void wb_config_check_refuse(const char *message);
int wb_config_path(const struct wb_options *options);
