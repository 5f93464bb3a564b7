/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <linux/capability.h>
#include <stdint.h>

#define WB_CAP(number) (UINT64_C(1) << (number))

/*
 * The calling thread, and all that are made after it, give up all capabilities but these, the bounding set too, and can
 * get no other: no_new_privs is set, and memory that was written is not executed. 0 or -errno: capabilities stay.
 */
int wb_capabilities_keep(uint64_t kept);
