/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vweb/vweb.h"
#include <glib/gstdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_NAME "open.html"

static bool has_desktop(void)
{
    return (g_getenv("DISPLAY") || g_getenv("WAYLAND_DISPLAY")) && !g_getenv("SSH_CONNECTION") && geteuid() != 0;
}

void web_open_browser(const char *url, char **ret)
{
    g_autofree char *program = has_desktop() ? g_find_program_in_path("xdg-open") : NULL;
    g_autofree char *directory = g_build_filename(g_get_user_runtime_dir(), "wayback-web-XXXXXX", NULL);
    g_autofree char *file = NULL;
    g_autofree char *text = NULL;

    *ret = NULL;
    if (!program || !g_mkdtemp_full(directory, 0700))
        return;
    file = g_build_filename(directory, FILE_NAME, NULL);
    text = g_strdup_printf("<!DOCTYPE html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">"
                           "<meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>Wayback</title>"
                           "<a href=\"%s\">Wayback</a>\n", url, url);
    if (g_file_set_contents_full(file, text, -1, G_FILE_SET_CONTENTS_NONE, 0600, NULL)) {
        char *arguments[] = {program, file, NULL};

        g_spawn_async("/", arguments, NULL, G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, NULL,
                      NULL);
    }
    *ret = g_steal_pointer(&directory);
}

void web_opener_end(char *directory)
{
    g_autofree char *file = directory ? g_build_filename(directory, FILE_NAME, NULL) : NULL;

    if (!directory)
        return;
    g_unlink(file);
    g_rmdir(directory);
    g_free(directory);
}
