/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * tracer [--mapped] CONTROL SRC STORE PROGRAM ARGUMENTS...
 *
 * Runs a program under ptrace and, at the N-th of the system calls it has to count, kills the
 * program, or lets that call fail, or lets it write less than it was asked to. CONTROL is a file that is
 * mapped here and by the test: orders are written to it, and the call that was met is read from it, without
 * any system call, so nothing is disturbed.
 *
 * Killed is the whole program, with SIGKILL, while it stops at the entry of the call: the kernel
 * then leaves the call out. A call that is to fail is left out as well (its number is made one that
 * does not exist), and the error is put in place of the answer.
 *
 * A store of the program into a mapping is no call, so it would never be killed just before or after. Therefore it gets
 * no mapping of the kind that the store's `inflight` is mapped with, and has to write instead; unless --mapped is
 * given.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define FCHMODAT2 452 /* newer than some C libraries */

#ifndef __x86_64__
#error "registers are known for x86_64 only"
#endif

enum { COUNT_ALL, COUNT_TREE, COUNT_CHANGES, COUNT_READS };
enum { DO_NOTHING, DO_KILL, DO_FAIL, DO_SHORTEN, DO_SHORTEN_THEN_FAIL };

struct control {
    _Atomic uint32_t armed;  /* counts only while this is set, and `watching` */
    _Atomic uint32_t what;   /* COUNT_ */
    _Atomic uint32_t action; /* DO_ */
    _Atomic uint32_t target; /* at which call; 1 is the first */
    _Atomic uint32_t error;
    _Atomic uint32_t more;   /* how many of the calls after it fail as well */
    _Atomic uint32_t count;  /* met so far */
    _Atomic uint32_t done;   /* it was met */
    _Atomic uint32_t number; /* which system call it was */
    _Atomic uint32_t tracer;   /* process id: SIGUSR1 makes it notice that it is armed */
    _Atomic uint32_t watching; /* it has: each thread was at a call since */
    _Atomic uint32_t busy;     /* a call is being examined; its action is still to be taken */
    char path[464];            /* the path the call was for */
};

/* The arguments that name the files of a call. Bits of `changes`: it changes files; 2: only with O_CREAT or O_TRUNC. */
enum { FD, FD2, AT, AT2, PATH };
struct call {
    long number;
    int where, second; /* number of the argument; -1: none */
    int kind;
    int changes;
};

#define R(name, kind, where) {SYS_##name, where, -1, kind, 0}
#define W(name, kind, where) {SYS_##name, where, -1, kind, 1}
static const struct call calls[] = {
    W(write, FD, 0), W(writev, FD, 0), W(pwrite64, FD, 0), W(pwritev, FD, 0), W(pwritev2, FD, 0),
    W(ftruncate, FD, 0), W(fallocate, FD, 0), W(fchmod, FD, 0), W(fchown, FD, 0),
    W(fsetxattr, FD, 0), W(fremovexattr, FD, 0), W(fsync, FD, 0), W(fdatasync, FD, 0), W(syncfs, FD, 0),
    W(ioctl, FD, 0), {SYS_copy_file_range, 0, 2, FD2, 1}, W(sendfile, FD, 0), W(splice, FD, 2),
    W(truncate, PATH, 0), W(chmod, PATH, 0), W(chown, PATH, 0), W(lchown, PATH, 0), W(rename, PATH, 0),
    W(setxattr, PATH, 0), W(lsetxattr, PATH, 0), W(removexattr, PATH, 0), W(lremovexattr, PATH, 0),
    W(unlink, PATH, 0), W(mkdir, PATH, 0), W(rmdir, PATH, 0), W(symlink, PATH, 1), W(link, PATH, 1),
    W(mkdirat, AT, 0), W(mknodat, AT, 0), W(unlinkat, AT, 0), W(fchownat, AT, 0), W(fchmodat, AT, 0),
    {FCHMODAT2, 0, -1, AT, 1},
    W(utimensat, AT, 0), {SYS_symlinkat, 1, -1, AT, 1},
    {SYS_renameat, 0, 2, AT2, 1}, {SYS_renameat2, 0, 2, AT2, 1}, {SYS_linkat, 0, 2, AT2, 1},
    {SYS_openat, 0, -1, AT, 2},
    R(read, FD, 0), R(readv, FD, 0), R(pread64, FD, 0), R(preadv, FD, 0), R(lseek, FD, 0),
    R(fstat, FD, 0), R(getdents64, FD, 0), R(fgetxattr, FD, 0), R(flistxattr, FD, 0),
    R(fstatfs, FD, 0), R(flock, FD, 0), R(newfstatat, AT, 0), R(statx, AT, 0), R(readlinkat, AT, 0),
    R(faccessat, AT, 0), R(faccessat2, AT, 0), R(stat, PATH, 0), R(lstat, PATH, 0), R(access, PATH, 0),
    R(getxattr, PATH, 0), R(lgetxattr, PATH, 0), R(listxattr, PATH, 0), R(llistxattr, PATH, 0),
    R(open, PATH, 0), R(readlink, PATH, 0), R(statfs, PATH, 0),
};

static struct control *control;
static const char *trees[2];
static pid_t leader;

#define THREADS 256
static struct thread {
    pid_t id;
    int error;    /* of the call it is in, which is to fail; 0: it is not affected */
    bool watched; /* it stops at its calls, and has done so */
} threads[THREADS];

static void die(const char *what)
{
    fprintf(stderr, "tracer: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* ---- the files of a call --------------------------------------------------------------------- */

static bool read_string(pid_t thread, uint64_t address, char path[PATH_MAX])
{
    size_t length = 0;

    /* Page by page: the next one may not be there. */
    while (length < PATH_MAX - 1) {
        size_t piece = 4096 - (address + length) % 4096;
        struct iovec to = {path + length, piece < PATH_MAX - 1 - length ? piece : PATH_MAX - 1 - length};
        struct iovec from = {(void *)(uintptr_t)(address + length), to.iov_len};

        if (process_vm_readv(thread, &to, 1, &from, 1, 0) <= 0)
            return false;
        length += to.iov_len;
        path[length] = '\0';
        if (memchr(path, '\0', length))
            return true;
    }
    return false;
}

static bool descriptor_path(pid_t thread, int fd, char path[PATH_MAX])
{
    char link[64];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/%d/%s", (int)thread, fd == AT_FDCWD ? "cwd" : "");
    if (fd != AT_FDCWD)
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)thread, fd);
    length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool is_ours(const char *path)
{
    for (unsigned i = 0; i < 2; i++) {
        size_t length = strlen(trees[i]);

        if (strncmp(path, trees[i], length) == 0 && (path[length] == '/' || path[length] == '\0' || path[length] == ' '))
            return true;
    }
    return false;
}

static bool path_of(pid_t thread, const struct call *call, const uint64_t *args, int where, char path[PATH_MAX])
{
    static const char proc[] = "/proc/self/fd/";
    bool at = call->kind == AT || call->kind == AT2;
    size_t length;
    char name[PATH_MAX];

    if (call->kind == FD || call->kind == FD2)
        return descriptor_path(thread, (int)args[where], path);
    /* symlinkat(target, dirfd, name) is like the others behind its first argument. */
    if (!read_string(thread, args[at ? where + 1 : where], name))
        name[0] = '\0';
    if (strncmp(name, proc, sizeof(proc) - 1) == 0)
        return descriptor_path(thread, atoi(name + sizeof(proc) - 1), path);
    if (!at || name[0] == '/') {
        memcpy(path, name, sizeof(name));
        return name[0];
    }
    if (!descriptor_path(thread, (int)args[where], path))
        return false;
    length = strlen(path);
    if (name[0])
        snprintf(path + length, PATH_MAX - length, "/%s", name);
    return true;
}

static const struct call *find_call(uint64_t number)
{
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if ((uint64_t)calls[i].number == number)
            return &calls[i];
    return NULL;
}

static bool is_change(const struct call *call, const uint64_t *args)
{
    return call->changes == 1 || (call->changes == 2 && args[2] & (O_CREAT | O_TRUNC));
}

/* Whether the call is one of those counted; then `path` is the path it is for. */
static bool counts(pid_t thread, const struct __ptrace_syscall_info *info, char path[PATH_MAX])
{
    const struct call *call = find_call(info->entry.nr);
    const uint64_t *args = (const uint64_t *)info->entry.args;
    unsigned what = control->what;
    bool changes, known;

    path[0] = '\0';
    if (what == COUNT_ALL && !call)
        return true;
    if (!call)
        return false;
    changes = is_change(call, args);
    if ((what == COUNT_CHANGES && !changes) || (what == COUNT_READS && changes))
        return false;
    known = path_of(thread, call, args, call->where, path);
    if (what == COUNT_ALL || (known && is_ours(path)))
        return true;
    /* An answer to the kernel: all changes are made then, and nobody knows yet. */
    if (known && what == COUNT_CHANGES && control->action == DO_KILL && strcmp(path, "/dev/fuse") == 0)
        return call->number == SYS_write || call->number == SYS_writev;
    return call->second >= 0 && path_of(thread, call, args, call->second, path) && is_ours(path);
}

/* ---- actions --------------------------------------------------------------------------------- */

static void fail_call(struct thread *thread, int error)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, thread->id, NULL, &regs) < 0)
        return;
    regs.orig_rax = (unsigned long long)-1;
    if (ptrace(PTRACE_SETREGS, thread->id, NULL, &regs) == 0)
        thread->error = error;
}

static void answer_failed(struct thread *thread)
{
    struct user_regs_struct regs;

    if (!thread->error || ptrace(PTRACE_GETREGS, thread->id, NULL, &regs) < 0)
        return;
    regs.rax = (unsigned long long)-(long)thread->error;
    ptrace(PTRACE_SETREGS, thread->id, NULL, &regs);
    thread->error = 0;
}

/* Half of the bytes, or one piece of several. */
static void shorten_call(pid_t thread, uint64_t number)
{
    struct user_regs_struct regs;

    if (ptrace(PTRACE_GETREGS, thread, NULL, &regs) < 0)
        return;
    if (number == SYS_copy_file_range && regs.r8 > 1)
        regs.r8 /= 2;
    else if ((number == SYS_pwritev || number == SYS_writev || number == SYS_preadv || number == SYS_write ||
              number == SYS_pwrite64 || number == SYS_pread64 || number == SYS_read) && regs.rdx > 1)
        regs.rdx = number == SYS_pwritev || number == SYS_writev ? 1 : regs.rdx / 2;
    ptrace(PTRACE_SETREGS, thread, NULL, &regs);
}

static void act(struct thread *thread, uint64_t number, uint32_t count)
{
    uint32_t target = control->target, action = control->action;
    bool first = count == target, later = count > target && count - target <= control->more;

    if (action == DO_KILL && first)
        kill(leader, SIGKILL);
    else if (action == DO_FAIL && (first || later))
        fail_call(thread, (int)control->error);
    else if ((action == DO_SHORTEN || action == DO_SHORTEN_THEN_FAIL) && first)
        shorten_call(thread->id, number);
    else if (action == DO_SHORTEN_THEN_FAIL && (count == target + 1 || (later && count > target)))
        fail_call(thread, (int)control->error);
}

static void at_entry(struct thread *thread, const struct __ptrace_syscall_info *info)
{
    char path[PATH_MAX];
    uint32_t count;

    if (!control->armed || !control->watching || !counts(thread->id, info, path))
        return;
    count = ++control->count;
    if (count == control->target) {
        control->number = (uint32_t)info->entry.nr;
        snprintf(control->path, sizeof(control->path), "%.*s", (int)sizeof(control->path) - 1, path);
        control->done = 1;
    }
    act(thread, info->entry.nr, count);
}

static void at_call(struct thread *thread)
{
    struct __ptrace_syscall_info info;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->id, (void *)sizeof(info), &info) <= 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT)
        answer_failed(thread);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
        return;
    control->busy = 1; /* before it looks whether it is armed */
    at_entry(thread, &info);
    control->busy = 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

/* mmap of one page of a file, to be written and shared. */
static bool refuse_mapping(void)
{
#define ARGUMENT(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[n]))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        UNLESS(SYS_mmap, 7),
        ARGUMENT(1), UNLESS(4096, 5),
        ARGUMENT(2), UNLESS(PROT_READ | PROT_WRITE, 3),
        ARGUMENT(3), UNLESS(MAP_SHARED, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENODEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static pid_t start(char **command, const sigset_t *signals, bool mapped)
{
    int go[2];
    char byte;
    pid_t pid;

    if (pipe(go) < 0)
        die("pipe");
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        close(go[1]);
        if (read(go[0], &byte, 1) != 1)
            _exit(125);
        close(go[0]);
        sigprocmask(SIG_SETMASK, signals, NULL);
        if (!mapped && !refuse_mapping())
            _exit(126);
        execv(command[0], command);
        _exit(127);
    }
    close(go[0]);
    if (ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) < 0)
        die("PTRACE_SEIZE");
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
        die("PTRACE_INTERRUPT");
    if (write(go[1], "x", 1) != 1)
        die("write");
    close(go[1]);
    return pid;
}

/* The two take turns at every call: waking the other on another processor would cost more than their work. */
static void stay_on_one_processor(void)
{
    cpu_set_t one;
    int processor = sched_getcpu();

    CPU_ZERO(&one);
    if (processor >= 0 && processor < CPU_SETSIZE) {
        CPU_SET(processor, &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
}

/* The signal that made a thread stop is handed on to it; stops of ptrace's own are none. */
static int signal_of(int status)
{
    int number = WSTOPSIG(status);

    if (status >> 16 || number == (SIGTRAP | 0x80) || number == SIGTRAP)
        return 0;
    return number;
}

static struct thread *find_thread(pid_t id)
{
    struct thread *free = NULL;

    for (unsigned i = 0; i < THREADS; i++) {
        if (threads[i].id == id)
            return &threads[i];
        if (threads[i].id == 0 && !free)
            free = &threads[i];
    }
    if (!free)
        die("too many threads");
    free->id = id;
    return free;
}

/*
 * Stopping at every call makes everything slow, so it is done only while calls are counted. An idle thread is
 * interrupted for that, and enters the call in which it sleeps once more: no action is taken then, and it is not
 * counted.
 */
static void at_stop(struct thread *thread, int status)
{
    bool call = WSTOPSIG(status) == (SIGTRAP | 0x80), stops;

    if (call)
        at_call(thread);
    stops = control->armed || thread->error;
    thread->watched = stops && (thread->watched || call);
    ptrace(stops ? PTRACE_SYSCALL : PTRACE_CONT, thread->id, NULL, (void *)(intptr_t)signal_of(status));
}

static void say_whether_all_are_watched(void)
{
    bool all = control->armed;

    for (unsigned i = 0; i < THREADS; i++)
        all &= threads[i].id == 0 || threads[i].watched;
    if (all)
        control->watching = 1;
}

static int trace_loop(const sigset_t *signals)
{
    int status, last = 125 << 8;
    pid_t id;

    for (;;) {
        while ((id = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
            struct thread *thread = find_thread(id);

            if (WIFSTOPPED(status)) {
                at_stop(thread, status);
                continue;
            }
            if (id == leader)
                last = status;
            memset(thread, 0, sizeof(*thread));
        }
        if (id < 0 && errno == ECHILD)
            break;
        say_whether_all_are_watched();
        if (sigwaitinfo(signals, NULL) != SIGUSR1)
            continue;
        for (unsigned i = 0; i < THREADS; i++)
            if (threads[i].id != 0 && !threads[i].watched)
                ptrace(PTRACE_INTERRUPT, threads[i].id, NULL, NULL);
    }
    return WIFSIGNALED(last) ? 128 + WTERMSIG(last) : WEXITSTATUS(last);
}

int main(int argc, char **argv)
{
    bool mapped = argc > 1 && strcmp(argv[1], "--mapped") == 0;
    sigset_t signals, before;
    int fd;

    argc -= mapped;
    argv += mapped;
    if (argc < 5) {
        fprintf(stderr, "usage: tracer [--mapped] CONTROL SRC STORE PROGRAM ARGUMENTS...\n");
        return 125;
    }
    fd = open(argv[1], O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die(argv[1]);
    control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        die("mmap");
    trees[0] = argv[2];
    trees[1] = argv[3];
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, &before);
    stay_on_one_processor();
    leader = start(argv + 4, &before, mapped);
    control->tracer = (uint32_t)getpid();
    return trace_loop(&signals);
}
