/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The file of gaps that are still open. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>

#define SIZE ((1 + WB_GAPS_MAX) * WB_GAP_SIZE)

static void check_head(struct wb_checking *checking, const uint8_t *data, size_t length)
{
    struct wb_check_where where = {WB_GAPS_NAME, NULL, 0, WB_GAP_SIZE};
    uint8_t head[WB_GAP_SIZE];

    /* Nothing but zeros: it was never finished. */
    if (length < SIZE || wb_gap_check_head(data) == 0 || wb_is_zero(data, SIZE))
        return;
    wb_gap_encode_head(head);
    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_mend_file(checking, WB_GAPS_NAME, 0, head, sizeof(head)), "damaged-gaps",
                               where, "rewritten", "the head of the list of gaps is damaged");
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-gaps", where, "can be rewritten",
                        "the head of the list of gaps is damaged");
}

static void check_place(struct wb_checking *checking, const uint8_t *data, uint64_t offset)
{
    static const char text[] = "a gap is damaged; it may belong to any file, so states that depend on it are refused";
    static const uint8_t free_place[WB_GAP_SIZE];
    struct wb_check_where where = {WB_GAPS_NAME, NULL, offset, offset + WB_GAP_SIZE};
    struct wb_open_gap gap;

    if (wb_is_zero(data, WB_GAP_SIZE))
        return;
    if (wb_gap_decode(data, &gap) == 0)
        wb_check_report(checking, WB_CHECK_NOTE, "gap", where, NULL,
                        "states until now are unknown: changes could not be recorded, and no log has this gap yet");
    else if (wb_check_mends(checking, true))
        wb_check_report_mended(checking, wb_mend_file(checking, WB_GAPS_NAME, offset, free_place, WB_GAP_SIZE),
                               "damaged-gaps", where, "removed, and saved in lost", "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-gaps", where,
                        "-y removes it; then older states of its file or directory show the changes made in the gap",
                        "%s", text);
}

int wb_check_gaps(struct wb_checking *checking)
{
    _cleanup_close_ int fd = wb_open_own(checking->dir_fd, WB_GAPS_NAME, O_RDONLY, 0);
    g_autofree uint8_t *data = fd < 0 ? NULL : g_try_malloc0(SIZE);
    size_t length;
    int r;

    if (fd < 0)
        return fd == -ENOENT || fd == -ELOOP || fd == -EBADMSG ? 0 : fd;
    r = data ? wb_pread_full(fd, data, SIZE, 0, &length) : -ENOMEM;
    if (r < 0)
        return r;
    checking->result.files++;
    check_head(checking, data, length);
    for (uint64_t offset = WB_GAP_SIZE; offset < SIZE; offset += WB_GAP_SIZE)
        check_place(checking, data + offset, offset);
    return 0;
}
