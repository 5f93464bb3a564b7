/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The logs: what is later than `since` goes out as it is, oldest first, and is noted on the way. */
#include "transfer/send/send.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include "store/tables/manifest.h"
#include "store/tables/pins.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of logs whose changes are not announced: who took a `when` may not have written it down yet. */
#define SLACK (60 * INT64_C(1000000000))

struct log_walk {
    struct wb_sending *sending;
    struct wb_object object;
    enum wb_stream_log kind;
    struct wb_log_reader reader;
    GArray *places; /* struct place, newest first */
    int64_t across; /* the `when` of changes that count together of which the copy has some; 0: there are none */
    bool images;
};

struct place {
    int64_t when, change;
    uint64_t offset;
    uint32_t total;
    uint8_t type;
};

/* ---- what a record contains --------------------------------------------------------------------- */

static void note_slot(struct log_walk *walk, const struct wb_record *record, const struct wb_slot *slot)
{
    struct wb_sending *sending = walk->sending;
    struct wb_sent_name key = {.dir = walk->object};
    struct wb_sent *sent;
    bool first;

    memcpy(key.name, slot->name, slot->name_length);
    first = !g_hash_table_contains(sending->names, &key);
    if (first)
        g_hash_table_add(sending->names, g_memdup2(&key, sizeof(key)));
    if (!slot->present)
        return;
    sent = wb_sending_object(sending, slot->object);
    sent->named = true;
    sent->known |= first;
    wb_sending_note_time(sending, sent, record->when, slot->attrs.ctime);
    if (slot->unbind == WB_UNBIND_KEPT && record->when > sent->lost_when) {
        sent->buried = true;
        sent->lost = key;
        sent->lost_when = record->when;
    }
}

static void note_data(struct wb_sent *sent, const struct wb_rec_data *data)
{
    sent->least = MIN(sent->least, MIN(data->attrs.size, data->size_after));
    for (uint32_t i = 0; i < data->count; i++) {
        struct wb_sent_range range = {data->extents[i].offset, data->extents[i].offset + data->extents[i].length};

        if (!sent->ranges)
            sent->ranges = g_array_new(FALSE, FALSE, sizeof(range));
        g_array_append_val(sent->ranges, range);
    }
}

static void note(struct log_walk *walk, const struct wb_record *record)
{
    struct wb_sending *sending = walk->sending;
    struct wb_sent *sent;

    switch (record->type) {
    case WB_REC_NAME:
        wb_sending_add_dir(sending->dirs, walk->object);
        wb_sending_note_time(sending, wb_sending_object(sending, walk->object), record->when, record->name.dir.ctime);
        for (uint32_t i = 0; i < record->name.count; i++)
            note_slot(walk, record, &record->name.slots[i]);
        break;
    case WB_REC_ATTR:
        sent = wb_sending_object(sending, record->attr.object);
        sent->least = MIN(sent->least, record->attr.attrs.size);
        sent->changed = true;
        wb_sending_note_time(sending, sent, record->when, record->attr.attrs.ctime);
        break;
    case WB_REC_DATA:
        sent = wb_sending_object(sending, walk->object);
        note_data(sent, &record->data);
        sent->changed = true;
        /* Within a stage it changes without a record; the record at its end contains the state before the stage. */
        if (!wb_record_is_staged(record))
            wb_sending_note_time(sending, sent, record->when, record->data.attrs.ctime);
        break;
    case WB_REC_XATTR:
        sent = wb_sending_object(sending, record->xattr.object);
        sent->changed = true;
        wb_sending_note_time(sending, sent, record->when, record->xattr.attrs.ctime);
        break;
    case WB_REC_GAP:
        wb_sending_note_gap(sending, walk->object);
        break;
    default:
        break;
    }
}

/* ---- what it refers to -------------------------------------------------------------------------- */

static int next_data(const struct wb_sent_bytes *bytes, uint64_t offset, uint64_t *ret)
{
    off_t data = lseek(bytes->fd, (off_t)offset, SEEK_DATA);

    *ret = data < 0 ? offset : (uint64_t)data;
    /* A file system without holes. */
    return data >= 0 || errno == EINVAL ? 0 : -errno;
}

static int read_image(const struct wb_sent_bytes *bytes, uint8_t *data, size_t length, uint64_t offset)
{
    return wb_pread_exact(bytes->fd, data, length, offset);
}

static int send_image(struct log_walk *walk, int fd, const struct wb_extent *extent)
{
    struct wb_sent_bytes bytes = {.object = walk->object, .type = WB_FRAME_IMAGE, .hole = WB_FRAME_IMAGE_HOLE,
                                  .next_data = next_data, .read = read_image, .fd = fd};
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    /* Past its end, an image has no zeros: it is damaged. */
    if (extent->length > (uint64_t)st.st_size || extent->source > (uint64_t)st.st_size - extent->length)
        return -ENODATA;
    return wb_sending_bytes(walk->sending, &bytes, extent->source, extent->source + extent->length);
}

static int send_images(struct log_walk *walk, const struct wb_record *record)
{
    _cleanup_close_ int fd = -1;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < record->data.count; i++) {
        if (record->data.extents[i].kind != WB_EXTENT_IMAGE)
            continue;
        if (fd < 0)
            fd = wb_store_open_file(walk->sending->store, walk->object, WB_FILE_IMAGE, O_RDONLY | O_CLOEXEC);
        r = fd < 0 ? fd : send_image(walk, fd, &record->data.extents[i]);
    }
    return r;
}

/*
 * What counts together with changes that the copy has was thinned out after it got them, and may have left its bytes to
 * those. They are what the copy's file holds; of extended attributes, that is not sure.
 */
static int judge_fill(struct log_walk *walk, const struct wb_record *record)
{
    const uint8_t *payload = walk->sending->data + (record->payload_offset - record->offset);

    if (record->type != WB_REC_XATTR || record->payload_length == 0 || !wb_is_zero(payload, record->payload_length))
        return 0;
    return wb_error_set(walk->sending->why, -ESTALE,
                        "the value of an extended attribute at the last update of "
                        "the copy was thinned out since (vprune); create the copy again");
}

static int send_record(struct log_walk *walk, const struct place *place, uint32_t flags)
{
    struct wb_sending *sending = walk->sending;
    struct wb_stream_record body = {.object = walk->object, .log = walk->kind, .flags = flags, .offset = place->offset};
    uint8_t head[WB_STREAM_RECORD_SIZE];
    struct wb_record record;
    int r;

    if (place->total > WB_RECORD_MAX)
        return -EBADMSG;
    r = wb_log_bytes_exact(&walk->reader.bytes, sending->data, place->total, place->offset);
    if (r == 0)
        r = wb_record_decode(sending->data, place->total, place->offset, &record);
    /* Who appends it will make its checksum anew. */
    if (r == 0 && record.payload_length > 0 &&
        wb_checksum(sending->data + (record.payload_offset - record.offset), record.payload_length) !=
            record.payload_check)
        r = -EBADMSG;
    if (r == 0 && flags & WB_STREAM_FILL)
        r = judge_fill(walk, &record);
    if (r == 0)
        note(walk, &record);
    if (r == 0 && record.type == WB_REC_DATA && !(flags & WB_STREAM_FILL)) {
        r = send_images(walk, &record);
        /* The images went through the same room. */
        if (r == 0)
            r = wb_log_bytes_exact(&walk->reader.bytes, sending->data, place->total, place->offset);
    }
    if (r < 0)
        return r;
    wb_stream_encode_record(&body, head);
    if (record.when > sending->since || walk->kind < WB_STREAM_ACTORS)
        sending->frames.records += walk->kind != WB_STREAM_ACTORS;
    return wb_frames_write(&sending->frames, WB_FRAME_RECORD, head, sizeof(head), sending->data, place->total);
}

/* ---- one log ------------------------------------------------------------------------------------ */

/* Whether it stands for history pruned by age in the whole store, which the header of the stream states already. */
static bool is_listed(const struct log_walk *walk, const struct wb_record *record)
{
    return record->type == WB_REC_FILLER && record->filler.until <= wb_store_horizon(walk->sending->store);
}

/* A DATA record of a stage has the `when` of its end: it goes when that goes. */
static int find_places(struct log_walk *walk)
{
    bool listed = walk->kind >= WB_STREAM_ACTORS;
    int64_t since = listed ? walk->sending->since - SLACK : walk->sending->since;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    int r;

    while ((r = listed ? wb_log_reader_prev(&walk->reader, &record)
                       : wb_log_reader_prev_effective(&walk->reader, &skip, &record)) == 0) {
        struct place place = {record.when, record.change, record.offset, record.total, record.type};

        if (record.when <= since)
            break;
        if (record.when > walk->sending->until || record.type == WB_REC_INDEX || is_listed(walk, &record))
            continue;
        /* The copy has it as a change by itself, or together with what it has. */
        if (wb_record_is_joined(&record) && record.change <= since) {
            walk->across = record.when;
            continue;
        }
        for (uint32_t i = 0; record.type == WB_REC_DATA && i < record.data.count; i++)
            walk->images |= record.data.extents[i].kind == WB_EXTENT_IMAGE;
        g_array_append_val(walk->places, place);
    }
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

static int send_places(struct log_walk *walk)
{
    int64_t first = 0;
    int r = 0;

    for (guint i = walk->places->len; r == 0 && i-- > 0;) {
        const struct place *place = &g_array_index(walk->places, struct place, i);
        uint32_t flags = 0;

        if (walk->across > 0 && place->when == walk->across) {
            first = first > 0 ? first : place->change;
            flags = WB_STREAM_FILL | (place->change == first ? WB_STREAM_APART : 0);
        }
        r = send_record(walk, place, flags);
    }
    return r;
}

/* What was lost from the end of a log the copy would not miss: nothing is sent then. 0 or -errno. */
static int check_end(const struct wb_sending *sending, struct wb_object object, enum wb_stream_log kind)
{
    int r = WB_TAIL_SOUND;

    if (kind == WB_STREAM_UNDO || kind == WB_STREAM_CATALOG)
        r = wb_store_tail_is_lost(sending->store, object, kind == WB_STREAM_UNDO ? WB_FILE_UNDO : WB_FILE_CATALOG);
    return r > WB_TAIL_SOUND ? -EBADMSG : r;
}

/* 1: it refers to images, which may not be thinned out meanwhile, as the log itself may. */
static int send_log(struct wb_sending *sending, const char *path, struct wb_object object, enum wb_stream_log kind,
                    bool pinned)
{
    int lost = check_end(sending, object, kind);
    _cleanup_close_ int fd = lost < 0 ? lost : wb_open_own(sending->store->dir_fd, path, O_RDONLY, 0);
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(struct place));
    struct log_walk walk = {.sending = sending, .object = object, .kind = kind, .places = places};
    int r = fd < 0 ? fd : wb_log_reader_init(&walk.reader, fd);

    if (r < 0)
        return r;
    r = find_places(&walk);
    if (r == 0)
        r = walk.images && !pinned ? 1 : send_places(&walk);
    wb_log_reader_deinit(&walk.reader);
    return r;
}

static int fail(struct wb_sending *sending, int r, const char *path)
{
    if (r == -ECANCELED || r == -EPIPE || *sending->why->text)
        return r;
    if (r == -EBADMSG || r == -ENODATA)
        return wb_error_set(sending->why, -EBADMSG,
                            "%s in the store is damaged and cannot be copied; run "
                            "vfsck",
                            path);
    return wb_error_set(sending->why, r, "%s in the store cannot be sent: %s", path, g_strerror(-r));
}

static int send_file(struct wb_sending *sending, const char *path, struct wb_object object, enum wb_stream_log kind)
{
    _cleanup_close_ int pin = -1;
    int r = send_log(sending, path, object, kind, false);

    if (r == 1) {
        pin = wb_store_pin_briefly(sending->store);
        r = pin < 0 ? pin : send_log(sending, path, object, kind, true);
    }
    return r == -ENOENT ? 0 : r < 0 ? fail(sending, r, path) : 0;
}

/* ---- all logs ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int take_name(void *data, int fd, const char *name)
{
    g_ptr_array_add(data, g_strdup(name));
    return 0;
}

/* In the same order every time. */
/* A log that is missing is not met in its folder. */
static int take_entry(const struct wb_manifest_entry *entry, void *data)
{
    struct wb_sending *sending = data;
    char path[WB_OBJECT_PATH_MAX];

    if (entry->file > WB_FILE_CATALOG)
        return 0;
    wb_object_path(entry->object, entry->file, path);
    if (faccessat(sending->store->dir_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        wb_manifest_check(sending->store, entry->object, entry->file) == 0)
        return 0;
    return fail(sending, -EBADMSG, path);
}

static int send_folder(struct wb_sending *sending, unsigned shard)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    int r = wb_shard_each(sending->store->dir_fd, shard, take_name, names);

    if (r < 0)
        return fail(sending, r, WB_OBJECTS_NAME);
    r = wb_manifest_each(sending->store, shard, take_entry, sending);
    if (r < 0)
        return fail(sending, r, WB_MANIFEST_NAME);
    g_ptr_array_sort(names, by_name);
    for (guint i = 0; r == 0 && i < names->len; i++) {
        char path[WB_OBJECT_PATH_MAX];
        struct wb_object object;
        enum wb_object_file file;

        if (wb_object_file_parse(names->pdata[i], &object, &file) < 0)
            continue;
        wb_object_path(object, file, path);
        if (file == WB_FILE_UNDO)
            r = send_file(sending, path, object, WB_STREAM_UNDO);
        else if (file == WB_FILE_CATALOG)
            r = send_file(sending, path, object, WB_STREAM_CATALOG);
    }
    return r;
}

int wb_sending_records(struct wb_sending *sending)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < WB_SHARDS; i++)
        r = send_folder(sending, i);
    if (r == 0)
        r = wb_sending_gaps(sending);
    /* Whoever is meant by a record that was sent is in there by now. */
    if (r == 0)
        r = send_file(sending, WB_ACTORS_NAME, WB_OBJECT_NONE, WB_STREAM_ACTORS);
    return r == 0 ? send_file(sending, WB_SNAPSHOTS_NAME, WB_OBJECT_NONE, WB_STREAM_SNAPSHOTS) : r;
}
