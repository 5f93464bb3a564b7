/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/identities.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE 8         /* places read at a time: as a rule what is sought, or nothing, is among the first */
#define PROBES_MAX 4096   /* no table of ours has so many in a row                                           */
#define WRITE_PLACES 1024 /* written at a time                                                               */

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

/* ---- looking ----------------------------------------------------------------------------------- */

/* One place: 1 this is it, 0 it is another's, -ENOENT it is free, and so what is sought is nowhere; -EIO damaged. */
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

int wb_identities_map(const struct wb_identities *identities, struct wb_object *object)
{
    uint8_t data[AT_ONCE * WB_IDENTITY_SIZE];
    uint64_t count, place;

    if (!identities)
        return 0;
    count = place_count(&identities->head);
    place = wb_identity_place(*object, identities->head.bits);
    for (unsigned probes = 0; probes < PROBES_MAX && probes <= count;) {
        size_t n = (size_t)MIN(AT_ONCE, count - place);
        int r = wb_pread_exact(identities->fd, data, n * WB_IDENTITY_SIZE, offset_of(place));

        for (size_t i = 0; r == 0 && i < n; i++)
            r = look_at(data + i * WB_IDENTITY_SIZE, object);
        if (r != 0)
            return r > 0 || r == -ENOENT ? 0 : -EIO;
        probes += (unsigned)n;
        place = (place + n) % count;
    }
    return -EIO;
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

/* Half of the places stay free, so that what is sought is near where it should be. */
static uint32_t bits_for(size_t count)
{
    uint32_t bits = 3;

    while ((UINT64_C(1) << bits) / 2 < count)
        bits++;
    return bits;
}

/* At most one in two is taken: there is always a free one. */
static void put(const struct wb_identity **places, uint64_t count, uint32_t bits, const struct wb_identity *identity)
{
    uint64_t place = wb_identity_place(identity->inode, bits);

    while (places[place])
        place = (place + 1) % count;
    places[place] = identity;
}

static int write_places(int fd, const struct wb_identity **places, uint64_t count)
{
    g_autofree uint8_t *data = g_try_malloc(WRITE_PLACES * WB_IDENTITY_SIZE);
    int r = data ? 0 : -ENOMEM;

    for (uint64_t begin = 0; r == 0 && begin < count; begin += WRITE_PLACES) {
        size_t n = (size_t)MIN(WRITE_PLACES, count - begin);

        memset(data, 0, n * WB_IDENTITY_SIZE);
        for (size_t i = 0; i < n; i++)
            if (places[begin + i])
                wb_identity_encode(places[begin + i], data + i * WB_IDENTITY_SIZE);
        r = wb_pwrite_full(fd, data, n * WB_IDENTITY_SIZE, offset_of(begin));
    }
    return r;
}

int wb_identities_write(int store_fd, const struct wb_identity *list, size_t count)
{
    struct wb_identities_head head = {.bits = bits_for(count), .count = count};
    uint64_t places_count = place_count(&head);
    g_autofree const struct wb_identity **places = g_try_new0(const struct wb_identity *, places_count);
    static const char temporary[] = WB_IDENTITIES_NAME ".new";
    uint8_t data[WB_IDENTITIES_HEAD];
    _cleanup_close_ int fd = -1;
    int r;

    if (!places || head.bits > WB_IDENTITIES_BITS_MAX)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        put(places, places_count, head.bits, &list[i]);
    fd = wb_open_own(store_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return fd;
    wb_identities_encode_head(&head, data);
    r = wb_pwrite_full(fd, data, sizeof(data), 0);
    if (r == 0)
        r = write_places(fd, places, places_count);
    if (r == 0 && (fsync(fd) < 0 || renameat(store_fd, temporary, store_fd, WB_IDENTITIES_NAME) < 0))
        r = -errno;
    if (r < 0)
        unlinkat(store_fd, temporary, 0);
    return r < 0 ? r : wb_fsync_dir(store_fd);
}
