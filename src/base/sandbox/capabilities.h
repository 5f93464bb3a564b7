/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <linux/capability.h>
#include <stdint.h>

#define WB_CAP(number) (UINT64_C(1) << (number))

/*
 * The calling thread, and all threads created after it, drop all capabilities but `kept`, in the bounding set as well,
 * and cannot gain others: sets no_new_privs, and memory that was written cannot be executed. 0 or -errno; on an error
 * the capabilities are unchanged.
 */
int wb_capabilities_keep(uint64_t kept);
