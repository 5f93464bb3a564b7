/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The steps: the bundle is written, brought to the disk, read again and compared; then the files get it, one by one;
 * and these names are durable before the caller empties a file. A crash leaves files that have the bundle and are
 * whole: both say the same.
 */
#include "maintain/bundle/bundle.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* So many bytes are compared at a time. */
#define STEP (1u << 19)

void wb_bundle_sweep(struct wb_store *store)
{
    unlinkat(store->dir_fd, WB_BUNDLE_NEW, 0);
    unlinkat(store->dir_fd, WB_BUNDLE_LINK_NEW, 0);
}

/* Where there is one already, one rename: so there is one bundle at any time. */
static int give_name(struct wb_store *store, const char *from, struct wb_object object)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, WB_FILE_BUNDLE, path);
    if (linkat(AT_FDCWD, from, store->dir_fd, path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    unlinkat(store->dir_fd, WB_BUNDLE_LINK_NEW, 0);
    if (linkat(AT_FDCWD, from, store->dir_fd, WB_BUNDLE_LINK_NEW, AT_SYMLINK_FOLLOW) < 0 ||
        renameat(store->dir_fd, WB_BUNDLE_LINK_NEW, store->dir_fd, path) < 0)
        return -errno;
    return 0;
}

int wb_bundle_give_names(struct wb_store *store, int fd, const GArray *members)
{
    char from[32];
    int r = 0;

    wb_fd_path(fd, from);
    for (guint i = 0; r == 0 && i < members->len; i++)
        r = give_name(store, from, g_array_index(members, struct wb_bundle_member, i).object);
    return r;
}

/* ---- once more ------------------------------------------------------------------------------- */

static int compare(const struct wb_bundle_job *job, const struct wb_bundle *bundle,
                   const struct wb_bundle_member *member, uint8_t *a, uint8_t *b)
{
    struct wb_body body;
    size_t got;
    int r;

    r = wb_body_init(&body, job->store, member->object, wb_grave_open(job->store, member->object, false, O_RDONLY));
    for (uint64_t offset = 0, step; r == 0 && offset < member->size; offset += step) {
        step = MIN(member->size - offset, (uint64_t)STEP);
        r = job->stop && job->stop(job->stop_data) ? -ECANCELED : wb_body_pread(&body, a, step, offset, &got);
        if (r == 0)
            r = wb_bundle_read(bundle, member, b, step, offset);
        if (r == 0 && (got != step || memcmp(a, b, step) != 0))
            r = -EBADMSG;
    }
    wb_body_deinit(&body);
    return r;
}

struct place {
    uint64_t at;
    const struct wb_bundle_member *member;
};

static gint compare_places(gconstpointer a, gconstpointer b)
{
    const struct place *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

/* By where they begin in the bundle: so each chunk is unpacked about once. */
static int find_places(const struct wb_bundle *bundle, const GArray *members, GArray *places)
{
    for (guint i = 0; i < members->len; i++) {
        struct wb_object object = g_array_index(members, struct wb_bundle_member, i).object;
        struct place place = {.member = wb_bundle_find(bundle, object)};

        if (!place.member || place.member->size != g_array_index(members, struct wb_bundle_member, i).size)
            return -EBADMSG;
        if (place.member->count > 0)
            place.at = bundle->extents[place.member->first].at;
        g_array_append_val(places, place);
    }
    g_array_sort(places, compare_places);
    return 0;
}

int wb_bundle_verify(const struct wb_bundle_job *job)
{
    g_autofree uint8_t *a = g_try_malloc(STEP), *b = g_try_malloc(STEP);
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(struct place));
    struct wb_bundle *bundle = NULL;
    int fd, r = 0;

    if (!a || !b)
        return -ENOMEM;
    fd = fcntl(job->to, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return -errno;
    r = wb_bundle_open_fd(fd, &bundle);
    if (r == 0)
        r = find_places(bundle, job->members, places);
    for (guint i = 0; r == 0 && i < places->len; i++)
        r = compare(job, bundle, g_array_index(places, struct place, i).member, a, b);
    wb_bundle_free(bundle);
    return r;
}

/* ---- all steps ------------------------------------------------------------------------------- */

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
            r = wb_bundle_give_names(store, fd, writing.members);
        if (r == 0 && syncfs(store->dir_fd) < 0)
            r = -errno;
    }
    wb_bundle_sweep(store);
    return r;
}
