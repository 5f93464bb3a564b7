/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * A tree that was moved or copied with its store: which of its inodes is which object (rebind*.c).
 *
 * Objects keep their ids; the file `identities` says which inode each of them is now. Only names lead from one to the
 * other. What a record says of a name holds until the next record about that name, so of each name there is at most one
 * object according to the records, and if there is none, the inode has no record at all: it gets an id of
 * its own, that of something that was always there.
 */

#include "check/checking.h"

/* A name of a directory, and the facts about it in the records. */
struct wb_fact {
    struct wb_object dir;
    int64_t changed;       /* `when` of the newest NAME record about it; 0: there is none       */
    bool linked;           /* which was a link(2)                                               */
    int64_t arrived;       /* newest: this object came to the name; and which                   */
    struct wb_object arrival;
    bool placed;           /* a PLACE in the log of that directory says so                      */
    int64_t met;           /* newest: this object was reached by the name; and which            */
    struct wb_object meeting;
    char name[];
};

/* The facts about an object in the records. */
struct wb_rebind_subject {
    struct wb_object object;
    uint32_t type;     /* S_IFMT bits; 0: not known                                                */
    uint8_t files;     /* bit 1 << enum wb_object_file                                             */
    int64_t seen;      /* newest: it lives                                                         */
    int64_t lost;      /* newest: it went to the graveyard, or lost one of its names               */
    int64_t timed;     /* newest: somebody set its times                                           */
    int64_t content;   /* newest: its content changed                                              */
    int64_t counted;   /* newest: so many names it had after it; 0: not known                      */
    uint32_t links;
    bool forgotten;    /* its log was longer once (vprune)                                         */
    int64_t until;     /* and its records up to then were deleted, later than the horizon; 0: none  */
    int64_t trusted;   /* a directory: what its records say of names holds from here on, see wb_rebind_trusted */
    int64_t exchanged; /* others may have exchanged directories in it before this, with no mark; 0: not      */
    int64_t missed;    /* and later than this, each object that others moved has a mark, see note_unseen */
    int64_t unseen;    /* others changed it before this, and may have renamed it; 0: they did not         */
    bool damaged;      /* some of its own records are not known, so that such a mark may be one of them       */
    bool log_lost;     /* according to the manifest, its log is missing or lost its end            */
    struct wb_match *match;
    struct wb_fact *fact; /* a name it should have */
    bool outlived;        /* it had a name in a directory that is gone; the record that took it away is forgotten */
};

/* An inode of the tree or of the graveyard. */
struct wb_match {
    struct wb_object inode, object;
    bool recorded;  /* the object is known from records; else it is made up */
    bool buried;
    bool is_file, is_dir;
    bool foreign;   /* the records of its name are of another kind of file */
    bool doubtful;  /* its content may not be what the records are of */
    uint32_t type;  /* S_IFMT bits, if it is in the tree */
    uint64_t size;
    int64_t mtime;
    uint32_t links; /* names in the tree, as its inode has them */
    struct wb_object dir; /* one of its names */
    char *path;
    const struct wb_fact *fact;
};

struct wb_parted {
    int64_t size, mtime;
};

/* A directory that a snapshot is of: at `when` it was at `path`, which is not that of the root. */
struct wb_scope {
    struct wb_object object;
    int64_t when;
    char path[];
};

struct wb_rebinding {
    struct wb_checking *checking;
    GHashTable *scopes;   /* by path, the newest: struct wb_scope      */
    GHashTable *facts;    /* struct wb_fact    */
    GHashTable *subjects; /* struct wb_rebind_subject */
    GHashTable *links;    /* `when` of a link(2) -> struct wb_object */
    GHashTable *matches;  /* struct wb_match, by inode               */
    GHashTable *parted;   /* size and mtime of files that have lost names: struct wb_parted */
    bool unlisted[WB_SHARDS]; /* the list of the logs in it is damaged */
    int64_t marked_from, marked_until; /* objects that others renamed then have marks (head of `spans`); or both 0 */
    int64_t newest;       /* `when` of all records                   */
    uint64_t hindered;    /* what keeps it from being done           */
    uint64_t lost_track;  /* objects that cannot be found            */
    unsigned lost_types;  /* and their types: bit 1 << (S_IFMT bits >> 12) */
    uint64_t doubtful;
};

/* NULL where memory is short. */
struct wb_rebind_subject *wb_rebind_subject(struct wb_rebinding *rebinding, struct wb_object object);

/* From when on all changes of names in this directory are known from its records. */
int64_t wb_rebind_trusted(const struct wb_rebinding *rebinding, struct wb_object dir);

/* All records of all logs (rebind_records.c). 0 or -errno. */
int wb_rebind_read(struct wb_rebinding *rebinding);

/* What the records say is at dir/name; none: nothing. *ret_fact: what they say of the name, or NULL. */
struct wb_object wb_rebind_resolve(struct wb_rebinding *rebinding, struct wb_object dir, const char *name,
                                   struct wb_fact **ret_fact);

/* The graveyard, the tree, and what is in neither (rebind_tree.c). 0 or -errno. */
int wb_rebind_match(struct wb_rebinding *rebinding);
