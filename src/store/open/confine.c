/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that reads the store of somebody else, and can reach nothing but that store and its tree.
 *
 * The code that decodes a store is the code that repairs it, so a process that only checked it first would hand on the
 * same bytes. Therefore all of it runs in a process to which nothing else is left.
 */
#include "wayback/confine.h"

#include "base/cleanup.h"
#include "base/enclose.h"
#include "base/io.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/filter.h"
#include "base/sandbox/landlock.h"
#include "store/directory/signpost.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OTHERS "/proc/" /* the directory of another process, whose path may be covered by a mount */

/* The tree, the store, and each directory that the signposts lead to. */
#define PLACES_MAX (2 + WB_SIGNPOST_PLACES_MAX)

/* Files of all users (CAP_FOWNER: without changing their access times); to repair them, also everything that recovery
 * may put back. */
#define READING (WB_CAP(CAP_DAC_READ_SEARCH) | WB_CAP(CAP_FOWNER))
#define READING_ATTRS WB_CAP(CAP_SYS_ADMIN)
#define CHANGING \
    (WB_CAP(CAP_DAC_OVERRIDE) | WB_CAP(CAP_CHOWN) | WB_CAP(CAP_FOWNER) | WB_CAP(CAP_FSETID) | \
     WB_CAP(CAP_LINUX_IMMUTABLE) | WB_CAP(CAP_SYS_ADMIN) | WB_CAP(CAP_SYS_RESOURCE))

struct places {
    size_t count;
    int fds[PLACES_MAX];
    char *paths[PLACES_MAX]; /* absolute */
};

static void places_clear(struct places *places)
{
    for (size_t i = 0; i < places->count; i++) {
        wb_close_fd(&places->fds[i]);
        g_free(places->paths[i]);
    }
    places->count = 0;
}

static bool covers(const char *outer, const char *inner)
{
    size_t length = strlen(outer);

    return strncmp(outer, inner, length) == 0 && (inner[length] == '/' || !inner[length]);
}

/* The path of an open directory; `otherwise` if `given` is a descriptor of another process, or there is no path. */
static char *path_of(int fd, const char *given, const char *otherwise)
{
    char link[32];
    char *path = g_str_has_prefix(given, OTHERS) ? NULL : g_file_read_link(wb_fd_path(fd, link), NULL);

    if (path && path[0] == '/')
        return path;
    g_free(path);
    return g_strdup(otherwise);
}

/* Takes the descriptor. */
static void add(struct places *places, int fd, char *path)
{
    places->fds[places->count] = fd;
    places->paths[places->count++] = path;
}

static void add_signposts(struct places *places, int dir_fd)
{
    struct wb_signpost_place *led = g_new0(struct wb_signpost_place, WB_SIGNPOST_PLACES_MAX);
    size_t count = wb_signpost_places(dir_fd, led, WB_SIGNPOST_PLACES_MAX);

    for (size_t i = 0; i < count; i++)
        add(places, led[i].fd, g_strdup(led[i].path));
    g_free(led);
}

static int find_places(struct places *places, const char *tree, const char *store)
{
    int fd = open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int inside = -1;

    if (fd < 0)
        return -errno;
    add(places, fd, path_of(fd, tree, "/tree"));
    if (!store) {
        inside = openat(fd, WB_STORE_NAME, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inside >= 0)
            add_signposts(places, inside);
        return 0;
    }
    fd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    add(places, fd, path_of(fd, store, "/store"));
    add_signposts(places, fd);
    return 0;
}

/*
 * Clones of two directories of one mount are two mounts, between which nothing can be renamed, so that a repair would
 * look for deleted files in the wrong place. Then, and for the root directory, only the other barriers remain.
 */
static int leave_root(const struct places *places, bool read_only)
{
    struct wb_enclosed enclosed[PLACES_MAX];
    uint64_t mounts[PLACES_MAX];
    struct statx stx;
    size_t n = 0;

    for (size_t i = 0; i < places->count; i++) {
        bool covered = false;

        for (size_t k = 0; k < i && !covered; k++)
            covered = covers(places->paths[k], places->paths[i]);
        if (covered)
            continue;
        if (!strcmp(places->paths[i], "/") || covers("/proc", places->paths[i]) ||
            statx(places->fds[i], "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0 || !(stx.stx_mask & STATX_MNT_ID))
            return 0;
        for (size_t k = 0; k < n; k++)
            if (mounts[k] == stx.stx_mnt_id || covers(places->paths[i], enclosed[k].path))
                return 0;
        mounts[n] = stx.stx_mnt_id;
        enclosed[n++] = (struct wb_enclosed){places->fds[i], places->paths[i]};
    }
    return wb_enclose(enclosed, n, read_only);
}

static int enter_landlock(const int *fds, size_t count, enum wb_landlock_access access)
{
    static const char *const paths[] = {"/proc", "/etc/localtime", "/usr/share/zoneinfo"};
    struct wb_landlock_place *places = g_new(struct wb_landlock_place, count + G_N_ELEMENTS(paths));
    size_t all = 0;
    int r;

    for (; all < G_N_ELEMENTS(paths); all++)
        places[all] = (struct wb_landlock_place){open(paths[all], O_PATH | O_CLOEXEC), WB_LANDLOCK_READ};
    for (size_t i = 0; i < count; i++)
        places[all++] = (struct wb_landlock_place){fds[i], access};
    r = wb_landlock_enter(places, all);
    for (size_t i = 0; i < G_N_ELEMENTS(paths); i++)
        wb_close_fd(&places[i].fd);
    g_free(places);
    return r;
}

static int enter_filter(bool changes)
{
    const struct wb_filter_rule rules[] = {
        {SYS_clone, 0, WB_FILTER_HAS_NONE_OF, WB_FILTER_NAMESPACES},
        {SYS_kill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_tgkill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_prlimit64, 0, WB_FILTER_IS, 0},
    };
    const struct wb_filter_list lists[] = {wb_filter_basic, wb_filter_changes};
    const struct wb_filter filter = {
        .lists = lists, .list_count = changes ? 2 : 1,
        .rules = rules, .rule_count = G_N_ELEMENTS(rules), .refused = SECCOMP_RET_ERRNO | ENOSYS,
    };

    return wb_filter_enter(&filter);
}

/* Each barrier as far as the kernel, or the container, permits it. */
static int confine(const int *fds, size_t count, unsigned flags)
{
    bool changes = flags & WB_CONFINE_CHANGES;
    int r, next;

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    r = enter_landlock(fds, count, changes ? WB_LANDLOCK_CHANGE : WB_LANDLOCK_READ);
    next = wb_capabilities_keep(changes ? CHANGING : READING | (flags & WB_CONFINE_ATTRS ? READING_ATTRS : 0));
    r = r == 0 || r == -EOPNOTSUPP ? next : r;
    next = enter_filter(changes);
    r = r == 0 || r == -EPERM ? next : r;
    return r == -EOPNOTSUPP || r == -EPERM ? 0 : r;
}

/* The path from now on. */
static void keep_path(char **path, struct places *places, size_t i, bool enclosed)
{
    char link[32];
    bool other = g_str_has_prefix(*path, OTHERS);

    if (!enclosed && !other)
        return;
    g_free(*path);
    *path = enclosed ? g_steal_pointer(&places->paths[i]) : g_strdup(wb_fd_path(places->fds[i], link));
    if (!enclosed)
        places->fds[i] = -1; /* stays open */
}

int wb_confine_store(char **tree, char **store, unsigned flags, struct wb_error *why)
{
    struct places places = {0};
    int r = find_places(&places, *tree, *store);

    tzset();
    /* If a place cannot be opened, the caller reports it as always; it is not read then. */
    r = r < 0 ? 0 : leave_root(&places, !(flags & WB_CONFINE_CHANGES));
    if (r >= 0) {
        bool enclosed = r > 0;

        wb_enclose_close_directories(places.fds, places.count);
        r = confine(places.fds, places.count, flags);
        if (places.count > 0)
            keep_path(tree, &places, 0, enclosed);
        if (*store && places.count > 1)
            keep_path(store, &places, 1, enclosed);
    }
    places_clear(&places);
    return r < 0 ? wb_error_set(why, r, "cannot be confined to the tree and its store: %s", g_strerror(-r)) : 0;
}

int wb_confine_files(const char *const *paths, size_t count, struct wb_error *why)
{
    int *fds = g_new(int, count + 1);
    struct stat st;
    int r;

    /* A pipe has no place, and Landlock does not restrict it. */
    for (size_t i = 0; i < count; i++) {
        fds[i] = open(paths[i], O_PATH | O_CLOEXEC);
        if (fds[i] >= 0 && (fstat(fds[i], &st) < 0 || S_ISFIFO(st.st_mode)))
            wb_close_fd(&fds[i]);
    }
    tzset();
    r = confine(fds, count, 0);
    for (size_t i = 0; i < count; i++)
        wb_close_fd(&fds[i]);
    g_free(fds);
    return r < 0 ? wb_error_set(why, r, "cannot be confined to the files: %s", g_strerror(-r)) : 0;
}

bool wb_confine_has_landlock(void)
{
    return wb_landlock_exists();
}
