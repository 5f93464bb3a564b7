/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Looks for a text, which is a row of bytes, in the content of files of the past and of the present.
 *
 * It is made for many states of one file after the other: it looks first at the place where the last search found the
 * text, which is usually right for the next state as well, and reads a whole state only if the text is not there.
 */

#include <glib.h>
#include <stdint.h>

struct wb_text_search;

/* `text` is not empty, and stays the caller's; it has no NUL, because it comes from the command line. */
struct wb_text_search *wb_text_search_new(const char *text);
struct wb_text_search *wb_text_search_free(struct wb_text_search *search);

/* Before the states of another file: forgets the place of the text, and where the file before was. */
void wb_text_search_begin(struct wb_text_search *search);

/*
 * Whether the file `path`, relative to `root_fd`, has the text: 1 or 0, and its size in *ret_size. -ENOENT: there is
 * no regular file of that path; -EINTR: the user stopped the tool; or another negative errno: it is not known.
 */
int wb_text_search_file(struct wb_text_search *search, int root_fd, const char *path, uint64_t *ret_size);

static inline void wb_text_search_freep(struct wb_text_search **search)
{
    wb_text_search_free(*search);
}
#define _cleanup_text_search_ __attribute__((cleanup(wb_text_search_freep)))
