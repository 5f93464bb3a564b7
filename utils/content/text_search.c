/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/text_search.h"

#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BLOCK (128 * 1024)

struct wb_text_search {
    const char *text;
    size_t length;
    uint8_t *buffer; /* the end of the block before, shorter than the text, and a block */
    int64_t found;   /* where the last search found the text; -1: nowhere yet           */
    char *parent;    /* the directory of the last file, and a descriptor of it; or NULL */
    int parent_fd;
};

struct wb_text_search *wb_text_search_new(const char *text)
{
    struct wb_text_search *search = g_new0(struct wb_text_search, 1);

    search->text = text;
    search->length = strlen(text);
    search->buffer = g_malloc(search->length + BLOCK);
    search->found = search->parent_fd = -1;
    return search;
}

void wb_text_search_begin(struct wb_text_search *search)
{
    wb_fd_closep(&search->parent_fd);
    search->parent_fd = search->found = -1;
    g_clear_pointer(&search->parent, g_free);
}

struct wb_text_search *wb_text_search_free(struct wb_text_search *search)
{
    if (search) {
        wb_text_search_begin(search);
        g_free(search->buffer);
        g_free(search);
    }
    return NULL;
}

/* Whether the text is at `found`. An error is left to the search of the whole file. */
static bool is_where_it_was(struct wb_text_search *search, int fd, int64_t size)
{
    /* A small file takes one read anyway. */
    if (search->found < 0 || size <= BLOCK || search->found > size - (int64_t)search->length)
        return false;
    return wb_fd_read(fd, search->buffer, search->length, search->found) == (ssize_t)search->length &&
           memcmp(search->buffer, search->text, search->length) == 0;
}

/* Reads from the beginning up to the text. The text has no NUL, so it is not in a hole, and does not reach into one. */
static int search_all(struct wb_text_search *search, int fd, int64_t size)
{
    size_t kept = 0; /* bytes in the buffer that come just before `at` */
    bool holes = size > BLOCK; /* looking for them is slower than reading as much */
    struct wb_data_walk walk;
    int64_t at = 0;

    if (holes)
        wb_data_walk_begin(&walk, fd, size);
    while (at < size) {
        int64_t data = holes ? wb_data_walk_next(&walk, at) : at;
        const uint8_t *place;
        ssize_t n;

        if (wb_cli_interrupted())
            return -EINTR;
        if (data > at)
            kept = 0;
        at = data;
        n = wb_fd_read(fd, search->buffer + kept, (size_t)MIN(BLOCK, size - at), at);
        if (n <= 0)
            return (int)n;
        wb_progress_add(0, (uint64_t)n);
        place = memmem(search->buffer, kept + (size_t)n, search->text, search->length);
        if (place) {
            search->found = at - (int64_t)kept + (place - search->buffer);
            return 1;
        }
        at += n;
        kept += (size_t)n;
        if (kept >= search->length) {
            memmove(search->buffer, search->buffer + kept - (search->length - 1), search->length - 1);
            kept = search->length - 1;
        }
    }
    return 0;
}

/* The directory of the file as a descriptor, which stays the search's, or -errno; and its name in it. */
static int parent_of(struct wb_text_search *search, int root_fd, const char *path, const char **name)
{
    g_autofree char *parent = wb_path_parent(path, name);

    if (search->parent && strcmp(search->parent, parent) == 0)
        return search->parent_fd;
    wb_fd_closep(&search->parent_fd);
    g_clear_pointer(&search->parent, g_free);
    search->parent_fd = wb_fd_open_parent(root_fd, path, name);
    if (search->parent_fd >= 0)
        search->parent = g_steal_pointer(&parent);
    return search->parent_fd;
}

int wb_text_search_file(struct wb_text_search *search, int root_fd, const char *path, uint64_t *ret_size)
{
    const char *name;
    int dir = parent_of(search, root_fd, path, &name);
    _cleanup_fd_ int held = -1;
    _cleanup_fd_ int fd = -1;
    struct stat st;

    if (wb_cli_interrupted())
        return -EINTR;
    if (dir < 0)
        return dir == -ENOTDIR || dir == -ELOOP ? -ENOENT : dir;
    /* To look up a name of the past takes longer than to read it, so this is done once. */
    held = wb_hold(dir, name, NULL);
    if (held < 0)
        return held;
    if (fstat(held, &st) < 0)
        return -errno;
    /* Opening a fifo or a device has effects. */
    if (!S_ISREG(st.st_mode))
        return -ENOENT;
    *ret_size = (uint64_t)st.st_size;
    fd = wb_held_open(held, O_RDONLY);
    if (fd < 0)
        return fd;
    return is_where_it_was(search, fd, st.st_size) ? 1 : search_all(search, fd, st.st_size);
}
