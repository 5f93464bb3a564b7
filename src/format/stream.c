/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/stream.h"

#include "base/checksum.h"
#include "format/cursor.h"
#include <errno.h>

/* ---- frames ------------------------------------------------------------------------------------- */

#define CHECKED (WB_FRAME_HEAD - 8)

static uint64_t check_of(const uint8_t head[WB_FRAME_HEAD], uint64_t previous, const void *body, size_t length)
{
    uint64_t parts[2] = {htole64(previous), htole64(wb_checksum(body, length))};
    uint8_t all[sizeof(parts) + CHECKED];

    memcpy(all, parts, sizeof(parts));
    memcpy(all + sizeof(parts), head, CHECKED);
    return wb_checksum(all, sizeof(all));
}

void wb_frame_encode(struct wb_frame *frame, uint64_t previous, const void *body, uint8_t head[WB_FRAME_HEAD])
{
    struct wb_writer to = {head, WB_FRAME_HEAD, 0, false};

    wb_put_u32(&to, WB_STREAM_MAGIC);
    wb_put_u32(&to, frame->type);
    wb_put_u32(&to, frame->length);
    wb_put_u32(&to, 0);
    wb_put_u64(&to, frame->sequence);
    frame->check = check_of(head, previous, body, frame->length);
    wb_put_u64(&to, frame->check);
}

int wb_frame_measure(const uint8_t head[WB_FRAME_HEAD], struct wb_frame *ret)
{
    struct wb_reader from = {.data = head, .length = WB_FRAME_HEAD};
    bool known = wb_get_u32(&from) == WB_STREAM_MAGIC;

    ret->type = wb_get_u32(&from);
    ret->length = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    ret->sequence = wb_get_u64(&from);
    ret->check = wb_get_u64(&from);
    return known && wb_reader_complete(&from) && ret->length <= WB_FRAME_BODY_MAX ? 0 : -EBADMSG;
}

int wb_frame_verify(const struct wb_frame *frame, const uint8_t head[WB_FRAME_HEAD], uint64_t sequence,
                    uint64_t previous, const void *body)
{
    return frame->sequence == sequence && frame->check == check_of(head, previous, body, frame->length) ? 0 : -EBADMSG;
}

/* ---- encoding ------------------------------------------------------------------------------------- */

void wb_stream_encode_hello(const struct wb_stream_hello *hello, uint8_t data[WB_HELLO_SIZE])
{
    struct wb_writer to = {data, WB_HELLO_SIZE, 0, false};

    wb_put_u32(&to, hello->version);
    wb_put_u32(&to, hello->format);
    wb_put_bytes(&to, hello->uuid, sizeof(hello->uuid));
    wb_put_object(&to, hello->root);
    wb_put_i64(&to, hello->created);
    wb_put_u32(&to, hello->forgotten);
    wb_put_u32(&to, 0);
    wb_put_i64(&to, hello->since);
    wb_put_i64(&to, hello->until);
    wb_put_i64(&to, hello->erased);
    wb_put_i64(&to, hello->thinned);
}

void wb_stream_encode_record(const struct wb_stream_record *record, uint8_t data[WB_STREAM_RECORD_SIZE])
{
    struct wb_writer to = {data, WB_STREAM_RECORD_SIZE, 0, false};

    wb_put_object(&to, record->object);
    wb_put_u32(&to, record->log);
    wb_put_u32(&to, record->flags);
    wb_put_u64(&to, record->offset);
}

void wb_stream_encode_bytes(const struct wb_stream_bytes *bytes, uint8_t data[WB_STREAM_BYTES_SIZE])
{
    struct wb_writer to = {data, WB_STREAM_BYTES_SIZE, 0, false};

    wb_put_object(&to, bytes->object);
    wb_put_u64(&to, bytes->offset);
}

void wb_stream_encode_hole(const struct wb_stream_hole *hole, uint8_t data[WB_STREAM_HOLE_SIZE])
{
    struct wb_writer to = {data, WB_STREAM_HOLE_SIZE, 0, false};

    wb_put_object(&to, hole->object);
    wb_put_u64(&to, hole->offset);
    wb_put_u64(&to, hole->length);
}

void wb_stream_encode_object(const struct wb_stream_object *object, uint8_t data[WB_STREAM_OBJECT_SIZE])
{
    struct wb_writer to = {data, WB_STREAM_OBJECT_SIZE, 0, false};

    wb_put_object(&to, object->object);
    wb_put_attrs(&to, &object->attrs);
    wb_put_u32(&to, object->flags);
    wb_put_u32(&to, (uint32_t)object->target_length);
}

void wb_stream_encode_list(const struct wb_stream_list *list, uint8_t data[WB_STREAM_LIST_SIZE])
{
    struct wb_writer to = {data, WB_STREAM_LIST_SIZE, 0, false};

    wb_put_object(&to, list->object);
    wb_put_u32(&to, list->count);
    wb_put_u32(&to, list->last);
}

size_t wb_stream_encode_entry(const struct wb_stream_entry *entry, uint8_t data[WB_STREAM_ENTRY_MAX])
{
    struct wb_writer to = {data, WB_STREAM_ENTRY_MAX, 0, false};

    wb_put_object(&to, entry->object);
    wb_put_u32(&to, entry->mode);
    wb_put_u8(&to, entry->length);
    wb_put_zeros(&to, 3);
    wb_put_bytes(&to, entry->name, entry->length);
    return to.position;
}

void wb_stream_encode_xattr(const struct wb_stream_xattr *xattr, uint8_t data[WB_STREAM_XATTR_HEAD])
{
    struct wb_writer to = {data, WB_STREAM_XATTR_HEAD, 0, false};

    wb_put_u32(&to, xattr->value_length);
    wb_put_u8(&to, xattr->name_length);
    wb_put_zeros(&to, 3);
}

/* ---- decoding ------------------------------------------------------------------------------------- */

static bool valid_name(const char *name, size_t length)
{
    if (length == 0 || (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.'))
        return false;
    return !memchr(name, '/', length) && !memchr(name, '\0', length);
}

static void get_entry(struct wb_reader *from, struct wb_stream_entry *ret)
{
    ret->object = wb_get_object(from);
    ret->mode = wb_get_u32(from);
    ret->length = wb_get_u8(from);
    wb_get_zeros(from, 3);
    ret->name = wb_get_bytes(from, ret->length);
}

static void get_xattr(struct wb_reader *from, struct wb_stream_xattr *ret)
{
    ret->value_length = wb_get_u32(from);
    ret->name_length = wb_get_u8(from);
    wb_get_zeros(from, 3);
    ret->name = wb_get_bytes(from, ret->name_length);
    ret->value = wb_get_bytes(from, ret->value_length);
}

void wb_stream_next_entry(const struct wb_stream_list *list, size_t *position, struct wb_stream_entry *ret)
{
    struct wb_reader from = {.data = list->data, .length = list->length, .position = *position};

    get_entry(&from, ret);
    *position = from.position;
}

void wb_stream_next_xattr(const struct wb_stream_list *list, size_t *position, struct wb_stream_xattr *ret)
{
    struct wb_reader from = {.data = list->data, .length = list->length, .position = *position};

    get_xattr(&from, ret);
    *position = from.position;
}

int wb_stream_find_flags(const struct wb_stream_list *list, struct wb_flags *ret)
{
    struct wb_stream_xattr xattr;
    size_t position = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        wb_stream_next_xattr(list, &position, &xattr);
        if (xattr.name_length == strlen(WB_FLAGS_NAME) && memcmp(xattr.name, WB_FLAGS_NAME, xattr.name_length) == 0)
            return wb_flags_decode(xattr.value, xattr.value_length, ret) < 0 ? -EBADMSG : 1;
    }
    return 0;
}

static bool decode_hello(struct wb_reader *from, struct wb_stream_hello *ret)
{
    const void *uuid;
    uint32_t forgotten;

    ret->version = wb_get_u32(from);
    ret->format = wb_get_u32(from);
    uuid = wb_get_bytes(from, sizeof(ret->uuid));
    if (uuid)
        memcpy(ret->uuid, uuid, sizeof(ret->uuid));
    ret->root = wb_get_object(from);
    ret->created = wb_get_i64(from);
    forgotten = wb_get_u32(from);
    wb_get_zeros(from, 4);
    ret->since = wb_get_i64(from);
    ret->until = wb_get_i64(from);
    ret->erased = wb_get_i64(from);
    ret->thinned = wb_get_i64(from);
    ret->forgotten = forgotten == 1;
    return forgotten <= 1 && !wb_object_is_none(ret->root) && ret->since >= 0 && ret->until > ret->since &&
           ret->erased >= 0 && ret->erased <= ret->until && ret->thinned >= 0 && ret->thinned <= ret->until &&
           ret->until < INT64_MAX - 1 && ret->created > 0;
}

static const uint8_t *rest(struct wb_reader *from, size_t *ret_length)
{
    *ret_length = from->overflow ? 0 : from->length - from->position;
    return wb_get_bytes(from, *ret_length);
}

static bool decode_record(struct wb_reader *from, struct wb_stream_record *ret)
{
    struct wb_record record;
    uint32_t body, total;

    ret->object = wb_get_object(from);
    ret->log = wb_get_u32(from);
    ret->flags = wb_get_u32(from);
    ret->offset = wb_get_u64(from);
    ret->data = rest(from, &ret->length);
    return ret->data && ret->log <= WB_STREAM_SNAPSHOTS &&
           (ret->flags == 0 || (ret->log == WB_STREAM_UNDO && (ret->flags & ~WB_STREAM_APART) == WB_STREAM_FILL)) &&
           (ret->log >= WB_STREAM_ACTORS) == (bool)wb_object_is_none(ret->object) &&
           ret->length >= WB_HEAD_SIZE && wb_record_measure(ret->data, &body, &total) == 0 &&
           total == ret->length && wb_record_decode(ret->data, ret->length, 0, &record) == 0 &&
           record.payload_offset + record.payload_length <= ret->length &&
           (record.payload_length == 0 ||
            wb_checksum(ret->data + record.payload_offset, record.payload_length) == record.payload_check);
}

static bool decode_bytes(struct wb_reader *from, struct wb_stream_bytes *ret)
{
    ret->object = wb_get_object(from);
    ret->offset = wb_get_u64(from);
    ret->data = rest(from, &ret->length);
    return ret->length > 0 && ret->length <= WB_FRAME_BYTES_MAX && !wb_object_is_none(ret->object) &&
           ret->offset <= INT64_MAX - ret->length;
}

static bool decode_hole(struct wb_reader *from, struct wb_stream_hole *ret)
{
    ret->object = wb_get_object(from);
    ret->offset = wb_get_u64(from);
    ret->length = wb_get_u64(from);
    return ret->length > 0 && ret->length <= INT64_MAX && !wb_object_is_none(ret->object) &&
           ret->offset <= INT64_MAX - ret->length;
}

static bool decode_object(struct wb_reader *from, struct wb_stream_object *ret)
{
    uint32_t length;

    ret->object = wb_get_object(from);
    wb_get_attrs(from, &ret->attrs);
    ret->flags = wb_get_u32(from);
    length = wb_get_u32(from);
    ret->target = (const char *)rest(from, &ret->target_length);
    if (from->overflow || ret->target_length != length || wb_object_is_none(ret->object) ||
        ret->flags & ~(WB_STREAM_WHOLE | WB_STREAM_BURIED) || ret->attrs.size > INT64_MAX)
        return false;
    switch (ret->attrs.mode & S_IFMT) {
    case S_IFLNK:
        return length > 0 && length <= WB_STREAM_TARGET_MAX && !memchr(ret->target, '\0', length);
    case S_IFREG: case S_IFDIR: case S_IFIFO: case S_IFSOCK: case S_IFCHR: case S_IFBLK:
        return length == 0;
    default:
        return false;
    }
}

static bool decode_list(struct wb_reader *from, uint32_t type, struct wb_stream_list *ret)
{
    struct wb_reader items;
    uint32_t last;

    ret->object = wb_get_object(from);
    ret->count = wb_get_u32(from);
    last = wb_get_u32(from);
    ret->last = last == 1;
    ret->data = rest(from, &ret->length);
    if (from->overflow || last > 1 || wb_object_is_none(ret->object))
        return false;
    items = (struct wb_reader){.data = ret->data, .length = ret->length};
    for (uint32_t i = 0; i < ret->count && !items.overflow; i++) {
        struct wb_stream_entry entry;
        struct wb_stream_xattr xattr;

        if (type == WB_FRAME_LISTING) {
            get_entry(&items, &entry);
            if (items.overflow || wb_object_is_none(entry.object) || !valid_name(entry.name, entry.length))
                return false;
        } else {
            get_xattr(&items, &xattr);
            if (items.overflow || xattr.name_length == 0 || memchr(xattr.name, '\0', xattr.name_length))
                return false;
        }
    }
    return wb_reader_complete(&items);
}

int wb_stream_decode(uint32_t type, const uint8_t *data, size_t length, struct wb_stream_body *ret)
{
    struct wb_reader from = {.data = data, .length = length};
    bool right;

    memset(ret, 0, sizeof(*ret));
    ret->type = type;
    switch (type) {
    case WB_FRAME_HELLO:
        /* The version is at the same offset in all versions. */
        if (length >= 8 && (ret->hello.version = wb_get_u32(&from)) > WB_STREAM_VERSION)
            return -EPROTONOSUPPORT;
        from.position = 0;
        right = decode_hello(&from, &ret->hello);
        break;
    case WB_FRAME_RECORD:
        right = decode_record(&from, &ret->record);
        break;
    case WB_FRAME_IMAGE:
    case WB_FRAME_CONTENT:
        right = decode_bytes(&from, &ret->bytes);
        break;
    case WB_FRAME_IMAGE_HOLE:
    case WB_FRAME_HOLE:
        right = decode_hole(&from, &ret->hole);
        break;
    case WB_FRAME_OBJECT:
        right = decode_object(&from, &ret->object);
        break;
    case WB_FRAME_XATTRS:
    case WB_FRAME_LISTING:
        right = decode_list(&from, type, &ret->list);
        break;
    case WB_FRAME_END:
        right = true;
        break;
    default:
        return -EPROTONOSUPPORT;
    }
    return right && wb_reader_complete(&from) ? 0 : -EBADMSG;
}

/* ---- knowledge of the store that is sent ------------------------------------------------------------- */

static const char erased_magic[8] = {'W', 'B', 'E', 'R', 'A', 'S', 'E', '\n'};

/* Older programs do not know `named`: they read zeros there, or assume that all erasing was by name, just now. */
void wb_erased_encode(const struct wb_erased *erased, uint8_t data[WB_ERASED_SIZE])
{
    struct wb_writer to = {data, WB_ERASED_SIZE, 0, false};

    wb_put_bytes(&to, erased_magic, sizeof(erased_magic));
    wb_put_i64(&to, erased->last);
    wb_put_i64(&to, erased->named == erased->last ? 0 : erased->named == 0 ? -1 : erased->named);
    wb_put_u64(&to, wb_checksum(data, to.position));
}

int wb_erased_decode(const uint8_t data[WB_ERASED_SIZE], struct wb_erased *ret)
{
    struct wb_reader from = {.data = data, .length = WB_ERASED_SIZE, .position = sizeof(erased_magic)};

    ret->last = wb_get_i64(&from);
    ret->named = wb_get_i64(&from);
    ret->named = ret->named == 0 ? ret->last : ret->named < 0 ? 0 : ret->named;
    return memcmp(data, erased_magic, sizeof(erased_magic)) == 0 &&
                   wb_get_u64(&from) == wb_checksum(data, WB_ERASED_SIZE - 8) && wb_reader_complete(&from)
               ? 0
               : -EBADMSG;
}

/* ---- knowledge of the copy about itself -------------------------------------------------------------- */

static const char magic[8] = {'W', 'B', 'R', 'E', 'C', 'V', '1', '\n'};

void wb_received_encode(const struct wb_received *received, uint8_t data[WB_RECEIVED_SIZE])
{
    struct wb_writer to = {data, WB_RECEIVED_SIZE, 0, false};

    wb_put_bytes(&to, magic, sizeof(magic));
    wb_put_u32(&to, received->phase);
    wb_put_u32(&to, 0);
    wb_put_bytes(&to, received->uuid, sizeof(received->uuid));
    wb_put_i64(&to, received->until);
    wb_put_zeros(&to, 16);
    wb_put_u64(&to, wb_checksum(data, to.position));
}

int wb_received_decode(const uint8_t data[WB_RECEIVED_SIZE], struct wb_received *ret)
{
    struct wb_reader from = {.data = data, .length = WB_RECEIVED_SIZE, .position = sizeof(magic)};

    if (memcmp(data, magic, sizeof(magic)) != 0)
        return -EBADMSG;
    ret->phase = wb_get_u32(&from);
    wb_get_zeros(&from, 4);
    memcpy(ret->uuid, wb_get_bytes(&from, sizeof(ret->uuid)), sizeof(ret->uuid));
    ret->until = wb_get_i64(&from);
    wb_get_zeros(&from, 16);
    if (wb_get_u64(&from) != wb_checksum(data, WB_RECEIVED_SIZE - 8) || !wb_reader_complete(&from) ||
        ret->phase > WB_RECEIVED_TREE || ret->until < 0)
        return -EBADMSG;
    return 0;
}
