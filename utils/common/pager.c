/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/pager.h"
#include "common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    GPid process;     /* 0: no pager */
    unsigned columns; /* of the terminal behind it */
    int errors;       /* what standard error was, -1: it is still that */
} pager = {.errors = -1};

static enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color_when;

/* ---- the pager ------------------------------------------------------------------------------- */

/* The command, or NULL: none is wanted, or there is none. */
static char *choose_command(void)
{
    static const char *const variables[] = {"WAYBACK_PAGER", "PAGER"};

    for (unsigned i = 0; i < G_N_ELEMENTS(variables); i++) {
        const char *command = g_getenv(variables[i]);
        g_auto(GStrv) words = NULL;
        g_autofree char *program = NULL;

        if (!command)
            continue;
        if (!*command || strcmp(command, "cat") == 0)
            return NULL;
        /* What would fail only after the output was given to it is found out now. Anything that only a
         * shell understands is left to the shell. */
        if (g_shell_parse_argv(command, NULL, &words, NULL) && !strpbrk(command, "=;&|<>$`(")) {
            program = g_find_program_in_path(words[0]);
            if (!program) {
                wb_cli_warn(NULL, "%s: '%s' was not found; printing without a pager", variables[i], words[0]);
                return NULL;
            }
        }
        return g_strdup(command);
    }
    {
        g_autofree char *less = g_find_program_in_path("less");

        return less ? g_strdup("less -FRX") : NULL;
    }
}

/* In the new process, before exec: ignored signals would stay ignored. */
static void prepare_child(void *unused)
{
    signal(SIGPIPE, SIG_DFL);
}

static unsigned columns_of(int fd)
{
    struct winsize size;

    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

unsigned wb_pager_columns(void)
{
    return pager.process ? pager.columns : columns_of(STDOUT_FILENO);
}

void wb_pager_begin(void)
{
    g_autofree char *command = NULL;
    g_auto(GStrv) environment = g_get_environ();
    g_autoptr(GError) error = NULL;
    unsigned columns = columns_of(STDOUT_FILENO);
    int in = -1;

    if (pager.process || !isatty(STDOUT_FILENO))
        return;
    command = choose_command();
    if (!command)
        return;
    /* "less" without its options would show escape sequences, and not end by itself where all fits. */
    environment = g_environ_setenv(environment, "LESS", "FRX", FALSE);
    fflush(stdout);
    const char *const arguments[] = {"/bin/sh", "-c", command, NULL};

    if (!g_spawn_async_with_pipes(NULL, (char **)arguments, environment, G_SPAWN_DO_NOT_REAP_CHILD,
                                  prepare_child, NULL, &pager.process, &in, NULL, NULL, &error)) {
        wb_cli_warn(NULL, "no pager: %s", error->message);
        pager.process = 0;
        return;
    }
    pager.columns = columns;
    dup2(in, STDOUT_FILENO);
    if (isatty(STDERR_FILENO)) {
        pager.errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        dup2(in, STDERR_FILENO);
    }
    close(in);
}

bool wb_pager_end(void)
{
    void (*on_interrupt)(int);
    int null_fd;

    if (!pager.process)
        return false;
    fflush(stdout);
    /* The last descriptor that leads to the pager is the end of its input. Output that it did not take is dropped. */
    __fpurge(stdout);
    null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null_fd, STDOUT_FILENO);
    close(null_fd);
    if (pager.errors >= 0) {
        dup2(pager.errors, STDERR_FILENO);
        close(pager.errors);
        pager.errors = -1;
    }
    /* Ctrl-C is the pager's business now. */
    on_interrupt = signal(SIGINT, SIG_IGN);
    while (waitpid(pager.process, NULL, 0) < 0 && errno == EINTR)
        ;
    signal(SIGINT, on_interrupt);
    g_spawn_close_pid(pager.process);
    pager.process = 0;
    return true;
}

/* ---- colours --------------------------------------------------------------------------------- */

int wb_color_choose(const char *when)
{
    if (!when || strcmp(when, "auto") == 0)
        color_when = COLOR_AUTO;
    else if (strcmp(when, "always") == 0)
        color_when = COLOR_ALWAYS;
    else if (strcmp(when, "never") == 0)
        color_when = COLOR_NEVER;
    else
        return wb_cli_usage("--color: '%s' is invalid; use auto, always or never", when);
    return 0;
}

static bool has_colors(void)
{
    const char *none = g_getenv("NO_COLOR");
    const char *terminal = g_getenv("TERM");

    if (color_when != COLOR_AUTO)
        return color_when == COLOR_ALWAYS;
    return (pager.process || isatty(STDOUT_FILENO)) && !(none && *none) && terminal && strcmp(terminal, "dumb") != 0;
}

const char *wb_color(enum wb_color color)
{
    static const char *const sequences[] = {
        [WB_COLOR_OFF] = "\033[m",       [WB_COLOR_BOLD] = "\033[1m",   [WB_COLOR_FAINT] = "\033[2m",
        [WB_COLOR_RED] = "\033[31m",     [WB_COLOR_GREEN] = "\033[32m", [WB_COLOR_YELLOW] = "\033[33m",
        [WB_COLOR_BLUE] = "\033[34m",    [WB_COLOR_CYAN] = "\033[36m",
    };

    return has_colors() ? sequences[color] : "";
}
