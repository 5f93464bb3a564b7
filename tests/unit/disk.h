/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Runs a piece of work again and again, and ends it at each of its system calls that change something.
 *
 * disk.c defines the functions of libc that make such calls, and is linked into the program of the test. So the tested
 * sources and their libraries call them, and need no change. Only calls below one directory count. A store into a
 * mapping of a file is not a call.
 *
 *     disk_each_stop(&(struct disk_trial){.name = "rename", .prepare = prepare, .act = act, .check = check});
 *
 * docs/contributing.md has the recipe.
 */

#include <check.h>
#include <stdbool.h>

enum disk_way {
    DISK_STOP,  /* the process ends before the call, as by SIGKILL: everything that it wrote is there */
    DISK_TORN,  /* some pages of a write are written, then the process ends; only writes to several pages count */
    DISK_FAIL,  /* the call fails; later ones do not */
    DISK_FULL,  /* the call fails with ENOSPC, and so does every later one that needs room */
    DISK_BROKEN, /* the call and all that follow fail with EIO */
    /*
     * The power fails before the call, and effects of earlier calls are lost, as far as the model at the top of disk.c
     * allows it:
     */
    DISK_LOSE_ALL,   /* all of them */
    DISK_LOSE_BYTES, /* all bytes; names and attributes are there */
    DISK_LOSE_SOME,  /* a part of both, which differs from call to call */
    DISK_LOSE_STORE, /* all bytes below .wayback; those of users' files, names and attributes are there */
    DISK_WAYS
};

#define DISK_KILLS (1u << DISK_STOP | 1u << DISK_TORN)
#define DISK_FAILURES (1u << DISK_FAIL | 1u << DISK_FULL | 1u << DISK_BROKEN)
#define DISK_CUTS (1u << DISK_LOSE_ALL | 1u << DISK_LOSE_BYTES | 1u << DISK_LOSE_SOME)
#define DISK_ALL_CUTS (DISK_CUTS | 1u << DISK_LOSE_STORE)

/* How a run ended. */
struct disk_end {
    enum disk_way way;
    unsigned call;  /* the number of the call, from 0 */
    bool ended;     /* there was no such call: the work was done */
    int result;     /* of `act`, if it returned: 0 or -errno */
    const char *at; /* a description of the run, for messages */
};

static inline bool disk_is_cut(const struct disk_end *end)
{
    return !end->ended && end->way >= DISK_LOSE_ALL;
}

struct disk_trial {
    const char *name;
    unsigned ways; /* 1u << enum disk_way; 0: DISK_KILLS */
    int error;     /* of DISK_FAIL; 0: EIO */
    /* Every n-th call ends the work, 0: each; the first is for DISK_STOP, DISK_LOSE_ALL and DISK_LOSE_BYTES. */
    unsigned dense_stride, stride;
    /*
     * Creates a new directory with the files that the work needs, and returns its path: calls below it count. It is
     * called for each run, since a copy of a tree has other inodes. It leaves no file open there that `act` uses.
     */
    const char *(*prepare)(void);
    void (*begin)(void); /* runs in the process that is going to be ended, before calls count; may be NULL */
    int (*act)(void);    /* the work, in the same process; 0 or -errno */
    /* Checks that the state is one of those allowed after such an end, in a process that did none of the work. */
    void (*check)(const struct disk_end *end);
    void (*clean)(void); /* removes the directory */
    const void *data;    /* for these functions; see disk_data */
};

/*
 * Runs the work once as a whole (`call` is UINT_MAX then), and then ends it at each of its calls in each way; with
 * WAYBACK_QUICK=1 at every twelfth call. Returns how often it was ended.
 */
unsigned disk_each_stop(const struct disk_trial *trial);

/*
 * For `clean`, before it removes a store that `prepare` created: keeps its empty directories of logs for the next trial.
 * A store in a file system that is about to be unmounted must not be given.
 */
void disk_keep_shards(const char *store);

/* Returns `data` of the present trial. */
const void *disk_data(void);

/*
 * A test program of trials: runs `test` with _i from 0 to count - 1, each as the test case `name_of(_i)`. Returns the
 * exit status.
 */
int disk_run(const char *suite, const TTest *test, int count, const char *(*name_of)(int i));
