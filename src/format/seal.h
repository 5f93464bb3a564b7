/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The last four bytes of an entry of fixed size: half of a checksum of the bytes before them, which suffices for so few
 * bytes. */

#include "base/checksum.h"
#include "format/cursor.h"

#define WB_SEAL_SIZE 4

static inline void wb_seal(uint8_t *data, size_t size)
{
    struct wb_writer to = {.data = data + size - WB_SEAL_SIZE, .length = WB_SEAL_SIZE};

    wb_put_u32(&to, (uint32_t)wb_checksum(data, size - WB_SEAL_SIZE));
}

static inline bool wb_is_sealed(const uint8_t *data, size_t size)
{
    struct wb_reader from = {.data = data + size - WB_SEAL_SIZE, .length = WB_SEAL_SIZE};

    return wb_get_u32(&from) == (uint32_t)wb_checksum(data, size - WB_SEAL_SIZE);
}
