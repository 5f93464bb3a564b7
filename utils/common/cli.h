/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What all tools share on the command line: options, exit statuses, one form of error line.
 *
 *   int main(int argc, char **argv)
 *   {
 *       int r = wb_cli_begin(&cli, options, &argc, &argv);
 *       if (r >= 0)
 *           return r;
 *       ... argv[1..argc-1] are the PATHs; wb_cli_fail(path, ...) for each that fails
 *       return wb_cli_end();
 *   }
 */

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include "client/errno_text.h"
#include "wayback/when.h"

enum wb_exit {
    WB_EXIT_OK = 0,
    WB_EXIT_FAILED = 1, /* an operation failed; a line on stderr names it */
    WB_EXIT_USAGE = 2,  /* wrong usage; nothing was done                  */
};

struct wb_cli {
    const char *name;      /* "vstat"                                  */
    const char *verb;      /* "create", of a tool with several; or NULL */
    const char *arguments; /* "PATH..."                                */
    const char *summary;   /* one sentence                             */
    const char *examples;  /* lines "  vstat report.txt   what it does" */
    int paths_min;         /* number of PATHs                          */
    int paths_max;         /* 0: any number                            */
    bool plain;            /* needs no mount, hence no --store         */
    int usage_status;      /* exit status for wrong usage; 0: WB_EXIT_USAGE        */
    const char *exit_text; /* "0 done, ..."; NULL: the text that most tools share  */
    bool timeless;         /* has no TIME argument, so help does not explain TIME  */
    bool writes_stream;    /* standard output is data, so --json prints on standard error */
    const char *path_word; /* the name of PATH in help, such as "TREE"; NULL: PATH */
};

#define WB_CLI_JSON(variable) \
    {"json", 0, 0, G_OPTION_ARG_NONE, variable, "Print JSON instead of text", NULL}
#define WB_CLI_DRY_RUN(variable) \
    {"dry-run", 'n', 0, G_OPTION_ARG_NONE, variable, "Only show what would be done; change nothing", NULL}
#define WB_CLI_VERBOSE(variable, text) {"verbose", 'v', 0, G_OPTION_ARG_NONE, variable, text, NULL}
#define WB_CLI_END {NULL, 0, 0, 0, NULL, NULL, NULL}

/*
 * Locale, signals, limits; --help, --version, `options`; the number of PATHs. Returns the exit
 * status to end with at once, or -1: go on. argv is replaced by the program and the PATHs.
 */
int wb_cli_begin(const struct wb_cli *cli, const GOptionEntry *options, int *argc, char ***argv);

/* Flushes standard output and waits for a pager (pager.h); WB_EXIT_FAILED if that fails or wb_cli_fail was ever
 * called. */
int wb_cli_end(void);

const char *wb_cli_name(void);

/*
 * How the user calls a tool ("vrevert"), for commands in texts: by its verb ("wayback restore") if this one was called
 * by a verb.
 */
const char *wb_cli_tool(const char *tool);

/* --store DIR, made absolute: the store of a tree that is not mounted; NULL: in the tree. */
const char *wb_cli_store(void);

/* "vstat: PATH: reason; what to do". `path` may be NULL. Returns WB_EXIT_FAILED. */
int wb_cli_fail(const char *path, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The same, but does not make the tool fail. */
void wb_cli_warn(const char *path, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* "vstat: what is wrong" and where help is. Returns WB_EXIT_USAGE. */
int wb_cli_usage(const char *format, ...) G_GNUC_PRINTF(1, 2);

/*
 * SIGINT, SIGTERM and SIGHUP: after the first one this returns true, and the tool cleans up (removes partial results,
 * unmounts private mounts); a second one ends it at once, after `last_words`.
 */
bool wb_cli_interrupted(void);

/*
 * Asks `question` on the terminal, before an operation that cannot be undone and without -y. Returns false after an
 * error line if the answer is no or there is no terminal; `left` describes the state in that line: "not removed".
 */
bool wb_cli_confirm(const char *path, const char *question, const char *left);

/*
 * Sets the text for an interruption: the work done so far, such as "3 of 10 paths removed". After a signal wb_cli_end
 * prints "stopped; " and this text ("": nothing at all), and the exit status is 128 plus the number of the signal.
 */
void wb_cli_stopped(const char *format, ...) G_GNUC_PRINTF(1, 2);
void wb_cli_last_words(void (*last_words)(void));
