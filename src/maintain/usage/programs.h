/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Counts the bytes of history by the programs whose changes made them: a program is the base name of a command, and its
 * user. Memory is bounded: what does not fit is counted as of an unknown program.
 */

#include "store/store.h"
#include <glib.h>

struct wb_usage_program {
    uint32_t uid;
    char *name; /* "": the command line is not known */
};

struct wb_usage_programs {
    struct wb_store *store;
    unsigned programs_most, shares_left; /* the bounds; tests make them small */
    GPtrArray *all;                      /* struct wb_usage_program, by number */
    GHashTable *numbers;                 /* struct wb_usage_program -> number + 1 */
    GHashTable *actors;                  /* index of an actor -> number + 1 */
};

void wb_usage_programs_init(struct wb_usage_programs *programs, struct wb_store *store);
void wb_usage_programs_deinit(struct wb_usage_programs *programs);

/* The number of the program that made a change of `when`; -1: unknown. */
int wb_usage_program_of(struct wb_usage_programs *programs, uint32_t actor, int64_t when);

struct wb_usage_share {
    int program;
    int64_t newest; /* change */
    uint64_t bytes;
};

/* The shares of the programs in one sum; all zero: empty. */
struct wb_usage_shares {
    uint64_t unknown; /* bytes of no known program */
    unsigned count, room;
    struct wb_usage_share *list;
};

void wb_usage_share(struct wb_usage_programs *programs, struct wb_usage_shares *to, int program, int64_t when,
                    uint64_t bytes);
void wb_usage_shares_add(struct wb_usage_programs *programs, struct wb_usage_shares *to,
                         const struct wb_usage_shares *shares);
void wb_usage_shares_clear(struct wb_usage_programs *programs, struct wb_usage_shares *shares);
