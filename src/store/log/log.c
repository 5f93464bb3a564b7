/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Appending to a log. A record goes out in one pwritev at the tail; if it does not arrive whole,
 * the file is cut back to where it was. So the bytes below `tail` are whole records at all times, and a
 * crash leaves at most one unfinished record after them, which the next opening cuts away.
 */
#include "store/log/log.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/spend.h"
#include "wayback/error.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* For a state on the stack: nothing is allocated on the way of a write. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

/* Of a log that are read when it is opened: enough for the last record, unless that keeps more than a page. */
#define LAST_BYTES (2 * 4096)

/* Opens the file; a store that lost one of its (empty) object directories gets it back. */
static int log_open_file(int dir_fd, const char *path, bool create, struct stat *ret)
{
    int flags = O_RDWR | (create ? O_CREAT : 0);
    char parent[WB_OBJECT_PATH_MAX];
    const char *slash;
    int fd;

    fd = wb_open_own_stat(dir_fd, path, flags, 0600, ret);
    slash = strrchr(path, '/');
    if (fd != -ENOENT || !create || !slash || (size_t)(slash - path) >= sizeof(parent))
        return fd;
    memcpy(parent, path, slash - path);
    parent[slash - path] = '\0';
    if (mkdirat(dir_fd, parent, 0700) < 0 && errno != EEXIST)
        return -errno;
    return wb_open_own_stat(dir_fd, path, flags, 0600, ret);
}

static _Atomic uint64_t gaps_ended;

uint64_t wb_log_gaps_ended(void)
{
    return atomic_load_explicit(&gaps_ended, memory_order_relaxed);
}

/* For a log of which that is the newest record. */
static int64_t open_since(const struct wb_record *record)
{
    return record->type == WB_REC_GAP && record->flags & WB_RECORD_OPEN ? record->gap.since + 1 : 0;
}

/*
 * As a rule a log is not packed and its last record is sound: that is seen by one read of its last bytes. 0, or
 * -EBADMSG where it has to be looked at more closely, or -errno.
 */
static int log_look_at_tail(int fd, struct wb_log *log, uint64_t size)
{
    uint8_t data[LAST_BYTES], first[4];
    size_t length = MIN(size, sizeof(data)), last, done;
    uint64_t begin = size - length;
    struct wb_record record;
    uint32_t total, body, measured;
    int r;

    if (size < WB_PACK_HEAD_SIZE)
        return -EBADMSG;
    r = wb_pread_exact(fd, data, length, begin);
    if (r == 0 && begin > 0)
        r = wb_pread_exact(fd, first, sizeof(first), 0);
    if (r < 0)
        return r == -ENODATA ? -EBADMSG : r;
    if (!wb_record_is_magic(begin > 0 ? first : data) ||
        wb_record_measure_end(data + length - WB_TRAILER_SIZE, &total) < 0 ||
        total < WB_HEAD_SIZE + WB_TRAILER_SIZE || total > length)
        return -EBADMSG;
    last = length - total;
    r = wb_record_measure(data + last, &body, &measured);
    if (r < 0 || measured != total)
        return -EBADMSG;
    done = MIN((size_t)total, WB_HEAD_SIZE + (size_t)body);
    r = wb_record_decode(data + last, done, begin + last, &record);
    if (r < 0 || record.total != total)
        return -EBADMSG;
    log->tail = size;
    log->last_when = record.when;
    log->open_since = open_since(&record);
    return 0;
}

/* Finds the end of the last record and its `when`, and how much is packed, which is never cut away. *ret_end, where the
 * log ends now, is above log->tail where a tail is torn. */
static int log_find_tail(int fd, struct wb_log *log, uint64_t *ret_end)
{
    struct wb_log_reader reader;
    struct wb_record record;
    uint64_t end = 0;
    int r;

    r = wb_log_reader_init(&reader, fd);
    if (r < 0)
        return r;
    do {
        r = wb_log_reader_prev(&reader, &record);
        if (r == 0)
            end = MAX(end, record.offset + record.total);
        else if (r == WB_DAMAGED)
            end = MAX(end, reader.damaged_to);
    } while (r == WB_DAMAGED);
    log->unpacked = wb_log_bytes_unpacked(&reader.bytes);
    log->packed = wb_log_bytes_packed(&reader.bytes);
    *ret_end = reader.end;
    wb_log_reader_deinit(&reader);
    if (r < 0)
        return r;
    log->tail = MAX(end, log->unpacked);
    log->last_when = r == 0 ? record.when : 0;
    log->open_since = r == 0 ? open_since(&record) : 0;
    return 0;
}

int wb_log_set_mtime(int fd, int64_t when)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {.tv_sec = when / WB_WHEN_SECOND, .tv_nsec = when % WB_WHEN_SECOND}};

    return futimens(fd, times) < 0 ? -errno : 0;
}

int wb_log_open(struct wb_log **ret, int dir_fd, const char *path, bool create)
{
    _cleanup_close_ int fd = -1;
    struct wb_log found = {0}, *log;
    uint64_t end = 0;
    struct stat st;
    int r = 0;

    fd = log_open_file(dir_fd, path, create, &st);
    if (fd < 0)
        return fd;
    if (st.st_size > 0) {
        r = log_look_at_tail(fd, &found, (uint64_t)st.st_size);
        end = found.tail;
        if (r == -EBADMSG)
            r = log_find_tail(fd, &found, &end);
        if (r < 0)
            return r;
        if (found.tail < end && ftruncate(fd, (off_t)wb_log_physical(&found, found.tail)) < 0)
            return -errno;
    }
    found.stamp = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    /* ftruncate changed the time of modification, which is the evidence of the loss: restore it. */
    if (st.st_size > 0 && found.tail < end)
        wb_log_set_mtime(fd, found.stamp);
    log = g_try_new0(struct wb_log, 1);
    if (!log)
        return -ENOMEM;
    *log = found;
    log->fd = wb_steal_fd(&fd);
    pthread_mutex_init(&log->lock, NULL);
    *ret = log;
    return 0;
}

struct wb_log *wb_log_free(struct wb_log *log)
{
    if (!log)
        return NULL;
    close(log->fd);
    pthread_mutex_destroy(&log->lock);
    g_free(log);
    return NULL;
}

/* Length and checksum of a payload in pieces; -EMSGSIZE where it is too long. */
static int measure_payload(struct wb_record *record, const struct iovec *payload, int count)
{
    XXH3_state_t state;
    uint64_t length = 0;

    record->payload_length = 0;
    record->payload_check = 0;
    for (int i = 0; i < count; i++)
        length += payload[i].iov_len;
    if (length > WB_PAYLOAD_MAX)
        return -EMSGSIZE;
    record->payload_length = (uint32_t)length;
    if (length == 0)
        return 0;
    if (count == 1) {
        record->payload_check = wb_checksum(payload[0].iov_base, payload[0].iov_len);
        return 0;
    }
    /* The same sum as wb_checksum over the joined pieces. */
    XXH3_64bits_reset(&state);
    for (int i = 0; i < count; i++)
        XXH3_64bits_update(&state, payload[i].iov_base, payload[i].iov_len);
    record->payload_check = XXH3_64bits_digest(&state);
    return 0;
}

/* A change at `when` is going to be recorded: the open GAP ends just before it. */
static int end_gap(struct wb_log *log, int64_t when)
{
    struct wb_record gap = {.type = WB_REC_GAP, .when = MAX(when - 1, log->last_when),
                            .gap = {log->open_since - 1, WB_GAP_POLICY}};
    int64_t since = log->open_since;
    int r;

    log->open_since = 0;
    r = wb_log_append_locked(log, &gap, NULL, 0);
    if (r < 0)
        log->open_since = since;
    else
        atomic_fetch_add(&gaps_ended, 1);
    return r;
}

int wb_log_end_gap_locked(struct wb_log *log, int64_t when)
{
    return log->open_since > 0 ? end_gap(log, when) : 0;
}

int wb_log_append_locked(struct wb_log *log, struct wb_record *record, const struct iovec *payload,
                         int payload_count)
{
    struct iovec pieces[WB_LOG_PIECES_MAX + 2];
    uint8_t head[WB_HEAD_SIZE + WB_BODY_MAX], end[16];
    int head_length, end_length, r;
    bool spends;

    if (record->when < log->last_when)
        return -EBADMSG;
    r = wb_log_end_gap_locked(log, record->when);
    if (r < 0)
        return r;
    if (payload_count < 0 || payload_count > WB_LOG_PIECES_MAX)
        return -EINVAL;
    r = measure_payload(record, payload, payload_count);
    if (r < 0)
        return r;
    record->offset = log->tail;
    head_length = wb_record_encode(record, head);
    if (head_length < 0)
        return head_length;
    end_length = wb_record_encode_end(record, end);
    if (end_length < 0)
        return end_length;
    record->payload_offset = log->tail + head_length;

    pieces[0] = (struct iovec){head, head_length};
    if (payload_count > 0)
        memcpy(pieces + 1, payload, payload_count * sizeof(*payload));
    pieces[payload_count + 1] = (struct iovec){end, end_length};
    spends = wb_spend_begin(0);
    r = wb_pwritev_full(log->fd, pieces, payload_count + 2, wb_log_physical(log, log->tail));
    wb_spend_end(spends);
    if (r == 0 && log->mtime_untrusted && fdatasync(log->fd) < 0)
        r = -errno;
    if (r < 0) {
        /* If even this fails, the rest is an unfinished tail: the next record goes over it, and no
         * reader takes it for one. */
        if (ftruncate(log->fd, (off_t)wb_log_physical(log, log->tail)) == 0)
            wb_log_set_mtime(log->fd, log->last_when);
        return r;
    }
    log->tail += record->total;
    log->last_when = record->when;
    log->open_since = open_since(record);
    __atomic_store_n(&log->dirty, true, __ATOMIC_RELAXED);
    __atomic_store_n(&log->unlisted, true, __ATOMIC_RELAXED);
    if (record->type == WB_REC_DATA)
        __atomic_store_n(&log->overwrites, true, __ATOMIC_RELAXED);
    wb_log_set_mtime(log->fd, record->when);
    return 0;
}

int wb_log_sync_name(int dir_fd, const char *path)
{
    _cleanup_close_ int fd = -1;
    char parent[WB_OBJECT_PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (!slash)
        return wb_fsync_dir(dir_fd);
    if ((size_t)(slash - path) >= sizeof(parent))
        return -ENAMETOOLONG;
    memcpy(parent, path, slash - path);
    parent[slash - path] = '\0';
    fd = openat(dir_fd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return wb_fsync_dir(fd);
}

int wb_log_exchange_locked(struct wb_log *log, int dir_fd, const char *path, const char *temporary, uint64_t tail)
{
    _cleanup_close_ int fd = openat(dir_fd, temporary, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct wb_log_bytes bytes;
    struct stat named, open;
    int r;

    if (fd < 0)
        return -errno;
    /* Removed, or written anew without what was to be forgotten: that must not come back. */
    if (log->tail != tail || fstatat(dir_fd, path, &named, AT_SYMLINK_NOFOLLOW) < 0 || fstat(log->fd, &open) < 0 ||
        named.st_ino != open.st_ino || named.st_dev != open.st_dev)
        return -EAGAIN;
    r = wb_log_bytes_open(&bytes, fd);
    if (r < 0)
        return r;
    wb_log_set_mtime(fd, log->last_when);
    if (renameat(dir_fd, temporary, dir_fd, path) < 0) {
        r = -errno;
    } else {
        /* The number stays: somebody may be syncing it. As the new file is on the disk, that is as good. */
        while (dup3(fd, log->fd, O_CLOEXEC) < 0 && (errno == EINTR || errno == EBUSY))
            ;
        log->unpacked = wb_log_bytes_unpacked(&bytes);
        log->packed = wb_log_bytes_packed(&bytes);
        log->name_synced = false;
        log->exchanges++;
    }
    wb_log_bytes_close(&bytes);
    return r;
}

int wb_log_sync(struct wb_log *log, int dir_fd, const char *path)
{
    uint64_t tail, synced;
    unsigned exchanges;
    bool name_synced;
    int r;

    pthread_mutex_lock(&log->lock);
    tail = log->tail;
    synced = log->synced;
    name_synced = log->name_synced;
    exchanges = log->exchanges;
    pthread_mutex_unlock(&log->lock);

    /* Other threads may append meanwhile: records after `tail` are not promised. */
    if (synced < tail && fdatasync(log->fd) < 0)
        return -errno;
    if (!name_synced) {
        r = wb_log_sync_name(dir_fd, path);
        if (r < 0)
            return r;
    }
    pthread_mutex_lock(&log->lock);
    log->synced = MAX(log->synced, tail);
    /* A file that took the name meanwhile may have come after its directory was synced. */
    if (log->exchanges == exchanges)
        log->name_synced = true;
    pthread_mutex_unlock(&log->lock);
    return 0;
}
