/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * LD_PRELOAD: clocks that are so many seconds ahead as the file of SHIFTED_CLOCK says, two i64 that may be changed at
 * any time: that of the time since boot, and that on the wall. The machine's own clocks are everybody's and stay alone,
 * and so does what a program compares with the kernel's times of change (CLOCK_REALTIME_COARSE, timespec_get).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BOOT, WALL, CLOCKS };

static const volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SHIFTED_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, CLOCKS * sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);

    if (at != MAP_FAILED)
        ahead = at;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ret);

    if (r == 0 && ahead && clock == CLOCK_REALTIME)
        ret->tv_sec += ahead[WALL];
    if (r == 0 && ahead && clock == CLOCK_BOOTTIME)
        ret->tv_sec += ahead[BOOT];
    return r;
}

time_t time(time_t *ret)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return 0;
}
