/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/permute.h"

static uint32_t left(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static uint32_t right(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

void wb_permutation_init(struct wb_permutation *permutation, const uint32_t key[4])
{
    uint32_t words[3] = {key[1], key[2], key[3]};

    permutation->keys[0] = key[0];
    for (uint32_t i = 0; i + 1 < WB_PERMUTATION_ROUNDS; i++) {
        uint32_t *word = &words[i % 3], round = permutation->keys[i];

        *word = (round + right(*word, 8)) ^ i;
        permutation->keys[i + 1] = left(round, 3) ^ *word;
    }
}

uint64_t wb_permute(const struct wb_permutation *permutation, uint64_t number)
{
    uint32_t high = (uint32_t)(number >> 32), low = (uint32_t)number;

    for (unsigned i = 0; i < WB_PERMUTATION_ROUNDS; i++) {
        high = (right(high, 8) + low) ^ permutation->keys[i];
        low = left(low, 3) ^ high;
    }
    return (uint64_t)high << 32 | low;
}

uint64_t wb_unpermute(const struct wb_permutation *permutation, uint64_t number)
{
    uint32_t high = (uint32_t)(number >> 32), low = (uint32_t)number;

    for (unsigned i = WB_PERMUTATION_ROUNDS; i-- > 0;) {
        low = right(low ^ high, 3);
        high = left((high ^ permutation->keys[i]) - low, 8);
    }
    return (uint64_t)high << 32 | low;
}
