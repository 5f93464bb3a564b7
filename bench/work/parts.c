/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What rewriting a large file costs where nothing but the necessary is done, without any daemon: the new bytes
 * written in place; the old ones read first; kept at the end of another file; and checksummed. What
 * a history that keeps every byte once can cost at least, where blocks cannot be shared.
 */
#include "work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#define HEAD 200 /* about what a record has around the bytes it keeps */
#define MOST (1 << 20)

enum { READ = 1, KEEP = 2, CHECK = 4 };

static void rewrite(struct work_phase *phase, size_t size, unsigned steps)
{
    char *fresh = malloc(MOST), *old = malloc(MOST), head[HEAD] = {0};
    int fd = open("parts", O_RDWR), log = open("parts.log", O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t tail = 0;

    if (!fresh || !old || fd < 0 || log < 0)
        work_fail("open", "parts");
    for (size_t i = 0; i < MOST; i += sizeof(uint64_t)) {
        uint64_t word = work_random(UINT64_MAX);

        memcpy(fresh + i, &word, sizeof(word));
    }
    for (uint64_t at = 0; at < work_large; at += size) {
        uint64_t check;

        if (steps & READ && pread(fd, old, size, (off_t)at) != (ssize_t)size)
            work_fail("pread", "parts");
        if (steps & CHECK) {
            check = XXH3_64bits(old, size);
            memcpy(head, &check, sizeof(check));
        }
        if (steps & KEEP) {
            struct iovec pieces[] = {{head, HEAD - 8}, {old, size}, {head, 8}};

            if (pwritev(log, pieces, 3, tail) != (ssize_t)(size + HEAD))
                work_fail("pwritev", "parts.log");
            tail += (off_t)(size + HEAD);
        }
        if (pwrite(fd, fresh, size, (off_t)at) != (ssize_t)size)
            work_fail("pwrite", "parts");
    }
    close(fd);
    close(log);
    free(fresh);
    free(old);
    phase->count = work_large / size;
    phase->bytes = size;
}

static void run_new(struct work_phase *phase)
{
    char *data = calloc(1, MOST);
    int fd = open("parts", O_WRONLY | O_CREAT | O_EXCL, 0600);

    if (!data || fd < 0)
        work_fail("open", "parts");
    for (uint64_t at = 0; at < work_large; at += MOST)
        if (pwrite(fd, data, MOST, (off_t)at) != MOST)
            work_fail("pwrite", "parts");
    close(fd);
    free(data);
    phase->count = work_large / MOST;
    phase->bytes = MOST;
}

static void run_bare_1m(struct work_phase *phase) { rewrite(phase, MOST, 0); }
static void run_read_1m(struct work_phase *phase) { rewrite(phase, MOST, READ); }
static void run_keep_1m(struct work_phase *phase) { rewrite(phase, MOST, READ | KEEP); }
static void run_all_1m(struct work_phase *phase) { rewrite(phase, MOST, READ | KEEP | CHECK); }
static void run_bare_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, 0); }
static void run_read_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, READ); }
static void run_keep_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, READ | KEEP); }
static void run_all_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, READ | KEEP | CHECK); }

struct work_phase work_parts[] = {
    {"a new file", run_new, 0, 0},
    {"in place 1M", run_bare_1m, 0, 0},
    {"old read, in place 1M", run_read_1m, 0, 0},
    {"old read and kept, in place 1M", run_keep_1m, 0, 0},
    {"old read, summed and kept, in place 1M", run_all_1m, 0, 0},
    {"in place 128K", run_bare_128k, 0, 0},
    {"old read, in place 128K", run_read_128k, 0, 0},
    {"old read and kept, in place 128K", run_keep_128k, 0, 0},
    {"old read, summed and kept, in place 128K", run_all_128k, 0, 0},
    {NULL, NULL, 0, 0},
};
