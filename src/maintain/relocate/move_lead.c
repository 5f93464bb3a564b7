/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What leads to a store that was moved: from where it was, and from the tree. */
#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/relocate/move_parts.h"
#include "store/parts.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

int wb_move_lead(int dir_fd, const struct wb_moving *moving)
{
    struct wb_signpost signpost = {.kind = WB_SIGNPOST_LEADS};

    memcpy(signpost.uuid, moving->coming.uuid, sizeof(signpost.uuid));
    g_strlcpy(signpost.path, moving->result->to, sizeof(signpost.path));
    return wb_signpost_write(dir_fd, &signpost);
}

/*
 * The tree itself says where its store is, unless there is another one in it. A graveyard in SRC becomes the directory
 * with the signpost, so that there is one directory of ours in SRC as before, and the root has as many links.
 */
int wb_move_lead_from_tree(const struct wb_move_places *places)
{
    const struct wb_moving *moving = &places->moving;
    _cleanup_close_ int fd = openat(places->src_fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_close_ int staging = -1;
    struct wb_signpost there;
    int r;

    if (fd >= 0)
        return wb_move_same_dir(fd, moving->to_fd) || wb_signpost_read(fd, &there) <= 0 ? 0 : wb_move_lead(fd, moving);
    staging = openat(places->src_fd, WB_STAGING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (staging < 0) {
        r = staging = wb_store_dir_make_inside(places->src_fd);
        return r < 0 ? r : wb_move_lead(staging, moving);
    }
    r = wb_move_lead(staging, moving);
    if (r == 0 && renameat(places->src_fd, WB_STAGING_NAME, places->src_fd, WB_STORE_NAME) < 0)
        r = -errno;
    return r == 0 ? wb_fsync_dir(places->src_fd) : r;
}

/* The graveyard in SRC that nothing is in any more. */
void wb_move_remove_staging(const struct wb_move_places *places)
{
    _cleanup_close_ int grave = wb_store_dir_grave(places->src_fd, places->moving.to_fd, false);
    _cleanup_close_ int staging = openat(places->src_fd, WB_STAGING_NAME,
                                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[sizeof(WB_OBJECTS_NAME) + 3];

    if (staging < 0 || grave < 0 || wb_move_same_dir(grave, staging))
        return;
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", i);
        unlinkat(staging, path, AT_REMOVEDIR);
    }
    unlinkat(staging, WB_OBJECTS_NAME, AT_REMOVEDIR);
    unlinkat(places->src_fd, WB_STAGING_NAME, AT_REMOVEDIR);
}
