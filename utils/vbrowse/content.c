/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/content.h"
#include "client/fd.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define TAB 8
#define PIECE (128 * 1024)
/* A file with a NUL among its first bytes is no text. */
#define LOOKED_AT 8000
#define DUMP_MAX (64 * 1024)
#define DUMP_BYTES 16

/* Without tabs and NULs; g_free. */
static char *plain_line(const char *bytes, size_t length)
{
    GString *text = g_string_new(NULL);
    unsigned column = 0;

    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '\t') {
            unsigned blanks = TAB - column % TAB;

            g_string_append_printf(text, "%*s", (int)blanks, "");
            column += blanks;
        } else if (bytes[i] == '\0') {
            g_string_append(text, "\\0");
            column += 2;
        } else {
            g_string_append_c(text, bytes[i]);
            column += ((unsigned char)bytes[i] & 0xc0) != 0x80;
        }
    }
    return g_string_free(text, FALSE);
}

void content_add_lines(GPtrArray *lines, const char *bytes, size_t length)
{
    const char *end = bytes + length;

    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t size = (size_t)((newline ? newline : end) - bytes);
        g_autofree char *line = plain_line(bytes, size > 0 && bytes[size - 1] == '\r' ? size - 1 : size);

        g_ptr_array_add(lines, wb_text_printable(line));
        bytes += size + 1;
    }
}

void content_add_dump(GPtrArray *lines, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += DUMP_BYTES) {
        GString *line = g_string_new(NULL);

        g_string_append_printf(line, "%08zx ", at);
        for (size_t i = at; i < at + DUMP_BYTES; i++)
            g_string_append_printf(line, i < length ? " %02x" : "   ", i < length ? (unsigned char)bytes[i] : 0u);
        g_string_append(line, "  ");
        for (size_t i = at; i < MIN(at + DUMP_BYTES, length); i++)
            g_string_append_c(line, g_ascii_isprint(bytes[i]) ? bytes[i] : '.');
        g_ptr_array_add(lines, g_string_free(line, FALSE));
    }
}

static int read_file(int fd, bool (*stopped)(void), GPtrArray *lines, bool *ret_whole)
{
    g_autoptr(GString) bytes = g_string_new(NULL);
    g_autofree char *piece = g_malloc(PIECE);
    ssize_t n;

    while ((n = wb_fd_read(fd, piece, PIECE, (int64_t)bytes->len)) > 0 && bytes->len < CONTENT_MAX) {
        g_string_append_len(bytes, piece, n);
        if (stopped())
            return -EINTR;
    }
    if (n < 0)
        return (int)n;
    *ret_whole = n == 0;
    if (memchr(bytes->str, '\0', MIN(bytes->len, LOOKED_AT))) {
        *ret_whole = *ret_whole && bytes->len <= DUMP_MAX;
        content_add_dump(lines, bytes->str, MIN(bytes->len, DUMP_MAX));
    } else {
        content_add_lines(lines, bytes->str, bytes->len);
    }
    return 0;
}

int content_read(const struct wb_mount *mount, const struct wb_moment *moment, bool (*stopped)(void), GPtrArray *lines,
                 bool *ret_whole)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(mount->root_fd, moment->path, &name);
    _cleanup_fd_ int fd = -1;
    char target[PATH_MAX];
    struct stat st;
    ssize_t n;

    *ret_whole = true;
    if (dir < 0)
        return dir;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(dir, name, target, sizeof(target) - 1);
        if (n < 0)
            return -errno;
        target[n] = '\0';
        g_ptr_array_add(lines, g_strdup("symbolic link to"));
        g_ptr_array_add(lines, wb_text_printable(target));
        return 0;
    }
    if (!S_ISREG(st.st_mode)) {
        g_ptr_array_add(lines, g_strdup_printf("(a %s)", wb_text_type(st.st_mode)));
        return 0;
    }
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : read_file(fd, stopped, lines, ret_whole);
}
