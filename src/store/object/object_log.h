/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The log of an object, opened for reading: its file in the store, and a reader on it. Most objects have no undo log,
 * and many directories no catalog, so a missing log is an outcome, not an error: there are no records of the object.
 */

#include "store/log/log.h"
#include "store/store.h"

struct wb_object_log {
    int fd; /* -1: not open */
    struct wb_log_reader reader;
};
#define WB_OBJECT_LOG_CLOSED {.fd = -1}

/* 1: open, with the reader at the tail; 0: the log does not exist; or -errno. Works without the lock. */
int wb_object_log_open(struct wb_object_log *log, const struct wb_store *store, struct wb_object object,
                       enum wb_object_file file);
void wb_object_log_close(struct wb_object_log *log);
#define _cleanup_object_log_ __attribute__((cleanup(wb_object_log_close)))
