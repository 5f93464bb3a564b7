/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Finds files of the store with a hard link outside of it: a write through the other name changes them here. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void check_file(struct wb_checking *checking, const char *path)
{
    struct wb_check_where where = {.file = path};
    struct stat st;

    if (fstatat(checking->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || st.st_nlink <= 1)
        return;
    if (wb_check_mends(checking, false))
        wb_check_report_mended(checking, wb_mend_links(checking, path), "shared-file", where,
                               "replaced by a copy that is in this store only",
                               "a file of the store has another hard link; writes there change it here");
    else
        wb_check_report(checking, WB_CHECK_WRONG, "shared-file", where, "can be replaced by a copy of itself",
                        "a file of the store has another hard link; writes there change it here");
}

/* A deleted file may have as many names as it likes: it is the user's. A bundle has one for each file in it. */
static bool is_users(const char *name)
{
    enum wb_object_file file;
    struct wb_object object;

    return wb_object_file_parse(name, &object, &file) == 0 && file >= WB_FILE_DATA;
}

static int check_directory(struct wb_checking *checking, const char *directory)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(checking->dir_fd, directory);
    char path[sizeof(WB_OBJECTS_NAME) + 8 + NAME_MAX];
    struct dirent *entry;
    int r = 0;

    if (!dir)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno; /* reported elsewhere */
    while (wb_next_entry(dir, &entry, &r)) {
        if (is_users(entry->d_name))
            continue;
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        check_file(checking, path);
    }
    return r;
}

int wb_check_links(struct wb_checking *checking)
{
    static const char *const files[] = {WB_HEADER_NAME,     WB_INFLIGHT_NAME,  WB_ACTORS_NAME, WB_SNAPSHOTS_NAME,
                                        WB_STAGES_NAME,     WB_SPANS_NAME,     WB_GAPS_NAME,   WB_WRITEBACK_NAME,
                                        WB_IDENTITIES_NAME, WB_LOST_SLOTS_NAME};
    char directory[sizeof(WB_OBJECTS_NAME) + 8];
    int r;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        check_file(checking, files[i]);
    r = check_directory(checking, WB_TIMELINE_NAME);
    if (r == 0)
        r = check_directory(checking, WB_MANIFEST_NAME);
    for (unsigned i = 0; r == 0 && i < 256; i++) {
        snprintf(directory, sizeof(directory), WB_OBJECTS_NAME "/%02x", i);
        r = check_directory(checking, directory);
    }
    return r;
}
