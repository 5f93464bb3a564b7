/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/identity/identities.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE 8         /* places read at a time: usually the object, or a free place, is among the first */
#define PROBES_MAX 4096   /* the writer never creates longer chains                                          */

struct wb_identities {
    int fd;
    struct wb_identities_head head;
};

static uint64_t place_count(const struct wb_identities_head *head)
{
    return UINT64_C(1) << head->bits;
}

static uint64_t offset_of(uint64_t place)
{
    return WB_IDENTITIES_HEAD + place * WB_IDENTITY_SIZE;
}

int wb_identities_open(struct wb_identities **ret, int store_fd)
{
    _cleanup_close_ int fd = wb_open_own(store_fd, WB_IDENTITIES_NAME, O_RDONLY, 0);
    uint8_t data[WB_IDENTITIES_HEAD];
    struct wb_identities_head head;
    struct stat st;
    int r;

    *ret = NULL;
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_pread_exact(fd, data, sizeof(data), 0);
    if (r == 0)
        r = wb_identities_decode_head(data, &head);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((uint64_t)st.st_size != offset_of(place_count(&head)))
        return -EBADMSG;
    *ret = g_try_new(struct wb_identities, 1);
    if (!*ret)
        return -ENOMEM;
    **ret = (struct wb_identities){wb_steal_fd(&fd), head};
    return 0;
}

struct wb_identities *wb_identities_free(struct wb_identities *identities)
{
    if (identities)
        close(identities->fd);
    g_free(identities);
    return NULL;
}

/* ---- look-up ----------------------------------------------------------------------------------- */

/* Compares one place: 1: it is the object's; 0: another object's; -ENOENT: it is free, so the table does not have the
 * object; -EIO: damaged. */
static int look_at(const uint8_t data[WB_IDENTITY_SIZE], struct wb_object *object)
{
    struct wb_identity identity;

    if (wb_is_zero(data, WB_IDENTITY_SIZE))
        return -ENOENT;
    if (wb_identity_decode(data, &identity) < 0)
        return -EIO;
    if (!wb_object_equal(identity.inode, *object))
        return 0;
    *object = identity.object;
    return 1;
}

int wb_identities_find(const struct wb_identities *identities, struct wb_object inode, struct wb_object *ret)
{
    uint8_t data[AT_ONCE * WB_IDENTITY_SIZE];
    uint64_t count, place;

    if (!identities)
        return 0;
    count = place_count(&identities->head);
    place = wb_identity_place(inode, identities->head.bits);
    *ret = inode;
    for (unsigned probes = 0; probes < PROBES_MAX && probes <= count;) {
        size_t n = (size_t)MIN(AT_ONCE, count - place);
        int r = wb_pread_exact(identities->fd, data, n * WB_IDENTITY_SIZE, offset_of(place));

        for (size_t i = 0; r == 0 && i < n; i++)
            r = look_at(data + i * WB_IDENTITY_SIZE, ret);
        if (r != 0)
            return r > 0 ? 1 : r == -ENOENT ? 0 : -EIO;
        probes += (unsigned)n;
        place = (place + n) % count;
    }
    return -EIO;
}

int wb_identities_map(const struct wb_identities *identities, struct wb_object *object)
{
    struct wb_object found;
    int r = wb_identities_find(identities, *object, &found);

    if (r > 0)
        *object = found;
    return MIN(r, 0);
}

int wb_identities_is_root(const struct wb_identities *identities, struct wb_object inode, struct wb_object root)
{
    struct wb_object found = inode;
    int r = wb_identities_find(identities, inode, &found);

    if (r < 0)
        return r;
    return (r > 0 || !identities) && wb_object_equal(found, root);
}

/* ---- iteration --------------------------------------------------------------------------------- */

uint64_t wb_identities_count(const struct wb_identities *identities)
{
    return identities ? identities->head.count : 0;
}

int wb_identities_each(const struct wb_identities *identities,
                       int (*each)(const struct wb_identity *identity, void *data), void *data)
{
    uint64_t count = identities ? place_count(&identities->head) : 0;
    uint8_t places[AT_ONCE * WB_IDENTITY_SIZE];
    int r = 0;

    for (uint64_t place = 0; r == 0 && place < count; place += AT_ONCE) {
        size_t n = (size_t)MIN(AT_ONCE, count - place);

        r = wb_pread_exact(identities->fd, places, n * WB_IDENTITY_SIZE, offset_of(place));
        for (size_t i = 0; r == 0 && i < n; i++) {
            const uint8_t *here = places + i * WB_IDENTITY_SIZE;
            struct wb_identity identity;

            if (wb_is_zero(here, WB_IDENTITY_SIZE))
                continue;
            r = wb_identity_decode(here, &identity) < 0 ? -EIO : each(&identity, data);
        }
    }
    return r;
}

int64_t wb_identities_check(const struct wb_identities *identities)
{
    uint8_t data[AT_ONCE * WB_IDENTITY_SIZE];
    uint64_t count = identities ? place_count(&identities->head) : 0;
    int64_t damaged = 0;

    for (uint64_t place = 0; place < count; place += AT_ONCE) {
        size_t n = (size_t)MIN(AT_ONCE, count - place);
        int r = wb_pread_exact(identities->fd, data, n * WB_IDENTITY_SIZE, offset_of(place));

        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++) {
            struct wb_identity identity;

            damaged += !wb_is_zero(data + i * WB_IDENTITY_SIZE, WB_IDENTITY_SIZE) &&
                       wb_identity_decode(data + i * WB_IDENTITY_SIZE, &identity) < 0;
        }
    }
    return damaged;
}

/* ---- writing ------------------------------------------------------------------------------------ */

/* Half of the places remain free, so that an object is near its first place. */
static uint32_t bits_for(size_t count)
{
    uint32_t bits = 3;

    while ((UINT64_C(1) << bits) / 2 < count)
        bits++;
    return bits;
}

struct wb_identities_writer {
    int store_fd;
    struct wb_identities table; /* the places written so far; look-ups work as in any table */
};

static const char temporary[] = WB_IDENTITIES_NAME ".new";

int wb_identities_begin(struct wb_identities_writer **ret, int store_fd, uint64_t max)
{
    struct wb_identities_head head = {.bits = bits_for(max)};
    _cleanup_close_ int fd = -1;

    *ret = NULL;
    if (head.bits > WB_IDENTITIES_BITS_MAX)
        return -ENOMEM;
    fd = wb_open_own(store_fd, temporary, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return fd;
    /* Free places are zeros. */
    if (ftruncate(fd, (off_t)offset_of(place_count(&head))) < 0)
        return -errno;
    *ret = g_try_new(struct wb_identities_writer, 1);
    if (!*ret)
        return -ENOMEM;
    **ret = (struct wb_identities_writer){.store_fd = store_fd, .table = {wb_steal_fd(&fd), head}};
    return 0;
}

/* At most half of the places are taken: there is always a free one. */
int wb_identities_put(struct wb_identities_writer *writer, const struct wb_identity *identity)
{
    struct wb_identities_head *head = &writer->table.head;
    uint64_t count = place_count(head), place = wb_identity_place(identity->inode, head->bits);
    uint8_t data[AT_ONCE * WB_IDENTITY_SIZE];

    if (head->count >= count / 2)
        return -ENOSPC;
    for (;;) {
        size_t n = (size_t)MIN(AT_ONCE, count - place);
        int r = wb_pread_exact(writer->table.fd, data, n * WB_IDENTITY_SIZE, offset_of(place));

        for (size_t i = 0; r == 0 && i < n; i++) {
            struct wb_object object = identity->inode;

            r = look_at(data + i * WB_IDENTITY_SIZE, &object);
            if (r == -ENOENT) {
                wb_identity_encode(identity, data);
                head->count++;
                return wb_pwrite_full(writer->table.fd, data, WB_IDENTITY_SIZE, offset_of(place + i));
            }
        }
        if (r != 0)
            return MIN(r, 0);
        place = (place + n) % count;
    }
}

int wb_identities_publish(struct wb_identities_writer *writer)
{
    uint8_t data[WB_IDENTITIES_HEAD];
    int r;

    wb_identities_encode_head(&writer->table.head, data);
    r = wb_pwrite_full(writer->table.fd, data, sizeof(data), 0);
    if (r == 0 && (fsync(writer->table.fd) < 0 ||
                   renameat(writer->store_fd, temporary, writer->store_fd, WB_IDENTITIES_NAME) < 0))
        r = -errno;
    return r < 0 ? r : wb_fsync_dir(writer->store_fd);
}

struct wb_identities_writer *wb_identities_writer_free(struct wb_identities_writer *writer)
{
    if (writer) {
        unlinkat(writer->store_fd, temporary, 0);
        close(writer->table.fd);
    }
    g_free(writer);
    return NULL;
}

int wb_identities_write(int store_fd, const struct wb_identity *list, size_t count)
{
    struct wb_identities_writer *writer;
    int r = wb_identities_begin(&writer, store_fd, count);

    for (size_t i = 0; r == 0 && i < count; i++)
        r = wb_identities_put(writer, &list[i]);
    if (r == 0)
        r = wb_identities_publish(writer);
    wb_identities_writer_free(writer);
    return r;
}
