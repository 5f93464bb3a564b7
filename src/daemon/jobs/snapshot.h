/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Taking a snapshot. No change is under way at its moment: it lies between changes, so that what
 * several files say belongs together. Nothing is copied and the tree is not walked.
 *
 * What a snapshot promises once it is acknowledged: everything that was written before its moment is on stable
 * storage, fsync or not, as is the history up to it, and its name. So whatever happens to the power afterwards,
 * the moment is there as it was, but for the before-images of later changes, which are as durable as
 * ever: at once where the change was, else within seconds.
 */

#include "daemon/core/session.h"
#include "store/tables/snapshots.h"

/*
 * `snapshot` is filled except for `when`, which is set. 0; -EEXIST, -ENOSPC, -EINVAL as of wb_snapshots_add;
 * -ESTALE if snapshot->path does not lead to snapshot->scope any more; or -errno. For a recording session. Takes
 * ns_lock for a moment.
 */
int wb_snapshot_take(struct wb_session *session, struct wb_snapshot *snapshot);
