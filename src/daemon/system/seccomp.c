/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/seccomp.h"

#include "base/sandbox/filter.h"
#include "daemon/system/report.h"
#include "wayback/control.h"
#include <errno.h>
#include <glib.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define NUMBERS_MAX 1024

/* ---- which calls ------------------------------------------------------------------------------ */

static const int of_daemon[] = {
    /* As another user (creds.h), with fewer capabilities */
    SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capset,
    /* The system log, and the mount helper */
    SYS_connect, SYS_sendto, SYS_sendmsg, SYS_recvfrom, SYS_recvmsg, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_shutdown,
};

static const int for_io_uring[] = {
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_sched_setaffinity,
};

/* Of libfuse, by number: the kernel's header may be older. */
#define FUSE_CLONE _IOR(229, 0, uint32_t)
#define FUSE_BACKING_OPEN _IOW(229, 1, char[16])
#define FUSE_BACKING_CLOSE _IOW(229, 2, uint32_t)

static const uint32_t ioctls_of_daemon[] = {WB_CONTROL_IOCTL, FUSE_CLONE, FUSE_BACKING_OPEN, FUSE_BACKING_CLOSE};

/* ---- what was refused ------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define ANSWER(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ANSWER(context) ((context)->uc_mcontext.regs[0])
#elif defined(__riscv) && __riscv_xlen == 64
#define ANSWER(context) ((context)->uc_mcontext.__gregs[REG_A0])
#endif

#ifdef ANSWER

/* Process-wide, as signals are. */
static struct {
    _Atomic uint64_t refused[NUMBERS_MAX / 64];
    uint64_t reported[NUMBERS_MAX / 64];
} calls;

/* In the thread that made the call, which may hold any lock. */
static void on_refused(int signal, siginfo_t *info, void *data)
{
    ucontext_t *context = data;
    int number = info->si_syscall, error = errno;

    (void)signal;
    if (number >= 0 && number < NUMBERS_MAX) {
        uint64_t bit = UINT64_C(1) << (number % 64);

        if (!(atomic_fetch_or(&calls.refused[number / 64], bit) & bit))
            kill(getpid(), WB_SECCOMP_REFUSED);
    }
    ANSWER(context) = -ENOSYS;
    errno = error;
}

void wb_seccomp_report(void)
{
    for (int number = 0; number < NUMBERS_MAX; number++) {
        uint64_t bit = UINT64_C(1) << (number % 64);

        if (!(atomic_load(&calls.refused[number / 64]) & bit) || calls.reported[number / 64] & bit)
            continue;
        calls.reported[number / 64] |= bit;
        wb_log_msg("the daemon made system call %d, which its filter refuses; please report this (the mount option "
                   "noseccomp disables the filter)",
                   number);
    }
}

int wb_seccomp_enter(bool io_uring)
{
    const struct wb_filter_rule rules[] = {
        /* Threads, and no namespaces of their own. */
        {SYS_clone, 0, WB_FILTER_HAS_NONE_OF, WB_FILTER_NAMESPACES},
        /* A umask of the thread's own (creds.c). */
        {SYS_unshare, 0, WB_FILTER_IS, CLONE_FS},
        {SYS_socket, 0, WB_FILTER_IS, AF_UNIX},
        {SYS_kill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_tgkill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_prlimit64, 0, WB_FILTER_IS, 0},
    };
    const struct wb_filter_list lists[] = {
        wb_filter_basic,
        {of_daemon, G_N_ELEMENTS(of_daemon)},
        {for_io_uring, G_N_ELEMENTS(for_io_uring)},
    };
    const struct wb_filter filter = {
        .lists = lists, .list_count = io_uring ? 3 : 2,
        .rules = rules, .rule_count = G_N_ELEMENTS(rules),
        .ioctls = ioctls_of_daemon, .ioctl_count = G_N_ELEMENTS(ioctls_of_daemon),
        .changes = true, .refused = SECCOMP_RET_TRAP,
    };
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (sigaction(SIGSYS, &action, NULL) < 0)
        return -errno;
    return wb_filter_enter(&filter);
}

#else

int wb_seccomp_enter(bool io_uring)
{
    (void)io_uring;
    return -EOPNOTSUPP;
}

void wb_seccomp_report(void)
{
}

#endif
