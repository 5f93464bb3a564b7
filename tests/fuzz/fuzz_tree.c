/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz_tree.h"

#include "base/checksum.h"
#include "wayback/dump.h"
#include "wayback/when.h"
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS_MAX 64
#define BEGIN INT64_C(1700000000000000000)

struct fuzz_tree fuzz_tree = {.fd = -1, .store_fd = -1};

/* The subjects of records: root, d, a, b, d/x, and two that are nowhere. */
#define OBJECTS 7
static struct wb_object objects[OBJECTS];
static const char *const names[] = {"a", "b", "d", "x", "gone", "s", "l", "new"};

static int64_t times[RECORDS_MAX];
static unsigned times_count;

/* ---- the tree -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    return where->level > 0 && remove(path) < 0 ? -1 : 0;
}

static void put_file(const char *path, size_t length)
{
    int fd = openat(fuzz_tree.fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    g_autofree char *text = g_malloc(length + 1);

    memset(text, 'p', length + 1);
    if (fd < 0 || write(fd, text, length) != (ssize_t)length)
        abort();
    close(fd);
}

static void make_store(void)
{
    struct wb_error why = {""};
    struct wb_store *store;

    if (wb_store_open(&store, fuzz_tree.fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why) < 0) {
        fprintf(stderr, "no store: %s\n", why.text);
        abort();
    }
    wb_store_free(store);
}

void fuzz_tree_reset(void)
{
    static const char *const paths[] = {"", "d", "a", "b", "d/x"};

    if (!fuzz_tree.path) {
        fuzz_tree.path = g_build_filename(fuzz_directory(), "tree", NULL);
        if (mkdir(fuzz_tree.path, 0700) < 0)
            abort();
        fuzz_tree.fd = open(fuzz_tree.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (nftw(fuzz_tree.path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0)
        abort();
    if (mkdirat(fuzz_tree.fd, "d", 0700) < 0 || symlinkat("a", fuzz_tree.fd, "l") < 0)
        abort();
    put_file("a", 5000);
    put_file("b", 10);
    put_file("d/x", 300);
    make_store();
    for (unsigned i = 0; i < G_N_ELEMENTS(paths); i++)
        if (wb_object_stat(NULL, fuzz_tree.fd, paths[i], &objects[i], NULL, NULL) < 0)
            abort();
    objects[5] = (struct wb_object){77, BEGIN};
    objects[6] = WB_OBJECT_NONE;
    if (fuzz_tree.store_fd >= 0)
        close(fuzz_tree.store_fd);
    fuzz_tree.store_fd = openat(fuzz_tree.fd, ".wayback", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fuzz_tree.store_fd < 0)
        abort();
}

/* ---- records --------------------------------------------------------------------------------- */

static struct wb_object take_object(struct fuzz_input *in)
{
    return objects[fuzz_u8(in) % OBJECTS];
}

static const char *take_name(struct fuzz_input *in, uint8_t *length)
{
    const char *name = names[fuzz_u8(in) % G_N_ELEMENTS(names)];

    *length = (uint8_t)strlen(name);
    return name;
}

/* Those of records before as well, and in any order. */
static int64_t take_when(struct fuzz_input *in)
{
    uint8_t how = fuzz_u8(in);
    int64_t when;

    if (how >= 0xf0)
        when = (int64_t)(fuzz_u64(in) & INT64_MAX);
    else if (how >= 0xc0 && times_count > 0)
        when = times[how % times_count];
    else
        when = MIN(times_count > 0 ? times[times_count - 1] : BEGIN, INT64_MAX / 2) + how;
    return MIN(when, INT64_MAX - 2);
}

static void take_attrs(struct fuzz_input *in, struct wb_attrs *attrs)
{
    static const uint32_t modes[] = {S_IFREG | 0600, S_IFDIR | 0700, S_IFLNK | 0777, S_IFREG | 0644, S_IFIFO | 0600,
                                     S_IFCHR | 0600, 0, 0xffffffff};

    attrs->mode = modes[fuzz_u8(in) % G_N_ELEMENTS(modes)];
    attrs->nlink = fuzz_u8(in);
    attrs->size = fuzz_size(in);
    attrs->mtime = (int64_t)fuzz_u8(in);
}

static void take_via(struct fuzz_input *in, struct wb_record *record)
{
    if (fuzz_u8(in) & 1)
        record->via = (struct wb_via){.dir = take_object(in), .name = take_name(in, &record->via.length)};
}

static void take_slot(struct fuzz_input *in, struct wb_slot *slot)
{
    uint8_t bits = fuzz_u8(in);

    slot->name = take_name(in, &slot->name_length);
    slot->present = bits & 1;
    if (slot->present) {
        slot->object = take_object(in);
        slot->unbind = bits & 2 ? WB_UNBIND_RENAMED : WB_UNBIND_KEPT;
        take_attrs(in, &slot->attrs);
    }
    if (slot->unbind == WB_UNBIND_RENAMED) {
        slot->to_dir = take_object(in);
        slot->to_name = take_name(in, &slot->to_length);
    }
    if (bits & 4) {
        slot->from_dir = take_object(in);
        slot->from_name = take_name(in, &slot->from_length);
    }
}

static void take_extents(struct fuzz_input *in, struct wb_record *record)
{
    uint64_t at = 0;

    record->data.count = fuzz_u8(in) % 5;
    for (unsigned i = 0; i < record->data.count; i++) {
        struct wb_extent *extent = &record->data.extents[i];

        extent->offset = at + (fuzz_size(in) & INT64_MAX);
        extent->length = fuzz_size(in) & INT64_MAX;
        extent->kind = fuzz_u8(in) % 3;
        extent->source = extent->kind == WB_EXTENT_ZERO ? 0 : fuzz_size(in);
        at = extent->offset + extent->length;
    }
}

static void take_index(struct fuzz_input *in, struct wb_record *record, uint64_t end)
{
    struct wb_rec_index *index = &record->index;

    index->from = fuzz_u8(in) & 1 ? 0 : fuzz_size(in);
    index->previous = fuzz_u8(in) & 1 ? 0 : fuzz_size(in);
    index->last = MIN(take_when(in), record->when);
    index->first = MIN(take_when(in), index->last);
    index->count = fuzz_u8(in) & 1 ? (uint32_t)fuzz_size(in) : 1;
    index->types = (uint32_t)fuzz_u64(in);
    index->attrs_when = fuzz_u8(in) & 1 ? 0 : take_when(in);
    take_attrs(in, &index->attrs);
    if (end && fuzz_u8(in) & 1)
        index->from = MIN(index->from, end - 1);
}

static void take_body(struct fuzz_input *in, struct wb_record *record, uint64_t end)
{
    switch (record->type) {
    case WB_REC_NAME:
        record->name.count = 1 + (fuzz_u8(in) & 1);
        for (unsigned i = 0; i < record->name.count; i++)
            take_slot(in, &record->name.slots[i]);
        break;
    case WB_REC_ATTR:
        record->attr.object = take_object(in);
        take_attrs(in, &record->attr.attrs);
        take_via(in, record);
        break;
    case WB_REC_DATA:
        take_attrs(in, &record->data.attrs);
        take_extents(in, record);
        take_via(in, record);
        break;
    case WB_REC_XATTR:
        record->xattr.object = take_object(in);
        take_attrs(in, &record->xattr.attrs);
        record->xattr.present = record->payload_length > 0;
        record->xattr.name = "user.x";
        record->xattr.name_length = 6;
        break;
    case WB_REC_PLACE:
        record->place.self = take_object(in);
        record->place.parent = take_object(in);
        if (!wb_object_is_none(record->place.parent))
            record->place.name = take_name(in, &record->place.name_length);
        break;
    case WB_REC_ABORT:
        record->abort.target = MAX(take_when(in), 1);
        break;
    case WB_REC_GAP:
        record->gap.since = MIN(take_when(in), record->when);
        record->gap.reason = 1 + fuzz_u8(in) % 3;
        break;
    case WB_REC_ACTOR:
        record->actor_info.command = "command";
        record->actor_info.command_length = 7;
        break;
    case WB_REC_SNAPSHOT:
        record->snapshot.moment = MIN(MAX(take_when(in), 1), record->when);
        record->snapshot.scope = take_object(in);
        record->snapshot.present = fuzz_u8(in) & 1;
        record->snapshot.name = take_name(in, &record->snapshot.name_length);
        break;
    case WB_REC_INDEX:
        take_index(in, record, end);
        break;
    case WB_REC_THINNED:
        record->thinned.until = MAX(take_when(in), record->when + 1);
        break;
    }
}

/* Copies of records in the log, as an INDEX has them. */
static uint32_t index_payload(const GByteArray *log, uint8_t *to, size_t room)
{
    size_t at = 0, n = 0;
    uint32_t body, total;

    while (at + WB_HEAD_SIZE <= log->len && wb_record_measure(log->data + at, &body, &total) == 0 &&
           at + total <= log->len && n + WB_COPY_SIZE(body) <= room) {
        n += wb_record_copy(log->data + at, body, to + n);
        at += total;
    }
    return (uint32_t)n;
}

static void append(GByteArray *log, struct wb_record *record, const uint8_t *payload)
{
    uint8_t head[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    int n, m;

    record->payload_check = record->payload_length ? wb_checksum(payload, record->payload_length) : 0;
    n = wb_record_encode(record, head);
    m = n > 0 ? wb_record_encode_end(record, end) : -1;
    if (m < 0)
        return;
    g_byte_array_append(log, head, (guint)n);
    if (record->payload_length)
        g_byte_array_append(log, payload, record->payload_length);
    g_byte_array_append(log, end, (guint)m);
}

/* The meaning of the bytes of recorded inputs must not change. */
static uint8_t take_type(struct fuzz_input *in)
{
    uint8_t byte = fuzz_u8(in);

    return byte >= 22 * WB_REC_FILLER ? WB_REC_THINNED : (uint8_t)(1 + byte % WB_REC_FILLER);
}

static void take_record(struct fuzz_input *in, GByteArray *log)
{
    static uint8_t payload[16384];
    struct wb_record record = {0};
    uint8_t bits = fuzz_u8(in);

    record.type = take_type(in);
    record.flags = bits & 1;
    if (bits & 16)
        record.flags |= record.type == WB_REC_NAME ? WB_RECORD_THINNED : WB_RECORD_COALESCED;
    record.op = (uint16_t)(fuzz_u8(in) % 28);
    record.when = take_when(in);
    record.actor = bits & 2 ? fuzz_u8(in) : 0;
    if (record.type == WB_REC_INDEX && bits & 4)
        record.payload_length = index_payload(log, payload, sizeof(payload));
    else if (record.type == WB_REC_DATA || record.type == WB_REC_XATTR || record.type == WB_REC_SNAPSHOT ||
             record.type == WB_REC_INDEX)
        record.payload_length = fuzz_u8(in);
    if (!(record.type == WB_REC_INDEX && bits & 4))
        memset(payload, bits & 8 ? 0 : 'q', record.payload_length);
    take_body(in, &record, log->len);
    append(log, &record, payload);
    times[times_count++] = record.when;
    /* Now and then a byte that is wrong after all. */
    if (bits >= 0xe0 && log->len)
        log->data[fuzz_u16(in) % log->len] ^= fuzz_u8(in);
}

static void write_file(const char *path, const void *data, size_t length)
{
    g_autofree char *parent = g_path_get_dirname(path);
    int fd;

    mkdirat(fuzz_tree.store_fd, parent, 0700);
    fd = openat(fuzz_tree.store_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || (length && pwrite(fd, data, length, 0) != (ssize_t)length))
        abort();
    close(fd);
}

static void write_raw(struct fuzz_input *in, const char *path)
{
    uint8_t bytes[512];
    size_t n = fuzz_u16(in) % sizeof(bytes);

    fuzz_take(in, bytes, n);
    write_file(path, bytes, n);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Of the file `inflight`, in the bytes of format.md: changes that are marked as under way. */
static void write_inflight(struct fuzz_input *in)
{
    g_autofree uint8_t *bytes = g_malloc0(WB_INFLIGHT_HEAD + WB_INFLIGHT_SLOTS * WB_INFLIGHT_SLOT);
    uint32_t slots = htole32(WB_INFLIGHT_SLOTS);
    unsigned count = fuzz_u8(in) % 4;

    memcpy(bytes, "WBFLIGHT", 8);
    memcpy(bytes + 8, &slots, sizeof(slots));
    fuzz_take(in, bytes + 16, fuzz_u8(in) & 1 ? 32 : 0);
    for (unsigned i = 0; i < count; i++) {
        struct wb_object a = take_object(in), b = take_object(in);
        uint64_t slot[WB_INFLIGHT_SLOT / 8] = {i + 1, (uint64_t)take_when(in), fuzz_u8(in), 0, a.ino, (uint64_t)a.birth,
                                               b.ino, (uint64_t)b.birth};

        slot[3] = fuzz_u8(in) % 5;
        memcpy(bytes + WB_INFLIGHT_HEAD + i * WB_INFLIGHT_SLOT, slot, sizeof(slot));
    }
    write_file("inflight", bytes, WB_INFLIGHT_HEAD + WB_INFLIGHT_SLOTS * WB_INFLIGHT_SLOT);
}

static void write_stages(struct fuzz_input *in)
{
    uint8_t bytes[5 * WB_STAGE_SIZE] = "WBSTAGES";
    unsigned count = fuzz_u8(in) % 5;

    for (unsigned i = 0; i < count; i++) {
        struct wb_stage_entry entry = {.begin = MAX(take_when(in), 1), .object = take_object(in), .dir = take_object(in),
                                       .actor = fuzz_u8(in)};

        take_attrs(in, &entry.attrs);
        wb_stage_encode(&entry, bytes + (i + 1) * WB_STAGE_SIZE);
    }
    write_file("stages", bytes, sizeof(bytes));
}

static void write_gaps(struct fuzz_input *in)
{
    static uint8_t bytes[(1 + WB_GAPS_MAX) * WB_GAP_SIZE];
    unsigned count = fuzz_u8(in) % 5;

    memset(bytes, 0, sizeof(bytes));
    wb_gap_encode_head(bytes);
    for (unsigned i = 0; i < count; i++) {
        struct wb_open_gap gap = {.object = take_object(in), .since = MAX(take_when(in), 1),
                                  .file = fuzz_u8(in) & 1 ? WB_FILE_CATALOG : WB_FILE_UNDO};

        wb_gap_encode(&gap, bytes + (1 + i) * WB_GAP_SIZE);
    }
    write_file("gaps", bytes, sizeof(bytes));
}

void fuzz_tree_log(struct fuzz_input *in, GByteArray *log)
{
    times_count = 0;
    for (unsigned i = 0; i < OBJECTS && wb_object_is_none(objects[0]); i++)
        objects[i] = (struct wb_object){i + 2, BEGIN};
    for (unsigned n = 1 + fuzz_u8(in) % 24; n > 0 && in->left > 0; n--)
        take_record(in, log);
}

unsigned fuzz_tree_fill(struct fuzz_input *in, int64_t whens[FUZZ_WHENS])
{
    static const enum wb_object_file kinds[] = {WB_FILE_CATALOG, WB_FILE_UNDO};
    unsigned count = 0, bits = fuzz_u8(in);
    char path[WB_OBJECT_PATH_MAX];

    times_count = 0;
    while (in->left > 0 && times_count < RECORDS_MAX) {
        g_autoptr(GByteArray) log = g_byte_array_new();
        unsigned which = fuzz_u8(in), n = 1 + fuzz_u8(in) % 12;

        while (n-- > 0 && in->left > 0 && times_count < RECORDS_MAX)
            take_record(in, log);
        wb_object_path(objects[which % 6], kinds[which >> 7], path);
        write_file(which % 16 == 15 ? "snapshots" : which % 16 == 14 ? "actors" : path, log->data, log->len);
    }
    if (bits & 1 && bits & 32)
        write_raw(in, "inflight");
    else if (bits & 1)
        write_inflight(in);
    if (bits & 64)
        write_stages(in);
    if (bits & 128)
        write_gaps(in);
    if (bits & 2)
        write_raw(in, "timeline/times");
    if (bits & 4)
        write_raw(in, "timeline/pending");
    if (bits & 8)
        unlinkat(fuzz_tree.fd, "a", 0);
    if (bits & 16)
        renameat(fuzz_tree.fd, "d/x", fuzz_tree.fd, "new");
    whens[count++] = INT64_MAX;
    whens[count++] = BEGIN;
    for (unsigned i = 0; i < times_count && count < FUZZ_WHENS; i += 1 + times_count / 4)
        whens[count++] = times[i] - 1;
    return count;
}

/* ---- dump ------------------------------------------------------------------------------------ */

static void dump_file(const char *path)
{
    static FILE *nowhere;
    struct wb_dump_count count;
    struct wb_error why;

    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    wb_dump_log(path, nowhere, ~0u, &count, &why);
}

static int dump_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    if (g_str_has_suffix(path, ".undo") || g_str_has_suffix(path, ".cat") || g_str_has_suffix(path, "/snapshots"))
        dump_file(path);
    return 0;
}

void fuzz_tree_dump(void)
{
    g_autofree char *store = g_build_filename(fuzz_tree.path, ".wayback", NULL);

    nftw(store, dump_one, 16, FTW_PHYS);
}
