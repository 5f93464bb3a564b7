/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What an errno means for a user of the past. */

/* The text for an errno (positive or negative), with advice if there is any. Valid until the thread's next call. */
const char *wb_errno_text(int error);
