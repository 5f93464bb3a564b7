/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All logs of one of the store's folders.
 */
#include "maintain/rewrite/compact.h"

#include "store/object/object_log.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

struct gathering {
    struct wb_store *store;
    int64_t newer, older;
    GArray *list;
};

static int look_at(void *data, int dir_fd, const char *name)
{
    const struct gathering *gathering = data;
    struct wb_store *store = gathering->store;
    struct wb_compact_found found;
    struct stat st;
    int64_t written;

    if (g_str_has_suffix(name, WB_COMPACT_SUFFIX)) {
        /* Of a compaction that a crash ended, if none is under way. */
        if (pthread_mutex_trylock(&store->rewriting) == 0) {
            unlinkat(dir_fd, name, 0);
            pthread_mutex_unlock(&store->rewriting);
        }
        return 0;
    }
    if (wb_object_file_parse(name, &found.object, &found.file) < 0 ||
        (found.file != WB_FILE_UNDO && found.file != WB_FILE_CATALOG) ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    written = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
    if (written > gathering->newer && written <= gathering->older)
        g_array_append_val(gathering->list, found);
    return 0;
}

/* The directory is not kept open over long work. */
int wb_compact_gather(struct wb_store *store, unsigned shard, int64_t newer, int64_t older, GArray *list)
{
    struct gathering gathering = {store, newer, older, list};

    return wb_shard_each(store->dir_fd, shard, look_at, &gathering);
}

/* What wayback.conf says of a log: of a directory's by that; of a file's by the name it was changed through last. */
static enum wb_compact_mode mode_of_log(struct wb_store *store, const struct wb_compact *compact,
                                        const struct wb_compact_found *found)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    char name[WB_NAME_MAX + 1];
    struct wb_record record;
    enum wb_compact_mode mode;

    if (found->file == WB_FILE_CATALOG)
        return compact->mode(compact->mode_data, found->object, NULL);
    mode = compact->mode(compact->mode_data, (struct wb_object){0}, NULL);
    if (wb_object_log_open(&log, store, found->object, found->file) <= 0)
        return mode;
    while (wb_log_reader_prev(&log.reader, &record) == 0) {
        if ((record.type != WB_REC_DATA && record.type != WB_REC_ATTR && record.type != WB_REC_XATTR) ||
            record.via.length == 0 || wb_object_is_none(record.via.dir))
            continue;
        memcpy(name, record.via.name, record.via.length);
        name[record.via.length] = '\0';
        return compact->mode(compact->mode_data, record.via.dir, name);
    }
    return mode;
}

/* A catalog that is not to be packed itself is examined anyway, if files lost from the directory may be packed. */
static int pack_found(struct wb_store *store, struct wb_compact *compact, const struct wb_compact_found *found)
{
    bool packs = !compact->mode || !compact->mode_of_logs || mode_of_log(store, compact, found) != WB_MODE_NONE;
    int r = packs ? wb_compact_log(store, compact, found->object, found->file) : 0;

    if (compact->give_way)
        compact->give_way(compact->give_way_data);
    if (r == 0 && found->file == WB_FILE_CATALOG)
        r = wb_compact_bodies(store, compact, found->object, NULL);
    return r;
}

int wb_compact_shard(struct wb_store *store, struct wb_compact *compact, unsigned shard, int64_t newer, int64_t older)
{
    g_autoptr(GArray) list = g_array_new(FALSE, FALSE, sizeof(struct wb_compact_found));
    int r, ret = 0;

    r = wb_compact_gather(store, shard, newer, older, list);
    for (guint i = 0; r >= 0 && i < list->len; i++) {
        const struct wb_compact_found *found = &g_array_index(list, struct wb_compact_found, i);

        r = pack_found(store, compact, found);
        /* One that cannot be read, or is busy, does not keep the others from it. */
        if (r < 0 && r != -ECANCELED && r != -ENOSPC && r != -EDQUOT && r != -EROFS) {
            ret = r;
            r = 0;
        }
    }
    return r < 0 ? r : ret;
}
