/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/probe.h"

#include "client/fd.h"
#include "common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME ".wayback-test-XXXXXX"
#define BEFORE "before\n"
#define AFTER "after\n"

/*
 * A whole write of the file, from open to close. Users who may write in the directory could put another file in its
 * place: only the one that was created is changed. 0 or -errno.
 */
static int save(const char *path, const char *text, const struct stat *created)
{
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), r = 0;
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || st.st_dev != created->st_dev || st.st_ino != created->st_ino || st.st_nlink != 1)
        r = -ESTALE;
    else if (ftruncate(fd, 0) < 0)
        r = -errno;
    if (r == 0)
        r = wb_fd_write(fd, text, strlen(text), 0);
    return close(fd) < 0 && r == 0 ? -errno : r;
}

/* Whether the file had the text BEFORE at `when`. 0 or -errno; -EBADMSG: it had another one. */
static int look_back(const struct wb_mount *mount, const char *path, int64_t when)
{
    g_autofree char *past = g_strdup_printf("%s%c%" PRId64 ".%09" PRId64, path, mount->at_sign, when / WB_WHEN_SECOND,
                                            when % WB_WHEN_SECOND);
    _cleanup_fd_ int fd = open(past, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[sizeof(BEFORE) + 1];
    ssize_t length;

    if (fd < 0)
        return -errno;
    length = wb_fd_read(fd, text, sizeof(text), 0);
    if (length < 0)
        return (int)length;
    return length == sizeof(BEFORE) - 1 && memcmp(text, BEFORE, sizeof(BEFORE) - 1) == 0 ? 0 : -EBADMSG;
}

static int change_and_look_back(const struct wb_mount *mount, const char *path, const struct stat *created)
{
    g_autofree struct wb_control_hello *hello = g_new0(struct wb_control_hello, 1);
    int r = save(path, BEFORE, created);

    if (r == 0)
        r = wb_request_hello(mount->root_fd, hello);
    if (r == 0)
        r = save(path, AFTER, created);
    return r < 0 ? r : look_back(mount, path, hello->now);
}

int wb_probe(const struct wb_mount *mount, const char *directory)
{
    g_autofree char *path = g_build_filename(directory, NAME, NULL), *name = NULL;
    struct wb_control_erased erased;
    int fd = mkstemp(path), r, removed;
    struct stat created;

    if (fd < 0 || fstat(fd, &created) < 0)
        return wb_cli_fail(directory, "is mounted, but the test file cannot be created (%s)", wb_errno_text(errno));
    close(fd);
    r = change_and_look_back(mount, path, &created);
    name = g_path_get_basename(path);
    removed = wb_request_erase(mount->root_fd, name, WB_CONTROL_ERASE_PRESENT, 0, &erased);
    if (r == -EBADMSG)
        return wb_cli_fail(directory, "is mounted, but the past of the test file is not what was written; run vfsck");
    if (r < 0)
        return wb_cli_fail(directory, "is mounted, but the test file cannot be written and read as of before (%s); is "
                           "history = none set for it in wayback.conf?", wb_errno_text(-r));
    if (removed < 0)
        return wb_cli_fail(directory, "is mounted, but the test file %s cannot be removed with its history (%s); try: "
                           "vrm -y %s", name, wb_errno_text(-removed), path);
    return 0;
}
