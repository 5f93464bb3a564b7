/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/format.h"

#include <stdio.h>

static const char *const names[WB_OP_MAX] = {
    [WB_OP_NONE] = "none",
    [WB_OP_CREATE] = "create",
    [WB_OP_MKDIR] = "mkdir",
    [WB_OP_MKNOD] = "mknod",
    [WB_OP_SYMLINK] = "symlink",
    [WB_OP_LINK] = "link",
    [WB_OP_UNLINK] = "unlink",
    [WB_OP_RMDIR] = "rmdir",
    [WB_OP_RENAME] = "rename",
    [WB_OP_EXCHANGE] = "exchange",
    [WB_OP_WHITEOUT] = "whiteout",
    [WB_OP_WRITE] = "write",
    [WB_OP_MMAP] = "mmap",
    [WB_OP_TRUNCATE] = "truncate",
    [WB_OP_ALLOCATE] = "allocate",
    [WB_OP_PUNCH] = "punch",
    [WB_OP_ZERO] = "zero",
    [WB_OP_COLLAPSE] = "collapse",
    [WB_OP_INSERT] = "insert",
    [WB_OP_COPY] = "copy",
    [WB_OP_CHMOD] = "chmod",
    [WB_OP_CHOWN] = "chown",
    [WB_OP_UTIMENS] = "utimens",
    [WB_OP_SETXATTR] = "setxattr",
    [WB_OP_REMOVEXATTR] = "removexattr",
    [WB_OP_RESTORE] = "restore",
    [WB_OP_FORGET] = "forget",
};

const char *wb_op_name(unsigned op)
{
    static _Thread_local char unknown[24];

    if (op < WB_OP_MAX && names[op])
        return names[op];
    snprintf(unknown, sizeof(unknown), "op %u", op);
    return unknown;
}
