/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/identity/flags.h"
#include "capture/recovery/suspect.h"
#include "capture/undo.h"
#include "store/object/catalog_path.h"
#include "store/inflight/spans.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* Opens the directory of a slot; one in the graveyard has no names any more. */
static int open_dir(const struct wb_suspect *suspect, struct wb_object dir)
{
    int fd = -1, r = wb_catalog_path_open_dir(suspect->store, dir, &fd);

    return r == 0 ? fd : r < 0 ? r : -ENOENT;
}

/* Whether dir_fd/name is `object` now: 1, 0 (another or nothing), or -errno. *ret_there: anything. */
static int holds(const struct wb_suspect *suspect, int dir_fd, const char *name, struct wb_object object,
                 bool *ret_there)
{
    struct wb_object found;
    struct wb_attrs attrs;
    int r = wb_object_stat(suspect->store, dir_fd, name, &found, &attrs, NULL);

    *ret_there = r >= 0 || r == -EXDEV;
    if (r < 0)
        return r == -ENOENT || r == -EXDEV ? 0 : r;
    wb_spans_extend(suspect->store, suspect->when, attrs.ctime);
    return wb_object_equal(found, object);
}

int wb_suspect_names_untouched(const struct wb_suspect *suspect)
{
    for (unsigned i = 0; i < suspect->slot_count; i++) {
        const struct wb_suspect_slot *slot = &suspect->slots[i];
        _cleanup_close_ int fd = open_dir(suspect, slot->dir);
        struct wb_attrs attrs;
        bool there;
        int r;

        if (fd < 0)
            return fd;
        r = wb_object_stat(NULL, fd, NULL, NULL, &attrs, NULL);
        if (r < 0)
            return r;
        wb_spans_extend(suspect->store, suspect->when, attrs.ctime);
        r = holds(suspect, fd, slot->name, slot->object, &there);
        if (r < 0)
            return r;
        if (slot->present ? r == 0 : there)
            return 0;
    }
    return suspect->slot_count > 0;
}

int wb_suspect_finish_rename(const struct wb_suspect *suspect)
{
    const struct wb_suspect_slot *source = &suspect->slots[0], *target = &suspect->slots[1];
    _cleanup_close_ int source_fd = -1, target_fd = -1;
    bool there;

    if (suspect->slot_count != 2 || (suspect->op != WB_OP_RENAME && suspect->op != WB_OP_WHITEOUT))
        return 0;
    if (source->unbind != WB_UNBIND_RENAMED) {
        source = &suspect->slots[1];
        target = &suspect->slots[0];
    }
    if (source->unbind != WB_UNBIND_RENAMED || !target->present || target->unbind != WB_UNBIND_KEPT)
        return 0;
    source_fd = open_dir(suspect, source->dir);
    if (source_fd < 0)
        return source_fd;
    target_fd = open_dir(suspect, target->dir);
    if (target_fd < 0)
        return target_fd;
    if (holds(suspect, target_fd, target->name, source->object, &there) != 1 ||
        holds(suspect, source_fd, source->name, target->object, &there) != 1)
        return 0;
    return wb_grave_bury_name(suspect->store, source_fd, source->name, target->object, target->is_dir);
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Looks through a directory for an inode: its name is not in the records of an object. `name` may be NULL. */
static int search_dir(const struct wb_suspect *suspect, struct wb_object object, char name[WB_NAME_MAX + 1])
{
    _cleanup_closedir_ DIR *stream = NULL;
    _cleanup_close_ int dir_fd = open_dir(suspect, suspect->where);
    struct dirent *entry;
    int r = 0;

    if (dir_fd < 0)
        return dir_fd;
    stream = wb_opendir_at(dir_fd, ".");
    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r)) {
        bool there;

        if ((suspect->store->identities || entry->d_ino == object.ino) &&
            holds(suspect, dir_fd, entry->d_name, object, &there) == 1) {
            int fd = openat(dir_fd, entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0 && name)
                g_strlcpy(name, entry->d_name, WB_NAME_MAX + 1);
            return fd < 0 ? -errno : fd;
        }
    }
    return r < 0 ? r : -ENOENT;
}

int wb_suspect_find(const struct wb_suspect *suspect, struct wb_object object, char name[WB_NAME_MAX + 1])
{
    int fd;

    if (name)
        name[0] = '\0';
    if (wb_object_equal(object, suspect->logs[0].object) && suspect->logs[0].file == WB_FILE_CATALOG)
        return open_dir(suspect, object); /* a directory's own attributes */
    fd = wb_grave_open(suspect->store, object, false, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 || wb_object_is_none(suspect->where) ? fd : search_dir(suspect, object, name);
}

/*
 * Without the access time: whoever reads a file moves it, among them the daemon itself when it looks at the bytes
 * that are about to be lost. Only of who sets it does it tell anything.
 */
static bool same_attrs(const struct wb_attrs *a, const struct wb_attrs *b, uint16_t op)
{
    return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->size == b->size &&
           a->mtime == b->mtime && a->ctime == b->ctime && (op != WB_OP_UTIMENS || a->atime == b->atime);
}

/* Whether `length` bytes of the file at `offset` are `old`, or zeros where that is NULL. */
static bool same_bytes(int fd, uint64_t offset, uint64_t length, const uint8_t *old)
{
    uint8_t now[4096];

    while (length > 0) {
        size_t n = length < sizeof(now) ? (size_t)length : sizeof(now);

        if (wb_pread_exact(fd, now, n, offset) < 0)
            return false;
        if (old ? memcmp(now, old, n) : !wb_is_zero(now, n))
            return false;
        offset += n;
        length -= n;
        old = old ? old + n : NULL;
    }
    return true;
}

static bool same_data(int object_fd, int log_fd, const struct wb_record *record)
{
    _cleanup_close_ int fd = -1;
    uint8_t *payload = wb_capture_buffer();
    char path[32];

    fd = open(wb_fd_path(object_fd, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || !payload || wb_log_read_payload(log_fd, record, payload) < 0)
        return false;
    for (uint32_t i = 0; i < record->data.count; i++) {
        const struct wb_extent *extent = &record->data.extents[i];

        /* clones and wide holes may be of any size: such a version is left standing */
        if (extent->kind == WB_EXTENT_IMAGE || extent->length > WB_PAYLOAD_MAX)
            return false;
        if (!same_bytes(fd, extent->offset, extent->length,
                        extent->kind == WB_EXTENT_INLINE ? payload + extent->source : NULL))
            return false;
    }
    return true;
}

/* Cutting a file sets its size, and at once: where that is as before, nothing happened to content, either. */
static bool resizes(const struct wb_record *record)
{
    return record->op == WB_OP_TRUNCATE && record->data.size_after != record->data.attrs.size;
}

static bool same_xattr(int object_fd, int log_fd, const struct wb_record *record)
{
    uint8_t *buffer = wb_capture_buffer();
    size_t half = WB_PAYLOAD_MAX / 2; /* far above what a value may have */
    char name[WB_NAME_MAX + 1];
    ssize_t n;

    if (!buffer || record->payload_length > half)
        return false;
    memcpy(name, record->xattr.name, record->xattr.name_length);
    name[record->xattr.name_length] = '\0';
    n = wb_recorded_xattr(object_fd, name, buffer + half, half);
    if (n < 0)
        return n == -ENODATA && !record->xattr.present;
    return record->xattr.present && (size_t)n == record->payload_length &&
           wb_log_read_payload(log_fd, record, buffer) >= 0 && memcmp(buffer, buffer + half, (size_t)n) == 0;
}

void wb_suspect_compare(struct wb_suspect *suspect, int log_fd, const struct wb_record *record)
{
    const struct wb_attrs *then = &record->attr.attrs;
    struct wb_object object = record->attr.object;
    struct wb_attrs now;
    bool same;

    if (record->type == WB_REC_DATA) {
        then = &record->data.attrs;
        object = suspect->logs[0].object;
    } else if (record->type == WB_REC_XATTR) {
        then = &record->xattr.attrs;
        object = record->xattr.object;
    }
    if (suspect->differs)
        return;
    if (suspect->fd < 0)
        suspect->fd = wb_suspect_find(suspect, object, NULL);
    /*
     * A change moves the change time, so another one proves that something happened; the same one does not
     * prove the contrary (the kernel's clock has a grain), so the content is looked at too.
     */
    same = suspect->fd >= 0 && wb_object_stat(suspect->store, suspect->fd, NULL, NULL, &now, NULL) >= 0 &&
           same_attrs(&now, then, record->op);
    if (same && record->type == WB_REC_DATA && !resizes(record))
        same = same_data(suspect->fd, log_fd, record);
    else if (same && record->type == WB_REC_XATTR)
        same = same_xattr(suspect->fd, log_fd, record);
    suspect->differs = !same;
    if (suspect->fd >= 0)
        wb_spans_extend(suspect->store, suspect->when, now.ctime);
}
