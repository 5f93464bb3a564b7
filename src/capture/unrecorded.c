/* SPDX-License-Identifier: LGPL-2.1-or-later */

/*
 * Objects that wayback.conf leaves out: before the first change that is not recorded, all of the state is recorded that
 * such changes may alter, and then the log gets a GAP that remains open for as long as it is the newest record
 * (WB_RECORD_OPEN). So older states remain exact. Names of a directory need not be kept: those that exist by then are
 * recorded when they are removed, and later ones are recognized by the birth of the object that has them.
 */

#include "capture/plan.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "store/identity/flags.h"
#include "store/object/catalog_path.h"
#include "store/timeline/timeline.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ---- the state before ---------------------------------------------------------------------------- */

static int keep_xattrs(struct wb_store *store, struct wb_target *target, int fd)
{
    g_autofree char *names = g_try_malloc(XATTR_LIST_MAX);
    struct wb_change change;
    ssize_t length;
    int r = 0;

    if (!names)
        return -ENOMEM;
    length = wb_listxattr_fd(fd, names, XATTR_LIST_MAX);
    if (length < 0)
        return length == -EOPNOTSUPP ? 0 : (int)length;
    for (const char *name = names; r >= 0 && name < names + length; name += strlen(name) + 1) {
        r = wb_capture_xattr(store, &change, target, fd, name, WB_OP_NONE, 0);
        wb_capture_end(&change, r < 0 ? r : 0);
    }
    return MIN(r, 0);
}

/* Flags of the inode that are not kept were all clear. */
static int keep_flags(struct wb_store *store, struct wb_target *target, int fd)
{
    const struct wb_flags none = {0};
    struct wb_change change;
    struct wb_flags flags;
    int r = wb_flags_read(fd, &flags);

    if (r < 0 || memcmp(&flags, &none, sizeof(none)) == 0)
        return r == -EOPNOTSUPP ? 0 : r;
    r = wb_capture_xattr(store, &change, target, fd, WB_FLAGS_NAME, WB_OP_NONE, 0);
    wb_capture_end(&change, r < 0 ? r : 0);
    return MIN(r, 0);
}

static int keep_content(struct wb_store *store, struct wb_target *target, int fd, const struct stat *st)
{
    uint64_t size = (uint64_t)st->st_size;
    struct wb_overwrite overwrite = {.op = WB_OP_NONE, .length = size, .size_after = size};
    struct wb_change change;
    int r = wb_capture_content(store, &change, target, fd, &overwrite, 0);

    wb_capture_end(&change, r < 0 ? r : 0);
    return MIN(r, 0);
}

static int keep_attrs(struct wb_store *store, struct wb_target *target, int fd)
{
    struct wb_change change;
    int r = wb_capture_attrs(store, &change, target, fd, WB_OP_NONE, 0);

    wb_capture_end(&change, r < 0 ? r : 0);
    return MIN(r, 0);
}

/* `fd`: any descriptor of the target; of a directory, -1 where the caller has none. */
static int keep_state(struct wb_store *store, struct wb_target *target, int fd)
{
    _cleanup_close_ int own = -1;
    struct stat st;
    char path[32];
    int r;

    if (fd < 0) {
        r = wb_catalog_path_open_dir(store, target->object, &own);
        if (r != 0)
            return r < 0 ? r : -ENOENT;
        fd = own;
    }
    if (fstat(fd, &st) < 0)
        return -errno;
    target->known = NULL;
    r = S_ISLNK(st.st_mode) ? 0 : keep_xattrs(store, target, fd);
    if (r == 0)
        r = keep_flags(store, target, fd);
    if (r < 0 || !S_ISREG(st.st_mode))
        return r < 0 ? r : keep_attrs(store, target, fd);
    own = open(wb_fd_path(fd, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return own < 0 ? -errno : keep_content(store, target, own, &st);
}

/* ---- the gap ------------------------------------------------------------------------------------- */

/* `since`: before the state was recorded, so that no moment between its records is asked for. */
static int open_gap(struct wb_store *store, struct wb_log *log, struct wb_object object, enum wb_object_file file,
                    int64_t since)
{
    struct wb_record record = {.type = WB_REC_GAP, .flags = WB_RECORD_OPEN, .when = wb_store_tick(store)};
    int r;

    /*
     * The ABORT of an older change that failed would come after the GAP, and end it. Changes that are only under way do
     * not matter: the lock of a file keeps its own away, and the code that ends the GAP of a directory counts it
     * (wb_log_gaps_ended).
     */
    if (wb_inflight_has_failed(store, record.when))
        return -ENOSPC;
    record.gap = (struct wb_rec_gap){since, WB_GAP_POLICY};
    r = wb_log_append_locked(log, &record, NULL, 0);
    if (r < 0)
        return r;
    wb_timeline_note(store, log, object, file);
    wb_store_note_growth(store, 0, 0, record.total);
    return 0;
}

static int begin(struct wb_store *store, struct wb_target *target, int fd, enum wb_object_file file, int64_t *ret_when)
{
    int64_t since = wb_store_tick(store);
    bool is_open;
    struct wb_log *log;
    int r = target->self ? wb_capture_ensure_catalog(store, target->self) : wb_capture_ensure_place(store, target);

    if (r < 0)
        return r;
    wb_capture_retry(store);
    r = wb_store_get_log(store, target->object, file, true, &log);
    if (r < 0)
        return r;
    pthread_mutex_lock(&log->lock);
    is_open = log->open_since > 0;
    pthread_mutex_unlock(&log->lock);
    if (!is_open)
        r = keep_state(store, target, fd);
    pthread_mutex_lock(&log->lock);
    if (r == 0 && log->open_since == 0)
        r = open_gap(store, log, target->object, file, since);
    if (r == 0)
        *ret_when = log->last_when;
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    if (r == 0 && !target->self)
        wb_hint_set(&target->has_undo);
    return r;
}

int wb_capture_unrecorded(struct wb_store *store, struct wb_change *change, struct wb_target *target, int fd,
                          int64_t *ret_when)
{
    enum wb_object_file file = target->self ? WB_FILE_CATALOG : WB_FILE_UNDO;
    int r;

    wb_change_init(change, store);
    *ret_when = 0;
    if (target->unborn)
        return WB_UNCHANGED;
    r = begin(store, target, fd, file, ret_when);
    return r < 0 ? wb_change_gap(store, change, r, target->object, file) : r;
}

int wb_capture_recorded_again(struct wb_store *store, struct wb_object object, enum wb_object_file file)
{
    struct wb_log *log;
    bool was_open;
    int r = wb_store_get_log(store, object, file, false, &log);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    pthread_mutex_lock(&log->lock);
    was_open = log->open_since > 0;
    r = wb_log_end_gap_locked(log, wb_store_tick(store));
    if (r == 0 && was_open)
        wb_timeline_note(store, log, object, file);
    pthread_mutex_unlock(&log->lock);
    wb_store_put_log(store, log);
    return r;
}
