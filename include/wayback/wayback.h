/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_WAYBACK_H
#define WAYBACK_WAYBACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * libwayback lets a program read the past of a mounted Wayback tree and bring it back: the versions of a path, a file
 * or a directory as it was at any time, restoring and undoing, snapshots, and the space that history takes.
 *
 * Compile and link with `pkg-config --cflags --libs wayback`. docs/example.c is a complete program.
 *
 * The library talks to the daemon of the mount. The kernel and the daemon check the permissions of the calling process:
 * the past shows it nothing that it could not have read then or may not read now.
 *
 * Times are nanoseconds since the epoch, UTC, as an int64_t. "As of T" means: with every change whose time is T or
 * earlier, and with none after. Sizes are in bytes.
 *
 * Paths are absolute or relative to the current directory. They name the present and may name something that no longer
 * exists; they must lead into the mount of the client, and not through another mount below it (else -EXDEV). The last
 * component is never followed if it is a symbolic link.
 *
 * Functions return 0 (or what their comment names) for success and a negative errno for failure. After a failure,
 * wb_error_text() returns the path, the problem and what to do, in one line. Common errors: ENOENT (there is, or was,
 * nothing under this name), ENODATA (the time is before the history begins), EIO (this state cannot be restored, or a
 * record is damaged), EACCES and EPERM (not permitted), EROFS (the mount is read-only), ENOTCONN (the daemon of the
 * mount has ended). No function returns bytes of a version that it cannot rebuild exactly.
 *
 * A client and the iterators made from it may be used by one thread at a time; different threads may use different
 * clients at the same time. If memory runs out, the library ends the process, as GLib does.
 *
 * Structures that the library hands out may grow at their end. Those that the caller provides begin with `size`, which
 * the caller sets to the size of the structure: programs built with an older header work with a newer library, and the
 * other way round.
 */

/* ---- a client ------------------------------------------------------------------------------------ */

/* An open Wayback mount. */
struct wb_client;

/*
 * Opens the Wayback mount that contains `path`, which may name anything in it. *ret is the client, which the caller
 * closes with wb_close. Returns 0; -ENOTTY: the path is not in a Wayback mount; -ENODATA: the mount has no history
 * (history=none); or another negative errno.
 */
int wb_open(const char *path, struct wb_client **ret);

/* Closes the client. Iterators that were made from it can still be ended afterwards, and nothing else. `client` may be
 * NULL. Returns NULL. */
struct wb_client *wb_close(struct wb_client *client);

/*
 * The description of the last failure in this thread: one line, in English, without a newline; "" if there was none.
 * Valid until the next call of the library in this thread. File names in it have control characters escaped.
 */
const char *wb_error_text(void);

/* The version of the library that is loaded, such as "0.1.0". */
const char *wb_library_version(void);

#define WB_CLIENT_READ_ONLY 1u /* the mount is read-only, or shows one moment of the past */

/* A description of a mount, which wb_client_info fills in. */
struct wb_client_info {
    size_t size;       /* set by the caller: sizeof(struct wb_client_info)                                         */
    uint32_t flags;    /* WB_CLIENT_*                                                                              */
    char at_sign;      /* the mark in NAME@TIME                                                                    */
    int64_t began;     /* when the history begins                                                                  */
    int64_t now;       /* the present by the clock of the store: no recorded change is later                       */
    const char *point; /* path of the mount, or of the first directory below it that the caller may read; belongs to
                          the client                                                                               */
};

/* Describes the mount. Returns 0 or a negative errno. */
int wb_client_info(struct wb_client *client, struct wb_client_info *info);

/* ---- times --------------------------------------------------------------------------------------- */

/*
 * Resolves a time as users write it, for `path`: "14:03", "yesterday", "2026-11-20T09:30", "2h30m" (ago), "5 minutes
 * ago", seconds since the epoch, the name of a snapshot that covers the path, or "~N": just before the N-th most
 * recent version of the path ("~~N": change). Returns 0 and the time in *ret; -EINVAL: the text is neither a time nor
 * the name of such a snapshot; or another negative errno.
 */
int wb_time_resolve(struct wb_client *client, const char *path, const char *text, int64_t *ret);

enum wb_time_style {
    WB_TIME_LOCAL = 0, /* 2026-11-20 14:03:07.123456 +0100: local time, for people            */
    WB_TIME_ISO = 1,   /* 2026-11-20T14:03:07.123456789+01:00: local time, ISO 8601           */
    WB_TIME_EPOCH = 2, /* 1763643787.123456789: seconds since the epoch, as in NAME@TIME      */
};

/*
 * Writes `when` as text, with a NUL, to `text`, which has room for `size` bytes; 64 are always enough. Returns 0;
 * -ERANGE: the room is too small; -EINVAL: the style does not exist.
 */
int wb_time_format(int64_t when, enum wb_time_style style, char *text, size_t size);

/* ---- versions ------------------------------------------------------------------------------------ */

/* Changes between `since` and `when` were not recorded. */
#define WB_VERSION_GAP 1u
/* With WB_VERSION_GAP: the gap has not ended, and `when` is the time at which it was noted. */
#define WB_VERSION_GAP_OPEN 2u
/* Several changes in one entry: the versions between `since` and `when` were deleted. */
#define WB_VERSION_THINNED 4u
/* The caller may not see this change: only `when` and `number` are set. */
#define WB_VERSION_WITHHELD 8u

/*
 * A version of a path, and the state after it: all that one process did to a file from open to close, or without a
 * pause of two seconds. Changes of attributes alone are no versions. For a directory, a change of one of its entries.
 */
struct wb_version_info {
    int64_t when;          /* the time of its last change: the version exists from then on                         */
    uint32_t number;       /* 1: the most recent version; the time just before it is "~1"; 0: a gap                */
    uint32_t flags;        /* WB_VERSION_*                                                                         */
    const char *operation; /* "create", "write", "rename", ...: the words that vstat(1) explains                  */
    int existed, exists;   /* whether the object was there before and after the change, under this name            */
    uint64_t size_before, size; /* of the file, before and after                                                   */
    uint64_t offset, length;    /* the bytes that changed; 0, 0: none did                                          */
    uint32_t uid, gid, pid;     /* the process that made the change; pid 0: not known                              */
    const char *command;   /* its command line, "": not known                                                      */
    const char *name;      /* the name of the object then; for a directory: the entry that changed                 */
    const char *other;     /* rename and link: the other name; ""                                                  */
    const char *detail;    /* the name of an extended attribute, or the reason of a gap; ""                        */
    int64_t since;         /* WB_VERSION_GAP, WB_VERSION_THINNED: the beginning; else 0                            */
    int64_t began;         /* the time of its first change                                                         */
    uint32_t operations;   /* so many changes                                                                      */
};

/* An iteration over versions. */
struct wb_version_iter;

/*
 * Begins a list of the versions of `path`, newest first, with changes from `since` to `until` (0: no limit). *ret is
 * the iterator, which the caller ends with wb_version_end. Returns 0 or a negative errno.
 */
int wb_version_begin(struct wb_client *client, const char *path, int64_t since, int64_t until,
                     struct wb_version_iter **ret);

/* The next version in *ret, valid until the next call with this iterator. Returns 0; 1: the end; or a negative errno,
 * such as -ENOENT: nothing was ever recorded under this name. */
int wb_version_next(struct wb_version_iter *iter, const struct wb_version_info **ret);

/* Ends the iteration. `iter` may be NULL. Returns NULL. */
struct wb_version_iter *wb_version_end(struct wb_version_iter *iter);

/* ---- reading the past ---------------------------------------------------------------------------- */

/*
 * The path under which every system call finds what `path` was at `when`: lstat(2), readlink(2), getxattr(2), and
 * others. It is absolute, and the caller frees it with free(). Returns 0 or a negative errno; -ENOENT: nothing was
 * there at that time; -EINVAL: the time is in the future.
 */
int wb_name_at(struct wb_client *client, const char *path, int64_t when, char **ret);

/*
 * Opens `path` as it was at `when`, a file or a directory, for reading and with close-on-exec. Returns a descriptor,
 * which the caller closes, or a negative errno; -ENOENT: nothing was there at that time; -ELOOP: it was a symbolic
 * link; -ENXIO: it was neither a file nor a directory; -EINVAL: the time is in the future.
 */
int wb_open_at(struct wb_client *client, const char *path, int64_t when);

/* An entry of a directory at a time. */
struct wb_list_entry {
    const char *name;
    uint32_t mode;       /* type and permissions, as in struct stat */
    uint32_t uid, gid;
    uint64_t size;
    int64_t mtime;       /* time of the last modification           */
};

/* An iteration over the entries of a directory. */
struct wb_list_iter;

/*
 * Begins a list of the directory `path` as it was at `when`, in byte order of names, without "." and "..". *ret is the
 * iterator, which the caller ends with wb_list_end. Returns 0 or a negative errno, as wb_open_at does.
 */
int wb_list_at(struct wb_client *client, const char *path, int64_t when, struct wb_list_iter **ret);

/* The next entry in *ret, valid until the next call with this iterator. Returns 0; 1: the end; or a negative errno:
 * this entry, which wb_error_text() names, cannot be described, and the next call continues after it. */
int wb_list_next(struct wb_list_iter *iter, const struct wb_list_entry **ret);

/* Ends the iteration. `iter` may be NULL. Returns NULL. */
struct wb_list_iter *wb_list_end(struct wb_list_iter *iter);

/* ---- bringing it back ---------------------------------------------------------------------------- */

#define WB_RESTORE_DRY_RUN 1u   /* change nothing, only report what would be done                               */
#define WB_RESTORE_ALL_LINKS 2u /* change files with several names in place: names outside of the path change, too */
#define WB_RESTORE_NO_SYNC 4u   /* return before the changes are on stable storage                              */

enum wb_restore_action {
    WB_RESTORE_RESTORED = 1,   /* a deleted object came back                                        */
    WB_RESTORE_RENAMED = 2,    /* an object was renamed back, from `other`                          */
    WB_RESTORE_LINKED = 3,     /* an object got this further name; `other` is one that it has       */
    WB_RESTORE_COPIED = 4,     /* a new object with the old content                                 */
    WB_RESTORE_REWRITTEN = 5,  /* content of a file was changed in place                            */
    WB_RESTORE_ATTRIBUTES = 6, /* mode, owner, times or extended attributes were set                */
    WB_RESTORE_UNLINKED = 7,   /* a new file took this name; `other`, or names that are not known, keep the content
                                  that they shared                                                  */
    WB_RESTORE_REMOVED = 8,    /* it did not exist then and was removed                             */
    WB_RESTORE_SHARED = 9,     /* with WB_RESTORE_ALL_LINKS: names outside changed together with it */
    WB_RESTORE_FAILED = 10,    /* nothing was done here: see `error` and `problem`                  */
};

/* One step of a restore. Its texts are valid during the call of `event` only. */
struct wb_restore_event {
    enum wb_restore_action action;
    int error;           /* WB_RESTORE_FAILED: the negative errno; else 0      */
    const char *path;    /* relative to the mount (wb_client_info: `point`)    */
    const char *other;   /* see the actions; NULL: none, or not known          */
    const char *problem; /* WB_RESTORE_FAILED: one line; else NULL             */
    uint64_t bytes;      /* of content that was written                        */
};

/* How to restore. A pointer to it may be NULL: everything as with zeros. */
struct wb_restore_options {
    size_t size;    /* set by the caller: sizeof(struct wb_restore_options)                    */
    uint32_t flags; /* WB_RESTORE_DRY_RUN, WB_RESTORE_ALL_LINKS, WB_RESTORE_NO_SYNC            */
    /* Called after each step, in the thread of the caller. It must not use the client. If it returns anything but 0,
     * the restore stops and returns -EINTR; the same call again finishes it. May be NULL. */
    int (*event)(void *data, const struct wb_restore_event *event);
    void *data;     /* for `event`                                                             */
};

/* What a restore did; zeros if it did not begin. A pointer to it may be NULL. */
struct wb_restore_result {
    size_t size;       /* set by the caller: sizeof(struct wb_restore_result)                            */
    int64_t when;      /* the time to which the path was restored                                        */
    int64_t before;    /* a time just before the first change: wb_restore with it reverses the restore   */
    uint64_t actions;  /* number of steps, without failures; 0: the path was as it was then              */
    uint64_t failures; /* number of entries that could not be restored                                   */
    uint64_t bytes;    /* of content that was written                                                    */
};

/*
 * Makes `path` what it was at `when`: content, names and attributes of a file, or of a directory with everything below
 * it. A path that did not exist then is removed. The changes are recorded like any others, so they can be reversed (see
 * `before` in struct wb_restore_result). If an entry cannot be restored, the others are, but nothing is removed;
 * after an interruption the same call finishes the work. Other mounts below the path are left alone (-EXDEV).
 * Returns 0; -EINTR: `event` stopped it; -EINVAL: the time is in the future; or the negative errno of the first
 * failure.
 */
int wb_restore(struct wb_client *client, const char *path, int64_t when, const struct wb_restore_options *options,
               struct wb_restore_result *result);

/*
 * Undoes the most recent version of `path`: restores the state before it, under the name that it had then. That is a
 * change as well, and often several; wb_restore to the time `before` of the result reverses all of them. Returns 0 or a
 * negative errno, as wb_restore does; -ENOENT: nothing was ever recorded under this name.
 */
int wb_undo(struct wb_client *client, const char *path, const struct wb_restore_options *options,
            struct wb_restore_result *result);

/* ---- snapshots ----------------------------------------------------------------------------------- */

#define WB_SNAPSHOT_AUTOMATIC 1u /* created by a schedule of wayback.conf(5) */

/* A named time of a directory and everything below it. */
struct wb_snapshot_info {
    const char *name;
    const char *text; /* the description, "": none                                                */
    const char *path; /* the directory when the snapshot was created, relative to the root of the file system;
                         "": the root itself                                                      */
    int64_t when;
    uint32_t uid;     /* the user who created it                                                  */
    uint32_t flags;   /* WB_SNAPSHOT_*                                                            */
};

/* An iteration over snapshots. */
struct wb_snapshot_iter;

/*
 * Begins a list of the snapshots that the caller can see, oldest first: all of them (`name` NULL), or those with that
 * name. *ret is the iterator, which the caller ends with wb_snapshots_end. Returns 0 or a negative errno.
 */
int wb_snapshots_begin(struct wb_client *client, const char *name, struct wb_snapshot_iter **ret);

/* The next snapshot in *ret, valid until the next call with this iterator. Returns 0; 1: the end. */
int wb_snapshots_next(struct wb_snapshot_iter *iter, const struct wb_snapshot_info **ret);

/* Ends the iteration. `iter` may be NULL. Returns NULL. */
struct wb_snapshot_iter *wb_snapshots_end(struct wb_snapshot_iter *iter);

/*
 * Creates a snapshot of the present state of the directory `path`, and brings everything that was written before to
 * stable storage. `text` is its description, or NULL. Returns 0 and its time in *ret_when, which may be NULL; -EEXIST:
 * the name is taken; -EINVAL: it cannot be the name of a snapshot; or another negative errno.
 */
int wb_snapshots_create(struct wb_client *client, const char *path, const char *name, const char *text,
                        int64_t *ret_when);

/* Removes the snapshot `name`. The state of its time can still be read by that time, until it expires. Returns 0;
 * -ENOENT: there is none of that name; or another negative errno. */
int wb_snapshots_remove(struct wb_client *client, const char *name);

/* ---- usage --------------------------------------------------------------------------------------- */

#define WB_USAGE_PARTIAL 1u /* the caller may not see everything: there may be more */

/* The space of history. */
struct wb_usage_info {
    size_t size;    /* set by the caller: sizeof(struct wb_usage_info)             */
    uint32_t flags; /* WB_USAGE_*                                                  */
    uint64_t files; /* of the store                                                */
    uint64_t bytes; /* of kept history, as if nothing were compressed              */
    uint64_t disk;  /* bytes on the disk                                           */
    int64_t oldest, newest; /* times of the oldest and newest record; 0: there is none */
};

/*
 * Measures the space of the history of `path` and everything below it. The first call reads the whole store, which can
 * take minutes. Returns 0 or a negative errno.
 */
int wb_usage_get(struct wb_client *client, const char *path, struct wb_usage_info *info);

#ifdef __cplusplus
}
#endif

#endif
