/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The bodies of records. One table holds, for every type, how it is written, read and judged; the
 * same judge stands before the encoder and behind the decoder, so that nothing is ever written
 * which would be refused when it is read.
 */

#include "format/cursor.h"
#include "format/format.h"

struct wb_body_codec {
    void (*put)(struct wb_writer *to, const struct wb_record *record);
    void (*get)(struct wb_reader *from, struct wb_record *record);
    /* Looks at the body and at the record's payload_length and `when`. */
    bool (*valid)(const struct wb_record *record);
};

extern const struct wb_body_codec wb_body_actor, wb_body_snapshot, wb_body_index;

/* NULL for a type this version does not know. */
const struct wb_body_codec *wb_body_codec(unsigned type);

/* A file's size is an off_t; whoever rebuilds a file may rely on that. */
static inline bool wb_attrs_valid(const struct wb_attrs *attrs)
{
    return attrs->size <= INT64_MAX;
}
