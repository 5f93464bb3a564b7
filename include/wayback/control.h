/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_CONTROL_H
#define WAYBACK_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/*
 * The requests that a Wayback mount answers in addition to POSIX: ioctl(2) on any open directory of the mount.
 *
 * Tools read the past as `PATH@TIME` and change the present with ordinary system calls, so that the kernel checks every
 * permission; this interface has only the functions that POSIX does not have. Every path is relative to the directory
 * that the ioctl is made on, may name objects that no longer exist, and is resolved with the permissions of the caller:
 * the caller must be allowed to search each directory of the path, both then and now.
 *
 * One request and one reply share one fixed-size buffer (FUSE copies it both ways), in native byte order: both ends are
 * on the same machine. Errors are the errno of ioctl(2): ENOTTY (not a Wayback mount), EINVAL, ENOENT, EACCES, EPERM,
 * EROFS, EIO. EREMOTE: the caller is in another user or mount namespace than the daemon, and the request changes or
 * erases something or is restricted to root and the user who mounted (RESTORE returns EXDEV instead).
 *
 * Several requests return their result in parts. The caller starts with cursor 0 and repeats the request with the
 * cursor of the last reply, until the reply marks the end (see each command). Times are nanoseconds since the epoch.
 */
#define WB_CONTROL_VERSION 1
#define WB_CONTROL_PATH_MAX 4096
#define WB_CONTROL_DATA_MAX 8192

/* Prefix of the directory in which the layers of a branch are mounted until its overlay is. In these mounts, no name
 * means the past. */
#define WB_LAYERS_PREFIX "wayback-layers-"

enum wb_control_command {
    WB_CONTROL_HELLO = 1,    /* reply: struct wb_control_hello                                    */
    WB_CONTROL_VERSIONS = 2, /* path; reply: count x struct wb_control_version, newest first      */
    WB_CONTROL_IDENTIFY = 3, /* path, optionally with @TIME; reply: struct wb_control_identity    */
    WB_CONTROL_RESTORE = 4,  /* path: the name to restore; source: a path "NAME@TIME": links the object of source to
                                path again without copying, and replaces a file there. Allowed for its owner and
                                root; others get EXDEV and have to copy */
    WB_CONTROL_ERASE = 5,    /* path; flags WB_CONTROL_ERASE_*; reply: struct wb_control_erased   */
    WB_CONTROL_SNAPSHOT_CREATE = 6, /* path: a directory; data: wb_control_snapshot_new; reply: one
                                wb_control_snapshot. Everything written before is on stable storage then */
    WB_CONTROL_SNAPSHOT_LIST = 7, /* path: for WB_CONTROL_SNAPSHOT_COVERS; source: a name, or "" for all;
                                reply: count (0: the end) x wb_control_snapshot, oldest first, without those
                                of others of directories that the caller cannot list */
    WB_CONTROL_SNAPSHOT_RENAME = 8, /* data: struct wb_control_snapshot_names                     */
    WB_CONTROL_SNAPSHOT_DELETE = 9, /* source: the name                                           */
    WB_CONTROL_CHANGES = 10, /* path; data: struct wb_control_changes; since, until; reply: count x
                                wb_control_change, all changes below path, newest first, and flags
                                WB_CONTROL_CHANGES_*                                              */
    WB_CONTROL_SNAPSHOT_FILES = 12, /* source: the name; reply: count paths in a wb_control_open_files; the end is
                                reached if the reply does not change the cursor                   */
    WB_CONTROL_ENTRIES = 13, /* path of a directory, usually DIR@TIME; reply: count (0: the end) x struct
                                wb_control_entry, packed, in byte order of names                  */
    WB_CONTROL_COMPACT = 20, /* path, of the present or NAME@TIME: the history to compress; until: only history before
                                this time, 0: all; flags WB_CONTROL_COMPACT_*; the cursor is used with ALL; reply:
                                struct wb_control_compacted; count 0: the end, or (error ECANCELED, cursor unchanged)
                                repeat the request */
    WB_CONTROL_USAGE = 18,   /* path of a directory or file, possibly deleted or NAME@TIME: the space of its history;
                                data: wb_control_usage_ask; reply: a wb_control_usage, and flags WB_CONTROL_USAGE_*.
                                With BUILDING it reports the progress; else it is complete, and count x
                                wb_control_usage_dir follow it, packed, in byte order of paths. ESTALE: restart with
                                cursor 0 */
    WB_CONTROL_PRUNE = 21,   /* until: deletes all history before this time, in the whole store; flags
                                WB_CONTROL_PRUNE_*; reply: struct wb_control_pruned; count 0: the end. For root and
                                the user who mounted. EBUSY: another prune is running; ECANCELED: it was aborted */
    WB_CONTROL_THIN = 22,    /* path: a file, or a directory with everything below it; data: rules in the syntax of
                                wayback.conf(5): deletes the versions that no rule keeps; flags WB_CONTROL_THIN_*;
                                reply: struct wb_control_thinned; count 0: the end. For root and the user who mounted.
                                EBUSY: another one is running, or another process reads the store while the daemon
                                serves it; ECANCELED: it was aborted */
    WB_CONTROL_ERASE_BEFORE = 23, /* path; until: a time in the past: deletes the history of path before it; flags
                                WB_CONTROL_ERASE_RECURSIVE; reply: struct wb_control_erased        */
    WB_CONTROL_ERASE_VERSIONS = 24, /* path of an existing file; since, until: the `when`s of two of its changes:
                                deletes the states between them; flags WB_CONTROL_ERASE_DRY; reply:
                                struct wb_control_erased_versions                                  */
    WB_CONTROL_BUDGET = 25,  /* reply: struct wb_control_budget: the limits of age and space in wayback.conf, and count
                                x struct wb_control_user. Users other than root and the user who mounted need flag
                                WB_CONTROL_BUDGET_OWN (user_max_size and their own entry only), else they get EPERM.
                                ENODATA: not known                                                 */
    WB_CONTROL_MOVE = 26,    /* source: an absolute path, "": SRC/.wayback: moves the store there while the mount is in
                                use; flags WB_CONTROL_MOVE_*; reply: struct wb_control_moved. For root and the user
                                who mounted. File system requests wait only while the last part is copied. Then the
                                old place is removed; a repeated request continues that. EBUSY: another move or a
                                prune is running */
    WB_CONTROL_ERASE_NAMES = 27, /* as ERASE, for several names in one pass over the store; data: count x
                                wb_control_erase_name, packed; reply: as many wb_control_erased_name, in that order */
    WB_CONTROL_ERASE_MEASURE = 28, /* path; flags WB_CONTROL_ERASE_FORMER: reports how many bytes of the disk an
                                ERASE_RECURSIVE of it would free, and changes nothing. For callers who may erase it;
                                reply: wb_control_freed */
    WB_CONTROL_EDITED = 29,  /* path of a present directory; since: the entries below it whose inode was changed after
                                that (its ctime), whether through the mount or not; reply: a wb_control_edited with
                                count paths, each with its NUL; flags WB_CONTROL_EDITED_MORE: repeat with this cursor.
                                For root and the user who mounted. E2BIG: too many. ESTALE: restart with cursor 0 */
    WB_CONTROL_NAMES = 11,   /* path of a directory, possibly deleted or DIR@TIME; source: one name, "": all;
                                reply: count x struct wb_control_name, packed, in byte order of names; since:
                                when the history began; until: the time of the directory, INT64_MAX: the present;
                                flags WB_CONTROL_NAMES_* in both directions. The caller must be allowed to list and
                                search it, now and then; names that existed only while that was not allowed are
                                left out */
};

struct wb_control {
    uint32_t version; /* WB_CONTROL_VERSION */
    uint32_t command;
    uint32_t flags;
    uint32_t count;   /* lists: in the reply, the number of items; 0: the end */
    uint64_t cursor;  /* VERSIONS, NAMES: how many items to skip (first 0; then add `count`); others: see above */
    int64_t since;    /* VERSIONS: no changes before this; 0: from the beginning */
    int64_t until;    /* VERSIONS: no changes after this; 0: to the present      */
    char path[WB_CONTROL_PATH_MAX];
    union {
        char source[WB_CONTROL_PATH_MAX];
        uint8_t data[WB_CONTROL_DATA_MAX];
    };
};
#define WB_CONTROL_IOCTL _IOWR('W', 0x42, struct wb_control)

#define WB_CONTROL_NAMES_SPANS 1u      /* request: all spans of a name (WB_CONTROL_SPANS_MAX), not only the last one */
#define WB_CONTROL_NAMES_INCOMPLETE 2u /* reply: part of the records is damaged or missing                           */
#define WB_CONTROL_SPANS_MAX 64u

#define WB_CONTROL_ERASE_RECURSIVE 1u
#define WB_CONTROL_ERASE_PRESENT 2u
#define WB_CONTROL_ERASE_FORMER 4u /* path may contain NAME@TIME and name an object of a former directory */
#define WB_CONTROL_ERASE_DRY 8u /* ERASE_VERSIONS: only report whether it is possible */

struct wb_control_hello {
    char source[WB_CONTROL_PATH_MAX]; /* the SRC argument of the daemon, made absolute. "": the caller is neither root
                                         nor the user who mounted; then pid is 0, and source_fd and store_fd are -1 */
    uint8_t uuid[16];                 /* of the store */
    uint32_t history;                 /* 1: history=write, 0: none */
    uint32_t read_only;
    int64_t moment;                   /* the time of a mount with -o at=; 0: the present */
    uint32_t pid;                     /* the daemon, and its descriptors of SRC and of the store (-1: the store is */
    int32_t source_fd, store_fd;      /* SRC/.wayback): if the mount covers SRC, /proc/PID/fd leads below it */
    uint32_t no_handles;              /* can be a layer of an overlay: the kernel makes no file handles of its files */
    int64_t created;                  /* when the history begins; 0: there is none */
    int64_t now;                      /* the present, to which relative times refer: at or after every recorded change,
                                         and therefore later than a wall clock that was set back */
    uint32_t at_sign;                 /* the mark in NAME@TIME (<wayback/at_name.h>); 0, from older daemons: '@' */
    uint32_t io_uring;                /* 1: requests come through io_uring; 0: they are read from /dev/fuse */
};

#define WB_CONTROL_VERSIONS_COUNTED 1u /* reply to VERSIONS: `save` is filled in (not by older daemons) */
/* The caller could not read the changed object then, or cannot now: only `when` and `change` are set. */
#define WB_CONTROL_VERSION_WITHHELD 1u
/* A gap: changes from `offset` (ns) to `when` could not be recorded (onfull=continue). The states before are unknown,
 * except for what later changes recorded. */
#define WB_CONTROL_VERSION_GAP 2u
/* Several changes in one: the states between the one at `thinned_since` and this one were deleted. The state before is
 * that before the first of them. */
#define WB_CONTROL_VERSION_THINNED 4u
/* With GAP: it has not ended, and `when` is when it was noted. */
#define WB_CONTROL_VERSION_OPEN 8u

struct wb_control_version {
    int64_t when;
    uint64_t offset, length, size_before, size_after;
    uint32_t change;
    uint32_t uid, gid, pid;
    uint16_t op;
    uint8_t existed_before, exists_after;
    uint32_t mode_before;
    uint32_t flags;   /* WB_CONTROL_VERSION_* */
    uint32_t save;    /* number of the version it belongs to, 1: the most recent; 0: none, such as attributes alone */
    char op_name[16];
    int64_t thinned_since; /* with THINNED: the time of the first of the changes */
    char name[256];   /* its base name then; for a directory: the entry that changed */
    char other[256];  /* rename, link: the other name; "?": hidden from the caller */
    char detail[256]; /* name of an extended attribute */
    char command[256];
};

enum wb_control_state { WB_CONTROL_ALIVE = 1, WB_CONTROL_BURIED = 2, WB_CONTROL_GONE = 3 };

struct wb_control_identity {
    uint64_t ino;  /* the object */
    int64_t birth;
    int64_t when;  /* the time that the request names; INT64_MAX: the present */
    uint32_t mode;
    uint32_t state; /* enum wb_control_state: in the tree, deleted but kept, or lost */
    uint32_t unchanged; /* 1: a file whose content now equals its content then */
    uint32_t others; /* BURIED: number of its links in the tree under other names; 0 from older daemons */
    uint64_t number; /* its present inode number, as stat(2) returns it */
    char path[WB_CONTROL_PATH_MAX]; /* ALIVE: relative to the root of the mount */
};

/*
 * Snapshots. Root and the user who runs the daemon may do everything; the owner of a directory may create snapshots of
 * it, and rename and delete those that were not created by these two. Each user has their own names: a name that root,
 * the user who runs the daemon or a schedule uses is taken for all users; other users may use the same name. EEXIST:
 * the name is taken; ENOENT: no snapshot of that name, or none that the caller can see; ENOTUNIQ: several users have
 * this name, and the caller may change all of these but has none; ENOSPC: there are too many snapshots; EDQUOT: this
 * user has too many.
 */
struct wb_control_snapshot_new {
    char name[256];
    char text[1032]; /* at most WB_SNAPSHOT_TEXT_BYTES and NUL */
};

#define WB_CONTROL_SNAPSHOT_AUTOMATIC 1u
#define WB_CONTROL_SNAPSHOT_COVERS 2u /* LIST: `path` is now in the snapshot's directory */
#define WB_CONTROL_SNAPSHOT_MAY 4u    /* the caller may rename and delete it             */
#define WB_CONTROL_SNAPSHOT_MEANT 8u  /* LIST: `path`@NAME refers to this one of the snapshots with its name */

struct wb_control_snapshot {
    uint32_t size;  /* of this entry, its strings included: the next one begins there */
    uint32_t flags; /* WB_CONTROL_SNAPSHOT_*                                          */
    int64_t when;
    uint64_t scope_ino; /* the object of the snapshot's directory */
    int64_t scope_birth;
    uint32_t uid;
    uint16_t text, path; /* offsets in `strings`, which begins with the name; `path`: of the directory when the
                            snapshot was created, relative to the root of the mount, "" for the root itself */
    char strings[];
};

/*
 * Changes below a path. The time of one request is bounded, so a reply can be empty although there are more changes;
 * check WB_CONTROL_CHANGES_MORE.
 */
#define WB_CONTROL_CHANGES_BY_USER 1u  /* request: only changes by `uid`                             */
#define WB_CONTROL_CHANGES_BY_COMMAND 16u /* request: only changes by command lines that contain one of `commands`;
                                          older daemons ignore it                                    */
#define WB_CONTROL_CHANGES_MORE 2u     /* reply: repeat the request with the cursor of the reply     */
#define WB_CONTROL_CHANGES_BUILDING 4u /* reply: the timeline is being built, and the cursor is the progress in 1/1000:
                                          repeat the request with the same cursor as before          */
#define WB_CONTROL_CHANGES_WHOLE 8u    /* reply: every change in the part of the list that this reply covers is in it,
                                          with its path. Without: some may be missing (damaged, hidden from the
                                          caller, by others and not noticed yet, or under way) */

#define WB_CONTROL_CHANGES_COMMANDS_MAX 512u
struct wb_control_changes {
    uint32_t flags;
    uint32_t uid;
    char commands[WB_CONTROL_CHANGES_COMMANDS_MAX]; /* each with a NUL at its end; an empty one ends the list */
};

#define WB_CONTROL_CHANGE_SAME 1u    /* made by the same process as the previous one of this reply   */
#define WB_CONTROL_CHANGE_UNKNOWN 2u /* the record does not contain the name: "?" in the path        */
#define WB_CONTROL_CHANGE_GAP 4u     /* a gap: no changes were recorded from `offset` to `when`; `detail`: the reason */
#define WB_CONTROL_CHANGE_OPEN 8u    /* with GAP: it has not ended                                   */
#define WB_CONTROL_CHANGE_BEGINS 32u /* of content: the first change through an open file, or one by path */
#define WB_CONTROL_CHANGE_LINKED 16u /* the object had, or may have had, more names than the paths show; with UNKNOWN,
                                        and without LINKED: it had none */

struct wb_control_change {
    uint32_t size; /* of this entry, its strings included: the next one begins there */
    uint32_t flags;
    int64_t when;
    uint64_t ino; /* the object; 0: the record does not contain it */
    int64_t birth;
    uint64_t offset, length, size_before, size_after;
    uint32_t uid, gid, pid;
    uint32_t actor; /* the same number for all changes of one process; 0: not known */
    uint32_t mode_before;
    uint16_t op;
    uint8_t existed_before, exists_after;
    /* Offsets in `strings`, 0: there is none. Paths are those at the time of the change, relative to the path of the
     * request ("." for that itself); with a leading "/", relative to the root of the mount, if they are not below. */
    uint16_t op_name, path;
    uint16_t other;  /* rename: the new path; link, restore: the former one */
    uint16_t detail; /* name of an extended attribute */
    uint16_t command, zero;
    char strings[];
};

struct wb_control_snapshot_names {
    char name[256];
    char new_name[256];
};

struct wb_control_open_files {
    uint64_t more;   /* number of further files that were open, but not recorded           */
    uint64_t hidden; /* number of files of this reply that the caller may not see          */
    char paths[WB_CONTROL_DATA_MAX - 16]; /* relative to the root of the mount, each with a NUL at its end */
};

/*
 * A span of a name: from its creation in the directory until its removal. The newest span of each name comes first;
 * older ones follow if they were requested, or if they were directories with names of their own.
 */
struct wb_control_name {
    uint32_t length; /* of this item, a multiple of 8: the next one follows */
    uint32_t mode;   /* at the end of the span */
    uint32_t index;  /* 0: the newest of this name */
    uint32_t spans;  /* number of spans that the name had */
    uint64_t ino;    /* the object at the end of the span */
    int64_t birth;
    int64_t first;   /* time of the change that began it; 0: before the history began */
    int64_t last;    /* time of the change that ended it; 0: it existed at the time of the directory */
    uint64_t size;   /* when it ended */
    uint32_t actor;  /* the process that ended it, the same number for all its changes; 0: not known */
    uint32_t uid, gid, pid;
    uint8_t moved;   /* 1: it ended by a rename to `to` ("" if the caller may not see the new name) */
    uint8_t replaced; /* 1: a directory that another object replaced under this name, which therefore still exists */
    uint8_t zero[6];
    char text[];     /* name, NUL, `to`, NUL, command, NUL; `to` is a name in the same directory, or "/" and the
                        path relative to the root */
};

/* An entry of a directory, with the identity of its object, which never changes. */
struct wb_control_entry {
    uint32_t size;  /* of this item, its name included: the next one begins there */
    uint32_t mode;
    uint64_t ino;   /* the object */
    int64_t birth;
    uint64_t length;
    int64_t mtime, ctime;
    uint32_t uid, gid;
    char name[];
};

#define WB_CONTROL_EDITED_MORE 1u

struct wb_control_edited {
    uint64_t looked; /* number of entries below the path */
    char paths[WB_CONTROL_DATA_MAX - 8]; /* relative to the root */
};

#define WB_CONTROL_COMPACT_UNDO 1u  /* decompress                                       */
#define WB_CONTROL_COMPACT_DRY 2u   /* only report how much space it would free         */
#define WB_CONTROL_COMPACT_STATS 4u /* only report the present state                    */
#define WB_CONTROL_COMPACT_ALL 8u   /* the whole store, a part of it with each request  */

struct wb_control_compacted {
    uint64_t logs;     /* examined                                                             */
    uint64_t changed;  /* that were compressed or decompressed, or would be                    */
    uint64_t packed;   /* that are compressed afterwards                                       */
    uint64_t old_size; /* bytes of their files before and after; with ECANCELED only the       */
    uint64_t new_size; /* difference of these two (modulo 2^64) and `changed` are meaningful   */
    uint64_t length;   /* bytes of their files if decompressed                                 */
    uint32_t error;    /* errno of the last failure; 0: there was none                         */
    uint32_t zero;
    /* The same for deleted and replaced files; a bundle of several is counted once. */
    uint64_t files, files_changed, files_packed;
    uint64_t files_old_size, files_new_size, files_length;
};

/*
 * The space of history. The bytes of a file are counted in the directory of its last name: the one where it was
 * deleted, moved to, or changed; those of a directory at its present or last path. The reply covers everything for root
 * and the user who runs the daemon. For other users it covers directories that they were allowed to list and search all
 * the time since the oldest record that is counted there, and are now, and files that they could read for as long.
 */
#define WB_CONTROL_USAGE_MORE 1u     /* repeat the request with this cursor                                 */
#define WB_CONTROL_USAGE_BUILDING 2u /* the sums are being computed                                          */
#define WB_CONTROL_USAGE_PART 4u     /* the caller may not see everything; there may be more                 */
#define WB_CONTROL_USAGE_STORE 8u    /* the whole store, with its own files and bytes of no directory        */

struct wb_control_usage_ask {
    uint32_t depth; /* number of levels of directories below the path to list; each includes everything below it */
    uint32_t most;  /* at most so many files, and so many programs, are listed, those with the largest history */
};

/*
 * The items of the reply, in this order. A file's item is of all files that had this path last, one after the other.
 * A program's item has the bytes of the changes that it made; the last of these is the sum of all programs that have no
 * item. Only root and the user who runs the daemon get items of programs that other users ran.
 */
enum wb_control_usage_item {
    WB_CONTROL_USAGE_ITEM_DIR, /* wb_control_usage_dir, in byte order of paths */
    WB_CONTROL_USAGE_ITEM_FILE, /* wb_control_usage_dir, the largest first      */
    WB_CONTROL_USAGE_ITEM_PROGRAM, /* wb_control_usage_program, the largest first  */
    WB_CONTROL_USAGE_ITEM_REST, /* the same, without a name and a user */
};

enum wb_control_usage_kind {
    WB_CONTROL_USAGE_UNDO,      /* undo logs                                 */
    WB_CONTROL_USAGE_CATALOGS,  /* names and attributes                      */
    WB_CONTROL_USAGE_IMAGES,    /* cloned before-images                      */
    WB_CONTROL_USAGE_BODIES,    /* deleted files and directories themselves  */
    WB_CONTROL_USAGE_TIMELINE,  /* only with WB_CONTROL_USAGE_STORE, as those below */
    WB_CONTROL_USAGE_SNAPSHOTS,
    WB_CONTROL_USAGE_OTHER,     /* the table of actors, and the store's own files and directories */
    WB_CONTROL_USAGE_KINDS
};
/* Ages relative to `now`: the last hour, day, week, 30 days, 365 days, and older. Each excludes those before it. */
#define WB_CONTROL_USAGE_AGES 6

struct wb_control_usage_sum {
    uint64_t files;
    uint64_t bytes;  /* kept history: logs count decompressed, images by the bytes that records refer to; a deleted
                        file that still has another name counts 0 */
    uint64_t stored; /* length of the files                           */
    uint64_t disk;   /* bytes of their blocks                         */
    uint64_t shared; /* the part of `disk` that images share with other files, if the file system reports it */
};

struct wb_control_usage {
    uint64_t looked;   /* files examined so far  */
    uint32_t permille; /* progress               */
    uint32_t zero;
    struct wb_control_usage_sum kinds[WB_CONTROL_USAGE_KINDS];
    uint64_t ages[WB_CONTROL_USAGE_AGES]; /* bytes, by the time of the change */
    uint64_t packed;          /* logs with a compressed part                            */
    uint64_t damaged;         /* files that could not be read, or not completely        */
    int64_t oldest, newest;   /* records; 0: there is none                              */
    int64_t created, now;     /* when the history began; the time that ages refer to    */
    uint64_t room, free;      /* size and free space of the store's file system, bytes  */
    uint64_t gaps;            /* files and directories with a gap in their history      */
    int64_t gaps_since, gaps_until; /* start of the first gap and end of the last one; since 0: the beginning */
};

struct wb_control_usage_dir {
    uint32_t size;  /* of this item, its path included: the next one begins there */
    uint32_t kind;  /* enum wb_control_usage_item */
    uint64_t files, bytes, disk, shared; /* including everything below it */
    int64_t oldest, newest;
    char path[]; /* relative to the path of the request; "": that itself */
};

struct wb_control_usage_program {
    uint32_t size, kind; /* as above */
    uint32_t uid;        /* its user */
    uint32_t zero;
    uint64_t bytes;
    int64_t newest; /* change; 0: unknown */
    char name[];    /* the base name of the command; "": unknown */
};

struct wb_control_budget {
    uint64_t max_size, reserve; /* bytes; 0: not set */
    int64_t keep; /* ns: versions replaced less than that ago are kept; INT64_MAX: all are kept; 0: not set */
    uint64_t user_max_size; /* bytes; 0: not set, and users are not counted */
};

/* The space of the history of each user's changes, largest first, as many as fit into the reply. */
#define WB_CONTROL_USER_STUCK 1u /* the rest is protected, so changes of this user are refused at the limit */
#define WB_CONTROL_BUDGET_OWN 1u
#define WB_CONTROL_BUDGET_USERS_MAX 256u
struct wb_control_user {
    uint32_t uid;
    uint32_t flags; /* WB_CONTROL_USER_* */
    uint64_t bytes; /* on the disk, an upper bound */
};

#define WB_CONTROL_PRUNE_DRY 1u /* only report how much space it would free */

struct wb_control_pruned {
    int64_t horizon;      /* the new beginning of the history, or the one it would have         */
    uint64_t snapshots;   /* number of earlier snapshots; if not 0, nothing was done            */
    uint64_t logs;        /* examined                                                           */
    uint64_t changed;     /* logs that were rewritten                                           */
    uint64_t log_bytes;   /* freed in logs                                                      */
    uint64_t image_bytes; /* freed in before-images of large changes                            */
    uint64_t body_bytes;  /* freed by deleting files that had been deleted from the tree        */
    uint64_t bodies;      /* number of these files, and of directories                          */
    uint64_t kept;        /* logs and deleted files that could not be pruned                    */
    uint32_t error;       /* errno of the last of these failures                                */
    uint32_t permille;    /* progress                                                           */
    char snapshot[512];   /* the oldest of the earlier snapshots, with its time, as text        */
};

#define WB_CONTROL_MOVE_CHECK 1u /* only report whether a move is permitted, and whether another mount prevents it */

struct wb_control_moved {
    uint64_t files, bytes; /* copied                                                                        */
    int64_t pause;         /* ns: how long requests were suspended                                          */
    uint32_t moved;        /* 1: the store is in the new place                                              */
    uint32_t error;        /* errno; 0: complete. With `moved`: the cleanup is incomplete. EAGAIN: requests in
                              the mount did not finish; try again                                           */
    char text[1024];       /* the reason                                                                    */
};

#define WB_CONTROL_THIN_DRY 1u    /* only report how much space it would free         */
#define WB_CONTROL_THIN_POLICY 2u /* use the rules of wayback.conf instead of `data`  */
#define WB_CONTROL_THIN_CHECK 4u  /* only check the rules for mistakes                */

struct wb_control_thinned {
    uint64_t logs;        /* examined                                                           */
    uint64_t changed;     /* rewritten                                                          */
    uint64_t versions;    /* deleted                                                            */
    uint64_t log_bytes;   /* freed in logs                                                      */
    uint64_t image_bytes; /* freed in before-images of large changes                            */
    uint64_t kept;        /* logs that could not be thinned                                     */
    uint32_t error;       /* errno of the last of these failures                                */
    uint32_t permille;    /* progress                                                           */
    char mistake[512];    /* if not "": a mistake in the rules; nothing was done                */
    uint64_t held;        /* files whose versions were kept because a damaged catalog may       */
    char directory[512];  /* refer to them: that of this directory, relative to the tree or "." */
    uint64_t body_bytes;  /* freed in files that were replaced                                  */
};

struct wb_control_erased {
    uint64_t objects, bytes;
};

struct wb_control_freed {
    uint64_t history; /* if only the history is erased                                           */
    uint64_t all;     /* if the present files are erased as well                                 */
    uint64_t shared;  /* in neither: blocks shared with other files, whether erased or not       */
};

#define WB_CONTROL_ERASE_NAMES_MAX 64u /* per request, because other requests wait for it */

struct wb_control_erase_name {
    uint32_t size;  /* of this item, its path included, a multiple of 8: the next one begins there */
    uint32_t flags; /* WB_CONTROL_ERASE_*, the same in all items except for FORMER                 */
    char path[];    /* padded with zeros */
};

struct wb_control_erased_name {
    uint64_t objects, bytes; /* of something erased under several of the names: objects count for each, bytes once */
    uint32_t error, zero;    /* the errno of an ERASE of this name alone; 0: it was erased */
};

/* Why ERASE_VERSIONS was refused; nothing was changed then. */
enum wb_control_refusal {
    WB_CONTROL_REFUSED_NONE = 1,     /* the log of the file does not contain these two changes                       */
    WB_CONTROL_REFUSED_CATALOG = 2,  /* its directory has a record of one of them: of its name, attributes or removal */
    WB_CONTROL_REFUSED_STAGE = 3,    /* one of them was recorded with history=close                                  */
    WB_CONTROL_REFUSED_KIND = 4,     /* one of the changes affects more than content and attributes, or is a gap     */
    WB_CONTROL_REFUSED_SNAPSHOT = 5, /* a snapshot shows a time between them                                         */
    WB_CONTROL_REFUSED_BUNDLE = 6,   /* a bundle contains a former state of the file                                 */
    WB_CONTROL_REFUSED_DAMAGED = 7,  /* a log that may refer to it is damaged                                        */
    WB_CONTROL_REFUSED_SHOWN = 8,    /* another process shows a time between them, or reads the store (tables/pins.h) */
};

struct wb_control_erased_versions {
    uint64_t versions, bytes;
    uint32_t refused; /* enum wb_control_refusal; 0: it was done, or would be */
    uint32_t zero;
};

/*
 * Checks that `reply` is a valid answer to a request of this command and cursor: all sizes are within bounds, all
 * strings end with a NUL, names do not lead elsewhere, and a list that announces more items makes progress. Callers
 * must check every reply before they read it: the daemon of a mount may be any program of any user. Returns 0 or
 * -EPROTO. Thread-safe.
 */
int wb_control_check(uint32_t command, uint64_t cursor, const struct wb_control *reply);

/* Iterates over the names of an ERASE_NAMES request: returns the one at offset *used (0 at first) and advances *used.
 * NULL if there is no valid name. */
const struct wb_control_erase_name *wb_control_erase_name(const struct wb_control *request, size_t *used);

#endif
