/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Bytes that nobody needs when this process has ended: in memory while they are few, and then in a file without a name.
 * What is made of it takes the same memory, however large a tree is.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WB_SCRATCH_MEMORY (1u << 16)

struct wb_scratch {
    int dir_fd;      /* borrowed: where the file is made */
    bool in_file;
    int fd;          /* of the file                          */
    uint8_t *memory; /* else: WB_SCRATCH_MEMORY bytes at most */
    uint64_t size;
};

/* `size` zeros, for which there is room from now on. 0 or -errno. One that is all zeros may be deinited. */
int wb_scratch_init(struct wb_scratch *scratch, int dir_fd, uint64_t size);
void wb_scratch_deinit(struct wb_scratch *scratch);

/* Within the size. 0 or -errno. */
int wb_scratch_read(const struct wb_scratch *scratch, void *data, size_t length, uint64_t at);
int wb_scratch_write(struct wb_scratch *scratch, const void *data, size_t length, uint64_t at);

/* At the end: *ret_at is where. 0 or -errno. */
int wb_scratch_append(struct wb_scratch *scratch, const void *data, size_t length, uint64_t *ret_at);

/* A file without a name: a descriptor or -errno. */
int wb_scratch_open(int dir_fd);
