/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/wire/scratch.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

#define PASSING_NAME "scratch" /* for an instant, where a file cannot be made without one; `receiving` is cleared */

int wb_scratch_open(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
        return fd < 0 ? -errno : fd;
    fd = wb_create_own(dir_fd, PASSING_NAME, O_RDWR);
    if (fd >= 0)
        unlinkat(dir_fd, PASSING_NAME, 0);
    return fd;
}

/* Room that is there from the beginning cannot be lacking in the middle of a change. */
static int open_file(struct wb_scratch *scratch, uint64_t size)
{
    _cleanup_close_ int fd = wb_scratch_open(scratch->dir_fd);
    int r = fd < 0 ? fd : 0;

    if (r == 0 && fallocate(fd, 0, 0, (off_t)size) < 0)
        r = errno == EOPNOTSUPP && ftruncate(fd, (off_t)size) == 0 ? 0 : -errno;
    if (r < 0)
        return r;
    scratch->fd = wb_steal_fd(&fd);
    scratch->in_file = true;
    return 0;
}

int wb_scratch_init(struct wb_scratch *scratch, int dir_fd, uint64_t size)
{
    *scratch = (struct wb_scratch){.dir_fd = dir_fd, .size = size};
    if (size > WB_SCRATCH_MEMORY)
        return open_file(scratch, size);
    scratch->memory = g_try_malloc0(MAX(size, 1));
    return scratch->memory ? 0 : -ENOMEM;
}

void wb_scratch_deinit(struct wb_scratch *scratch)
{
    if (scratch->in_file)
        close(scratch->fd);
    g_free(scratch->memory);
    *scratch = (struct wb_scratch){0};
}

int wb_scratch_read(const struct wb_scratch *scratch, void *data, size_t length, uint64_t at)
{
    if (scratch->in_file)
        return wb_pread_exact(scratch->fd, data, length, at);
    memcpy(data, scratch->memory + at, length);
    return 0;
}

int wb_scratch_write(struct wb_scratch *scratch, const void *data, size_t length, uint64_t at)
{
    if (scratch->in_file)
        return wb_pwrite_full(scratch->fd, data, length, at);
    memcpy(scratch->memory + at, data, length);
    return 0;
}

static int spill(struct wb_scratch *scratch)
{
    int r = open_file(scratch, scratch->size);

    if (r == 0)
        r = wb_pwrite_full(scratch->fd, scratch->memory, scratch->size, 0);
    if (scratch->in_file)
        g_clear_pointer(&scratch->memory, g_free);
    return r;
}

int wb_scratch_append(struct wb_scratch *scratch, const void *data, size_t length, uint64_t *ret_at)
{
    int r = 0;

    if (!scratch->in_file && scratch->size + length > WB_SCRATCH_MEMORY) {
        r = spill(scratch);
    } else if (!scratch->in_file) {
        uint8_t *larger = g_try_realloc(scratch->memory, scratch->size + length);

        if (!larger)
            return -ENOMEM;
        scratch->memory = larger;
    }
    if (r == 0)
        r = wb_scratch_write(scratch, data, length, scratch->size);
    if (r < 0)
        return r;
    *ret_at = scratch->size;
    scratch->size += length;
    return 0;
}
