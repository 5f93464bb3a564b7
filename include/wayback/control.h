/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef WAYBACK_CONTROL_H
#define WAYBACK_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

/*
 * What a mounted Wayback answers beyond POSIX: ioctl(2) on any open directory of the mount.
 *
 * Tools read the past as `PATH@TIME` and change the present with ordinary system calls, so that the
 * kernel checks every permission; this interface has only what POSIX lacks. Every path is relative
 * to the directory the ioctl is made on, may name things that no longer exist, and is resolved with
 * the caller's rights: directories on the way must be searchable by the caller, then and now.
 *
 * One request, one reply, in one fixed-size buffer (FUSE copies it both ways). Native byte order:
 * both ends are the same machine. Errors are errno as of ioctl(2): ENOTTY (no Wayback mount),
 * EINVAL, ENOENT, EACCES, EPERM, EROFS, EIO. EREMOTE: a request that changes or erases something, or is for root and
 * the user who mounted, came from a process in another user or mount namespace than the daemon's (RESTORE: EXDEV).
 */
#define WB_CONTROL_VERSION 1
#define WB_CONTROL_PATH_MAX 4096
#define WB_CONTROL_DATA_MAX 8192

enum wb_control_command {
    WB_CONTROL_HELLO = 1,    /* reply: struct wb_control_hello                                    */
    WB_CONTROL_VERSIONS = 2, /* path; reply: count x struct wb_control_version, newest first      */
    WB_CONTROL_IDENTIFY = 3, /* path (with @TIME perhaps); reply: struct wb_control_identity      */
    WB_CONTROL_RESTORE = 4,  /* path: name to bind; source: what was there ("NAME@TIME" path): the
                                object of source is bound to path again, without copying; replaces a file. By
                                its owner and root; others get EXDEV, and copy */
    WB_CONTROL_ERASE = 5,    /* path; flags WB_CONTROL_ERASE_*; reply: struct wb_control_erased   */
    WB_CONTROL_SNAPSHOT_CREATE = 6, /* path: a directory; data: wb_control_snapshot_new; reply: one
                                wb_control_snapshot. What was written before it is on stable storage then */
    WB_CONTROL_SNAPSHOT_LIST = 7, /* path: for WB_CONTROL_SNAPSHOT_COVERS; source: a name, or "" for all;
                                cursor: 0, then that of the last reply; reply: count (0: no more) x
                                wb_control_snapshot, oldest first, but for those of directories that the
                                caller cannot reach */
    WB_CONTROL_SNAPSHOT_RENAME = 8, /* data: struct wb_control_snapshot_names                     */
    WB_CONTROL_SNAPSHOT_DELETE = 9, /* source: the name                                           */
    WB_CONTROL_CHANGES = 10, /* path; data: struct wb_control_changes; since, until; cursor: 0, then that of the
                                last reply; reply: count x wb_control_change, all changes below path,
                                newest first, and flags WB_CONTROL_CHANGES_*                      */
    WB_CONTROL_SNAPSHOT_FILES = 12, /* source: the name; cursor: 0, then that of the last reply; reply:
                                count paths in a wb_control_open_files; over where cursor stays as it is */
    WB_CONTROL_ENTRIES = 13, /* path of a directory, mostly DIR@TIME; cursor: 0, then that of the last reply;
                                reply: count (0: no more) x struct wb_control_entry, packed, in byte order of names */
    WB_CONTROL_COMPACT = 20, /* path, now or NAME@TIME: what is packed; until: nothing of this moment or later,
                                0: all; flags WB_CONTROL_COMPACT_*; cursor: with ALL, 0, then that of the last
                                reply; reply: struct wb_control_compacted; count 0: that was all, or (error
                                ECANCELED, and the cursor as it was) it is to be asked again */
    WB_CONTROL_USAGE = 18,   /* path of a directory or file, gone or NAME@TIME perhaps: what its history takes; data:
                                wb_control_usage_ask; cursor: 0, then that of the last reply; reply: a
                                wb_control_usage, and flags WB_CONTROL_USAGE_*. With BUILDING it says how far it is;
                                else it is complete, and count x wb_control_usage_dir follow it, packed, in byte order
                                of paths. ESTALE: begin anew */
    WB_CONTROL_PRUNE = 21,   /* until: what was before is forgotten, in the whole store; flags WB_CONTROL_PRUNE_*;
                                cursor: 0, then that of the last reply; reply: struct wb_control_pruned; count 0: all.
                                By root and who mounted. EBUSY: another one is under way; ECANCELED: given up */
    WB_CONTROL_THIN = 22,    /* path: a file, or a directory with all below; data: text, as in wayback.conf(5), of what
                                is kept: single versions that it does not hold go; flags WB_CONTROL_THIN_*; cursor: 0,
                                then that of the last reply; reply: struct wb_control_thinned; count 0: all. By root and
                                who mounted. EBUSY: another one is under way, or somebody reads the store beside the
                                daemon; ECANCELED: given up */
    WB_CONTROL_ERASE_BEFORE = 23, /* path; until: what it was before is forgotten, a moment of the past; flags
                                WB_CONTROL_ERASE_RECURSIVE; reply: struct wb_control_erased        */
    WB_CONTROL_ERASE_VERSIONS = 24, /* path of a file that is there; since, until: `when`s of two changes of it: what
                                showed between them is forgotten; flags WB_CONTROL_ERASE_DRY; reply:
                                struct wb_control_erased_versions                                  */
    WB_CONTROL_BUDGET = 25,  /* reply: struct wb_control_budget: what wayback.conf says of ages and room, and count x
                                struct wb_control_user. Of others than root and who mounted, flag WB_CONTROL_BUDGET_OWN:
                                user_max_size and themselves only, or EPERM. ENODATA: not known    */
    WB_CONTROL_MOVE = 26,    /* source: an absolute path, "": SRC/.wayback: the store is moved there, while all goes on;
                                flags WB_CONTROL_MOVE_*; reply: struct wb_control_moved. By root and who mounted.
                                Requests wait only while the last of it is copied. Once there, what is left in the old
                                place is removed; asked again, it goes on. EBUSY: another, or a pruning, is under way */
    WB_CONTROL_ERASE_NAMES = 27, /* as ERASE, several in one pass over the store; data: count x wb_control_erase_name,
                                packed; reply: as many wb_control_erased_name, in the same order  */
    WB_CONTROL_ERASE_MEASURE = 28, /* path; flags WB_CONTROL_ERASE_FORMER: how many bytes on the disk an ERASE_RECURSIVE
                                of it would free; nothing changes. For who may erase it; reply: wb_control_freed */
    WB_CONTROL_NAMES = 11,   /* path of a directory, gone or DIR@TIME perhaps; source: one name, "": all;
                                reply: count x struct wb_control_name, packed, in byte order of names; since:
                                when the history began; until: the directory's moment, INT64_MAX: the present;
                                flags WB_CONTROL_NAMES_* both ways. It must be open to the caller for listing and
                                searching, now and then; what was there only while it was not, is left out */
};

struct wb_control {
    uint32_t version; /* WB_CONTROL_VERSION */
    uint32_t command;
    uint32_t flags;
    uint32_t count;   /* lists: reply: how many; 0: no more */
    uint64_t cursor;  /* VERSIONS, NAMES: how many to pass over (0 to begin; add `count`); snapshots: see there */
    int64_t since;    /* VERSIONS: nothing before; 0 = from the beginning */
    int64_t until;    /* VERSIONS: nothing after; 0 = to the present */
    char path[WB_CONTROL_PATH_MAX];
    union {
        char source[WB_CONTROL_PATH_MAX];
        uint8_t data[WB_CONTROL_DATA_MAX];
    };
};
#define WB_CONTROL_IOCTL _IOWR('W', 0x42, struct wb_control)

#define WB_CONTROL_NAMES_SPANS 1u      /* request: all spans of a name (WB_CONTROL_SPANS_MAX), not the last only */
#define WB_CONTROL_NAMES_INCOMPLETE 2u /* reply: part of the records is damaged or missing */
#define WB_CONTROL_SPANS_MAX 64u

#define WB_CONTROL_ERASE_RECURSIVE 1u
#define WB_CONTROL_ERASE_PRESENT 2u
#define WB_CONTROL_ERASE_FORMER 4u /* path may lead through NAME@TIME, to a directory that is no more */
#define WB_CONTROL_ERASE_DRY 8u /* ERASE_VERSIONS: only say whether it can be done */

struct wb_control_hello {
    char source[WB_CONTROL_PATH_MAX]; /* SRC as the daemon was given it (made absolute); "": only root and who mounted
                                         may know; then pid is 0, and source_fd and store_fd are -1 */
    uint8_t uuid[16];                 /* of the store */
    uint32_t history;                 /* 1: history=write, 0: none */
    uint32_t read_only;
    int64_t moment;                   /* -o at=: the one that is mounted; 0: the present */
    uint32_t pid;                     /* the daemon, and its descriptors of SRC and of the store (-1: it is */
    int32_t source_fd, store_fd;      /* SRC/.wayback): where the mount covers SRC, /proc has the way below */
    uint32_t no_handles;              /* fit to be a layer of an overlay: the kernel makes no file handles of it */
    int64_t created;                  /* when the history begins; 0: there is none */
    int64_t now;                      /* the present: later than the wall clock where that was set back, and not
                                         before any change. What times relative to now are relative to */
    uint32_t at_sign;                 /* the mark in NAME@TIME (<wayback/at_name.h>); 0, from older daemons: '@' */
    uint32_t zero;
};

/* What changed was not open to the caller then, or is not now: nothing is told but `when` and `change`. */
#define WB_CONTROL_VERSION_WITHHELD 1u
/* No change, but some that could not be recorded (onfull=continue), from `offset` (ns) to `when`: what was before is
 * not known, but for what later changes tell. */
#define WB_CONTROL_VERSION_GAP 2u
/* Several changes: no state between that at `thinned_since` and this one is kept. What was before the first shows. */
#define WB_CONTROL_VERSION_THINNED 4u
/* With GAP: it lasts, and `when` is when it was noted. */
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
    uint32_t zero;
    char op_name[16];
    int64_t thinned_since; /* of the first of several changes, which was not kept as one by itself */
    char name[256];   /* base name it had then; for a directory: the entry that changed */
    char other[256];  /* rename, link: the other name; "?": not for the caller */
    char detail[256]; /* xattr name */
    char command[256];
};

enum wb_control_state { WB_CONTROL_ALIVE = 1, WB_CONTROL_BURIED = 2, WB_CONTROL_GONE = 3 };

struct wb_control_identity {
    uint64_t ino;  /* the object */
    int64_t birth;
    int64_t when;  /* the moment meant; INT64_MAX: the present */
    uint32_t mode;
    uint32_t state; /* enum wb_control_state: where the object is now */
    uint32_t unchanged; /* 1: a file whose content now is what it was then, byte for byte */
    uint32_t others; /* BURIED: links of a file that live under other names; from older daemons 0 */
    uint64_t number; /* of its inode, where it is now: as stat(2) tells it */
    char path[WB_CONTROL_PATH_MAX]; /* ALIVE: from the root of the mount */
};

/*
 * Snapshots. Root and the user who runs the daemon may do everything; the owner of a directory may make
 * snapshots of it, and rename and delete those that were made by others than these two. Names belong to their
 * owners: nobody may take one that root, the user who runs the daemon or a schedule has; two other users may have the
 * same. EEXIST: the name is taken; ENOENT: there is none of that name (that the caller can see); ENOTUNIQ: several
 * users have it, and the caller, who may change all of these, has none; ENOSPC: there are too many; EDQUOT: of this
 * user.
 */
struct wb_control_snapshot_new {
    char name[256];
    char text[1032]; /* at most WB_SNAPSHOT_TEXT_BYTES and NUL */
};

#define WB_CONTROL_SNAPSHOT_AUTOMATIC 1u
#define WB_CONTROL_SNAPSHOT_COVERS 2u /* LIST: `path` is now in the directory it is of */
#define WB_CONTROL_SNAPSHOT_MAY 4u    /* the caller may rename and delete it          */
#define WB_CONTROL_SNAPSHOT_MEANT 8u  /* LIST: of those of its name that the caller can see, `path`@NAME is this one */

struct wb_control_snapshot {
    uint32_t size;  /* of this entry, its strings included: the next one begins there */
    uint32_t flags; /* WB_CONTROL_SNAPSHOT_*                                          */
    int64_t when;
    uint64_t scope_ino; /* the object of the directory it is of */
    int64_t scope_birth;
    uint32_t uid;
    uint16_t text, path; /* where these begin in `strings`, which begins with the name; `path`: of that
                            directory when it was made, from the root of the mount, "" for the root itself */
    char strings[];
};

/*
 * Changes below a path. What one request may look through is bounded in time, so a reply may have no
 * change, and there may be more all the same.
 */
#define WB_CONTROL_CHANGES_BY_USER 1u  /* asked: those of `uid` alone                                */
#define WB_CONTROL_CHANGES_MORE 2u     /* reply: ask on with its cursor                              */
#define WB_CONTROL_CHANGES_BUILDING 4u /* reply: the timeline is being built, the cursor says how far, in 1/1000:
                                          ask again with the same cursor as before                   */

struct wb_control_changes {
    uint32_t flags;
    uint32_t uid;
};

#define WB_CONTROL_CHANGE_SAME 1u    /* made by the same process as the one before in this reply     */
#define WB_CONTROL_CHANGE_UNKNOWN 2u /* the record does not tell the name: "?" in the path           */
#define WB_CONTROL_CHANGE_GAP 4u     /* no change: from the time `offset` to `when` nothing is known; `detail`: why */
#define WB_CONTROL_CHANGE_OPEN 8u    /* with GAP: nothing is known from `offset` on, up to now        */

struct wb_control_change {
    uint32_t size; /* of this entry, its strings included: the next one begins there */
    uint32_t flags;
    int64_t when;
    uint64_t ino; /* the object, 0 where the record does not tell */
    int64_t birth;
    uint64_t offset, length, size_before, size_after;
    uint32_t uid, gid, pid;
    uint32_t actor; /* the same for all changes of one process; 0: not known */
    uint32_t mode_before;
    uint16_t op;
    uint8_t existed_before, exists_after;
    /* Where these begin in `strings`, 0: there is none. Paths are as of the change, relative to the path
     * asked for, "." for itself; with a leading "/", from the root of the mount, where that is not below. */
    uint16_t op_name, path;
    uint16_t other;  /* rename: where it went; link, restore: where it came from */
    uint16_t detail; /* name of an extended attribute */
    uint16_t command, zero;
    char strings[];
};

struct wb_control_snapshot_names {
    char name[256];
    char new_name[256];
};

struct wb_control_open_files {
    uint64_t more;   /* were open beside those that were noted                         */
    uint64_t hidden; /* in this page, passed over: the caller cannot see their names    */
    char paths[WB_CONTROL_DATA_MAX - 16]; /* from the root of the mount, each ended by NUL */
};

/*
 * A span of a name: from when it came to be in the directory until it was gone. Each name has its newest span
 * first; older ones follow where they were asked for, or were directories with names of their own.
 */
struct wb_control_name {
    uint32_t length; /* of this item, a multiple of 8: the next one follows */
    uint32_t mode;   /* at the end of the span */
    uint32_t index;  /* 0: the newest of this name */
    uint32_t spans;  /* how many the name had */
    uint64_t ino;    /* the object at the end of the span */
    int64_t birth;
    int64_t first;   /* the change that made it; 0: before the history began */
    int64_t last;    /* the change that ended it; 0: it was there at the directory's moment */
    uint64_t size;   /* when it ended */
    uint32_t actor;  /* who ended it, 0: not known; the same number is the same process */
    uint32_t uid, gid, pid;
    uint8_t moved;   /* it ended by moving to `to` (which is empty where the caller may not know) */
    uint8_t replaced; /* no end of the name: a directory that something else took it from */
    uint8_t zero[6];
    char text[];     /* name, NUL, `to`, NUL, command, NUL; `to` is a name in the same directory, or "/" and the
                        path from the root */
};

/* What a directory held, with what identifies it at all times. */
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

#define WB_CONTROL_COMPACT_UNDO 1u  /* unpack                                        */
#define WB_CONTROL_COMPACT_DRY 2u   /* only say what it would bring                  */
#define WB_CONTROL_COMPACT_STATS 4u /* only say how it is                            */
#define WB_CONTROL_COMPACT_ALL 8u   /* the whole store, a part of it at each request */

struct wb_control_compacted {
    uint64_t logs;     /* looked at                                                           */
    uint64_t changed;  /* that were packed or unpacked, or would be                           */
    uint64_t packed;   /* that are packed, in the end                                         */
    uint64_t old_size; /* bytes their files took before, and take now; with ECANCELED the     */
    uint64_t new_size; /* difference, modulo 2^64, is all that is told beside `changed`       */
    uint64_t length;   /* bytes they would take unpacked                                      */
    uint32_t error;    /* errno of the last of them that could not be done; 0: all were       */
    uint32_t zero;
    /* The same of files that were deleted or replaced; a bundle of several counts where it is met first. */
    uint64_t files, files_changed, files_packed;
    uint64_t files_old_size, files_new_size, files_length;
};

/*
 * What history takes. Bytes belong to the directory in which their file was last named: where it was deleted, moved to,
 * or changed; a directory is where it is, or was last. Root and who runs the daemon are told of everything; others, of
 * directories that were open to them (to be listed and searched) all the time since the oldest record that counts
 * there, and are now, and of files that they could read as long.
 */
#define WB_CONTROL_USAGE_MORE 1u     /* ask on with this cursor                                              */
#define WB_CONTROL_USAGE_BUILDING 2u /* it is being found out                                                */
#define WB_CONTROL_USAGE_PART 4u     /* there may be more that the caller is not told of                     */
#define WB_CONTROL_USAGE_STORE 8u    /* the whole store: with its own files, and what belongs to no directory */

struct wb_control_usage_ask {
    uint32_t depth; /* directories down to so many levels below the path, each with all that is below it */
    uint32_t zero;
};

enum wb_control_usage_kind {
    WB_CONTROL_USAGE_UNDO,      /* undo logs                                 */
    WB_CONTROL_USAGE_CATALOGS,  /* names and attributes                      */
    WB_CONTROL_USAGE_IMAGES,    /* before-images that were cloned            */
    WB_CONTROL_USAGE_BODIES,    /* deleted files and directories themselves  */
    WB_CONTROL_USAGE_TIMELINE,  /* only with WB_CONTROL_USAGE_STORE, as those below */
    WB_CONTROL_USAGE_SNAPSHOTS,
    WB_CONTROL_USAGE_OTHER,     /* who, and the store's own files and directories */
    WB_CONTROL_USAGE_KINDS
};
/* Of `now`: the last hour, day, week, 30 days, 365 days, and what is older. Each without those before it. */
#define WB_CONTROL_USAGE_AGES 6

struct wb_control_usage_sum {
    uint64_t files;
    uint64_t bytes;  /* what is kept: of logs unpacked, of images what records refer to; of a deleted file that
                        has another name still, nothing */
    uint64_t stored; /* length of the files                           */
    uint64_t disk;   /* bytes of the blocks they take                 */
    uint64_t shared; /* of these, those of images that other files share, where the file system tells */
};

struct wb_control_usage {
    uint64_t looked;   /* files, so far    */
    uint32_t permille; /* of all           */
    uint32_t zero;
    struct wb_control_usage_sum kinds[WB_CONTROL_USAGE_KINDS];
    uint64_t ages[WB_CONTROL_USAGE_AGES]; /* bytes, by the time of the change */
    uint64_t packed;          /* logs of which a part is packed               */
    uint64_t damaged;         /* files that could not be read, or not whole   */
    int64_t oldest, newest;   /* records; 0: there is none                    */
    int64_t created, now;     /* when the history began; what ages are of     */
    uint64_t room, free;      /* of the store's file system, in bytes         */
    uint64_t gaps;            /* files and directories of which nothing is known for some time */
    int64_t gaps_since, gaps_until; /* from the first of these times to the end of the last; since 0: the beginning */
};

struct wb_control_usage_dir {
    uint32_t size;  /* of this item, its path included: the next one begins there */
    uint32_t zero;
    uint64_t files, bytes, disk, shared; /* with all below it */
    int64_t oldest, newest;
    char path[]; /* from the path asked for; "": itself */
};

struct wb_control_budget {
    uint64_t max_size, reserve; /* bytes; 0: not said */
    int64_t keep; /* ns: what was replaced less than that ago stays; INT64_MAX: nothing goes; 0: no age was said */
    uint64_t user_max_size; /* bytes; 0: not said, and users are not counted */
};

/* What the history of a user's changes takes: those with most of it come first, and as many as fit. */
#define WB_CONTROL_USER_STUCK 1u /* no more of it may be deleted, and their changes are refused at the limit */
#define WB_CONTROL_BUDGET_OWN 1u
#define WB_CONTROL_BUDGET_USERS_MAX 256u
struct wb_control_user {
    uint32_t uid;
    uint32_t flags; /* WB_CONTROL_USER_* */
    uint64_t bytes; /* on the disk, at most */
};

#define WB_CONTROL_PRUNE_DRY 1u /* only say what it would bring */

struct wb_control_pruned {
    int64_t horizon;      /* the history begins here now, or would                              */
    uint64_t snapshots;   /* that are of earlier moments: not 0: nothing was done               */
    uint64_t logs;        /* looked at                                                          */
    uint64_t changed;     /* written anew                                                       */
    uint64_t log_bytes;   /* freed in logs,                                                     */
    uint64_t image_bytes; /* in what is kept of large changes,                                  */
    uint64_t body_bytes;  /* and by deleted files                                               */
    uint64_t bodies;      /* these, and directories                                             */
    uint64_t kept;        /* logs and deleted files that could not be done                      */
    uint32_t error;       /* errno of the last of these                                         */
    uint32_t permille;    /* done of the whole                                                  */
    char snapshot[512];   /* the oldest of them, with its moment, in words                      */
};

#define WB_CONTROL_MOVE_CHECK 1u /* only say whether it may be asked, and whether another mount is in the way */

struct wb_control_moved {
    uint64_t files, bytes; /* copied                                                                        */
    int64_t pause;         /* ns: so long requests waited                                                   */
    uint32_t moved;        /* 1: the store is there                                                         */
    uint32_t error;        /* errno, 0: all is done; with `moved`, something is left to do. EAGAIN: try again,
                              what is under way in the mount does not end                                   */
    char text[1024];       /* why                                                                           */
};

#define WB_CONTROL_THIN_DRY 1u    /* only say what it would bring                      */
#define WB_CONTROL_THIN_POLICY 2u /* what wayback.conf says, and no text              */
#define WB_CONTROL_THIN_CHECK 4u  /* only say whether there is a mistake in what is said */

struct wb_control_thinned {
    uint64_t logs;        /* looked at                                                          */
    uint64_t changed;     /* written anew                                                       */
    uint64_t versions;    /* that went                                                          */
    uint64_t log_bytes;   /* freed in logs,                                                     */
    uint64_t image_bytes; /* and in what is kept of large changes                               */
    uint64_t kept;        /* logs that could not be done                                        */
    uint32_t error;       /* errno of the last of these                                         */
    uint32_t permille;    /* done of the whole                                                  */
    char mistake[512];    /* not "": in what is said of versions; nothing was done              */
    uint64_t held;        /* files of which versions stayed since a damaged catalog may tell of */
    char directory[512];  /* them: of this directory, from the root of the tree; ".": of that   */
    uint64_t body_bytes;  /* freed in files that were replaced                                  */
};

struct wb_control_erased {
    uint64_t objects, bytes;
};

struct wb_control_freed {
    uint64_t history; /* when only its past is erased                                            */
    uint64_t all;     /* when what is there now goes as well                                     */
    uint64_t shared;  /* in neither: blocks that files share, among those erased or with others  */
};

#define WB_CONTROL_ERASE_NAMES_MAX 64u /* others wait while they are erased: not for more at once */

struct wb_control_erase_name {
    uint32_t size;  /* of this item, its path included, a multiple of 8: the next one begins there */
    uint32_t flags; /* WB_CONTROL_ERASE_*, the same in all, but for FORMER                         */
    char path[];    /* and zeros */
};

struct wb_control_erased_name {
    uint64_t objects, bytes; /* what several of the names had: objects count for each, bytes for one of them */
    uint32_t error, zero;    /* errno, as of ERASE for this name alone; 0: it is gone */
};

/* Why versions are not erased one by one; then nothing was done. */
enum wb_control_refusal {
    WB_CONTROL_REFUSED_NONE = 1,     /* the log of the file does not tell of these two changes                       */
    WB_CONTROL_REFUSED_CATALOG = 2,  /* its directory tells of one of them: of its name, its attributes, its end   */
    WB_CONTROL_REFUSED_STAGE = 3,    /* one of them was recorded by close                                            */
    WB_CONTROL_REFUSED_KIND = 4,     /* among them is one that tells of more than content and attributes, or a gap   */
    WB_CONTROL_REFUSED_SNAPSHOT = 5, /* a snapshot is of a moment between them                                       */
    WB_CONTROL_REFUSED_BUNDLE = 6,   /* a bundle has what the file was once                                          */
    WB_CONTROL_REFUSED_DAMAGED = 7,  /* a log that may tell of it is damaged                                         */
    WB_CONTROL_REFUSED_SHOWN = 8,    /* another process shows a moment between them, or reads any (tables/pins.h)     */
};

struct wb_control_erased_versions {
    uint64_t versions, bytes;
    uint32_t refused; /* enum wb_control_refusal; 0: it was done, or would be */
    uint32_t zero;
};

/*
 * Whether `reply` answers a request of this command and cursor: all sizes within bounds, all strings with their
 * ends, names that lead nowhere else, and a list that says it goes on does. 0 or -EPROTO; whoever reads a reply
 * without asking this trusts the daemon of that mount, which may be any program of any user. Thread-safe.
 */
int wb_control_check(uint32_t command, uint64_t cursor, const struct wb_control *reply);

/* The names of an ERASE_NAMES: passes over one, *used bytes (0 to begin) behind the beginning. NULL: it is none. */
const struct wb_control_erase_name *wb_control_erase_name(const struct wb_control *request, size_t *used);

#endif
