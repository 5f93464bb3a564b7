/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Shared parts of the targets. A target is one function, LLVMFuzzerTestOneInput, that takes any bytes and returns; the
 * sanitizers and assertions find the faults. It is linked with libFuzzer (tests/soak/fuzz) or with driver.c
 * (meson test --suite fuzz).
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input, taken from its front; bytes past its end are zero. */
struct fuzz_input {
    const uint8_t *data;
    size_t left;
};

static inline void fuzz_take(struct fuzz_input *in, void *to, size_t length)
{
    size_t n = length < in->left ? length : in->left;

    memset(to, 0, length);
    if (n)
        memcpy(to, in->data, n);
    in->data += n;
    in->left -= n;
}

static inline uint8_t fuzz_u8(struct fuzz_input *in)
{
    uint8_t value;

    fuzz_take(in, &value, sizeof(value));
    return value;
}

static inline uint16_t fuzz_u16(struct fuzz_input *in)
{
    uint16_t value;

    fuzz_take(in, &value, sizeof(value));
    return value;
}

static inline uint64_t fuzz_u64(struct fuzz_input *in)
{
    uint64_t value;

    fuzz_take(in, &value, sizeof(value));
    return value;
}

/* Mostly small, now and then anything: for sizes and offsets. */
static inline uint64_t fuzz_size(struct fuzz_input *in)
{
    uint8_t how = fuzz_u8(in);

    if (how < 0xc0)
        return (uint64_t)how << (how & 7);
    return how < 0xf0 ? fuzz_u16(in) : fuzz_u64(in);
}

/* A temporary directory that is removed at exit. */
const char *fuzz_directory(void);
