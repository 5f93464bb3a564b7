/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Both trees are walked side by side, names in order. An entry that has the same name and is the same object at both
 * moments is compared; others are put on two lists, with all below them. Objects that are on both
 * lists were renamed, the rest was removed or added.
 *
 * Content is read only where nothing proves it equal. A directory is entered only if the list of changes has something
 * at or below it; without a complete list, every directory is: a change of a file is recorded with the file, so the
 * directories above it do not show that nothing changed.
 */
#include "diff_parts.h"

#include "common/cli.h"
#include "client/fd.h"
#include "client/path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void found_free(void *data)
{
    struct found *found = data;

    diff_entry_unref(found->entry);
    g_free(found->path);
    g_free(found);
}

static void change_free(void *data)
{
    struct change *change = data;

    diff_entry_unref(change->before);
    diff_entry_unref(change->after);
    g_free(change->path);
    g_free(change->from);
    g_free(change);
}

/* ---- what a directory held ------------------------------------------------------------------- */

/* Its entries in byte order of names. NULL after an error line. */
static GPtrArray *entries_of(struct diff *diff, int fd, const char *path)
{
    g_autoptr(GPtrArray) entries = g_ptr_array_new_with_free_func(diff_entry_unref);
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    uint64_t cursor = 0, held = 0;
    int r;

    do {
        size_t used = 0;

        r = wb_request_prepare(request, WB_CONTROL_ENTRIES, "");
        request->cursor = cursor;
        if (r == 0)
            r = wb_request_call(fd, request);
        cursor = request->cursor;
        for (uint32_t i = 0; r == 0 && i < request->count; i++) {
            const struct wb_control_entry *entry = (const void *)(request->data + used);

            used += entry->size;
            g_ptr_array_add(entries, (void *)g_rc_box_dup(entry->size, entry));
        }
        held += used;
        if (r == 0 && held > WB_HELD_MAX)
            r = -EOVERFLOW;
    } while (r == 0 && request->count > 0);
    if (r == 0)
        return g_steal_pointer(&entries);
    diff_fail(diff, path, r);
    return NULL;
}

static int open_dir(struct diff *diff, int fd, const char *name, const char *path)
{
    int child = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (child < 0)
        diff_fail(diff, path, errno);
    return child;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* On the list of one side, with all that is below it. */
static void collect(struct diff *diff, int side, int dir_fd, struct wb_control_entry *entry, const char *path,
                    struct found *parent)
{
    struct found *found = g_new0(struct found, 1);
    g_autoptr(GPtrArray) entries = NULL;
    _cleanup_fd_ int fd = -1;

    *found = (struct found){.entry = diff_entry_ref(entry), .path = g_strdup(path), .parent = parent};
    g_ptr_array_add(diff->only[side], found);
    if (!S_ISDIR(entry->mode) || wb_cli_interrupted())
        return;
    fd = open_dir(diff, dir_fd, entry->name, path);
    entries = fd < 0 ? NULL : entries_of(diff, fd, path);
    for (guint i = 0; entries && i < entries->len; i++) {
        struct wb_control_entry *child = entries->pdata[i];
        g_autofree char *below = wb_path_join(path, child->name);

        collect(diff, side, fd, child, below, found);
    }
}

static void walk(struct diff *diff, const int fds[2], const char *path);

static bool may_differ(const struct diff *diff, const char *path)
{
    g_autofree char *whole = diff->changed ? wb_path_join(diff->path, path) : NULL;

    return wb_changed_has(diff->changed, whole);
}

/* A name both have. */
static void meet(struct diff *diff, const int fds[2], struct wb_control_entry *a, struct wb_control_entry *b,
                 const char *path)
{
    struct there one = {fds[0], a->name, a}, other = {fds[1], b->name, b};
    int below[2] = {-1, -1};

    if (!diff_is_same(a, b)) {
        collect(diff, 0, fds[0], a, path, NULL);
        collect(diff, 1, fds[1], b, path, NULL);
        return;
    }
    if (!may_differ(diff, path))
        return;
    diff_same(diff, &one, &other, path);
    if (!S_ISDIR(a->mode))
        return;
    below[0] = open_dir(diff, fds[0], a->name, path);
    below[1] = below[0] < 0 ? -1 : open_dir(diff, fds[1], b->name, path);
    if (below[1] >= 0)
        walk(diff, below, path);
    wb_fd_closep(&below[0]);
    wb_fd_closep(&below[1]);
}

static void walk(struct diff *diff, const int fds[2], const char *path)
{
    g_autoptr(GPtrArray) a = entries_of(diff, fds[0], path);
    g_autoptr(GPtrArray) b = a ? entries_of(diff, fds[1], path) : NULL;
    guint i = 0, j = 0;

    while (b && (i < a->len || j < b->len) && !wb_cli_interrupted()) {
        struct wb_control_entry *one = i < a->len ? a->pdata[i] : NULL;
        struct wb_control_entry *other = j < b->len ? b->pdata[j] : NULL;
        int order = !one ? 1 : !other ? -1 : strcmp(one->name, other->name);
        g_autofree char *below = wb_path_join(path, order <= 0 ? one->name : other->name);

        if (order == 0)
            meet(diff, fds, one, other, below);
        else
            collect(diff, order > 0, fds[order > 0], order > 0 ? other : one, below, NULL);
        i += order <= 0;
        j += order >= 0;
    }
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* What is at `path`: its directory, name and entry. 0 or -errno. */
static int look(struct diff *diff, const char *path, struct there *ret)
{
    struct wb_control_entry *entry;
    struct wb_control_identity identity;
    const char *name;
    struct stat st;
    int r;

    ret->dir_fd = wb_fd_open_parent(diff->mount->root_fd, path, &name);
    if (ret->dir_fd < 0)
        return ret->dir_fd;
    if (fstatat(ret->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    r = wb_request_identify(diff->mount->root_fd, path, &identity);
    if (r < 0)
        return r;
    entry = g_rc_box_alloc0(sizeof(*entry) + strlen(name) + 1);
    *entry = (struct wb_control_entry){
        .ino = identity.ino,
        .birth = identity.birth,
        .length = (uint64_t)st.st_size,
        .mtime = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec,
        .ctime = st.st_ctim.tv_sec * WB_WHEN_SECOND + st.st_ctim.tv_nsec,
        .mode = st.st_mode,
        .uid = st.st_uid,
        .gid = st.st_gid,
    };
    memcpy(entry->name, name, strlen(name) + 1);
    ret->entry = entry;
    ret->name = entry->name;
    return 0;
}

static int compare_changes(const void *a, const void *b)
{
    const struct change *x = *(struct change *const *)a, *y = *(struct change *const *)b;
    int r = strcmp(x->path, y->path);

    return r != 0 ? r : (x->kind == CHANGE_RENAMED ? -1 : y->kind == CHANGE_RENAMED ? 1 : 0);
}

/* Of the directory itself: the lists' paths are relative to it. */
static void open_root(struct diff *diff, int side, const struct there *there)
{
    if (S_ISDIR(there->entry->mode))
        diff->root[side] = open_dir(diff, there->dir_fd, there->name, "");
}

static void begin(struct diff *diff, const struct there there[2])
{
    bool both = there[0].entry && there[1].entry;

    for (int side = 0; side < 2; side++)
        if (there[side].entry)
            open_root(diff, side, &there[side]);
    if (both && !may_differ(diff, ""))
        return;
    if (both)
        diff_same(diff, &there[0], &there[1], "");
    if (both && diff->root[0] >= 0 && diff->root[1] >= 0)
        walk(diff, diff->root, "");
    else if (!both)
        collect(diff, there[1].entry != NULL, there[there[1].entry != NULL].dir_fd,
                (struct wb_control_entry *)there[there[1].entry != NULL].entry, "", NULL);
    diff_match(diff);
}

void diff_compare(struct diff *diff, char *const paths[2])
{
    struct there there[2] = {{.dir_fd = -1}, {.dir_fd = -1}};
    int r = 0;

    diff->root[0] = diff->root[1] = -1;
    diff->changes = g_ptr_array_new_with_free_func(change_free);
    diff->only[0] = g_ptr_array_new_with_free_func(found_free);
    diff->only[1] = g_ptr_array_new_with_free_func(found_free);
    for (int side = 0; r == 0 && side < 2; side++)
        r = paths[side] ? look(diff, paths[side], &there[side]) : 0;
    if (r < 0)
        diff_fail(diff, "", r);
    else
        begin(diff, there);
    g_ptr_array_sort(diff->changes, compare_changes);
    for (int side = 0; side < 2; side++) {
        diff_entry_unref((void *)there[side].entry);
        wb_fd_closep(&there[side].dir_fd);
    }
}

void diff_clear(struct diff *diff)
{
    for (int side = 0; side < 2; side++) {
        wb_fd_closep(&diff->root[side]);
        g_ptr_array_unref(diff->only[side]);
    }
    g_ptr_array_unref(diff->changes);
    diff->changed = wb_changed_free(diff->changed);
}
