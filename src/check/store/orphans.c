/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Compares the tree and all logs for each object. An object that is neither in the tree nor among the deleted ones, or
 * that no record mentions, cannot be reached by any user any more.
 */
#include "check/checking.h"

#include <errno.h>
#include <unistd.h>

#define BIT(file) (1u << (file))

static int put_away(struct wb_checking *checking, struct wb_object object, enum wb_object_file file)
{
    bool buried = file == WB_FILE_DATA || file == WB_FILE_DIR;
    char path[WB_OBJECT_PATH_MAX];

    wb_object_path(object, file, path);
    if (checking->store && file <= WB_FILE_CATALOG) {
        int r = wb_store_drop_log(checking->store, object, file);

        if (r < 0)
            return r;
    }
    return wb_lost_move(checking, buried ? checking->grave_fd : checking->dir_fd, path);
}

static void orphan(struct wb_checking *checking, const struct wb_known *known, enum wb_object_file file,
                   const char *text)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_check_where where = {.file = path};

    wb_object_path(known->object, file, path);
    if (wb_check_mends(checking, true))
        wb_check_report_mended(checking, put_away(checking, known->object, file), "orphan", where, "moved to lost",
                               "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "orphan", where, "-y moves it to lost", "%s", text);
}

/* It was thinned out, and the thinning was interrupted before it removed the file. */
static bool is_going(const struct wb_known *known)
{
    return !known->mentioned && known->files & BIT(WB_FILE_GONE) && known->files & BIT(WB_FILE_DATA);
}

/* An erasure was interrupted before it removed its note. While a record mentions the file, it may be continued. */
static void check_gone(struct wb_checking *checking, const struct wb_known *known)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_check_where where = {.file = path};

    if (known->mentioned || !(known->files & BIT(WB_FILE_GONE)))
        return;
    wb_object_path(known->object, is_going(known) ? WB_FILE_DATA : WB_FILE_GONE, path);
    if (is_going(known))
        wb_check_report(checking, WB_CHECK_NOTE, "thinned", where, NULL,
                        "a thinned out version of a name; the next thinning removes it");
    else if (wb_check_mends(checking, false) && unlinkat(checking->dir_fd, path, 0) == 0)
        wb_check_report(checking, WB_CHECK_NOTE, "erased", where, NULL, "removed the note that this file was erased");
    else
        wb_check_report(checking, WB_CHECK_NOTE, "erased", where, NULL, "an empty note that this file was erased");
}

/* Emptied, since its content was packed: and where that is, is not known any more. */
static void check_packed(struct wb_checking *checking, const struct wb_known *known)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_check_where where = {.file = path};

    if (known->names > 0 || !(known->files & BIT(WB_FILE_DATA)) || known->files & BIT(WB_FILE_BUNDLE) ||
        known->lost == 0 || known->lost < MAX(known->newest, known->beyond) || known->size >= known->lost_size ||
        g_hash_table_contains(checking->aborted, &known->lost) || wb_check_is_unsettled(checking, known->lost))
        return;
    wb_object_path(known->object, WB_FILE_DATA, path);
    wb_check_report(checking, WB_CHECK_LOST, "missing-bundle", where, NULL,
                    "a deleted file is shorter than it was, and no bundle has its content (it is lost, or a power cut "
                    "came before the file was on stable storage); reading the missing part is refused");
}

/* The manifest has checksums of a deleted file that is gone. */
static bool is_missing(const struct wb_known *known)
{
    return known->summed && known->mentioned && known->names == 0 &&
           !(known->files & (BIT(WB_FILE_DATA) | BIT(WB_FILE_GONE)));
}

static void check_object(struct wb_checking *checking, const struct wb_known *known)
{
    bool lives = known->names > 0 || wb_object_equal(known->object, checking->header.root);
    bool buried = known->files & (BIT(WB_FILE_DATA) | BIT(WB_FILE_DIR));

    check_gone(checking, known);
    check_packed(checking, known);
    if (is_missing(known)) {
        char path[WB_OBJECT_PATH_MAX];
        struct wb_check_where where = {.file = path};

        wb_object_path(known->object, WB_FILE_DATA, path);
        wb_check_report(checking, WB_CHECK_LOST, "missing-content", where, NULL,
                        "a deleted file is missing; reading it is refused");
        return;
    }
    /*
     * The records of a deleted file can have been forgotten by age before the file itself is: the next pass deletes
     * it, unless it has another name. Logs forgotten beyond the horizon leave no trace in the header.
     */
    if (buried && !known->mentioned && !checking->header.forgotten && !checking->forgotten && !is_going(known)) {
        orphan(checking, known, known->files & BIT(WB_FILE_DIR) ? WB_FILE_DIR : WB_FILE_DATA,
               "no record refers to this deleted file");
        return;
    }
    /* A file that came back has what it was in a bundle still. */
    if (!buried && known->files & BIT(WB_FILE_BUNDLE))
        orphan(checking, known, WB_FILE_BUNDLE, "packed content of a deleted file that was removed");
    if (!buried && !lives && known->files & BIT(WB_FILE_BUNDLE_OLD))
        orphan(checking, known, WB_FILE_BUNDLE_OLD, "packed content of a deleted file that was removed");
    /* Where a name leads to it, its attributes and names at that time are found in its logs, or would be wrong. */
    if (lives || buried || known->named ||
        !(known->files & (BIT(WB_FILE_UNDO) | BIT(WB_FILE_CATALOG) | BIT(WB_FILE_IMAGE))))
        return;
    if (known->files & BIT(WB_FILE_CATALOG))
        orphan(checking, known, WB_FILE_CATALOG, "the history of a directory that is neither in the tree nor deleted");
    if (known->files & BIT(WB_FILE_UNDO))
        orphan(checking, known, WB_FILE_UNDO, "the history of a file that is neither in the tree nor deleted");
    if (known->files & BIT(WB_FILE_IMAGE))
        orphan(checking, known, WB_FILE_IMAGE, "recorded content of a file that is neither in the tree nor deleted");
}

int wb_check_orphans(struct wb_checking *checking)
{
    GHashTableIter iter;
    void *value;

    /* While a daemon runs, objects change between tree and logs; and a damaged record may have mentioned any object. */
    if (checking->online || checking->damaged)
        return 0;
    g_hash_table_iter_init(&iter, checking->objects);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        check_object(checking, value);
    return 0;
}
