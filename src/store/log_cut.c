/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a power cut took: the last records of a log may not have got to the disk, though what they are of did. The time
 * of the log's file tells (wb_log_stamp): it goes the way of all metadata, in order. Logs are looked at when they are
 * met, since mounting must not cost what the history does.
 */
#include "store/parts.h"

#include "base/cleanup.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static bool is_short(const struct wb_store *store, int64_t stamp, int64_t last_when)
{
    return stamp > last_when && stamp >= store->stamps.since && stamp < store->stamps.cut;
}

int wb_log_tell_lost_tail(struct wb_store *store, struct wb_log *log)
{
    struct wb_record record = {.type = WB_REC_GAP, .gap = {log->last_when, WB_GAP_POWER}};
    int r;

    record.when = wb_store_tick(store);
    r = wb_log_append_locked(log, &record, NULL, 0);
    if (r == 0)
        log->lacks_tail = false;
    return r;
}

/*
 * Told before anything else is appended, since that would take the evidence away. A catalog has to begin with a PLACE:
 * who writes that (capture/place.c) tells then.
 */
int wb_log_look_for_lost_tail(struct wb_store *store, struct wb_log *log, struct wb_object object,
                              enum wb_object_file file)
{
    log->unstamped = wb_store_is_unstamped(store, object, file);
    log->lacks_tail = !log->unstamped && is_short(store, log->stamp, log->last_when);
    if (!log->lacks_tail || (file == WB_FILE_CATALOG && log->tail == 0))
        return 0;
    return wb_log_tell_lost_tail(store, log);
}

/* For who only reads. */
static int look_from_outside(int fd, const struct wb_store *store, int64_t stamp)
{
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev(&reader, &record)) == WB_DAMAGED)
        ;
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : is_short(store, stamp, r == 0 ? record.when : 0);
}

int wb_store_lacks_tail(const struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    _cleanup_close_ int fd = -1;
    struct wb_log *log;
    struct stat st;
    int64_t stamp;
    int r;

    if (store->stamps.cut == 0 || wb_store_is_unstamped(store, object, file))
        return 0;
    fd = wb_store_open_file(store, object, file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    stamp = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    if (stamp < store->stamps.since || stamp >= store->stamps.cut)
        return 0;
    if (!store->logs)
        return look_from_outside(fd, store, stamp);
    /* It is const for who reads history: opening a log tells of its past what was true before. */
    r = wb_store_get_log((struct wb_store *)store, object, file, false, &log);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = log->lacks_tail;
    wb_store_put_log((struct wb_store *)store, log);
    return r;
}
