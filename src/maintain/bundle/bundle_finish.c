/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files that have a bundle and are not empty: whoever packed or unpacked them was killed before he was done. What the
 * bundle has is their content; it is brought to the disk, with its names, and compared, and then they are emptied. One
 * that is not as far as it goes what the bundle says stays as it is, and is told of: nobody knows why.
 */
#include "maintain/bundle/bundle_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "maintain/rewrite/tried.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define STEP (1u << 19)

/* ---- the same -------------------------------------------------------------------------------- */

static int compare_content(struct wb_bundle_work *work, const struct wb_bundle *bundle,
                           const struct wb_bundle_member *member, int fd, uint64_t size)
{
    g_autofree uint8_t *a = g_try_malloc(STEP), *b = g_try_malloc(STEP);
    size_t got = 0;
    int r = a && b ? 0 : -ENOMEM;

    for (uint64_t offset = 0, step; r == 0 && offset < size; offset += step) {
        step = MIN(size - offset, (uint64_t)STEP);
        r = wb_bundle_is_wanted(work) ? -ECANCELED : wb_pread_full(fd, a, step, offset, &got);
        if (r == 0)
            r = wb_bundle_read(bundle, member, b, step, offset);
        if (r == 0 && (got != step || memcmp(a, b, step) != 0))
            r = -EBADMSG;
    }
    return r;
}

/* Whether its bundle is on the disk, and has what the file has: 0, -EBADMSG, WB_ABSENT: one of them is gone; or
 * -errno. */
static int compare(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    struct wb_object object = body->member.object;
    _cleanup_close_ int fd = wb_grave_open(work->gather->store, object, false, O_RDONLY);
    const struct wb_bundle_member *member;
    struct wb_bundle *bundle;
    int r;

    if (fd < 0)
        return fd == -ENOENT || fd == -EACCES || fd == -EPERM ? WB_ABSENT : fd;
    r = wb_bundle_open(work->gather->store, object, WB_FILE_BUNDLE, &bundle);
    if (r != 0)
        return r;
    member = wb_bundle_find(bundle, object);
    if (!member || member->size < body->member.size)
        r = -EBADMSG;
    else
        r = fsync(bundle->fd) < 0 ? -errno : compare_content(work, bundle, member, fd, body->member.size);
    wb_bundle_free(bundle);
    return r;
}

/* ---- emptied --------------------------------------------------------------------------------- */

/* Unless somebody forgot something since, or brought it back: 1, 0 or -errno. */
static int empty(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    const struct wb_compact *compact = work->compact;
    struct wb_store *store = work->gather->store;
    struct stat st;
    int r = 0;

    pthread_mutex_lock(&store->rewriting);
    if (atomic_load(&store->rewrites) == work->turn &&
        !(compact->in_use && compact->in_use(compact->in_use_data, body->member.object)) &&
        wb_bundle_stat(store, body->member.object, WB_FILE_BUNDLE, &st) == 0 && st.st_ino == body->bundle)
        r = wb_bundle_empty(store, body);
    pthread_mutex_unlock(&store->rewriting);
    return r;
}

static int finish_one(struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    int r = wb_bundle_is_wanted(work) ? -ECANCELED : compare(work, body);

    if (r == -EBADMSG)
        wb_tried_note(work->compact->tried, body->member.object, WB_FILE_DATA, 0);
    if (r != 0)
        return MIN(r, 0);
    r = empty(work, body);
    work->compact->bodies.changed += r > 0;
    work->compact->bodies.old_size += r > 0 ? body->member.size : 0;
    return MIN(r, 0);
}

/* What differed is told of once. */
static bool is_left(const struct wb_bundle_work *work, const struct wb_bundle_body *body)
{
    return body->bundle != 0 && body->member.size > 0 &&
           !wb_tried_has(work->compact->tried, body->member.object, WB_FILE_DATA, 0);
}

int wb_bundle_finish(struct wb_bundle_work *work)
{
    bool synced = false;
    int ret = 0;

    for (guint i = 0; i < work->gather->rows->len; i++) {
        const struct wb_bundle_row *row = wb_bundle_row_at(work, i);

        for (guint j = 0; j < row->bodies->len; j++) {
            int r = 0;

            if (!is_left(work, wb_bundle_body_at(row, j)))
                continue;
            /* Their names of it. */
            if (!synced && syncfs(work->gather->store->dir_fd) < 0)
                r = -errno;
            synced = true;
            if (r == 0)
                r = finish_one(work, wb_bundle_body_at(row, j));
            if (r < 0 && r != -EBADMSG)
                return r;
            ret = r < 0 ? r : ret;
        }
    }
    return ret;
}
