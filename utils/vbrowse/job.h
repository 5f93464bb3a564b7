/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Runs another tool of Wayback while the terminal shows that it works; Escape stops it. */

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

struct job {
    const char *label;     /* "comparing": what the user sees meanwhile               */
    const char *tool;      /* "vdiff"                                                 */
    const char *call;      /* "wayback diff": how the history and its errors name it  */
    const char *const *arguments; /* after the name, ending with NULL                 */
    const char *directory; /* where it runs, so that paths can be short               */
    bool errors;           /* standard error is a part of the output                  */
    void (*line)(void *data, const char *line); /* each line as it comes; NULL: they are kept in `output` */
    void *data;            /* for `line`                                              */

    GString *output;       /* the caller frees it                                     */
    pid_t pid;
    bool stopped;          /* by the user                                             */
    bool cut;              /* there was more output than is kept                      */
    int status;            /* exit status; -1: it could not be started, or was killed */
};

/* Runs it to its end. */
void job_run(struct job *job);

void job_clear(struct job *job);

/* The last line of the output without "NAME: " before it, printable; g_free. */
char *job_last_line(const struct job *job);
