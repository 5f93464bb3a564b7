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
#include "wayback/when.h"

enum wb_exit {
    WB_EXIT_OK = 0,
    WB_EXIT_FAILED = 1, /* something asked for could not be done; a line on stderr says what */
    WB_EXIT_USAGE = 2,  /* the command line makes no sense; nothing was done                 */
};

struct wb_cli {
    const char *name;      /* "vstat"                                  */
    const char *verb;      /* "create", of a tool with several; or NULL */
    const char *arguments; /* "PATH..."                                */
    const char *summary;   /* one sentence                             */
    const char *examples;  /* lines "  vstat report.txt   what it does" */
    int paths_min;         /* how many PATHs                           */
    int paths_max;         /* 0: any number                            */
    bool plain;            /* needs no mount, hence no --store         */
    int usage_status;      /* for wrong usage, in place of WB_EXIT_USAGE; 0: that */
    const char *exit_text; /* "0 done, ...", where that is not what all do        */
    bool timeless;         /* takes no TIME, so none is explained                  */
    const char *path_word; /* what is called PATH elsewhere: "TREE"; NULL: that    */
};

#define WB_CLI_JSON(variable) \
    {"json", 0, 0, G_OPTION_ARG_NONE, variable, "Print JSON instead of text", NULL}
#define WB_CLI_DRY_RUN(variable) \
    {"dry-run", 'n', 0, G_OPTION_ARG_NONE, variable, "Say what would be done, and change nothing", NULL}
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

/* --store DIR, made absolute: where the history of a tree that is not mounted is; NULL: in the tree. */
const char *wb_cli_store(void);

/* "vstat: PATH: reason; what to do". `path` may be NULL. Returns WB_EXIT_FAILED. */
int wb_cli_fail(const char *path, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* The same, but does not make the tool fail. */
void wb_cli_warn(const char *path, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* "vstat: what is wrong" and where help is. Returns WB_EXIT_USAGE. */
int wb_cli_usage(const char *format, ...) G_GNUC_PRINTF(1, 2);

/* An errno (positive or negative) in words, with what to do where that is known. */
const char *wb_cli_errno(int error);

/*
 * SIGINT, SIGTERM and SIGHUP: the first one makes this true, and the tool winds up (removes its
 * half results, unmounts what it mounted); a second one ends it at once, after `last_words`.
 */
bool wb_cli_interrupted(void);

/*
 * For what cannot be undone, and was not answered by -y: asks `question` on the terminal. False after an error line,
 * also where there is no terminal; `left` says in it how things stand: "not removed".
 */
bool wb_cli_confirm(const char *path, const char *question, const char *left);

/*
 * What the tool has done so far, in a few words: "3 of 10 paths removed". After a signal wb_cli_end prints "stopped; "
 * with that ("": nothing at all), and the exit status is 128 and the number of the signal.
 */
void wb_cli_stopped(const char *format, ...) G_GNUC_PRINTF(1, 2);
void wb_cli_last_words(void (*last_words)(void));
