/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The head of `inflight`: the clock and its mark, and the fields that reveal power cuts. */
#include "store/inflight/inflight_parts.h"
#include "store/inflight/spans.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool wb_inflight_is_ours(const struct wb_inflight_file *file, size_t length)
{
    return (length == sizeof(*file) || length == WB_INFLIGHT_SIZE_9) &&
           memcmp(file->head.magic, WB_INFLIGHT_MAGIC, sizeof(file->head.magic)) == 0 &&
           le32toh(file->head.slots) == WB_INFLIGHT_SLOTS;
}

int wb_inflight_write_head(struct wb_inflight *inflight, int fd, uint64_t boot, struct wb_inflight_head *head)
{
    int64_t last = inflight->last;
    int r;

    head->last = htole64((uint64_t)last);
    head->boot = htole64(boot);
    head->mark = htole64((uint64_t)(last + WB_MARK_PRECLONE));
    head->changed = htole64((uint64_t)inflight->changed);
    head->stamped = htole64((uint64_t)inflight->stamped);
    head->cut = htole64((uint64_t)inflight->cut);
    r = wb_pwrite_full(fd, head, sizeof(*head), 0);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0)
        inflight->mark = last + WB_MARK_PRECLONE;
    return r;
}

int wb_inflight_write_rested(const struct wb_inflight *inflight, int dir_fd)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDWR, 0);
    struct wb_inflight_head head;
    struct wb_inflight_tail tail;
    int r = fd < 0 ? fd : wb_pread_exact(fd, &head, sizeof(head), 0);

    if (r < 0)
        return r;
    head.last = head.mark = htole64((uint64_t)inflight->last);
    head.changed = htole64((uint64_t)inflight->changed);
    r = wb_pwrite_full(fd, &head, sizeof(head), 0);
    if (r == 0)
        r = wb_pread_exact(inflight->fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail));
    /* The copy was synced as a whole, so all of its content is on the disk. */
    if (r == 0)
        tail.synced = htole64((uint64_t)wb_spans_clock());
    return r < 0 ? r : wb_pwrite_full(fd, &tail, sizeof(tail), offsetof(struct wb_inflight_file, tail));
}

void wb_inflight_log_mtimes(const struct wb_inflight *inflight, struct wb_log_mtimes *ret)
{
    *ret = (struct wb_log_mtimes){inflight->stamped, inflight->cut, inflight->unclean};
}

void wb_inflight_peek_log_mtimes(int dir_fd, bool held, struct wb_log_mtimes *ret)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    struct wb_inflight_file file = {0};
    size_t length = 0;

    *ret = (struct wb_log_mtimes){0};
    if (fd < 0 || wb_pread_full(fd, &file, sizeof(file), 0, &length) < 0 || !wb_inflight_is_ours(&file, length))
        return;
    *ret = (struct wb_log_mtimes){wb_inflight_clock(file.head.stamped), wb_inflight_clock(file.head.cut), false};
    /* No process has opened it for writing since. */
    if (!held && ret->since > 0 && wb_inflight_clock(file.head.mark) > wb_inflight_clock(file.head.last) &&
        !wb_boot_goes_on(dir_fd, le64toh(file.head.boot)))
        ret->cut = WB_CLOCK_MAX;
}
