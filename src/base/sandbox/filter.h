/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Filters of system calls (seccomp(2)), given as lists of the calls that are allowed. The program is written by hand:
 * libseccomp would be another dependency for a hundred lines, and does not know the names of system calls that are
 * newer than itself. Numbers are those of the machine for which this is compiled.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call that is allowed with certain arguments only. The half of the argument that is not compared must not affect any
 * of them. */
struct wb_filter_rule {
    int number;
    unsigned argument;
    enum { WB_FILTER_IS, WB_FILTER_HAS_NONE_OF } how;
    uint32_t value;
};

struct wb_filter_list {
    const int *numbers;
    size_t count;
};

/*
 * The calls that every program makes: reading files, writing to open ones, memory, waiting and threads, without those
 * that need a rule. In all filters, ioctl(2) is limited to requests about files, and fcntl(2) cannot make the kernel
 * send signals to others.
 */
extern const struct wb_filter_list wb_filter_basic;

/* Flags of clone(2) that make namespaces. */
#define WB_FILTER_NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

struct wb_filter {
    const struct wb_filter_list *lists;
    size_t list_count;
    const struct wb_filter_rule *rules;
    size_t rule_count;
    bool changes;           /* also calls that create, rename and remove files, or change their size and attributes */
    const uint32_t *ioctls; /* more than those about files; the other arguments of ioctl(2) are refused */
    size_t ioctl_count;
    uint32_t refused; /* SECCOMP_RET_...: the result of every other call */
};

/*
 * Applies to the calling thread and all threads created after it. Needs no_new_privs or CAP_SYS_ADMIN. clone3(2) always
 * fails with ENOSYS, since the filter cannot read its flags; the C library then uses clone(2). 0; -errno; -EOPNOTSUPP:
 * unknown machine.
 */
int wb_filter_enter(const struct wb_filter *filter);
