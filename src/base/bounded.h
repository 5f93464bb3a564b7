/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Reads of another process's memory, with a bounded wait. The kernel locks the memory map of that process for them
 * (/proc/PID/cmdline, /proc/PID/mem), and the process can keep it locked as long as it likes: it only has to map a file
 * of a file system of its own that does not answer. No signal but SIGKILL ends such a wait. So another thread does it.
 */

#include <sys/types.h>

/* How long a caller waits for a read that has begun. */
#define WB_BOUNDED_MS 200

/*
 * Calls work(data) in another thread and waits for its end; `uid` is the user who owns the process that is read. 0, or:
 *
 *  -ETIMEDOUT: it does not end. The caller goes on; the thread ends when the read does.
 *  -EBUSY: not called, because a read for this user did not end in time less than a minute ago, or because that was so
 *          for eight users.
 *  -ENOMEM, -EAGAIN: not called, for want of memory or threads.
 *
 * On an error the data belongs to this module, which calls discard(data) once nothing uses it.
 */
int wb_bounded_call(uid_t uid, void (*work)(void *data), void (*discard)(void *data), void *data);
