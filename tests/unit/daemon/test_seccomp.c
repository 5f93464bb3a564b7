/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/system/report.h"
#include "daemon/system/seccomp.h"
#include "wayback/control.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The system calls that the daemon can make once it serves. */

/*
 * In a process of its own, which must end with done(): the test framework needs calls that are refused. True: it got
 * there, and all was well.
 */
static bool was_tested(bool io_uring)
{
    sigset_t set;
    int status, r;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(status == 0, "the process ended with %x", (unsigned)status);
        return true;
    }
    sigemptyset(&set);
    sigaddset(&set, WB_SECCOMP_REFUSED);
    ck_assert_int_eq(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    r = wb_seccomp_enter(io_uring);
    if (r == -EOPNOTSUPP)
        _exit(EXIT_SUCCESS); /* not on this machine */
    ck_assert_int_eq(r, 0);
    return false;
}

static void done(void)
{
    _exit(EXIT_SUCCESS);
}

#define REFUSED(call)                  \
    do {                               \
        errno = 0;                     \
        ck_assert_int_eq((call), -1);  \
        ck_assert_int_eq(errno, ENOSYS); \
    } while (0)

START_TEST(calls_that_serving_does_not_need_are_refused)
{
    char *arguments[] = {(char *)"/nowhere/true", NULL};

    if (was_tested(false))
        return;
    REFUSED(mount("none", "/nowhere", "tmpfs", 0, NULL));
    REFUSED(umount2("/nowhere", MNT_DETACH | UMOUNT_NOFOLLOW));
    REFUSED(syscall(SYS_open_by_handle_at, AT_FDCWD, NULL, O_RDONLY));
    REFUSED(execve(arguments[0], arguments, NULL));
    REFUSED(syscall(SYS_execveat, AT_FDCWD, arguments[0], arguments, NULL, 0));
    REFUSED(syscall(SYS_setns, 0, 0));
    REFUSED(syscall(SYS_setuid, 0));
    REFUSED(syscall(SYS_setresuid, 0, 0, 0));
    REFUSED(syscall(SYS_init_module, NULL, 0, ""));
    REFUSED(syscall(SYS_bpf, 0, NULL, 0));
    REFUSED(syscall(SYS_io_uring_setup, 1, NULL));
    REFUSED(syscall(SYS_bind, 0, NULL, 0));
    REFUSED(syscall(SYS_chroot, "/"));
    REFUSED(syscall(SYS_sethostname, "x", 1));
    REFUSED(syscall(100000));
    done();
}
END_TEST

START_TEST(calls_are_refused_by_their_arguments)
{
    struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    struct rlimit *none = NULL;
    int on = 1;

    if (was_tested(false))
        return;
    REFUSED(unshare(CLONE_NEWNS));
    REFUSED(unshare(CLONE_FS | CLONE_NEWNS));
    REFUSED(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    REFUSED(socket(AF_NETLINK, SOCK_RAW, 0));
    REFUSED(kill(getppid(), 0));
    REFUSED(kill(-1, 0));
    REFUSED(syscall(SYS_tgkill, getppid(), getppid(), 0));
    REFUSED(syscall(SYS_prlimit64, getppid(), 0, none, none));
    REFUSED(ioctl(STDERR_FILENO, TIOCSTI, "x"));
    REFUSED(ioctl(STDERR_FILENO, FITHAW, 0));
    REFUSED(ioctl(STDERR_FILENO, FIOASYNC, &on));
    REFUSED(fcntl(STDERR_FILENO, F_SETOWN, getppid()));
    REFUSED(fcntl(STDERR_FILENO, F_SETOWN_EX, &owner));
    REFUSED(fcntl(STDERR_FILENO, F_SETSIG, SIGURG));
    REFUSED(fcntl(STDERR_FILENO, F_SETFL, O_ASYNC | O_APPEND));
    done();
}
END_TEST

static void *in_thread(void *data)
{
    (void)data;
    ck_assert_int_eq(unshare(CLONE_FS), 0);
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    return NULL;
}

START_TEST(calls_needed_for_serving_are_permitted)
{
    static const unsigned long ioctls[] = {FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_FIEMAP, FS_IOC_SETFLAGS,
                                           FS_IOC_FSSETXATTR, TCGETS, WB_CONTROL_IOCTL, _IOR(229, 0, uint32_t)};
    pthread_t thread;
    int fd;

    if (was_tested(false))
        return;
    ck_assert_int_eq(pthread_create(&thread, NULL, in_thread, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    for (size_t i = 0; i < sizeof(ioctls) / sizeof(ioctls[0]); i++) {
        errno = 0;
        ck_assert_int_eq(ioctl(fd, ioctls[i], NULL), -1);
        ck_assert_msg(errno != ENOSYS, "ioctl %lx", ioctls[i]);
    }
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(kill(getpid(), 0), 0);
    done();
}
END_TEST

START_TEST(io_uring_is_permitted_if_requested)
{
    if (was_tested(true))
        return;
    errno = 0;
    ck_assert_int_eq((int)syscall(SYS_io_uring_setup, 1, NULL), -1);
    /* EPERM and ENOSYS: the machine does not permit it to anybody. The refusal was not ours. */
    if (errno == ENOSYS) {
        sigset_t pending;

        ck_assert_int_eq(sigpending(&pending), 0);
        ck_assert(!sigismember(&pending, WB_SECCOMP_REFUSED));
    }
    done();
}
END_TEST

/* Reports are written to standard error. */
static size_t reported(char *text, size_t size)
{
    int fd = memfd_create("reported", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    ssize_t length;

    ck_assert_int_ge(fd, 0);
    dup2(fd, STDERR_FILENO);
    wb_seccomp_report();
    dup2(saved, STDERR_FILENO);
    length = pread(fd, text, size - 1, 0);
    ck_assert_int_ge((int)length, 0);
    text[length] = '\0';
    close(saved);
    close(fd);
    return (size_t)length;
}

START_TEST(a_refused_call_is_reported_once)
{
    char text[1024], number[64];
    sigset_t pending;

    wb_log_msg_init(false);
    if (was_tested(false))
        return;
    ck_assert_uint_eq(reported(text, sizeof(text)), 0);
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    ck_assert_int_eq(sigpending(&pending), 0);
    ck_assert(sigismember(&pending, WB_SECCOMP_REFUSED));
    snprintf(number, sizeof(number), "system call %d,", SYS_socket);
    ck_assert_uint_gt(reported(text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(text, number));
    ck_assert_ptr_eq(strchr(text, '\n'), strrchr(text, '\n'));
    REFUSED(socket(AF_INET, SOCK_STREAM, 0));
    ck_assert_uint_eq(reported(text, sizeof(text)), 0);
    done();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seccomp");
    TCase *tcase = tcase_create("seccomp");
    SRunner *runner;
    int failed;

    tcase_add_test(tcase, calls_that_serving_does_not_need_are_refused);
    tcase_add_test(tcase, calls_are_refused_by_their_arguments);
    tcase_add_test(tcase, calls_needed_for_serving_are_permitted);
    tcase_add_test(tcase, io_uring_is_permitted_if_requested);
    tcase_add_test(tcase, a_refused_call_is_reported_once);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
