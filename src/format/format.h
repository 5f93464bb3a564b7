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

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define WB_FORMAT_VERSION 11
#define WB_FORMAT_FORGETS 5 /* stores of this version and later may have forgotten what was before some moment */
#define WB_FORMAT_MANIFEST 8 /* stores of this version and later may have a manifest */
#define WB_FORMAT_OLDEST 1 /* stores of this version and later are read, and raised when they are next written */

/* ---- names in the store ---------------------------------------------------------------------- */

#define WB_STORE_NAME ".wayback"                 /* in the root of SRC, unless -o store=DIR */
#define WB_STAGING_NAME ".wayback-staging"       /* in the root of SRC, where the store is on another device */
#define WB_HEADER_NAME "header"
#define WB_LOCK_NAME "lock"
#define WB_INFLIGHT_NAME "inflight"
#define WB_GAPS_NAME "gaps"
#define WB_SPANS_NAME "spans"
#define WB_IDENTITIES_NAME "identities"
#define WB_SETTLING_NAME "settling"
#define WB_ACTORS_NAME "actors"
#define WB_CLOCK_NAME "clock" /* while the wall clock is doubted: how late it was */
#define WB_OBJECTS_NAME "objects"
#define WB_SNAPSHOTS_NAME "snapshots"
#define WB_STAGES_NAME "stages"
#define WB_LOST_SLOTS_NAME "stages.lost" /* since when slots of it may be missing, and when some were */
#define WB_CONFIG_NAME "wayback.conf" /* the user's text, see wayback.conf(5) */
#define WB_TIMELINE_NAME "timeline"
#define WB_MANIFEST_NAME "manifest" /* which logs there must be, and how long they must be at least */
#define WB_LOST_NAME "lost" /* what vfsck cut off or replaced */
#define WB_SIGNPOST_NAME "moved" /* where the store went, or where it comes from */
#define WB_ARRIVING_NAME "header.arriving" /* the header of a store that is being moved to this place */

/* What the store keeps of one object: objects/xx/ID.suffix */
enum wb_object_file {
    WB_FILE_UNDO,      /* .undo   log: lost content, xattrs, attributes of a file            */
    WB_FILE_CATALOG,   /* .cat    log: names and attributes of a directory's entries         */
    WB_FILE_IMAGE,     /* .image  cloned before-images                                       */
    WB_FILE_DATA,      /* .data   the file itself, after a name of it was lost               */
    WB_FILE_DIR,       /* .dir    the (empty) directory itself, after its removal            */
    WB_FILE_BUNDLE,    /* .bundle      the content of .data, packed with that of others      */
    WB_FILE_BUNDLE_OLD, /* .bundle-old  a bundle that has content of a file it is not needed for any more */
    WB_FILE_GONE,      /* .gone   nothing: .data was erased, and records that tell of it still go      */
};

/* ---- identities ------------------------------------------------------------------------------ */

/*
 * An object: what has a history. The lower inode number with its birth time, so that a reused
 * inode number is a new object. `birth` is ns since the epoch (STATX_BTIME), or the inode
 * generation where the file system tells no birth, or 0.
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

/* Attributes as they were just before a change. Times in ns since the epoch. */
struct wb_attrs {
    uint32_t mode; /* with the file type */
    uint32_t uid;
    uint32_t gid;
    uint32_t nlink;
    uint64_t size;
    uint64_t rdev;   /* of a device, else 0 */
    uint64_t blocks; /* of anything else: blocks of 512 bytes, plus 1; 0: not known */
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
 *    6  u16 op              enum wb_op: what the user did, for people
 *    8  i64 when            ns since the epoch; strictly increasing over the store, but the parts of one
 *                           change, and its records in several logs, share it
 *   16  u32 actor           who (index into the actors log), 0 = unknown
 *   20  u32 body_length     <= WB_BODY_MAX
 *   24  u32 payload_length  <= WB_PAYLOAD_MAX
 *   28  u32 zero
 *   32  u64 payload_check   checksum of the payload, 0 where there is none
 *   40  u64 head_check      checksum of bytes 0..39 and of the body
 *   48  body, payload, zeros up to a multiple of 8
 *    +  u32 total           length of the whole record, this trailer included
 *    +  u32 trailer magic   WB_TRAILER_MAGIC
 *
 * Head and body are verified whenever a record is met, the payload when it is used: damage to a
 * payload costs those bytes, damage to a head costs every state older than it in that log.
 */
#define WB_RECORD_MAGIC 0x314b4257u  /* "WBK1" */
#define WB_TRAILER_MAGIC 0x4b425745u /* "EWBK" */
#define WB_HEAD_SIZE 48
#define WB_TRAILER_SIZE 8
#define WB_BODY_MAX 4096
#define WB_PAYLOAD_MAX (1u << 20)
#define WB_RECORD_MAX (WB_HEAD_SIZE + WB_BODY_MAX + WB_PAYLOAD_MAX + 8 + WB_TRAILER_SIZE)

/* More records of the same change follow in this log (same `when`). */
#define WB_RECORD_MORE 0x01
/*
 * Since version 3, of DATA and ATTR. A stage is what happened to a file's content between two closes
 * (history=close). Its DATA records are written one by one and count together, from the moment of its ATTR record,
 * which ends it.
 */
#define WB_RECORD_STAGE 0x02
/*
 * Since version 6, of ATTR, DATA and XATTR of an undo log; since version 7, also of those of a stage, in all of them.
 * The state between the change before this one in the log and this one is not kept: both count together, from this one
 * on. Bytes of this one that older ones it counts with tell, too, may be zeros.
 */
#define WB_RECORD_JOINED 0x04
/*
 * Of NAME, with a THINNED record before it: what its slot that lost a file to the graveyard tells was so up to that
 * record. Of THINNED: that goes on from another one, which ends where it begins. Version 7 may ignore both.
 */
#define WB_RECORD_THINNED 0x08
/*
 * Since version 9, of GAP with the reason policy: where it is the newest record of its log, nothing of the log's things
 * is recorded from `since` until now. What is recorded next comes after another GAP, without the flag, that ends it.
 */
#define WB_RECORD_OPEN 0x10

enum wb_record_type {
    WB_REC_NAME = 1,  /* .cat           names of this directory, as they were                */
    WB_REC_ATTR = 2,  /* .cat .undo     attributes of an object, as they were                */
    WB_REC_DATA = 3,  /* .undo          content of this file, as it was                      */
    WB_REC_XATTR = 4, /* .cat .undo     one extended attribute of this object, as it was     */
    WB_REC_PLACE = 5, /* .cat .undo     where this object is found from now on               */
    WB_REC_ABORT = 6, /* all            the record `target` has no change: never happened    */
    WB_REC_GAP = 7,   /* all            states of [since, when) are not known                */
    WB_REC_ACTOR = 8, /* actors         who                                                  */
    /* since version 2 */
    WB_REC_SNAPSHOT = 9, /* snapshots   a moment, its name and what is said of it            */
    WB_REC_INDEX = 10,   /* .undo       the records before it, copied together               */
    /* since version 5 */
    WB_REC_FILLER = 11,  /* .cat .undo  in the place of records that were forgotten by age   */
    WB_REC_THINNED = 12, /* .cat        a name was something else from here on, which is not kept */
#define WB_REC_LAST WB_REC_THINNED
};

/* What happened, in the user's words. Stable numbers; unknown ones are shown as "op N". */
enum wb_op {
    WB_OP_NONE = 0,
    WB_OP_CREATE = 1,
    WB_OP_MKDIR,
    WB_OP_MKNOD,
    WB_OP_SYMLINK,
    WB_OP_LINK,
    WB_OP_UNLINK,
    WB_OP_RMDIR,
    WB_OP_RENAME,
    WB_OP_EXCHANGE,
    WB_OP_WHITEOUT,
    WB_OP_WRITE,
    WB_OP_MMAP,
    WB_OP_TRUNCATE,
    WB_OP_ALLOCATE,
    WB_OP_PUNCH,
    WB_OP_ZERO,
    WB_OP_COLLAPSE,
    WB_OP_INSERT,
    WB_OP_COPY,
    WB_OP_CHMOD,
    WB_OP_CHOWN,
    WB_OP_UTIMENS,
    WB_OP_SETXATTR,
    WB_OP_REMOVEXATTR,
    WB_OP_RESTORE, /* a dead object bound to a name again */
    WB_OP_FORGET,  /* vrm --history: nothing older is known on purpose */
    WB_OP_MAX
};

/* ---- bodies ---------------------------------------------------------------------------------- */

#define WB_NAME_MAX 255

/* What became of an object that lost a name. */
enum wb_fate {
    WB_FATE_NONE = 0, /* there was none                                     */
    WB_FATE_KEPT = 1, /* it goes to (or already is in) the graveyard        */
    WB_FATE_MOVED = 2 /* it goes to another name: to_dir, to_name           */
};

/*
 * One name of a directory before a change. present == 0: there was no such name.
 * `attrs` are those of the object when it lost the name, so that one catalog suffices to rebuild
 * one directory. `from_*`: where the object that takes the name comes from (rename, link), so
 * that `vstat` can follow it; from_dir is WB_OBJECT_NONE for a newborn.
 */
struct wb_slot {
    const char *name;
    uint8_t name_length;
    uint8_t present;
    uint8_t fate;
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
 * An object's attributes before. For operations that only add content (append, extend) offset,
 * length and size_after say what was added; there is nothing else to keep.
 */
struct wb_rec_attr {
    struct wb_object object;
    struct wb_attrs attrs;
    uint64_t offset;
    uint64_t length;
    uint64_t size_after;
    int64_t begin; /* with WB_RECORD_STAGE: no record of the stage is older, and none of another is newer */
};

enum wb_extent_kind {
    WB_EXTENT_INLINE = 0, /* `source`: offset into this record's payload   */
    WB_EXTENT_ZERO = 1,   /* was all zeros (or a hole)                     */
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
 * Content before. offset/length: the range the operation touched, for people. The extents tell
 * the bytes that were there and really changed, ascending and disjoint; every byte below
 * attrs.size that the change altered or cut off is in one of them.
 */
struct wb_rec_data {
    struct wb_attrs attrs;
    uint64_t offset;
    uint64_t length;
    uint64_t size_after;
    uint32_t count;
    struct wb_extent extents[WB_EXTENTS_MAX];
};

/* One extended attribute before; its old value is the payload. */
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
    uint32_t flags;           /* FS_*_FL of linux/fs.h, those that a user sets     */
    uint32_t xflags;          /* FS_XFLAG_*, the same                              */
    uint32_t project;
    uint32_t extent_size;
    uint32_t cow_extent_size;
};

void wb_flags_encode(const struct wb_flags *flags, uint8_t data[WB_FLAGS_SIZE]);
/* 0 or -EBADMSG. */
int wb_flags_decode(const void *data, size_t length, struct wb_flags *ret);

/* "This object is at parent/name". First record of a catalog, and again at every move. */
struct wb_rec_place {
    struct wb_object self;
    struct wb_object parent; /* WB_OBJECT_NONE for the root */
    uint8_t name_length;
    const char *name;
};

/*
 * By which name the object of an ATTR, DATA or XATTR record was reached, so that a list of all changes can name it
 * without a search. `length` 0: not known, or a directory itself. `dir` none: the directory of
 * this catalog.
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
    int64_t until;  /* all that is missing happened before this moment, at most `when`; 0: that is not known */
};
enum wb_gap {
    WB_GAP_REFUSED = 1,  /* the store took no record (onfull=continue)                       */
    WB_GAP_EXTERNAL = 2, /* vfsck --external                                                  */
    WB_GAP_ERASED = 3,   /* vrm                                                               */
    WB_GAP_POWER = 4,    /* a power cut took the end of the log                               */
    WB_GAP_UNSEEN = 5,   /* changed while nothing was recorded                                */
    WB_GAP_DAMAGE = 6,   /* records that the log once had are missing or destroyed            */
    WB_GAP_POLICY = 7,   /* wayback.conf says that nothing is recorded                        */
};

/*
 * Whether a gap of that reason stands for missing records between `since` and its own `when`, and for nothing else: it
 * counts as a record of everything that says "not known", so older records still say what they say. The other reasons
 * make everything before them unknown.
 */
static inline bool wb_gap_is_partial(unsigned reason)
{
    return reason >= WB_GAP_POWER;
}

/* "not recorded by wayback.conf": for lists. */
const char *wb_gap_reason(unsigned reason);

/* How much of a command line is recorded. */
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
 * A named moment. The newest record of a moment counts, so renaming and deleting (present == 0)
 * append one more. The payload lists what was open for writing then: paths from the root of SRC,
 * each ended by NUL.
 */
#define WB_SNAPSHOT_TEXT_MAX 1024
#define WB_SNAPSHOT_PATH_MAX 2048
struct wb_rec_snapshot {
    int64_t moment;          /* the state at this `when`; identifies the snapshot */
    struct wb_object scope;  /* the directory it covers, with all below; the root: everything */
    uint32_t uid;            /* who made it */
    uint8_t present;         /* 0: deleted */
    uint8_t automatic;       /* made by a schedule */
    uint8_t name_length;
    uint16_t text_length;
    uint16_t path_length;
    const char *name;
    const char *text;        /* of `vsnap create -m` */
    const char *path;        /* of the scope when it was made, from the root of SRC; empty: the root */
};

/*
 * Heads and bodies of the records in [from, where this record begins), copied together, so that who walks
 * back need not touch the payloads between them. Payload: the copies (wb_record_copy), newest first; none where
 * they would be too long. What it says is in the log anyway: it can be passed over at any time.
 */
#define WB_INDEX_JOINED 1u /* of `types`: there are records with WB_RECORD_JOINED */
struct wb_rec_index {
    uint64_t from;
    uint64_t previous; /* where the INDEX begins that ends at `from`; 0: there is none    */
    int64_t first;     /* `when` of the oldest record covered                             */
    int64_t last;      /* and of the newest                                               */
    uint32_t count;    /* of records covered                                              */
    uint32_t types;    /* bit 1 << type for each type among them, WB_INDEX_JOINED         */
    int64_t told;      /* `when` of the oldest that tells attributes of the log's object, */
    struct wb_attrs attrs; /* and these; 0: none does                                     */
};

/*
 * As long as what it stands for, so that no other record gets another place; payload: zeros. What was
 * before `until` is not known of this log's things; 0: what it stands for told nothing of its own, and walks pass
 * it over.
 */
#define WB_FILLER_SIZE 64u /* without a payload: no record that a filler may stand for is shorter */
struct wb_rec_filler {
    int64_t until;
};

/*
 * The file that had a name was replaced here, by one that was replaced in its turn, as were perhaps more: these are not
 * kept, and the name shows the file it had, until the change `until`. In the place of longer records; payload: zeros.
 */
struct wb_rec_thinned {
    int64_t until; /* `when` of a NAME with WB_RECORD_THINNED */
};

/*
 * A decoded record. Strings point into the buffer it was decoded from and are not terminated by
 * NUL: their lengths count. `offset` is where the record begins in its log, `payload_offset`
 * where its payload begins.
 */
struct wb_record {
    uint64_t offset;
    uint32_t total;
    uint8_t type;
    uint8_t flags;
    uint16_t op;
    int64_t when;      /* as a walk tells it: of a stage, its end; of what is joined, the newest (log.h) */
    int64_t written;   /* as it is in the log */
    int64_t change;    /* that of the change it is of: as it is in the log, but of a stage, its end */
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
 * Encodes head and body of `record` into `data` (WB_HEAD_SIZE + WB_BODY_MAX bytes). The caller
 * sets type, flags, op, when, actor, payload_length, payload_check and the body; body_length and
 * total are filled in. Returns the number of bytes, or -EMSGSIZE / -EINVAL for what cannot be
 * encoded. The payload, then wb_record_encode_end, follow on disk.
 */
int wb_record_encode(struct wb_record *record, uint8_t *data);

/* Padding and trailer (at most 7 + WB_TRAILER_SIZE bytes, buffer of 16); returns their length. */
int wb_record_encode_end(const struct wb_record *record, uint8_t data[16]);

/* Enough of a head to know how many bytes to read; 0 or -EBADMSG. `data` has WB_HEAD_SIZE bytes. */
int wb_record_measure(const uint8_t *data, uint32_t *body_length, uint32_t *total);

/* Whether `data` (4 bytes) begins as a record does. */
int wb_record_is_magic(const uint8_t *data);

/* Trailer at the end of a record: its total length; 0 or -EBADMSG. */
int wb_record_measure_end(const uint8_t data[WB_TRAILER_SIZE], uint32_t *total);

/*
 * Decodes and verifies head and body from `length` >= WB_HEAD_SIZE + body_length bytes. The
 * record's `offset` is set to `offset`. Returns 0 or -EBADMSG.
 */
int wb_record_decode(const uint8_t *data, size_t length, uint64_t offset, struct wb_record *ret);

/*
 * A copy of head and body as INDEX holds it: padded with zeros to a multiple of 8, and without its magic, so that
 * nobody who searches for a lost head takes it for a record. Returns the length of the copy.
 */
#define WB_COPY_SIZE(body_length) (((size_t)WB_HEAD_SIZE + (body_length) + 7) & ~(size_t)7)
size_t wb_record_copy(const uint8_t *data, uint32_t body_length, uint8_t *copy);

/* Makes a copy readable in place, for wb_record_decode. `length`: how much there is. 0 or -EBADMSG. */
int wb_record_uncopy(uint8_t *copy, size_t length, uint32_t *body_length, uint32_t *total);

/* Words for an operation ("write", "rename"), for people and JSON. Never NULL. */
const char *wb_op_name(unsigned op);

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
    uint32_t forgotten; /* since version 5: 1: what was before that was forgotten: no state of it is told */
    bool manifest;      /* since version 8: the store keeps a manifest (manifest.c)                        */
};
void wb_header_encode(const struct wb_header *header, uint8_t data[WB_HEADER_SIZE]);

/* 0, -EBADMSG (no header of ours, or damaged), or -EPROTONOSUPPORT (a newer version; *ret filled). */
int wb_header_decode(const uint8_t *data, size_t length, struct wb_header *ret);

/* ---- which logs there must be (manifest.c) --------------------------------------------------- */

/*
 * manifest/xx is a hash table of the logs in objects/xx: a head and 2^bits buckets, each a sector with a checksum of
 * its own, so that one write replaces it whole. An entry says that its log has a sound record that ends at `end`. It is
 * searched for in the bucket that its hash names and, while a bucket has overflowed, in the ones that follow. For
 * deleted files (WB_FILE_DATA) there is an entry for each block of content, with its checksum.
 */
#define WB_SHARDS 256
#define WB_MANIFEST_SECTOR 512
#define WB_MANIFEST_BUCKET 10   /* entries in a bucket               */
#define WB_MANIFEST_PROBES 8    /* buckets that a search goes through */
#define WB_MANIFEST_BITS_MAX 28
#define WB_BODY_BLOCK (256u * 1024)
struct wb_manifest_entry {
    struct wb_object object;
    enum wb_object_file file;
    uint64_t end;   /* of a deleted file: its size                        */
    int64_t when;   /* of the record that ends there                      */
    uint32_t block; /* of a deleted file, else 0                          */
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

/* manifest/shards: which tables must be there, which have an entry for each log, and which for each deleted file. */
#define WB_MANIFEST_SHARDS_SIZE 120
struct wb_manifest_shards {
    uint8_t begun[WB_SHARDS / 8], complete[WB_SHARDS / 8], summed[WB_SHARDS / 8];
};
void wb_manifest_shards_encode(const struct wb_manifest_shards *shards, uint8_t data[WB_MANIFEST_SHARDS_SIZE]);
int wb_manifest_shards_decode(const uint8_t *data, size_t length, struct wb_manifest_shards *ret);

/* ---- a clock that is doubted (clock.c) ------------------------------------------------------- */

#define WB_CLOCK_SIZE 32
void wb_clock_note_encode(int64_t known, int64_t insisted, uint8_t data[WB_CLOCK_SIZE]);
/* 0 or -EBADMSG. */
int wb_clock_note_decode(const uint8_t *data, size_t length, int64_t *ret_known, int64_t *ret_insisted);

/* ---- where a store went (signpost.c) --------------------------------------------------------- */

/*
 * The file `moved` in a directory that is, was or will be the home of a store. Found in SRC/.wayback or in what
 * -o store=DIR names, it says where to look. `path` is absolute and ends with a NUL.
 */
enum wb_signpost_kind {
    WB_SIGNPOST_LEADS = 1, /* the store is in `path`                                                              */
    WB_SIGNPOST_COMING,    /* it is being copied here from `path`, and is there until a signpost there leads here */
    WB_SIGNPOST_REMAINS,   /* it is here; what a move left in `path` can be removed                               */
};
#define WB_SIGNPOST_PATH_MAX 4096
#define WB_SIGNPOST_SIZE_MAX (48 + WB_SIGNPOST_PATH_MAX + 16 + 8)
struct wb_signpost {
    uint32_t kind;
    uint32_t buried; /* COMING: 1: deleted files are in `path` itself, and have to follow */
    uint8_t uuid[16]; /* of the store */
    int64_t synced;   /* COMING: what was copied before this moment, by its ctime, is on the disk */
    bool has_root;    /* `root` is known: programs of an earlier day did not write it */
    struct wb_object root; /* the root of the tree that the signpost was written in, as an inode: a copy has another */
    char path[WB_SIGNPOST_PATH_MAX];
};
/* How many bytes it takes; `data` holds WB_SIGNPOST_SIZE_MAX. */
size_t wb_signpost_encode(const struct wb_signpost *signpost, uint8_t *data);
int wb_signpost_decode(const uint8_t *data, size_t length, struct wb_signpost *ret); /* 0 or -EBADMSG */

/* ---- in-flight changes (inflight.c) ---------------------------------------------------------- */

/*
 * The file `inflight` is written in place; what was written survives SIGKILL:
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
 * The file `spans` says during which times, by the clock that ctime comes from, all changes of SRC were recorded:
 *    0  u8[8] magic "WBSPANS\n"   8 i64 floor: up to then every object was checked
 *   16 i64 cut: the newest power cut (head of `inflight`) that the table was looked through for   24 zeros
 *   28  u32 low half of the checksum of bytes 0..27
 * then spans of the same size: 0 i64 begin, 8 i64 end, 16 zeros, 28 the checksum. An entry that does not verify is
 * none.
 * The newest span is in the tail of `inflight`.
 */
#define WB_SPANS_VERSION 10 /* of the format: stores of older ones have none */
#define WB_SPAN_SIZE 32
#define WB_SPANS_MAX 1023
struct wb_span {
    int64_t begin, end;
};
void wb_span_encode_head(int64_t floor, int64_t cut, uint8_t data[WB_SPAN_SIZE]);
int wb_span_decode_head(const uint8_t data[WB_SPAN_SIZE], int64_t *ret_floor, int64_t *ret_cut); /* 0 or -EBADMSG */
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
    int64_t begin;         /* a `when` of its own */
    struct wb_object object;
    struct wb_object dir;  /* in whose catalog its end may be; none: in no catalog */
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
 * Zeros: nobody's.
 */
#define WB_GAP_SIZE 32
#define WB_GAPS_MAX 511
struct wb_open_gap {
    struct wb_object object; /* whose log lacks changes  */
    int64_t since;           /* the first of them        */
    enum wb_object_file file;
};
void wb_gap_encode(const struct wb_open_gap *gap, uint8_t data[WB_GAP_SIZE]);
int wb_gap_decode(const uint8_t data[WB_GAP_SIZE], struct wb_open_gap *ret); /* 0 or -EBADMSG */
void wb_gap_encode_head(uint8_t data[WB_GAP_SIZE]);
int wb_gap_check_head(const uint8_t data[WB_GAP_SIZE]); /* 0 or -EBADMSG */

/*
 * The file `settling`: the same head, a note, and a list, all of them places of that form; `since` says what they are.
 * Zeros: no note. Programs that know of no note begin the list in its place.
 */
#define WB_SETTLING_NOTE WB_GAP_SIZE
#define WB_SETTLING_LIST (2 * WB_GAP_SIZE)
#define WB_SETTLING_CONTENT 1 /* the file's content is being brought to the disk      */
#define WB_SETTLING_STAMP 2   /* the time of modification of its log tells nothing     */

/* ---- the timeline (times.c) ------------------------------------------------------------------ */

/*
 * Files of `timeline` are arrays of entries, behind a head of the same size (magic, zeros, check):
 *    0  i64 when   8 object (u64 ino, i64 birth)   24 u64 offset of the record; bit 0: 0 .undo, 1 .cat
 *   32  u32 actor  36 u32 low half of the checksum of bytes 0..35
 * An entry is a hint: what it leads to is verified.
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
/* 0; -ESTALE: by a version whose timeline lacks gaps; or -EBADMSG. */
int wb_times_check_head(const uint8_t data[WB_TIMES_ENTRY_SIZE]);

/* ---- packed logs (pack.c) -------------------------------------------------------------------- */

/*
 * A log file may begin with a pack: the first `unpacked` bytes of the log, compressed in chunks. What follows in
 * the file is the log's bytes from `unpacked` on, as they are. Offsets in a log are those of its bytes, packed
 * or not: packing moves no record.
 *    0  u8[8] magic "WBPACK1\n"   8 u32 count of chunks   12 u32 zero   16 u64 unpacked   24 u64 packed: bytes of
 *       the file that stand for these   32 u64 checksum of the table   40 zeros   56 u64 checksum of bytes 0..55
 *   64  table: an entry of 32 bytes for each chunk, then the chunks, zeros up to a multiple of 8, the
 *      head once more, and a trailer as a record of these 72 bytes would have: where the head is damaged, that
 *      tells everybody that something was here
 * An entry:
 *    0  u64 where in the file   8 u32 length unpacked   12 u32 length packed   16 u32 method   20 u32 reference
 *   24  u64 checksum of the unpacked bytes
 */
#define WB_PACK_HEAD_SIZE 64
#define WB_PACK_ENTRY_SIZE 32
#define WB_PACK_END_SIZE (WB_PACK_HEAD_SIZE + WB_TRAILER_SIZE)
#define WB_PACK_CHUNK_MAX (1u << 20) /* unpacked */
#define WB_PACK_CHUNKS_MAX (1u << 16)

enum wb_pack_method {
    WB_PACK_PLAIN = 0, /* the bytes themselves                                      */
    WB_PACK_ZSTD = 1,  /* a zstd frame; with a reference, that chunk is its prefix   */
    WB_PACK_CHECKED = 2, /* the bytes themselves, compared with the checksum: of bundles */
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
    uint32_t reference; /* so many chunks further on; 0: none. That one has none. */
    uint64_t check;
};

/* Whether a file with these bytes at its beginning is packed, or was once. */
int wb_pack_is_magic(const uint8_t *data, size_t length);

void wb_pack_encode_head(const struct wb_pack_head *head, uint8_t data[WB_PACK_HEAD_SIZE]);
int wb_pack_decode_head(const uint8_t data[WB_PACK_HEAD_SIZE], struct wb_pack_head *ret); /* 0 or -EBADMSG */
void wb_pack_encode_end(const struct wb_pack_head *head, uint8_t data[WB_PACK_END_SIZE]);
void wb_pack_encode_chunk(const struct wb_pack_chunk *chunk, uint8_t data[WB_PACK_ENTRY_SIZE]);

/* All entries of a table (count * WB_PACK_ENTRY_SIZE bytes, checked with the head): 0 or -EBADMSG. */
int wb_pack_decode_table(const struct wb_pack_head *head, const uint8_t *data, struct wb_pack_chunk *chunks);

/* ---- packed bodies (bundle.c) ------------------------------------------------------------------ */

/*
 * A bundle is a file that is a pack from its beginning to its end. What is packed is the content of deleted and
 * replaced files, and an index of it at the end: a member of 64 bytes for each file, in order of objects, an extent
 * of 24 bytes for each run of data (what is between them are holes), and an end:
 *    0  u8[8] magic "WBBUNDL\n"   8 u32 members   12 u32 extents   16 u64 zero
 *   24  u64 checksum of the index before it
 * A member:
 *    0  object   16 u64 row   24 u64 size   32 i64 atime   40 i64 mtime   48 i64 lost   56 u32 first extent   60 u32
 * count An extent:
 *    0  u64 offset in the file   8 u64 length   16 u64 offset in what is packed
 */
#define WB_BUNDLE_NEW "bundle.new" /* in the store: one that is being written */
#define WB_BUNDLE_LINK_NEW "bundle-link.new" /* a name of one, before it is renamed */
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
    uint64_t row; /* equal for what had the same name in the same directory, one after the other */
    uint64_t size;
    int64_t atime, mtime;
    int64_t lost; /* its ctime when it was packed: when it lost its name */
    uint32_t first, count;
};

struct wb_bundle_extent {
    uint64_t offset, length;
    uint64_t at;
};

/* How long the index is, without its end. */
static inline uint64_t wb_bundle_index_size(const struct wb_bundle_end *end)
{
    return (uint64_t)end->members * WB_BUNDLE_MEMBER_SIZE + (uint64_t)end->extents * WB_BUNDLE_EXTENT_SIZE;
}
void wb_bundle_encode_end(const struct wb_bundle_end *end, uint8_t data[WB_BUNDLE_END_SIZE]);
int wb_bundle_decode_end(const uint8_t data[WB_BUNDLE_END_SIZE], struct wb_bundle_end *ret); /* 0 or -EBADMSG */
void wb_bundle_encode_index(const struct wb_bundle_end *end, const struct wb_bundle_member *members,
                            const struct wb_bundle_extent *extents, uint8_t *data);
/* `room`: how many bytes are packed before the index. 0 or -EBADMSG. */
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
