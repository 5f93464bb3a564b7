/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many small files: the operations of an unpacking, an editor or a build on each. */
#include "work.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SMALL 4096

static char block[SMALL];

static const char *name_of(unsigned i, const char *suffix)
{
    static char name[2][64];
    static int which;

    which = !which;
    snprintf(name[which], sizeof(name[which]), "d%03u/f%05u%s", i % work_dirs, i, suffix);
    return name[which];
}

static void fill(unsigned seed)
{
    for (unsigned i = 0; i < SMALL; i++)
        block[i] = (char)('a' + (i * 7 + seed * 13 + i / 64) % 26);
}

static int open_or_fail(const char *name, int flags)
{
    int fd = open(name, flags, 0644);

    if (fd < 0)
        work_fail("open", name);
    return fd;
}

static void put(const char *name, int flags, const char *data, size_t length)
{
    int fd = open_or_fail(name, flags);

    if (write(fd, data, length) != (ssize_t)length || close(fd) < 0)
        work_fail("write", name);
}

static void run_mkdir(struct work_phase *phase)
{
    char name[32];

    for (unsigned i = 0; i < work_dirs; i++) {
        snprintf(name, sizeof(name), "d%03u", i);
        if (mkdir(name, 0755) < 0)
            work_fail("mkdir", name);
    }
    phase->count = work_dirs;
}

/* One operation on each file. */
static void each(struct work_phase *phase, void (*one)(unsigned i), uint64_t bytes)
{
    for (unsigned i = 0; i < work_files; i++)
        one(i);
    phase->count = work_files;
    phase->bytes = bytes;
}

static void one_create(unsigned i)
{
    put(name_of(i, ""), O_WRONLY | O_CREAT | O_EXCL, block, SMALL);
}

static void one_stat(unsigned i)
{
    struct stat st;

    if (stat(name_of(i, ""), &st) < 0)
        work_fail("stat", name_of(i, ""));
}

static void one_read(unsigned i)
{
    int fd = open_or_fail(name_of(i, ""), O_RDONLY);

    if (read(fd, block, SMALL) != SMALL || close(fd) < 0)
        work_fail("read", name_of(i, ""));
}

static void one_overwrite(unsigned i)
{
    put(name_of(i, ""), O_WRONLY, block, SMALL);
}

static void one_append(unsigned i)
{
    put(name_of(i, ""), O_WRONLY | O_APPEND, block, 512);
}

static void one_rewrite(unsigned i)
{
    put(name_of(i, ""), O_WRONLY | O_TRUNC, block, SMALL);
}

static void one_chmod(unsigned i)
{
    if (chmod(name_of(i, ""), i % 2 ? 0600 : 0640) < 0)
        work_fail("chmod", name_of(i, ""));
}

static void one_save(unsigned i)
{
    put(name_of(i, ".tmp"), O_WRONLY | O_CREAT | O_EXCL, block, SMALL);
    if (rename(name_of(i, ".tmp"), name_of(i, "")) < 0)
        work_fail("rename", name_of(i, ""));
}

static void one_rename(unsigned i)
{
    if (rename(name_of(i, ""), name_of(i, ".new")) < 0)
        work_fail("rename", name_of(i, ""));
}

static void one_unlink(unsigned i)
{
    if (unlink(name_of(i, ".new")) < 0)
        work_fail("unlink", name_of(i, ".new"));
}

static void run_create(struct work_phase *phase) { fill(1); each(phase, one_create, SMALL); }
static void run_stat(struct work_phase *phase) { each(phase, one_stat, 0); }
static void run_read(struct work_phase *phase) { each(phase, one_read, SMALL); }
static void run_overwrite(struct work_phase *phase) { fill(2); each(phase, one_overwrite, SMALL); }
static void run_append(struct work_phase *phase) { fill(3); each(phase, one_append, 512); }
static void run_rewrite(struct work_phase *phase) { fill(4); each(phase, one_rewrite, SMALL); }
static void run_chmod(struct work_phase *phase) { each(phase, one_chmod, 0); }
static void run_save(struct work_phase *phase) { fill(5); each(phase, one_save, SMALL); }
static void run_rename(struct work_phase *phase) { each(phase, one_rename, 0); }
static void run_unlink(struct work_phase *phase) { each(phase, one_unlink, 0); }

struct work_phase work_small[] = {
    {"mkdir", run_mkdir, 0, 0},
    {"create + write 4K", run_create, 0, 0},
    {"stat", run_stat, 0, 0},
    {"open + read 4K", run_read, 0, 0},
    {"overwrite 4K", run_overwrite, 0, 0},
    {"append 512", run_append, 0, 0},
    {"O_TRUNC + write 4K", run_rewrite, 0, 0},
    {"chmod", run_chmod, 0, 0},
    {"save by tmp + rename", run_save, 0, 0},
    {"rename", run_rename, 0, 0},
    {"unlink", run_unlink, 0, 0},
    {NULL, NULL, 0, 0},
};
