/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/spend.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local uid_t spender;

void wb_spend_for(uid_t uid)
{
    spender = uid;
}

/* The system call itself: the C library's function of that name may change all threads. Returns the previous user. */
static uid_t set_user(uid_t uid)
{
    return (uid_t)syscall(SYS_setfsuid, uid);
}

bool wb_spend_begin(gid_t group)
{
    uid_t before;

    if (spender == 0)
        return false;
    before = set_user(spender);
    if (before == 0) {
        syscall(SYS_setfsgid, group);
        return true;
    }
    if (before != spender)
        set_user(before);
    return false;
}

void wb_spend_end(bool changed)
{
    int error = errno;

    /* When the user is 0 again, the kernel restores the capabilities for files. */
    if (changed) {
        syscall(SYS_setfsgid, getegid());
        set_user(0);
    }
    errno = error;
}
