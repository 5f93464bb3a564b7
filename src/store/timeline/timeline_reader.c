/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Readers, which do not have the lock, and so must not write. A timeline that another process maintains is used as it
 * is; work that a crash left undone is done in files without names.
 */
#include "store/timeline/timeline_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>

/* Changes of a daemon that died, of which it is not known whether they happened. */
static unsigned read_failed(struct wb_store *store, int64_t failed[WB_INFLIGHT_SLOTS])
{
    _cleanup_close_ int fd = wb_open_own(store->dir_fd, WB_INFLIGHT_NAME, O_RDONLY, 0);
    uint64_t slots[WB_INFLIGHT_SLOTS][WB_INFLIGHT_SLOT / 8];
    unsigned count = 0;

    if (fd < 0 || wb_pread_exact(fd, slots, sizeof(slots), WB_INFLIGHT_HEAD) < 0)
        return 0;
    for (unsigned i = 0; i < WB_INFLIGHT_SLOTS; i++)
        if (slots[i][0] != 0)
            failed[count++] = (int64_t)le64toh(slots[i][1]);
    return count;
}

static int open_as_reader(struct wb_timeline *timeline, GHashTable *pending)
{
    struct wb_array notes = WB_ARRAY_INIT;
    struct wb_times_entry entry;
    int r = wb_array_open(&timeline->times, timeline->dir_fd, "times", false);

    if (r == 0)
        r = wb_array_open(&timeline->moves, timeline->dir_fd, "moves", false);
    if (r == 0)
        r = wb_array_open(&notes, timeline->dir_fd, "pending", false);
    for (uint64_t i = 0; r == 0 && i < notes.count; i++) {
        r = wb_array_read(notes.fd, i, &entry, 1);
        if (r == 0)
            r = wb_logids_add(pending, entry.object, entry.file);
    }
    wb_array_close(&notes);
    return r;
}

static void look_at_sizes(struct wb_timeline *timeline, off_t sizes[2])
{
    static const char *const names[] = {"times", "pending"};
    struct stat st;

    for (unsigned i = 0; i < 2; i++)
        sizes[i] = timeline->dir_fd >= 0 && fstatat(timeline->dir_fd, names[i], &st, 0) == 0 ? st.st_size : -1;
}

int wb_timeline_prepare_reader(struct wb_store *store)
{
    struct wb_timeline *timeline = store->timeline;
    struct wb_array times = WB_ARRAY_INIT, moves = WB_ARRAY_INIT;
    int64_t failed[WB_INFLIGHT_SLOTS];
    GHashTable *pending;
    struct wb_gathering gathering;
    off_t sizes[2];
    bool whole;
    int r;

    if (timeline->dir_fd < 0)
        timeline->dir_fd =
            openat(store->dir_fd, WB_TIMELINE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    look_at_sizes(timeline, sizes);
    if (timeline->prepared && sizes[0] == timeline->seen[0] && sizes[1] == timeline->seen[1])
        return 0;
    pthread_mutex_lock(&timeline->lock);
    timeline->prepared = false;
    wb_timeline_replace(timeline, &times, &moves);
    pthread_mutex_unlock(&timeline->lock);

    pending = wb_logids_new();
    wb_gathering_init(&gathering, store, INT64_MAX);
    gathering.failed = failed;
    gathering.failed_count = read_failed(store, failed);
    r = timeline->dir_fd < 0 ? -ENOENT : open_as_reader(timeline, pending);
    whole = r == 0;
    gathering.after = gathering.moves_after = -1;
    if (whole) {
        gathering.after = timeline->times.last;
        gathering.moves_after = timeline->moves.last;
        r = wb_timeline_gather_logs(timeline, &gathering, pending, false);
    } else {
        r = wb_timeline_gather_all(timeline, &gathering);
    }
    g_hash_table_remove_all(pending);
    if (r == 0 && (!whole || gathering.times.used > 0 || gathering.times.written > 0))
        r = wb_timeline_write_anew(timeline, &gathering, whole ? pending : NULL, false, &times, &moves);
    pthread_mutex_lock(&timeline->lock);
    if (r == 0 && times.fd >= 0)
        wb_timeline_replace(timeline, &times, &moves);
    timeline->prepared = r == 0;
    timeline->seen[0] = sizes[0];
    timeline->seen[1] = sizes[1];
    pthread_mutex_unlock(&timeline->lock);
    wb_gathering_deinit(&gathering);
    g_hash_table_unref(pending);
    return r;
}
