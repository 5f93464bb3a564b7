/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The ways to mount a directory at each boot or login: a unit of the user's systemd, an instance of wayback@.service
 * of the system, or a line of fstab. Each is written only where it differs.
 */

#include <glib.h>
#include <stdbool.h>
#include "client/mount.h"

enum wb_way { WB_WAY_NONE, WB_WAY_USER, WB_WAY_SYSTEM, WB_WAY_FSTAB };

struct wb_unit {
    const char *root; /* unit files, fstab and /run are looked for below it; "" is / */
    char *directory;  /* absolute, without links */
    char *name;       /* "wayback@home-me-Documents.service" */
    char *options;    /* mount options, "" if there are none */
    char *daemon;     /* the program wayback, absolute */
};

void wb_unit_init(struct wb_unit *unit, const char *root, const char *directory, const char *options);
void wb_unit_clear(struct wb_unit *unit);

/* "the user unit wayback@x.service", "the unit ...", "a line of /etc/fstab"; g_free. */
char *wb_unit_describe(const struct wb_unit *unit, enum wb_way way);

/* Whether systemd is the init system, as sd_booted(3) has it. */
bool wb_unit_has_systemd(const struct wb_unit *unit);

/* In which way the directory is enabled now. */
enum wb_way wb_unit_find(const struct wb_unit *unit);

/* The mount of the directory over itself, to be freed by the caller; NULL: there is none that answers. */
struct wb_mount *wb_unit_mount(const char *directory);

/* Whether a mount of ours is there, whatever it shows and even if its daemon has died. */
bool wb_unit_is_mounted(const char *directory);

/* Mount options that are set for it now; g_free. NULL: they are not known. */
char *wb_unit_options(const struct wb_unit *unit, enum wb_way way);

/* Whether what the way needs is installed. 0, or WB_EXIT_FAILED after an error line. */
int wb_unit_check(const struct wb_unit *unit, enum wb_way way);

/*
 * Whether the unit of that way was written by wb_unit_write, and whether no other user enabled the directory. 0, or
 * WB_EXIT_FAILED after an error line.
 */
int wb_unit_check_own(const struct wb_unit *unit, enum wb_way way);
int wb_unit_check_owner(const struct wb_unit *unit);

/* What wb_unit_write replaces: the text of the file, or the line; g_free. NULL: there is none. */
char *wb_unit_text(const struct wb_unit *unit, enum wb_way way);
/* Puts it back after a failure. 0, or WB_EXIT_FAILED after an error line. */
int wb_unit_put_back(const struct wb_unit *unit, enum wb_way way, const char *text);

enum wb_unit_change { WB_UNIT_SAME, WB_UNIT_NEW, WB_UNIT_CHANGED, WB_UNIT_FAILED };

/*
 * Writes the unit, the file with its options, or the line. With `dry_run` only compares. *ret_path is the file, g_free.
 * WB_UNIT_FAILED: after an error line.
 */
enum wb_unit_change wb_unit_write(const struct wb_unit *unit, enum wb_way way, bool dry_run, char **ret_path);

/* Has systemd mount it at each boot or login from now on. 0, or WB_EXIT_FAILED after an error line. */
int wb_unit_enable(const struct wb_unit *unit, enum wb_way way);

/* Mounts it now. 0, or WB_EXIT_FAILED after an error line. */
int wb_unit_start(const struct wb_unit *unit, enum wb_way way);

/* Unmounts it, if nobody uses it. 0, or the exit status of the command, with its last line in *ret_said (g_free). */
int wb_unit_unmount(const struct wb_unit *unit, char **ret_said);

/* The reverse of wb_unit_write and wb_unit_enable; unmounts nothing. 0, or WB_EXIT_FAILED after an error line. */
int wb_unit_remove(const struct wb_unit *unit, enum wb_way way);
