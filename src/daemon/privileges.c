/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/privileges.h"

#include "daemon/report.h"
#include "daemon/seccomp.h"
#include <errno.h>
#include <glib.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))

/* Files of all users, whatever their modes; owners, modes and times as users change them. */
#define FILES (BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_CHOWN) | BIT(CAP_FOWNER) | BIT(CAP_FSETID))
/* What is created is created as the caller (creds.h), devices among it. */
#define CREATION (BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_MKNOD))
/* security.capability; immutable and append-only files; trusted.* and the rest of security.*; to unmount at the end. */
#define ATTRIBUTES (BIT(CAP_SETFCAP) | BIT(CAP_LINUX_IMMUTABLE) | BIT(CAP_SYS_ADMIN))

/* Where /proc hides the processes of others, who a caller is can be read by who might trace him. */
static bool proc_hides(void)
{
    g_autofree char *table = NULL;

    return g_file_get_contents("/proc/self/mounts", &table, NULL, NULL) &&
           g_regex_match_simple("^\\S+ /proc proc \\S*hidepid=(?!0|off)", table, G_REGEX_MULTILINE, 0);
}

/* capset(2) changes the calling thread alone, and there is no other yet. */
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

/* What was memory to write is not executed: Linux 6.3. */
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
#define MDWE_REFUSE_EXEC_GAIN 1

/*
 * Not given up with the rest: being dumpable. Only root could look into a process of root, and where a container's root
 * may not trace, whoever mounts a moment of a covered tree would no longer find the way below (control.h, pid).
 */
void wb_privileges_drop(const struct wb_options *options)
{
    uint64_t kept = FILES | CREATION | ATTRIBUTES;
    int r;

    if (geteuid() != 0)
        return;
    if (proc_hides())
        kept |= BIT(CAP_SYS_PTRACE);
    /* A container's root may not be allowed to (EPERM); without set-user-ID programs it makes no difference. */
    for (unsigned i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++)
        if (!(kept & BIT(i)))
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* Without the filter, all that is ever executed from here on is fusermount3, which needs nothing that root has not
     * got. */
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
    r = keep_only(kept);
    if (r < 0)
        wb_report("capabilities that are not needed stay: %s", strerror(-r));
    r = options->noseccomp ? 0 : wb_seccomp_enter(strstr(options->fuse->str, "io_uring") != NULL);
    if (r < 0)
        wb_report("system calls are not filtered: %s", strerror(-r));
}
