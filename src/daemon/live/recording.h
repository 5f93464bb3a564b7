/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What wayback.conf says of the recording of single paths (policy/recording.h), applied to nodes.
 *
 * A node keeps the answer until a directory is renamed or the file is read again. What is in a directory that is left
 * out is left out; a file with several names is recorded whatever they are, since its states can be seen by each.
 *
 * Before the first change that is not recorded, a GAP is opened in the log of the file, or of the directory (its names
 * and its own attributes). A file or directory that was born in a directory after the GAP of that was opened has no
 * past that anybody could see: it gets no log, and is removed and renamed like on a disk without history.
 */

#include "daemon/core/session.h"
#include "policy/recording.h"

/* Takes the rules. From then on all nodes are asked for anew. */
void wb_recording_set(struct wb_session *session, struct wb_recording_rules *rules);
/* Reads them before the first request; mistakes are reported by who reads the file afterwards. */
void wb_recording_load(struct wb_session *session);
void wb_recording_deinit(struct wb_session *session);

/* Whether a rule left any path out at some time of this mount. */
bool wb_recording_leaves_out(const struct wb_session *session);

enum wb_recording wb_recording_of(struct wb_session *session, struct wb_inode *inode);

/* It has another name now; a directory: so has all that is below. With the locks of a rename. */
void wb_recording_renamed(struct wb_session *session, struct wb_inode *inode);

/* Before a change of what `target` is, which is not recorded. 0 or -errno; wb_capture_end(change) afterwards. */
int wb_recording_cover(struct wb_session *session, struct wb_inode *inode, struct wb_target *target, int fd,
                       struct wb_change *change);
/* The same for names in a directory. `fd`: of it, or -1. */
int wb_recording_cover_dir(struct wb_session *session, struct wb_inode *dir, int fd, struct wb_change *change);

/* Whether the entry `object` of `dir`, which is left out and covered, has no past. `nlink` as users see it. */
bool wb_recording_is_pastless(struct wb_session *session, const struct wb_inode *dir, struct wb_object object,
                              const struct stat *st);
