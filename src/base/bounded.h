/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Bounded waits for reads of another process's memory. For such a read (/proc/PID/cmdline, /proc/PID/mem) the kernel
 * locks the memory map of that process, and the process can keep it locked as long as it likes: it only has to map a
 * file of a file system of its own that does not answer. No signal but SIGKILL ends such a wait. So another thread
 * makes the read.
 */

#include <sys/types.h>

/* How long a caller waits for a read that has begun. */
#define WB_BOUNDED_MS 200

/*
 * Calls work(data) in another thread and waits for its end; `uid` is the user who owns the process that is read.
 * Returns 0, or:
 *
 * - -ETIMEDOUT: the read did not end in time. The caller continues; the thread ends when the read does.
 * - -EBUSY: not called, because a read for this user exceeded the limit less than a minute ago, or because reads for
 *   eight users did.
 * - -ENOMEM, -EAGAIN: not called, because there was no memory or no thread for it.
 *
 * On an error this module owns the data and calls discard(data) once nothing uses it.
 */
int wb_bounded_call(uid_t uid, void (*work)(void *data), void (*discard)(void *data), void *data);
