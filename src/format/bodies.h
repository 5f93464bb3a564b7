/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The bodies of records. One table holds, for each type, its encoder, decoder and check. The encoder runs the check
 * before it writes and the decoder after it reads, so a record that a reader would refuse is never written.
 */

#include "format/cursor.h"
#include "format/format.h"

struct wb_body_codec {
    void (*put)(struct wb_writer *to, const struct wb_record *record);
    void (*get)(struct wb_reader *from, struct wb_record *record);
    /* Checks the body and the record's payload_length and `when`. */
    bool (*valid)(const struct wb_record *record);
};

extern const struct wb_body_codec wb_body_actor, wb_body_snapshot, wb_body_index;

/* NULL if this version does not know the type. */
const struct wb_body_codec *wb_body_codec(unsigned type);

/* A file's size is an off_t; the code that rebuilds a file relies on it. */
static inline bool wb_attrs_valid(const struct wb_attrs *attrs)
{
    return attrs->size <= INT64_MAX;
}
