/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All logs of one of the store's folders. A store may have a million of them, so nobody goes through all at once.
 */
#include "keep/compact.h"

#include "base/cleanup.h"
#include "wayback/when.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

static void look_at(struct wb_store *store, int dir_fd, const char *name, int64_t newer, int64_t older, GArray *list)
{
    struct wb_compact_found found;
    struct stat st;
    int64_t written;

    if (g_str_has_suffix(name, WB_COMPACT_SUFFIX)) {
        /* Of a compaction that a crash ended, if none is under way. */
        if (pthread_mutex_trylock(&store->rewriting) == 0) {
            unlinkat(dir_fd, name, 0);
            pthread_mutex_unlock(&store->rewriting);
        }
        return;
    }
    if (wb_object_file_parse(name, &found.object, &found.file) < 0 ||
        (found.file != WB_FILE_UNDO && found.file != WB_FILE_CATALOG) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    written = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    if (written > newer && written <= older)
        g_array_append_val(list, found);
}

/* The directory is not kept open over long work. */
int wb_compact_gather(struct wb_store *store, unsigned folder, int64_t newer, int64_t older, GArray *list)
{
    _cleanup_closedir_ DIR *stream = NULL;
    char path[sizeof(WB_OBJECTS_NAME) + 4];
    struct dirent *entry;
    int fd, r;

    g_snprintf(path, sizeof(path), "%s/%02x", WB_OBJECTS_NAME, folder);
    fd = openat(store->dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    stream = fdopendir(fd);
    if (!stream) {
        r = -errno;
        close(fd);
        return r;
    }
    for (errno = 0; (entry = readdir(stream)); errno = 0)
        look_at(store, fd, entry->d_name, newer, older, list);
    return -errno;
}

int wb_compact_folder(struct wb_store *store, struct wb_compact *compact, unsigned folder, int64_t newer,
                      int64_t older)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    int r, ret = 0;

    r = wb_compact_gather(store, folder, newer, older, list);
    for (guint i = 0; r >= 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        r = wb_compact_log(store, compact, found->object, found->file);
        if (r == 0 && found->file == WB_FILE_CATALOG && !(compact->flags & WB_COMPACT_IDLE))
            r = wb_compact_bodies(store, compact, found->object, NULL);
        /* One that cannot be read, or is busy, does not keep the others from it. */
        if (r < 0 && r != -ECANCELED && r != -ENOSPC && r != -EDQUOT && r != -EROFS) {
            ret = r;
            r = 0;
        }
    }
    return r < 0 ? r : ret;
}
