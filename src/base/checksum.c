/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/checksum.h"

#include <xxhash.h>

uint64_t wb_checksum(const void *data, size_t length)
{
    return XXH3_64bits(data, length);
}
