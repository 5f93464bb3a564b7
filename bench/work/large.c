/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One large file: streams and random pieces of it. */
#include "work.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)

static char *buffer(unsigned seed)
{
    static char data[MIB];

    for (unsigned i = 0; i < MIB; i += 8) {
        uint64_t word = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) * (seed + 1);

        memcpy(data + i, &word, 8);
    }
    return data;
}

static int open_or_fail(const char *name, int flags)
{
    int fd = open(name, flags, 0644);

    if (fd < 0)
        work_fail("open", name);
    return fd;
}

static void stream_out(struct work_phase *phase, const char *name, int flags, size_t size, uint64_t total,
                       unsigned seed)
{
    char *data = buffer(seed);
    int fd = open_or_fail(name, flags);

    for (uint64_t at = 0; at < total; at += size)
        if (write(fd, data, size) != (ssize_t)size)
            work_fail("write", name);
    if (close(fd) < 0)
        work_fail("close", name);
    phase->count = total / size;
    phase->bytes = size;
}

static void stream_in(struct work_phase *phase, const char *name, size_t size)
{
    char *data = buffer(0);
    int fd = open_or_fail(name, O_RDONLY);

    for (uint64_t at = 0; at < work_large; at += size)
        if (read(fd, data, size) != (ssize_t)size)
            work_fail("read", name);
    close(fd);
    phase->count = work_large / size;
    phase->bytes = size;
}

static void random_blocks(struct work_phase *phase, const char *name, int writing)
{
    char *data = buffer(9);
    int fd = open_or_fail(name, writing ? O_WRONLY : O_RDONLY);

    phase->count = work_large >> 14; /* a quarter as many as there are blocks */
    phase->bytes = 4096;
    for (uint64_t i = 0; i < phase->count; i++) {
        off_t at = (off_t)(work_random(work_large >> 12) << 12);
        ssize_t n;

        data[i % 4096] ^= (char)(1 + i % 100);
        n = writing ? pwrite(fd, data, 4096, at) : pread(fd, data, 4096, at);
        if (n != 4096)
            work_fail(writing ? "pwrite" : "pread", name);
    }
    close(fd);
}

static void run_write_1m(struct work_phase *phase)
{
    stream_out(phase, "large", O_WRONLY | O_CREAT | O_EXCL, MIB, work_large, 1);
}

static void run_write_128k(struct work_phase *phase)
{
    stream_out(phase, "large2", O_WRONLY | O_CREAT | O_EXCL, MIB / 8, work_large, 2);
}

static void run_rewrite_1m(struct work_phase *phase)
{
    stream_out(phase, "large", O_WRONLY, MIB, work_large, 3);
}

static void run_rewrite_128k(struct work_phase *phase)
{
    stream_out(phase, "large2", O_WRONLY, MIB / 8, work_large, 4);
}

static void run_write_4k(struct work_phase *phase)
{
    stream_out(phase, "pieces", O_WRONLY | O_CREAT | O_EXCL, 4096, work_large / 8, 5);
}

static void run_read_1m(struct work_phase *phase) { stream_in(phase, "large", MIB); }
static void run_read_128k(struct work_phase *phase) { stream_in(phase, "large2", MIB / 8); }
static void run_random_write(struct work_phase *phase) { random_blocks(phase, "large", 1); }
static void run_random_read(struct work_phase *phase) { random_blocks(phase, "large", 0); }

static void run_truncate(struct work_phase *phase)
{
    if (truncate("large", 0) < 0)
        work_fail("truncate", "large");
    phase->count = 1;
}

static void run_unlink(struct work_phase *phase)
{
    if (unlink("large2") < 0)
        work_fail("unlink", "large2");
    phase->count = 1;
}

struct work_phase work_large_files[] = {
    {"write 1M", run_write_1m, 0, 0},
    {"write 128K", run_write_128k, 0, 0},
    {"read 1M", run_read_1m, 0, 0},
    {"read 128K", run_read_128k, 0, 0},
    {"rewrite 1M", run_rewrite_1m, 0, 0},
    {"rewrite 128K", run_rewrite_128k, 0, 0},
    {"4K to a new file", run_write_4k, 0, 0},
    {"random write 4K", run_random_write, 0, 0},
    {"random read 4K", run_random_read, 0, 0},
    {"truncate to 0", run_truncate, 0, 0},
    {"unlink", run_unlink, 0, 0},
    {NULL, NULL, 0, 0},
};
