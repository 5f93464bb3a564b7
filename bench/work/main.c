/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * work LIST [-f FILES] [-d DIRS] [-l MIB] [-u PERCENT] [-c CLIENTS] [-n OPERATIONS] DIRECTORY
 *
 * Does the work of LIST (small, large, mix, parts, clones, scale-up, scale-down) in DIRECTORY and prints how long each phase took.
 */
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

unsigned work_files = 4000, work_dirs = 50;
uint64_t work_large = UINT64_C(1) << 30;

void work_fail(const char *what, const char *path)
{
    fprintf(stderr, "work: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

uint64_t work_random(uint64_t limit)
{
    static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void work_run(struct work_phase *phases)
{
    for (; phases->name; phases++) {
        double begin = now(), end;

        phases->run(phases);
        end = now();
        printf("{\"phase\": \"%s\", \"seconds\": %.6f, \"count\": %" PRIu64 ", \"bytes\": %" PRIu64 "}\n",
               phases->name, end - begin, phases->count, phases->bytes);
        fflush(stdout);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: work small|large|mix|parts|clones|scale-up|scale-down [-f FILES] [-d DIRS] [-l MIB] "
                    "[-u PERCENT] [-c CLIENTS] [-n OPERATIONS] DIRECTORY\n");
    return 2;
}

int main(int argc, char **argv)
{
    unsigned percent = 12, clients = 1, operations = 20000;
    const char *list = argc > 1 ? argv[1] : "";
    int option;

    optind = 2;
    while ((option = getopt(argc, argv, "f:d:l:u:c:n:")) != -1) {
        unsigned value = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;

        switch (option) {
        case 'f': work_files = value; break;
        case 'd': work_dirs = value; break;
        case 'l': work_large = (uint64_t)value << 20; break;
        case 'u': percent = value; break;
        case 'c': clients = value; break;
        case 'n': operations = value; break;
        default: return usage();
        }
    }
    if (argc < 3 || optind != argc - 1 || work_dirs == 0 || work_files == 0 || clients == 0)
        return usage();
    if (chdir(argv[optind]) < 0)
        work_fail("chdir", argv[optind]);
    if (strcmp(list, "small") == 0)
        work_run(work_small);
    else if (strcmp(list, "large") == 0)
        work_run(work_large_files);
    else if (strcmp(list, "parts") == 0)
        work_run(work_parts);
    else if (strcmp(list, "clones") == 0)
        work_run(work_clones);
    else if (strcmp(list, "scale-up") == 0)
        work_run(work_scale_up);
    else if (strcmp(list, "scale-down") == 0)
        work_run(work_scale_down);
    else if (strcmp(list, "mix") == 0)
        work_mix(percent, clients, operations);
    else
        return usage();
    return 0;
}
