/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The steps: the bundle is written, brought to the disk, read again and compared; then the files get it, one by one;
 * and these names are durable before the caller empties a file. A crash leaves files that have the bundle and are whole:
 * both say the same.
 */
#include "keep/bundle.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define LINK_NEW "bundle-link.new"

void wb_bundle_sweep(struct wb_store *store)
{
    unlinkat(store->dir_fd, WB_BUNDLE_NEW, 0);
    unlinkat(store->dir_fd, LINK_NEW, 0);
}

/* One rename, so that there is one bundle at any time. */
static int give_name(struct wb_store *store, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, WB_FILE_BUNDLE, path);
    unlinkat(store->dir_fd, LINK_NEW, 0);
    if (linkat(store->dir_fd, WB_BUNDLE_NEW, store->dir_fd, LINK_NEW, 0) < 0 ||
        renameat(store->dir_fd, LINK_NEW, store->dir_fd, path) < 0)
        return -errno;
    return 0;
}

static int give_names(struct wb_store *store, const struct wb_bundle_job *job)
{
    int r = 0;

    for (guint i = 0; r == 0 && i < job->members->len; i++)
        r = give_name(store, g_array_index(job->members, struct wb_bundle_member, i).object);
    return r;
}

int wb_bundle_make(struct wb_store *store, const struct wb_bundle_job *job, uint64_t most, bool dry,
                   uint64_t *ret_size)
{
    _cleanup_close_ int fd = -1;
    struct wb_bundle_job writing = *job;
    int r;

    wb_bundle_sweep(store);
    fd = wb_create_own(store->dir_fd, WB_BUNDLE_NEW, O_RDWR);
    if (fd < 0)
        return fd;
    writing.to = fd;
    r = wb_bundle_write(&writing, ret_size);
    if (r == 0 && most > 0 && *ret_size > most)
        r = WB_BUNDLE_WASTE;
    if (r == 0 && !dry) {
        r = fsync(fd) < 0 ? -errno : wb_bundle_verify(&writing);
        if (r == 0)
            r = give_names(store, &writing);
        if (r == 0 && syncfs(store->dir_fd) < 0)
            r = -errno;
    }
    wb_bundle_sweep(store);
    return r;
}
