/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/cache/manifest_logs.h"

#include "store/directory/shard.h"
#include "store/parts.h"
#include "store/tables/manifest.h"
#include "wayback/when.h"
#include <fcntl.h>
#include <sys/stat.h>

void wb_manifest_logs_capture(struct wb_store *store)
{
    if (!store->manifest)
        return;
    wb_manifest_capture(store->manifest);
    wb_log_cache_list(store->logs, wb_manifest_put, store->manifest);
}

int wb_store_sync_listed(struct wb_store *store)
{
    int r;

    wb_manifest_logs_capture(store);
    r = wb_store_sync_all(store);
    if (r == 0)
        wb_manifest_write(store);
    return r;
}

/* ---- completing ------------------------------------------------------------------------------ */

struct completing {
    struct wb_store *store;
    unsigned left;   /* logs that may be opened */
    unsigned looked; /* logs that were looked up in the manifest */
};

/* Whether a log may reach further than its entry says: a killed daemon may have written records after the entry. */
static bool may_reach_further(const struct wb_store *store, const struct wb_manifest_entry *entry)
{
    char path[WB_OBJECT_PATH_MAX];
    struct stat st;

    wb_object_path(entry->object, entry->file, path);
    return fstatat(store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           ((uint64_t)st.st_size > entry->end || st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec > entry->when);
}

static int complete_one(void *data, int fd, const char *name)
{
    struct completing *completing = data;
    struct wb_manifest_entry entry;
    enum wb_object_file file;
    struct wb_object object;
    struct wb_log *log;
    int r;

    (void)fd;
    if (wb_object_file_parse(name, &object, &file) < 0 || file > WB_FILE_CATALOG)
        return 0;
    completing->looked++;
    r = wb_manifest_find(completing->store, object, file, &entry);
    if (r < 0 || (r > 0 && !may_reach_further(completing->store, &entry)))
        return 0;
    if (completing->left == 0)
        return 1;
    completing->left--;
    /* A log that is about to be removed or replaced must not be opened. */
    if (pthread_mutex_trylock(&completing->store->rewriting) != 0)
        return 1;
    /* Opening it is enough: the next capture lists it. A log that cannot be opened remains without an entry. */
    if (wb_store_get_log(completing->store, object, file, false, &log) == 0)
        wb_store_put_log(completing->store, log);
    pthread_mutex_unlock(&completing->store->rewriting);
    return 0;
}

unsigned wb_manifest_logs_complete(struct wb_store *store, unsigned budget)
{
    struct completing completing = {store, budget, 0};
    int r = 0;

    /* The calling thread has other work, so it stops here; the next call goes on with shards that are not complete. */
    for (unsigned shard = 0; store->manifest && r == 0 && completing.looked < budget && shard < WB_SHARDS; shard++) {
        if (!wb_manifest_begin_shard(store->manifest, shard))
            continue;
        r = wb_shard_each(store->dir_fd, shard, complete_one, &completing);
        if (r != 0)
            wb_manifest_give_up_shard(store->manifest, shard);
    }
    return budget - completing.left;
}
