/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/sandbox/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/audit.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* New calls have the same number on all machines; not all C libraries define them. */
#define NEW_clone3 435
#define NEW_close_range 436
#define NEW_openat2 437
#define NEW_faccessat2 439
#define NEW_fchmodat2 452
#define NEW_statmount 457
#define NEW_listmount 458

/* ---- lists of calls --------------------------------------------------------------------------- */

static const int basic[] = {
    /* Files, by descriptors and by names */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
    SYS_pwritev2, SYS_lseek, SYS_close, NEW_close_range, SYS_dup, SYS_dup3, SYS_pipe2, SYS_fcntl, SYS_ioctl,
    SYS_flock, SYS_fsync, SYS_fdatasync, SYS_syncfs, SYS_sync, SYS_sync_file_range,
    SYS_fadvise64, SYS_readahead, SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_vmsplice, SYS_tee, SYS_openat,
    NEW_openat2, SYS_name_to_handle_at, SYS_readlinkat, SYS_faccessat, NEW_faccessat2,
    SYS_newfstatat, SYS_fstat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir,
    SYS_umask, NEW_statmount, NEW_listmount, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr,
    SYS_llistxattr, SYS_flistxattr,
    /* Waiting */
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_eventfd2, SYS_futex,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_restart_syscall,
    /* Memory */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_msync, SYS_brk, SYS_mlock, SYS_munlock,
    SYS_memfd_create,
    /* Threads, and processes */
    SYS_exit, SYS_exit_group, SYS_set_robust_list, SYS_get_robust_list, SYS_set_tid_address, SYS_membarrier,
    SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_getparam, SYS_sched_getscheduler, SYS_getcpu, SYS_gettid,
    SYS_getpid, SYS_getppid, SYS_getpgid, SYS_getsid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_capget, SYS_prctl,
    SYS_getrusage, SYS_sysinfo, SYS_uname, SYS_times, SYS_getpriority, SYS_setpriority, SYS_ioprio_get,
    SYS_ioprio_set, SYS_getrandom, SYS_wait4, SYS_waitid,
    /* Signals */
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigtimedwait, SYS_rt_sigpending,
    SYS_rt_sigsuspend, SYS_sigaltstack,
#ifdef SYS_rseq
    SYS_rseq,
#endif
#ifdef SYS_getrlimit
    SYS_getrlimit,
#endif
    /* Older forms of the same calls, on machines that have them: C libraries still use them. */
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_dup2, SYS_pipe, SYS_poll, SYS_select,
    SYS_epoll_wait, SYS_getpgrp, SYS_time,
#endif
#ifdef SYS_arch_prctl
    SYS_arch_prctl,
#endif
#ifdef SYS_riscv_flush_icache
    SYS_riscv_flush_icache,
#endif
#if defined(__SANITIZE_ADDRESS__)
    /* The leak checker is another process, which stops this one. */
    SYS_ptrace, SYS_process_vm_readv,
#ifdef SYS_getdents
    SYS_getdents,
#endif
#endif
};

static const int changes[] = {
    SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_renameat2, SYS_linkat,
    SYS_symlinkat, SYS_fchmod, SYS_fchmodat, NEW_fchmodat2, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_setxattr,
    SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
#ifdef SYS_open
    SYS_mkdir, SYS_mknod, SYS_rmdir, SYS_unlink, SYS_rename, SYS_link, SYS_symlink, SYS_chmod, SYS_chown, SYS_lchown,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
};

const struct wb_filter_list wb_filter_basic = {basic, G_N_ELEMENTS(basic)};

/* ---- arguments --------------------------------------------------------------------------------- */

/* Its own definition needs a header that excludes that of the C library. */
#define NEW_TCGETS2 _IOR('T', 0x2a, char[44])

/*
 * Those that every filter allows, if it allows ioctl(2): about files and descriptors, and whether it is a terminal.
 * Others would type into a terminal (TIOCSTI, TIOCLINUX), change its keys, or, with CAP_SYS_ADMIN, freeze the file
 * system.
 */
static const uint32_t ioctls[] = {
    FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_GETVERSION, FS_IOC_FIEMAP, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX,
    TCGETS, NEW_TCGETS2, TIOCGWINSZ,
};
static const uint32_t changing_ioctls[] = {
    FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FICLONE, FICLONERANGE, FIDEDUPERANGE,
};

/* They choose the process that gets a signal when a descriptor is ready. O_ASYNC alone chooses the foreground processes
 * of a terminal. */
static const uint32_t owners[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};

/* ---- the program ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define MACHINE AUDIT_ARCH_RISCV64
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

static void load_argument(GArray *program, unsigned argument)
{
    load(program, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t) + LOW_HALF);
}

/* The accumulator holds the number of the call before and after. */
static void add_rule(GArray *program, const struct wb_filter_rule *rule, uint32_t refused)
{
    uint16_t code = BPF_JMP | BPF_K | (rule->how == WB_FILTER_IS ? BPF_JEQ : BPF_JSET);
    uint8_t matches = rule->how == WB_FILTER_IS ? 0 : 1;

    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->number, 0, 4));
    load_argument(program, rule->argument);
    add(program, (struct sock_filter)BPF_JUMP(code, rule->value, matches, !matches));
    answer(program, SECCOMP_RET_ALLOW);
    answer(program, refused);
}

/* Begins instructions about one call: others jump over them. Returns its place, for end_call. */
static guint begin_call(GArray *program, uint32_t number, unsigned argument)
{
    guint at = program->len;

    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0));
    load_argument(program, argument);
    return at;
}

static void end_call(GArray *program, guint at)
{
    load(program, offsetof(struct seccomp_data, nr));
    g_array_index(program, struct sock_filter, at).jf = (uint8_t)(program->len - at - 1);
}

static void add_ioctls(GArray *program, const struct wb_filter *filter)
{
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    guint at = begin_call(program, SYS_ioctl, 1);

    g_array_append_vals(all, ioctls, G_N_ELEMENTS(ioctls));
    if (filter->changes)
        g_array_append_vals(all, changing_ioctls, G_N_ELEMENTS(changing_ioctls));
    g_array_append_vals(all, filter->ioctls, (guint)filter->ioctl_count);
    for (guint i = 0; i < all->len; i++)
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, g_array_index(all, uint32_t, i),
                                                  (uint8_t)(all->len - i), 0));
    answer(program, filter->refused);
    end_call(program, at);
}

static void add_fcntl(GArray *program, uint32_t refused)
{
    guint at = begin_call(program, SYS_fcntl, 1);

    for (size_t i = 0; i < G_N_ELEMENTS(owners); i++)
        add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, owners[i],
                                                  (uint8_t)(G_N_ELEMENTS(owners) - i + 2), 0));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETFL, 0, 3));
    load_argument(program, 2);
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ASYNC, 0, 1));
    answer(program, refused);
    end_call(program, at);
}

static int compare(const void *a, const void *b)
{
    return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* Ascending ranges: the first whose end is not below the number decides. */
static void add_ranges(GArray *program, GArray *numbers, uint32_t refused)
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
        answer(program, refused);
    }
}

static GArray *make_program(const struct wb_filter *filter)
{
    GArray *program = g_array_new(FALSE, FALSE, sizeof(struct sock_filter));
    g_autoptr(GArray) numbers = g_array_new(FALSE, FALSE, sizeof(int));

    load(program, offsetof(struct seccomp_data, arch));
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0));
    answer(program, SECCOMP_RET_ERRNO | ENOSYS);
    load(program, offsetof(struct seccomp_data, nr));
    /* A tracer set the number to -1 to cancel the call and to choose its result. */
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1));
    answer(program, SECCOMP_RET_ALLOW);
    /* The filter cannot read its flags. The C library then creates threads with clone(2); it blocks signals during
     * that, so this must not raise one. */
    add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NEW_clone3, 0, 1));
    answer(program, SECCOMP_RET_ERRNO | ENOSYS);
    add_ioctls(program, filter);
    add_fcntl(program, filter->refused);
    for (size_t i = 0; i < filter->rule_count; i++)
        add_rule(program, &filter->rules[i], filter->refused);
    for (size_t i = 0; i < filter->list_count; i++)
        g_array_append_vals(numbers, filter->lists[i].numbers, (unsigned)filter->lists[i].count);
    if (filter->changes)
        g_array_append_vals(numbers, changes, G_N_ELEMENTS(changes));
    add_ranges(program, numbers, filter->refused);
    answer(program, filter->refused);
    return program;
}

int wb_filter_enter(const struct wb_filter *filter)
{
    g_autoptr(GArray) program = make_program(filter);
    struct sock_fprog compiled = {.len = (unsigned short)program->len, .filter = (void *)program->data};
    unsigned flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW; /* no untrusted code runs in this process that could read its
                                                      * memory */

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &compiled) < 0 ? -errno : 0;
}

#else

int wb_filter_enter(const struct wb_filter *filter)
{
    (void)filter;
    return -EOPNOTSUPP;
}

#endif
