/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hostile store DIR SEED: changes the files of a store, and corrects the checksums, so that invented records are read
 *   as if they were sound.
 * hostile stream FROM TO SEED: the same with a stream, whose frames are chained again.
 *
 * The same seed makes the same changes. The places of checksums are not listed here once more: they are found in the
 * unchanged file by their values, which nothing else has. tests/soak/hostile checks the outcome.
 */
#include "base/checksum.h"
#include "format/bodies.h"
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

/* Of fixed parts of tables, of whole files, and of the bytes behind a head or before an end. */
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

/* Of a field of `size` bytes: zero, all ones, one more, one less, the value of another. */
static uint64_t another(uint64_t value, size_t size, uint64_t elsewhere)
{
    switch (below(9)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return (uint64_t)INT64_MAX >> (64 - 8 * size);
    case 3:
        return value + 1;
    case 4:
        return value - 1;
    case 5:
        return value ^ UINT64_C(1) << below(8 * size);
    case 6:
        return UINT64_C(1) << below(8 * size);
    case 7:
        return random_u64();
    default:
        return elsewhere;
    }
}

/* A field, or what might be one. */
static void change_field(uint8_t *data, size_t length)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    size_t size = sizes[below(G_N_ELEMENTS(sizes))], at;
    uint64_t value = 0, elsewhere = 0;

    if (length < 8)
        return;
    at = below((length - size) / size + 1) * size;
    memcpy(&value, data + at, size);
    memcpy(&elsewhere, data + below((length - size) / size + 1) * size, size);
    value = htole64(another(le64toh(value), size, le64toh(elsewhere)));
    memcpy(data + at, &value, size);
    made.changes++;
}

/* ---- fields of records ----------------------------------------------------------------------- */

/* The fields of a body with an effect; names are changed in their bytes. `part`: of that slot or extent. */
struct field {
    enum wb_record_type type;
    enum { IN_RECORD, IN_SLOT, IN_EXTENT } part;
    size_t at, size;
};

#define FIELD(type, member) {type, IN_RECORD, offsetof(struct wb_record, member), sizeof(((struct wb_record *)0)->member)}
#define OF_SLOT(member) {WB_REC_NAME, IN_SLOT, offsetof(struct wb_slot, member), sizeof(((struct wb_slot *)0)->member)}
#define OF_EXTENT(member) \
    {WB_REC_DATA, IN_EXTENT, offsetof(struct wb_extent, member), sizeof(((struct wb_extent *)0)->member)}

static const struct field fields[] = {
    FIELD(WB_REC_NAME, name.dir.mode),
    FIELD(WB_REC_NAME, name.dir.size),
    FIELD(WB_REC_NAME, name.dir.ctime),
    OF_SLOT(present),
    OF_SLOT(unbind),
    OF_SLOT(object),
    OF_SLOT(object.ino),
    OF_SLOT(object.birth),
    OF_SLOT(attrs.mode),
    OF_SLOT(attrs.size),
    OF_SLOT(attrs.nlink),
    OF_SLOT(to_dir),
    OF_SLOT(to_dir.ino),
    OF_SLOT(from_dir),
    OF_SLOT(from_dir.ino),
    FIELD(WB_REC_ATTR, attr.object),
    FIELD(WB_REC_ATTR, attr.object.ino),
    FIELD(WB_REC_ATTR, attr.attrs.mode),
    FIELD(WB_REC_ATTR, attr.attrs.size),
    FIELD(WB_REC_ATTR, attr.offset),
    FIELD(WB_REC_ATTR, attr.length),
    FIELD(WB_REC_ATTR, attr.size_after),
    FIELD(WB_REC_ATTR, attr.begin),
    FIELD(WB_REC_ATTR, via.dir),
    FIELD(WB_REC_DATA, data.attrs.mode),
    FIELD(WB_REC_DATA, data.attrs.size),
    FIELD(WB_REC_DATA, data.offset),
    FIELD(WB_REC_DATA, data.length),
    FIELD(WB_REC_DATA, data.size_after),
    FIELD(WB_REC_DATA, via.dir),
    OF_EXTENT(offset),
    OF_EXTENT(length),
    OF_EXTENT(source),
    OF_EXTENT(kind),
    OF_EXTENT(check),
    FIELD(WB_REC_XATTR, xattr.object),
    FIELD(WB_REC_XATTR, xattr.attrs.mode),
    FIELD(WB_REC_XATTR, xattr.present),
    FIELD(WB_REC_PLACE, place.self),
    FIELD(WB_REC_PLACE, place.self.ino),
    FIELD(WB_REC_PLACE, place.parent),
    FIELD(WB_REC_PLACE, place.parent.ino),
    FIELD(WB_REC_ABORT, abort.target),
    FIELD(WB_REC_GAP, gap.since),
    FIELD(WB_REC_GAP, gap.until),
    FIELD(WB_REC_GAP, gap.reason),
    FIELD(WB_REC_FILLER, filler.until),
    FIELD(WB_REC_THINNED, thinned.until),
};

/* Its place in a decoded record, or NULL. */
static void *locate(const struct field *field, struct wb_record *record)
{
    if (field->part == IN_SLOT)
        return (uint8_t *)&record->name.slots[below(record->name.count)] + field->at;
    if (field->part == IN_EXTENT)
        return record->data.count ? (uint8_t *)&record->data.extents[below(record->data.count)] + field->at : NULL;
    return (uint8_t *)record + field->at;
}

static const struct field *some_field(unsigned type)
{
    size_t count = 0;

    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        count += fields[i].type == type;
    for (size_t i = 0, wanted = below(count); count > 0 && i < G_N_ELEMENTS(fields); i++)
        if (fields[i].type == type && wanted-- == 0)
            return &fields[i];
    return NULL;
}

/* Names point into the body: a byte that no name has, or the first of another. */
static void change_name(const char *name, size_t length)
{
    static const char bytes[] = {'/', '\0', '.', '@', '\n', '\x1b', (char)0xff};

    if (length > 0)
        ((char *)name)[below(length)] = bytes[below(G_N_ELEMENTS(bytes))];
}

static void change_names(struct wb_record *record)
{
    struct wb_slot *slot = record->type == WB_REC_NAME ? &record->name.slots[below(record->name.count)] : NULL;

    if (slot) {
        change_name(slot->name, slot->name_length);
        change_name(slot->to_name, slot->to_length);
        change_name(slot->from_name, slot->from_length);
    } else if (record->type == WB_REC_PLACE) {
        change_name(record->place.name, record->place.name_length);
    } else if (record->type == WB_REC_XATTR) {
        change_name(record->xattr.name, record->xattr.name_length);
    }
    if (record->type == WB_REC_ATTR || record->type == WB_REC_DATA || record->type == WB_REC_XATTR)
        change_name(record->via.name, record->via.length);
}

/* Existing objects and moments make cycles, and histories that run backward. */
static void change_to_another(uint8_t *value, size_t size, const GByteArray *file)
{
    const size_t word = sizeof(uint64_t);
    uint64_t number = 0, elsewhere = 0;

    if (file->len < word + size || size > word) {
        if (file->len > size)
            memcpy(value, file->data + below((file->len - size) / word) * word, size);
        return;
    }
    memcpy(&number, value, size);
    memcpy(&elsewhere, file->data + below((file->len - word) / word) * word, size);
    number = another(number, size, elsewhere);
    memcpy(value, &number, size);
}

/* A field by its meaning: everything else in the record is valid. */
static void change_record(GByteArray *file, const struct site *site)
{
    uint8_t *data = file->data + site->from, body[WB_BODY_MAX];
    struct wb_writer to = {.data = body, .length = sizeof(body)};
    const struct wb_body_codec *codec;
    const struct field *field;
    struct wb_record record;
    void *at;

    if (wb_record_decode(data, site->to - site->from, site->from, &record) < 0)
        return;
    codec = wb_body_codec(record.type);
    if (!codec) /* of a type that we do not know, so nothing of it can be changed with sense */
        return;
    field = some_field(record.type);
    at = field ? locate(field, &record) : NULL;
    if (!at || below(5) == 0)
        change_names(&record);
    else
        change_to_another(at, field->size, file);
    made.changes++;
    codec->put(&to, &record);
    if (!to.overflow && to.position == record.body_length)
        memcpy(data + WB_HEAD_SIZE, body, to.position);
}

/* The beginning of one of the records; the whole file if there are none. */
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

/* At the end of a log, one of a kind that few logs have: about the moment of another record. */
static void add_record(GByteArray *file, const struct site *like)
{
    static const enum wb_record_type types[] = {WB_REC_ABORT, WB_REC_GAP, WB_REC_THINNED, WB_REC_FILLER};
    uint8_t data[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    struct wb_record record = {.type = types[below(G_N_ELEMENTS(types))]}, other;
    int length;

    if (wb_record_decode(file->data + like->from, like->to - like->from, like->from, &other) < 0)
        return;
    record.when = other.when + (int64_t)below(3);
    record.actor = other.actor;
    if (record.type == WB_REC_ABORT)
        record.abort.target = other.when;
    else if (record.type == WB_REC_THINNED)
        record.thinned.until = record.when + 1 + (int64_t)below(3);
    else if (record.type == WB_REC_FILLER)
        record.filler.until = other.when;
    else
        record.gap = (struct wb_rec_gap){other.when - (int64_t)below(2), (uint8_t)(1 + below(WB_GAP_POLICY)), 0};
    if (record.type == WB_REC_GAP && below(2))
        record.gap.until = other.when;
    length = wb_record_encode(&record, data);
    if (length < 0 || file->len + (guint)length > FILE_MAX)
        return;
    g_byte_array_append(file, data, (guint)length);
    g_byte_array_append(file, end, (guint)wb_record_encode_end(&record, end));
    if (below(2)) {
        struct site site = {file->len - record.total, file->len, file->len - record.total, RECORD};

        change_record(file, &site);
        seal_record(file->data + site.from, record.total);
    }
}

static void change_shape(GByteArray *file, const GArray *sites)
{
    const struct site *record = some_record(sites);
    size_t from = record ? record->from : below(file->len), to = record ? record->to : MIN(from + BLOCK, file->len);

    made.changes++;
    switch (below(record ? 5 : 3)) {
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
    case 2:
        g_byte_array_remove_range(file, (guint)from, (guint)(to - from));
        break;
    default:
        add_record(file, record);
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

        if (record && below(2)) {
            change_record(file, record);
            seal_record(file->data + record->from, file->len - record->from);
            continue;
        }
        /* Heads and bodies are shorter than payloads, and have more effect. */
        if (record && below(3))
            to = MIN(to, from + 160);
        change_field(file->data + from, to - from);
    }
    mend(file, sites);
    if (below(6) == 0)
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

/* In place: a file of another inode would not belong to the store. */
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

/* All files, some, or one. Those that decide about the whole store seldom: code behind them would not be reached. */
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
