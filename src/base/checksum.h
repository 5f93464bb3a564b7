/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The checksum of everything on disk: XXH3, 64 bits, seed 0 (libxxhash). */

#include <stddef.h>
#include <stdint.h>

uint64_t wb_checksum(const void *data, size_t length);
