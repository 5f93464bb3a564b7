/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Confines a process before it executes a program on files that other users may have made. */
#ifndef WAYBACK_CONFINE_H
#define WAYBACK_CONFINE_H

#include <stddef.h>

/*
 * Call this in a process that is about to execute the program `name`, which is looked up in PATH, on the open files
 * `fds` (-1: none). As far as the kernel supports it, the process can then read only these files (as /proc/self/fd/N)
 * and the files that programs consist of, and write only to descriptors that are open; it keeps only the capability to
 * read, and can make only the system calls for files and memory, and execve(2). Returns 0, or a negative errno if part
 * of this was impossible.
 */
int wb_confine_program(const char *name, const int *fds, size_t count);

#endif
