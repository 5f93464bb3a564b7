/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The verbs of vsnap: each a command line of its own, and their shared code. argv[0] is the verb. */

#include "common/cli.h"
#include "common/mount.h"
#include "common/snapshots.h"

int vsnap_create(int argc, char **argv);
int vsnap_rename(int argc, char **argv);
int vsnap_delete(int argc, char **argv);
int vsnap_list(int argc, char **argv);
int vsnap_show(int argc, char **argv);
int vsnap_diff(int argc, char **argv);
int vsnap_view(int argc, char **argv);

#define VSNAP_DIRECTORY(variable) \
    {"directory", 'C', 0, G_OPTION_ARG_FILENAME, variable, "The mount of DIR, not of the current directory", "DIR"}

/* Whether a word that may be either is meant as a PATH: it has a slash, or is "." or "..". */
bool vsnap_is_path(const char *word);

/*
 * Where the names are that a command is about: the last word, if it is a path, which no name can be; else `directory`
 * (-C). That word is no name then.
 */
const char *vsnap_directory(const char *directory, int *argc, char **argv);

/* The mount of `path` (NULL: the current directory), if it keeps a history. NULL after an error line. */
struct wb_place *vsnap_place(const char *path, enum wb_mount_need need);

/* What went wrong with the snapshot `name`, in words. Returns WB_EXIT_FAILED. */
int vsnap_fail(const struct wb_place *place, const char *name, int error);

/* A path from the root of the mount as users name it; g_free. */
char *vsnap_shown(const struct wb_mount *mount, const char *path);
