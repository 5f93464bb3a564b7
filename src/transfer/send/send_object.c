/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One object as it was: attributes, extended attributes, and what of its content the copy does not have. */
#include "transfer/send/send.h"

#include "base/io.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define XATTRS_MAX (1u << 20)

/* ---- extended attributes ------------------------------------------------------------------------ */

static int add_xattr(struct wb_sending *sending, struct wb_spot *spot, const char *name, GByteArray *list)
{
    struct wb_stream_xattr xattr = {.name_length = (uint8_t)strlen(name)};
    ssize_t length = wb_spot_getxattr(sending->history, spot, name, sending->data, 1 << 16);
    uint8_t head[WB_STREAM_XATTR_HEAD];

    if (length < 0)
        return (int)length;
    if (strlen(name) > WB_NAME_MAX || list->len + (size_t)length + sizeof(head) + WB_NAME_MAX > XATTRS_MAX)
        return wb_problem_set(sending->why, -E2BIG, "a file has more extended attributes than the stream can hold");
    xattr.value_length = (uint32_t)length;
    wb_stream_encode_xattr(&xattr, head);
    g_byte_array_append(list, head, sizeof(head));
    g_byte_array_append(list, (const uint8_t *)name, xattr.name_length);
    g_byte_array_append(list, sending->data, (guint)length);
    return 0;
}

/* Under the name that they have in records, although no listing shows it. */
static int add_flags(struct wb_sending *sending, struct wb_spot *spot, GByteArray *list)
{
    struct wb_stream_xattr xattr = {.name_length = (uint8_t)strlen(WB_FLAGS_NAME), .value_length = WB_FLAGS_SIZE};
    uint8_t head[WB_STREAM_XATTR_HEAD], value[WB_FLAGS_SIZE];
    struct wb_flags flags;
    int r = wb_spot_flags(sending->history, spot, &flags);

    if (r < 0)
        return r;
    wb_flags_encode(&flags, value);
    wb_stream_encode_xattr(&xattr, head);
    g_byte_array_append(list, head, sizeof(head));
    g_byte_array_append(list, (const uint8_t *)WB_FLAGS_NAME, xattr.name_length);
    g_byte_array_append(list, value, sizeof(value));
    return 0;
}

static int send_xattrs(struct wb_sending *sending, struct wb_spot *spot)
{
    g_autofree char *names = g_try_malloc(1 << 16);
    GByteArray *list = g_byte_array_new();
    struct wb_stream_list body = {.object = wb_spot_object(spot), .last = true};
    uint8_t head[WB_STREAM_LIST_SIZE];
    ssize_t length = names ? wb_spot_listxattr(sending->history, spot, names, 1 << 16) : -ENOMEM;
    int r = length == -EOPNOTSUPP ? 0 : (int)MIN(length, 0);

    for (const char *name = names; r == 0 && name < names + MAX(length, 0); name += strlen(name) + 1) {
        r = add_xattr(sending, spot, name, list);
        body.count += r == 0;
        if (r == -ENODATA || r == -EOPNOTSUPP)
            r = 0;
    }
    if (r == 0) {
        r = add_flags(sending, spot, list);
        body.count += r == 0;
        r = r == -EOPNOTSUPP ? 0 : r;
    }
    if (r == 0) {
        wb_stream_encode_list(&body, head);
        r = wb_frames_write(&sending->frames, WB_FRAME_XATTRS, head, sizeof(head), list->data, list->len);
    }
    g_byte_array_unref(list);
    return r;
}

/* ---- content ------------------------------------------------------------------------------------ */

static int next_data(const struct wb_sent_bytes *bytes, uint64_t offset, uint64_t *ret)
{
    return wb_file_view_seek(bytes->view, offset, false, ret);
}

static int read_bytes(const struct wb_sent_bytes *bytes, uint8_t *data, size_t length, uint64_t offset)
{
    ssize_t got = wb_file_view_pread(bytes->view, data, length, offset);

    return got < 0 ? (int)got : (size_t)got < length ? -EIO : 0;
}

/* `sparse`: the copy has nothing there yet, so that zeros need not be sent. */
static int send_range(struct wb_sending *sending, struct wb_object object, struct wb_file_view *view, uint64_t from,
                      uint64_t to, bool sparse)
{
    struct wb_sent_bytes bytes = {.object = object, .type = WB_FRAME_CONTENT, .hole = sparse ? 0 : WB_FRAME_HOLE,
                                  .next_data = next_data, .read = read_bytes, .view = view};

    return wb_sending_bytes(sending, &bytes, from, to);
}

static int by_begin(const void *a, const void *b)
{
    const struct wb_sent_range *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

/* What was lost and overwritten, and what came behind the least end it had. */
static int send_changed(struct wb_sending *sending, struct wb_sent *sent, struct wb_file_view *view)
{
    uint64_t size = wb_file_view_size(view), done = 0;
    struct wb_sent_range end = {sent->least, size};
    int r = 0;

    if (!sent->ranges)
        sent->ranges = g_array_new(FALSE, FALSE, sizeof(end));
    g_array_append_val(sent->ranges, end);
    g_array_sort(sent->ranges, by_begin);
    for (guint i = 0; r == 0 && i < sent->ranges->len; i++) {
        struct wb_sent_range range = g_array_index(sent->ranges, struct wb_sent_range, i);

        range.from = MAX(range.from, done);
        range.to = MIN(range.to, size);
        if (range.from < range.to)
            r = send_range(sending, sent->object, view, range.from, range.to, false);
        done = MAX(done, range.to);
    }
    return r;
}

static int send_content(struct wb_sending *sending, struct wb_spot *spot, struct wb_sent *sent, bool whole)
{
    struct wb_file_view *view;
    int r = wb_file_view_open(sending->history, spot, &view);

    if (r < 0)
        return r;
    /* From the beginning of the history, the copy has nothing; else it may have the object by another name. */
    r = whole ? send_range(sending, sent->object, view, 0, wb_file_view_size(view), sending->since == 0)
              : send_changed(sending, sent, view);
    wb_file_view_free(view);
    return r;
}

/* Whether the copy must make it anew: it takes power (set-id bits, file capabilities) from no file that it has. */
static int has_power(struct wb_sending *sending, struct wb_spot *spot, const struct wb_attrs *attrs)
{
    uint8_t value[256];
    ssize_t length;

    if (!S_ISREG(attrs->mode) || attrs->mode & (S_ISUID | S_ISGID))
        return S_ISREG(attrs->mode);
    length = wb_spot_getxattr(sending->history, spot, "security.capability", value, sizeof(value));
    return length == -ENODATA || length == -EOPNOTSUPP ? 0 : length == -ERANGE || length >= 0 ? 1 : (int)length;
}

/* ---- the object --------------------------------------------------------------------------------- */

int wb_sending_tell(struct wb_sending *sending, struct wb_spot *spot, struct wb_sent *sent, bool whole)
{
    struct wb_stream_object body = {.object = sent->object};
    uint8_t head[WB_STREAM_OBJECT_SIZE];
    g_autofree char *target = NULL;
    int r;

    wb_history_clear_problem();
    r = wb_spot_attrs(sending->history, spot, &body.attrs);
    if (r == 0 && S_ISLNK(body.attrs.mode))
        r = wb_spot_readlink(sending->history, spot, &target);
    if (r == 0)
        r = has_power(sending, spot, &body.attrs);
    if (r < 0)
        return r;
    whole = whole || r > 0;
    /* No record tells when it was read, and sending reads it: the stream would be another one each time. */
    body.attrs.atime = body.attrs.mtime;
    body.flags = (whole ? WB_STREAM_WHOLE : 0) | (sent->buried ? WB_STREAM_BURIED : 0);
    body.target_length = target ? strlen(target) : 0;
    wb_stream_encode_object(&body, head);
    r = wb_frames_write(&sending->frames, WB_FRAME_OBJECT, head, sizeof(head), target, body.target_length);
    if (r == 0)
        r = send_xattrs(sending, spot);
    if (r == 0 && S_ISREG(body.attrs.mode))
        r = send_content(sending, spot, sent, whole);
    if (r == 0)
        r = wb_sending_check_gap(sending, spot);
    sent->told = true;
    sent->told_whole |= whole;
    sending->result->objects++;
    return r;
}
