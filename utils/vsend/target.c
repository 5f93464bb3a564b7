/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "target.h"

#include "common/cli.h"
#include "common/text.h"
#include "service/program.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit statuses of a shell, and of ssh(1) for an error of its own. */
#define STATUS_NOT_FOUND 127
#define STATUS_CONNECTION 255

/* Where HOST ends, or NULL: it is a path. An address in brackets may have colons. */
static const char *find_colon(const char *text)
{
    const char *from = strchr(text, ']'), *slash = strchr(text, '/'), *colon;

    if (!from || !strchr(text, '[') || (slash && slash < from))
        from = text;
    colon = strchr(from, ':');
    return colon && colon != text && (!slash || colon < slash) ? colon : NULL;
}

int wb_send_target_parse(const char *text, const char *shell, struct wb_send_target *ret)
{
    const char *colon = g_file_test(text, G_FILE_TEST_IS_DIR) ? NULL : find_colon(text);
    g_autoptr(GError) error = NULL;

    *ret = (struct wb_send_target){.name = text, .fd = -1};
    if (!*text || (colon && !colon[1]))
        return wb_cli_usage("--to: '%s' names no directory; use DIR or HOST:DIR", text);
    if (colon && (text[0] == '-' || g_str_has_prefix(text, "[-")))
        return wb_cli_usage("--to: '%s' begins with '-', which no name of a machine does", text);
    if (shell && !g_shell_parse_argv(shell, NULL, &ret->remote_shell, &error))
        return wb_cli_usage("--ssh: '%s' is not a command: %s", shell, error->message);
    if (!ret->remote_shell)
        ret->remote_shell = g_strsplit("ssh", " ", 0);
    ret->directory = g_strdup(colon ? colon + 1 : text);
    ret->host = colon ? g_strndup(text, (gsize)(colon - text)) : NULL;
    if (ret->host && strchr(ret->host, '[') && g_str_has_suffix(ret->host, "]")) {
        g_autofree char *address = g_strdup(strchr(ret->host, '[') + 1);

        address[strlen(address) - 1] = '\0';
        *strchr(ret->host, '[') = '\0';
        g_autofree char *user = g_steal_pointer(&ret->host);
        ret->host = g_strconcat(user, address, NULL);
    }
    return 0;
}

void wb_send_target_clear(struct wb_send_target *target)
{
    g_clear_pointer(&target->directory, g_free);
    g_clear_pointer(&target->host, g_free);
    g_clear_pointer(&target->remote_shell, g_strfreev);
}

/* The command line; g_strfreev. */
static char **command_line(const struct wb_send_target *target, const char *option)
{
    g_autoptr(GStrvBuilder) builder = g_strv_builder_new();
    g_autofree char *quoted = g_shell_quote(target->directory);
    g_autofree char *remote = g_strconcat("vreceive ", option ? option : "", option ? " " : "", "-- ", quoted, NULL);
    g_autofree char *local = target->host ? NULL : wb_program_find("vreceive");

    if (target->host) {
        for (char **word = target->remote_shell; *word; word++)
            g_strv_builder_add(builder, *word);
        g_strv_builder_add_many(builder, target->host, remote, NULL);
    } else {
        g_strv_builder_add(builder, local ? local : "vreceive");
        if (option)
            g_strv_builder_add(builder, option);
        g_strv_builder_add_many(builder, "--", target->directory, NULL);
    }
    return g_strv_builder_end(builder);
}

/* Of a receiver that ended; its own messages were printed. */
static int judge(const struct wb_send_target *target, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == 0)
        return 0;
    if (target->host && code == STATUS_CONNECTION)
        return WB_TARGET_UNREACHABLE;
    if (wb_cli_interrupted())
        return -EINTR;
    if (target->host && code == STATUS_NOT_FOUND)
        wb_cli_fail(target->name, "there is no vreceive on %s, or it is not in the PATH of a command that %s runs; "
                                  "install Wayback there", target->host, target->remote_shell[0]);
    else
        wb_cli_fail(target->name, "vreceive failed%s; see its message above", target->host ? " there" : "");
    return -EIO;
}

int wb_send_target_status(struct wb_send_target *target, struct wb_copy_point *ret)
{
    g_auto(GStrv) words = command_line(target, "--status");
    g_autofree char *output = NULL;
    g_autoptr(GError) error = NULL;
    int status, r;

    if (!g_spawn_sync(NULL, words, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &output, NULL, &status, &error))
        return wb_cli_fail(target->name, "cannot run %s: %s", words[0], error->message), -EIO;
    r = judge(target, status);
    if (r != 0)
        return r;
    if (wb_copy_point_parse(g_strchomp(output), ret) < 0) {
        g_autofree char *shown = wb_text_printable(output);

        wb_cli_fail(target->name, "vreceive --status printed '%s' there, which is not the state of a copy", shown);
        return -EPROTO;
    }
    return 0;
}

int wb_send_target_open(struct wb_send_target *target)
{
    g_auto(GStrv) words = command_line(target, NULL);
    g_autoptr(GError) error = NULL;
    int ends[2];
    bool started;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return wb_cli_fail(target->name, "cannot make a pipe: %s", g_strerror(errno)), -EIO;
    started = g_spawn_async_with_fds(NULL, words, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL,
                                     &target->pid, ends[0], -1, -1, &error);
    close(ends[0]);
    if (!started) {
        close(ends[1]);
        return wb_cli_fail(target->name, "cannot run %s: %s", words[0], error->message), -EIO;
    }
    target->fd = ends[1];
    return 0;
}

int wb_send_target_close(struct wb_send_target *target, bool failed)
{
    int status = 0;

    if (target->fd >= 0)
        close(target->fd);
    target->fd = -1;
    if (target->pid == 0)
        return 0;
    while (waitpid(target->pid, &status, 0) < 0 && errno == EINTR)
        ;
    target->pid = 0;
    return failed ? -EIO : judge(target, status);
}
