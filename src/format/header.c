/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

/*
 * The store's header. A newer version can be distinguished from damage only because every version keeps the magic, the
 * version number and the checksum at the same offsets.
 */

#define HEADER_MAGIC "WAYBACK\n"
#define HEADER_MAGIC_SIZE 8
#define HEADER_CHECKED (WB_HEADER_SIZE - 8)
#define FLAG_FORGOTTEN 1u
#define FLAG_MANIFEST 2u

void wb_header_encode(const struct wb_header *header, uint8_t data[WB_HEADER_SIZE])
{
    struct wb_writer to = {.data = data, .length = WB_HEADER_SIZE};

    wb_put_bytes(&to, HEADER_MAGIC, HEADER_MAGIC_SIZE);
    wb_put_u32(&to, header->version);
    wb_put_u32(&to, (header->forgotten ? FLAG_FORGOTTEN : 0) | (header->manifest ? FLAG_MANIFEST : 0));
    wb_put_bytes(&to, header->uuid, sizeof(header->uuid));
    wb_put_object(&to, header->root);
    wb_put_i64(&to, header->created);
    wb_put_u64(&to, wb_checksum(data, HEADER_CHECKED));
}

int wb_header_decode(const uint8_t *data, size_t length, struct wb_header *ret)
{
    struct wb_reader from = {.data = data, .length = length};
    struct wb_header header = {0};
    const void *bytes;
    uint32_t flags, known;
    uint64_t check;

    bytes = wb_get_bytes(&from, HEADER_MAGIC_SIZE);
    if (!bytes || memcmp(bytes, HEADER_MAGIC, HEADER_MAGIC_SIZE) != 0)
        return -EBADMSG;
    header.version = wb_get_u32(&from);
    flags = wb_get_u32(&from);
    header.forgotten = flags & FLAG_FORGOTTEN;
    header.manifest = flags & FLAG_MANIFEST;
    bytes = wb_get_bytes(&from, sizeof(header.uuid));
    if (bytes)
        memcpy(header.uuid, bytes, sizeof(header.uuid));
    header.root = wb_get_object(&from);
    header.created = wb_get_i64(&from);
    check = wb_get_u64(&from);

    if (from.overflow || check != wb_checksum(data, HEADER_CHECKED) || header.version < WB_FORMAT_OLDEST)
        return -EBADMSG;
    if (header.version > WB_FORMAT_VERSION) {
        *ret = header;
        return -EPROTONOSUPPORT;
    }
    known = (header.version >= WB_FORMAT_FORGETS ? FLAG_FORGOTTEN : 0) |
            (header.version >= WB_FORMAT_MANIFEST ? FLAG_MANIFEST : 0);
    if (flags & ~known || length != WB_HEADER_SIZE)
        return -EBADMSG;
    *ret = header;
    return 0;
}
