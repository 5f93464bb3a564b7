/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/program.h"

#include "client/fd.h"
#include "common/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (1 << 20)

char *wb_program_find(const char *name)
{
    g_autofree char *self = g_file_read_link("/proc/self/exe", NULL);
    g_autofree char *here = self ? g_path_get_dirname(self) : NULL;
    /* Installed beside us, or in the build tree. */
    g_autofree char *installed = here ? g_build_filename(here, name, NULL) : NULL;
    g_autofree char *built = here ? g_build_filename(here, "..", name, name, NULL) : NULL;

    if (installed && g_file_test(installed, G_FILE_TEST_IS_REGULAR))
        return g_steal_pointer(&installed);
    if (built && g_file_test(built, G_FILE_TEST_IS_REGULAR))
        return g_steal_pointer(&built);
    return g_find_program_in_path(name);
}

static void become(const char *const *arguments, int input_fd, int output_fd)
{
    int in = input_fd >= 0 ? input_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);

    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    if (output_fd >= 0) {
        dup2(output_fd, STDOUT_FILENO);
        dup2(output_fd, STDERR_FILENO);
    }
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

static char *read_output(int fd)
{
    char *text = g_malloc(OUTPUT_MAX + 1);
    ssize_t length = wb_fd_read(fd, text, OUTPUT_MAX, 0);

    text[MAX(length, 0)] = '\0';
    return text;
}

int wb_program_run(const char *const *arguments, int input_fd, char **ret_output)
{
    _cleanup_fd_ int output_fd = ret_output ? memfd_create("output", MFD_CLOEXEC) : -1;
    int status = -1;
    pid_t pid;

    if (ret_output)
        *ret_output = NULL;
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        become(arguments, input_fd, output_fd);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (ret_output)
        *ret_output = output_fd >= 0 ? read_output(output_fd) : g_strdup("");
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

char *wb_program_last_line(const char *output)
{
    g_autofree char *text = g_strchomp(g_strdup(output));
    const char *line = strrchr(text, '\n');

    line = line ? line + 1 : text;
    return g_strdup(g_str_has_prefix(line, "wayback: ") ? line + strlen("wayback: ") : line);
}

/* ---- the editor ------------------------------------------------------------------------------------------ */

/* A shell command, as git(1) and crontab(1) have it: it may have options. g_free. */
static char *editor_command(void)
{
    static const char *const names[] = {"editor", "nano", "vi"};
    const char *set = g_getenv("VISUAL");

    if (!set || !*set)
        set = g_getenv("EDITOR");
    if (set && *set)
        return g_strdup(set);
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *found = g_find_program_in_path(names[i]);

        if (found)
            return g_steal_pointer(&found);
    }
    return NULL;
}

int wb_program_edit(const char *path)
{
    g_autofree char *editor = editor_command();
    g_autofree char *script = editor ? g_strdup_printf("%s \"$1\"", editor) : NULL;
    const char *arguments[] = {"sh", "-c", script, "sh", path, NULL};
    int status;

    if (!editor)
        return wb_cli_fail(NULL, "no editor was found; set the variable EDITOR, as in EDITOR=nano");
    status = wb_program_run(arguments, STDIN_FILENO, NULL);
    if (status != 0)
        return wb_cli_fail(NULL, "the editor (%s) failed with status %d; nothing was applied", editor, status);
    return 0;
}
