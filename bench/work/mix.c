/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads and updates of 4 KiB, mixed as user-level CDP's table has them (12 to 96 % of updates), by one or
 * several processes, each with files of its own.
 */
#include "work.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES 8
#define FILE_BLOCKS 2048

static void prepare(unsigned client)
{
    static char data[4096];
    char name[32];

    for (int i = 0; i < FILES; i++) {
        int fd;

        snprintf(name, sizeof(name), "m%u-%d", client, i);
        fd = open(name, O_WRONLY | O_CREAT, 0644);
        if (fd < 0)
            work_fail("open", name);
        for (int block = 0; block < FILE_BLOCKS; block++) {
            data[0] = (char)block;
            if (write(fd, data, sizeof(data)) != sizeof(data))
                work_fail("write", name);
        }
        close(fd);
    }
}

static void client_works(unsigned client, unsigned percent, unsigned operations)
{
    static char data[4096];
    char name[32];
    int fds[FILES];

    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "m%u-%d", client, i);
        fds[i] = open(name, O_RDWR);
        if (fds[i] < 0)
            work_fail("open", name);
    }
    for (unsigned i = 0; i < client * 17; i++)
        work_random(2);
    for (unsigned i = 0; i < operations; i++) {
        int fd = fds[work_random(FILES)];
        off_t at = (off_t)(work_random(FILE_BLOCKS) * sizeof(data));

        data[i % sizeof(data)]++;
        if ((work_random(100) < percent ? pwrite(fd, data, sizeof(data), at)
                                        : pread(fd, data, sizeof(data), at)) != sizeof(data))
            work_fail("mix", name);
    }
}

void work_mix(unsigned percent, unsigned clients, unsigned operations)
{
    struct timespec begin, end;
    int status, failed = 0;

    for (unsigned i = 0; i < clients; i++)
        prepare(i);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (unsigned i = 0; i < clients; i++) {
        pid_t pid = fork();

        if (pid < 0)
            work_fail("fork", "");
        if (pid == 0) {
            client_works(i, percent, operations / clients);
            _exit(0);
        }
    }
    while (wait(&status) > 0)
        failed |= status;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (failed)
        exit(1);
    printf("{\"phase\": \"mix %u%% updates, %u clients\", \"seconds\": %.6f, \"count\": %u, \"bytes\": 4096}\n", percent,
           clients, (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9, operations);
}
