/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/object/object_log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int wb_object_log_open(struct wb_object_log *log, const struct wb_store *store, struct wb_object object,
                       enum wb_object_file file)
{
    int fd = wb_store_open_file(store, object, file, O_RDONLY), r;

    *log = (struct wb_object_log)WB_OBJECT_LOG_CLOSED;
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    r = wb_log_reader_init(&log->reader, fd);
    if (r < 0) {
        close(fd);
        return r;
    }
    log->fd = fd;
    return 1;
}

void wb_object_log_close(struct wb_object_log *log)
{
    if (log->fd < 0)
        return;
    wb_log_reader_deinit(&log->reader);
    close(log->fd);
    log->fd = -1;
}
