/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the store has of each object: files are where they belong, are what they are called, hold what they may. */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "capture/restore.h"
#include "store/directory/signpost.h"
#include "store/graveyard/body_sums.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A directory of objects: of the store, or of the graveyard elsewhere. */
struct place {
    int fd;          /* what `path` is relative to */
    char path[32];   /* "objects/2c"               */
    unsigned number; /* 0x2c                       */
    bool buried;     /* the graveyard is elsewhere, and this is it */
    bool moved;      /* and was the store, before that was moved   */
};

static void wrong(struct wb_checking *checking, const char *path, const char *code, const char *text)
{
    struct wb_check_where where = {.file = path};

    wb_check_report(checking, WB_CHECK_LOST, code, where, NULL, "%s", text);
}

static int check_sums(struct wb_checking *checking, struct wb_object object, const char *path)
{
    struct wb_store probe = {.dir_fd = checking->dir_fd, .grave_fd = checking->grave_fd, .header = checking->header};
    int r;

    if (checking->store)
        probe.header = checking->store->header;
    r = wb_body_sums_check_all(&probe, object);
    if (r == -EBADMSG)
        wrong(checking, path, "damaged-content",
              "a deleted file does not match its checksums; content that needs it is refused");
    return r == -EBADMSG ? 0 : r;
}

/* A file that was buried: it is its inode that makes it the object. */
static int check_buried(struct wb_checking *checking, const struct place *place, const char *path,
                        struct wb_known *known, bool is_dir)
{
    struct wb_object object = known->object;
    struct wb_object found;
    struct stat st;
    int r = wb_check_stat(checking, place->fd, path, &found, NULL, &st);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (is_dir != !!S_ISDIR(st.st_mode)) {
        wrong(checking, path, "wrong-kind",
              is_dir ? "a removed directory is not a directory" : "a deleted file is a directory");
    } else if (checking->bound && !wb_object_equal(found, object)) {
        wrong(checking, path, "wrong-object",
              "the file does not match its name; its past is refused (was the store copied?)");
    } else if (known->names == 0) {
        known->size = (uint64_t)st.st_size;
    }
    return is_dir ? 0 : check_sums(checking, object, path);
}

static int check_file(struct wb_checking *checking, const struct place *place, const char *name)
{
    char path[WB_OBJECT_PATH_MAX + NAME_MAX];
    struct wb_known *known;
    struct wb_object object;
    enum wb_object_file file;
    struct wb_check_where where = {.file = path};
    bool buried;

    snprintf(path, sizeof(path), "%s/%s", place->path, name);
    if (g_str_has_suffix(name, ".new")) {
        wb_check_stale(checking, place->fd, path, path);
        return 0;
    }
    if (wb_object_file_parse(name, &object, &file) < 0) {
        wb_check_report(checking, WB_CHECK_NOTE, "unknown-file", where, NULL, "this file does not belong to the store");
        return 0;
    }
    buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    if (place->moved && !buried) {
        wb_check_report(checking, WB_CHECK_NOTE, "left-behind", where, NULL,
                        "the store was moved and does not need this any more; vstore move removes it");
        return 0;
    }
    if ((object.ino & 0xff) != place->number || (place->buried && !buried)) {
        wrong(checking, path, "misplaced", "a file of an object is in the wrong directory");
        return 0;
    }
    known = wb_check_known(checking, object);
    if (!known)
        return -ENOMEM;
    known->files |= (uint8_t)(1u << file);
    if (file == WB_FILE_GONE)
        return 0;
    checking->result.files++;
    if (!wb_check_progress(checking, 1, 0))
        return -ECANCELED;
    if (buried)
        return check_buried(checking, place, path, known, file == WB_FILE_DIR);
    if (file == WB_FILE_IMAGE)
        return 0;
    if (file == WB_FILE_BUNDLE || file == WB_FILE_BUNDLE_OLD)
        return wb_check_bundle(checking, path, object, file == WB_FILE_BUNDLE);
    return wb_check_log(checking, path, file == WB_FILE_UNDO ? WB_CHECK_UNDO : WB_CHECK_CATALOG, object);
}

static int check_place(struct wb_checking *checking, struct place *place)
{
    _cleanup_closedir_ DIR *dir = NULL;
    struct wb_check_where where = {.file = place->path};
    struct dirent *entry;
    int r = 0;

    snprintf(place->path, sizeof(place->path), WB_OBJECTS_NAME "/%02x", place->number);
    dir = wb_opendir_at(place->fd, place->path);
    if (!dir && errno != ENOENT)
        return -errno;
    if (!dir) {
        if (wb_check_mends(checking, false))
            wb_check_report_mended(checking, mkdirat(place->fd, place->path, 0700) < 0 ? -errno : 0,
                                   "missing-directory", where, "created again", "a directory of the store was missing");
        else
            wb_check_report(checking, WB_CHECK_WRONG, "missing-directory", where, "can be created again",
                            "a directory of the store is missing, with everything that was in it");
        return 0;
    }
    while (wb_next_entry(dir, &entry, &r))
        r = check_file(checking, place, entry->d_name);
    return r;
}

static int check_places(struct wb_checking *checking, int fd, bool buried)
{
    struct wb_signpost signpost;
    struct place place = {.fd = fd, .buried = buried, .moved = buried && wb_signpost_read(fd, &signpost) > 0};
    int r = 0;

    if (wb_check_mends(checking, false) && mkdirat(fd, WB_OBJECTS_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    for (place.number = 0; r == 0 && place.number < 256; place.number++)
        r = check_place(checking, &place);
    return r;
}

/* Files on their way back to a name, which a crash left between the two. */
static int check_restores(struct wb_checking *checking)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(checking->grave_fd, ".");
    struct dirent *entry;
    struct wb_object object;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r)) {
        struct wb_check_where where = {.file = entry->d_name};

        if (!g_str_has_prefix(entry->d_name, "restore-") || checking->online ||
            wb_object_parse(entry->d_name + strlen("restore-"), &object) < 0)
            continue;
        if (wb_check_mends(checking, false) && checking->store)
            wb_check_report_mended(checking, wb_restore_take_back(checking->store, object), "stale", where,
                                   "moved back to the deleted files", "the restore of a deleted file was interrupted");
        else
            wb_check_report(checking, WB_CHECK_WRONG, "stale", where, "can be moved back to the deleted files",
                            "the restore of a deleted file was interrupted");
    }
    return r;
}

int wb_check_objects(struct wb_checking *checking)
{
    struct stat store, grave;
    int r = checking->grave_fd < 0 ? 0 : check_restores(checking);

    if (r == 0)
        r = check_places(checking, checking->dir_fd, false);
    if (r < 0 || checking->grave_fd < 0)
        return r;
    if (fstat(checking->dir_fd, &store) < 0 || fstat(checking->grave_fd, &grave) < 0)
        return -errno;
    if (store.st_dev == grave.st_dev && store.st_ino == grave.st_ino)
        return 0;
    return check_places(checking, checking->grave_fd, true);
}
