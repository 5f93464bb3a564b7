/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Opening and closing the store. A store is complete once it has a header: the header is written last, so an
 * interrupted creation is simply repeated.
 */
#include "store/cache/gaps.h"
#include "store/cache/manifest_logs.h"
#include "store/directory/signpost.h"
#include "store/directory/store_place.h"
#include "store/identity/identities.h"
#include "store/identity/layers.h"
#include "store/inflight/lost_content.h"
#include "store/parts.h"
#include "store/tables/manifest.h"
#include "store/tables/received.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/cache/preclone.h"
#include "store/inflight/spans.h"
#include "store/object/log_index.h"
#include "store/tables/spenders.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The place of the store for messages, as a path if it is known. */
static char *describe_home(int src_fd, const char *store_path)
{
    g_autofree char *src = NULL;
    char link[32];

    if (store_path)
        return g_strdup(store_path);
    src = g_file_read_link(wb_fd_path(src_fd, link), NULL);
    return g_strdup_printf("%s%s" WB_STORE_NAME, src ? src : "", src && g_str_has_suffix(src, "/") ? "" : "/");
}

static int read_header(struct wb_store *store, const char *home, struct wb_error *why)
{
    _cleanup_close_ int fd = -1;
    uint8_t data[WB_HEADER_SIZE];
    size_t length;
    int r;

    fd = wb_open_own(store->dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    if (fd < 0)
        return wb_error_set(why, fd, "the store %s has no header: %s", home, g_strerror(-fd));
    r = wb_pread_full(fd, data, sizeof(data), 0, &length);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the header of the store %s: %s", home, g_strerror(-r));
    r = wb_header_decode(data, length, &store->header);
    if (r == -EPROTONOSUPPORT)
        return wb_error_set(why, r,
                            "the store %s has format version %u, but this program supports up to %u; "
                            "use the newer program",
                            home, store->header.version, WB_FORMAT_VERSION);
    if (r < 0)
        return wb_error_set(why, r,
                            "the header of the store %s is damaged; restore %s/" WB_HEADER_NAME
                            " from a backup, or move the store away to create a new history",
                            home, home);
    return 0;
}

/* Objects that cannot be identified again are not recorded: their history would be shown as that of another object. */
static int check_identity(const struct wb_store *store, struct wb_error *why)
{
    if (wb_object_lasts(store->src_fd))
        return wb_layers_check(store->src_fd, why);
    return wb_error_set(why, -EOPNOTSUPP,
                        "the source directory is on a file system (in user space?) that does "
                        "not report the creation time of files, so they cannot be identified reliably; mount the "
                        "tree on the machine where it is stored, or with history=none");
}

static int create_header(struct wb_store *store, const char *home, struct wb_error *why)
{
    struct wb_header header = {.version = WB_FORMAT_VERSION, .created = wb_when_now()};
    uint8_t data[WB_HEADER_SIZE];
    int r;

    if (getrandom(header.uuid, sizeof(header.uuid), 0) != sizeof(header.uuid))
        return wb_error_set(why, -EIO, "cannot create the store %s: no random numbers", home);
    r = wb_object_stat(NULL, store->src_fd, NULL, &header.root, NULL, NULL);
    if (r == 0)
        r = wb_store_dir_fill(store->dir_fd);
    if (r == 0) {
        wb_header_encode(&header, data);
        r = wb_replace_file(store->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
    }
    if (r < 0)
        return wb_error_set(why, r, "cannot create the store %s: %s", home, g_strerror(-r));
    return 0;
}

/*
 * Data of an older version is not converted. That version might not understand the data written from now on, so the
 * header says so before anything is written.
 */
static int raise_version(struct wb_store *store, const char *home, struct wb_error *why)
{
    uint8_t data[WB_HEADER_SIZE];
    int r;

    if (store->header.version == WB_FORMAT_VERSION)
        return 0;
    store->raised = store->header.version < WB_SPANS_VERSION;
    store->header.version = WB_FORMAT_VERSION;
    wb_header_encode(&store->header, data);
    r = wb_replace_file(store->dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
    if (r < 0)
        return wb_error_set(why, r, "cannot convert the store %s to format version %u: %s", home, WB_FORMAT_VERSION,
                            g_strerror(-r));
    return 0;
}

static bool is_xfs(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 || (uint32_t)fs.f_type == 0x58465342; /* XFS_SUPER_MAGIC, which not all system headers
                                                                       * define */
}

static int check_header(struct wb_store *store, unsigned flags, const char *home, struct wb_error *why)
{
    char there[WB_OBJECT_TEXT_MAX], here[WB_OBJECT_TEXT_MAX];
    struct wb_object root;
    struct stat st;
    int r;

    if (fstatat(store->dir_fd, WB_HEADER_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        r = flags & WB_STORE_ANOTHER ? 1 : wb_store_is_bare(store->dir_fd);
        if (r == 0)
            return wb_error_set(why, -EBADMSG,
                                "%s: the store cannot be opened (it has history, but its file " WB_HEADER_NAME
                                " is missing); restore that file from a backup, or run vfsck -y to "
                                "create it again",
                                home);
        if (r > 0 && flags & WB_STORE_WRITE && flags & WB_STORE_CREATE)
            r = create_header(store, home, why);
        if (r < 0)
            return r;
        store->is_new = flags & WB_STORE_WRITE && flags & WB_STORE_CREATE;
    } else if (flags & WB_STORE_ANOTHER) {
        store->is_new = true; /* an interrupted creation: nothing was recorded in it */
    }
    r = read_header(store, home, why);
    if (r == 0)
        r = check_identity(store, why);
    if (r < 0)
        return r;
    store->horizon = store->header.forgotten ? store->header.created : 0;
    r = wb_identities_open(&store->identities, store->dir_fd);
    if (r < 0)
        return wb_error_set(
            why, r,
            "the store %s cannot match the files of this tree to their history (its file " WB_IDENTITIES_NAME
            " is damaged: %s); rebuild it with vfsck --rebind",
            home, g_strerror(-r));
    r = wb_object_stat(NULL, store->src_fd, NULL, &root, NULL, &st);
    if (r == 0)
        r = wb_identities_is_root(store->identities, root, store->header.root);
    if (r < 0)
        return wb_error_set(why, r, "cannot read the source directory: %s", g_strerror(-r));
    store->src_dev = st.st_dev;
    store->layered = wb_layers_are_there(store->src_fd);
    store->exchange_hides = is_xfs(store->src_fd);
    if (r > 0)
        return flags & WB_STORE_WRITE ? raise_version(store, home, why) : 0;
    if (wb_signpost_led(store->src_fd, store->dir_fd))
        return wb_error_set(why, -EXDEV,
                            "this tree was copied or restored without its store, and the signpost "
                            "%s/" WB_SIGNPOST_NAME " leads to the store of the original tree; remove %s to create a "
                            "separate history; or, if the original tree does not exist any more, bind its store to "
                            "this one with vfsck --rebind --store=DIR",
                            home, home);
    wb_object_print(store->header.root, there);
    wb_object_print(root, here);
    return wb_error_set(why, -EXDEV,
                        "the store %s belongs to another tree (its root was %s, this one is %s); if that tree was "
                        "moved or copied here, bind the store to it with vfsck --rebind; else mount the original "
                        "tree, or move the store away to create a new history",
                        home, there, here);
}

/* The graveyard has to be on the mount of SRC, so that rename(2) can move files there. */
static int open_grave(struct wb_store *store, const char *home, struct wb_error *why)
{
    int r = wb_store_dir_grave(store->src_fd, store->dir_fd, store->writable);

    store->grave_fd = r < 0 ? -1 : r;
    /* A reader may run before the first deletion. */
    if (r == -ENOENT && !store->writable)
        r = 0;
    if (r < 0)
        return wb_error_set(why, r, "cannot keep deleted files of the source directory (store %s): %s", home,
                            g_strerror(-r));
    r = wb_store_dir_check(store->dir_fd);
    if (r == 0 && store->grave_fd >= 0)
        r = wb_store_dir_check(store->grave_fd);
    if (r < 0)
        return wb_error_set(why, r, "the store %s is damaged: an entry of " WB_OBJECTS_NAME " is not a directory: %s",
                            home, g_strerror(-r));
    return 0;
}

int wb_store_open_writable(struct wb_store *store, const char *home, struct wb_error *why)
{
    struct stat st;
    int r;

    /* Extents are shared within one file system only; a probe in the store is valid for both. */
    store->can_clone = fstat(store->dir_fd, &st) == 0 && st.st_dev == store->src_dev &&
                       wb_store_dir_can_clone(store->dir_fd);
    store->ordered = wb_store_dir_is_ordered(store->dir_fd, &store->truncate_writes);
    wb_log_mtime_check(store);
    r = wb_inflight_open(&store->inflight, store->dir_fd);
    if (r == 0) {
        wb_inflight_log_mtimes(store->inflight, &store->stamps);
        /* First: changes that others made until now must not seem to be of a store that was open. */
        r = wb_spans_open(store);
    }
    if (r == 0)
        r = wb_inflight_mark_open(store->inflight, store->dir_fd);
    if (r == 0) {
        wb_spans_begin(store);
        r = wb_lost_content_open(store);
    }
    if (r == 0)
        r = wb_actors_open(store);
    if (r == 0) {
        store->logs = wb_log_cache_new(wb_logs_limit());
        r = store->logs ? 0 : -ENOMEM;
    }
    if (r == 0 && store->can_clone) {
        store->preclone = wb_preclone_new();
        r = store->preclone ? 0 : -ENOMEM;
    }
    if (r == 0)
        r = wb_timeline_open(store, wb_store_open_file);
    if (r == 0)
        r = wb_stages_open(store, wb_store_write_logs);
    if (r == 0)
        r = wb_gaps_open(store, false);
    if (r == 0)
        r = wb_manifest_open(store);
    if (r == 0)
        wb_log_cache_set_manifest(store->logs, store->manifest);
    if (r == -EMLINK)
        return wb_error_set(why, r,
                            "the store %s has a file with another hard link elsewhere (a backup with hard "
                            "links?), which would change with it; run vfsck -p to separate them",
                            home);
    if (r < 0)
        return wb_error_set(why, r, "cannot write to the store %s: %s", home, g_strerror(-r));
    return 0;
}

struct wb_store *wb_store_new(int src_fd)
{
    struct wb_store *store = g_try_new0(struct wb_store, 1);

    if (!store)
        return NULL;
    *store = (struct wb_store){
        .src_fd = src_fd, .dir_fd = -1, .grave_fd = -1, .lock_fd = -1, .settling_fd = -1,
        .index_stride = WB_INDEX_STRIDE, .spenders = wb_spenders_new()};
    if (!store->spenders) {
        g_free(store);
        return NULL;
    }
    pthread_mutex_init(&store->rewriting, NULL);
    pthread_mutex_init(&store->forgetting, NULL);
    pthread_mutex_init(&store->settling, NULL);
    pthread_mutex_init(&store->listing, NULL);
    pthread_mutex_init(&store->listed, NULL);
    pthread_mutex_init(&store->unstamping, NULL);
    return store;
}

/*
 * Opens the directory and takes the lock, unless the traces in the tree forbid it. Leaves CREATE in *flags only if a
 * history may begin.
 */
static int open_place(struct wb_store *store, const char *store_path, unsigned *flags, struct wb_store_traces *traces,
                      const char *home, struct wb_error *why)
{
    int r = wb_store_traces_read(store->src_fd, traces);

    /* A user who may read the store but not the signpost in the tree only reads: the header of the store decides. */
    if (r == -EACCES && store_path && !store->writable) {
        *traces = (struct wb_store_traces){.kind = WB_TRACE_NONE};
        r = 0;
    }
    if (r < 0)
        return wb_error_set(why, r, "cannot find the store %s: %s", home, g_strerror(-r));
    if (*flags & WB_STORE_ANOTHER)
        r = wb_store_place_may_begin(store->src_fd, why);
    else if (traces->kind != WB_TRACE_NONE)
        *flags &= ~(unsigned)WB_STORE_CREATE;
    if (r == 0)
        r = store->dir_fd = wb_store_dir_open(store->src_fd, store_path, *flags, home, why);
    /* Creates nothing in the empty mount point of a file system that is not mounted. */
    if (r >= 0 && traces->kind != WB_TRACE_NONE && !(*flags & WB_STORE_ANOTHER) &&
        faccessat(store->dir_fd, WB_HEADER_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && wb_store_is_bare(store->dir_fd) > 0)
        r = -ENOENT;
    if (r == -ENOENT || (r == -ENODEV && wb_store_traces_are_of_a_copy(traces, store->src_fd)))
        r = wb_store_place_missing(traces, store->src_fd, home, why);
    if (r >= 0 && store->writable)
        r = store->lock_fd = wb_store_dir_lock(store->dir_fd, home, why);
    if (r >= 0 && store_path && !(*flags & WB_STORE_ANOTHER))
        r = wb_store_place_check(store, traces, home, why);
    return r;
}

/* Makes the tree name the place of its store, early for a new one: the graveyard is beside the signpost. */
static int mark_place(struct wb_store *store, unsigned flags, const struct wb_store_traces *traces, const char *home,
                      struct wb_error *why)
{
    int r = wb_store_place_mark(store);

    if (!(flags & WB_STORE_ANOTHER)) {
        store->unmarked = r;
        return 0;
    }
    if (r == 0)
        r = wb_store_place_put_aside(store, traces);
    return r < 0 ? wb_error_set(why, r,
                                "%s: cannot create another history (" WB_STORE_NAME " in the tree cannot be "
                                "changed: %s); make it writable, or free space",
                                home, g_strerror(-r))
                 : 0;
}

/* Removes incomplete files of a daemon that was killed. They have fixed names, so that no search is needed. */
static void sweep(const struct wb_store *store)
{
    static const char *const names[] = {WB_PACK_NEW, WB_BUNDLE_NEW, WB_BUNDLE_LINK_NEW};

    wb_erased_sweep(store->dir_fd);
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
        unlinkat(store->dir_fd, names[i], 0);
}

int wb_store_open(struct wb_store **ret, int src_fd, const char *store_path, unsigned flags, struct wb_error *why)
{
    struct wb_store_traces traces;
    g_autofree char *home = describe_home(src_fd, store_path);
    struct wb_store *store = wb_store_new(src_fd);
    int r = -ENOMEM;

    if (!store)
        return wb_error_set(why, r, "no memory for the store %s", home);
    store->writable = flags & WB_STORE_WRITE;
    store->in_spans = flags & WB_STORE_IN_SPANS;
    if (!store->writable)
        flags &= ~(unsigned)(WB_STORE_CREATE | WB_STORE_ANOTHER);

    if (store->writable)
        store->opened = wb_ctime_next_tick();
    r = store->writable ? check_identity(store, why) : 0;
    if (r == 0)
        r = open_place(store, store_path, &flags, &traces, home, why);
    if (r >= 0 && store->writable && !(flags & WB_STORE_ANOTHER))
        r = wb_store_arrive(src_fd, store->dir_fd, home, why);
    if (r >= 0)
        r = wb_received_check(store->dir_fd, home, why);
    if (r >= 0)
        r = check_header(store, flags, home, why);
    if (r == -ENOENT)
        r = wb_store_place_missing(&traces, src_fd, home, why);
    if (r >= 0 && store->is_new)
        r = mark_place(store, flags, &traces, home, why);
    if (r >= 0)
        r = open_grave(store, home, why);
    if (r >= 0 && store->writable) {
        wb_store_claim(store);
        sweep(store);
        r = wb_store_open_writable(store, home, why);
        if (r >= 0 && !store->is_new) {
            WB_IN_SPAN(store);

            r = mark_place(store, flags, &traces, home, why);
        }
    } else if (r >= 0) {
        wb_inflight_peek_log_mtimes(store->dir_fd, wb_store_is_held(store), &store->stamps);
        wb_log_mtime_check(store);
        r = wb_lost_content_open(store);
        if (r == 0)
            r = wb_spans_open(store);
        if (r == 0)
            r = wb_timeline_open(store, wb_store_open_file);
    }
    if (r >= 0) {
        r = wb_snapshot_table_open(store);
        if (r < 0)
            wb_error_set(why, r, "cannot open the snapshots of the store %s: %s", home, g_strerror(-r));
    }
    if (r < 0) {
        wb_store_free(store);
        return r;
    }
    *ret = store;
    return 0;
}

void wb_store_claim(struct wb_store *store)
{
    char text[64];
    int length = store->mount_dev ? snprintf(text, sizeof(text), "%d %u:%u\n", getpid(), major(store->mount_dev),
                                             minor(store->mount_dev))
                                  : snprintf(text, sizeof(text), "%d\n", getpid());

    /* For messages, and to wait for a daemon that is ending: only the kernel knows which process holds the lock. */
    if (store->lock_fd >= 0 && wb_pwrite_full(store->lock_fd, text, (size_t)length, 0) == 0 &&
        ftruncate(store->lock_fd, length) < 0)
        errno = 0;
}

static void sync_all_content(struct wb_store *store)
{
    int64_t begun = wb_ctime_clock() - 1;

    if (syncfs(store->dir_fd) == 0 && (store->grave_fd < 0 || syncfs(store->grave_fd) == 0))
        wb_lost_content_synced(store, begun);
    errno = 0;
}

struct wb_store *wb_store_free(struct wb_store *store)
{
    if (!store)
        return NULL;
    store->preclone = wb_preclone_free(store->preclone);
    if (store->logs)
        wb_gaps_flush(store);
    store->timeline = wb_timeline_free(store);
    if (store->logs && store->writable) {
        wb_manifest_logs_complete(store, WB_MANIFEST_BUDGET);
        wb_store_sync_listed(store);
    }
    pthread_mutex_destroy(&store->rewriting);
    pthread_mutex_destroy(&store->forgetting);
    /* Drops pages of files that no process changes any more from the page cache. */
    if (store->logs && store->writable)
        sync_all_content(store);
    wb_close_fd(&store->settling_fd);
    g_clear_pointer(&store->unsettled, g_hash_table_unref);
    pthread_mutex_destroy(&store->settling);
    pthread_mutex_destroy(&store->listing);
    pthread_mutex_destroy(&store->listed);
    pthread_mutex_destroy(&store->unstamping);
    store->logs = wb_log_cache_free(store->logs);
    store->manifest = wb_manifest_free(store);
    store->actors = wb_actors_free(store->actors);
    store->snapshots = wb_snapshot_table_free(store->snapshots);
    store->stages = wb_stages_free(store);
    store->spans = wb_spans_free(store);
    store->inflight = wb_inflight_free(store->inflight);
    store->gaps = wb_gaps_free(store->gaps);
    store->identities = wb_identities_free(store->identities);
    store->spenders = wb_spenders_free(store->spenders);
    wb_close_fd(&store->grave_fd);
    wb_close_fd(&store->dir_fd);
    /* Last: a process that gets the lock finds everything flushed. */
    wb_close_fd(&store->lock_fd);
    g_free(store);
    return NULL;
}
