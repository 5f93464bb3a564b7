/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A log as text. The walk goes forward, in the order of writing; bytes that are not a record are shown with their
 * offsets, so that no part of the file is skipped silently.
 */
#include "wayback/dump.h"

#include "base/cleanup.h"
#include "store/dump/dump_fields.h"
#include "store/log/log.h"
#include "wayback/quote.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* One line, which is one object. */
static void fields_begin(struct wb_fields *fields, FILE *out, bool json)
{
    *fields = (struct wb_fields){.out = out, .json = json};
    if (json)
        fprintf(out, "{\"schema\":%d", WB_JSON_SCHEMA);
    fields->more = json;
}

static void fields_end(struct wb_fields *fields)
{
    fputs(fields->json ? "}\n" : "\n", fields->out);
}

static void put_separator(struct wb_fields *fields)
{
    if (fields->more)
        fputc(fields->json ? ',' : ' ', fields->out);
    fields->more = true;
}

static void put_key(struct wb_fields *fields, const char *key)
{
    put_separator(fields);
    if (key)
        fprintf(fields->out, fields->json ? "\"%s\":" : "%s=", key);
}

/* key={...} and key=[{...} {...}]; the elements of a list have no key (NULL). */
static void fields_open(struct wb_fields *fields, const char *key, char bracket)
{
    put_key(fields, key);
    fputc(bracket, fields->out);
    fields->more = false;
}

static void fields_close(struct wb_fields *fields, char bracket)
{
    fputc(bracket, fields->out);
    fields->more = true;
}

/* Text: the bare word, without its key. */
static void fields_word(struct wb_fields *fields, const char *key, const char *word)
{
    if (fields->json) {
        put_key(fields, key);
        fprintf(fields->out, "\"%s\"", word);
    } else {
        put_separator(fields);
        fputs(word, fields->out);
    }
}

static void fields_uint(struct wb_fields *fields, const char *key, uint64_t value)
{
    put_key(fields, key);
    fprintf(fields->out, "%" PRIu64, value);
}

static void fields_bool(struct wb_fields *fields, const char *key, bool value)
{
    put_key(fields, key);
    fputs(value ? "true" : "false", fields->out);
}

/* Octal; in JSON a string, as in docs/json.md. */
static void fields_mode(struct wb_fields *fields, const char *key, uint32_t mode)
{
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "\"%06" PRIo32 "\"" : "%06" PRIo32, mode);
}

/* Hexadecimal, as a string in JSON: not all JSON readers support numbers of 64 bits. */
static void fields_check(struct wb_fields *fields, const char *key, uint64_t check)
{
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "\"%016" PRIx64 "\"" : "%016" PRIx64, check);
}

/* An instant: seconds in text; in JSON an object with the two forms of docs/json.md. */
static void fields_instant(struct wb_fields *fields, const char *key, int64_t when)
{
    char text[WB_WHEN_TEXT_MAX];

    put_key(fields, key);
    if (fields->json)
        fprintf(fields->out, "{\"time\":\"%s\",", wb_when_print_iso(when, text));
    fprintf(fields->out, fields->json ? "\"epoch\":\"%s\"}" : "%s", wb_when_print_epoch(when, text));
}

/* The length of the UTF-8 character that may be printed unchanged; 0: it must be escaped. */
static size_t plain_length(const struct wb_fields *fields, const char *bytes, size_t length)
{
    gunichar c = g_utf8_get_char_validated(bytes, (gssize)length);

    if (c == (gunichar)-1 || c == (gunichar)-2 || c < ' ' || c == 0x7f)
        return 0;
    /* Characters that a terminal or a pager could take for a command or for the end of the line. */
    if (!fields->json && (g_unichar_iscntrl(c) || c == 0x2028 || c == 0x2029))
        return 0;
    return (size_t)(g_utf8_next_char(bytes) - bytes);
}

static void put_escaped(struct wb_fields *fields, const char *bytes, size_t length)
{
    size_t n;

    for (size_t i = 0; i < length; i += n) {
        unsigned char c = (unsigned char)bytes[i];

        n = plain_length(fields, bytes + i, length - i);
        if (n == 0) {
            n = 1;
            if (fields->json && c >= 0x80)
                fputs("\\ufffd", fields->out);
            else if (fields->json)
                fprintf(fields->out, "\\u%04x", c);
            else
                fprintf(fields->out, "\\x%02x", c);
        } else if (c == '"' || c == '\\') {
            fprintf(fields->out, "\\%c", c);
        } else {
            fwrite(bytes + i, 1, n, fields->out);
        }
    }
}

/* Bytes of users, quoted. In text, bytes that are not UTF-8 are \xNN; in JSON they are U+FFFD, and "key_bytes" has all
 * bytes in base64. */
static void fields_bytes(struct wb_fields *fields, const char *key, const char *bytes, size_t length)
{
    g_autofree char *text = NULL;

    put_key(fields, key);
    fputc('"', fields->out);
    put_escaped(fields, bytes, length);
    fputc('"', fields->out);
    if (!fields->json || length == 0 || g_utf8_validate_len(bytes, length, NULL))
        return;

    put_separator(fields);
    text = g_base64_encode((const guchar *)bytes, length);
    fprintf(fields->out, "\"%s_bytes\":\"%s\"", key, text);
}

/* An id; omitted if there is none. */
static void fields_object(struct wb_fields *fields, const char *key, struct wb_object object)
{
    char text[WB_OBJECT_TEXT_MAX];

    if (wb_object_is_none(object))
        return;
    wb_object_print(object, text);
    put_key(fields, key);
    fprintf(fields->out, fields->json ? "\"%s\"" : "%s", text);
}

static void fields_attrs(struct wb_fields *fields, const char *key, const struct wb_attrs *attrs)
{
    fields_open(fields, key, '{');
    fields_mode(fields, "mode", attrs->mode);
    fields_uint(fields, "uid", attrs->uid);
    fields_uint(fields, "gid", attrs->gid);
    fields_uint(fields, "nlink", attrs->nlink);
    fields_uint(fields, "size", attrs->size);
    fields_uint(fields, "rdev", attrs->rdev);
    if (attrs->blocks > 0)
        fields_uint(fields, "blocks", attrs->blocks - 1);
    fields_instant(fields, "atime", attrs->atime);
    fields_instant(fields, "mtime", attrs->mtime);
    fields_instant(fields, "ctime", attrs->ctime);
    fields_close(fields, '}');
}

struct dump {
    int fd;
    FILE *out;
    unsigned flags;
    uint8_t *payload; /* WB_PAYLOAD_MAX bytes, with WB_DUMP_VERIFY */
    struct wb_dump_count count;
};

/* ---- bodies ---------------------------------------------------------------------------------- */

static void put_slot(struct wb_fields *fields, const struct wb_slot *slot)
{
    static const char *const fates[] = {"none", "kept", "moved"};

    fields_open(fields, NULL, '{');
    fields_bytes(fields, "name", slot->name, slot->name_length);
    fields_word(fields, "state", slot->present ? "present" : "absent");
    if (slot->present) {
        fields_object(fields, "object", slot->object);
        fields_attrs(fields, "attrs", &slot->attrs);
        fields_word(fields, "fate", fates[slot->unbind]);
    }
    if (slot->unbind == WB_UNBIND_RENAMED) {
        fields_object(fields, "to_dir", slot->to_dir);
        fields_bytes(fields, "to_name", slot->to_name, slot->to_length);
    }
    if (!wb_object_is_none(slot->from_dir)) {
        fields_object(fields, "from_dir", slot->from_dir);
        fields_bytes(fields, "from_name", slot->from_name, slot->from_length);
    }
    fields_close(fields, '}');
}

static void put_name(struct wb_fields *fields, const struct wb_rec_name *name)
{
    fields_attrs(fields, "dir", &name->dir);
    fields_open(fields, "slots", '[');
    for (uint32_t i = 0; i < name->count; i++)
        put_slot(fields, &name->slots[i]);
    fields_close(fields, ']');
}

static void put_attr(struct wb_fields *fields, const struct wb_rec_attr *attr)
{
    fields_object(fields, "object", attr->object);
    fields_uint(fields, "offset", attr->offset);
    fields_uint(fields, "length", attr->length);
    fields_uint(fields, "size_after", attr->size_after);
    if (attr->begin > 0)
        fields_instant(fields, "stage_began", attr->begin);
    fields_attrs(fields, "attrs", &attr->attrs);
}

static void put_extent(struct wb_fields *fields, const struct wb_extent *extent)
{
    static const char *const kinds[] = {"inline", "zero", "image"};

    fields_open(fields, NULL, '{');
    fields_word(fields, "kind", kinds[extent->kind]);
    fields_uint(fields, "offset", extent->offset);
    fields_uint(fields, "length", extent->length);
    if (extent->kind != WB_EXTENT_ZERO)
        fields_uint(fields, "source", extent->source);
    if (extent->kind == WB_EXTENT_IMAGE)
        fields_check(fields, "check", extent->check);
    fields_close(fields, '}');
}

static void put_data(struct wb_fields *fields, const struct wb_rec_data *data)
{
    fields_uint(fields, "offset", data->offset);
    fields_uint(fields, "length", data->length);
    fields_uint(fields, "size_after", data->size_after);
    fields_attrs(fields, "attrs", &data->attrs);
    fields_open(fields, "extents", '[');
    for (uint32_t i = 0; i < data->count; i++)
        put_extent(fields, &data->extents[i]);
    fields_close(fields, ']');
}

static void put_xattr(struct wb_fields *fields, const struct wb_rec_xattr *xattr)
{
    fields_object(fields, "object", xattr->object);
    fields_bytes(fields, "name", xattr->name, xattr->name_length);
    fields_word(fields, "state", xattr->present ? "present" : "absent");
    fields_attrs(fields, "attrs", &xattr->attrs);
}

static void put_place(struct wb_fields *fields, const struct wb_rec_place *place)
{
    fields_object(fields, "self", place->self);
    fields_object(fields, "parent", place->parent);
    fields_bytes(fields, "name", place->name, place->name_length);
}

static void put_gap(struct wb_fields *fields, const struct wb_rec_gap *gap)
{
    static const char *const reasons[] = {"", "refused", "external", "erased", "power", "unseen", "damage", "policy"};

    fields_instant(fields, "since", gap->since);
    fields_word(fields, "reason", reasons[gap->reason]);
    if (gap->until != 0)
        fields_instant(fields, "until", gap->until);
}

static void put_snapshot(struct wb_fields *fields, const struct wb_rec_snapshot *snapshot)
{
    fields_instant(fields, "moment", snapshot->moment);
    fields_object(fields, "scope", snapshot->scope);
    fields_uint(fields, "uid", snapshot->uid);
    fields_bool(fields, "present", snapshot->present);
    fields_bool(fields, "automatic", snapshot->automatic);
    fields_bytes(fields, "name", snapshot->name, snapshot->name_length);
    fields_bytes(fields, "text", snapshot->text, snapshot->text_length);
    fields_bytes(fields, "path", snapshot->path, snapshot->path_length);
}

static void put_index(struct wb_fields *fields, const struct wb_rec_index *index)
{
    fields_uint(fields, "from", index->from);
    fields_uint(fields, "previous", index->previous);
    fields_uint(fields, "records", index->count);
    fields_instant(fields, "first", index->first);
    fields_instant(fields, "last", index->last);
    fields_uint(fields, "types", index->types);
    if (index->attrs_when > 0) {
        fields_instant(fields, "told", index->attrs_when);
        fields_attrs(fields, "attrs", &index->attrs);
    }
}

static void put_actor(struct wb_fields *fields, const struct wb_rec_actor *actor)
{
    fields_uint(fields, "uid", actor->uid);
    fields_uint(fields, "gid", actor->gid);
    fields_uint(fields, "pid", actor->pid);
    fields_bytes(fields, "command", actor->command, actor->command_length);
}

static void put_via(struct wb_fields *fields, const struct wb_via *via)
{
    if (via->length == 0)
        return;
    fields_object(fields, "via_dir", via->dir);
    fields_bytes(fields, "via_name", via->name, via->length);
}

static void put_body(struct wb_fields *fields, const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_NAME:
        put_name(fields, &record->name);
        break;
    case WB_REC_ATTR:
        put_attr(fields, &record->attr);
        break;
    case WB_REC_DATA:
        put_data(fields, &record->data);
        break;
    case WB_REC_XATTR:
        put_xattr(fields, &record->xattr);
        break;
    case WB_REC_PLACE:
        put_place(fields, &record->place);
        break;
    case WB_REC_ABORT:
        fields_instant(fields, "target", record->abort.target);
        break;
    case WB_REC_GAP:
        put_gap(fields, &record->gap);
        break;
    case WB_REC_ACTOR:
        put_actor(fields, &record->actor_info);
        break;
    case WB_REC_SNAPSHOT:
        put_snapshot(fields, &record->snapshot);
        break;
    case WB_REC_INDEX:
        put_index(fields, &record->index);
        break;
    case WB_REC_FILLER:
        fields_instant(fields, "until", record->filler.until);
        break;
    case WB_REC_THINNED:
        fields_instant(fields, "until", record->thinned.until);
        break;
    default:
        fields_uint(fields, "body", record->body_length);
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *type_name(unsigned type, char unknown[16])
{
    static const char *const names[] = {"", "NAME", "ATTR", "DATA", "XATTR", "PLACE", "ABORT", "GAP", "ACTOR",
                                        "SNAPSHOT", "INDEX", "FILLER", "THINNED"};

    if (type < G_N_ELEMENTS(names))
        return names[type];
    snprintf(unknown, 16, "TYPE-%u", type);
    return unknown;
}

/* The fields of every record, in this order in both formats. */
static void put_head(struct wb_fields *fields, const struct wb_record *record)
{
    char text[WB_WHEN_TEXT_MAX], unknown[16];

    if (fields->json) {
        fields_uint(fields, "at", record->offset);
        fields_uint(fields, "total", record->total);
    } else {
        fprintf(fields->out, "%-8" G_GUINT64_FORMAT, record->offset);
        fields->more = true;
        fields_word(fields, "when", wb_when_print_epoch(record->when, text));
    }
    fields_word(fields, "time", wb_when_print_iso(record->when, text));
    if (fields->json)
        fields_word(fields, "epoch", wb_when_print_epoch(record->when, text));
    fields_word(fields, "op", wb_op_name(record->op));
    fields_word(fields, "type", type_name(record->type, unknown));
    fields_uint(fields, "actor", record->actor);
    if (record->flags & WB_RECORD_MORE)
        fields_bool(fields, "more", true);
    if (record->flags & WB_RECORD_STAGE)
        fields_bool(fields, "stage", true);
    if (record->flags & WB_RECORD_COALESCED)
        fields_bool(fields, "joined", true);
    if (record->flags & WB_RECORD_THINNED)
        fields_bool(fields, "thinned", true);
    if (record->flags & WB_RECORD_BEGINS)
        fields_bool(fields, "begins", true);
}

static int put_record(struct dump *dump, const struct wb_record *record)
{
    struct wb_fields fields;
    bool damaged = false;
    int r;

    /* No reader uses the payload of a filler, and it may not be a hole yet. */
    if (dump->payload && record->payload_length > 0 && record->type != WB_REC_FILLER) {
        r = wb_log_read_payload(dump->fd, record, dump->payload);
        if (r < 0 && r != -EBADMSG && r != -EIO)
            return r;
        damaged = r < 0;
    }
    dump->count.records++;
    dump->count.damaged += damaged;

    fields_begin(&fields, dump->out, dump->flags & WB_DUMP_JSON);
    put_head(&fields, record);
    put_body(&fields, record);
    put_via(&fields, &record->via);
    if (record->payload_length > 0)
        fields_uint(&fields, "payload", record->payload_length);
    if (damaged && fields.json)
        fields_bool(&fields, "payload_damaged", true);
    else if (damaged)
        fields_word(&fields, NULL, "PAYLOAD DAMAGED");
    fields_end(&fields);
    return 0;
}

/* Bytes that are not a record. */
static void put_region(struct dump *dump, const char *what, const char *key, uint64_t from, uint64_t to)
{
    struct wb_fields fields;

    fields_begin(&fields, dump->out, dump->flags & WB_DUMP_JSON);
    if (fields.json) {
        fields_bool(&fields, key, true);
        fields_uint(&fields, "from", from);
        fields_uint(&fields, "to", to);
    } else {
        fprintf(fields.out, "%s %" G_GUINT64_FORMAT "..%" G_GUINT64_FORMAT, what, from, to);
    }
    fields_end(&fields);
}

static int dump_all(struct dump *dump, struct wb_log_reader *reader)
{
    struct wb_record record;
    int r;

    wb_log_reader_seek(reader, 0);
    for (;;) {
        r = wb_log_reader_next(reader, &record);
        if (r == 0)
            r = put_record(dump, &record);
        if (r < 0)
            return r;
        if (ferror(dump->out))
            return errno > 0 ? -errno : -EIO;
        if (r == WB_DAMAGED) {
            dump->count.damaged++;
            put_region(dump, "DAMAGED", "damaged", reader->damaged_from, reader->damaged_to);
        } else if (r == WB_END) {
            break;
        }
    }
    if (reader->position < reader->end && dump->count.records + dump->count.damaged > 0)
        put_region(dump, "UNFINISHED", "unfinished", reader->position, reader->end);
    return fflush(dump->out) == 0 ? 0 : -errno;
}

static int dump_fd(struct dump *dump, const char *path, struct wb_error *why)
{
    struct wb_log_reader reader;
    int r;

    r = wb_log_reader_init(&reader, dump->fd);
    if (r == 0)
        r = dump_all(dump, &reader);
    if (r < 0 && ferror(dump->out))
        wb_error_set(why, r, "%s: its content cannot be written: %s", path, g_strerror(-r));
    else if (r < 0)
        wb_error_set(why, r, "%s: cannot be read: %s", path, g_strerror(-r));
    else if (reader.end > 0 && dump->count.records + dump->count.damaged == 0)
        r = wb_error_set(why, -EBADMSG, "%s: not a Wayback log: it has no record", path);
    wb_log_reader_deinit(&reader);
    return r;
}

int wb_dump_log(const char *path, FILE *out, unsigned flags, struct wb_dump_count *ret, struct wb_error *why)
{
    /* O_NONBLOCK: do not wait if the user names a fifo. */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    g_autofree uint8_t *payload = NULL;
    struct dump dump = {.fd = fd, .out = out, .flags = flags};
    struct stat st;
    int r;

    if (ret)
        *ret = dump.count;
    if (fd < 0 || fstat(fd, &st) < 0) {
        r = -errno;
        return wb_error_set(why, r, "%s: cannot be opened: %s", path, g_strerror(-r));
    }
    if (!S_ISREG(st.st_mode))
        return wb_error_set(why, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL,
                            "%s: not a file; the logs of a tree are in SRC/.wayback", path);
    if (flags & WB_DUMP_VERIFY) {
        payload = g_try_malloc(WB_PAYLOAD_MAX);
        if (!payload)
            return wb_error_set(why, -ENOMEM, "out of memory");
        dump.payload = payload;
    }

    r = dump_fd(&dump, path, why);
    if (ret)
        *ret = dump.count;
    return r;
}
