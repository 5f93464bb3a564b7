/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Before content of others is read by a program that could have faults. */
#ifndef WAYBACK_CONFINE_H
#define WAYBACK_CONFINE_H

#include <stddef.h>

/*
 * For a process that is about to execute a program of the system, found in PATH by its name, on the files in `fds` (-1:
 * none): as far as the kernel lets it, the process can then read those, by /proc/self/fd/N, and what programs are made
 * of, and write to what is open; it keeps no capability but that to read, and makes no system calls but those for
 * files, memory and execve(2). 0 or -errno: less than that was possible.
 */
int wb_confine_program(const char *name, const int *fds, size_t count);

#endif
