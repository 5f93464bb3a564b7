/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/receive/unchanged.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/directory/folder.h"
#include "store/parts.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>

/* A log that was written to since has a newer record: of a change, not of who compacted it. */
static int check_log(int dir_fd, const char *path, int64_t until, struct wb_problem *why)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, path, O_RDONLY, 0);
    struct wb_log_reader reader;
    struct wb_record record;
    char text[WB_WHEN_TEXT_MAX];
    int r = fd < 0 ? fd : wb_log_reader_init(&reader, fd);

    if (r < 0)
        return wb_problem_set(why, r, "%s in the store of the copy cannot be read: %s", path, g_strerror(-r));
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 && record.when > until)
        if (record.type != WB_REC_INDEX && record.type != WB_REC_FILLER) {
            r = wb_problem_set(why, -EXDEV, "the copy was changed locally (at %s), which the source does not know; "
                               "receive into another directory", wb_when_print(record.when, 1, text));
            break;
        }
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : 0;
}

struct unchanged {
    int dir_fd;
    int64_t until;
    struct wb_problem *why;
};

static int check_entry(void *data, int fd, const char *name)
{
    const struct unchanged *unchanged = data;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object object;
    enum wb_object_file file;
    struct stat st;

    /* Its time of modification is the `when` of its newest record (wb_log_stamp). */
    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG) ||
        fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec <= unchanged->until)
        return 0;
    wb_object_path(object, file, path);
    return check_log(unchanged->dir_fd, path, unchanged->until, unchanged->why);
}

int wb_copy_check_unchanged(int dir_fd, int64_t until, struct wb_problem *why)
{
    static const char *const common[] = {WB_ACTORS_NAME, WB_SNAPSHOTS_NAME};
    struct unchanged unchanged = {dir_fd, until, why};
    struct stat st;
    int r = 0;

    if (until > 0 && wb_erased_read(dir_fd).named > until)
        return wb_problem_set(why, -EXDEV, "history was erased in the copy itself (vrm), which the source does not "
                              "know; receive into another directory");
    /* What others refer to by its place, or a moment that was named here. */
    for (unsigned i = 0; r == 0 && i < G_N_ELEMENTS(common) && until > 0; i++)
        if (fstatat(dir_fd, common[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            r = check_log(dir_fd, common[i], until, why);
    for (unsigned i = 0; r == 0 && i < WB_FOLDERS && until > 0; i++)
        r = wb_folder_each(dir_fd, i, check_entry, &unchanged);
    return r < 0 && !*why->text ? wb_problem_set(why, r, "the copy cannot be read: %s", g_strerror(-r)) : r;
}
