/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Directories that have no catalog, since no name in them ever changed, are told by nothing but the tree: whoever
 * changed a file there left its inode only. They are looked for among the directories of SRC, until all are found.
 */
#include "maintain/usage/usage_parts.h"

#include "base/dir.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each level takes a descriptor. */
#define LEVELS_MAX 64

struct level {
    DIR *stream;
    struct wb_object object;
    char *name;
};

static void level_clear(void *data)
{
    struct level *level = data;

    closedir(level->stream);
    g_free(level->name);
}

/* How many directories nothing has placed yet. */
static unsigned count_unplaced(const struct wb_usage *usage)
{
    GHashTableIter iter;
    unsigned count = 0;
    void *value;

    g_hash_table_iter_init(&iter, usage->dirs);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        count += ((const struct wb_usage_dir *)value)->wanted;
    return count;
}

/*
 * Not what is mounted there: it might be our own mount, and wait for us. Looking must not change the times of the
 * user's directories, where that can be helped.
 */
static int open_dir(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME,
                           .resolve = RESOLVE_NO_XDEV};
    int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    if (fd < 0 && errno == EPERM) {
        how.flags &= ~(uint64_t)O_NOATIME;
        fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
    }
    return fd;
}

/* Goes down into a directory, if it is one that can be looked into. */
static void enter(struct wb_usage *usage, int dir_fd, const char *name)
{
    struct level level = {0};
    int fd = open_dir(dir_fd, name);

    if (fd < 0)
        return;
    if (wb_object_stat(usage->store, fd, NULL, &level.object, NULL, NULL) < 0 || !(level.stream = fdopendir(fd))) {
        close(fd);
        return;
    }
    level.name = g_strdup(name);
    g_array_append_val(usage->levels, level);
}

/* The directory that was just entered, if it is wanted, or all are, and those above it: placed. */
static void place(struct wb_usage *usage)
{
    const struct level *levels = (const struct level *)(const void *)usage->levels->data;
    guint depth = usage->levels->len - 1;
    struct wb_usage_dir *dir = usage->all ? wb_usage_dir(usage, levels[depth].object)
                                          : g_hash_table_lookup(usage->dirs, &levels[depth].object);

    if (!dir || !(dir->wanted || usage->all))
        return;
    usage->unplaced_dirs -= dir->wanted;
    dir->wanted = false;
    for (guint i = depth; i > 0; i--) {
        dir = wb_usage_dir(usage, levels[i].object);
        if (!dir || dir->name)
            return;
        dir->name = g_strdup(levels[i].name);
        dir->parent = levels[i - 1].object;
    }
}

static void step(struct wb_usage *usage)
{
    struct level *level = &g_array_index(usage->levels, struct level, usage->levels->len - 1);
    guint depth = usage->levels->len;
    struct dirent *entry;
    struct stat st;
    int r = 0;

    /* What cannot be read places nothing, as what cannot be entered: what lies there stays without a place. */
    if (!wb_next_entry(level->stream, &entry, &r)) {
        g_array_set_size(usage->levels, depth - 1);
        return;
    }
    if (depth == LEVELS_MAX ||
        (depth == 1 && (strcmp(entry->d_name, WB_STORE_NAME) == 0 || strcmp(entry->d_name, WB_STAGING_NAME) == 0)))
        return;
    if (entry->d_type != DT_DIR &&
        (entry->d_type != DT_UNKNOWN ||
         fstatat(dirfd(level->stream), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)))
        return;
    enter(usage, dirfd(level->stream), entry->d_name);
    if (usage->levels->len > depth)
        place(usage);
}

int wb_usage_tree(struct wb_usage *usage, int64_t deadline)
{
    if (!usage->levels) {
        usage->levels = g_array_new(FALSE, FALSE, sizeof(struct level));
        g_array_set_clear_func(usage->levels, level_clear);
        usage->unplaced_dirs = count_unplaced(usage);
        if (usage->unplaced_dirs > 0 || usage->all)
            enter(usage, usage->store->src_fd, ".");
    }
    while (usage->levels->len > 0 && (usage->unplaced_dirs > 0 || usage->all)) {
        if (usage->stop && usage->stop(usage->stop_data))
            return -ECANCELED;
        if (g_get_monotonic_time() > deadline)
            return 1;
        step(usage);
    }
    return 0;
}
