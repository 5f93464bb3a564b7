/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that reads the store of somebody else, and can open nothing but that store and its tree.
 *
 * The code that decodes a store is the code that repairs it, so a process that only checked it first would hand on the
 * same bytes. Therefore all of it runs in a process to which nothing else is left. It keeps its mount namespace: paths
 * remain those that the user knows, signposts that a repair writes are right, and the mounts that others use are seen.
 */
#include "wayback/confine.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/filter.h"
#include "base/sandbox/landlock.h"
#include "base/sandbox/prepare.h"
#include "store/directory/signpost.h"
#include "store/inflight/mounted.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROCESSES "/proc/" /* a descriptor of a daemon: the directory that its mount covers */

/* Files of all users (CAP_FOWNER: without changing their access times); to repair them, also everything that recovery
 * may put back. */
#define READING (WB_CAP(CAP_DAC_READ_SEARCH) | WB_CAP(CAP_FOWNER))
#define READING_ATTRS WB_CAP(CAP_SYS_ADMIN)
#define CHANGING \
    (WB_CAP(CAP_DAC_OVERRIDE) | WB_CAP(CAP_CHOWN) | WB_CAP(CAP_FOWNER) | WB_CAP(CAP_FSETID) | WB_CAP(CAP_SETFCAP) | \
     WB_CAP(CAP_MKNOD) | WB_CAP(CAP_LINUX_IMMUTABLE) | WB_CAP(CAP_SYS_ADMIN) | WB_CAP(CAP_SYS_RESOURCE))

static int enter_filter(bool changes)
{
    const struct wb_filter_rule rules[] = {
        {SYS_clone, 0, WB_FILTER_HAS_NONE_OF, WB_FILTER_NAMESPACES},
        {SYS_kill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_tgkill, 0, WB_FILTER_IS, (uint32_t)getpid()},
        {SYS_prlimit64, 0, WB_FILTER_IS, 0},
    };
    const struct wb_filter filter = {
        .lists = &wb_filter_basic, .list_count = 1,
        .rules = rules, .rule_count = G_N_ELEMENTS(rules), .changes = changes,
        .refused = SECCOMP_RET_ERRNO | ENOSYS,
    };

    return wb_filter_enter(&filter);
}

/* Takes the descriptor. */
static void add_place(GArray *places, int fd, enum wb_landlock_access access)
{
    const struct wb_landlock_place place = {fd, access};

    g_array_append_val(places, place);
}

static void add_system(GArray *places)
{
    static const char *const paths[] = {"/proc", "/etc/localtime", "/usr/share/zoneinfo"};

    for (size_t i = 0; i < G_N_ELEMENTS(paths); i++)
        add_place(places, open(paths[i], O_PATH | O_CLOEXEC), WB_LANDLOCK_READ);
}

/* Each barrier as far as the kernel, or the container, has and permits it. Closes the places. */
static int confine(GArray *places, unsigned flags)
{
    bool changes = flags & WB_CONFINE_CHANGES;
    int results[3], r = 0;

    wb_sandbox_prepare();
    add_system(places);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    results[0] = wb_landlock_enter((const struct wb_landlock_place *)places->data, places->len);
    results[1] =
        wb_capabilities_keep(changes ? CHANGING : READING | (flags & WB_CONFINE_ATTRS ? READING_ATTRS : 0));
    results[2] = enter_filter(changes);
    for (guint i = 0; i < places->len; i++)
        wb_close_fd(&g_array_index(places, struct wb_landlock_place, i).fd);
    for (size_t i = 0; r == 0 && i < G_N_ELEMENTS(results); i++)
        r = wb_sandbox_is_missing(results[i]) ? 0 : results[i];
    return r;
}

/*
 * Where the signposts lead. A directory that does not have the store may be any: of it, only what shows that is
 * readable.
 */
static void add_signposts(GArray *places, int dir_fd, enum wb_landlock_access access)
{
    static const char *const names[] = {WB_HEADER_NAME, WB_ARRIVING_NAME, WB_SIGNPOST_NAME};
    struct wb_signpost_place led[WB_SIGNPOST_PLACES_MAX];
    size_t count = wb_signpost_places(dir_fd, led);

    for (size_t i = 0; i < count; i++) {
        wb_mounted_note(led[i].fd);
        for (size_t k = 0; !led[i].belongs && k < G_N_ELEMENTS(names); k++)
            add_place(places, openat(led[i].fd, names[k], O_PATH | O_NOFOLLOW | O_CLOEXEC), WB_LANDLOCK_READ);
        add_place(places, led[i].fd, led[i].belongs ? access : WB_LANDLOCK_LIST);
    }
}

/* Whether the path leads through a link of /proc to a directory of a process. */
static bool is_through_process(const char *path)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
    _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    return fd < 0 && (errno == ELOOP || g_str_has_prefix(path, PROCESSES));
}

/* A process that is confined cannot reach the directories of another one any more: it keeps a descriptor of its own. */
static void keep_path(char **path, int fd)
{
    char link[32];

    if (!is_through_process(*path))
        return;
    fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (fd < 0)
        return;
    g_free(*path);
    *path = g_strdup(wb_fd_path(fd, link));
}

int wb_confine_store(char **tree, char **store, unsigned flags, struct wb_error *why)
{
    enum wb_landlock_access access = flags & WB_CONFINE_CHANGES ? WB_LANDLOCK_CHANGE : WB_LANDLOCK_READ;
    int fd = open(*tree, O_PATH | O_DIRECTORY | O_CLOEXEC), r;
    _cleanup_close_ int inside =
        fd < 0 ? -1 : openat(fd, WB_STORE_NAME, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    g_autoptr(GArray) places = NULL;

    /* The caller cannot open it either, and reports that. */
    if (fd < 0)
        return 0;
    places = g_array_new(FALSE, FALSE, sizeof(struct wb_landlock_place));
    wb_mounted_note(fd);
    keep_path(tree, fd);
    add_place(places, fd, access);
    if (inside >= 0) {
        wb_mounted_note(inside);
        add_signposts(places, inside, access);
    }
    fd = *store ? open(*store, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        wb_mounted_note(fd);
        keep_path(store, fd);
        add_place(places, fd, access);
        add_signposts(places, fd, access);
    }
    r = confine(places, flags);
    return r < 0 ? wb_error_set(why, r, "cannot be confined to the tree and its store: %s", g_strerror(-r)) : 0;
}

int wb_confine_files(const char *const *paths, size_t count, struct wb_error *why)
{
    g_autoptr(GArray) places = g_array_new(FALSE, FALSE, sizeof(struct wb_landlock_place));
    int r;

    for (size_t i = 0; i < count; i++)
        add_place(places, open(paths[i], O_PATH | O_CLOEXEC), WB_LANDLOCK_READ);
    r = confine(places, 0);
    return r < 0 ? wb_error_set(why, r, "cannot be confined to the files: %s", g_strerror(-r)) : 0;
}
