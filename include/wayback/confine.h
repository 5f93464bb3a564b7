/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Confines a process that reads, or executes a program on, files that other users may have made. */
#ifndef WAYBACK_CONFINE_H
#define WAYBACK_CONFINE_H

#include <stddef.h>
#include "wayback/error.h"

/*
 * Call this in a process that is about to execute the program `name`, which is looked up in PATH, on the open files
 * `fds` (-1: none). As far as the kernel supports it, the process can then read only these files (as /proc/self/fd/N)
 * and the files that programs consist of, and write only to descriptors that are open; it keeps only the capability to
 * read, and can make only the system calls for files and memory, and execve(2). Returns 0, or a negative errno if part
 * of this was impossible.
 */
int wb_confine_program(const char *name, const int *fds, size_t count);

enum wb_confine_flags {
    WB_CONFINE_CHANGES = 1 << 0, /* the process also changes the tree and the store            */
    WB_CONFINE_ATTRS = 1 << 1,   /* it reads extended attributes that are for root (trusted.*) */
};

/*
 * Confines this process permanently to the directory *tree, to its store, *store (NULL: tree/.wayback), and to the
 * directories to which signposts lead from there; call it before the store is read, in a process with one thread. As
 * far as the kernel supports it, the process can then open only files in these directories and in /proc, change nothing
 * (WB_CONFINE_CHANGES: nothing else), keeps only the capabilities for that, and can make only the system calls for
 * files and memory. If *tree or *store is a path of another process (/proc/PID/fd/N), it is replaced by one that can
 * still be opened; g_free() frees it. Returns 0, also if there is no such tree; or a negative errno with a line in
 * `why`.
 */
int wb_confine_store(char **tree, char **store, unsigned flags, struct wb_error *why);

/* The same for a process that only reads these files, or files in these directories. */
int wb_confine_files(const char *const *paths, size_t count, struct wb_error *why);

#endif
