/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/graveyard/bundle.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/directory/shard.h"
#include "store/graveyard/body_sums.h"
#include "store/tables/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Files of this size and more do not deserve space in the page cache. */
#define LARGE (UINT64_C(1) << 20)
/* Larger files have no checksums: each block has an entry, and restoring the file searches for all of them. */
#define SIZE_MAX_SUMMED (UINT64_C(16) << 30)

static int sum_block(int fd, uint32_t block, uint8_t data[WB_BODY_BLOCK], uint64_t *ret_check, size_t *ret_length)
{
    int r = wb_pread_full(fd, data, WB_BODY_BLOCK, (uint64_t)block * WB_BODY_BLOCK, ret_length);

    if (r == 0)
        *ret_check = wb_checksum(data, *ret_length);
    return r;
}

/* ---- computing --------------------------------------------------------------------------------------- */

struct making {
    struct wb_store *store;
    struct wb_body_summing *summing;
    uint8_t *data; /* WB_BODY_BLOCK bytes */
    bool left;     /* some files have to be processed again */
};

static bool may_change(const struct making *making, struct wb_object object)
{
    return making->summing->in_use && making->summing->in_use(making->summing->data, object);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_nlink == b->st_nlink && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* The entry of the first block makes the others valid: it is added only if the file did not change meanwhile. */
static int publish(struct making *making, struct wb_object object, int fd, const struct stat *before, unsigned rewrites,
                   uint64_t check)
{
    struct wb_store *store = making->store;
    struct stat now;
    int r = -EAGAIN;

    /* A thread that restores it holds this lock. */
    if (pthread_mutex_trylock(&store->rewriting) != 0)
        return r;
    if (atomic_load(&store->rewrites) == rewrites && !may_change(making, object) && fstat(fd, &now) == 0 &&
        same_file(before, &now))
        r = wb_manifest_put_block(store, object, 0, (uint64_t)before->st_size, check);
    pthread_mutex_unlock(&store->rewriting);
    return r;
}

static int make_sums(struct making *making, struct wb_object object, int fd, const struct stat *st)
{
    uint64_t size = (uint64_t)st->st_size, check = 0;
    uint32_t block = (uint32_t)((size + WB_BODY_BLOCK - 1) / WB_BODY_BLOCK);
    unsigned rewrites = atomic_load(&making->store->rewrites);
    size_t length;
    int r = 0;

    while (r == 0 && block-- > 0) {
        r = sum_block(fd, block, making->data, &check, &length);
        if (r == 0 && length != MIN(size - (uint64_t)block * WB_BODY_BLOCK, WB_BODY_BLOCK))
            r = -EAGAIN;
        if (r == 0 && making->summing->stop && making->summing->stop(making->summing->data))
            r = -ECANCELED;
        if (r == 0 && block > 0)
            r = wb_manifest_put_block(making->store, object, block, size, check);
    }
    if (r == 0)
        r = publish(making, object, fd, st, rewrites, check);
    if (size >= LARGE)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    making->summing->bytes -= MIN(making->summing->bytes, size);
    return r;
}

static int make_one(void *data, int dir_fd, const char *name)
{
    struct making *making = data;
    _cleanup_close_ int fd = -1;
    struct wb_manifest_entry entry;
    struct wb_object object, found;
    enum wb_object_file file;
    struct stat st;
    int r;

    if (wb_object_file_parse(name, &object, &file) < 0 || file != WB_FILE_DATA)
        return 0;
    if (making->summing->bytes == 0 || (making->summing->stop && making->summing->stop(making->summing->data)))
        return 1;
    if (wb_manifest_find_block(making->store, object, 0, &entry) != 0)
        return 0;
    /* Its access time belongs to the user and must not change. */
    fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_NOATIME | O_CLOEXEC);
    if (fd < 0 || wb_object_stat(making->store, fd, NULL, &found, NULL, &st) < 0 || !wb_object_equal(found, object) ||
        !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    making->summing->bytes -= MIN(making->summing->bytes, 4096u);
    /* With other names it is in use; it will be processed again when it has lost them. */
    if (st.st_nlink != 1 || (uint64_t)st.st_size > SIZE_MAX_SUMMED)
        return 0;
    /* If the work cannot be stopped, a file that exceeds the limit is left to the next daemon. */
    if (may_change(making, object) || (!making->summing->stop && (uint64_t)st.st_size > making->summing->bytes)) {
        making->left = true;
        return 0;
    }
    r = make_sums(making, object, fd, &st);
    making->left |= r < 0;
    return r == -ECANCELED ? 1 : 0;
}

void wb_body_sums_make(struct wb_store *store, struct wb_body_summing *summing)
{
    struct making making = {.store = store, .summing = summing};
    GArray *again;
    int shard;

    if (!store->manifest || store->grave_fd < 0)
        return;
    making.data = malloc(WB_BODY_BLOCK);
    again = g_array_new(FALSE, FALSE, sizeof(unsigned));
    while (making.data && summing->bytes > 0 && (shard = wb_manifest_next_unsummed(store)) >= 0) {
        unsigned number = (unsigned)shard;

        making.left = false;
        if (wb_shard_each(store->grave_fd, number, make_one, &making) != 0 || making.left)
            g_array_append_val(again, number);
    }
    for (guint i = 0; i < again->len; i++)
        wb_manifest_note_burial(store, (struct wb_object){g_array_index(again, unsigned, i), 0});
    g_array_unref(again);
    free(making.data);
}

/* ---- comparing -------------------------------------------------------------------------------------------- */

/* 1: the block is unchanged; 0: it is not, or has no entry any more; -errno. */
static int compare(const struct wb_store *store, struct wb_object object, int fd, uint32_t block,
                   uint8_t data[WB_BODY_BLOCK], struct wb_manifest_entry *entry)
{
    uint64_t check = 0;
    size_t length = 0;
    int r = wb_manifest_find_block(store, object, block, entry);

    if (r <= 0)
        return r;
    r = sum_block(fd, block, data, &check, &length);
    if (r < 0)
        return r;
    return check == entry->check &&
           length == MIN(entry->end - MIN(entry->end, (uint64_t)block * WB_BODY_BLOCK), WB_BODY_BLOCK);
}

static bool is_packed(const struct wb_store *store, struct wb_object object)
{
    struct stat st;

    return wb_bundle_stat(store, object, WB_FILE_BUNDLE, &st) == 0;
}

/* 0, 1 if it has no checksums (any more) or is packed; -EBADMSG or another -errno. */
static int check_block(const struct wb_store *store, struct wb_object object, int fd, uint32_t block,
                       uint8_t data[WB_BODY_BLOCK])
{
    struct wb_manifest_entry entry, first;
    int r = compare(store, object, fd, block, data, &entry);

    if (r != 0)
        return r < 0 ? r : 0;
    /* Checksums are withdrawn before the file changes, beginning with the first; and packed content is elsewhere. */
    r = wb_manifest_find_block(store, object, 0, &first);
    if (r <= 0)
        return r < 0 ? r : 1;
    return is_packed(store, object) ? 1 : -EBADMSG;
}

/* Compares [offset, offset + length) of the file with its checksums: 0, also if there are none; -EBADMSG or -errno. */
static int body_sums_check(struct wb_body *body, uint64_t offset, size_t length)
{
    struct wb_manifest_entry entry;
    uint8_t *data;
    int r = 0;

    if (body->unsummed || length == 0)
        return 0;
    if (!body->summed) {
        r = wb_manifest_find_block(body->store, body->object, 0, &entry);
        body->unsummed = r == 0;
        body->summed = r > 0;
        if (r <= 0)
            return r;
    }
    data = malloc(WB_BODY_BLOCK);
    r = data ? 0 : -ENOMEM;
    for (uint64_t block = offset / WB_BODY_BLOCK; r == 0 && block <= (offset + length - 1) / WB_BODY_BLOCK; block++) {
        if (block + 1 == body->verified)
            continue;
        r = check_block(body->store, body->object, body->fd, (uint32_t)block, data);
        body->unsummed = r > 0;
        if (r == 0)
            body->verified = block + 1;
    }
    free(data);
    return MIN(r, 0);
}

int wb_body_sums_check_all(const struct wb_store *store, struct wb_object object)
{
    _cleanup_close_ int fd = -1;
    struct wb_manifest_entry first;
    uint8_t *data;
    int r = wb_manifest_find_block(store, object, 0, &first);

    if (r <= 0)
        return r;
    fd = wb_grave_open(store, object, false, O_RDONLY | O_NOATIME);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    data = malloc(WB_BODY_BLOCK);
    r = data ? 0 : -ENOMEM;
    for (uint64_t block = 0; r == 0 && block * WB_BODY_BLOCK < first.end; block++)
        r = check_block(store, object, fd, (uint32_t)block, data);
    free(data);
    return MIN(r, 0);
}

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
    int fd = wb_store_open_file_as_is(store, object, file, O_RDONLY | O_CLOEXEC);

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
            r = body_sums_check(body, offset, *ret);
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
