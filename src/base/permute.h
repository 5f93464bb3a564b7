/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A keyed permutation of 64-bit numbers (the block cipher Speck64/128): without the key, no number reveals another
 * one. */

#include <stdint.h>

#define WB_PERMUTATION_ROUNDS 27

struct wb_permutation {
    uint32_t keys[WB_PERMUTATION_ROUNDS];
};

void wb_permutation_init(struct wb_permutation *permutation, const uint32_t key[4]);
uint64_t wb_permute(const struct wb_permutation *permutation, uint64_t number);
uint64_t wb_unpermute(const struct wb_permutation *permutation, uint64_t number);
