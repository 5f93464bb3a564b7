/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "format/op.h"

#include <stdio.h>

#define DESCRIPTION(NAME, number, word, effects) [number] = {word, effects},

static const struct {
    const char *word;
    unsigned effects;
} ops[WB_OP_MAX] = {WB_OPS(DESCRIPTION)};

const char *wb_op_name(unsigned op)
{
    static _Thread_local char unknown[24];

    if (op < WB_OP_MAX && ops[op].word)
        return ops[op].word;
    snprintf(unknown, sizeof(unknown), "op %u", op);
    return unknown;
}

unsigned wb_op_has(unsigned op, unsigned effects)
{
    return op < WB_OP_MAX ? ops[op].effects & effects : 0;
}
