/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The way in: old state that a change is about to destroy is recorded in the logs, then the change is made.
 *
 * Every change is a transaction of three steps the caller keeps in this order:
 *
 *     r = wb_capture_XXX(store, &change, ...);   the record is written (write(2) returned)
 *     r = the system call on SRC                 made by the caller
 *     wb_capture_end(&change, r);                r < 0: an ABORT record says it never happened
 *
 * Between begin and end the caller holds the lock of every file object involved, and the kernel
 * keeps other changes of the same names away. A begin that fails has recorded nothing, and the change must
 * not be made: its errno goes to the user. A begin that returns WB_UNCHANGED recorded nothing
 * because nothing would be lost or altered; make the change and still call end.
 *
 * Where a record goes: names to the catalog of their directory; lost content and extended
 * attributes to the object's undo log; attributes and growth to the catalog of the parent as long
 * as the object has one name only (so that a new tree costs no file per file), else, or where an
 * undo log exists already, to the undo log. Readers merge both.
 */

#include "store/store.h"

/*
 * A directory as the caller knows it. `parent` is NULL for the root. The catalog of a directory is
 * made together with those of all its ancestors, each beginning with a PLACE record; therefore
 * the present place of every directory that has a catalog can be found without a scan.
 */
struct wb_dir {
    struct wb_object object;
    const struct wb_dir *parent;
    const char *name; /* in parent */
    int fd;           /* O_PATH or better; only needed for the directory operated on */
    bool has_catalog; /* a hint the capture floor keeps: saves looking it up again */
    bool unrecorded;  /* of a restore, or of a rename the old one: it failed, since its record could not be written */
};

/* A file (anything that is no directory), or a directory whose own attributes change. */
struct wb_target {
    struct wb_object object;
    struct wb_dir *parent; /* NULL: nameless (unlinked, or O_TMPFILE) */
    const char *name;      /* in parent, for people; NULL where not known. Lives until the record is written */
    struct wb_dir *self;   /* set if it is a directory: then its own catalog takes the record */
    uint32_t nlink;        /* as users see it (a link in the graveyard not counted) */
    const struct wb_attrs *known; /* its attributes as they are, if the caller has just looked; NULL: looked for */
    bool has_undo;         /* hint kept by the capture floor */
    bool unborn;           /* O_TMPFILE that never had a name: nothing is recorded */
};

#define WB_CHANGE_LOGS 4 /* two catalogs, and the logs of two objects that change names */
struct wb_change {
    struct wb_store *store;
    int64_t when; /* 0: nothing was recorded */
    int slot;     /* in-flight slot, -1: none */
    int fd;       /* content, attributes: the object, borrowed from the caller until the end; -1 */
    struct wb_object object;
    int64_t mtime, ctime; /* its times before */
    int count;
    struct {
        struct wb_object object;
        enum wb_object_file file;
    } logs[WB_CHANGE_LOGS];
    int gap_count; /* logs that go without a record of it (store/cache/gaps.h), until the end */
    struct {
        struct wb_object object;
        enum wb_object_file file;
    } gaps[WB_CHANGE_LOGS];
};

/*
 * result < 0: the change failed, the records are aborted; but for those of a failed change of content that moved
 * the file's times all the same, as write(2) and fallocate(2) may do. Never fails: at worst the abort is
 * set aside (the slot stays) and tried again by whatever change comes next, and by recovery. The descriptor
 * given to begin must still be open.
 */
void wb_capture_end(struct wb_change *change, int result);

/* Writes the ABORTs that could not be written (a full disk) when their changes failed. Cheap where
 * there are none. Called without the lock of any log. */
void wb_capture_retry(struct wb_store *store);

/* ---- content (undo.c, extents.c) ------------------------------------------------------------- */

/* A region whose content is about to change or vanish, and what the operation is called. */
struct wb_overwrite {
    enum wb_op op;
    uint64_t offset;     /* range as the user gave it; to the end of the file: UINT64_MAX - offset */
    uint64_t length;
    uint64_t size_after; /* the file's size once the change is made */
    const void *new_data; /* WRITE: compared with what is there, equal bytes are not kept; else NULL */
    bool begins;         /* the first change through an open file, or one by path (WB_RECORD_BEGINS) */
    bool to_zero;        /* the range becomes zeros (punch, zero): bytes zero already are not kept */
};

/*
 * Before a write, truncate, fallocate or copy into `fd` (open for reading). Fills `size_after`
 * nowhere: the caller knows it. Large aligned before-images are cloned where the store can, else copied in parts.
 * 0, WB_UNCHANGED (nothing recorded), or -errno.
 */
int wb_capture_content(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                       const struct wb_overwrite *overwrite, uint32_t actor);

/* ---- attributes (undo.c) --------------------------------------------------------------- */

/* Before chmod, chown, utimens. `fd` is any descriptor of the object (O_PATH too). */
int wb_capture_attrs(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                     enum wb_op op, uint32_t actor);

/* Before setxattr or removexattr of `name`. */
int wb_capture_xattr(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                     const char *name, enum wb_op op, uint32_t actor);

/* ---- changes that wayback.conf leaves out (unrecorded.c) ---------------------------------------- */

/*
 * Before changes of the target that are not to be recorded: content, attributes and extended attributes of a file; the
 * own ones of a directory, and its names. Unless that was done before, its state is recorded. `fd`: any descriptor of
 * it; of a directory, -1 where the caller has none. *ret_when: since when nothing is recorded, for as long as
 * wb_log_gaps_ended() does not grow; 0: not known. 0, WB_UNCHANGED, or -errno: then the change must not be made.
 */
int wb_capture_unrecorded(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                          int64_t *ret_when);

/* A file, or the names of a directory, are recorded from now on: ends the GAP of a time without that. 0 or -errno. */
int wb_capture_recorded_again(struct wb_store *store, struct wb_object object, enum wb_object_file file);

/* ---- names (names.c) ------------------------------------------------------------------------- */

/* Before create, mkdir, mknod, symlink of dir/name, which must not exist (-EEXIST). */
int wb_capture_birth(struct wb_store *store, struct wb_change *change, struct wb_dir *dir, const char *name,
                     enum wb_op op, uint32_t actor);

/*
 * Before link(2): dir/name is going to be another name of `source`, which source->parent knows as
 * `from_name` (NULL where it has no name). `source_fd` is any descriptor of it (O_PATH too): its link count changes, so
 * its attributes are recorded as well.
 */
int wb_capture_link(struct wb_store *store, struct wb_change *change, struct wb_dir *dir, const char *name,
                    struct wb_target *source, int source_fd, const char *from_name, uint32_t actor);

/*
 * unlink and rmdir, whole: record, then into the graveyard, then end. `is_dir` as the caller
 * was asked (-ENOTDIR, -EISDIR, -ENOTEMPTY as unlinkat(2) would).
 */
int wb_capture_remove(struct wb_store *store, struct wb_dir *dir, const char *name, bool is_dir,
                      uint32_t actor);

/*
 * rename in all its forms, whole: record, keep the victim, rename, end. `flags`: RENAME_NOREPLACE,
 * RENAME_EXCHANGE, RENAME_WHITEOUT. `moved_dir`: set where the source is a directory,
 * `other_dir` where RENAME_EXCHANGE moves a directory the other way; their PLACE is recorded.
 */
int wb_capture_rename(struct wb_store *store, struct wb_dir *old_dir, const char *old_name,
                      struct wb_dir *new_dir, const char *new_name, unsigned flags,
                      struct wb_dir *moved_dir, struct wb_dir *other_dir, uint32_t actor);

/* Binds a lost object to dir/name again, replacing a file that has the name now; whole. */
int wb_capture_restore(struct wb_store *store, struct wb_dir *dir, const char *name,
                       struct wb_object object, bool is_dir, int from_dir_fd, const char *from_name,
                       uint32_t actor);
/* (from_dir_fd/from_name: where the object has a living name, to link from; -1/NULL: the graveyard) */

/* ---- places (place.c) ------------------------------------------------------------------------ */

/* Makes the catalog of `dir` and of its ancestors, with their PLACE records, where missing. */
int wb_capture_ensure_catalog(struct wb_store *store, struct wb_dir *dir);

/* A directory that others moved gets another PLACE if the newest one in `log`, its catalog, is not where it is. With
 * the lock of the log. */
int wb_capture_correct_place(struct wb_store *store, struct wb_log *log, const struct wb_dir *dir);

/* The same for the directory that contains `target`: records name it, and only catalogs state where it is itself. */
int wb_capture_ensure_place(struct wb_store *store, struct wb_target *target);
