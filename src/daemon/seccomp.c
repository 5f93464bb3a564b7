/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The filter is written by hand: libseccomp would be one more dependency for a hundred lines, and knows no system call
 * that is newer than itself by name. Numbers are those of the machine that this is compiled for.
 */
#include "daemon/seccomp.h"

#include "daemon/report.h"
#include <errno.h>
#include <glib.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* New calls have the same number everywhere; C libraries do not know them all. */
#define NEW_clone3 435
#define NEW_close_range 436
#define NEW_openat2 437
#define NEW_faccessat2 439
#define NEW_fchmodat2 452
#define NEW_statmount 457
#define NEW_listmount 458

#define NUMBERS_MAX 1024

/* ---- which calls ------------------------------------------------------------------------------ */

static const int allowed[] = {
    /* Files, by descriptors and by names */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_lseek, SYS_close, NEW_close_range, SYS_dup, SYS_dup3, SYS_pipe2, SYS_fcntl, SYS_ioctl,
    SYS_flock, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_syncfs, SYS_sync, SYS_sync_file_range,
    SYS_fadvise64, SYS_readahead, SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_vmsplice, SYS_tee, SYS_openat,
    NEW_openat2, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_readlinkat, SYS_faccessat, NEW_faccessat2,
    SYS_newfstatat, SYS_fstat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_mkdirat, SYS_mknodat,
    SYS_unlinkat, SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_truncate, SYS_fchmod, SYS_fchmodat, NEW_fchmodat2,
    SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_umask, NEW_statmount,
    NEW_listmount, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
    /* Waiting */
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_futex,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_restart_syscall,
    /* Memory */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_msync, SYS_brk, SYS_mlock, SYS_munlock,
    SYS_memfd_create,
    /* Threads and what they may do: as another user (creds.h), with fewer capabilities, at lower priority */
    SYS_exit, SYS_exit_group, SYS_set_robust_list, SYS_get_robust_list, SYS_set_tid_address, SYS_membarrier,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler, SYS_getcpu, SYS_gettid,
    SYS_getpid, SYS_getppid, SYS_getpgid, SYS_getsid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setfsuid, SYS_setfsgid, SYS_setgroups, SYS_capget, SYS_capset,
    SYS_prctl, SYS_getrusage, SYS_sysinfo, SYS_uname, SYS_times, SYS_getpriority, SYS_setpriority, SYS_ioprio_get,
    SYS_ioprio_set, SYS_getrandom, SYS_wait4, SYS_waitid,
    /* Signals */
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigpending,
    SYS_rt_sigsuspend, SYS_sigaltstack,
    /* The system log */
    SYS_connect, SYS_sendto, SYS_sendmsg, SYS_recvfrom, SYS_recvmsg, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_shutdown,
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_getrlimit
    SYS_getrlimit,
#endif
    /* Older names for the same, on machines that have them: C libraries use them still. */
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_mknod, SYS_rmdir, SYS_unlink,
    SYS_rename, SYS_link, SYS_symlink, SYS_chmod, SYS_chown, SYS_lchown, SYS_dup2, SYS_pipe, SYS_poll, SYS_select,
    SYS_epoll_wait, SYS_getpgrp, SYS_time,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_riscv_flush_icache
    SYS_riscv_flush_icache,
#endif
#if defined(__SANITIZE_ADDRESS__)
    /* Leaks are looked for by another process, which stops this one. */
    SYS_ptrace, SYS_process_vm_readv,
#ifdef SYS_getdents
    SYS_getdents,
#endif
#endif
};

static const int for_io_uring[] = {
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_sched_setaffinity, SYS_mbind, SYS_get_mempolicy,
    SYS_set_mempolicy,
};

#define NAMESPACES                                                                                         \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Calls that are allowed with some arguments only. The halves that are not compared matter to none of them. */
struct rule {
    int number;
    unsigned argument;
    enum { IS, HAS_NONE_OF } how;
    uint32_t value;
};

/* ---- the program ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#define ANSWER(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#define ANSWER(context) ((context)->uc_mcontext.regs[0])
#elif defined(__riscv) && __riscv_xlen == 64
#define MACHINE AUDIT_ARCH_RISCV64
#define ANSWER(context) ((context)->uc_mcontext.__gregs[REG_A0])
#endif

#ifdef MACHINE

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LOW_HALF 0
#else
#define LOW_HALF 4
#endif

static void add(GArray *program, struct sock_filter instruction)
{
    g_array_append_val(program, instruction);
}

static void load(GArray *program, size_t offset)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer(GArray *program, uint32_t action)
{
    add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* The number is loaded, before and after. */
static void add_rule(GArray *program, const struct rule *rule)
{
    uint16_t code = BPF_JMP | BPF_K | (rule->how == IS ? BPF_JEQ : BPF_JSET);
    uint8_t matches = rule->how == IS ? 0 : 1;

    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->number, 0, 4));
    load(program, offsetof(struct seccomp_data, args) + rule->argument * sizeof(uint64_t) + LOW_HALF);
    add(program, (struct sock_filter)BPF_JUMP(code, rule->value, matches, !matches));
    answer(program, SECCOMP_RET_ALLOW);
    answer(program, SECCOMP_RET_TRAP);
}

static int compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* Ascending ranges: the first whose end is not below the number decides. */
static void add_ranges(GArray *program, GArray *numbers)
{
    const int *sorted = (const void *)numbers->data;

    g_array_sort(numbers, compare);
    for (unsigned i = 0; i < numbers->len; i++) {
        int from = sorted[i];

        while (i + 1 < numbers->len && sorted[i + 1] <= sorted[i] + 1)
            i++;
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t)sorted[i], 3, 0));
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)from, 0, 1));
        answer(program, SECCOMP_RET_ALLOW);
        answer(program, SECCOMP_RET_TRAP);
    }
}

static GArray *make_program(bool io_uring)
{
    const struct rule rules[] = {
        /* Threads, and no namespaces of their own. */
        {SYS_clone, 0, HAS_NONE_OF, NAMESPACES},
        /* A umask of the thread's own (creds.c). */
        {SYS_unshare, 0, IS, CLONE_FS},
        {SYS_umount2, 1, IS, MNT_DETACH | UMOUNT_NOFOLLOW},
        {SYS_socket, 0, IS, AF_UNIX},
        {SYS_kill, 0, IS, (uint32_t)getpid()},
        {SYS_tgkill, 0, IS, (uint32_t)getpid()},
        {SYS_prlimit64, 0, IS, 0},
    };
    GArray *program = g_array_new(FALSE, FALSE, sizeof(struct sock_filter));
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(int));

    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0));
    answer(program, SECCOMP_RET_ERRNO | ENOSYS);
    load(program, offsetof(struct seccomp_data, nr));
    /* A tracer has made it no call at all, and says what it returns. */
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1));
    answer(program, SECCOMP_RET_ALLOW);
    /* Its flags cannot be looked at. The C library makes threads by clone(2) then; as signals are blocked while it
     * does, this must not raise one. */
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NEW_clone3, 0, 1));
    answer(program, SECCOMP_RET_ERRNO | ENOSYS);
    for (unsigned i = 0; i < G_N_ELEMENTS(rules); i++)
        add_rule(program, &rules[i]);
    g_array_append_vals(numbers, allowed, G_N_ELEMENTS(allowed));
    if (io_uring)
        g_array_append_vals(numbers, for_io_uring, G_N_ELEMENTS(for_io_uring));
    add_ranges(program, numbers);
    answer(program, SECCOMP_RET_TRAP);
    return program;
}

/* ---- what was refused ------------------------------------------------------------------------- */

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
        wb_report("the daemon made system call %d, which its filter refuses; please report this (the mount option "
                  "noseccomp goes without the filter)", number);
    }
}

int wb_seccomp_enter(bool io_uring)
{
    g_autoptr(GArray) program = make_program(io_uring);
    struct sock_fprog filter = {.len = (unsigned short)program->len, .filter = (void *)program->data};
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_NODEFER};
    unsigned flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW; /* no foreign code runs here that could look at our memory */

    if (sigaction(SIGSYS, &action, NULL) < 0)
        return -errno;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) < 0 ? -errno : 0;
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
