/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether something is the same at both moments, with as little reading as that takes. */
#include "diff_parts.h"

#include "common/cli.h"
#include "client/copy/copy.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* ctime moves in steps of the kernel's clock: two changes may have the same. */
#define RACY (20 * WB_WHEN_SECOND / 1000)

void diff_fail(struct diff *diff, const char *path, int error)
{
    g_autofree char *whole = wb_path_join(diff->given, path);
    g_autofree char *from_root = wb_path_join(diff->path, path);
    struct wb_error why;

    diff->failed = true;
    wb_moment_unknown(diff->mount, from_root, MIN(diff->when[0], diff->when[1]), error, &why);
    wb_cli_fail(whole, "cannot be compared: %s", why.text);
}

void diff_tell(struct diff *diff, enum change_kind kind, const char *path, const char *from,
                 struct wb_control_entry *before, struct wb_control_entry *after)
{
    struct change *change = g_new0(struct change, 1);

    *change = (struct change){kind, g_strdup(path), g_strdup(from), diff_entry_ref(before), diff_entry_ref(after)};
    g_ptr_array_add(diff->changes, change);
}

/* 1: different, 0, or -errno. */
static int links_differ(const struct there *a, const struct there *b)
{
    char one[PATH_MAX], other[PATH_MAX];
    ssize_t n = readlinkat(a->dir_fd, a->name, one, sizeof(one));
    ssize_t m = n < 0 ? -1 : readlinkat(b->dir_fd, b->name, other, sizeof(other));

    if (n < 0 || m < 0)
        return -errno;
    return n != m || memcmp(one, other, (size_t)n) != 0;
}

static int devices_differ(const struct there *a, const struct there *b)
{
    struct stat one, other;

    if (fstatat(a->dir_fd, a->name, &one, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstatat(b->dir_fd, b->name, &other, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return one.st_rdev != other.st_rdev;
}

/* Whether the times of one and the same file prove that nothing changed in between. */
static bool times_prove(const struct diff *diff, const struct wb_control_entry *a, const struct wb_control_entry *b)
{
    return diff_is_same(a, b) && a->mtime == b->mtime && a->ctime == b->ctime &&
           a->ctime < MIN(diff->when[0], diff->when[1]) - RACY;
}

static int files_differ(const struct diff *diff, const struct there *a, const struct there *b)
{
    struct wb_control_identity identity;
    _cleanup_fd_ int one = -1;
    _cleanup_fd_ int other = -1;
    int r;

    if (a->entry->length != b->entry->length)
        return 1;
    if (a->entry->length == 0 || times_prove(diff, a->entry, b->entry))
        return 0;
    if (diff->present && diff_is_same(a->entry, b->entry) &&
        wb_request_identify(a->dir_fd, a->name, &identity) == 0 && identity.unchanged)
        return 0;
    one = openat(a->dir_fd, a->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    other = one < 0 ? -1 : openat(b->dir_fd, b->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (one < 0 || other < 0)
        return -errno;
    r = wb_copy_equal(one, other);
    return r < 0 ? r : !r;
}

static int content_differs(const struct diff *diff, const struct there *a, const struct there *b)
{
    switch (a->entry->mode & S_IFMT) {
    case S_IFREG:
        return files_differ(diff, a, b);
    case S_IFLNK:
        return links_differ(a, b);
    case S_IFCHR:
    case S_IFBLK:
        return devices_differ(a, b);
    default:
        return 0;
    }
}

void diff_same(struct diff *diff, const struct there *a, const struct there *b, const char *path)
{
    struct wb_control_entry *before = (struct wb_control_entry *)a->entry;
    struct wb_control_entry *after = (struct wb_control_entry *)b->entry;
    int r;

    if ((before->mode ^ after->mode) & S_IFMT) {
        diff_tell(diff, CHANGE_TYPE, path, NULL, before, after);
        return;
    }
    r = content_differs(diff, a, b);
    if (r < 0)
        diff_fail(diff, path, r);
    else if (r > 0)
        diff_tell(diff, CHANGE_CONTENT, path, NULL, before, after);
    else if (before->mode != after->mode || before->uid != after->uid || before->gid != after->gid)
        diff_tell(diff, CHANGE_ATTRIBUTES, path, NULL, before, after);
}
