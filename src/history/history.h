/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The way out: states of the past, rebuilt from the present and the logs.
 *
 * Every function here works without a lock beside a daemon that goes on writing, in the same or
 * another process, and is exact. The argument, which every function follows: a record is in the
 * log before its change is made. So a reader of first the present and then the log
 * finds, for every change that the present already shows, its record; what the record covers is
 * taken from the record, what no record covers cannot have changed.
 *
 * Damaged records make everything that depends on them -EIO, never wrong; `wb_history_error` names them.
 */

#include "store/store.h"

struct wb_history;
struct wb_revision;
struct wb_past_dir;
struct wb_file_view;

int wb_history_open(struct wb_history **ret, struct wb_store *store);
struct wb_history *wb_history_free(struct wb_history *history);

/* The mark in NAME@TIME (wayback/at_name.h), '@' otherwise; called before any other thread uses `history`. */
void wb_history_set_at_sign(struct wb_history *history, char mark);

/*
 * For a caller who checks by ctime that nothing changed after `when` without a record (vsend): these open gaps do not
 * refuse states of exactly that moment; older states stay refused. `gaps` must stay valid as long as `history`.
 */
void wb_history_accept_gaps(struct wb_history *history, int64_t when, const struct wb_open_gap *gaps, size_t count);

/* The store it looks into; for the floor above. */
struct wb_store *wb_history_store(const struct wb_history *history);

/*
 * For a process that reads beside the daemon in another one: returns when no change at or before `when` is
 * under way any more, so that the state of then is final. Slots that a dead daemon left are not waited
 * for: their changes have ended, and recovery alters no state. 0, or -EBUSY after half a minute.
 */
int wb_history_wait_daemon(struct wb_history *history, int64_t when);

/* In the daemon: a time a little before now, if no change of that time or an older one is under way; else 0. */
int64_t wb_history_quiet_since(const struct wb_history *history);

/* The last thing this thread could not rebuild since it cleared that, as one line ("" if none). */
const char *wb_history_error(void);
/* Whoever begins something else: else an error without a reason of its own would be given an older one. */
void wb_history_clear_error(void);

/* ---- revisions: an object at a moment (revision.c, resolve.c) ----------------------------------------- */

/*
 * A revision is (object, T) and how it was reached: through which directory and name. Reference
 * counted, immutable, thread-safe. T == WB_WHEN_PRESENT is the present.
 */
struct wb_revision *wb_revision_ref(struct wb_revision *revision);
struct wb_revision *wb_revision_unref(struct wb_revision *revision); /* returns NULL */
static inline void wb_revision_unrefp(struct wb_revision **revision)
{
    wb_revision_unref(*revision);
}

struct wb_object wb_revision_object(const struct wb_revision *revision);
int64_t wb_revision_when(const struct wb_revision *revision);
uint32_t wb_revision_type(const struct wb_revision *revision); /* S_IFMT bits */
const char *wb_revision_name(const struct wb_revision *revision);
struct wb_revision *wb_revision_parent(const struct wb_revision *revision); /* borrowed; NULL for the root */

/* The root of SRC at T. */
int wb_revision_root(struct wb_history *history, int64_t when, struct wb_revision **ret);

/*
 * A revision of the present as the caller knows it (a node that lives), without looking anything up. Takes its own
 * reference of `parent`.
 */
int wb_revision_present(struct wb_history *history, struct wb_revision *parent, const char *name,
                        struct wb_object object, uint32_t type, struct wb_revision **ret);

/* dir's entry `name` at dir's own T: 0, WB_ABSENT, -ENOTDIR, or -errno. */
int wb_revision_child(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_revision **ret);

/* The same object at another T (for `@TIME` alone): 0, WB_ABSENT where it was not born, or -errno. */
int wb_revision_shift(struct wb_history *history, struct wb_revision *revision, int64_t when, struct wb_revision **ret);

/*
 * dir's entry `base` at the moment `time` says: the meaning of "base@TIME" inside dir, whatever dir's own T is. base ""
 * means dir itself. The entry that the object dir held then, wherever it was; where dir did not exist then, or had no
 * such entry, or none within `scope` (WB_OBJECT_NONE: everywhere), the one of the directory that had its path (path.h).
 * ~N counts back the versions (versions/saves.h) of that name, ~~N the changes that wb_versions lists, and both follow
 * the object to the name it had then.
 * 0, WB_ABSENT, or -errno.
 */
struct wb_time;
int wb_revision_at(struct wb_history *history, struct wb_revision *dir, const char *base, const struct wb_time *time,
                   struct wb_object scope, struct wb_revision **ret);

/*
 * What stands behind an '@': a time as wb_time_parse has it, else the name of a snapshot (an absolute instant). 0,
 * WB_NOT_TIME for neither, or -errno where the snapshots cannot be read. *ret_scope: the directory
 * below which a snapshot says anything, WB_OBJECT_NONE for a plain time: for wb_revision_at.
 * Where a time leaves its fraction out (GMT-...), the newest snapshot of that second is meant, if there is one.
 * `nth`: of several snapshots of that name (store/tables/snapshots.h), from 0; WB_NOT_TIME where there are not so many.
 */
int wb_history_time(struct wb_history *history, const char *text, int64_t now, unsigned nth, struct wb_time *ret,
                    struct wb_object *ret_scope);

/* Whether the revision is `scope` or below it, at the revision's own moment. WB_OBJECT_NONE holds everything. */
bool wb_revision_is_within(const struct wb_revision *revision, struct wb_object scope);

/*
 * Reads "BASE@TIME", with the mark of this history: 0 with *ret_base, the bytes of BASE, and the results of
 * wb_history_time; WB_NOT_TIME if `entry` does not read so; or -errno.
 */
int wb_history_parse_entry(struct wb_history *history, const char *entry, int64_t now, unsigned nth, size_t *ret_base,
                           struct wb_time *ret, struct wb_object *ret_scope);

/* dir's entry "BASE@TIME" (a snapshot's name, too), as wb_revision_at. WB_ABSENT also where it does not read so. */
int wb_history_at(struct wb_history *history, struct wb_revision *dir, const char *entry, struct wb_revision **ret);

/* Where the object is now. */
enum wb_link_state { WB_LINKED, WB_UNLINKED, WB_LOST };
struct wb_location {
    enum wb_link_state state;
    char *path;     /* WB_LINKED: relative to the root of SRC, "" for the root itself; g_free */
    uint64_t ino;   /* of the inode; 0: WB_LOST */
    uint32_t links; /* of the inode, the one in the graveyard among them */
};
int wb_revision_resolve(struct wb_history *history, struct wb_revision *revision, struct wb_location *ret);

/* How an object lost its name, or the last one of those it was renamed to since the revision's T. */
struct wb_unbind_info {
    struct wb_object dir; /* the directory that lost it */
    int64_t when;
    uint32_t links; /* names until then: more than one where it had others */
};

/* 0, WB_ABSENT if no record states a loss, or -errno. Reads the catalogs of all directories it was in since T. */
int wb_revision_find_unbind(struct wb_history *history, struct wb_revision *revision, struct wb_unbind_info *ret);

/* Opens the object as it is now, wherever it is: a verified descriptor (open flags as given, O_PATH
 * for anything that is no file or directory), or -errno; -EIO if it cannot be found. */
int wb_revision_open_present(struct wb_history *history, struct wb_revision *revision, int flags);

/* ---- what was there (attrs.c, past_dir.c, view.c) ---------------------------------------------- */

/* Attributes at the revision's T. `nlink` does not count the graveyard's link. */
int wb_revision_attrs(struct wb_history *history, struct wb_revision *revision, struct wb_attrs *ret);

/* Extended attributes at T. get: length of the value (value may be NULL to ask), -ENODATA, -ERANGE,
 * -errno. list: names separated by NUL, the same convention. */
ssize_t wb_revision_getxattr(struct wb_history *history, struct wb_revision *revision, const char *name, void *value,
                             size_t size);
ssize_t wb_revision_listxattr(struct wb_history *history, struct wb_revision *revision, char *list, size_t size);
/* The flags of the inode (chattr(1)). 0, -EOPNOTSUPP where there are none, or -errno. */
int wb_revision_flags(struct wb_history *history, struct wb_revision *revision, struct wb_flags *ret);

/* Target of a symbolic link; a string to g_free in *ret. */
int wb_revision_readlink(struct wb_history *history, struct wb_revision *revision, char **ret);

/* A directory's entries at T, in a fixed order (byte order of names); built once. */
int wb_past_dir_open(struct wb_history *history, struct wb_revision *dir, struct wb_past_dir **ret);
struct wb_past_dir *wb_past_dir_free(struct wb_past_dir *dir);
/* Whether wb_past_dir_open would give the same now: nothing it was made from was forgotten or found damaged since. */
bool wb_past_dir_is_good(const struct wb_past_dir *dir);
/* Bytes of memory that it takes. */
size_t wb_past_dir_size(const struct wb_past_dir *dir);
size_t wb_past_dir_count(const struct wb_past_dir *dir);
/* Name of entry `index`; the pointer lives as long as `dir`. */
const char *wb_past_dir_name(const struct wb_past_dir *dir, size_t index);
uint32_t wb_past_dir_type(const struct wb_past_dir *dir, size_t index); /* S_IFMT bits */
/* No earlier than the ctime by wb_revision_attrs, and at no cost: spares that call for entries not touched since. */
int64_t wb_past_dir_ctime(const struct wb_past_dir *dir, size_t index);
struct wb_object wb_past_dir_object(const struct wb_past_dir *dir, size_t index);
/* The entry as a revision, without a second replay. */
int wb_past_dir_revision(struct wb_past_dir *dir, size_t index, struct wb_revision **ret);

/* A file's content at T. Stays exact while the present goes on changing. Thread-safe. */
int wb_file_view_open(struct wb_history *history, struct wb_revision *file, struct wb_file_view **ret);
struct wb_file_view *wb_file_view_free(struct wb_file_view *view);
/* Whether wb_file_view_open would give the same now: nothing it was made from was forgotten or found damaged since. */
bool wb_file_view_is_good(struct wb_file_view *view);
uint64_t wb_file_view_size(const struct wb_file_view *view);
/* Whether the file has that very content now: nothing of it was lost since T, and nothing added. */
bool wb_file_view_is_present(struct wb_file_view *view);
/*
 * The first offset at or after `offset` that is in a hole (`hole`), or that is not: lseek(2) of the file as it
 * was, but that zeros which were overwritten or cut off since count as holes. 0, -ENXIO behind the end or
 * behind the last data, or -errno.
 */
int wb_file_view_seek(struct wb_file_view *view, uint64_t offset, bool hole, uint64_t *ret);
/* Bytes read (short only at the end), or -errno; -EIO where a needed before-image is damaged. */
ssize_t wb_file_view_pread(struct wb_file_view *view, void *data, size_t length, uint64_t offset);

/* ---- versions (versions.c) -------------------------------------------------------------------- */

/* The effect of a change on the name that is listed. */
enum wb_change_kind {
    WB_KIND_ATTRIBUTES = 0, /* attributes alone                                    */
    WB_KIND_CONTENT,
    WB_KIND_EMPTIED,        /* content: the file was cut to size 0                 */
    WB_KIND_BORN,           /* a new object got the name, which was free           */
    WB_KIND_ARRIVED,        /* an object with another name got it, which was free  */
    WB_KIND_REPLACED,       /* another object has it                               */
    WB_KIND_LOST,           /* none has it                                         */
    WB_KIND_WHOLE,          /* a version by itself, whatever is beside it          */
    WB_KIND_GAP,
};

/*
 * One change, as vstat shows it. `dir`/`name`: where the object was when it changed (differs from the
 * path asked for when the object came from elsewhere).
 */
struct wb_version {
    uint32_t change; /* 1 = most recent */
    uint32_t save;   /* the version it belongs to (versions/saves.h), 1 = most recent; 0: none */
    enum wb_change_kind kind;
    bool begins;     /* the first change through an open file, or one by path */
    int64_t began;   /* of a stage: when it began; else 0 */
    int64_t when;
    uint16_t op;
    uint32_t actor;
    uint64_t offset, length;           /* 0 where they mean nothing */
    uint64_t size_before, size_after;
    uint8_t existed_before, exists_after;
    uint32_t mode_before;
    struct wb_object dir;              /* WB_OBJECT_NONE: the root's own changes */
    struct wb_object other_dir;        /* of `other` */
    struct wb_object object;           /* what changed; where something was lost, that */
    char name[WB_NAME_MAX + 1];        /* name then, or of the entry that changed (directories) */
    char other[WB_NAME_MAX + 1];       /* rename, link: the other name, "" if none */
    char detail[WB_NAME_MAX + 1];      /* xattr name, "" if none */
    bool is_gap;       /* no change: nothing is known from `gap_since` to `when`; 0: from the beginning */
    int64_t gap_since;
    bool gap_open;     /* it lasts: `when` is when it was noted */
    int64_t thinned_since; /* not 0: the first of the changes it stands for; states between are not kept, and the
                              state before it is shown */
};

/*
 * Walks the changes of dir/name newest first; dir may be a revision of the present or of the past, its
 * object counts. name "" means the directory itself (its entries' changes). The walk follows the name through
 * replaced objects and, where the object came from another name, the object there; where the directory has no older
 * changes of the name, it goes on in the directory that had the path before (path.h). Memory does
 * not grow with the number of versions.
 */
struct wb_versions;
int wb_versions_open(struct wb_history *history, struct wb_revision *dir, const char *name, struct wb_versions **ret);
int wb_versions_next(struct wb_versions *versions, struct wb_version *ret); /* 0, WB_END, WB_DAMAGED, -errno */
/* The state just before the version last returned: a revision, or WB_ABSENT. */
int wb_versions_before(struct wb_versions *versions, struct wb_revision **ret);
/*
 * Whether the version last returned is a change of the object *ret that its undo log has, while it had the name in the
 * directory as asked, and no other object is followed: then no change that is recorded from now on becomes an older
 * version.
 */
bool wb_versions_is_plain(const struct wb_versions *versions, struct wb_object *ret);
/*
 * The state before version `number`, of those that people count (versions/saves.h): all its changes are taken back. For
 * a walk that begins. 0, WB_ABSENT (none, or there are not so many versions), WB_DAMAGED or -errno.
 */
int wb_versions_before_save(struct wb_versions *versions, uint32_t number, struct wb_revision **ret);
/* Where a walk is in the count of versions; it belongs to a change that counts (`save` of it is not 0). */
struct wb_save_mark {
    int64_t when;
    uint32_t save, actor;
    enum wb_change_kind kind;
    bool first; /* the change is the first of its version, but for one that made room for it */
};
struct wb_save_mark wb_versions_mark(const struct wb_versions *versions);
/*
 * Passes over all changes of `when` and later; the caller knows that the oldest of them has the number `change`, and
 * the mark that wb_versions_mark returned after it. The walk goes on as if they had been returned. Undo logs are passed
 * over by their INDEX records. Damage on the way is not reported. 0 or -errno.
 */
int wb_versions_pass(struct wb_versions *versions, int64_t when, uint32_t change, const struct wb_save_mark *mark);
/* The directory whose entries are listed; WB_OBJECT_NONE: something else is. */
struct wb_object wb_versions_self(const struct wb_versions *versions);
/* Gives back what only speeds the walk up: it may be long until the next call. */
void wb_versions_rest(struct wb_versions *versions);
struct wb_versions *wb_versions_free(struct wb_versions *versions);

/* The components of `path` with "." and ".." worked out, to g_strfreev; -EACCES where it leads above
 * its beginning, -ENAMETOOLONG. */
int wb_history_split(const char *path, char ***ret);

/*
 * Resolves a path relative to `dir` for tools, also one that no longer exists: where a component
 * is gone, its latest state is taken. `NAME@TIME` components work. *ret_dir is the directory, *ret_name
 * (g_free) the last component, "" for `dir` itself.
 */
int wb_history_find(struct wb_history *history, struct wb_revision *dir, const char *path, struct wb_revision **ret_dir,
                    char **ret_name);
