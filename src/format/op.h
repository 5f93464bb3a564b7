/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The operations that records name: number, word and effects in one table.
 *
 * The numbers are stable. An unknown number is shown as "op N", and readers assume no effect.
 */

enum wb_op_effect {
    WB_EFFECT_NAMES = 1 << 0,   /* an object has the name of each slot afterwards                                  */
    WB_EFFECT_UNNAMES = 1 << 1, /* none has it, unless the slot says from which other name an object came          */
    WB_EFFECT_CONTENT = 1 << 2, /* changes content or size of one file, and besides at most its attributes         */
    WB_EFFECT_ATTRS = 1 << 3,   /* changes attributes or extended attributes of one object, and nothing else       */
    WB_EFFECT_KEEPS = 1 << 4,   /* changes content and size of no object                                           */
};

/* X(NAME, number, word, effects) */
#define WB_OPS(X) \
    X(NONE, 0, "none", 0) \
    X(CREATE, 1, "create", WB_EFFECT_NAMES) \
    X(MKDIR, 2, "mkdir", WB_EFFECT_NAMES) \
    X(MKNOD, 3, "mknod", WB_EFFECT_NAMES) \
    X(SYMLINK, 4, "symlink", WB_EFFECT_NAMES) \
    X(LINK, 5, "link", WB_EFFECT_NAMES | WB_EFFECT_KEEPS) \
    X(UNLINK, 6, "unlink", WB_EFFECT_UNNAMES | WB_EFFECT_KEEPS) \
    X(RMDIR, 7, "rmdir", WB_EFFECT_UNNAMES) \
    X(RENAME, 8, "rename", WB_EFFECT_UNNAMES | WB_EFFECT_KEEPS) \
    X(EXCHANGE, 9, "exchange", WB_EFFECT_NAMES) \
    X(WHITEOUT, 10, "whiteout", 0) \
    X(WRITE, 11, "write", WB_EFFECT_CONTENT) \
    X(MMAP, 12, "mmap", WB_EFFECT_CONTENT) \
    X(TRUNCATE, 13, "truncate", WB_EFFECT_CONTENT) \
    X(ALLOCATE, 14, "allocate", WB_EFFECT_CONTENT) \
    X(PUNCH, 15, "punch", WB_EFFECT_CONTENT) \
    X(ZERO, 16, "zero", WB_EFFECT_CONTENT) \
    X(COLLAPSE, 17, "collapse", WB_EFFECT_CONTENT) \
    X(INSERT, 18, "insert", WB_EFFECT_CONTENT) \
    X(COPY, 19, "copy", WB_EFFECT_CONTENT) \
    X(CHMOD, 20, "chmod", WB_EFFECT_ATTRS | WB_EFFECT_KEEPS) \
    X(CHOWN, 21, "chown", WB_EFFECT_ATTRS | WB_EFFECT_KEEPS) \
    X(UTIMENS, 22, "utimens", WB_EFFECT_ATTRS | WB_EFFECT_KEEPS) \
    X(SETXATTR, 23, "setxattr", WB_EFFECT_ATTRS | WB_EFFECT_KEEPS) \
    X(REMOVEXATTR, 24, "removexattr", WB_EFFECT_ATTRS | WB_EFFECT_KEEPS) \
    X(RESTORE, 25, "restore", WB_EFFECT_NAMES) /* a deleted object got a name again */ \
    X(FORGET, 26, "forget", 0) /* vrm --history: older history was deleted on purpose */

#define WB_OP_NUMBER(NAME, number, ...) WB_OP_##NAME = (number),
enum wb_op { WB_OPS(WB_OP_NUMBER) WB_OP_MAX };
#undef WB_OP_NUMBER

/* The word for an operation ("write", "rename"), for display and JSON. Never NULL. */
const char *wb_op_name(unsigned op);

/* Returns those of `effects` (WB_EFFECT_*) that the operation has. */
unsigned wb_op_has(unsigned op, unsigned effects);
