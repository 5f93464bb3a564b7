/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A small tree with a store whose logs are made from an input. */

#include "fuzz.h"
#include "store/store.h"
#include <glib.h>
#include <stdbool.h>

#define FUZZ_WHENS 6

struct fuzz_tree {
    char *path;
    int fd;
    int store_fd;
};
extern struct fuzz_tree fuzz_tree;

/* The tree as it was at first, with an empty store. */
void fuzz_tree_reset(void);

/* Writes the logs that the input describes, and times worth looking at to `whens`; returns their number. */
unsigned fuzz_tree_fill(struct fuzz_input *in, int64_t whens[FUZZ_WHENS]);

/* Records, one after the other, each sound by itself. */
void fuzz_tree_log(struct fuzz_input *in, GByteArray *log);

/* Prints all of its logs to nowhere. */
void fuzz_tree_dump(void);
