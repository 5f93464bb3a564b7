/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The stream that transfers a tree and its history to a copy elsewhere (docs/format.md, The stream). Checksums chain
 * its frames, so that any change, omission, repetition or reordering is detected. Every decoder accepts hostile bytes.
 */

#include "format/format.h"
#include <stdbool.h>

#define WB_STREAM_MAGIC 0x31534257u /* "WBS1" */
#define WB_STREAM_VERSION 4 /* version 1 had no flags of records, 2 no holes, 3 no flags of inodes: all are still
                             * received */
#define WB_STREAM_VERSION_HOLES 3
#define WB_STREAM_VERSION_FLAGS 4
#define WB_FRAME_HEAD 32
#define WB_FRAME_BYTES_MAX (1u << 20)                /* bytes of files in one frame */
#define WB_FRAME_BODY_MAX (WB_RECORD_MAX + 256)

enum wb_frame_type {
    WB_FRAME_HELLO = 1,   /* the stream brings the copy from one moment to another       */
    WB_FRAME_RECORD = 2,  /* a record of a log                                           */
    WB_FRAME_IMAGE = 3,   /* bytes of ID.image                                           */
    WB_FRAME_OBJECT = 4,  /* an object as it is at the end                               */
    WB_FRAME_XATTRS = 5,  /* all extended attributes of the object of the last OBJECT frame, and its flags */
    WB_FRAME_CONTENT = 6, /* bytes of that object                                        */
    WB_FRAME_LISTING = 7, /* entries of a directory; the list is complete after its last part */
    WB_FRAME_END = 8,     /* the stream is complete                                      */
    WB_FRAME_IMAGE_HOLE = 9, /* a range of ID.image that reads as zeros                  */
    WB_FRAME_HOLE = 10,   /* a range of the object of the last OBJECT frame that reads as zeros */
};

struct wb_frame {
    uint32_t type;
    uint32_t length; /* of the body */
    uint64_t sequence;
    uint64_t check;
};

/* Sets frame->check, and encodes the head. `previous`: the check of the frame before, 0 for the first. */
void wb_frame_encode(struct wb_frame *frame, uint64_t previous, const void *body, uint8_t head[WB_FRAME_HEAD]);
/* Reads how many bytes follow: 0 or -EBADMSG. Checks only the length. */
int wb_frame_measure(const uint8_t head[WB_FRAME_HEAD], struct wb_frame *ret);
/* Whether the frame is the successor of the one with the check `previous`: 0 or -EBADMSG. */
int wb_frame_verify(const struct wb_frame *frame, const uint8_t head[WB_FRAME_HEAD], uint64_t sequence,
                    uint64_t previous, const void *body);

/* ---- bodies ------------------------------------------------------------------------------------- */

#define WB_HELLO_SIZE 88
struct wb_stream_hello {
    uint32_t version;   /* of the stream */
    uint32_t format;    /* of the store  */
    uint8_t uuid[16];   /* of the store  */
    struct wb_object root;
    int64_t created;    /* as in its header */
    bool forgotten;
    int64_t erased;     /* when history was last erased by name; 0: never */
    int64_t thinned;    /* when single versions were last thinned out                */
    int64_t since;      /* the moment that the copy has already; 0: none */
    int64_t until;      /* the moment that the copy has after it received the stream */
};
void wb_stream_encode_hello(const struct wb_stream_hello *hello, uint8_t data[WB_HELLO_SIZE]);

enum wb_stream_log { WB_STREAM_UNDO, WB_STREAM_CATALOG, WB_STREAM_ACTORS, WB_STREAM_SNAPSHOTS };
/* The record counts together with records that the copy has already. Bytes that those hold may be omitted from it. The
 * copy has them all the same: its own file holds them until it applies this stream. */
#define WB_STREAM_FILL 1u
#define WB_STREAM_APART 2u /* with WB_STREAM_FILL: the first of these records, which does not count together with those
                            * that the copy has */
#define WB_STREAM_RECORD_SIZE 32
struct wb_stream_record {
    struct wb_object object; /* the object of the log; none for the latter two */
    uint32_t log;
    uint32_t flags;
    uint64_t offset;         /* of actors: offset in that log, because other records refer to it */
    const uint8_t *data;     /* the whole record */
    size_t length;
};
void wb_stream_encode_record(const struct wb_stream_record *record, uint8_t data[WB_STREAM_RECORD_SIZE]);

/* Bytes of an image or of an object. */
#define WB_STREAM_BYTES_SIZE 24
struct wb_stream_bytes {
    struct wb_object object;
    uint64_t offset;
    const uint8_t *data;
    size_t length;
};
void wb_stream_encode_bytes(const struct wb_stream_bytes *bytes, uint8_t data[WB_STREAM_BYTES_SIZE]);

/* Zeros of an image or of an object. */
#define WB_STREAM_HOLE_SIZE 32
struct wb_stream_hole {
    struct wb_object object;
    uint64_t offset, length;
};
void wb_stream_encode_hole(const struct wb_stream_hole *hole, uint8_t data[WB_STREAM_HOLE_SIZE]);

#define WB_STREAM_OBJECT_SIZE 80
#define WB_STREAM_TARGET_MAX 4096
#define WB_STREAM_WHOLE 1u  /* its complete content follows; else only the changes */
#define WB_STREAM_BURIED 2u /* it lost a name: the store keeps it                 */
struct wb_stream_object {
    struct wb_object object;
    struct wb_attrs attrs;
    uint32_t flags;
    const char *target; /* of a symbolic link; not terminated */
    size_t target_length;
};
void wb_stream_encode_object(const struct wb_stream_object *object, uint8_t data[WB_STREAM_OBJECT_SIZE]);

/* A list to iterate over: entries of a directory, or extended attributes. */
#define WB_STREAM_LIST_SIZE 24
struct wb_stream_list {
    struct wb_object object;
    uint32_t count;
    bool last;
    const uint8_t *data;
    size_t length;
};
void wb_stream_encode_list(const struct wb_stream_list *list, uint8_t data[WB_STREAM_LIST_SIZE]);

#define WB_STREAM_ENTRY_MAX (24 + WB_NAME_MAX)
struct wb_stream_entry {
    struct wb_object object;
    uint32_t mode;
    uint8_t length;
    const char *name; /* not terminated */
};
size_t wb_stream_encode_entry(const struct wb_stream_entry *entry, uint8_t data[WB_STREAM_ENTRY_MAX]);
/* The entry at *position; moves *position behind it. A decoded list has only complete entries. */
void wb_stream_next_entry(const struct wb_stream_list *list, size_t *position, struct wb_stream_entry *ret);

#define WB_STREAM_XATTR_HEAD 8
struct wb_stream_xattr {
    uint8_t name_length;
    uint32_t value_length;
    const char *name; /* not terminated */
    const uint8_t *value;
};
void wb_stream_encode_xattr(const struct wb_stream_xattr *xattr, uint8_t data[WB_STREAM_XATTR_HEAD]);
/* The flags of the inode (WB_FLAGS_NAME) in a list that was decoded: 1, 0 if it has none, or -EBADMSG. */
int wb_stream_find_flags(const struct wb_stream_list *list, struct wb_flags *ret);
void wb_stream_next_xattr(const struct wb_stream_list *list, size_t *position, struct wb_stream_xattr *ret);

struct wb_stream_body {
    uint32_t type;
    union {
        struct wb_stream_hello hello;
        struct wb_stream_record record;
        struct wb_stream_bytes bytes; /* IMAGE, CONTENT */
        struct wb_stream_hole hole;   /* IMAGE_HOLE, HOLE */
        struct wb_stream_object object;
        struct wb_stream_list list;   /* LISTING, XATTRS */
    };
};
/* 0; -EBADMSG; -EPROTONOSUPPORT: a frame, or a stream, of a later version. */
int wb_stream_decode(uint32_t type, const uint8_t *data, size_t length, struct wb_stream_body *ret);

/* ---- knowledge of the store that is sent ------------------------------------------------------------- */

#define WB_ERASED_NAME "erased"
#define WB_ERASED_SIZE 32
/* When history was last erased. By vrm: a copy must not keep it, and no later stream could remove it there. By
 * thinning: a program that knows the difference sends the data that a copy needs; older programs treat both alike. 0:
 * never. */
struct wb_erased {
    int64_t last;  /* by vrm or by thinning */
    int64_t named; /* by vrm           */
};
void wb_erased_encode(const struct wb_erased *erased, uint8_t data[WB_ERASED_SIZE]);
int wb_erased_decode(const uint8_t data[WB_ERASED_SIZE], struct wb_erased *ret); /* 0 or -EBADMSG */

/* ---- knowledge of the copy about itself -------------------------------------------------------------- */

#define WB_RECEIVED_NAME "received"
#define WB_RECEIVING_NAME "receiving" /* a directory: the stream, and objects that have no name yet */
#define WB_RECEIVED_SIZE 64

enum wb_received_phase {
    WB_RECEIVED_REST,    /* tree and history show the state at `until` */
    WB_RECEIVED_RECORDS, /* records are being added; the tree is unchanged */
    WB_RECEIVED_TREE,    /* the tree is being updated                    */
};
struct wb_received {
    uint32_t phase;
    uint8_t uuid[16];
    int64_t until; /* the last moment that is complete here; 0: none yet */
};
void wb_received_encode(const struct wb_received *received, uint8_t data[WB_RECEIVED_SIZE]);
int wb_received_decode(const uint8_t data[WB_RECEIVED_SIZE], struct wb_received *ret); /* 0 or -EBADMSG */
