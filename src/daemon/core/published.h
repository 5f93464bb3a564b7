/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Nodes and handles are sent to the kernel in a reply, as numbers, and returned in later requests, maybe in another
 * thread. Data written to them before the reply is visible by then, as the kernel orders reply and request. The thread
 * sanitizer does not see the kernel, so these functions state the order.
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
