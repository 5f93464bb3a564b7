/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "lines.h"
#include "client/fd.h"
#include "client/past_path.h"
#include "client/path.h"
#include "content/line_count.h"
#include "content/states.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MAX_READ (1u << 20)
#define READ_MAX (64ull << 20)

void lines_begin(struct lines *lines, const struct wb_place *place, const char *name)
{
    *lines = (struct lines){.place = place, .name = name, .left = READ_MAX};
}

static void forget(struct lines *lines)
{
    g_clear_pointer(&lines->before, g_bytes_unref);
    g_clear_pointer(&lines->before_name, g_free);
}

void lines_clear(struct lines *lines)
{
    forget(lines);
}

/* The content of a regular file that is not too large, or NULL. */
static GBytes *read_all(struct lines *lines, int fd)
{
    g_autofree char *data = NULL;
    struct stat st;
    size_t used = 0;
    ssize_t n = 1;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)SIZE_MAX_READ ||
        (uint64_t)st.st_size > lines->left)
        return NULL;
    lines->left -= (uint64_t)st.st_size;
    data = g_malloc((size_t)st.st_size + 1);
    while (used < (size_t)st.st_size && (n = read(fd, data + used, (size_t)st.st_size - used)) > 0)
        used += (size_t)n;
    return n < 0 ? NULL : g_bytes_new_take(g_steal_pointer(&data), used);
}

static GBytes *content_of(struct lines *lines, const char *path)
{
    const char *entry;
    _cleanup_fd_ int parent = wb_fd_open_parent(lines->place->mount->root_fd, path, &entry);
    _cleanup_fd_ int fd = -1;

    if (parent >= 0)
        fd = openat(parent, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? NULL : read_all(lines, fd);
}

/* The content of `name`, beside the path, at `when`; NULL: not known. */
static GBytes *content_at(struct lines *lines, const char *name, int64_t when)
{
    const struct wb_mount *mount = lines->place->mount;
    g_autofree char *dir = wb_path_parent(lines->place->path, NULL);
    g_autofree char *path = wb_path_join(dir, name);
    g_autofree char *then = wb_moment_shift(mount, path, when);
    g_autofree char *found = NULL;
    GBytes *content = content_of(lines, then);

    /* Below a directory that is gone, the one above has it. */
    if (!content && wb_moment_path(mount, path, when, &found) == 0 && strcmp(found, then) != 0)
        content = content_of(lines, found);
    return content;
}

/* After a version; mostly it was read already, as the content before the newer one. */
static GBytes *content_after(struct lines *lines, const struct wb_control_version *newest)
{
    const char *name = wb_version_name_after(newest, lines->name);

    if (!newest->exists_after)
        return g_bytes_new_static("", 0);
    if (lines->before && newest->when <= lines->before_when && g_strcmp0(lines->before_name, name) == 0)
        return g_bytes_ref(lines->before);
    return content_at(lines, name, newest->when);
}

static GBytes *content_before(struct lines *lines, const struct wb_control_version *oldest)
{
    if (!oldest->existed_before)
        return g_bytes_new_static("", 0);
    forget(lines);
    lines->before_name = g_strdup(*oldest->name ? oldest->name : lines->name);
    lines->before_when = (oldest->flags & WB_CONTROL_VERSION_THINNED ? oldest->thinned_since : oldest->when) - 1;
    lines->before = content_at(lines, lines->before_name, lines->before_when);
    return lines->before ? g_bytes_ref(lines->before) : NULL;
}

/* Whether the object came to the name from elsewhere: then older versions may be those of another name. */
static bool came(const struct lines *lines, const struct wb_control_version *change)
{
    return *change->name && (strcmp(change->name, lines->name) != 0 || strcmp(change->name, change->other) == 0);
}

/* Another file under the same name has another size, as a rule; the record has the right one. */
static bool has_size(const GBytes *content, uint64_t size)
{
    return g_bytes_get_size((GBytes *)content) == size;
}

enum lines_result lines_compare(struct lines *lines, const struct wb_save *save, unsigned *ret_added,
                                unsigned *ret_removed)
{
    const struct wb_control_version *newest = &save->newest, *oldest = &save->oldest;
    g_autoptr(GBytes) after = NULL;
    g_autoptr(GBytes) before = NULL;
    gsize old_size, new_size;
    const char *old, *new;

    lines->lost = lines->lost || came(lines, newest) || came(lines, oldest);
    if (save->number == 0 || lines->lost || newest->flags & WB_CONTROL_VERSION_WITHHELD) {
        forget(lines);
        return LINES_UNKNOWN;
    }
    after = content_after(lines, newest);
    before = after ? content_before(lines, oldest) : NULL;
    if (!after || !before || (newest->exists_after && !has_size(after, newest->size_after)) ||
        (oldest->existed_before && !has_size(before, oldest->size_before))) {
        forget(lines);
        return LINES_UNKNOWN;
    }
    /* A file in the place of another one is news, whatever it contains. */
    if (newest->exists_after && oldest->existed_before && oldest->exists_after && !save->moved &&
        g_bytes_equal(before, after))
        return LINES_SAME;
    old = g_bytes_get_data(before, &old_size);
    new = g_bytes_get_data(after, &new_size);
    return wb_lines_compare(old ?: "", old_size, new ?: "", new_size, ret_added, ret_removed) ? LINES_DIFFERENT
                                                                                             : LINES_UNKNOWN;
}
