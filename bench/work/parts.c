/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The minimal cost of rewriting a large file, without any daemon: the new bytes
 * written in place; the old ones read first; kept at the end of another file; and checksummed. This is
 * the minimal cost of a history that keeps every byte once, if blocks cannot be shared. If they can: cloned into
 * another file before, the whole at once, or in pieces, or each request by itself; and the same once the file's bytes
 * are on the disk, since a clone has to wait for that.
 */
#include "work.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#define HEAD 200 /* about what a record has around the bytes it keeps */
#define MOST (1 << 20)

enum { READ = 1, KEEP = 2, CHECK = 4, WHOLE = 8, AHEAD = 16, EACH = 32, PIECES = 64, FLUSH = 128, THREAD = 256 };
#define PIECE ((uint64_t)(steps >> 16) << 20)

/* A range to be written out by another thread. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int fd, end;
    uint64_t from, length;
} flush = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void *flush_thread(void *data)
{
    (void)data;
    pthread_mutex_lock(&flush.lock);
    while (!flush.end || flush.length) {
        uint64_t from = flush.from, length = flush.length;

        flush.length = 0;
        if (length) {
            pthread_mutex_unlock(&flush.lock);
            if (sync_file_range(flush.fd, (off_t)from, (off_t)length, SYNC_FILE_RANGE_WRITE) < 0)
                work_fail("sync_file_range", "parts");
            pthread_mutex_lock(&flush.lock);
        } else if (!flush.end) {
            pthread_cond_wait(&flush.wake, &flush.lock);
        }
    }
    pthread_mutex_unlock(&flush.lock);
    return NULL;
}

static void flush_ahead(int fd, uint64_t from, uint64_t length, unsigned steps)
{
    if (from + length > work_large)
        length = from < work_large ? work_large - from : 0;
    if (steps & FLUSH && length && sync_file_range(fd, (off_t)from, (off_t)length, SYNC_FILE_RANGE_WRITE) < 0)
        work_fail("sync_file_range", "parts");
    if (!(steps & THREAD))
        return;
    pthread_mutex_lock(&flush.lock);
    flush.fd = fd;
    flush.from = from;
    flush.length = length;
    pthread_cond_signal(&flush.wake);
    pthread_mutex_unlock(&flush.lock);
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Clones from `at` on as much as `steps` says, at the end of the image. Returns the end of the clone. */
static uint64_t clone_from(int fd, int image, uint64_t at, size_t size, unsigned steps)
{
    uint64_t end = steps & WHOLE   ? work_large
                   : steps & EACH  ? at + size
                   : steps & AHEAD ? at + size + at * 8
                                   : at + smaller(size + at * 8, PIECE);
    struct file_clone_range range = {
        .src_fd = fd, .src_offset = at, .src_length = smaller(end, work_large) - at, .dest_offset = at};

    if (ioctl(image, FICLONERANGE, &range) < 0)
        work_fail("FICLONERANGE", "parts.image");
    if (steps & PIECES)
        flush_ahead(fd, end, smaller(end * 8, PIECE), steps);
    return range.src_offset + range.src_length;
}

static void rewrite(struct work_phase *phase, size_t size, unsigned steps)
{
    /* Not by malloc, see wb_alloc_transfer. */
    char *fresh = aligned_alloc(4096, MOST), *old = aligned_alloc(4096, MOST), head[HEAD] = {0};
    int fd = open("parts", O_RDWR), log = open("parts.log", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int image = open("parts.image", O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint64_t cloned = 0;
    pthread_t thread;
    off_t tail = 0;

    if (!fresh || !old || fd < 0 || log < 0 || image < 0)
        work_fail("open", "parts");
    flush.end = 0;
    if (steps & THREAD && pthread_create(&thread, NULL, flush_thread, NULL) != 0)
        work_fail("thread", "parts");
    for (size_t i = 0; i < MOST; i += sizeof(uint64_t)) {
        uint64_t word = work_random(UINT64_MAX);

        memcpy(fresh + i, &word, sizeof(word));
    }
    for (uint64_t at = 0; at < work_large; at += size) {
        uint64_t check;

        if (steps & (WHOLE | AHEAD | EACH | PIECES) && at >= cloned)
            cloned = clone_from(fd, image, at, size, steps);
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
    if (steps & THREAD) {
        pthread_mutex_lock(&flush.lock);
        flush.end = 1;
        pthread_cond_signal(&flush.wake);
        pthread_mutex_unlock(&flush.lock);
        pthread_join(thread, NULL);
    }
    close(fd);
    close(log);
    close(image);
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

static void run_sync(struct work_phase *phase)
{
    int fd = open("parts", O_RDWR);

    if (fd < 0 || fsync(fd) < 0)
        work_fail("fsync", "parts");
    close(fd);
    phase->count = 1;
}

static void run_whole_1m(struct work_phase *phase) { rewrite(phase, MOST, WHOLE); }
static void run_ahead_1m(struct work_phase *phase) { rewrite(phase, MOST, AHEAD); }
static void run_each_1m(struct work_phase *phase) { rewrite(phase, MOST, EACH); }
static void run_pieces_1m(struct work_phase *phase) { rewrite(phase, MOST, PIECES | 16 << 16); }
static void run_flush_1m(struct work_phase *phase) { rewrite(phase, MOST, PIECES | FLUSH | 16 << 16); }
static void run_thread_1m(struct work_phase *phase) { rewrite(phase, MOST, PIECES | THREAD | 16 << 16); }
static void run_thread8_1m(struct work_phase *phase) { rewrite(phase, MOST, PIECES | THREAD | 8 << 16); }
static void run_whole_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, WHOLE); }
static void run_ahead_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, AHEAD); }
static void run_each_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, EACH); }
static void run_thread_128k(struct work_phase *phase) { rewrite(phase, MOST / 8, PIECES | THREAD | 16 << 16); }
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

struct work_phase work_clones[] = {
    {"a new file", run_new, 0, 0},
    {"in place 1M", run_bare_1m, 0, 0},
    {"cloned whole, in place 1M", run_whole_1m, 0, 0},
    {"in place (2) 1M", run_bare_1m, 0, 0},
    {"cloned ahead, in place 1M", run_ahead_1m, 0, 0},
    {"cloned in 16M, in place 1M", run_pieces_1m, 0, 0},
    {"cloned in 16M, next written out, in place 1M", run_flush_1m, 0, 0},
    {"cloned in 16M, next written out by a thread, in place 1M", run_thread_1m, 0, 0},
    {"cloned in 8M, next written out by a thread, in place 1M", run_thread8_1m, 0, 0},
    {"cloned each, in place 1M", run_each_1m, 0, 0},
    {"sync", run_sync, 0, 0},
    {"on the disk, in place 1M", run_bare_1m, 0, 0},
    {"sync", run_sync, 0, 0},
    {"on the disk, cloned whole, in place 1M", run_whole_1m, 0, 0},
    {"in place 128K", run_bare_128k, 0, 0},
    {"cloned whole, in place 128K", run_whole_128k, 0, 0},
    {"cloned ahead, in place 128K", run_ahead_128k, 0, 0},
    {"cloned in 16M, next written out by a thread, in place 128K", run_thread_128k, 0, 0},
    {"cloned each, in place 128K", run_each_128k, 0, 0},
    {NULL, NULL, 0, 0},
};
