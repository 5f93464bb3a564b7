/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * EDITED: the entries of SRC whose inode was changed after a moment, whether Wayback recorded that or not. A tool that
 * looked at each entry through the mount would need a request for each; here, one request looks at all. The paths that
 * do not fit into its reply are kept for the next one.
 */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "daemon/past/pages.h"
#include "daemon/past/past_node.h"
#include "wayback/held.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

/* As many paths as a tool can use; more are E2BIG. */
#define FOUND_MAX 200000u

struct kept {
    struct wb_paged paged;
    uint64_t cursor;
    uint32_t uid;
    uint64_t looked;
    GPtrArray *found; /* paths, relative to the root */
    guint shown;
};

struct scan {
    const struct wb_request *request;
    int64_t since;
    uint64_t looked;
    GPtrArray *found;
    GPtrArray *pending; /* paths of directories */
};

static void free_paged(struct wb_paged *paged)
{
    struct kept *kept = (struct kept *)paged;

    g_ptr_array_unref(kept->found);
    g_free(kept);
}

static bool continues(const struct wb_paged *paged, const struct wb_paged *other)
{
    const struct kept *kept = (const struct kept *)paged, *wanted = (const struct kept *)other;

    return kept->cursor == wanted->cursor && kept->uid == wanted->uid;
}

/* ---- the tree --------------------------------------------------------------------------------------------- */

static bool is_ours(const char *path)
{
    return strcmp(path, WB_STORE_NAME) == 0 || strcmp(path, WB_STAGING_NAME) == 0;
}

static int look(struct scan *scan, int dir_fd, const char *dir, const char *name)
{
    g_autofree char *path = *dir ? g_strconcat(dir, "/", name, NULL) : g_strdup(name);
    struct statx found;

    if (is_ours(path))
        return 0;
    if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_CTIME, &found) < 0)
        return errno == ENOENT ? 0 : -errno;
    scan->looked++;
    /* No reply has room for it. */
    if (strlen(path) >= WB_CONTROL_PATH_MAX || scan->found->len >= FOUND_MAX)
        return -E2BIG;
    if (found.stx_ctime.tv_sec * WB_WHEN_SECOND + found.stx_ctime.tv_nsec > scan->since)
        g_ptr_array_add(scan->found, g_strdup(path));
    if (S_ISDIR(found.stx_mode))
        g_ptr_array_add(scan->pending, g_steal_pointer(&path));
    return 0;
}

/* Names separated by slashes, not in the store, or "". */
static bool is_in_tree(const char *path)
{
    g_auto(GStrv) names = g_strsplit(path, "/", -1);

    for (char **name = names; *name; name++)
        if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0 || (name == names && is_ours(*name)))
            return false;
    return true;
}

/*
 * A directory that is not there any more was removed or moved through the mount, and is in the list of changes. -EXDEV:
 * another file system is mounted there, which is not in the tree, and which may never answer.
 */
static int look_into(struct scan *scan, const char *dir)
{
    _cleanup_close_ int fd = wb_open_in_mount(scan->request->session->store->src_fd, *dir ? dir : ".",
                                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    _cleanup_closedir_ DIR *stream = NULL;
    struct dirent *entry;
    int r = 0;

    if (fd < 0)
        return fd == -ENOENT || fd == -ENOTDIR ? 0 : fd;
    stream = wb_opendir_at(fd, ".");
    if (!stream)
        return -errno;
    while (wb_next_entry(stream, &entry, &r))
        r = look(scan, fd, dir, entry->d_name);
    return r;
}

static int scan_below(const struct wb_request *request, struct kept **ret)
{
    g_autoptr(GPtrArray) found = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GPtrArray) pending = g_ptr_array_new_with_free_func(g_free);
    struct scan scan = {.request = request, .since = request->in->since, .found = found, .pending = pending};
    static _Atomic uint32_t numbers;
    int r = 0;

    if (!is_in_tree(request->in->path))
        return -EINVAL;
    g_ptr_array_add(pending, g_strdup(request->in->path));
    while (r == 0 && pending->len > 0) {
        g_autofree char *dir = g_ptr_array_steal_index_fast(pending, pending->len - 1);

        r = wb_control_is_over((void *)(uintptr_t)request) ? -ECANCELED : look_into(&scan, dir);
    }
    if (r < 0)
        return r;
    *ret = g_new0(struct kept, 1);
    (*ret)->paged.generation = wb_pages_generation(request->session->past);
    (*ret)->cursor = (uint64_t)(atomic_fetch_add(&numbers, 1) % (UINT32_MAX / 2) + 1) << 32;
    (*ret)->uid = fuse_req_ctx(request->req)->uid;
    (*ret)->looked = scan.looked;
    (*ret)->found = g_steal_pointer(&found);
    return 0;
}

/* ---- the request ------------------------------------------------------------------------------------------ */

static void put_paths(struct kept *kept, struct wb_control *out)
{
    struct wb_control_edited *edited = (struct wb_control_edited *)(void *)out->data;
    size_t used = 0;

    edited->looked = kept->looked;
    for (; kept->shown < kept->found->len; kept->shown++, out->count++) {
        const char *path = kept->found->pdata[kept->shown];
        size_t size = strlen(path) + 1;

        if (size > sizeof(edited->paths) - used)
            return;
        memcpy(edited->paths + used, path, size);
        used += size;
    }
}

int wb_control_edited(const struct wb_request *request, struct wb_control *out)
{
    struct wb_past *past = request->session->past;
    struct kept wanted = {.paged.generation = wb_pages_generation(past), .cursor = request->in->cursor,
                          .uid = fuse_req_ctx(request->req)->uid};
    struct kept *kept = NULL;
    int r = 0;

    /* Of a past mount, the present is somewhere else. */
    if (!request->session->recording)
        return -EOPNOTSUPP;
    if (request->in->cursor == 0)
        r = scan_below(request, &kept);
    else
        kept = (struct kept *)wb_pages_take(&past->edits, &wanted.paged, continues);
    if (!kept)
        return r < 0 ? r : -ESTALE;
    put_paths(kept, out);
    out->cursor = ++kept->cursor;
    if (kept->shown < kept->found->len) {
        out->flags = WB_CONTROL_EDITED_MORE;
        wb_pages_keep(&past->edits, &kept->paged, free_paged);
    } else {
        free_paged(&kept->paged);
    }
    return 0;
}
