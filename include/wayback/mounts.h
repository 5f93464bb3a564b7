/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The mounts that a process sees, as the kernel lists them. Only that text is read: no path in it is looked at, since a
 * mount there may not answer, and any user may choose its names.
 */
#ifndef WAYBACK_MOUNTS_H
#define WAYBACK_MOUNTS_H

#include <stdbool.h>
#include <sys/types.h>

/* Of GLib. */
typedef struct _GPtrArray GPtrArray;

/* One line of mountinfo; see proc_pid_mountinfo(5). */
struct wb_listed {
    int id, parent;       /* of the mount, and of the one that has its mount point */
    dev_t device;         /* of the superblock: btrfs has others for its files     */
    const char *root;     /* of the file system, seen at `point`                   */
    const char *point;
    const char *type;
    const char *source;   /* "" if it has none                                     */
    const char *options;  /* of the file system                                    */
    struct libmnt_fs *fs; /* has these texts                                       */
};

/* Those of the process `pid` (0: this one), an array of struct wb_listed *; g_ptr_array_unref. NULL: not readable. */
GPtrArray *wb_listed_of_process(pid_t pid);
/* Those of this process; empty if they are not readable. */
GPtrArray *wb_listed_mounts(void);
/* Those in such a text, without malformed lines. */
GPtrArray *wb_listed_parse(const char *text);

/* The value of an option of the file system; g_free. NULL: it has none. */
char *wb_listed_option(const struct wb_listed *listed, const char *name);
/* The user who mounted a FUSE file system, according to the kernel. False: it is none. */
bool wb_listed_user(const struct wb_listed *listed, uid_t *ret);

#endif
