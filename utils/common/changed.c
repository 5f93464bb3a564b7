/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/changed.h"

#include "client/control.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* To read a change from the list takes about a tenth of the time in which an entry is compared, or somewhat less. */
#define CHANGES_PER_ENTRY 8
#define CHANGES_LEAST 1000
/* Pages in a row without progress. */
#define STANDING_STILL 100

/* A component of a path. */
struct wb_changed {
    GHashTable *below; /* of char * -> struct wb_changed *; NULL: none */
    bool itself;       /* it is one of the paths */
    bool whole;        /* everything below it may differ */
};

static void free_node(void *node)
{
    wb_changed_free(node);
}

struct wb_changed *wb_changed_free(struct wb_changed *changed)
{
    if (changed && changed->below)
        g_hash_table_unref(changed->below);
    g_free(changed);
    return NULL;
}

/* The node of the next component of *path, which is moved behind it; NULL if there is none and !`make`. */
static struct wb_changed *step(struct wb_changed *node, const char **path, bool make)
{
    size_t length = strcspn(*path, "/");
    g_autofree char *name = g_strndup(*path, length);
    struct wb_changed *child = node->below ? g_hash_table_lookup(node->below, name) : NULL;

    *path += length + ((*path)[length] == '/');
    if (child || !make)
        return child;
    if (!node->below)
        node->below = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_node);
    child = g_new0(struct wb_changed, 1);
    g_hash_table_insert(node->below, g_steal_pointer(&name), child);
    return child;
}

struct wb_changed *wb_changed_new(void)
{
    return g_new0(struct wb_changed, 1);
}

void wb_changed_add(struct wb_changed *changed, const char *path, bool whole)
{
    struct wb_changed *node = changed;

    if (strcmp(path, ".") == 0)
        path = "";
    while (*path && !node->whole)
        node = step(node, &path, true);
    node->itself = true;
    node->whole |= whole;
}

void wb_changed_add_all(struct wb_changed *changed, const struct wb_changed *others)
{
    GHashTableIter iter;
    void *name, *child;

    changed->itself |= others->itself;
    changed->whole |= others->whole;
    if (!others->below)
        return;
    g_hash_table_iter_init(&iter, others->below);
    while (g_hash_table_iter_next(&iter, &name, &child)) {
        const char *path = name;

        wb_changed_add_all(step(changed, &path, true), child);
    }
}

enum revert_extent wb_changed_extent(const void *changed, const char *path)
{
    const struct wb_changed *node = changed;

    while (node && !node->whole && *path)
        node = step((struct wb_changed *)node, &path, false);
    return !node ? REVERT_NOTHING : node->itself || node->whole ? REVERT_ITSELF : REVERT_BELOW;
}

static bool each_below(const struct wb_changed *node, const char *path, bool (*each)(void *data, const char *path),
                       void *data)
{
    GHashTableIter iter;
    void *name, *child;

    if (node->itself && each(data, path))
        return true;
    if (!node->below)
        return false;
    g_hash_table_iter_init(&iter, node->below);
    while (g_hash_table_iter_next(&iter, &name, &child)) {
        g_autofree char *below = wb_path_join(path, name);

        if (each_below(child, below, each, data))
            return true;
    }
    return false;
}

enum revert_extent wb_changed_extent_of_names(const void *changed, const char *path)
{
    return wb_changed_extent(changed, path) == REVERT_NOTHING ? REVERT_NOTHING : REVERT_ITSELF;
}

bool wb_changed_each(const struct wb_changed *changed, bool (*each)(void *data, const char *path), void *data)
{
    return each_below(changed, "", each, data);
}

char *wb_changed_top(const struct wb_changed *changed)
{
    GString *path = g_string_new(NULL);

    for (const struct wb_changed *node = changed;
         !node->itself && node->below && g_hash_table_size(node->below) == 1;) {
        GHashTableIter iter;
        void *name, *child;

        g_hash_table_iter_init(&iter, node->below);
        g_hash_table_iter_next(&iter, &name, &child);
        g_string_append_printf(path, "%s%s", path->len > 0 ? "/" : "", (char *)name);
        node = child;
    }
    return g_string_free(path, FALSE);
}

bool wb_changed_has(const struct wb_changed *changed, const char *path)
{
    const struct wb_changed *node = changed;

    while (node && !node->whole && *path)
        node = step((struct wb_changed *)node, &path, false);
    return !changed || node;
}

/* ---- the list of changes ------------------------------------------------------------------------- */

/* False: it is not certain which paths it concerns. */
static bool add_change(struct wb_changed *root, const struct wb_control_change *change)
{
    bool names = change->existed_before != change->exists_after || change->other;

    if (change->flags & WB_CONTROL_CHANGE_LINKED)
        return false;
    /* No path leads to it. */
    if (change->flags & WB_CONTROL_CHANGE_UNKNOWN)
        return true;
    /* A gap in the catalog of a directory: its names are not known. */
    names |= change->flags & WB_CONTROL_CHANGE_GAP && S_ISDIR(change->mode_before);
    wb_changed_add(root, change->strings + change->path, names);
    if (change->other)
        wb_changed_add(root, change->strings + change->other, true);
    return true;
}

/* A gap is in the list at its end, and concerns all of the time from its begin on. */
static bool is_concerned(const struct wb_control_change *change, int64_t until)
{
    return change->when <= until || (change->flags & WB_CONTROL_CHANGE_GAP && (int64_t)change->offset <= until);
}

/* A page. 0; 1: the list is of no use; or -errno. */
static int add_page(struct wb_changed *root, const struct wb_control *page, int64_t until, unsigned most,
                    unsigned *count)
{
    size_t at = 0;

    if (page->flags & WB_CONTROL_CHANGES_BUILDING || !(page->flags & WB_CONTROL_CHANGES_WHOLE))
        return 1;
    *count += page->count;
    if (*count > most)
        return 1;
    for (uint32_t i = 0; i < page->count; i++) {
        const struct wb_control_change *change = (const void *)(page->data + at);

        at += change->size;
        if (is_concerned(change, until) && !add_change(root, change))
            return 1;
    }
    return 0;
}

int wb_changed_collect(int root_fd, int64_t since, int64_t until, unsigned most, struct wb_changed **ret)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    _cleanup_changed_ struct wb_changed *root = wb_changed_new();
    unsigned count = 0, still = 0;
    uint64_t cursor = 0;
    bool more = true;
    int r = 0;

    *ret = NULL;
    while (r == 0 && more) {
        r = wb_request_prepare(request, WB_CONTROL_CHANGES, "");
        if (r < 0)
            return r;
        request->since = since + 1;
        request->cursor = cursor;
        r = wb_request_call(root_fd, request);
        if (r < 0)
            return r;
        r = add_page(root, request, until, most, &count);
        more = request->flags & WB_CONTROL_CHANGES_MORE;
        still = request->cursor == cursor ? still + 1 : 0;
        cursor = request->cursor;
        if (r == 0 && still > STANDING_STILL)
            return -EPROTO;
    }
    if (r == 0)
        *ret = g_steal_pointer(&root);
    return r;
}

/* ---- the entries that are there ------------------------------------------------------------------ */

struct scan {
    struct wb_changed *later; /* changed after `since`, or another mount */
    int64_t since;
    unsigned mount_major, mount_minor;
    unsigned count;
    char *listed; /* the last directory that was listed */
};

/* The daemon is asked: the kernel may have attributes from before a change that was not made through it. */
static int look(int dir_fd, const char *name, struct statx *ret)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);

    return statx(dir_fd, name, flags, STATX_TYPE | STATX_CTIME, ret) < 0 ? -errno : 0;
}

static bool is_later(const struct scan *scan, const struct statx *entry)
{
    return entry->stx_ctime.tv_sec * WB_WHEN_SECOND + entry->stx_ctime.tv_nsec > scan->since;
}

/* 0; or -errno: it cannot be looked at, which the revert will report. */
static int scan_below(struct scan *scan, int dir_fd, const char *path)
{
    g_autoptr(GPtrArray) names = wb_fd_names(dir_fd);
    int r = names ? 0 : -EIO;

    for (guint i = 0; r == 0 && i < names->len && !wb_cli_interrupted(); i++) {
        g_autofree char *entry = wb_path_join(path, names->pdata[i]);
        _cleanup_fd_ int below = -1;
        struct statx found;

        r = look(dir_fd, names->pdata[i], &found);
        if (r == -ENOENT) {
            r = 0;
            continue;
        }
        if (r < 0)
            return r;
        scan->count++;
        if (found.stx_dev_major != scan->mount_major || found.stx_dev_minor != scan->mount_minor) {
            wb_changed_add(scan->later, entry, false);
            continue;
        }
        if (is_later(scan, &found))
            wb_changed_add(scan->later, entry, false);
        if (!S_ISDIR(found.stx_mode))
            continue;
        below = openat(dir_fd, names->pdata[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = below < 0 ? -errno : scan_below(scan, below, entry);
    }
    return r;
}

static int scan_entries(struct scan *scan, int root_fd, const char *path)
{
    const char *name = ".";
    _cleanup_fd_ int parent = *path ? wb_fd_open_parent(root_fd, path, &name) : dup(root_fd);
    _cleanup_fd_ int fd = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct statx found;
    int r = fd < 0 ? -errno : look(fd, "", &found);

    if (r < 0)
        return r;
    scan->mount_major = found.stx_dev_major;
    scan->mount_minor = found.stx_dev_minor;
    return scan_below(scan, fd, path);
}

/* Whether something is mounted below the mount of `root_fd`; true if that is not known. */
static bool has_mounts(int root_fd)
{
    g_autofree char *text = NULL;
    struct statx found;
    char *next;

    if (statx(root_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &found) < 0 || !(found.stx_mask & STATX_MNT_ID) ||
        !g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL))
        return true;
    /* The second number is the mount that it is mounted in. */
    for (char *line = text; *line; line = next) {
        char *parent = strchr(line, ' ');

        next = line + strcspn(line, "\n");
        next += *next == '\n';
        if (parent && parent < next && g_ascii_strtoull(parent, NULL, 10) == found.stx_mnt_id)
            return true;
    }
    return false;
}

/*
 * Lists the directory of an entry, so that the daemon looks the entry up, which marks what others changed as unknown in
 * the history. Paths of one directory come one after the other.
 */
static void list_parent(struct scan *scan, int root_fd, const char *path)
{
    g_autofree char *dir = g_path_get_dirname(path);
    _cleanup_fd_ int fd = -1;
    g_autoptr(GPtrArray) names = NULL;

    if (g_strcmp0(scan->listed, dir) == 0)
        return;
    fd = openat(root_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    g_free(scan->listed);
    scan->listed = g_steal_pointer(&dir);
}

/* The paths in a reply. The kernel is made to ask for their attributes, which it may have from before the change. */
static void take_edited(struct scan *scan, int root_fd, const struct wb_control *reply)
{
    const struct wb_control_edited *edited = (const void *)reply->data;
    const char *at = edited->paths;
    struct statx found;

    scan->count = (unsigned)MIN(edited->looked, G_MAXINT / CHANGES_PER_ENTRY);
    for (uint32_t i = 0; i < reply->count; i++, at += strlen(at) + 1) {
        list_parent(scan, root_fd, at);
        look(root_fd, at, &found);
        wb_changed_add(scan->later, at, false);
    }
}

/*
 * The same as scan_entries, by the daemon, which needs one request for all entries, and not one for each. 0; or -errno:
 * it cannot tell.
 */
static int ask_for_edited(struct scan *scan, int root_fd, const char *path)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    uint64_t cursor = 0;
    int r;

    if (has_mounts(root_fd))
        return -EXDEV;
    do {
        r = wb_request_prepare(request, WB_CONTROL_EDITED, path);
        if (r < 0)
            return r;
        request->since = scan->since;
        request->cursor = cursor;
        r = wb_request_call(root_fd, request);
        if (r < 0)
            return r;
        take_edited(scan, root_fd, request);
        cursor = request->cursor;
    } while (request->flags & WB_CONTROL_EDITED_MORE && !wb_cli_interrupted());
    return 0;
}

/* An entry that was changed, and is not in the list: everything below a directory may differ. */
static bool add_unlisted(void *data, const char *path)
{
    struct wb_changed *listed = data;

    if (wb_changed_extent(listed, path) == REVERT_NOTHING)
        wb_changed_add(listed, path, true);
    return false;
}

int wb_changed_since(int root_fd, const char *path, int64_t since, struct wb_changed **ret)
{
    _cleanup_changed_ struct wb_changed *later = wb_changed_new();
    struct scan scan = {.later = later, .since = since};
    int r = ask_for_edited(&scan, root_fd, path);

    if (r < 0 && !wb_cli_interrupted())
        r = scan_entries(&scan, root_fd, path);
    g_free(scan.listed);

    *ret = NULL;
    if (r < 0)
        return r;
    r = wb_changed_collect(root_fd, since, WB_WHEN_PRESENT,
                           MIN(MAX(CHANGES_LEAST, scan.count * CHANGES_PER_ENTRY), WB_CHANGES_MOST), ret);
    if (r == 0)
        wb_changed_each(later, add_unlisted, *ret);
    return r;
}
