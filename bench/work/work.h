/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The work that is measured: named phases, each timed by itself with the monotonic clock. One
 * phase works on the files that the phases before it left in the directory. Any failure ends the program
 * with a line on stderr: a benchmark that continues after an error measures nothing.
 */

#include <stdint.h>
#include <stddef.h>

/* One phase of a list: `count` operations of `bytes` each (0: none) were done. */
struct work_phase {
    const char *name;
    void (*run)(struct work_phase *phase);
    uint64_t count;
    uint64_t bytes;
};

void work_fail(const char *what, const char *path) __attribute__((noreturn));

/* Runs the phases of a list that ends with a NULL name; prints one JSON object a line. */
void work_run(struct work_phase *phases);

/* Options of all lists (main.c). */
extern unsigned work_files, work_dirs;
extern uint64_t work_large; /* bytes of the large file */

/* Deterministic numbers below `limit`. */
uint64_t work_random(uint64_t limit);

extern struct work_phase work_small[], work_large_files[], work_parts[], work_clones[], work_scale_up[],
    work_scale_down[];

/* A mix of reads and updates: `percent` of updates, `clients` processes. */
void work_mix(unsigned percent, unsigned clients, unsigned operations);
