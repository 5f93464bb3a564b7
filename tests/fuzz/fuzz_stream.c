/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams: the input gives the frames, one after the other; their chain, and the checksums of records, are made right
 * first. A frame that no decoder accepts is left out, so that those behind it are reached. The first stream is received
 * in an empty directory, each other one updates that copy. Nothing may be created beside the copy.
 */
#include "base/checksum.h"
#include "format/stream.h"
#include "fuzz.h"
#include "wayback/copy.h"
#include <dirent.h>
#include <endian.h>
#include <ftw.h>
#include <glib.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAMS_MAX 3

struct chain {
    GByteArray *bytes;
    uint64_t sequence, previous;
    int64_t until;
};

static void add(struct chain *chain, uint32_t type, const uint8_t *body, size_t length)
{
    struct wb_frame frame = {.type = type, .length = (uint32_t)length, .sequence = chain->sequence++};
    uint8_t head[WB_FRAME_HEAD];

    wb_frame_encode(&frame, chain->previous, body, head);
    chain->previous = frame.check;
    g_byte_array_append(chain->bytes, head, sizeof(head));
    if (length)
        g_byte_array_append(chain->bytes, body, (guint)length);
}

/* It continues at the end of the one before it, and is of the same tree. */
static void add_hello(struct chain *chain, const uint8_t *data, size_t length, int64_t since)
{
    struct wb_stream_hello hello = {.root = {2, 1}, .created = 1};
    struct wb_stream_body body;
    uint8_t encoded[WB_HELLO_SIZE];

    if (wb_stream_decode(WB_FRAME_HELLO, data, length, &body) == 0)
        hello = body.hello;
    memset(hello.uuid, 7, sizeof(hello.uuid));
    hello.version = WB_STREAM_VERSION;
    hello.format = MIN(hello.format, WB_FORMAT_VERSION);
    hello.since = since;
    hello.until = MAX(hello.until, since + 1000);
    hello.erased = MIN(hello.erased, hello.until);
    chain->until = hello.until;
    wb_stream_encode_hello(&hello, encoded);
    add(chain, WB_FRAME_HELLO, encoded, sizeof(encoded));
}

static void seal_record(uint8_t *data, size_t length)
{
    uint8_t joined[40 + WB_BODY_MAX];
    uint32_t body, total;
    uint64_t check;

    if (length < WB_HEAD_SIZE)
        return;
    memcpy(data, "WBK1", 4);
    if (wb_record_measure(data, &body, &total) < 0 || WB_HEAD_SIZE + (size_t)body > length)
        return;
    memcpy(joined, data, 40);
    memcpy(joined + 40, data + WB_HEAD_SIZE, body);
    check = htole64(wb_checksum(joined, 40 + body));
    memcpy(data + 40, &check, sizeof(check));
}

static void walk(const struct wb_stream_body *body)
{
    struct wb_stream_entry entry;
    struct wb_stream_xattr xattr;
    size_t position = 0;

    for (uint32_t i = 0; body->type == WB_FRAME_LISTING && i < body->list.count; i++) {
        wb_stream_next_entry(&body->list, &position, &entry);
        g_assert_true(entry.length > 0 && !memchr(entry.name, '/', entry.length));
    }
    for (uint32_t i = 0; body->type == WB_FRAME_XATTRS && i < body->list.count; i++)
        wb_stream_next_xattr(&body->list, &position, &xattr);
    g_assert_cmpuint(position, <=, body->type == WB_FRAME_LISTING || body->type == WB_FRAME_XATTRS ? body->list.length : 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path) * 0;
}

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static void receive(struct chain *chain, const char *copy)
{
    struct wb_copy_result result;
    struct wb_error why = {""};
    int fd = memfd_create("stream", MFD_CLOEXEC), r;

    add(chain, WB_FRAME_END, NULL, 0);
    g_assert_cmpint(write(fd, chain->bytes->data, chain->bytes->len), ==, chain->bytes->len);
    lseek(fd, 0, SEEK_SET);
    r = wb_copy_receive(copy, fd, NULL, &result, &why);
    g_assert_cmpint(r, <=, 0);
    g_assert_true(r == 0 || *why.text);
    close(fd);
    why.text[0] = '\0';
    r = wb_copy_status(copy, &result, &why);
    g_assert_true(r == 0 || *why.text);
    g_byte_array_set_size(chain->bytes, 0);
    chain->sequence = chain->previous = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned number;
    g_autofree char *base = g_strdup_printf("%s/%u", fuzz_directory(), number++), *copy = g_strdup_printf("%s/copy", base);
    struct chain chain = {.bytes = g_byte_array_new()};
    struct fuzz_input in = {data, size};
    unsigned streams = 0;

    g_assert_cmpint(mkdir(base, 0700), ==, 0);
    while (in.left > 0 && streams < STREAMS_MAX) {
        uint32_t type = fuzz_u8(&in) % 10;
        uint16_t wanted = fuzz_u16(&in);
        size_t length = MIN(wanted, in.left);
        g_autofree uint8_t *body = g_memdup2(in.data, length);
        struct wb_stream_body decoded;

        in.data += length;
        in.left -= length;
        if (chain.bytes->len == 0 || type == WB_FRAME_HELLO) {
            if (chain.bytes->len > 0) {
                receive(&chain, copy);
                streams++;
            }
            add_hello(&chain, body, length, chain.until);
            if (type == WB_FRAME_HELLO)
                continue;
        }
        if (type == WB_FRAME_RECORD && length > WB_STREAM_RECORD_SIZE)
            seal_record(body + WB_STREAM_RECORD_SIZE, length - WB_STREAM_RECORD_SIZE);
        if (type == WB_FRAME_END || wb_stream_decode(type, body, length, &decoded) < 0)
            continue;
        walk(&decoded);
        add(&chain, type, body, length);
    }
    if (chain.bytes->len > 0)
        receive(&chain, copy);
    g_assert_cmpuint(count_entries(base), <=, 3);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    g_byte_array_unref(chain.bytes);
    return 0;
}
