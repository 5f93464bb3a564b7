/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * So many files that the memory a daemon keeps for each of them shows: made, looked at again and removed, a thousand
 * to a directory.
 */
#include "work.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_A_DIRECTORY 1000

static const char *name_of(unsigned i)
{
    static char name[64];

    snprintf(name, sizeof(name), "s%04u/%u", i / IN_A_DIRECTORY, i);
    return name;
}

static void run_make(struct work_phase *phase)
{
    char directory[32];

    for (unsigned i = 0; i < work_files; i++) {
        int fd;

        snprintf(directory, sizeof(directory), "s%04u", i / IN_A_DIRECTORY);
        if (i % IN_A_DIRECTORY == 0 && mkdir(directory, 0755) < 0)
            work_fail("mkdir", directory);
        fd = open(name_of(i), O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0)
            work_fail("open", name_of(i));
        close(fd);
    }
    phase->count = work_files;
}

static void run_look(struct work_phase *phase)
{
    struct stat st;

    for (unsigned i = 0; i < work_files; i++)
        if (stat(name_of(i), &st) < 0)
            work_fail("stat", name_of(i));
    phase->count = work_files;
}

static void run_remove(struct work_phase *phase)
{
    for (unsigned i = 0; i < work_files; i++)
        if (unlink(name_of(i)) < 0)
            work_fail("unlink", name_of(i));
    phase->count = work_files;
}

struct work_phase work_scale_up[] = {
    {"make files", run_make, 0, 0},
    {"stat files", run_look, 0, 0},
    {NULL, NULL, 0, 0},
};

struct work_phase work_scale_down[] = {
    {"remove files", run_remove, 0, 0},
    {NULL, NULL, 0, 0},
};
