/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The order of a check. First what everything else stands on (header, inflight), looked at without opening the store,
 * since that is what would refuse a damaged one; then, where it is to be mended, the store is opened as a mount
 * would, with recovery, so that what a crash left is dealt with in the one way there is; then all the rest.
 */
#include "check/checking.h"

#include "base/cleanup.h"
#include "capture/recovery/recover.h"
#include "store/directory/signpost.h"
#include "store/identity/identities.h"
#include "store/parts.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>

static int open_places(struct wb_checking *checking, const char *tree, struct wb_error *why)
{
    int r;

    checking->src_fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checking->src_fd < 0)
        return wb_error_set(why, -errno, "%s; TREE must be a source tree or its mount", g_strerror(errno));
    r = wb_store_dir_open(checking->src_fd, checking->store_path, 0,
                          checking->store_path ? checking->store_path : WB_STORE_NAME, why);
    if (r < 0)
        return r;
    checking->dir_fd = r;
    r = wb_received_check(checking->dir_fd, WB_STORE_NAME, why);
    if (r < 0)
        return r;
    r = wb_store_dir_grave(checking->src_fd, checking->dir_fd, false);
    if (r < 0 && r != -ENOENT)
        return wb_error_set(why, r, "cannot be read: %s", g_strerror(-r));
    checking->grave_fd = r < 0 ? -1 : r;
    return 0;
}

static int take_lock(struct wb_checking *checking, struct wb_error *why)
{
    struct wb_store probe = {.dir_fd = checking->dir_fd};

    checking->online = wb_store_is_held(&probe);
    if (!wb_check_mends(checking, false))
        return 0;
    checking->lock_fd = wb_store_dir_lock(checking->dir_fd, checking->store_path ? checking->store_path : WB_STORE_NAME,
                                          why);
    checking->online = false;
    return checking->lock_fd < 0 ? checking->lock_fd : 0;
}

/* For what needs a store that is open. Without one, the files are looked at all the same. */
static int open_store(struct wb_checking *checking, struct wb_error *why)
{
    bool write = wb_check_mends(checking, false);
    unsigned aborted;
    int r;

    /* The lock is the store's own from here on. */
    wb_close_fd(&checking->lock_fd);
    if (!checking->bound || !checking->sound)
        return 0;
    r = wb_store_open(&checking->store, checking->src_fd, checking->store_path,
                      write ? WB_STORE_WRITE | WB_STORE_IN_SPANS : 0, why);
    if (r == 0 && write)
        r = wb_recover(checking->store, &aborted);
    if (r < 0 && write)
        return r == -EBUSY ? r : wb_error_set(why, r, "cannot repair the store: %s", g_strerror(-r));
    if (r == 0 && write)
        checking->unsettled_count = 0;
    return 0;
}

static int check_all(struct wb_checking *checking)
{
    int r = wb_check_home(checking);

    if (r == 0)
        r = wb_check_manifest(checking);
    if (r == 0)
        r = wb_check_gaps(checking);
    if (r == 0)
        r = wb_check_log(checking, WB_ACTORS_NAME, WB_CHECK_ACTORS, WB_OBJECT_NONE);
    if (r == 0)
        r = wb_check_log(checking, WB_SNAPSHOTS_NAME, WB_CHECK_SNAPSHOTS, WB_OBJECT_NONE);
    /* The tree before the logs: all names found in it are then recorded in the logs. */
    if (r == 0 && checking->bound)
        r = wb_check_tree(checking);
    if (r == 0)
        r = wb_check_manifest_mend(checking);
    if (r == 0)
        r = wb_check_objects(checking);
    if (r == 0 && checking->bound)
        r = wb_check_orphans(checking);
    if (r == 0 && checking->bound)
        r = wb_check_external(checking);
    if (r == 0)
        r = wb_check_timeline(checking);
    return r;
}

static int rebind(struct wb_checking *checking, struct wb_error *why)
{
    if (!checking->sound)
        return wb_error_set(why, -EBADMSG, "the header of the store is damaged; repair it first (vfsck -p or -y)");
    /* Most likely this is a copy that was made without the store, and the store is still that of the first tree. */
    if (!checking->bound && !checking->store_path && wb_signpost_led(checking->src_fd, checking->dir_fd))
        return wb_error_set(
            why, -EXDEV,
            "this tree was copied or restored without its store, and the signpost " WB_STORE_NAME "/" WB_SIGNPOST_NAME
            " in it leads to the store of the original tree; if "
            "that tree does not exist any more, name its store with --store=DIR; else remove " WB_STORE_NAME
            " from this tree to begin its own history");
    if (!checking->bound)
        return wb_check_rebind(checking, !wb_check_mends(checking, false), why);
    wb_check_report(checking, WB_CHECK_NOTE, "same-tree", (struct wb_check_where){0}, NULL,
                    "the store belongs to this tree already; there is nothing to do");
    return 0;
}

static int run(struct wb_checking *checking, const char *tree, struct wb_error *why)
{
    int r = open_places(checking, tree, why);

    if (r == 0)
        r = take_lock(checking, why);
    if (r < 0)
        return r;
    r = wb_check_links(checking);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the store: %s", g_strerror(-r));
    r = wb_check_header(checking, why);
    if (r < 0)
        return r;
    r = wb_check_inflight(checking);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the store: %s", g_strerror(-r));
    if (checking->flags & WB_CHECK_REBIND)
        return rebind(checking, why);
    r = open_store(checking, why);
    if (r < 0)
        return r;
    r = check_all(checking);
    if (r != -ECANCELED && checking->online && wb_signpost_leads_away(checking->dir_fd))
        return wb_error_set(why, -EAGAIN,
                            "the store was moved (vstore) during the check, so its findings are "
                            "invalid; run vfsck again");
    if (r == -ECANCELED)
        return wb_error_set(why, r, "stopped before the check was complete");
    return r < 0 ? wb_error_set(why, r, "cannot check the store: %s", g_strerror(-r)) : 0;
}

int wb_check_store(const char *tree, const char *store, unsigned flags, const struct wb_check_listener *listener,
                   struct wb_check_result *ret, struct wb_error *why)
{
    struct wb_checking checking = {
        .src_fd = -1,
        .dir_fd = -1,
        .grave_fd = -1,
        .lock_fd = -1,
        .store_path = store,
        .flags = flags,
        .listener = listener,
        .began = wb_when_now(),
        .objects = wb_check_objects_new(),
        .aborted = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
        .payload = g_try_malloc(WB_PAYLOAD_MAX),
        .copy = g_try_malloc(WB_PAYLOAD_MAX),
    };
    int r = checking.payload && checking.copy ? run(&checking, tree, why) : wb_error_set(why, -ENOMEM, "out of memory");

    checking.result.online = checking.online;
    *ret = checking.result;
    checking.store = wb_store_free(checking.store);
    wb_identities_free(checking.identities);
    g_hash_table_unref(checking.objects);
    g_hash_table_unref(checking.aborted);
    if (checking.lost)
        g_array_unref(checking.lost);
    if (checking.bundles)
        g_hash_table_unref(checking.bundles);
    if (checking.actors)
        g_hash_table_unref(checking.actors);
    g_free(checking.payload);
    g_free(checking.copy);
    wb_close_fd(&checking.grave_fd);
    wb_close_fd(&checking.dir_fd);
    wb_close_fd(&checking.src_fd);
    wb_close_fd(&checking.lock_fd);
    return r;
}
