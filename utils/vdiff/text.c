/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Text is compared by diff(1) of diffutils. Both files are handed over as descriptors, so that it sees the
 * files opened here, and needs no path. Their content may be made to exploit faults of diff(1): it gets nothing else.
 */
#include "vdiff.h"
#include "common/cli.h"
#include "client/fd.h"
#include "wayback/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Where the child finds the two files; above those it gets anyway. */
#define FIRST_FD 10

/* "a/PATH<tab>TIME": the form in which patch(1) takes names with blanks. Nothing there: /dev/null. */
static char *heading(const struct diff *diff, int side, const char *path, int fd)
{
    g_autofree char *label = diff_label(diff, side, path);
    char text[WB_WHEN_TEXT_MAX];
    struct stat st;

    if (fd < 0)
        return g_strdup("/dev/null\t1970-01-01 00:00:00 +0000");
    if (diff->side[side].when != WB_WHEN_PRESENT || fstat(fd, &st) < 0)
        return g_strdup_printf("%s\t%s", label, wb_when_print(diff->side[side].when, 1, text));
    return g_strdup_printf("%s\t%s", label, wb_when_print(st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec, 1,
                                                          text));
}

static void run_child(const int fds[2], char *const headings[2], int out)
{
    char names[2][32];
    int given[2];

    signal(SIGPIPE, SIG_DFL);
    for (int side = OLD; side <= NEW; side++) {
        /* dup2 clears close-on-exec. */
        if (fds[side] >= 0 && dup2(fds[side], FIRST_FD + side) < 0)
            _exit(127);
        given[side] = fds[side] < 0 ? -1 : FIRST_FD + side;
        g_snprintf(names[side], sizeof(names[side]), fds[side] < 0 ? "/dev/null" : "/proc/self/fd/%d", FIRST_FD + side);
    }
    if (dup2(out, STDOUT_FILENO) < 0)
        _exit(127);
    setenv("LC_ALL", "C", 1);
    wb_confine_program("diff", given, 2);
    execlp("diff", "diff", "-u", "-a", "--label", headings[OLD], "--label", headings[NEW], "--", names[OLD],
           names[NEW], (char *)NULL);
    _exit(126);
}

static int finish(const struct diff *diff, const char *path, pid_t child)
{
    g_autofree char *name = diff_name(diff, path);
    int status;

    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
        wb_cli_fail(name, "cannot run diff(1); install diffutils, or use --brief");
    else if (!wb_cli_interrupted() && !ferror(stdout))
        wb_cli_fail(name, "diff(1) failed");
    return -EIO;
}

int diff_text(const struct diff *diff, const char *path, const int fds[2], diff_line line, void *data)
{
    g_autofree char *old = heading(diff, OLD, path, fds[OLD]);
    g_autofree char *new = heading(diff, NEW, path, fds[NEW]);
    char *const headings[2] = {old, new};
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    int ends[2];
    FILE *stream;
    pid_t child;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    fflush(stdout);
    child = fork();
    if (child == 0)
        run_child(fds, headings, ends[1]);
    close(ends[1]);
    stream = child > 0 ? fdopen(ends[0], "r") : NULL;
    if (!stream) {
        close(ends[0]);
        diff_fail(diff, path, child < 0 ? EAGAIN : ENOMEM);
        return -EAGAIN;
    }
    while (!ferror(stdout) && (length = getline(&text, &size, stream)) > 0)
        line(data, text, (size_t)length);
    free(text);
    fclose(stream);
    return finish(diff, path, child);
}
