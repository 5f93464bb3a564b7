/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Reads or writes consecutive little-endian fields of a buffer of known length. If a field does not fit, the buffer is
 * not accessed: the cursor remembers the overflow, reads return zero, and the caller checks once, at the end.
 */

#include "format/format.h"
#include <endian.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

struct wb_writer {
    uint8_t *data;
    size_t length;
    size_t position;
    bool overflow;
};

static inline void wb_put_bytes(struct wb_writer *to, const void *bytes, size_t length)
{
    if (to->overflow || length > to->length - to->position) {
        to->overflow = true;
        return;
    }
    if (length)
        memcpy(to->data + to->position, bytes, length);
    to->position += length;
}

static inline void wb_put_u8(struct wb_writer *to, uint8_t value)
{
    wb_put_bytes(to, &value, sizeof(value));
}

static inline void wb_put_u16(struct wb_writer *to, uint16_t value)
{
    value = htole16(value);
    wb_put_bytes(to, &value, sizeof(value));
}

static inline void wb_put_u32(struct wb_writer *to, uint32_t value)
{
    value = htole32(value);
    wb_put_bytes(to, &value, sizeof(value));
}

static inline void wb_put_u64(struct wb_writer *to, uint64_t value)
{
    value = htole64(value);
    wb_put_bytes(to, &value, sizeof(value));
}

static inline void wb_put_i64(struct wb_writer *to, int64_t value)
{
    wb_put_u64(to, (uint64_t)value);
}

static inline void wb_put_zeros(struct wb_writer *to, size_t length)
{
    while (length--)
        wb_put_u8(to, 0);
}

struct wb_reader {
    const uint8_t *data;
    size_t length;
    size_t position;
    bool overflow;
    bool nonzero; /* a byte that must be zero is not */
};

/* The next `length` bytes, not copied, or NULL. */
static inline const void *wb_get_bytes(struct wb_reader *from, size_t length)
{
    const void *bytes;

    if (from->overflow || length > from->length - from->position) {
        from->overflow = true;
        return NULL;
    }
    bytes = from->data + from->position;
    from->position += length;
    return bytes;
}

static inline uint8_t wb_get_u8(struct wb_reader *from)
{
    const uint8_t *bytes = wb_get_bytes(from, 1);

    return bytes ? *bytes : 0;
}

static inline uint16_t wb_get_u16(struct wb_reader *from)
{
    const void *bytes = wb_get_bytes(from, sizeof(uint16_t));
    uint16_t value = 0;

    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return le16toh(value);
}

static inline uint32_t wb_get_u32(struct wb_reader *from)
{
    const void *bytes = wb_get_bytes(from, sizeof(uint32_t));
    uint32_t value = 0;

    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return le32toh(value);
}

static inline uint64_t wb_get_u64(struct wb_reader *from)
{
    const void *bytes = wb_get_bytes(from, sizeof(uint64_t));
    uint64_t value = 0;

    if (bytes)
        memcpy(&value, bytes, sizeof(value));
    return le64toh(value);
}

static inline int64_t wb_get_i64(struct wb_reader *from)
{
    return (int64_t)wb_get_u64(from);
}

/* Reserved bytes: they must be zero in this version. */
static inline void wb_get_zeros(struct wb_reader *from, size_t length)
{
    while (length--)
        from->nonzero |= wb_get_u8(from) != 0;
}

/* Whether every byte was read, none was missing, and all reserved bytes are zero. */
static inline bool wb_reader_complete(const struct wb_reader *from)
{
    return !from->overflow && !from->nonzero && from->position == from->length;
}

static inline void wb_put_object(struct wb_writer *to, struct wb_object object)
{
    wb_put_u64(to, object.ino);
    wb_put_i64(to, object.birth);
}

static inline struct wb_object wb_get_object(struct wb_reader *from)
{
    struct wb_object object;

    object.ino = wb_get_u64(from);
    object.birth = wb_get_i64(from);
    return object;
}

/* Device numbers and block counts share one field: no object has both. */
static inline bool wb_mode_is_device(uint32_t mode)
{
    return S_ISCHR(mode) || S_ISBLK(mode);
}

static inline void wb_put_attrs(struct wb_writer *to, const struct wb_attrs *attrs)
{
    wb_put_u32(to, attrs->mode);
    wb_put_u32(to, attrs->uid);
    wb_put_u32(to, attrs->gid);
    wb_put_u32(to, attrs->nlink);
    wb_put_u64(to, attrs->size);
    wb_put_u64(to, wb_mode_is_device(attrs->mode) ? attrs->rdev : attrs->blocks);
    wb_put_i64(to, attrs->atime);
    wb_put_i64(to, attrs->mtime);
    wb_put_i64(to, attrs->ctime);
}

static inline void wb_get_attrs(struct wb_reader *from, struct wb_attrs *attrs)
{
    attrs->mode = wb_get_u32(from);
    attrs->uid = wb_get_u32(from);
    attrs->gid = wb_get_u32(from);
    attrs->nlink = wb_get_u32(from);
    attrs->size = wb_get_u64(from);
    attrs->rdev = attrs->blocks = wb_get_u64(from);
    if (wb_mode_is_device(attrs->mode))
        attrs->blocks = 0;
    else
        attrs->rdev = 0;
    attrs->atime = wb_get_i64(from);
    attrs->mtime = wb_get_i64(from);
    attrs->ctime = wb_get_i64(from);
}
