/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the object of a revision is now. Whatever way it was found, its identity is compared with the
 * one looked for, so the ways are tried in the order of their cost:
 *
 *   1. the names it had at T, which are mostly those it has still;
 *   2. a directory: the places that its catalog records (store/object/catalog_path.h); without a catalog it never
 *      moved, and is below the directory it was in, wherever that is;
 *   3. the graveyard;
 *   4. a file that was renamed: from name to name, by the catalogs of its directories.
 *
 * A record is written before its change, so the last step of a way may still lie ahead: the step
 * before is tried too, and then the whole once more.
 */
#include "history/internal.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/graveyard/bundle.h"
#include "store/inflight/lost_content.h"
#include "store/inflight/spans.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define ATTEMPTS 40

static bool is_dir(const struct wb_revision *revision)
{
    return revision->type == S_IFDIR;
}

/* Errors that mean "not here", as against those of a failing disk. */
static bool is_elsewhere(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EXDEV ||
           error == -EACCES || error == -EAGAIN || error == -ENAMETOOLONG;
}

/* Owns `fd`: 1 with it in *ret_fd if it is the object, 0 if not, or -errno. */
static int verify(struct wb_history *history, int fd, struct wb_object object, int *ret_fd)
{
    struct wb_object found;
    int r;

    if (fd < 0)
        return is_elsewhere(fd) ? 0 : fd;
    r = wb_object_stat(history->store, fd, NULL, &found, NULL, NULL);
    if (r < 0 || !wb_object_equal(found, object)) {
        close(fd);
        return r < 0 && !is_elsewhere(r) ? r : 0;
    }
    *ret_fd = fd;
    return 1;
}

static int open_name(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int try_name(struct wb_history *history, int dir_fd, const char *name, struct wb_object object, int *ret_fd)
{
    return verify(history, open_name(dir_fd, name), object, ret_fd);
}

static int try_grave(struct wb_history *history, const struct wb_revision *revision, int *ret_fd)
{
    return verify(history, wb_grave_open(history->store, revision->object, is_dir(revision), O_PATH), revision->object,
                  ret_fd);
}

/* ---- by the names at T ----------------------------------------------------------------------- */

static char *names_path(const struct wb_revision *revision)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    GString *path = g_string_new("");

    for (; revision->parent; revision = revision->parent)
        g_ptr_array_add(names, (void *)revision->name);
    for (guint i = names->len; i-- > 0;) {
        g_string_append(path, names->pdata[i]);
        if (i > 0)
            g_string_append_c(path, '/');
    }
    return g_string_free(path, FALSE);
}

/* In one system call; where the path is too long for that, the other ways find it. */
static int try_names(struct wb_history *history, const struct wb_revision *revision, int *ret_fd, char **ret_path)
{
    struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    g_autofree char *path = names_path(revision);
    int fd, r;

    fd = (int)syscall(SYS_openat2, history->store->src_fd, *path ? path : ".", &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM) && strlen(path) < PATH_MAX)
        fd = openat(history->store->src_fd, *path ? path : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    r = verify(history, fd < 0 ? -errno : fd, revision->object, ret_fd);
    if (r > 0 && ret_path)
        *ret_path = g_steal_pointer(&path);
    return r;
}

/* ---- by the places of directories ------------------------------------------------------------ */

static char *join(const char *above, const char *name)
{
    return *above ? g_strconcat(above, "/", name, NULL) : g_strdup(name);
}

/* From the directory *fd at *path down the names to revisions[0]. 1 found, 0 not, or -errno. */
static int descend(struct wb_history *history, GPtrArray *revisions, int *fd, char **path)
{
    for (guint i = revisions->len; i-- > 0;) {
        const struct wb_revision *revision = revisions->pdata[i];
        char *longer = join(*path, revision->name);
        int next = -1, r;

        g_free(*path);
        *path = longer;
        r = try_name(history, *fd, revision->name, revision->object, &next);
        if (r <= 0)
            return r;
        close(*fd);
        *fd = next;
    }
    return 1;
}

/*
 * The nearest directory at or above the revision that has a catalog is found by that; the path below
 * it never changed. 1 found, 0 not, or -errno.
 */
static int try_places(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path)
{
    g_autoptr(GPtrArray) revisions = g_ptr_array_new();
    _cleanup_close_ int fd = -1;
    g_autofree char *path = NULL;
    int r = -ENOENT;

    for (struct wb_revision *at = revision; at; at = at->parent) {
        if (is_dir(at))
            r = wb_catalog_path_of(history->store, at->object, &fd, &path);
        if (r != -ENOENT)
            break;
        g_ptr_array_add(revisions, at);
    }
    if (r != 0) /* buried (then nothing is below it), or nowhere */
        return r == WB_ABSENT || r == -EIO || r == -ENOENT ? 0 : r;
    r = descend(history, revisions, &fd, &path);
    if (r <= 0)
        return r;
    *ret_fd = wb_steal_fd(&fd);
    if (ret_path)
        *ret_path = g_steal_pointer(&path);
    return 1;
}

/* ---- from name to name ----------------------------------------------------------------------- */

static int try_stop(struct wb_history *history, struct wb_revision *revision, const struct wb_rename_hop *hop,
                    int *ret_fd, char **ret_path)
{
    _cleanup_close_ int dir_fd = -1;
    g_autofree char *path = NULL;
    int r;

    if (wb_object_is_none(hop->dir))
        return 0;
    r = wb_catalog_path_of(history->store, hop->dir, &dir_fd, &path);
    if (r == -ENOENT && wb_object_equal(hop->dir, revision->parent->object)) {
        r = try_places(history, revision->parent, &dir_fd, &path);
        r = r > 0 ? 0 : r < 0 ? r : WB_ABSENT;
    }
    if (r != 0)
        return r == WB_ABSENT || r == -EIO || r == -ENOENT ? 0 : r;
    r = try_name(history, dir_fd, hop->name, revision->object, ret_fd);
    if (r > 0 && ret_path)
        *ret_path = join(path, hop->name);
    return r;
}

/* 1 found, 0 not, or -errno. *ret_lost: the way ends with a removal. */
static int try_way(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path,
                   bool *ret_lost)
{
    struct wb_rename_hop hops[2] = {{.dir = revision->parent->object}};
    int r;

    g_strlcpy(hops[0].name, revision->name, sizeof(hops[0].name));
    hops[0].when = revision->when == WB_WHEN_PRESENT ? 0 : revision->when;
    r = wb_rename_chain_follow(history, revision->object, is_dir(revision) ? WB_FILE_CATALOG : WB_FILE_UNDO,
                               WB_WHEN_PRESENT, hops);
    if (r < 0)
        return r;
    *ret_lost = r > 0;
    for (unsigned i = 0; i < 2; i++) {
        r = try_stop(history, revision, &hops[i], ret_fd, ret_path);
        if (r != 0)
            return r;
    }
    return 0;
}

/* ---- all ways -------------------------------------------------------------------------------- */

/* enum wb_link_state; WB_LOST: not met, lost or not. Or -errno. */
static int look_everywhere(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path,
                           bool *ret_lost)
{
    int r = try_names(history, revision, ret_fd, ret_path), buried;

    if (r == 0 && !revision->parent)
        return wb_history_fail(-EIO, "the root of the tree is not the directory that it was");
    if (r == 0 && is_dir(revision))
        r = try_places(history, revision, ret_fd, ret_path);
    if (r != 0)
        return r < 0 ? r : WB_LINKED;
    if (!ret_path || is_dir(revision)) {
        r = try_grave(history, revision, ret_fd);
        if (r != 0)
            return r < 0 ? r : WB_UNLINKED;
    }
    r = try_way(history, revision, ret_fd, ret_path, ret_lost);
    if (r > 0)
        return WB_LINKED;
    /* Also where a damaged catalog ended the way. */
    buried = try_grave(history, revision, ret_fd);
    if (buried != 0)
        return buried < 0 ? buried : WB_UNLINKED;
    return r < 0 ? r : WB_LOST;
}

/* Through the directories found lately. 1 found, 0 not, or -errno. */
static int try_dirfd_cache(struct wb_history *history, const struct wb_revision *revision, int *ret_fd)
{
    _cleanup_close_ int above = -1;

    if (is_dir(revision)) {
        *ret_fd = wb_dirfd_cache_get(history->dirfd_cache, revision->object);
        if (*ret_fd >= 0)
            return 1;
    }
    above = revision->parent ? wb_dirfd_cache_get(history->dirfd_cache, revision->parent->object) : -1;
    return above < 0 ? 0 : try_name(history, above, revision->name, revision->object, ret_fd);
}

/* enum wb_link_state; WB_LOST: not met, lost or not. Or -errno. */
static int search(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path,
                  bool *ret_lost)
{
    struct timespec pause = {.tv_nsec = 100 * 1000};
    bool lost = false, still = false;
    int64_t quiet;
    int r;

    *ret_fd = -1;
    *ret_lost = false;
    if (!ret_path && try_dirfd_cache(history, revision, ret_fd) > 0) {
        if (is_dir(revision))
            wb_dirfd_cache_put(history->dirfd_cache, revision->object, *ret_fd);
        return WB_LINKED;
    }
    for (int attempt = 0; attempt < ATTEMPTS && !still; attempt++) {
        quiet = attempt > 0 ? wb_inflight_quiet(history->store) : 0;
        r = look_everywhere(history, revision, ret_fd, ret_path, &lost);
        if (r >= 0 && *ret_fd >= 0 && is_dir(revision))
            wb_dirfd_cache_put(history->dirfd_cache, revision->object, *ret_fd);
        if (r != WB_LOST)
            return r;
        /* It may have moved during the search, unless nothing did. A removed object is not waited for. */
        still = wb_inflight_stayed_quiet(history->store, quiet);
        *ret_lost = lost && (attempt > 1 || still);
        if (*ret_lost)
            return WB_LOST;
        if (attempt > 0 && !still)
            nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5 * 1000 * 1000)
            pause.tv_nsec *= 2;
    }
    return WB_LOST;
}

static int locate(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path)
{
    bool lost;
    int r = search(history, revision, ret_fd, ret_path, &lost);

    if (r == WB_LOST && !lost)
        return wb_history_fail(-EIO, "the object that was \"%s\" is at none of the places in its records",
                               revision->name);
    return r;
}

/* 1: the object's own log says that it was changed by others, 0: it does not, or -errno. */
static int is_marked(struct wb_history *history, const struct wb_revision *revision, int64_t ctime)
{
    _cleanup_close_ int fd = wb_store_open_file(
        history->store, revision->object, is_dir(revision) ? WB_FILE_CATALOG : WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? (fd == -ENOENT ? 0 : fd) : wb_spans_is_marked(history->store, fd, ctime, is_dir(revision));
}

/*
 * The present is part of the past only as far as all changes since are recorded. A writer marks an object that others
 * changed when it meets it (capture/unseen.h). Until then, and for readers, nothing of its past is known from before
 * recording went on.
 */
int wb_check_seen(struct wb_history *history, const struct wb_revision *revision, int64_t ctime, int64_t when)
{
    int r;

    if (wb_spans_has(history->store, ctime, is_dir(revision)) ||
        when >= wb_spans_after(history->store, ctime, is_dir(revision)))
        return 0;
    r = is_marked(history, revision, ctime);
    if (r != 0)
        return MIN(r, 0);
    return wb_history_fail_gap(wb_spans_lost_slot(history->store, ctime, is_dir(revision)) ? WB_GAP_POWER
                                                                                           : WB_GAP_UNSEEN);
}

int wb_check_stage_seen(struct wb_history *history, struct wb_revision *revision, int64_t stage)
{
    _cleanup_close_ int fd = -1;
    struct wb_attrs attrs;
    bool lost;
    int r = search(history, revision, &fd, NULL, &lost);

    if (r < 0 || fd < 0)
        return MIN(r, 0);
    r = wb_object_stat(NULL, fd, NULL, NULL, &attrs, NULL);
    /* The records have the state before that change. */
    if (r < 0 || revision->when < wb_spans_after(history->store, attrs.ctime, false))
        return r;
    return wb_check_seen(history, revision, attrs.ctime, stage);
}

static int check_seen(struct wb_history *history, const struct wb_revision *revision, int fd)
{
    struct wb_attrs attrs;
    int r = wb_object_stat(NULL, fd, NULL, NULL, &attrs, NULL);

    return r < 0 ? r : wb_check_seen(history, revision, attrs.ctime, revision->when);
}

/* The same of a deleted file that may not have been all on the disk when the power failed (inflight/lost_content.h). */
static int check_content(struct wb_history *history, const struct wb_revision *revision, int fd)
{
    _cleanup_close_ int log_fd = -1;
    struct stat bundle;
    int64_t since;
    int r;

    if (history->store->lost_until == 0 || revision->type != S_IFREG)
        return 0;
    log_fd = wb_store_open_file(history->store, revision->object, WB_FILE_UNDO, O_RDONLY | O_CLOEXEC);
    if (log_fd < 0 && log_fd != -ENOENT)
        return log_fd;
    r = wb_lost_content_find(history->store, fd, log_fd, &since);
    /* A bundle is on the disk before it has a name. */
    if (r > 0 && wb_bundle_stat(history->store, revision->object, WB_FILE_BUNDLE, &bundle) == 0)
        return 0;
    return r < 0 ? r : r > 0 ? wb_history_fail_gap(WB_GAP_POWER) : 0;
}

int wb_resolve(struct wb_history *history, struct wb_revision *revision, int *ret_fd, char **ret_path)
{
    int r = locate(history, revision, ret_fd, ret_path), seen = 0;

    if (r >= 0 && *ret_fd >= 0 && revision->when != WB_WHEN_PRESENT)
        seen = check_seen(history, revision, *ret_fd);
    if (seen >= 0 && r == WB_UNLINKED && *ret_fd >= 0 && revision->when != WB_WHEN_PRESENT)
        seen = check_content(history, revision, *ret_fd);
    if (seen >= 0)
        return r;
    wb_close_fd(ret_fd);
    if (ret_path)
        g_clear_pointer(ret_path, g_free);
    return seen;
}

int wb_revision_resolve(struct wb_history *history, struct wb_revision *revision, struct wb_location *ret)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    *ret = (struct wb_location){.state = WB_LOST};
    r = wb_resolve(history, revision, &fd, &ret->path);
    if (r < 0)
        return r;
    ret->state = (enum wb_link_state)r;
    if (fd >= 0 && fstat(fd, &st) == 0)
        *ret = (struct wb_location){ret->state, ret->path, st.st_ino, (uint32_t)st.st_nlink};
    return 0;
}

int wb_revision_find_unbind(struct wb_history *history, struct wb_revision *revision, struct wb_unbind_info *ret)
{
    struct wb_rename_hop hops[2] = {{.dir = revision->parent ? revision->parent->object : WB_OBJECT_NONE}};
    int r;

    if (!revision->parent)
        return WB_ABSENT;
    g_strlcpy(hops[0].name, revision->name, sizeof(hops[0].name));
    hops[0].when = revision->when == WB_WHEN_PRESENT ? 0 : revision->when;
    r = wb_rename_chain_follow(history, revision->object, is_dir(revision) ? WB_FILE_CATALOG : WB_FILE_UNDO,
                               WB_WHEN_PRESENT, hops);
    if (r <= 0)
        return r < 0 ? r : WB_ABSENT;
    *ret = (struct wb_unbind_info){hops[0].dir, hops[0].lost, hops[0].links};
    return 0;
}

int wb_revision_open_present(struct wb_history *history, struct wb_revision *revision, int flags)
{
    bool openable = revision->type == S_IFREG || revision->type == S_IFDIR;
    _cleanup_close_ int fd = -1;
    char link[32];
    int opened, r;

    r = wb_resolve(history, revision, &fd, NULL);
    if (r < 0)
        return r;
    if (fd < 0)
        return wb_history_fail(-EIO, "the object that was \"%s\" was removed, and is not in the store", revision->name);
    if (!openable || flags & O_PATH)
        return wb_steal_fd(&fd);
    /* Opened by its descriptor: whatever has the name by now is left alone. */
    opened = open(wb_fd_path(fd, link), (flags & ~O_NOFOLLOW) | O_NONBLOCK | O_CLOEXEC);
    return opened < 0 ? -errno : opened;
}
