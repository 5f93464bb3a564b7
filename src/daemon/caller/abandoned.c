/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/caller/abandoned.h"

#include "base/cleanup.h"
#include "base/interrupt.h"
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The kernel gives a thread SIGKILL for any signal that ends its process, pending until the thread ends. */
static bool is_ending(pid_t thread)
{
    static const char field[] = "\nSigPnd:\t";
    _cleanup_close_ int fd = -1;
    char path[64], text[4096], *found;
    ssize_t n;

    if (thread <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    found = strstr(text, field);
    return found && g_ascii_strtoull(found + strlen(field), NULL, 16) & UINT64_C(1) << (SIGKILL - 1);
}

static bool is_abandoned(void *data)
{
    fuse_req_t req = data;

    return fuse_req_interrupted(req) && is_ending(fuse_req_ctx(req)->pid);
}

void wb_abandoned_watch(fuse_req_t req)
{
    wb_interrupt_watch(req ? is_abandoned : NULL, req);
}
