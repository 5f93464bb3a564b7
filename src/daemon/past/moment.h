/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The mount of a moment (-o at=TIME): a session whose root is a directory of the past. It takes
 * no lock and writes nothing, so it works beside a daemon that goes on recording, in any number.
 *
 * What is shown never changes: the moment is fixed when it is mounted, and by then every change
 * at or before it is over (wb_history_wait_daemon).
 */

#include "daemon/core/session.h"
#include "daemon/options/options.h"
#include "wayback/when.h"

/*
 * Where the tree is that session->source (what the user gave, resolved) belongs to: it may be a
 * directory of a Wayback mount, which may cover the tree itself, or one inside of a tree that has a
 * store. Sets source, src_fd, inside, and *ret_store to the store's path where that is
 * known (g_free). 0, or -errno with a line in `why`.
 */
int wb_moment_find_source(struct wb_session *session, char **ret_store, struct wb_error *why);

/*
 * Once the past is open, for a mount that only reads: fixes the moment, waits until it is settled, makes the root. No
 * version that shows then goes while the mount is there, and none at all where it is of no moment (tables/pins.h).
 */
int wb_moment_open(struct wb_session *session, struct wb_error *why);

/* SRC@TIME, with the mark of the mount; g_free. */
char *wb_moment_name(const struct wb_options *options, const char *source, int64_t when);

/* What the mount is called: SRC, or SRC@TIME; g_free. */
char *wb_moment_label(const struct wb_session *session);

/*
 * Whether the kernel may cache replies. In the mount of a moment, the meaning of a name never changes. But access
 * *now* can change, and is checked when a name is looked up. So the kernel may cache only if a single user, or root,
 * has access to the mount: that user got the cached reply before.
 */
static inline bool wb_moment_is_fixed(const struct wb_session *session)
{
    return session->moment != WB_WHEN_PRESENT && !session->options->allow_other;
}
