/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrm.h"
#include "common/cli.h"
#include "client/control.h"
#include "client/saves.h"
#include "client/fd.h"
#include "client/saves.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static void measure_tree(int dir_fd, const char *name, struct vrm_extent *extent)
{
    _cleanup_fd_ int fd = -1;
    g_autoptr(GPtrArray) names = NULL;
    struct stat st;

    if (wb_cli_interrupted() || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        extent->files++;
        return;
    }
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    for (guint i = 0; names && i < names->len; i++)
        measure_tree(fd, names->pdata[i], extent);
}

/* Whether there is any history of it. */
static bool was_ever(const struct wb_place *place)
{
    _cleanup_walk_ struct wb_version_walk *walk = wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, 0);
    const struct wb_control_version *version;

    return wb_version_walk_next(walk, &version) == 0;
}

int vrm_measure(const struct wb_place *place, int64_t before, struct vrm_extent *extent)
{
    _cleanup_save_walk_ struct wb_save_walk *walk = wb_save_walk_new(place->mount->root_fd, place->path, 0, before);
    struct wb_control_identity identity;
    const struct wb_save *save;
    struct stat st;
    int r;

    while ((r = wb_save_walk_next(walk, &save)) == 0)
        extent->versions += save->number > 0;
    /* A damaged history is erased like any other. */
    if (r < 0 && r != -EIO && r != -ENOENT)
        return r;
    if (wb_place_stat(place, &st) == 0) {
        extent->exists = true;
        extent->directory = S_ISDIR(st.st_mode);
        measure_tree(place->mount->root_fd, *place->path ? place->path : ".", extent);
    } else if (extent->versions == 0 && !was_ever(place)) {
        return -ENOENT;
    } else if (wb_request_identify(place->mount->root_fd, place->path, &identity) == 0) {
        extent->directory = S_ISDIR(identity.mode);
    }
    return 0;
}

int vrm_measure_room(const struct wb_place *place, const struct vrm_hit *hit, struct vrm_extent *extent)
{
    int r = wb_request_erase_measure(place->mount->root_fd, place->path,
                                     hit && hit->former ? WB_CONTROL_ERASE_FORMER : 0, &extent->freed);

    extent->measured = r == 0;
    return r == -EPERM || r == -EACCES || r == -EREMOTE ? r : 0;
}
