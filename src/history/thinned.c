/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/thinned.h"

#include "base/checksum.h"
#include "base/cleanup.h"
#include "base/io.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/* The first of the changes that count together across the moment, and are undone together; 0: there are none. */
static int look_at(int fd, int64_t when, int64_t *ret_first, char name[WB_NAME_MAX + 1])
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    *ret_first = 0;
    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) != WB_END && r >= 0) {
        if (r == WB_DAMAGED)
            continue;
        if (record.when <= when)
            break;
        if (!wb_record_is_joined(&record) || record.written > when)
            continue;
        *ret_first = record.written;
        memcpy(name, record.via.name, record.via.length);
        name[record.via.length] = '\0';
    }
    wb_log_reader_deinit(&reader);
    return MIN(r, 0);
}

static int look_into(struct wb_store *store, unsigned folder, int64_t when, struct wb_thinned *ret)
{
    char path[sizeof(WB_OBJECTS_NAME) + 4], name[WB_NAME_MAX + 1];
    _cleanup_closedir_ DIR *stream = NULL;
    struct dirent *entry;
    int fd, r = 0;

    g_snprintf(path, sizeof(path), WB_OBJECTS_NAME "/%02x", folder);
    fd = openat(store->dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    stream = fdopendir(fd);
    if (!stream) {
        r = -errno;
        close(fd);
        return r;
    }
    for (errno = 0; r == 0 && (entry = readdir(stream)); errno = 0) {
        struct wb_object object;
        enum wb_object_file file;
        int64_t first = 0;
        int log;

        if (wb_object_file_parse(entry->d_name, &object, &file) < 0 || file != WB_FILE_UNDO)
            continue;
        log = wb_open_own(fd, entry->d_name, O_RDONLY, 0);
        if (log < 0 && log != -ENOENT)
            r = log;
        if (log >= 0)
            r = look_at(log, when, &first, name);
        wb_close_fd(&log);
        if (first > 0) {
            const uint64_t told[] = {object.ino, (uint64_t)object.birth, (uint64_t)first};

            ret->files++;
            ret->sum ^= wb_checksum(told, sizeof(told));
            if (name[0])
                g_strlcpy(ret->name, name, sizeof(ret->name));
        }
    }
    return r < 0 ? r : -errno;
}

int wb_thinned_at(struct wb_store *store, int64_t when, struct wb_thinned *ret)
{
    int r = 0;

    *ret = (struct wb_thinned){0};
    for (unsigned i = 0; r == 0 && i < 256; i++)
        r = look_into(store, i, when, ret);
    return r;
}

bool wb_thinned_equal(const struct wb_thinned *a, const struct wb_thinned *b)
{
    return a->files == b->files && a->sum == b->sum;
}
