/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/sandbox/capabilities.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* capset(2) changes only the calling thread, and there is no other thread yet. */
static int keep_only(uint64_t kept)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    for (unsigned i = 0; i < 2; i++) {
        uint32_t part = (uint32_t)(kept >> (32 * i));

        data[i].permitted &= part;
        data[i].effective &= part;
        data[i].inheritable = 0;
    }
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Memory that was once writable cannot become executable: Linux 6.3. */
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#define MDWE_REFUSE_EXEC_GAIN 1

int wb_capabilities_keep(uint64_t kept)
{
    /* The root user of a container may lack this permission (EPERM); without set-user-ID programs it makes no
     * difference. */
    for (unsigned i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        if (!(kept & WB_CAP(i)))
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* From here on the process executes no program, except fusermount3 if the filter is disabled, and that needs no
     * privilege that root does not have. */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
    return keep_only(kept);
}
