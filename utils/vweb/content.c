/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/errno_text.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/text.h"
#include "content/line_diff.h"
#include "vweb/guard.h"
#include "vweb/request.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/stat.h>

/* The content of a name at a time, and the difference between two times. */

#define TEXT_MAX (2 * 1024 * 1024) /* of one side of a comparison */
#define IMAGE_MAX (32 * 1024 * 1024)
#define LINES_MAX 5000
#define LINE_MAX_SHOWN 2000 /* bytes */
#define CONTEXT 3
/* A file with a NUL among its first bytes is no text. */
#define LOOKED_AT 8000

enum kind { KIND_NONE, KIND_TEXT, KIND_IMAGE, KIND_BINARY, KIND_LINK, KIND_DIRECTORY, KIND_OTHER };

static const char *const kind_words[] = {[KIND_NONE] = "none",      [KIND_TEXT] = "text",
                                         [KIND_IMAGE] = "image",    [KIND_BINARY] = "binary",
                                         [KIND_LINK] = "symlink",   [KIND_DIRECTORY] = "directory",
                                         [KIND_OTHER] = "other"};

/* A name at a time. */
struct side {
    enum kind kind;
    const char *image; /* its type, or NULL */
    char *path;        /* in the mount, perhaps of the past; NULL: nothing was there */
    int fd;            /* of a file; else -1 */
    uint64_t size;
    GBytes *bytes;     /* the beginning of a file, or the target of a link; else NULL */
};

static void side_clear(struct side *side)
{
    g_free(side->path);
    if (side->fd >= 0)
        close(side->fd);
    if (side->bytes)
        g_bytes_unref(side->bytes);
    *side = (struct side){.fd = -1};
}
#define _cleanup_side_ __attribute__((cleanup(side_clear)))

/* Types that a browser decodes and that cannot have scripts. NULL: it is none of these. */
static const char *image_type(const guint8 *bytes, gsize size)
{
    static const struct {
        gsize at;
        const char *magic;
        gsize length;
        const char *type;
    } types[] = {{0, "\x89PNG\r\n\x1a\n", 8, "image/png"}, {0, "\xff\xd8\xff", 3, "image/jpeg"},
                 {0, "GIF87a", 6, "image/gif"},            {0, "GIF89a", 6, "image/gif"},
                 {8, "WEBPVP8", 7, "image/webp"},          {4, "ftypavif", 8, "image/avif"}};

    for (size_t i = 0; i < G_N_ELEMENTS(types); i++)
        if (size >= types[i].at + types[i].length && memcmp(bytes + types[i].at, types[i].magic, types[i].length) == 0)
            return types[i].type;
    return NULL;
}

static int read_beginning(struct side *side)
{
    gsize wanted = MIN(side->size, TEXT_MAX);
    g_autofree guint8 *bytes = g_malloc(wanted + 1);
    ssize_t n = wb_fd_read(side->fd, bytes, wanted, 0);

    if (n < 0)
        return (int)n;
    side->image = image_type(bytes, (gsize)n);
    side->kind = side->image ? KIND_IMAGE : memchr(bytes, '\0', MIN((gsize)n, LOOKED_AT)) ? KIND_BINARY : KIND_TEXT;
    side->bytes = g_bytes_new_take(g_steal_pointer(&bytes), (gsize)n);
    return 0;
}

static int read_link(int dir, const char *name, struct side *side)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof(target));

    if (n < 0)
        return -errno;
    side->kind = KIND_LINK;
    side->size = (uint64_t)n;
    side->bytes = g_bytes_new(target, (gsize)n);
    return 0;
}

/* Opens what side->path has, and reads its beginning. */
static int open_side(const struct wb_mount *mount, struct side *side)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(mount->root_fd, side->path, &name);
    _cleanup_fd_ int held = dir < 0 ? dir : wb_hold(dir, name, NULL);
    struct stat st;

    if (held < 0 || fstat(held, &st) < 0)
        return held < 0 ? held : -errno;
    side->size = (uint64_t)st.st_size;
    if (S_ISLNK(st.st_mode))
        return read_link(dir, name, side);
    side->kind = S_ISDIR(st.st_mode) ? KIND_DIRECTORY : KIND_OTHER;
    /* Opening a FIFO or a device can block, or have effects. */
    if (!S_ISREG(st.st_mode))
        return 0;
    side->fd = wb_held_open(held, O_RDONLY);
    return side->fd < 0 ? side->fd : read_beginning(side);
}

/*
 * `path` at `when`; `number`: of the version whose state it is, to find it under another name; 0: not known. That
 * nothing was there is no failure. 0; or -errno with a line in `why`.
 */
static int find_side(const struct web *web, const char *path, int64_t when, int64_t number, struct side *side,
                     struct wb_error *why)
{
    const struct wb_mount *mount = web->place->mount;
    _cleanup_moment_ struct wb_moment moment = {0};
    int r = 0;

    *side = (struct side){.fd = -1};
    if (when == WB_WHEN_PRESENT) {
        side->path = g_strdup(path);
    } else {
        r = wb_moment_at(mount, path, when, &moment, why);
        if ((r < 0 || !moment.path) && number > 1) {
            struct wb_time newer = {.kind = WB_TIME_VERSION, .number = (unsigned)number - 1};

            wb_moment_clear(&moment);
            r = wb_moment_before(mount, path, &newer, &moment, why);
        }
        side->path = g_steal_pointer(&moment.path);
    }
    if (r == 0 && side->path)
        r = open_side(mount, side);
    else if (r == -ENOENT)
        r = 0;
    if (r == -ENOENT && when == WB_WHEN_PRESENT)
        r = 0;
    if (r < 0 && when != WB_WHEN_PRESENT && !*why->text)
        wb_moment_unknown(mount, path, when, r, why);
    return r;
}

/* path=PATH[&KEYepoch=TIME][&KEYnumber=N]. False after an error reply. */
static bool find_argument(const struct web_request *request, struct web_reply *reply, const char *prefix,
                          struct side *side)
{
    g_autofree char *path = NULL;
    g_autofree char *epoch = g_strconcat(prefix, "epoch", NULL);
    g_autofree char *number_key = g_strconcat(prefix, "number", NULL);
    struct wb_error why = {""};
    int64_t when, number;
    int r;

    if (!web_argument_path(request, reply, &path) ||
        !web_argument_time(request, reply, epoch, WB_WHEN_PRESENT, &when) ||
        !web_argument_number(request, reply, number_key, 0, UINT32_MAX, 0, &number))
        return false;
    r = find_side(request->web, path, when, number, side, &why);
    if (r < 0)
        web_reply_errno(reply, r, why.text);
    return r == 0;
}

/* ---- content ----------------------------------------------------------------------------------------- */

/* `text` as it can be shown: lines stay, all other control characters are escaped; g_free. */
static char *shown_text(const char *bytes, gsize size)
{
    g_autofree char *valid = g_utf8_make_valid(bytes, (gssize)size);
    GString *text = g_string_sized_new(size);

    for (const char *at = valid; *at; at = g_utf8_next_char(at)) {
        gunichar c = g_utf8_get_char(at);

        if (c == '\r' && at[1] == '\n')
            continue;
        if (c != '\n' && c != '\t' && (g_unichar_iscntrl(c) || g_unichar_type(c) == G_UNICODE_FORMAT))
            g_string_append_printf(text, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        else
            g_string_append_unichar(text, c);
    }
    return g_string_free(text, FALSE);
}

static void add_side(JsonBuilder *builder, const struct side *side)
{
    wb_json_string(builder, "kind", kind_words[side->kind]);
    wb_json_int(builder, "size", (int64_t)side->size);
    if (side->image)
        wb_json_string(builder, "image", side->image);
}

static void add_dump(GString *text, const guint8 *bytes, gsize size)
{
    for (gsize at = 0; at < size; at += 16) {
        g_string_append_printf(text, "%08zx ", at);
        for (gsize i = at; i < at + 16; i++)
            g_string_append_printf(text, i < size ? " %02x" : "   ", i < size ? bytes[i] : 0u);
        g_string_append(text, "  ");
        for (gsize i = at; i < MIN(at + 16, size); i++)
            g_string_append_c(text, g_ascii_isprint(bytes[i]) ? (char)bytes[i] : '.');
        g_string_append_c(text, '\n');
    }
}

/* content?path=PATH[&epoch=TIME][&number=N] */
void web_get_content(const struct web_request *request, struct web_reply *reply)
{
    _cleanup_side_ struct side side = {.fd = -1};
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *text = NULL;
    const char *bytes;
    gsize size = 0, shown;

    if (!find_argument(request, reply, "", &side))
        return;
    if (!side.path || side.kind == KIND_NONE) {
        web_reply_error(reply, MHD_HTTP_NOT_FOUND, "absent", "nothing was there then");
        return;
    }
    builder = web_reply_begin();
    add_side(builder, &side);
    bytes = side.bytes ? g_bytes_get_data(side.bytes, &size) : NULL;
    shown = side.kind == KIND_BINARY ? MIN(size, 4096) : MIN(size, TEXT_MAX / 4);
    if (side.kind == KIND_TEXT || side.kind == KIND_LINK) {
        text = shown_text(bytes ? bytes : "", shown);
    } else if (side.kind == KIND_BINARY) {
        GString *dump = g_string_new(NULL);

        add_dump(dump, (const guint8 *)bytes, shown);
        text = g_string_free(dump, FALSE);
    }
    if (text)
        wb_json_string(builder, "text", text);
    wb_json_bool(builder, "whole", shown == side.size);
    web_reply_end(reply, builder);
}

/* image?path=PATH[&epoch=TIME][&number=N]: the bytes, if it is an image that can have no scripts. */
void web_get_image(const struct web_request *request, struct web_reply *reply)
{
    _cleanup_side_ struct side side = {.fd = -1};

    if (!find_argument(request, reply, "", &side))
        return;
    if (side.kind != KIND_IMAGE || side.size > IMAGE_MAX) {
        web_reply_error(reply, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "failed",
                        side.kind == KIND_IMAGE ? "the image is too large to be shown; download it"
                                                : "it is no image that can be shown");
        return;
    }
    reply->status = MHD_HTTP_OK;
    reply->type = side.image;
    reply->fd = wb_fd_steal(&side.fd);
    reply->size = side.size;
    reply->is_image = true;
}

/* ---- the difference ---------------------------------------------------------------------------------- */

static void add_line(JsonBuilder *builder, const struct wb_diff_line *line)
{
    char kind[2] = {(char)line->kind, '\0'};
    gsize length = line->length;
    g_autofree char *text = NULL;
    bool ends = length > 0 && line->text[length - 1] == '\n';

    length -= ends;
    text = shown_text(line->text, MIN(length, LINE_MAX_SHOWN));
    json_builder_begin_object(builder);
    wb_json_string(builder, "kind", kind);
    if (line->old)
        wb_json_int(builder, "old", line->old);
    if (line->new)
        wb_json_int(builder, "new", line->new);
    if (line->begins_hunk)
        wb_json_bool(builder, "begins", true);
    wb_json_string(builder, "text", text);
    if (!ends)
        wb_json_bool(builder, "no_newline", true);
    if (length > LINE_MAX_SHOWN)
        wb_json_bool(builder, "cut", true);
    json_builder_end_object(builder);
}

static void add_lines(JsonBuilder *builder, const GArray *lines, bool exact)
{
    guint added = 0, removed = 0;

    for (guint i = 0; i < lines->len; i++) {
        added += g_array_index(lines, struct wb_diff_line, i).kind == WB_LINE_NEW;
        removed += g_array_index(lines, struct wb_diff_line, i).kind == WB_LINE_OLD;
    }
    wb_json_int(builder, "added", added);
    wb_json_int(builder, "removed", removed);
    wb_json_bool(builder, "exact", exact);
    wb_json_bool(builder, "whole", lines->len <= LINES_MAX);
    json_builder_set_member_name(builder, "lines");
    json_builder_begin_array(builder);
    for (guint i = 0; i < MIN(lines->len, LINES_MAX); i++)
        add_line(builder, &g_array_index(lines, struct wb_diff_line, i));
    json_builder_end_array(builder);
}

/* 1: equal, 0: not, -errno. Of files that are read in pieces. */
static int is_equal(const struct side *old, const struct side *new)
{
    g_autofree guint8 *one = g_malloc(LOOKED_AT), *other = g_malloc(LOOKED_AT);

    if (old->kind != new->kind || old->size != new->size)
        return 0;
    if (old->fd < 0 || new->fd < 0)
        return !old->bytes || g_bytes_equal(old->bytes, new->bytes);
    for (int64_t at = 0; !wb_cli_interrupted(); at += LOOKED_AT) {
        ssize_t n = wb_fd_read(old->fd, one, LOOKED_AT, at), m = wb_fd_read(new->fd, other, LOOKED_AT, at);

        if (n < 0 || m < 0)
            return (int)MIN(n, m);
        if (n != m || memcmp(one, other, (size_t)n) != 0)
            return 0;
        if (n == 0)
            return 1;
    }
    return -EINTR;
}

static bool is_lines(const struct side *side)
{
    return side->kind == KIND_NONE || ((side->kind == KIND_TEXT || side->kind == KIND_LINK) && side->size <= TEXT_MAX);
}

static void add_difference(JsonBuilder *builder, const struct side sides[2])
{
    const char *bytes[2] = {"", ""};
    gsize sizes[2] = {0, 0};
    g_autoptr(GArray) lines = NULL;
    bool exact;

    for (int i = 0; i < 2; i++)
        if (sides[i].bytes)
            bytes[i] = g_bytes_get_data(sides[i].bytes, &sizes[i]);
    lines = wb_lines_diff(bytes[0] ? bytes[0] : "", sizes[0], bytes[1] ? bytes[1] : "", sizes[1], CONTEXT, &exact);
    add_lines(builder, lines, exact);
}

/* diff?path=PATH&old_epoch=TIME[&old_number=N][&new_epoch=TIME][&new_number=N]; without `new_epoch`: to the present. */
void web_get_diff(const struct web_request *request, struct web_reply *reply)
{
    _cleanup_side_ struct side old = {.fd = -1};
    _cleanup_side_ struct side new = {.fd = -1};
    g_autoptr(JsonBuilder) builder = NULL;
    const char *kind = "binary";
    int same;

    if (!find_argument(request, reply, "old_", &old) || !find_argument(request, reply, "new_", &new))
        return;
    same = is_equal(&old, &new);
    if (same < 0) {
        web_reply_errno(reply, same, NULL);
        return;
    }
    if (old.kind == KIND_DIRECTORY || new.kind == KIND_DIRECTORY)
        kind = "directory";
    else if (same)
        kind = "same";
    else if (is_lines(&old) && is_lines(&new))
        kind = "text";
    else if ((old.image || old.kind == KIND_NONE) && (new.image || new.kind == KIND_NONE))
        kind = "image";
    builder = web_reply_begin();
    wb_json_string(builder, "kind", kind);
    for (int i = 0; i < 2; i++) {
        json_builder_set_member_name(builder, i == 0 ? "old" : "new");
        json_builder_begin_object(builder);
        add_side(builder, i == 0 ? &old : &new);
        json_builder_end_object(builder);
    }
    if (strcmp(kind, "text") == 0) {
        const struct side sides[2] = {old, new};

        add_difference(builder, sides);
    }
    web_reply_end(reply, builder);
}

/* ---- downloads --------------------------------------------------------------------------------------- */

/* ticket {path, epoch, number}: where the content can be downloaded, once and within a minute. */
void web_post_ticket(const struct web_request *request, struct web_reply *reply)
{
    _cleanup_side_ struct side side = {.fd = -1};
    g_autoptr(JsonBuilder) builder = NULL;
    g_autofree char *path = NULL;
    g_autofree char *url = NULL;
    char text[WEB_TOKEN_TEXT];
    const char *name;

    if (!web_argument_path(request, reply, &path) || !find_argument(request, reply, "", &side))
        return;
    if (side.fd < 0) {
        web_reply_error(reply, MHD_HTTP_NOT_FOUND, "absent", "only the content of files can be downloaded");
        return;
    }
    g_free(wb_path_parent(path, &name));
    if (!web_tickets_add(request->web->tickets, side.path, name, text)) {
        web_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE, "failed", "too many downloads; try again in a minute");
        return;
    }
    url = g_strconcat("/download/", text, NULL);
    builder = web_reply_begin();
    wb_json_string(builder, "url", url);
    wb_json_int(builder, "size", (int64_t)side.size);
    web_reply_end(reply, builder);
}

void web_get_download(const struct web_request *request, const char *text, struct web_reply *reply)
{
    struct web_ticket *ticket = web_tickets_take(request->web->tickets, text);
    _cleanup_side_ struct side side = {.fd = -1};
    int r;

    if (!ticket) {
        web_reply_error(reply, MHD_HTTP_NOT_FOUND, "absent", "this download is over; begin it again in the page");
        return;
    }
    side.path = g_strdup(ticket->path);
    r = open_side(request->web->place->mount, &side);
    if (r == 0 && side.fd < 0)
        r = -ENOENT;
    if (r < 0) {
        web_reply_errno(reply, r, NULL);
    } else {
        reply->status = MHD_HTTP_OK;
        reply->type = "application/octet-stream";
        reply->fd = wb_fd_steal(&side.fd);
        reply->size = side.size;
        reply->file_name = g_strdup(ticket->name);
    }
    web_ticket_free(ticket);
}
