/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/control.h"

#include "client/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct wb_version_walk {
    int dir_fd;
    int64_t since, until;
    uint64_t next; /* cursor of the request to come */
    uint32_t index;
    bool last;
    char path[WB_CONTROL_PATH_MAX];
    struct wb_control request; /* and reply: the same memory */
};

int wb_request_prepare(struct wb_control *request, enum wb_control_command command, const char *path)
{
    memset(request, 0, sizeof(*request));
    request->version = WB_CONTROL_VERSION;
    request->command = command;
    if (strlen(path) >= sizeof(request->path))
        return -ENAMETOOLONG;
    memcpy(request->path, path, strlen(path));
    return 0;
}

/* Paths with more names than this are not given to the daemon as a whole. */
#define DEEP 32

/* The path of these is that of one object, and does not determine what the reply looks like. */
static bool is_about_one(const struct wb_control *request)
{
    return request->command == WB_CONTROL_NAMES || request->command == WB_CONTROL_VERSIONS ||
           request->command == WB_CONTROL_COMPACT;
}

/* The slash before the last name of a deep path, or NULL. */
static char *last_slash_of_deep(struct wb_control *request)
{
    unsigned names = 1;

    for (const char *c = request->path; *c && names <= DEEP; c++)
        names += *c == '/';
    return names > DEEP ? strrchr(request->path, '/') : NULL;
}

/* A directory that exists at `path`, or -1. That of a past state has the highest bit in its number. */
static int open_present(int dir_fd, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || st.st_ino >> 63)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int call(int dir_fd, struct wb_control *request)
{
    while (ioctl(dir_fd, WB_CONTROL_IOCTL, request) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/*
 * The daemon looks up each name of a path in the history. For a walk over deeply nested directories, that would be a
 * time in proportion to the square of the depth: so the kernel, which has the names in its cache, opens the directory.
 * 0 or -errno; -ENOENT, with an unchanged request: in doubt, to be asked by the whole path.
 */
static int call_below(int dir_fd, struct wb_control *request)
{
    char *slash = is_about_one(request) ? last_slash_of_deep(request) : NULL;
    g_autofree char *path = slash ? g_strdup(request->path) : NULL;
    _cleanup_fd_ int fd = -1;
    int r;

    if (!slash)
        return -ENOENT;
    *slash = '\0';
    fd = open_present(dir_fd, request->path);
    memmove(request->path, slash + 1, strlen(slash + 1) + 1);
    r = fd < 0 ? -ENOENT : call(fd, request);
    if (r < 0)
        g_strlcpy(request->path, path, sizeof(request->path));
    return r;
}

int wb_request_call(int dir_fd, struct wb_control *request)
{
    uint32_t command = request->command;
    uint64_t cursor = request->cursor;
    int r = call_below(dir_fd, request);

    if (r == -ENOENT)
        r = call(dir_fd, request);
    return r < 0 ? r : wb_control_check(command, cursor, request);
}

int wb_request_hello(int dir_fd, struct wb_control_hello *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_HELLO, "");

    if (r == 0)
        r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

int wb_request_identify(int dir_fd, const char *path, struct wb_control_identity *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_IDENTIFY, path);

    if (r == 0)
        r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

int wb_request_restore(int dir_fd, const char *path, const char *source)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_RESTORE, path);

    if (r < 0)
        return r;
    if (strlen(source) >= sizeof(request->source))
        return -ENAMETOOLONG;
    memcpy(request->source, source, strlen(source));
    return wb_request_call(dir_fd, request);
}

int wb_request_move(int dir_fd, const char *to, unsigned flags, struct wb_control_moved *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_MOVE, "");

    if (r < 0)
        return r;
    request->flags = flags;
    if (g_strlcpy(request->source, to, sizeof(request->source)) >= sizeof(request->source))
        return -ENAMETOOLONG;
    r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

int wb_request_erase(int dir_fd, const char *path, unsigned flags, int64_t before, struct wb_control_erased *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, before ? WB_CONTROL_ERASE_BEFORE : WB_CONTROL_ERASE, path);

    request->flags = flags;
    request->until = before;
    if (r == 0)
        r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

int wb_request_erase_measure(int dir_fd, const char *path, unsigned flags, struct wb_control_freed *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_ERASE_MEASURE, path);

    request->flags = flags;
    if (r == 0)
        r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

struct wb_erase_batch {
    int dir_fd;
    size_t used;
    struct wb_control control;
};

struct wb_erase_batch *wb_erase_batch_new(int dir_fd)
{
    struct wb_erase_batch *batch = g_new0(struct wb_erase_batch, 1);

    batch->dir_fd = dir_fd;
    wb_request_prepare(&batch->control, WB_CONTROL_ERASE_NAMES, "");
    return batch;
}

struct wb_erase_batch *wb_erase_batch_free(struct wb_erase_batch *batch)
{
    g_free(batch);
    return NULL;
}

bool wb_erase_batch_add(struct wb_erase_batch *batch, const char *path, unsigned flags)
{
    size_t length = strlen(path) + 1, size = (sizeof(struct wb_control_erase_name) + length + 7) & ~(size_t)7;
    struct wb_control_erase_name name = {.size = (uint32_t)size, .flags = flags};
    uint8_t *at = batch->control.data + batch->used;

    if (batch->control.count >= WB_CONTROL_ERASE_NAMES_MAX || length > WB_CONTROL_PATH_MAX ||
        size > sizeof(batch->control.data) - batch->used)
        return false;
    memcpy(at, &name, sizeof(name));
    memcpy(at + sizeof(name), path, length);
    batch->used += size;
    batch->control.count++;
    return true;
}

int wb_erase_batch_carry_out(struct wb_erase_batch *batch, const struct wb_control_erased_name **ret)
{
    unsigned count = batch->control.count;
    int r = wb_request_call(batch->dir_fd, &batch->control);

    *ret = (const void *)batch->control.data;
    return r == 0 && batch->control.count != count ? -EPROTO : r;
}

int wb_request_erase_versions(int dir_fd, const char *path, unsigned flags, int64_t from, int64_t until,
                              struct wb_control_erased_versions *ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    int r = wb_request_prepare(request, WB_CONTROL_ERASE_VERSIONS, path);

    request->flags = flags;
    request->since = from;
    request->until = until;
    if (r == 0)
        r = wb_request_call(dir_fd, request);
    if (r == 0)
        memcpy(ret, request->data, sizeof(*ret));
    return r;
}

struct wb_version_walk *wb_version_walk_new(int dir_fd, const char *path, int64_t since, int64_t until,
                                            uint64_t skip)
{
    struct wb_version_walk *walk = g_new0(struct wb_version_walk, 1);

    walk->dir_fd = dir_fd;
    walk->next = skip;
    walk->since = since;
    walk->until = until;
    if (g_strlcpy(walk->path, path, sizeof(walk->path)) >= sizeof(walk->path))
        walk->dir_fd = -ENAMETOOLONG;
    return walk;
}

/* From a daemon that does not know of versions: each change counts as one, as in its NAME@~N. */
static void count_changes(struct wb_control *reply)
{
    struct wb_control_version *change = (struct wb_control_version *)(void *)reply->data;

    for (uint32_t i = 0; i < reply->count; i++)
        change[i].save = change[i].change;
}

int wb_version_walk_next(struct wb_version_walk *walk, const struct wb_control_version **ret)
{
    if (walk->dir_fd < 0)
        return walk->dir_fd;
    if (walk->index >= walk->request.count && !walk->last) {
        int r;

        r = wb_request_prepare(&walk->request, WB_CONTROL_VERSIONS, walk->path);
        walk->request.since = walk->since;
        walk->request.until = walk->until;
        walk->request.cursor = walk->next;
        if (r == 0)
            r = wb_request_call(walk->dir_fd, &walk->request);
        walk->index = 0;
        if (r < 0) {
            walk->request.count = 0; /* of a reply that was refused */
            return r;
        }
        walk->next += walk->request.count;
        walk->last = walk->request.count == 0;
        if (!(walk->request.flags & WB_CONTROL_VERSIONS_COUNTED))
            count_changes(&walk->request);
    }
    if (walk->last)
        return 1;
    *ret = (const struct wb_control_version *)(const void *)walk->request.data + walk->index++;
    return 0;
}

struct wb_version_walk *wb_version_walk_free(struct wb_version_walk *walk)
{
    g_free(walk);
    return NULL;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct wb_name_walk {
    int dir_fd;
    unsigned flags, reply_flags;
    uint64_t next;
    uint32_t left; /* items not yet taken, the next one at `offset` */
    size_t offset;
    uint64_t given; /* bytes of all items so far */
    bool last;
    char path[WB_CONTROL_PATH_MAX], only[256];
    struct wb_control request; /* and reply: the same memory */
};

struct wb_name_walk *wb_name_walk_new(int dir_fd, const char *path, const char *only, unsigned flags)
{
    struct wb_name_walk *walk = g_new0(struct wb_name_walk, 1);

    walk->dir_fd = dir_fd;
    walk->flags = flags;
    if (g_strlcpy(walk->path, path, sizeof(walk->path)) >= sizeof(walk->path) ||
        g_strlcpy(walk->only, only, sizeof(walk->only)) >= sizeof(walk->only))
        walk->dir_fd = -ENAMETOOLONG;
    return walk;
}

static int next_page(struct wb_name_walk *walk)
{
    int r = wb_request_prepare(&walk->request, WB_CONTROL_NAMES, walk->path);

    if (r < 0)
        return r;
    walk->request.flags = walk->flags;
    walk->request.cursor = walk->next;
    g_strlcpy(walk->request.source, walk->only, sizeof(walk->request.source));
    r = wb_request_call(walk->dir_fd, &walk->request);
    if (r < 0)
        return r;
    walk->reply_flags |= walk->request.flags;
    walk->offset = 0;
    walk->left = walk->request.count;
    walk->next += walk->request.count;
    walk->last = walk->request.count == 0;
    return 0;
}

int wb_name_walk_next(struct wb_name_walk *walk, const struct wb_control_name **ret)
{
    const struct wb_control_name *name;
    int r;

    if (walk->dir_fd < 0)
        return walk->dir_fd;
    if (walk->left == 0 && !walk->last) {
        r = next_page(walk);
        if (r < 0)
            return r;
    }
    if (walk->last)
        return 1;
    name = (const struct wb_control_name *)(const void *)(walk->request.data + walk->offset);
    walk->offset += name->length;
    walk->given += name->length;
    if (walk->given > WB_HELD_MAX)
        return -EOVERFLOW;
    walk->left--;
    *ret = name;
    return 0;
}

int64_t wb_name_walk_began(const struct wb_name_walk *walk)
{
    return walk->request.since;
}

int64_t wb_name_walk_moment(const struct wb_name_walk *walk)
{
    return walk->request.until;
}

unsigned wb_name_walk_flags(const struct wb_name_walk *walk)
{
    return walk->reply_flags;
}

const char *wb_name_to(const struct wb_control_name *name)
{
    return name->text + strlen(name->text) + 1;
}

const char *wb_name_command(const struct wb_control_name *name)
{
    const char *to = wb_name_to(name);

    return to + strlen(to) + 1;
}

struct wb_name_walk *wb_name_walk_free(struct wb_name_walk *walk)
{
    g_free(walk);
    return NULL;
}
