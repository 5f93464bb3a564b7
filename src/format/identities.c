/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/seal.h"
#include <errno.h>

/* The table from inodes to objects, in a tree that was moved or copied with its store. */

#define MAGIC "WBIDENT\n"
#define MAGIC_SIZE 8
#define HEAD_CHECKED (WB_IDENTITIES_HEAD - 8)

void wb_identities_encode_head(const struct wb_identities_head *head, uint8_t data[WB_IDENTITIES_HEAD])
{
    struct wb_writer to = {.data = data, .length = WB_IDENTITIES_HEAD};

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_u32(&to, head->bits);
    wb_put_u32(&to, 0);
    wb_put_u64(&to, head->count);
    wb_put_zeros(&to, HEAD_CHECKED - to.position);
    wb_put_u64(&to, wb_checksum(data, HEAD_CHECKED));
}

int wb_identities_decode_head(const uint8_t data[WB_IDENTITIES_HEAD], struct wb_identities_head *ret)
{
    struct wb_reader from = {.data = data, .length = WB_IDENTITIES_HEAD};
    const void *magic = wb_get_bytes(&from, MAGIC_SIZE);
    uint64_t check;

    ret->bits = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    ret->count = wb_get_u64(&from);
    wb_get_zeros(&from, HEAD_CHECKED - from.position);
    check = wb_get_u64(&from);
    return !from.overflow && !from.nonzero && memcmp(magic, MAGIC, MAGIC_SIZE) == 0 &&
                   check == wb_checksum(data, HEAD_CHECKED) && ret->bits <= WB_IDENTITIES_BITS_MAX &&
                   ret->count <= (UINT64_C(1) << ret->bits) / 2
               ? 0
               : -EBADMSG;
}

uint64_t wb_identity_place(struct wb_object inode, uint32_t bits)
{
    uint8_t data[16];
    struct wb_writer to = {.data = data, .length = sizeof(data)};

    wb_put_object(&to, inode);
    return wb_checksum(data, sizeof(data)) & ((UINT64_C(1) << bits) - 1);
}

void wb_identity_encode(const struct wb_identity *identity, uint8_t data[WB_IDENTITY_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_IDENTITY_SIZE - WB_SEAL_SIZE};

    wb_put_object(&to, identity->inode);
    wb_put_object(&to, identity->object);
    wb_put_u32(&to, 0);
    wb_seal(data, WB_IDENTITY_SIZE);
}

int wb_identity_decode(const uint8_t data[WB_IDENTITY_SIZE], struct wb_identity *ret)
{
    struct wb_reader from = {.data = data, .length = WB_IDENTITY_SIZE - WB_SEAL_SIZE};

    ret->inode = wb_get_object(&from);
    ret->object = wb_get_object(&from);
    wb_get_zeros(&from, 4);
    return !from.nonzero && wb_is_sealed(data, WB_IDENTITY_SIZE) && !wb_object_is_none(ret->inode) &&
                   !wb_object_is_none(ret->object)
               ? 0
               : -EBADMSG;
}
