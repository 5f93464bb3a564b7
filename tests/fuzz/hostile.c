/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hostile store DIR SEED: changes the files of a store, and mends the checksums, so that what nobody ever wrote is read as if it
 *   were sound.
 * hostile stream FROM TO SEED: the same with a stream, whose frames are chained again.
 *
 * The same seed makes the same changes. What a checksum covers is not written here once more: the file as it was says where
 * its checksums are and of what, since nothing else has these values. tests/soak/hostile looks at the outcome.
 */
#include "base/checksum.h"
#include "format/format.h"
#include "format/stream.h"
#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (4u << 20)
#define SEARCHED_MAX (32u << 10) /* a file in which every range is tried */
#define BLOCK 64                 /* a head, behind which tables begin */

static uint64_t state;

static uint64_t random_u64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(random_u64() % limit) : 0;
}

static struct {
    unsigned files, changes, checksums;
} made;

/* ---- checksums ------------------------------------------------------------------------------- */

/* The one at `at`, of bytes from..to-1; `half`: the lower four bytes of it. Of a record: at its beginning. */
struct site {
    size_t from, to, at;
    enum { WHOLE, HALF, RECORD } kind;
};

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

static void write_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static bool matches(const uint8_t *data, const struct site *site)
{
    uint64_t check = wb_checksum(data + site->from, site->to - site->from);

    return site->kind == WHOLE ? read_u64(data + site->at) == check
                               : memcmp(data + site->at, &(uint32_t){htole32((uint32_t)check)}, 4) == 0;
}

static void try_site(GArray *sites, const GByteArray *file, size_t from, size_t to, size_t at, int kind)
{
    struct site site = {from, to, at, kind};

    if (from < to && to <= file->len && at + (kind == WHOLE ? 8 : 4) <= file->len && matches(file->data, &site))
        g_array_append_val(sites, site);
}

static void find_records(GArray *sites, const GByteArray *file)
{
    for (size_t at = 0; at + WB_HEAD_SIZE <= file->len; at += 8) {
        struct wb_record record;
        uint32_t body, total;

        if (wb_record_measure(file->data + at, &body, &total) < 0 || at + total > file->len ||
            wb_record_decode(file->data + at, file->len - at, at, &record) < 0)
            continue;
        g_array_append_val(sites, ((struct site){at, at + total, at, RECORD}));
        at += total - 8;
    }
}

/* Of fixed parts of tables, of whole files, and of what is behind a head or before an end. */
static void find_sites(GArray *sites, const GByteArray *file)
{
    static const size_t whole[] = {24, 56, 112, 120, 504}, half[] = {28, 36};

    find_records(sites, file);
    for (size_t at = 4; at + 4 <= file->len; at += 4) {
        for (unsigned i = 0; at % 8 == 0 && i < G_N_ELEMENTS(whole); i++)
            if (at >= whole[i])
                try_site(sites, file, at - whole[i], at, at, WHOLE);
        for (unsigned i = 0; i < G_N_ELEMENTS(half); i++)
            if (at >= half[i])
                try_site(sites, file, at - half[i], at, at, HALF);
    }
    if (file->len > SEARCHED_MAX)
        return;
    for (size_t from = 0; file->len >= 8 && from < file->len - 8; from += 8)
        try_site(sites, file, from, file->len - 8, file->len - 8, WHOLE);
    for (size_t to = BLOCK; to <= file->len; to += 4)
        for (size_t at = 24; at <= 56; at += 8)
            try_site(sites, file, BLOCK, to, at, WHOLE);
}

/* With the lengths that it has now, if they fit. */
static void seal_record(uint8_t *data, size_t length)
{
    uint8_t joined[40 + WB_BODY_MAX];
    uint32_t body, total, payload;

    memcpy(data, "WBK1", 4);
    if (wb_record_measure(data, &body, &total) < 0 || total > length)
        return;
    memcpy(&payload, data + 24, sizeof(payload));
    payload = le32toh(payload);
    write_u64(data + 32, payload ? wb_checksum(data + WB_HEAD_SIZE + body, payload) : 0);
    memcpy(joined, data, 40);
    memcpy(joined + 40, data + WB_HEAD_SIZE, body);
    write_u64(data + 40, wb_checksum(joined, 40 + (size_t)body));
}

static void mend(GByteArray *file, const GArray *sites)
{
    for (guint i = 0; i < sites->len; i++) {
        const struct site *site = &g_array_index(sites, struct site, i);
        uint64_t check;

        if (site->to > file->len || site->at + 8 > file->len + (site->kind == HALF ? 4 : 0))
            continue;
        made.checksums++;
        if (site->kind == RECORD) {
            seal_record(file->data + site->at, file->len - site->at);
            continue;
        }
        check = htole64(wb_checksum(file->data + site->from, site->to - site->from));
        memcpy(file->data + site->at, &check, site->kind == HALF ? 4 : 8);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A field, or what might be one: nothing, all, one more, one less, what another says. */
static void change_field(uint8_t *data, size_t length)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    size_t size = sizes[below(G_N_ELEMENTS(sizes))], at;
    uint64_t value = 0;

    if (length < 8)
        return;
    at = below((length - size) / size + 1) * size;
    memcpy(&value, data + at, size);
    value = le64toh(value);
    switch (below(9)) {
    case 0:
        value = 0;
        break;
    case 1:
        value = UINT64_MAX;
        break;
    case 2:
        value = (uint64_t)INT64_MAX >> (64 - 8 * size);
        break;
    case 3:
        value++;
        break;
    case 4:
        value--;
        break;
    case 5:
        value ^= UINT64_C(1) << below(8 * size);
        break;
    case 6:
        value = (uint64_t)1 << below(8 * size);
        break;
    case 7:
        value = random_u64();
        break;
    default:
        memcpy(&value, data + below((length - size) / size + 1) * size, size);
        value = le64toh(value);
    }
    value = htole64(value);
    memcpy(data + at, &value, size);
    made.changes++;
}

/* Where records begin, one of them; the whole where there are none. */
static const struct site *some_record(const GArray *sites)
{
    size_t count = 0, wanted;

    for (guint i = 0; i < sites->len; i++)
        count += g_array_index(sites, struct site, i).kind == RECORD;
    wanted = below(count);
    for (guint i = 0; i < sites->len; i++) {
        const struct site *site = &g_array_index(sites, struct site, i);

        if (site->kind == RECORD && wanted-- == 0)
            return site;
    }
    return NULL;
}

static void change_shape(GByteArray *file, const GArray *sites)
{
    const struct site *record = some_record(sites);
    size_t from = record ? record->from : below(file->len), to = record ? record->to : MIN(from + BLOCK, file->len);

    made.changes++;
    switch (below(3)) {
    case 0:
        g_byte_array_set_size(file, (guint)from);
        break;
    case 1: /* once more, at the end */
        if (file->len + (to - from) <= FILE_MAX) {
            g_autofree uint8_t *copy = g_memdup2(file->data + from, to - from);

            if (record)
                write_u64(copy + 8, read_u64(copy + 8) + below(3));
            if (record)
                seal_record(copy, to - from);
            g_byte_array_append(file, copy, (guint)(to - from));
        }
        break;
    default:
        g_byte_array_remove_range(file, (guint)from, (guint)(to - from));
    }
}

static void change_file(GByteArray *file)
{
    g_autoptr(GArray) sites = g_array_new(FALSE, FALSE, sizeof(struct site));
    size_t count = 1 + below(below(4) ? 3 : 16);

    find_sites(sites, file);
    for (size_t i = 0; i < count; i++) {
        const struct site *record = below(4) ? some_record(sites) : NULL;
        size_t from = record ? record->from + 4 : 0, to = record ? record->to - 8 : file->len;

        /* Heads and bodies are shorter than payloads, and say more. */
        if (record && below(3))
            to = MIN(to, from + 160);
        change_field(file->data + from, to - from);
    }
    mend(file, sites);
    if (below(12) == 0)
        change_shape(file, sites);
}

/* ---- a store --------------------------------------------------------------------------------- */

static GPtrArray *paths;

static int collect(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    if (flag == FTW_F && S_ISREG(st->st_mode) && st->st_size > 0 && st->st_size <= FILE_MAX)
        g_ptr_array_add(paths, g_strdup(path));
    return 0;
}

static int compare_paths(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In place: a file of another inode would be none of the store's. */
static void rewrite(const char *path)
{
    g_autoptr(GByteArray) file = NULL;
    g_autofree char *text = NULL;
    gsize length;
    int fd;

    if (!g_file_get_contents(path, &text, &length, NULL))
        exit(EXIT_FAILURE);
    file = g_byte_array_new_take((guint8 *)g_steal_pointer(&text), length);
    change_file(file);
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || write(fd, file->data, file->len) != (ssize_t)file->len || close(fd) < 0)
        exit(EXIT_FAILURE);
    made.files++;
}

/* All files, some, or one. Those that decide about the whole store seldom: what is behind them would not be reached. */
static void change_store(const char *dir)
{
    size_t chance, only;

    paths = g_ptr_array_new_with_free_func(g_free);
    nftw(dir, collect, 16, FTW_PHYS);
    g_ptr_array_sort(paths, compare_paths);
    chance = 1 + below(4);
    only = below(paths->len);
    for (guint i = 0; i < paths->len; i++) {
        g_autofree char *name = g_path_get_basename(paths->pdata[i]);
        bool decides = strcmp(name, "header") == 0 || strcmp(name, "wayback.conf") == 0;

        if (chance == 4 ? i == only : below(chance) == 0 && (!decides || below(8) == 0))
            rewrite(paths->pdata[i]);
    }
    g_ptr_array_unref(paths);
}

/* ---- a stream -------------------------------------------------------------------------------- */

static void add_frame(GByteArray *to, uint32_t type, GByteArray *body, uint64_t *sequence, uint64_t *previous)
{
    struct wb_frame frame = {.type = type, .length = body->len, .sequence = (*sequence)++};
    uint8_t head[WB_FRAME_HEAD];

    wb_frame_encode(&frame, *previous, body->data, head);
    *previous = frame.check;
    g_byte_array_append(to, head, sizeof(head));
    g_byte_array_append(to, body->data, body->len);
}

static void change_stream(const char *from, const char *to)
{
    g_autoptr(GByteArray) out = g_byte_array_new();
    g_autofree char *text = NULL;
    uint64_t sequence = 0, previous = 0;
    gsize length, at = 0;
    size_t chance = 1 + below(20);

    if (!g_file_get_contents(from, &text, &length, NULL))
        exit(EXIT_FAILURE);
    while (at + WB_FRAME_HEAD <= length) {
        g_autoptr(GByteArray) body = g_byte_array_new();
        struct wb_frame frame;

        if (wb_frame_measure((uint8_t *)text + at, &frame) < 0 || at + WB_FRAME_HEAD + frame.length > length)
            break;
        g_byte_array_append(body, (uint8_t *)text + at + WB_FRAME_HEAD, frame.length);
        at += WB_FRAME_HEAD + frame.length;
        /* Another stream begins. */
        if (frame.type == WB_FRAME_HELLO)
            sequence = previous = 0;
        if (body->len > 0 && below(chance) == 0 && (frame.type != WB_FRAME_HELLO || below(16) == 0))
            change_file(body);
        if (below(200) == 0) {
            made.changes++;
            continue;
        }
        if (below(200) == 0)
            add_frame(out, frame.type, body, &sequence, &previous);
        add_frame(out, below(200) ? frame.type : (uint32_t)below(12), body, &sequence, &previous);
    }
    if (!g_file_set_contents(to, (char *)out->data, out->len, NULL))
        exit(EXIT_FAILURE);
    made.files++;
}

int main(int argc, char **argv)
{
    bool is_store = argc == 4 && strcmp(argv[1], "store") == 0;

    if (!is_store && (argc != 5 || strcmp(argv[1], "stream") != 0))
        return 2;
    state = UINT64_C(0x9e3779b97f4a7c15) * (strtoull(argv[argc - 1], NULL, 10) * 2 + 1);
    for (unsigned i = 0; i < 8; i++)
        random_u64();
    if (is_store)
        change_store(argv[2]);
    else
        change_stream(argv[2], argv[3]);
    printf("%u files, %u changes, %u checksums\n", made.files, made.changes, made.checksums);
    return 0;
}
