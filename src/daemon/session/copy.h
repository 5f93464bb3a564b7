/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "daemon/core/session.h"

/*
 * The store is a copy that is just brought up to date: whoever does that is waited for, for a while; what he left in
 * the middle is brought to its end. 0: it may be opened again; or -errno, with a line in `why`.
 */
int wb_copy_await(struct wb_session *session, struct wb_error *why);
