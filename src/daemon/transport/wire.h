/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of the kernel's protocol that the transport reads and writes itself. Headers of the system, linux/fuse.h
 * among them, may be older than FUSE over io_uring (Linux 6.14), and libfuse does not install its own. */

#include <stdint.h>

enum { WB_WIRE_INIT = 26 };                                /* FUSE_INIT, an opcode */
enum { WB_WIRE_REGISTER = 1, WB_WIRE_COMMIT_AND_FETCH = 2 }; /* enum fuse_uring_cmd */

#define WB_WIRE_INIT_EXT (UINT32_C(1) << 30)         /* flags: flags2 has a meaning */
#define WB_WIRE_OVER_IO_URING (UINT32_C(1) << (41 - 32)) /* flags2 */
#define WB_WIRE_PAYLOAD_MIN 8192                     /* FUSE_MIN_READ_BUFFER */

struct wb_wire_in {
    uint32_t len, opcode;
    uint64_t unique, nodeid;
    uint32_t uid, gid, pid;
    uint16_t extensions, padding;
};

struct wb_wire_out {
    uint32_t len;
    int32_t error;
    uint64_t unique;
};

struct wb_wire_init_in {
    uint32_t major, minor, max_readahead, flags, flags2, unused[11];
};

struct wb_wire_init_out {
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion_threshold;
    uint32_t max_write, time_gran;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, max_stack_depth;
    uint16_t request_timeout, unused[11];
};

/* The first of the two buffers of an entry; the second one has what follows the header of the operation. */
struct wb_wire_ring_header {
    union {
        struct wb_wire_in in;
        struct wb_wire_out out;
        char bytes[128];
    };
    char operation[128];
    uint64_t flags, commit_id;
    uint32_t payload_size, padding;
    uint64_t reserved;
};

/* In the command area of a submission. */
struct wb_wire_command {
    uint64_t flags, commit_id;
    uint16_t queue;
    uint8_t padding[6];
};

_Static_assert(sizeof(struct wb_wire_in) == 40 && sizeof(struct wb_wire_out) == 16, "as in linux/fuse.h");
_Static_assert(sizeof(struct wb_wire_init_in) == 64 && sizeof(struct wb_wire_init_out) == 64, "as in linux/fuse.h");
_Static_assert(sizeof(struct wb_wire_ring_header) == 288 && sizeof(struct wb_wire_command) == 24, "as in linux/fuse.h");
