/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/graveyard/body_sums.h"
#include "store/graveyard/bundle.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* ---- the index ------------------------------------------------------------------------------- */

static int read_index(struct wb_bundle *bundle)
{
    uint64_t unpacked = wb_log_bytes_unpacked(&bundle->bytes), length;
    uint8_t end_data[WB_BUNDLE_END_SIZE];
    g_autofree uint8_t *data = NULL;
    struct wb_bundle_end end;
    int r;

    if (unpacked < sizeof(end_data))
        return -EBADMSG;
    r = wb_log_bytes_exact(&bundle->bytes, end_data, sizeof(end_data), unpacked - sizeof(end_data));
    if (r == 0)
        r = wb_bundle_decode_end(end_data, &end);
    if (r < 0)
        return r;
    length = wb_bundle_index_size(&end);
    if (length > unpacked - sizeof(end_data))
        return -EBADMSG;
    data = g_try_malloc(length);
    bundle->members = g_try_new(struct wb_bundle_member, end.members);
    bundle->extents = g_try_new(struct wb_bundle_extent, MAX(end.extents, 1));
    if (!data || !bundle->members || !bundle->extents)
        return -ENOMEM;
    unpacked -= sizeof(end_data) + length;
    r = wb_log_bytes_exact(&bundle->bytes, data, length, unpacked);
    if (r == 0)
        r = wb_bundle_decode_index(&end, data, unpacked, bundle->members, bundle->extents);
    bundle->count = end.members;
    bundle->extent_count = end.extents;
    return r;
}

int wb_bundle_open_fd(int fd, struct wb_bundle **ret)
{
    struct wb_bundle *bundle = g_try_new0(struct wb_bundle, 1);
    int r;

    if (!bundle) {
        close(fd);
        return -ENOMEM;
    }
    bundle->fd = fd;
    r = wb_log_bytes_open(&bundle->bytes, fd);
    if (r == 0)
        r = read_index(bundle);
    if (r < 0) {
        wb_bundle_free(bundle);
        return r == -ENODATA ? -EBADMSG : r;
    }
    *ret = bundle;
    return 0;
}

int wb_bundle_open(const struct wb_store *store, struct wb_object object, enum wb_object_file file,
                   struct wb_bundle **ret)
{
    int fd = wb_store_open_file(store, object, file, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return fd == -ENOENT ? WB_ABSENT : fd;
    return wb_bundle_open_fd(fd, ret);
}

struct wb_bundle *wb_bundle_free(struct wb_bundle *bundle)
{
    if (!bundle)
        return NULL;
    wb_log_bytes_close(&bundle->bytes);
    close(bundle->fd);
    g_free(bundle->members);
    g_free(bundle->extents);
    g_free(bundle);
    return NULL;
}

const struct wb_bundle_member *wb_bundle_find(const struct wb_bundle *bundle, struct wb_object object)
{
    uint32_t low = 0, high = bundle->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct wb_bundle_member *member = &bundle->members[middle];
        int r = wb_object_compare(member->object, object);

        if (r == 0)
            return member;
        if (r < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int wb_bundle_stat(const struct wb_store *store, struct wb_object object, enum wb_object_file file, struct stat *st)
{
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, file, path);
    if (fstatat(store->dir_fd, path, st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? WB_ABSENT : -errno;
    return 0;
}

/* ---- content --------------------------------------------------------------------------------- */

/* The first extent that ends after `offset`; NULL: a hole up to the end. */
static const struct wb_bundle_extent *find_extent(const struct wb_bundle *bundle,
                                                  const struct wb_bundle_member *member, uint64_t offset)
{
    uint32_t low = member->first, high = member->first + member->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (bundle->extents[middle].offset + bundle->extents[middle].length > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low < member->first + member->count ? &bundle->extents[low] : NULL;
}

void wb_bundle_run(const struct wb_bundle *bundle, const struct wb_bundle_member *member, uint64_t offset,
                   bool *ret_hole, uint64_t *ret_end)
{
    const struct wb_bundle_extent *extent = find_extent(bundle, member, offset);

    *ret_hole = !extent || extent->offset > offset;
    *ret_end = !extent ? member->size : *ret_hole ? extent->offset : extent->offset + extent->length;
}

int wb_bundle_read(const struct wb_bundle *bundle, const struct wb_bundle_member *member, void *data, size_t length,
                   uint64_t offset)
{
    uint8_t *to = data;
    int r = 0;

    if (offset > member->size || length > member->size - offset)
        return -EINVAL;
    while (r == 0 && length > 0) {
        const struct wb_bundle_extent *extent = find_extent(bundle, member, offset);
        uint64_t end = extent ? extent->offset : UINT64_MAX;
        size_t step;

        if (end > offset) {
            step = (size_t)MIN(length, end - offset);
            memset(to, 0, step);
        } else {
            step = (size_t)MIN(length, extent->offset + extent->length - offset);
            r = wb_log_bytes_exact(&bundle->bytes, to, step, extent->at + (offset - extent->offset));
        }
        to += step;
        offset += step;
        length -= step;
    }
    return r == -ENODATA ? -EBADMSG : r;
}

/* ---- a file, packed or not ------------------------------------------------------------------- */

/* Checks whether the content was packed meanwhile. 1: it was, 0: not, or -errno. */
static int look(struct wb_body *body)
{
    struct wb_bundle *bundle;
    int r;

    if (body->bundle)
        return 1;
    r = wb_bundle_open(body->store, body->object, WB_FILE_BUNDLE, &bundle);
    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    body->member = wb_bundle_find(bundle, body->object);
    if (!body->member) {
        wb_bundle_free(bundle);
        return -EBADMSG;
    }
    body->bundle = bundle;
    return 1;
}

int wb_body_init(struct wb_body *body, const struct wb_store *store, struct wb_object object, int fd)
{
    int r;

    *body = (struct wb_body){.store = store, .object = object, .fd = fd};
    if (fd < 0)
        return 0;
    r = look(body);
    return r < 0 ? r : 0;
}

void wb_body_deinit(struct wb_body *body)
{
    wb_close_fd(&body->fd);
    body->bundle = wb_bundle_free(body->bundle);
    body->fd = -1;
}

int wb_body_size(struct wb_body *body, uint64_t *ret)
{
    struct stat st;

    if (body->fd < 0)
        return body->fd;
    if (body->bundle)
        st.st_size = (off_t)body->member->size;
    else if (fstat(body->fd, &st) < 0)
        return -errno;
    *ret = (uint64_t)st.st_size;
    return 0;
}

/* Reads the file itself: 1 if it has fewer bytes than requested, or had meanwhile. */
static int read_file(const struct wb_body *body, void *data, size_t length, uint64_t offset, size_t *ret)
{
    struct stat st;
    int r = wb_pread_full(body->fd, data, length, offset, ret);

    if (r < 0)
        return r;
    if (fstat(body->fd, &st) < 0)
        return -errno;
    return *ret < length || (uint64_t)st.st_size < offset + length;
}

int wb_body_pread(struct wb_body *body, void *data, size_t length, uint64_t offset, size_t *ret)
{
    int r;

    *ret = 0;
    if (body->fd < 0)
        return body->fd;
    /* Content that was packed between two checks may have been unpacked again: then the file is complete. */
    for (unsigned attempt = 0; !body->bundle && attempt < 3; attempt++) {
        r = read_file(body, data, length, offset, ret);
        if (r == 0)
            r = wb_body_sums_check(body, offset, *ret);
        if (r <= 0)
            return r;
        r = look(body);
        if (r < 0)
            return r;
    }
    if (!body->bundle)
        return 0;
    *ret = offset < body->member->size ? (size_t)MIN(length, body->member->size - offset) : 0;
    return wb_bundle_read(body->bundle, body->member, data, *ret, offset);
}

int wb_body_run(struct wb_body *body, uint64_t offset, bool *ret_hole, uint64_t *ret_end)
{
    off_t data, hole = -1;
    int r;

    *ret_end = UINT64_MAX;
    if (body->fd < 0)
        return body->fd;
    for (unsigned attempt = 0; !body->bundle && attempt < 3; attempt++) {
        data = lseek(body->fd, (off_t)offset, SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return -errno;
        if (data == (off_t)offset)
            hole = lseek(body->fd, (off_t)offset, SEEK_HOLE);
        *ret_hole = data != (off_t)offset;
        if (*ret_hole && data > 0)
            *ret_end = (uint64_t)data;
        else if (hole > (off_t)offset)
            *ret_end = (uint64_t)hole;
        /* If there is data now, there was data before. */
        if (data >= 0)
            return 0;
        r = look(body);
        if (r < 0)
            return r;
    }
    if (body->bundle && offset < body->member->size)
        wb_bundle_run(body->bundle, body->member, offset, ret_hole, ret_end);
    else if (body->bundle)
        *ret_hole = true;
    return 0;
}
