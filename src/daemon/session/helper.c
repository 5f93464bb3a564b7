/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/helper.h"

#include "base/cleanup.h"
#include "base/sandbox/filter.h"
#include "base/xattr.h"
#include "daemon/session/privileges.h"
#include "daemon/system/detach.h"
#include "daemon/system/report.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/close_range.h>
#include <linux/limits.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* New calls have the same number everywhere; C libraries do not know them all. */
#define NEW_close_range 436

struct wb_helper {
    int fd;
    pid_t pid;
    pthread_mutex_t lock; /* one request at a time */
    bool ended;           /* which was reported    */
};

/* A request is one packet: this, and the value to set. The answer is an int64_t, and what was read. */
struct packet {
    uint32_t request; /* enum wb_helper_request, or WB_HELPER_XATTR + enum wb_xattr_call */
    int32_t flags;
    uint32_t size;    /* of the value, or of the room for what is read */
    char name[XATTR_NAME_MAX + 1];
};

/* What is received with it: at most one descriptor. */
union control {
    struct cmsghdr header;
    char data[CMSG_SPACE(sizeof(int))];
};

/* ---- in the helper ------------------------------------------------------------------------------- */

struct serving {
    int fd;
    const char *point, *top;   /* of the mount; of the overlay above it, or of the mount */
    struct wb_covered covered; /* where it has replaced a dead mount */
    struct packet packet;
    char value[XATTR_SIZE_MAX];
};

static const int allowed[] = {
    SYS_recvmsg, SYS_sendmsg, SYS_close, SYS_exit_group, SYS_openat, SYS_read, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_lseek, SYS_readlinkat, SYS_syncfs, SYS_umount2, SYS_flistxattr, SYS_fgetxattr, SYS_fsetxattr,
    SYS_fremovexattr, SYS_listxattr, SYS_getxattr, SYS_setxattr, SYS_removexattr, SYS_brk, SYS_mmap, SYS_munmap,
    SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_getrandom,
    SYS_restart_syscall, SYS_getcwd, SYS_fcntl, SYS_openat2, SYS_geteuid,
#ifdef SYS_readlink
    SYS_readlink, SYS_stat, SYS_lstat, SYS_open, SYS_access,
#endif
#if defined(__SANITIZE_ADDRESS__)
    /* A function that does not return asks for the signal stack; a report is written with the process's number. */
    SYS_sigaltstack, SYS_write, SYS_getpid, SYS_gettid,
#endif
};

/* In lists of processes it is not taken for the daemon. Nothing may refer to the command line any more. */
static void rename_process(void)
{
    static const char name[] = "wayback-helper";
    g_autofree char *line = NULL;
    gsize length;

    prctl(PR_SET_NAME, name, 0, 0, 0);
    if (!g_file_get_contents("/proc/self/cmdline", &line, &length, NULL) || length < sizeof(name) ||
        strcmp(line, program_invocation_name) != 0)
        return;
    memset(program_invocation_name, 0, length);
    memcpy(program_invocation_name, name, sizeof(name));
}

/* Not what the daemon has open: a lock, or the connection of the mount, would outlive it here. */
static void leave_daemon(int *fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    *fd = dup3(*fd, STDERR_FILENO + 1, O_CLOEXEC) < 0 && errno != EINVAL ? -1 : STDERR_FILENO + 1;
    for (int i = 0; i <= STDERR_FILENO; i++)
        if (null < 0 || dup2(null, i) < 0)
            close(i);
    if (*fd < 0 || syscall(NEW_close_range, *fd + 1, ~0u, 0) < 0 || chdir("/") < 0)
        _exit(EXIT_FAILURE);
}

static void confine(bool filtered)
{
    const struct wb_filter_list list = {allowed, G_N_ELEMENTS(allowed)};
    const struct wb_filter filter = {.lists = &list, .list_count = 1, .refused = SECCOMP_RET_ERRNO | ENOSYS};

    wb_privileges_drop_of_helper();
    if (filtered)
        wb_filter_enter(&filter);
}

static const char *top_of(const struct wb_session *session)
{
    return session->options->cover ? session->options->cover : session->mountpoint;
}

static int leave_mount(const char *point)
{
    _cleanup_close_ int fd = open(point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0)
        syncfs(fd);
    return wb_detach(point);
}

int wb_helper_leave(const struct wb_session *session)
{
    return leave_mount(top_of(session));
}

/* *ret: how much of `value` is for the daemon. */
static int64_t access_xattr(struct serving *serving, int fd, size_t length, size_t *ret)
{
    struct packet *packet = &serving->packet;
    struct wb_xattr_request request = {.call = packet->request - WB_HELPER_XATTR, .fd = fd, .name = packet->name,
                                       .value = serving->value, .ret = serving->value, .size = packet->size,
                                       .flags = packet->flags};
    bool sets = request.call == WB_XATTR_SET;
    ssize_t n;

    if (fd < 0 || request.call > WB_XATTR_REMOVE || packet->size > sizeof(serving->value) ||
        length != (sets ? packet->size : 0) || !memchr(packet->name, '\0', sizeof(packet->name)) ||
        !wb_xattr_is_privileged(request.call, packet->name))
        return -EINVAL;
    n = wb_xattr_perform(&request);
    if (n > 0 && packet->size > 0 && (request.call == WB_XATTR_LIST || request.call == WB_XATTR_GET))
        *ret = MIN((size_t)n, sizeof(serving->value));
    return n;
}

static int64_t carry_out(struct serving *serving, int fd, size_t length, size_t *ret)
{
    switch (serving->packet.request) {
    case WB_HELPER_LEAVE:
        return leave_mount(serving->top);
    case WB_HELPER_DETACH:
        return wb_detach(serving->point);
    case WB_HELPER_DETACH_REPLACED:
        wb_covered_detach(&serving->covered, serving->point);
        return 0;
    default:
        return access_xattr(serving, fd, length, ret);
    }
}

/* The first descriptor that came with it; -1. Room for more than one there is not. */
static int received_fd(struct msghdr *message)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(header), sizeof(int));
    return fd;
}

static bool serve(struct serving *serving)
{
    union control control;
    struct iovec in[2] = {{&serving->packet, sizeof(serving->packet)}, {serving->value, sizeof(serving->value)}};
    struct msghdr message = {.msg_iov = in, .msg_iovlen = 2, .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(serving->fd, &message, MSG_CMSG_CLOEXEC);
    _cleanup_close_ int fd = -1;
    size_t length = 0;
    int64_t result;

    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    fd = received_fd(&message);
    if ((size_t)n < sizeof(serving->packet) || message.msg_flags & MSG_TRUNC)
        return false;
    result = carry_out(serving, fd, (size_t)n - sizeof(serving->packet), &length);
    message = (struct msghdr){.msg_iov = (struct iovec[]){{&result, sizeof(result)}, {serving->value, length}},
                              .msg_iovlen = 2};
    return sendmsg(serving->fd, &message, MSG_NOSIGNAL) >= 0;
}

/* Until the daemon has ended: then nobody has the other end. */
_Noreturn static void run(int fd, const struct wb_session *session)
{
    struct serving *serving = g_new0(struct serving, 1);
    bool filtered = !session->options->noseccomp;

    serving->point = g_strdup(session->mountpoint);
    serving->top = g_strdup(top_of(session));
    serving->covered = session->covered;
    if (session->store)
        wb_inflight_leave(session->store);
    leave_daemon(&fd);
    rename_process();
    serving->fd = fd;
    confine(filtered);
    while (serve(serving))
        continue;
    _exit(EXIT_SUCCESS);
}

/* ---- in the daemon ------------------------------------------------------------------------------- */

/* `fd` is passed, unless it is -1. */
static int64_t ask(struct wb_helper *helper, const struct packet *packet, int fd, const void *value, void *ret)
{
    union control control = {.data = ""};
    int64_t result = -EIO;
    struct iovec out[2] = {{(void *)packet, sizeof(*packet)}, {(void *)value, value ? packet->size : 0}};
    struct iovec in[2] = {{&result, sizeof(result)}, {ret, ret ? packet->size : 0}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 2};
    ssize_t n;

    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof(int));
    }
    pthread_mutex_lock(&helper->lock);
    do
        n = sendmsg(helper->fd, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    message = (struct msghdr){.msg_iov = in, .msg_iovlen = 2};
    if (n >= 0)
        do
            n = recvmsg(helper->fd, &message, 0);
        while (n < 0 && errno == EINTR);
    if (n < (ssize_t)sizeof(result)) {
        result = -EIO;
        if (!helper->ended)
            wb_log_msg(
                "the mount helper has ended; trusted.* attributes fail with EIO, and only umount(8) can unmount");
        helper->ended = true;
    }
    pthread_mutex_unlock(&helper->lock);
    return result;
}

int wb_helper_ask(struct wb_helper *helper, enum wb_helper_request request)
{
    return (int)ask(helper, &(struct packet){.request = request}, -1, NULL, NULL);
}

static ssize_t ask_xattr(const struct wb_xattr_request *request, void *data)
{
    struct packet packet = {.request = WB_HELPER_XATTR + request->call, .flags = request->flags,
                            .size = (uint32_t)MIN(request->size, XATTR_SIZE_MAX)};

    if (request->fd < 0)
        return -EBADF;
    if (request->name && g_strlcpy(packet.name, request->name, sizeof(packet.name)) >= sizeof(packet.name))
        return -ERANGE;
    if (request->call == WB_XATTR_SET && request->size > XATTR_SIZE_MAX)
        return -E2BIG;
    return ask(data, &packet, request->fd, request->value, request->ret);
}

int wb_helper_start(struct wb_session *session, struct wb_error *why)
{
    struct wb_helper *helper = g_new0(struct wb_helper, 1);
    int fds[2] = {-1, -1}, r;

    helper->fd = -1;
    pthread_mutex_init(&helper->lock, NULL);
    r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds);
    if (r == 0) {
        helper->fd = fds[0];
        helper->pid = r = fork();
    }
    if (r == 0)
        run(fds[1], session);
    r = r < 0 ? -errno : 0;
    wb_close_fd(&fds[1]);
    if (r < 0) {
        wb_helper_free(helper);
        return wb_error_set(why, r, "%s: cannot start the mount helper (%s)", session->mountpoint, g_strerror(-r));
    }
    wb_xattr_use_agent(ask_xattr, helper);
    session->helper = helper;
    return 0;
}

struct wb_helper *wb_helper_free(struct wb_helper *helper)
{
    if (!helper)
        return NULL;
    wb_xattr_use_agent(NULL, NULL);
    wb_close_fd(&helper->fd);
    while (helper->pid > 0 && waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    pthread_mutex_destroy(&helper->lock);
    g_free(helper);
    return NULL;
}
