/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/identity/layers.h"

#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

bool wb_layers_are_there(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

bool wb_layers_merge(mode_t mode, uint64_t nlink)
{
    return S_ISDIR(mode) && nlink == 1;
}

/* If the layers are on several file systems, overlayfs invents inode numbers for directories, and reports other devices
 * for files. */
static int check_devices(int src_fd, const struct stat *src, struct wb_error *why)
{
    _cleanup_close_ int fd = openat(src_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    struct stat st;

    /* Linux before 6.1 cannot create one, nor can a full disk: objects on another device are then refused at
     * look-up. */
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev == src->st_dev)
        return 0;
    return wb_error_set(why, -EOPNOTSUPP,
                        "the source directory is on an overlayfs whose layers are on several file "
                        "systems, so files cannot be identified reliably; use a volume or a directory of the host, "
                        "or mount the overlayfs with xino=on, or this tree with history=none");
}

int wb_layers_check(int src_fd, struct wb_error *why)
{
    struct timespec times[2];
    struct stat st;

    if (!wb_layers_are_there(src_fd))
        return 0;
    if (fstat(src_fd, &st) < 0)
        return wb_error_set(why, -errno, "cannot read the source directory: %s", g_strerror(errno));
    times[0] = st.st_atim;
    times[1].tv_nsec = UTIME_OMIT;
    /* Overlayfs reports a directory that is in one lower layer only as merged once it is in the upper layer as well. */
    if (!wb_layers_merge(st.st_mode, st.st_nlink) && (futimens(src_fd, times) < 0 || fstat(src_fd, &st) < 0))
        return wb_error_set(why, -errno, "cannot read the source directory: %s", g_strerror(errno));
    if (!wb_layers_merge(st.st_mode, st.st_nlink))
        return check_devices(src_fd, &st, why);
    return wb_error_set(why, -EOPNOTSUPP,
                        "the source directory is on an overlayfs, and in a layer below (it came "
                        "with the image of a container), so its files change their identity when they are first "
                        "changed; copy it to the upper layer (cp -a SRC NEW; rm -r SRC; "
                        "mv NEW SRC), use a volume or a directory of the host, or mount the tree with "
                        "history=none");
}
