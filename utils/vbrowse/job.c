/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/job.h"
#include "vbrowse/screen.h"
#include "client/fd.h"
#include "common/cli.h"
#include "common/text.h"
#include "service/program.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (16 << 20)
/* What takes less time needs no words. */
#define SILENT_MS 300
#define TURN_MS 200
#define NOT_EXECUTED 127

/* In a process group of its own: Ctrl-C is for the browser, which passes it on once. */
static void become(const struct job *job, const char *program, int out)
{
    g_autoptr(GPtrArray) arguments = g_ptr_array_new();
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    setpgid(0, 0);
    if (chdir(job->directory) < 0)
        _exit(NOT_EXECUTED);
    signal(SIGPIPE, SIG_DFL);
    g_ptr_array_add(arguments, (char *)job->call);
    for (const char *const *argument = job->arguments; *argument; argument++)
        g_ptr_array_add(arguments, (char *)*argument);
    g_ptr_array_add(arguments, NULL);
    dup2(null_fd, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(job->errors ? out : null_fd, STDERR_FILENO);
    execv(program, (char **)arguments->pdata);
    _exit(NOT_EXECUTED);
}

static int start(struct job *job)
{
    g_autofree char *program = wb_program_find(job->tool);
    int ends[2];

    if (!program || pipe2(ends, O_CLOEXEC) < 0) {
        g_string_append_printf(job->output, "%s: not found; it belongs to Wayback and should be installed\n",
                               job->tool);
        return -1;
    }
    job->pid = fork();
    if (job->pid == 0)
        become(job, program, ends[1]);
    close(ends[1]);
    if (job->pid > 0)
        return ends[0];
    close(ends[0]);
    g_string_append_printf(job->output, "%s: %s\n", job->tool, g_strerror(errno));
    return -1;
}

/* Passes whole lines on. */
static void take_lines(struct job *job)
{
    char *end;

    if (!job->line)
        return;
    while ((end = memchr(job->output->str, '\n', job->output->len))) {
        *end = '\0';
        job->line(job->data, job->output->str);
        g_string_erase(job->output, 0, end + 1 - job->output->str);
    }
}

/* What the child has printed by now. False: it has closed its output. */
static bool take_output(struct job *job, int fd)
{
    char buffer[64 * 1024];
    ssize_t n = read(fd, buffer, sizeof(buffer));

    if (n < 0)
        return errno == EINTR || errno == EAGAIN;
    if (n == 0)
        return false;
    if (job->output->len + (gsize)n > OUTPUT_MAX)
        job->cut = true;
    else
        g_string_append_len(job->output, buffer, n);
    take_lines(job);
    return true;
}

static void stop(struct job *job)
{
    if (!job->stopped)
        kill(job->pid, SIGINT);
    job->stopped = true;
}

static void show(const struct job *job, unsigned turn)
{
    static const char *const dots[] = {"", ".", "..", "..."};
    g_autofree char *text = g_strdup_printf("%s%-3s  %s", job->label, dots[turn % 4],
                                            job->stopped ? "stopping" : "Escape stops it");

    screen_message(SCREEN_BOLD, text);
    screen_show();
}

void job_run(struct job *job)
{
    int64_t begun = g_get_monotonic_time();
    bool open = true, ready;
    int status = -1, fd;

    job->output = g_string_new(NULL);
    job->status = -1;
    fd = start(job);
    if (fd < 0)
        return;
    for (unsigned turn = 0; open; turn++) {
        int64_t elapsed = (g_get_monotonic_time() - begun) / 1000;

        if (elapsed >= SILENT_MS)
            show(job, (unsigned)(elapsed / SILENT_MS));
        if (screen_wait(fd, TURN_MS, &ready) && screen_key(0) == SCREEN_KEY_ESCAPE)
            stop(job);
        if (wb_cli_interrupted())
            stop(job);
        if (ready)
            open = take_output(job, fd);
    }
    close(fd);
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (job->status == NOT_EXECUTED)
        g_string_append_printf(job->output, "%s: cannot be executed; if many names are marked, mark fewer\n",
                               job->call);
}

void job_clear(struct job *job)
{
    if (job->output)
        g_string_free(job->output, TRUE);
    job->output = NULL;
}

char *job_last_line(const struct job *job)
{
    g_autofree char *text = g_strchomp(g_strdup(job->output ? job->output->str : ""));
    g_autofree char *name = g_strconcat(job->call, ": ", NULL);
    const char *line = strrchr(text, '\n');

    line = line ? line + 1 : text;
    return wb_text_printable(g_str_has_prefix(line, name) ? line + strlen(name) : line);
}
