/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"
#include "format/cursor.h"
#include "format/format.h"

#include <errno.h>

/* Signposts: the new or the former place of a store. */

#define MAGIC "WBMOVED\n"
#define MAGIC_SIZE 8
#define CHECK_SIZE 8
#define ROOT_SIZE 16

size_t wb_signpost_encode(const struct wb_signpost *signpost, uint8_t *data)
{
    struct wb_writer to = {.data = data, .length = WB_SIGNPOST_SIZE_MAX};
    size_t length = strnlen(signpost->path, WB_SIGNPOST_PATH_MAX - 1);

    wb_put_bytes(&to, MAGIC, MAGIC_SIZE);
    wb_put_u32(&to, signpost->kind);
    wb_put_u32(&to, signpost->buried);
    wb_put_bytes(&to, signpost->uuid, sizeof(signpost->uuid));
    wb_put_i64(&to, signpost->synced);
    wb_put_u32(&to, (uint32_t)length + 1);
    wb_put_u32(&to, signpost->has_root ? ROOT_SIZE : 0);
    wb_put_bytes(&to, signpost->path, length);
    wb_put_u8(&to, 0);
    if (signpost->has_root)
        wb_put_object(&to, signpost->root);
    wb_put_u64(&to, wb_checksum(data, to.position));
    return to.position;
}

int wb_signpost_decode(const uint8_t *data, size_t length, struct wb_signpost *ret)
{
    struct wb_reader from = {.data = data, .length = length};
    const void *magic = wb_get_bytes(&from, MAGIC_SIZE), *uuid, *path;
    uint32_t size, root_size;

    *ret = (struct wb_signpost){.kind = wb_get_u32(&from), .buried = 0};
    ret->buried = wb_get_u32(&from);
    uuid = wb_get_bytes(&from, sizeof(ret->uuid));
    ret->synced = wb_get_i64(&from);
    size = wb_get_u32(&from);
    root_size = wb_get_u32(&from);
    if (from.overflow || memcmp(magic, MAGIC, MAGIC_SIZE) != 0 || size < 2 || size > WB_SIGNPOST_PATH_MAX ||
        (root_size != 0 && root_size != ROOT_SIZE) || length != from.position + size + root_size + CHECK_SIZE)
        return -EBADMSG;
    path = wb_get_bytes(&from, size);
    ret->has_root = root_size != 0;
    if (ret->has_root)
        ret->root = wb_get_object(&from);
    if (wb_get_u64(&from) != wb_checksum(data, length - CHECK_SIZE) || from.overflow)
        return -EBADMSG;
    memcpy(ret->uuid, uuid, sizeof(ret->uuid));
    memcpy(ret->path, path, size);
    if (ret->path[0] != '/' || strlen(ret->path) != size - 1 || ret->buried > 1 ||
        ret->kind < WB_SIGNPOST_LEADS || ret->kind > WB_SIGNPOST_REMAINS)
        return -EBADMSG;
    return 0;
}
