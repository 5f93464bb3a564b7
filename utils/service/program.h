/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Runs other programs: tools of Wayback, systemctl, an editor. */

#include <stdbool.h>

/* The tool `name`, beside this program or in PATH; g_free. NULL: not found. */
char *wb_program_find(const char *name);

/*
 * Runs a program and waits for it. Its exit status, or -1 if it cannot be started or dies of a signal. `arguments` end
 * with NULL; the first one is searched in PATH. Output and errors go to *ret_output (g_free), or to ours if that is
 * NULL. Standard input is `input_fd`, -1: /dev/null.
 */
int wb_program_run(const char *const *arguments, int input_fd, char **ret_output);

/* The last line of the output of a program, without "wayback: " before it; g_free. */
char *wb_program_last_line(const char *output);

/* Has an editor ($VISUAL, $EDITOR, or an installed one) change a file. 0, or WB_EXIT_FAILED after an error line. */
int wb_program_edit(const char *path);
