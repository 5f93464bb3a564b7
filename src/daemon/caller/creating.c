/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/caller/creating.h"

#include "base/bounded.h"
#include "base/cleanup.h"
#include "daemon/caller/creds.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The caller may not have gone to sleep yet when its request arrives: how often to look, and after how many looks to
 * leave it 100 us between two. */
#define LOOKS_MAX 64
#define LOOKS_AT_ONCE 16

#define ARGUMENTS 6

struct call {
    pid_t thread;
    long number;
    uint64_t arguments[ARGUMENTS];
};

/* ---- which system call ----------------------------------------------------------------------- */

/* The text of /proc/TID/syscall: "NUMBER A B C D E F SP PC", "-1 SP PC" or "running". 0, -EAGAIN or another -errno. */
static int read_call(int fd, struct call *ret)
{
    uint64_t stack, counter;
    char text[256];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    if (strncmp(text, "running", strlen("running")) == 0)
        return -EAGAIN;
    if (sscanf(text, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
               &ret->number, &ret->arguments[0], &ret->arguments[1], &ret->arguments[2], &ret->arguments[3],
               &ret->arguments[4], &ret->arguments[5], &stack, &counter) != ARGUMENTS + 3)
        return -EINVAL;
    /* A 32-bit program on a 64-bit kernel numbers its system calls differently. */
    return sizeof(long) == 8 && stack <= UINT32_MAX && counter <= UINT32_MAX ? -ENOSYS : 0;
}

static int find_call(pid_t thread, struct call *ret)
{
    static const struct timespec pause = {.tv_nsec = 100000};
    _cleanup_close_ int fd = -1;
    char path[64];
    int r = -EAGAIN;

    if (thread <= 0)
        return -ESRCH;
    snprintf(path, sizeof(path), "/proc/%d/syscall", (int)thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (int i = 0; i < LOOKS_MAX && r == -EAGAIN; i++) {
        if (i >= LOOKS_AT_ONCE)
            nanosleep(&pause, NULL);
        else if (i > 0)
            sched_yield();
        r = read_call(fd, ret);
    }
    ret->thread = thread;
    return r;
}

/* ---- its arguments --------------------------------------------------------------------------- */

/* Not process_vm_readv(2), which goes by the real user of this thread. */
static bool read_memory(pid_t thread, uint64_t address, void *buffer, size_t size)
{
    _cleanup_close_ int fd = -1;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/mem", (int)thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && address <= INT64_MAX && pread(fd, buffer, size, (off_t)address) == (ssize_t)size;
}

/* A string of at most PATH_MAX bytes. Read page by page: the page behind its end may not be mapped. */
static bool read_path(pid_t thread, uint64_t address, char path[PATH_MAX])
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t length = 0; length < PATH_MAX;) {
        size_t size = page - (size_t)((address + length) % page);

        if (size > PATH_MAX - length)
            size = PATH_MAX - length;
        if (!read_memory(thread, address + length, path + length, size))
            return false;
        if (memchr(path + length, '\0', size))
            return true;
        length += size;
    }
    return false;
}

static bool is_last_part(char *path, const char *name)
{
    size_t length = strlen(path);
    const char *slash;

    while (length > 0 && path[length - 1] == '/')
        path[--length] = '\0';
    slash = strrchr(path, '/');
    return strcmp(slash ? slash + 1 : path, name) == 0;
}

static bool is_path_to(pid_t thread, uint64_t address, const char *name)
{
    char path[PATH_MAX];

    return read_path(thread, address, path) && is_last_part(path, name);
}

static bool is_socket_at(const struct call *call, const char *name)
{
    struct sockaddr_un address;
    size_t size = (size_t)call->arguments[2];
    char path[sizeof(address.sun_path) + 1] = "";

    if (size <= offsetof(struct sockaddr_un, sun_path) || size > sizeof(address) ||
        !read_memory(call->thread, call->arguments[1], &address, size) || address.sun_family != AF_UNIX)
        return false;
    memcpy(path, address.sun_path, size - offsetof(struct sockaddr_un, sun_path));
    return is_last_part(path, name);
}

/* ---- does it create -------------------------------------------------------------------------- */

static bool flags_create(uint64_t flags)
{
    return (flags & O_CREAT) && ((flags & (O_EXCL | O_TRUNC)) || (flags & O_ACCMODE) == O_WRONLY);
}

static bool openat2_creates(const struct call *call)
{
    struct open_how how;

    return read_memory(call->thread, call->arguments[2], &how, sizeof(how)) && flags_create(how.flags);
}

/* Which argument is the path of the new name; -1: the call creates none, or not by a path. */
static int path_argument(const struct call *call)
{
    switch (call->number) {
#ifdef SYS_mkdir
    case SYS_mkdir:
    case SYS_mknod:
    case SYS_creat:
        return 0;
    case SYS_symlink:
    case SYS_link:
    case SYS_rename:
        return 1;
    case SYS_open:
        return flags_create(call->arguments[1]) ? 0 : -1;
#endif
#ifdef SYS_renameat
    case SYS_renameat:
        return 3;
#endif
    case SYS_mkdirat:
    case SYS_mknodat:
        return 1;
    case SYS_symlinkat:
        return 2;
    case SYS_linkat:
    case SYS_renameat2:
        return 3;
    case SYS_openat:
        return flags_create(call->arguments[2]) ? 1 : -1;
    case SYS_openat2:
        return openat2_creates(call) ? 1 : -1;
    default:
        return -1;
    }
}

static bool creates(pid_t thread, const char *name)
{
    struct call call;
    int argument;

    if (find_call(thread, &call) < 0)
        return false;
    if (call.number == SYS_bind)
        return is_socket_at(&call, name);
    argument = path_argument(&call);
    return argument >= 0 && is_path_to(call.thread, call.arguments[argument], name);
}

struct question {
    const struct wb_session *session;
    struct fuse_ctx caller;
    char name[WB_NAME_MAX + 1];
    bool answer;
};

/* The kernel lets a user trace what runs as that user: no privilege of the daemon is needed. */
static void find_answer(void *data)
{
    struct question *question = data;
    struct wb_creds creds;

    if (wb_creds_enter_caller(&creds, question->session, &question->caller) < 0)
        return;
    question->answer = creates(question->caller.pid, question->name);
    wb_creds_leave(&creds);
}

bool wb_caller_creates(struct wb_session *session, fuse_req_t req, const char *name)
{
    struct question *question = g_try_new0(struct question, 1);
    bool answer;

    if (!question)
        return false;
    question->session = session;
    question->caller = *fuse_req_ctx(req);
    g_strlcpy(question->name, name, sizeof(question->name));
    if (wb_bounded_call(question->caller.uid, find_answer, g_free, question) < 0)
        return false;
    answer = question->answer;
    g_free(question);
    return answer;
}
