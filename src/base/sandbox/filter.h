/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Filters of system calls (seccomp(2)), as lists of what is allowed. The program is written by hand: libseccomp would
 * be one more dependency for a hundred lines, and knows no system call that is newer than itself by name. Numbers are
 * those of the machine that this is compiled for.
 */

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* A call that is allowed with some arguments only. The half that is not compared must matter to none of them. */
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

/* What every program does: files, memory, waiting and threads, but not those calls that rules are needed for. */
extern const struct wb_filter_list wb_filter_basic;

/* Flags of clone(2) that make namespaces. */
#define WB_FILTER_NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

struct wb_filter {
    const struct wb_filter_list *lists;
    size_t list_count;
    const struct wb_filter_rule *rules;
    size_t rule_count;
    uint32_t refused; /* SECCOMP_RET_...: what happens at any other call */
};

/*
 * For the calling thread and all that are made after it. Needs no_new_privs or CAP_SYS_ADMIN. clone3(2) always fails
 * with ENOSYS, since its flags cannot be looked at; the C library then uses clone(2). 0; -errno; -EOPNOTSUPP: this
 * machine is not known.
 */
int wb_filter_enter(const struct wb_filter *filter);
