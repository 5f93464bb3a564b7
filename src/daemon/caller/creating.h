/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "daemon/core/session.h"

/*
 * Whether the caller of a request is about to create `name`: the thread is in mkdir(2), mknod(2), symlink(2), link(2),
 * rename(2) or bind(2), with `name` as the last part of the path to be made, or in an open(2) that creates it. The
 * kernel looks a name up before it creates it, and the request does not say what it is for; so this reads the system
 * call in /proc/TID/syscall and its path in the caller's memory.
 *
 * open(2) creates if O_CREAT comes with O_EXCL, O_TRUNC or O_WRONLY. O_CREAT with reading and nothing else opens what
 * is there, and a program that takes "read-only file system" for an answer (sqlite3) goes on to read it.
 *
 * False where this cannot be known: the caller is in another PID namespace, comes through io_uring or a server in the
 * kernel (nfsd), runs a 32-bit program, or may not be traced (ptrace(2)) by the daemon as that user: Yama's
 * ptrace_scope forbids it, the caller changed its user without an execve(2) or has capabilities, as processes of root
 * have (the daemon gives CAP_SYS_PTRACE up, see privileges.c), or its memory cannot be read in time. The name means the
 * past then. A wrong answer only hides the past from one look-up, which the kernel does not cache.
 */
bool wb_caller_creates(struct wb_session *session, fuse_req_t req, const char *name);
