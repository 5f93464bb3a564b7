/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Runs a piece of work again and again, and ends it at each of its system calls that change something.
 *
 * disk.c defines these functions of libc in the program of the test, so that the sources and their libraries call them:
 * no source has to know. Only calls below one directory count. Stores into a mapping of a file are no calls.
 *
 *     disk_each_stop(&(struct disk_trial){.name = "rename", .prepare = prepare, .act = act, .check = check});
 *
 * docs/contributing.md has the recipe.
 */

#include <stdbool.h>

enum disk_way {
    DISK_STOP,  /* the process is gone before the call, as after SIGKILL: all that it wrote is there */
    DISK_TORN,  /* some pages of a write arrive, then the process is gone; only calls that write to several count */
    DISK_FAIL,  /* the call fails; those after it do not */
    DISK_FULL,  /* the call fails with ENOSPC, and so does every later one that needs room */
    DISK_BROKEN, /* the call and all that follow fail with EIO */
    /*
     * The power fails before the call, and some of the calls before it are lost, as "power" in disk.c has it. All that
     * may be; all bytes, while names and attributes are there; a part of both, another one for each call.
     */
    DISK_LOSE_ALL,
    DISK_LOSE_BYTES,
    DISK_LOSE_SOME,
    DISK_WAYS
};

#define DISK_KILLS (1u << DISK_STOP | 1u << DISK_TORN)
#define DISK_FAILURES (1u << DISK_FAIL | 1u << DISK_FULL | 1u << DISK_BROKEN)
#define DISK_CUTS (1u << DISK_LOSE_ALL | 1u << DISK_LOSE_BYTES | 1u << DISK_LOSE_SOME)

/* How a run ended. */
struct disk_end {
    enum disk_way way;
    unsigned call;  /* the number of the call, from 0 */
    bool ended;     /* there was no such call: the work was done */
    int result;     /* of `act`, if it returned: 0 or -errno */
    const char *at; /* all of this for a message */
};

static inline bool disk_is_cut(const struct disk_end *end)
{
    return !end->ended && end->way >= DISK_LOSE_ALL;
}

struct disk_trial {
    const char *name;
    unsigned ways; /* 1u << enum disk_way; 0: DISK_KILLS */
    int error;     /* of DISK_FAIL; 0: EIO */
    /* DISK_STOP, DISK_LOSE_ALL and DISK_LOSE_BYTES; other ways: at every so many calls, 0: at each. */
    unsigned dense_stride, stride;
    /*
     * Makes a new place, and returns the path of the directory below which calls count; it is called anew for each run,
     * since a copy of a tree has other inodes. It leaves nothing open there that `act` uses.
     */
    const char *(*prepare)(void);
    void (*begin)(void); /* in the process that is going to be ended, before calls count; may be NULL */
    int (*act)(void);    /* in the same process: the work; 0 or -errno */
    /* In a process that did none of the work: is everything as it may be after such an end? */
    void (*check)(const struct disk_end *end);
    void (*clean)(void); /* removes the place */
    const void *data;    /* of the trial; see disk_data */
};

/*
 * The work as a whole (`call` is UINT_MAX then), and ended at each of its calls, in each way; WAYBACK_QUICK=1: at every
 * twelfth. Returns how often it was ended.
 */
unsigned disk_each_stop(const struct disk_trial *trial);

/* `data` of the trial under way. */
const void *disk_data(void);
