/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Nodes and handles go to the kernel in a reply, as numbers, and come back with later requests, maybe in another
 * thread. What was written to them before the reply is there by then: the kernel is between. The thread sanitizer does
 * not see the kernel, so it is told here.
 */

#include <stdint.h>

#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#else
#define __tsan_acquire(address) ((void)(address))
#define __tsan_release(address) ((void)(address))
#endif

static inline uint64_t wb_publish(const void *object)
{
    __tsan_release((void *)(uintptr_t)object);
    return (uint64_t)(uintptr_t)object;
}

static inline void *wb_published(uint64_t number)
{
    void *object = (void *)(uintptr_t)number;

    __tsan_acquire(object);
    return object;
}
