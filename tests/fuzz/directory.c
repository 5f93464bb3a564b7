/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fuzz.h"
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *path;
static pid_t owner;

static void remove_directory(void)
{
    g_autofree char *command = g_strdup_printf("chmod -R u+rwx '%s'; rm -rf '%s'", path, path);

    if (getpid() == owner && system(command) != 0)
        fprintf(stderr, "%s is left\n", path);
}

const char *fuzz_directory(void)
{
    if (path)
        return path;
    /* In memory, if possible: the test is about bytes, and each input makes a store. */
    path = g_build_filename(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : g_get_tmp_dir(), "wayback-fuzz-XXXXXX", NULL);
    if (!mkdtemp(path))
        abort();
    owner = getpid();
    atexit(remove_directory);
    return path;
}
