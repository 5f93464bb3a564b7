/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Every structure, identifier and maximum that Wayback puts on disk.
 *
 * All integers are little-endian. `docs/format.md` describes the same bytes for people, and
 * WB_FORMAT_VERSION changes with either. This floor turns bytes into structures and back; it does
 * no I/O and reads no clock. Every decoder takes hostile bytes: it checks every length before use.
 *
 * The principle of all records: a record holds the state BEFORE its change, never the change.
 * Replay puts before-states back, newest first, so a record whose change never happened puts back
 * what is there already, and replaying twice is replaying once.
 */

#include "format/op.h"
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define WB_FORMAT_VERSION 12
#define WB_FORMAT_FORGETS 5 /* since this version a store may have a horizon: history before it is deleted */
#define WB_FORMAT_MANIFEST 8 /* since this version a store may have a manifest */
#define WB_FORMAT_OLDEST 1 /* stores since this version can be read; the next writer raises their version */

/* ---- names in the store ---------------------------------------------------------------------- */

#define WB_STORE_NAME ".wayback"                 /* in the root of SRC, unless -o store=DIR */
#define WB_STAGING_NAME ".wayback-staging"       /* in the root of SRC, if the store is on another device */
#define WB_HEADER_NAME "header"
#define WB_LOCK_NAME "lock"
#define WB_INFLIGHT_NAME "inflight"
#define WB_GAPS_NAME "gaps"
#define WB_SPANS_NAME "spans"
#define WB_IDENTITIES_NAME "identities"
#define WB_WRITEBACK_NAME "settling"
#define WB_ACTORS_NAME "actors"
#define WB_CLOCK_NAME "clock" /* while the wall clock is in doubt: the time before that */
#define WB_OBJECTS_NAME "objects"
#define WB_SNAPSHOTS_NAME "snapshots"
#define WB_STAGES_NAME "stages"
#define WB_LOST_SLOTS_NAME "stages.lost" /* since when slots of `stages` may be missing, and when some were */
#define WB_CONFIG_NAME "wayback.conf" /* the user's text, see wayback.conf(5) */
#define WB_TIMELINE_NAME "timeline"
#define WB_MANIFEST_NAME "manifest" /* the logs that must exist, and the minimum length of each */
#define WB_LOST_NAME "lost" /* data that vfsck cut off or replaced */
#define WB_SIGNPOST_NAME "moved" /* leads to the new place of the store, or back to its former one */
#define WB_ARRIVING_NAME "header.arriving" /* the header of a store that is being moved to this place */

/* The files of one object in the store: objects/xx/ID.suffix */
enum wb_object_file {
    WB_FILE_UNDO,      /* .undo   log: lost content, xattrs, attributes of a file            */
    WB_FILE_CATALOG,   /* .cat    log: names and attributes of a directory's entries         */
    WB_FILE_IMAGE,     /* .image  cloned before-images                                       */
    WB_FILE_DATA,      /* .data   the file itself, after a name of it was lost               */
    WB_FILE_DIR,       /* .dir    the (empty) directory itself, after its removal            */
    WB_FILE_BUNDLE,    /* .bundle      the content of .data, packed with that of others      */
    WB_FILE_BUNDLE_OLD, /* .bundle-old  a bundle that has content of a file which does not use it any more */
    WB_FILE_GONE,      /* .gone   nothing: .data was erased, and records that refer to it will be, too */
};

/* ---- identities ------------------------------------------------------------------------------ */

/*
 * An object: an inode with a history. Its inode number in SRC with its birth time, so that a reused inode number is a
 * new object. `birth` is in ns since the epoch (STATX_BTIME), or the inode generation if the file system reports no
 * birth, or 0.
 */
struct wb_object {
    uint64_t ino;
    int64_t birth;
};

/* "no object" */
#define WB_OBJECT_NONE ((struct wb_object){0, 0})

/* ID: 16 + 1 + 16 hex digits, e.g. "00000000000a1b2c-18a3f0c2d4e5f607"; xx: low byte of ino. */
#define WB_OBJECT_TEXT_MAX 34
#define WB_OBJECT_PATH_MAX 64 /* "objects/xx/ID.suffix" */

/* Attributes just before a change. Times in ns since the epoch. */
struct wb_attrs {
    uint32_t mode; /* with the file type */
    uint32_t uid;
    uint32_t gid;
    uint32_t nlink;
    uint64_t size;
    uint64_t rdev;   /* of a device, else 0 */
    uint64_t blocks; /* of all other types: blocks of 512 bytes, plus 1; 0: not known */
    int64_t atime;
    int64_t mtime;
    int64_t ctime;
};
#define WB_ATTRS_SIZE 56

/* ---- the frame of a record ------------------------------------------------------------------- */

/*
 * A log is a sequence of records, each
 *
 *    0  u32 magic           WB_RECORD_MAGIC
 *    4  u8  type            enum wb_record_type
 *    5  u8  flags           WB_RECORD_*
 *    6  u16 op              enum wb_op: the user's operation, for display
 *    8  i64 when            ns since the epoch; strictly increasing over the store, but the parts of one
 *                           change, and its records in several logs, share it
 *   16  u32 actor           the actor (index into the actors log), 0 = unknown
 *   20  u32 body_length     <= WB_BODY_MAX
 *   24  u32 payload_length  <= WB_PAYLOAD_MAX
 *   28  u32 zero
 *   32  u64 payload_check   checksum of the payload, 0 if there is none
 *   40  u64 head_check      checksum of bytes 0..39 and of the body
 *   48  body, payload, zeros up to a multiple of 8
 *    +  u32 total           length of the whole record, this trailer included
 *    +  u32 trailer magic   WB_TRAILER_MAGIC
 *
 * Readers verify head and body of each record, the payload when it is used: damage to a
 * payload costs those bytes, damage to a head costs every state older than it in that log.
 */
#define WB_RECORD_MAGIC 0x314b4257u  /* "WBK1" */
#define WB_TRAILER_MAGIC 0x4b425745u /* "EWBK" */
#define WB_HEAD_SIZE 48
#define WB_TRAILER_SIZE 8
#define WB_BODY_MAX 4096
#define WB_PAYLOAD_MAX (1u << 20)
#define WB_RECORD_MAX (WB_HEAD_SIZE + WB_BODY_MAX + WB_PAYLOAD_MAX + 8 + WB_TRAILER_SIZE)

/* The next record of this log belongs to the same change (same `when`). */
#define WB_RECORD_MORE 0x01
/*
 * Since version 3, of DATA and ATTR. A stage combines the changes of a file's content between two closes
 * (history=close). Its DATA records are written one by one; all take effect together, at the `when` of its ATTR record,
 * which ends it.
 */
#define WB_RECORD_STAGE 0x02
/*
 * Since version 6, of ATTR, DATA and XATTR of an undo log; since version 7, also of stages, and then of all records of
 * the stage. The state between the previous change in the log and this one is not kept: both count as one change, at
 * the `when` of this one. Bytes of this record may be zeros if an older record that counts with it has them, too.
 */
#define WB_RECORD_COALESCED 0x04
/*
 * Of NAME, with a THINNED record before it: the slot that lost a file to the graveyard describes the state up to that
 * THINNED record only. Of THINNED: this record continues another one, which ends where this one begins. Version 7 may
 * ignore both.
 */
#define WB_RECORD_THINNED 0x08
/*
 * Since version 9, of GAP with the reason policy. If it is the newest record of its log, no change of the log's objects
 * is recorded from `since` until now. Another GAP without the flag ends it, and precedes the next recorded change.
 */
#define WB_RECORD_OPEN 0x10
/*
 * Since version 12, of ATTR and DATA: the first change of the content through an open file, or a change by path. Lists
 * count all that a process does from there on as one version. No replay looks at it.
 */
#define WB_RECORD_BEGINS 0x20

enum wb_record_type {
    WB_REC_NAME = 1,  /* .cat           names of this directory before the change            */
    WB_REC_ATTR = 2,  /* .cat .undo     attributes of an object before the change            */
    WB_REC_DATA = 3,  /* .undo          content of this file before the change               */
    WB_REC_XATTR = 4, /* .cat .undo     one extended attribute of this object before the change */
    WB_REC_PLACE = 5, /* .cat .undo     the place of this object from now on                 */
    WB_REC_ABORT = 6, /* all            the change of the record `target` never happened     */
    WB_REC_GAP = 7,   /* all            states of [since, when) are not known                */
    WB_REC_ACTOR = 8, /* actors         the process and user of a change                     */
    /* since version 2 */
    WB_REC_SNAPSHOT = 9, /* snapshots   a moment, its name and its comment                   */
    WB_REC_INDEX = 10,   /* .undo       copies of the heads before it                        */
    /* since version 5 */
    WB_REC_FILLER = 11,  /* .cat .undo  in the place of records that were pruned             */
    WB_REC_THINNED = 12, /* .cat        from here on the name had other files, which are not kept */
#define WB_REC_LAST WB_REC_THINNED
};

/* ---- bodies ---------------------------------------------------------------------------------- */

#define WB_NAME_MAX 255

/* What happened to an object that lost a name. */
enum wb_unbind {
    WB_UNBIND_NONE = 0,   /* the name had no object                             */
    WB_UNBIND_KEPT = 1,   /* it is moved to (or already in) the graveyard       */
    WB_UNBIND_RENAMED = 2 /* it gets another name: to_dir, to_name              */
};

/*
 * One name of a directory before a change. present == 0: the name did not exist. `attrs` are those of the object when
 * it lost the name, so that one catalog suffices to rebuild one directory. `from_*`: the previous place of the object
 * that gets the name (rename, link), so that `vstat` can follow it; from_dir is WB_OBJECT_NONE for a new object.
 */
struct wb_slot {
    const char *name;
    uint8_t name_length;
    uint8_t present;
    uint8_t unbind;
    struct wb_object object;
    struct wb_attrs attrs;
    struct wb_object to_dir;
    const char *to_name;
    uint8_t to_length;
    struct wb_object from_dir;
    const char *from_name;
    uint8_t from_length;
};
#define WB_SLOTS_MAX 2

struct wb_rec_name {
    struct wb_attrs dir; /* the directory's own attributes before */
    uint32_t count;      /* 1, or 2 for a rename inside one directory */
    struct wb_slot slots[WB_SLOTS_MAX];
};

/*
 * An object's attributes before a change. For operations that only add content (append, extend) offset, length and
 * size_after give the added range; no other state has to be kept.
 */
struct wb_rec_attr {
    struct wb_object object;
    struct wb_attrs attrs;
    uint64_t offset;
    uint64_t length;
    uint64_t size_after;
    int64_t begin; /* with WB_RECORD_STAGE: the stage's records are not older, those of earlier stages not newer */
};

enum wb_extent_kind {
    WB_EXTENT_INLINE = 0, /* `source`: offset into this record's payload   */
    WB_EXTENT_ZERO = 1,   /* all zeros (or a hole)                         */
    WB_EXTENT_IMAGE = 2   /* `source`: offset in ID.image                  */
};

struct wb_extent {
    uint64_t offset; /* in the file */
    uint64_t length;
    uint64_t source;
    uint32_t kind;
    uint64_t check; /* of an image's bytes, 0: not computed (shared blocks); 0 for the other kinds */
};
#define WB_EXTENT_SIZE 40
#define WB_EXTENTS_MAX 64

/*
 * Content before a change. offset/length: the range of the operation, for display. The extents hold the bytes that
 * existed and were really changed, ascending and disjoint; every byte below attrs.size that the change altered or cut
 * off is in one of them.
 */
struct wb_rec_data {
    struct wb_attrs attrs;
    uint64_t offset;
    uint64_t length;
    uint64_t size_after;
    uint32_t count;
    struct wb_extent extents[WB_EXTENTS_MAX];
};

/* One extended attribute before a change; its old value is the payload. */
struct wb_rec_xattr {
    struct wb_object object;
    struct wb_attrs attrs;
    uint8_t present;
    uint8_t name_length;
    const char *name;
};

/*
 * The flags of an inode (chattr(1), FS_IOC_FSSETXATTR), recorded like an extended attribute of this name, since version
 * 9. The value has WB_FLAGS_SIZE bytes.
 */
#define WB_FLAGS_NAME "system.wayback.flags"
#define WB_FLAGS_SIZE 24

struct wb_flags {
    uint32_t flags;           /* FS_*_FL of linux/fs.h that a user can set         */
    uint32_t xflags;          /* FS_XFLAG_* that a user can set                    */
    uint32_t project;
    uint32_t extent_size;
    uint32_t cow_extent_size;
};

void wb_flags_encode(const struct wb_flags *flags, uint8_t data[WB_FLAGS_SIZE]);
/* 0 or -EBADMSG. */
int wb_flags_decode(const void *data, size_t length, struct wb_flags *ret);

/* "This object is at parent/name". The first record of a catalog, and repeated at every move. */
struct wb_rec_place {
    struct wb_object self;
    struct wb_object parent; /* WB_OBJECT_NONE for the root */
    uint8_t name_length;
    const char *name;
};

/*
 * The name by which the object of an ATTR, DATA or XATTR record was reached, so that a list of all changes can name it
 * without a search. `length` 0: not known, or the object is a directory. `dir` none: the directory of this catalog.
 */
struct wb_via {
    struct wb_object dir;
    uint8_t length;
    const char *name;
};

struct wb_rec_abort {
    int64_t target; /* `when` of the change that never happened */
};

struct wb_rec_gap {
    int64_t since;
    uint8_t reason; /* enum wb_gap */
    int64_t until;  /* all missing changes happened before this `when`, which is at most the record's; 0: not known */
};
enum wb_gap {
    WB_GAP_REFUSED = 1,  /* the store took no record (onfull=continue)                       */
    WB_GAP_EXTERNAL = 2, /* vfsck --external                                                  */
    WB_GAP_ERASED = 3,   /* vrm                                                               */
    WB_GAP_POWER = 4,    /* a power cut took the end of the log                               */
    WB_GAP_UNSEEN = 5,   /* changed while nothing was recorded                                */
    WB_GAP_DAMAGE = 6,   /* records of the log are missing or destroyed                       */
    WB_GAP_POLICY = 7,   /* wayback.conf excludes the object from recording                   */
};

/*
 * Whether a gap of this reason stands for missing records between `since` and its own `when`, and for nothing else.
 * Such a gap acts as a record that sets everything to "not known", so older records are still valid. The other reasons
 * make everything before them unknown.
 */
static inline bool wb_gap_is_partial(unsigned reason)
{
    return reason >= WB_GAP_POWER;
}

/* "not recorded by wayback.conf": for lists. */
const char *wb_gap_reason(unsigned reason);

/* The part of a command line that is recorded. */
enum wb_commands {
    WB_COMMANDS_FULL, /* with its arguments */
    WB_COMMANDS_NAME, /* the base name of the program */
    WB_COMMANDS_NONE,
};

#define WB_COMMAND_MAX 1024
struct wb_rec_actor {
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
    uint16_t command_length;
    const char *command; /* see docs/format.md; cut at WB_COMMAND_MAX */
};

/*
 * A named moment. The newest record of a moment is valid, so renaming and deleting (present == 0) append another one.
 * The payload lists the files that were open for writing then: paths from the root of SRC, each terminated by NUL.
 */
#define WB_SNAPSHOT_TEXT_MAX 1024
#define WB_SNAPSHOT_PATH_MAX 2048
struct wb_rec_snapshot {
    int64_t moment;          /* the state at this `when`; identifies the snapshot */
    struct wb_object scope;  /* the directory it covers, with everything below; the root: the whole tree */
    uint32_t uid;            /* the user who created it */
    uint8_t present;         /* 0: deleted */
    uint8_t automatic;       /* created by a schedule */
    uint8_t name_length;
    uint16_t text_length;
    uint16_t path_length;
    const char *name;
    const char *text;        /* of `vsnap create -m` */
    const char *path;        /* of the scope when the snapshot was created, from the root of SRC; empty: the root */
};

/*
 * Copies of the heads and bodies of the records in [from, beginning of this record), so that a backward walk need not
 * read the payloads between them. Payload: the copies (wb_record_copy), newest first; none if they would be too long.
 * All its information is in the log, too: readers may ignore the record.
 */
#define WB_INDEX_COALESCED 1u /* of `types`: there are records with WB_RECORD_COALESCED */
struct wb_rec_index {
    uint64_t from;
    uint64_t previous; /* offset of the INDEX that ends at `from`; 0: there is none       */
    int64_t first;     /* `when` of the oldest record covered                             */
    int64_t last;      /* `when` of the newest                                            */
    uint32_t count;    /* of records covered                                              */
    uint32_t types;    /* bit 1 << type for each type among them, and WB_INDEX_COALESCED     */
    int64_t attrs_when;    /* `when` of the oldest record with attributes of the log's object, */
    struct wb_attrs attrs; /* and these attributes; 0: there is no such record            */
};

/*
 * Has the length of the records it replaces, so that no other record changes its offset; payload: zeros. The state
 * before `until` is not known for the log's objects; 0: the replaced records held no state of their own, and walks
 * ignore the filler.
 */
#define WB_FILLER_SIZE 64u /* without a payload: no record that a filler can replace is shorter */
struct wb_rec_filler {
    int64_t until;
};

/*
 * The file of a name was replaced here, and so was its successor, and perhaps more. Those successors are not kept:
 * until the change `until` the name shows the first file. In the place of longer records; payload: zeros.
 */
struct wb_rec_thinned {
    int64_t until; /* `when` of a NAME with WB_RECORD_THINNED */
};

/*
 * A decoded record. Strings point into the buffer that was decoded and are not terminated by NUL: use their lengths.
 * `offset` is where the record begins in its log, `payload_offset` where its payload begins.
 */
struct wb_record {
    uint64_t offset;
    uint32_t total;
    uint8_t type;
    uint8_t flags;
    uint16_t op;
    int64_t when;      /* as a walk reports it: the end of its stage; of joined records, the newest (log.h) */
    int64_t written;   /* as stored in the log */
    int64_t change;    /* `when` of its change: as stored in the log, but of a stage, its end */
    uint32_t actor;
    uint32_t body_length;
    uint32_t payload_length;
    uint64_t payload_offset;
    uint64_t payload_check;
    struct wb_via via; /* ATTR, DATA, XATTR; GAP with an `until` */
    union {
        struct wb_rec_name name;
        struct wb_rec_attr attr;
        struct wb_rec_data data;
        struct wb_rec_xattr xattr;
        struct wb_rec_place place;
        struct wb_rec_abort abort;
        struct wb_rec_gap gap;
        struct wb_rec_actor actor_info;
        struct wb_rec_snapshot snapshot;
        struct wb_rec_index index;
        struct wb_rec_filler filler;
        struct wb_rec_thinned thinned;
    };
};

/* ---- encode and decode (record.c) ------------------------------------------------------------ */

/*
 * Encodes head and body of `record` into `data` (WB_HEAD_SIZE + WB_BODY_MAX bytes). The caller sets type, flags, op,
 * when, actor, payload_length, payload_check and the body; the function sets body_length and total. Returns the number
 * of bytes, or -EMSGSIZE / -EINVAL if the record cannot be encoded. The payload follows on disk, then the bytes of
 * wb_record_encode_end.
 */
int wb_record_encode(struct wb_record *record, uint8_t *data);

/* Padding and trailer (at most 7 + WB_TRAILER_SIZE bytes, buffer of 16); returns their length. */
int wb_record_encode_end(const struct wb_record *record, uint8_t data[16]);

/* Reads from a head how many bytes the record has; 0 or -EBADMSG. `data` has WB_HEAD_SIZE bytes. */
int wb_record_measure(const uint8_t *data, uint32_t *body_length, uint32_t *total);

/* Whether `data` (4 bytes) begins with the magic of a record. */
int wb_record_is_magic(const uint8_t *data);

/* Trailer at the end of a record: its total length; 0 or -EBADMSG. */
int wb_record_measure_end(const uint8_t data[WB_TRAILER_SIZE], uint32_t *total);

/*
 * Decodes and verifies head and body from `length` >= WB_HEAD_SIZE + body_length bytes. The
 * record's `offset` is set to `offset`. Returns 0 or -EBADMSG.
 */
int wb_record_decode(const uint8_t *data, size_t length, uint64_t offset, struct wb_record *ret);

/*
 * A copy of head and body as INDEX holds it: padded with zeros to a multiple of 8, and without its magic, so that a
 * search for a lost head does not take it for a record. Returns the length of the copy.
 */
#define WB_COPY_SIZE(body_length) (((size_t)WB_HEAD_SIZE + (body_length) + 7) & ~(size_t)7)
size_t wb_record_copy(const uint8_t *data, uint32_t body_length, uint8_t *copy);

/* Converts a copy in place into the form that wb_record_decode reads. `length`: the bytes available. 0 or -EBADMSG. */
int wb_record_uncopy(uint8_t *copy, size_t length, uint32_t *body_length, uint32_t *total);

/* ---- the store's header (header.c) ----------------------------------------------------------- */

/*
 *   0  u8[8] magic "WAYBACK\n"     8 u32 version     12 u32 flags    16 u8[16] uuid
 *  32  root ino, root birth (u64, i64)     48 i64 created     56 u64 checksum of bytes 0..55
 */
#define WB_HEADER_SIZE 64
struct wb_header {
    uint32_t version;
    uint8_t uuid[16];
    struct wb_object root;
    int64_t created;   /* when the history begins */
    uint32_t forgotten; /* since version 5: 1: everything before `created` was pruned, and no state of it is shown */
    bool manifest;      /* since version 8: the store keeps a manifest (manifest.c)                        */
};
void wb_header_encode(const struct wb_header *header, uint8_t data[WB_HEADER_SIZE]);

/* 0, -EBADMSG (not a header, or a damaged one), or -EPROTONOSUPPORT (a newer version; *ret is set). */
int wb_header_decode(const uint8_t *data, size_t length, struct wb_header *ret);

/* ---- which logs there must be (manifest.c) --------------------------------------------------- */

/*
 * manifest/xx is a hash table of the logs in objects/xx: a head and 2^bits buckets, each a sector with its own
 * checksum, so that one write replaces it as a whole. An entry states that its log has a valid record that ends at
 * `end`. A search begins in the bucket of the entry's hash and, while a bucket has overflowed, continues in the
 * following ones. A deleted file (WB_FILE_DATA) has an entry with a checksum for each block of content.
 */
#define WB_SHARDS 256u /* objects/00 to objects/ff */
#define WB_MANIFEST_SECTOR 512
#define WB_MANIFEST_BUCKET 10   /* entries in a bucket               */
#define WB_MANIFEST_PROBES 8    /* buckets that a search reads at most */
#define WB_MANIFEST_BITS_MAX 28
#define WB_BODY_BLOCK (256u * 1024)
struct wb_manifest_entry {
    struct wb_object object;
    enum wb_object_file file;
    uint64_t end;   /* of a deleted file: its size                        */
    int64_t when;   /* of the record that ends there                      */
    uint32_t block; /* of a deleted file: number of the block; else 0     */
    uint64_t check; /* of that block; instead of `when`                   */
};
struct wb_manifest_bucket {
    bool overflowed;
    unsigned count;
    struct wb_manifest_entry entries[WB_MANIFEST_BUCKET];
};
void wb_manifest_head_encode(unsigned shard, unsigned bits, uint8_t data[WB_MANIFEST_SECTOR]);
/* 0 or -EBADMSG. */
int wb_manifest_head_decode(const uint8_t data[WB_MANIFEST_SECTOR], unsigned shard, unsigned *ret_bits);
void wb_manifest_bucket_encode(const struct wb_manifest_bucket *bucket, uint32_t number,
                               uint8_t data[WB_MANIFEST_SECTOR]);
int wb_manifest_bucket_decode(const uint8_t data[WB_MANIFEST_SECTOR], uint32_t number,
                              struct wb_manifest_bucket *ret);
/* The first bucket to search for an entry, of 2^bits. */
uint32_t wb_manifest_hash(struct wb_object object, enum wb_object_file file, uint32_t block, unsigned bits);

/* manifest/shards: which tables must exist, which have an entry for each log, and which for each deleted file. */
#define WB_MANIFEST_SHARDS_SIZE 120
struct wb_manifest_shards {
    uint8_t begun[WB_SHARDS / 8], complete[WB_SHARDS / 8], summed[WB_SHARDS / 8];
};
void wb_manifest_shards_encode(const struct wb_manifest_shards *shards, uint8_t data[WB_MANIFEST_SHARDS_SIZE]);
int wb_manifest_shards_decode(const uint8_t *data, size_t length, struct wb_manifest_shards *ret);

/* ---- a clock in doubt (clock.c) -------------------------------------------------------------- */

#define WB_CLOCK_SIZE 32
void wb_clock_note_encode(int64_t known, int64_t insisted, uint8_t data[WB_CLOCK_SIZE]);
/* 0 or -EBADMSG. */
int wb_clock_note_decode(const uint8_t *data, size_t length, int64_t *ret_known, int64_t *ret_insisted);

/* ---- the new place of a store (signpost.c) --------------------------------------------------- */

/*
 * The file `moved` in a directory that is, was or will be the store. Found in SRC/.wayback or in the directory of
 * -o store=DIR, it leads to the store. `path` is absolute and ends with a NUL.
 */
enum wb_signpost_kind {
    WB_SIGNPOST_LEADS = 1, /* the store is in `path`                                                              */
    WB_SIGNPOST_COMING,    /* it is being copied here from `path`, which is the store until a signpost there leads
                            * here */
    WB_SIGNPOST_REMAINS,   /* it is here; the remains of a move in `path` can be removed                          */
};
#define WB_SIGNPOST_PATH_MAX 4096
#define WB_SIGNPOST_SIZE_MAX (48 + WB_SIGNPOST_PATH_MAX + 16 + 8)
struct wb_signpost {
    uint32_t kind;
    uint32_t buried; /* COMING: 1: deleted files are in `path` itself, and have to be moved as well */
    uint8_t uuid[16]; /* of the store */
    int64_t synced;   /* COMING: a copy whose ctime is before this is on the disk */
    bool has_root;    /* `root` is known: older versions did not write it */
    struct wb_object root; /* the inode of the tree's root when the signpost was written: a copy has another one */
    char path[WB_SIGNPOST_PATH_MAX];
};
/* Returns the encoded length; `data` holds WB_SIGNPOST_SIZE_MAX. */
size_t wb_signpost_encode(const struct wb_signpost *signpost, uint8_t *data);
int wb_signpost_decode(const uint8_t *data, size_t length, struct wb_signpost *ret); /* 0 or -EBADMSG */

/* ---- in-flight changes (inflight.c) ---------------------------------------------------------- */

/*
 * The file `inflight` is written in place; written bytes survive SIGKILL:
 *   0  u8[8] magic "WBFLIGHT"   8 u32 slots   12 u32 zero   16 i64 last `when` given out
 *  24  u64 checksum of the boot id   32 i64 no `when` after this one was given out (see inflight.c)
 *  40  i64 the newest change's `when`
 *  64  slots of 64 bytes: 0 u64 sequence (0 = free), 8 i64 when (free: of its end), 16 u32 logs (1..3), 20 u32 zero
 *      (free: 16 i64 when of the change it held),
 *      24 u32 kind of log A, 28 u32 kind of log B, 32 object A (ino, birth), 48 object B
 * 4096  tail of 64 bytes, since version 10: 0 i64 begin and 8 i64 end of the newest recorded span (spans.c), zeros
 * A third log of a change (a directory that moves) is found from the records of the first two.
 */
#define WB_INFLIGHT_HEAD 64
#define WB_INFLIGHT_SLOT 64
#define WB_INFLIGHT_SLOTS 63
#define WB_INFLIGHT_SIZE_9 (WB_INFLIGHT_HEAD + WB_INFLIGHT_SLOTS * WB_INFLIGHT_SLOT) /* up to version 9 */
#define WB_INFLIGHT_TAIL 64
#define WB_INFLIGHT_SIZE (WB_INFLIGHT_SIZE_9 + WB_INFLIGHT_TAIL)

/* ---- recorded spans (spans.c) ---------------------------------------------------------------- */

/*
 * The file `spans` lists the periods, in times of the clock of ctime, in which all changes of SRC were recorded:
 *    0  u8[8] magic "WBSPANS\n"   8 i64 floor: up to then every object was checked
 *   16 i64 cut: the newest power cut (head of `inflight`) that the table was looked through for
 *   24 u32 from: objects that others renamed between this second and the floor are marked; 0: not known
 *   28  u32 low half of the checksum of bytes 0..27
 * then spans of the same size: 0 i64 begin, 8 i64 end, 16 zeros, 28 the checksum. An entry that does not verify is
 * none.
 * The newest span is in the tail of `inflight`.
 */
#define WB_SPANS_VERSION 10 /* of the format: older stores have no spans */
#define WB_SPAN_SIZE 32
#define WB_SPANS_MAX 1023
struct wb_span {
    int64_t begin, end;
};
struct wb_spans_head {
    int64_t floor, cut;
    uint32_t from;
};
void wb_spans_encode_head(const struct wb_spans_head *head, uint8_t data[WB_SPAN_SIZE]);
int wb_spans_decode_head(const uint8_t data[WB_SPAN_SIZE], struct wb_spans_head *ret); /* 0 or -EBADMSG */
void wb_span_encode(struct wb_span span, uint8_t data[WB_SPAN_SIZE]);
int wb_span_decode(const uint8_t data[WB_SPAN_SIZE], struct wb_span *ret); /* 0 or -EBADMSG */

/* ---- stages under way (stage.c) -------------------------------------------------------------- */

/*
 * The file `stages`: a head (magic "WBSTAGES", zeros), then slots of the same size:
 *    0  i64 begin, 0 = free   8 object (u64 ino, i64 birth)   24 object of its directory   40 u32 actor   44 u32 zero
 *   48  attributes before   104 i64, i64 newest records then   120 u64 checksum of bytes 0..119
 */
#define WB_STAGE_SIZE 128
struct wb_stage_entry {
    int64_t begin;         /* a unique `when` */
    struct wb_object object;
    struct wb_object dir;  /* the directory whose catalog may hold its end; none: in no catalog */
    struct wb_attrs attrs; /* before */
    int64_t newest_own;    /* `when` of the newest record then in the file's undo log; 0: none, or not known */
    int64_t newest_dir;    /* the same of the catalog of `dir` */
    uint32_t actor;
};
void wb_stage_encode(const struct wb_stage_entry *entry, uint8_t data[WB_STAGE_SIZE]);
int wb_stage_decode(const uint8_t data[WB_STAGE_SIZE], struct wb_stage_entry *ret); /* 0 or -EBADMSG (or free) */

/* ---- open gaps (gaps.c) ---------------------------------------------------------------------- */

/*
 * The file `gaps` is an array of places, behind a head of the same size (magic, zeros, check); written in place:
 *    0 object (u64 ino, i64 birth)   16 i64 since   24 u32 log: 0 .undo, 1 .cat
 *   28  u32 low half of the checksum of bytes 0..27
 * Zeros: free.
 */
#define WB_GAP_SIZE 32
#define WB_GAPS_MAX 511
struct wb_open_gap {
    struct wb_object object; /* changes of it are missing in the log */
    int64_t since;           /* the first missing change */
    enum wb_object_file file;
};
void wb_gap_encode(const struct wb_open_gap *gap, uint8_t data[WB_GAP_SIZE]);
int wb_gap_decode(const uint8_t data[WB_GAP_SIZE], struct wb_open_gap *ret); /* 0 or -EBADMSG */
void wb_gap_encode_head(uint8_t data[WB_GAP_SIZE]);
int wb_gap_check_head(const uint8_t data[WB_GAP_SIZE]); /* 0 or -EBADMSG */

/*
 * The file `settling`: the same head, a note, and a list of entries, all of the same form as a gap; `since` says what
 * an entry means. Zeros: no note. Programs that do not know the note begin the list in its place.
 */
#define WB_WRITEBACK_NOTE WB_GAP_SIZE
#define WB_WRITEBACK_LIST (2 * WB_GAP_SIZE)
#define WB_WRITEBACK_CONTENT 1 /* the file's content is being flushed to the disk      */
#define WB_WRITEBACK_STAMP 2   /* the modification time of the object's log is not valid */

/* ---- the timeline (times.c) ------------------------------------------------------------------ */

/*
 * Files of `timeline` are arrays of entries, behind a head of the same size (magic, zeros, check):
 *    0  i64 when   8 object (u64 ino, i64 birth)   24 u64 offset of the record; bit 0: 0 .undo, 1 .cat
 *   32  u32 actor  36 u32 low half of the checksum of bytes 0..35
 * An entry is a hint: readers verify the record that it points to.
 */
#define WB_TIMES_ENTRY_SIZE 40
struct wb_times_entry {
    int64_t when;
    struct wb_object object; /* whose log */
    enum wb_object_file file;
    uint64_t offset;         /* of the record in it */
    uint32_t actor;
};
void wb_times_encode(const struct wb_times_entry *entry, uint8_t data[WB_TIMES_ENTRY_SIZE]);
int wb_times_decode(const uint8_t data[WB_TIMES_ENTRY_SIZE], struct wb_times_entry *ret); /* 0 or -EBADMSG */
void wb_times_encode_head(uint8_t data[WB_TIMES_ENTRY_SIZE]);
/* 0; -ESTALE: written by a version whose timeline has no gaps; or -EBADMSG. */
int wb_times_check_head(const uint8_t data[WB_TIMES_ENTRY_SIZE]);

/* ---- packed logs (pack.c) -------------------------------------------------------------------- */

/*
 * A log file may begin with a pack: the first `unpacked` bytes of the log, compressed in chunks. What follows in
 * the file is the log's bytes from `unpacked` on, as they are. Offsets in a log are those of its bytes, packed
 * or not: packing moves no record.
 *    0  u8[8] magic "WBPACK1\n"   8 u32 count of chunks   12 u32 zero   16 u64 unpacked   24 u64 packed: bytes of
 *       the file that stand for these   32 u64 checksum of the table   40 zeros   56 u64 checksum of bytes 0..55
 *   64  table: an entry of 32 bytes for each chunk, then the chunks, zeros up to a multiple of 8, the
 *      head once more, and a trailer as a record of these 72 bytes would have: if the head is damaged, every
 *      version recognizes from the trailer that data was here
 * An entry:
 *    0  u64 where in the file   8 u32 length unpacked   12 u32 length packed   16 u32 method   20 u32 reference
 *   24  u64 checksum of the unpacked bytes
 */
#define WB_PACK_HEAD_SIZE 64
#define WB_PACK_ENTRY_SIZE 32
#define WB_PACK_END_SIZE (WB_PACK_HEAD_SIZE + WB_TRAILER_SIZE)
#define WB_PACK_CHUNK_MAX (1u << 20) /* before packing */
#define WB_PACK_CHUNKS_MAX (1u << 16)

enum wb_pack_method {
    WB_PACK_PLAIN = 0, /* the bytes themselves                                      */
    WB_PACK_ZSTD = 1,  /* a zstd frame; with a reference, that chunk is its prefix   */
    WB_PACK_CHECKED = 2, /* the bytes themselves, verified by the checksum: in bundles */
};

struct wb_pack_head {
    uint32_t count;
    uint64_t unpacked;
    uint64_t packed;
    uint64_t table_check;
};

struct wb_pack_chunk {
    uint64_t at;
    uint32_t length;
    uint32_t stored;
    uint32_t method;
    uint32_t reference; /* how many chunks ahead the reference is; 0: none. A reference has none itself. */
    uint64_t check;
};

/* Whether a file that begins with these bytes is packed, or once was. */
int wb_pack_is_magic(const uint8_t *data, size_t length);

void wb_pack_encode_head(const struct wb_pack_head *head, uint8_t data[WB_PACK_HEAD_SIZE]);
int wb_pack_decode_head(const uint8_t data[WB_PACK_HEAD_SIZE], struct wb_pack_head *ret); /* 0 or -EBADMSG */
void wb_pack_encode_end(const struct wb_pack_head *head, uint8_t data[WB_PACK_END_SIZE]);
void wb_pack_encode_chunk(const struct wb_pack_chunk *chunk, uint8_t data[WB_PACK_ENTRY_SIZE]);

/* All entries of a table (count * WB_PACK_ENTRY_SIZE bytes, checked with the head): 0 or -EBADMSG. */
int wb_pack_decode_table(const struct wb_pack_head *head, const uint8_t *data, struct wb_pack_chunk *chunks);

/* ---- packed bodies (bundle.c) ------------------------------------------------------------------ */

/*
 * A bundle is a file that is a pack from its beginning to its end. It contains the content of deleted and replaced
 * files, and an index at the end: a member of 64 bytes for each file, in order of objects, an extent of 24 bytes for
 * each run of data (between them are holes), and an end:
 *    0  u8[8] magic "WBBUNDL\n"   8 u32 members   12 u32 extents   16 u64 zero
 *   24  u64 checksum of the index before it
 * A member:
 *    0  object   16 u64 chain   24 u64 size   32 i64 atime   40 i64 mtime   48 i64 lost   56 u32 first extent   60 u32
 * count An extent:
 *    0  u64 offset in the file   8 u64 length   16 u64 offset in what is packed
 */
#define WB_BUNDLE_NEW "bundle.new" /* in the store: a bundle that is being written */
#define WB_BUNDLE_LINK_NEW "bundle-link.new" /* a name of a bundle before it is renamed */
#define WB_PACK_NEW "pack.new"     /* a log that is being packed */
#define WB_BUNDLE_END_SIZE 32
#define WB_BUNDLE_MEMBER_SIZE 64
#define WB_BUNDLE_EXTENT_SIZE 24
#define WB_BUNDLE_MEMBERS_MAX 16384u
#define WB_BUNDLE_EXTENTS_MAX 262144u

struct wb_bundle_end {
    uint32_t members, extents;
    uint64_t check;
};

struct wb_bundle_member {
    struct wb_object object;
    uint64_t chain; /* equal for files that had the same name in the same directory one after the other */
    uint64_t size;
    int64_t atime, mtime;
    int64_t lost; /* its ctime when it was packed: the time at which it lost its name */
    uint32_t first, count;
};

struct wb_bundle_extent {
    uint64_t offset, length;
    uint64_t at;
};

/* The length of the index without its end. */
static inline uint64_t wb_bundle_index_size(const struct wb_bundle_end *end)
{
    return (uint64_t)end->members * WB_BUNDLE_MEMBER_SIZE + (uint64_t)end->extents * WB_BUNDLE_EXTENT_SIZE;
}
void wb_bundle_encode_end(const struct wb_bundle_end *end, uint8_t data[WB_BUNDLE_END_SIZE]);
int wb_bundle_decode_end(const uint8_t data[WB_BUNDLE_END_SIZE], struct wb_bundle_end *ret); /* 0 or -EBADMSG */
void wb_bundle_encode_index(const struct wb_bundle_end *end, const struct wb_bundle_member *members,
                            const struct wb_bundle_extent *extents, uint8_t *data);
/* `room`: the number of packed bytes before the index. 0 or -EBADMSG. */
int wb_bundle_decode_index(const struct wb_bundle_end *end, const uint8_t *data, uint64_t room,
                           struct wb_bundle_member *members, struct wb_bundle_extent *extents);

/* ---- identities in a tree that was copied (identities.c) -------------------------------------- */

/*
 * The file `identities`, since version 4: a head, then 2^bits places of an open hash table.
 *    0  u8[8] magic "WBIDENT\n"   8 u32 bits   12 u32 zero   16 u64 count of places taken   24 zeros
 *   56  u64 checksum of bytes 0..55
 * A place: 0 the inode (u64 number, i64 birth)   16 the object it is   32 u32 zero   36 u32 lower half of the checksum
 * of bytes 0..35; zeros: free. An inode's place is the checksum of its 16 bytes, modulo their number, or the next
 * that is free, round the end.
 */
#define WB_IDENTITIES_HEAD 64
#define WB_IDENTITY_SIZE 40
#define WB_IDENTITIES_BITS_MAX 36
struct wb_identities_head {
    uint32_t bits;
    uint64_t count; /* at most half of the places */
};
struct wb_identity {
    struct wb_object inode;
    struct wb_object object;
};
void wb_identities_encode_head(const struct wb_identities_head *head, uint8_t data[WB_IDENTITIES_HEAD]);
int wb_identities_decode_head(const uint8_t data[WB_IDENTITIES_HEAD], struct wb_identities_head *ret);
uint64_t wb_identity_place(struct wb_object inode, uint32_t bits);
void wb_identity_encode(const struct wb_identity *identity, uint8_t data[WB_IDENTITY_SIZE]);
int wb_identity_decode(const uint8_t data[WB_IDENTITY_SIZE], struct wb_identity *ret); /* 0 or -EBADMSG (or free) */

/* ---- object ids as text (object.c) ----------------------------------------------------------- */

/* "00000000000a1b2c-18a3f0c2d4e5f607" */
void wb_object_print(struct wb_object object, char text[WB_OBJECT_TEXT_MAX]);
int wb_object_parse(const char *text, struct wb_object *ret); /* 0 or -EINVAL */

/* "objects/xx/ID.undo" */
void wb_object_path(struct wb_object object, enum wb_object_file file, char path[WB_OBJECT_PATH_MAX]);

/* From a name "ID.suffix": 0 or -EINVAL. */
int wb_object_file_parse(const char *name, struct wb_object *ret, enum wb_object_file *file);

static inline int wb_object_equal(struct wb_object a, struct wb_object b)
{
    return a.ino == b.ino && a.birth == b.birth;
}

static inline int wb_object_is_none(struct wb_object a)
{
    return a.ino == 0 && a.birth == 0;
}
