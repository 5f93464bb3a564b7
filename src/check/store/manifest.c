/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manifest against the logs: which are missing, or lost their end. To mend is to open the log for writing, which
 * begins it with a GAP, or goes on behind one.
 */
#include "check/checking.h"

#include "capture/capture.h"
#include "store/directory/shard.h"
#include "store/tables/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct looking {
    struct wb_checking *checking;
    struct wb_store probe; /* to look from outside, whatever else is wrong with the store */
    GArray *lost;          /* struct wb_manifest_entry */
};

static int take(const struct wb_manifest_entry *entry, void *data)
{
    struct looking *looking = data;
    struct wb_known *known;
    int r = 0;

    if (entry->file == WB_FILE_DATA && entry->block == 0) {
        known = wb_check_known(looking->checking, entry->object);
        if (!known)
            return -ENOMEM;
        known->summed = true;
    } else if (entry->file != WB_FILE_DATA) {
        r = wb_manifest_check(&looking->probe, entry->object, entry->file);
    }
    if (r > 0)
        g_array_append_val(looking->lost, *entry);
    if (!wb_check_progress(looking->checking, 0, WB_MANIFEST_SECTOR / WB_MANIFEST_BUCKET))
        return -ECANCELED;
    return r < 0 && r != -EBADMSG ? r : 0;
}

static bool is_there(const struct wb_checking *checking, const char *path)
{
    struct stat st;

    return fstatat(checking->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void report_loss(struct wb_checking *checking, const struct wb_manifest_entry *entry, bool mended, int r)
{
    char path[WB_OBJECT_PATH_MAX];
    struct wb_check_where where = {.file = path};
    bool there;

    wb_object_path(entry->object, entry->file, path);
    there = is_there(checking, path);
    if (mended)
        wb_check_report_mended(checking, r, "lost-records", where, "continues after a gap",
                               "records were lost: according to the manifest the log ends at byte %" G_GUINT64_FORMAT,
                               entry->end);
    else
        wb_check_report(checking, WB_CHECK_LOST, there ? "short-log" : "missing-log", where,
                        checking->online ? NULL : "-p lets it continue after a gap",
                        there ? "the log is shorter than in the manifest; states that need the lost records are refused"
                              : "the log is missing; states that need it are refused");
}

/* ---- mending ------------------------------------------------------------------------------------- */

static int mend_undo(struct wb_checking *checking, const struct wb_manifest_entry *entry)
{
    struct wb_log *log;
    int r = wb_store_get_log(checking->store, entry->object, entry->file, true, &log);

    if (r == 0)
        wb_store_put_log(checking->store, log);
    return r;
}

/* A catalog that lost its beginning gets a new one, by the place where the directory is now. */
static int mend_catalog(struct wb_checking *checking, const struct wb_manifest_entry *entry)
{
    const struct wb_known *known = g_hash_table_lookup(checking->objects, &entry->object);
    bool is_root = wb_object_equal(entry->object, checking->header.root);
    const char *name = known && known->path ? strrchr(known->path, '/') : NULL;
    struct wb_dir dir = {.fd = -1, .object = entry->object};
    struct wb_dir parent = {.fd = -1, .has_catalog = true};

    if (!is_root) {
        if (!known || !known->is_dir || !known->path || wb_object_is_none(known->dir))
            return -ENOENT;
        parent.object = known->dir;
        dir.parent = &parent;
        dir.name = name ? name + 1 : known->path;
    }
    return wb_capture_ensure_catalog(checking->store, &dir);
}

static bool can_mend(const struct wb_checking *checking)
{
    return checking->store && checking->store->writable;
}

int wb_check_manifest_mend(struct wb_checking *checking)
{
    int r = 0;

    for (guint i = 0; checking->lost && i < checking->lost->len; i++) {
        const struct wb_manifest_entry *entry = &g_array_index(checking->lost, struct wb_manifest_entry, i);

        r = entry->file == WB_FILE_CATALOG ? mend_catalog(checking, entry) : mend_undo(checking, entry);
        /* A directory that is not in the tree has no place: reads of its lost states still fail. */
        report_loss(checking, entry, r != -ENOENT, r);
    }
    return 0;
}

/* ---- the manifest itself --------------------------------------------------------------------------- */

static int count_logs(void *data, int fd, const char *name)
{
    unsigned *count = data;
    enum wb_object_file file;
    struct wb_object object;

    (void)fd;
    *count += wb_object_file_parse(name, &object, &file) == 0 && file <= WB_FILE_CATALOG;
    return 0;
}

static void bad_table(struct wb_checking *checking, unsigned shard)
{
    static const char text[] = "this list of logs is damaged; the past of all objects in this shard is refused";
    char path[sizeof(WB_MANIFEST_NAME) + 8];
    struct wb_check_where where = {.file = path};

    snprintf(path, sizeof(path), WB_MANIFEST_NAME "/%02x", shard & 0xff);
    if (can_mend(checking) && wb_check_mends(checking, true))
        wb_check_report_mended(checking, wb_manifest_rebuild(checking->store, shard), "damaged-manifest", where,
                               "rebuilt from the existing logs", "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-manifest", where,
                        "-y rebuilds it; logs that were lost at the same time are not noticed then", "%s", text);
}

static int bad_shards(struct wb_checking *checking)
{
    static const char text[] = "the set of lists of logs is damaged; the past of objects without a list is refused";
    struct wb_check_where where = {.file = WB_MANIFEST_NAME "/shards"};

    if (can_mend(checking) && wb_check_mends(checking, true))
        wb_check_report_mended(checking, wb_manifest_mend_shards(checking->store), "damaged-manifest", where,
                               "rebuilt from the existing lists", "%s", text);
    else
        wb_check_report(checking, WB_CHECK_WRONG, "damaged-manifest", where,
                        "-y rebuilds it; logs that were lost at the same time are not noticed then", "%s", text);
    return 0;
}

int wb_check_manifest(struct wb_checking *checking)
{
    struct looking looking = {.checking = checking,
                              .probe = {.dir_fd = checking->dir_fd, .grave_fd = -1, .header = checking->header},
                              .lost = g_array_new(FALSE, FALSE, sizeof(struct wb_manifest_entry))};
    bool shards_bad;
    int r = 0;

    if (can_mend(checking))
        looking.probe.header = checking->store->header;
    shards_bad = looking.probe.header.manifest && wb_manifest_check_shards(&looking.probe) == -EBADMSG;
    if (shards_bad)
        r = bad_shards(checking);
    for (unsigned shard = 0; r == 0 && shard < WB_SHARDS; shard++) {
        unsigned logs = 0;

        r = wb_manifest_each(&looking.probe, shard, take, &looking);
        if (r != -EBADMSG)
            continue;
        /* Without `shards`, one that is missing is so in most shards of a small store. */
        r = shards_bad ? wb_shard_each(checking->dir_fd, shard, count_logs, &logs) : 0;
        if (r == 0 && (!shards_bad || logs > 0))
            bad_table(checking, shard);
    }
    if (r == 0 && can_mend(checking)) {
        checking->lost = looking.lost;
        return 0;
    }
    for (guint i = 0; r == 0 && i < looking.lost->len; i++)
        report_loss(checking, &g_array_index(looking.lost, struct wb_manifest_entry, i), false, 0);
    g_array_unref(looking.lost);
    return r;
}
