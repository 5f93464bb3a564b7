/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "wayback/confine.h"

#include "base/cleanup.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/filter.h"
#include "base/sandbox/landlock.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>

#define FILES_MAX 8

/* Where programs, their libraries and the files that these read are installed. */
static const char *const system_places[] = {"/usr", "/lib", "/lib64", "/bin", "/nix/store", "/gnu/store",
                                            "/etc/ld.so.cache", "/etc/ld.so.preload"};

static int enter_landlock(const char *name, const int *fds, size_t count)
{
    struct wb_landlock_place places[G_N_ELEMENTS(system_places) + 2 + FILES_MAX];
    g_autofree char *program = g_find_program_in_path(name);
    g_autofree char *directory = program ? g_path_get_dirname(program) : NULL;
    size_t own = 0, all;
    int r;

    for (; own < G_N_ELEMENTS(system_places); own++)
        places[own] = (struct wb_landlock_place){open(system_places[own], O_PATH | O_CLOEXEC), WB_LANDLOCK_PROGRAM};
    places[own++] = (struct wb_landlock_place){directory ? open(directory, O_PATH | O_CLOEXEC) : -1,
                                               WB_LANDLOCK_PROGRAM};
    places[own++] = (struct wb_landlock_place){open("/dev/null", O_PATH | O_CLOEXEC), WB_LANDLOCK_DEVICE};
    for (all = own; all < own + MIN(count, FILES_MAX); all++)
        places[all] = (struct wb_landlock_place){fds[all - own], WB_LANDLOCK_READ};
    r = wb_landlock_enter(places, all);
    for (size_t i = 0; i < own; i++)
        wb_close_fd(&places[i].fd);
    return r;
}

static int enter_filter(void)
{
    static const struct wb_filter_rule rules[] = {{SYS_clone, 0, WB_FILTER_HAS_NONE_OF, WB_FILTER_NAMESPACES},
                                                  {SYS_prlimit64, 0, WB_FILTER_IS, 0}};
    static const int more[] = {
        SYS_execve,
#ifdef SYS_vfork
        SYS_fork, SYS_vfork, /* the program may be a script */
#endif
    };
    const struct wb_filter_list lists[] = {wb_filter_basic, {more, G_N_ELEMENTS(more)}};
    const struct wb_filter filter = {
        .lists = lists, .list_count = G_N_ELEMENTS(lists),
        .rules = rules, .rule_count = G_N_ELEMENTS(rules), .refused = SECCOMP_RET_ERRNO | ENOSYS,
    };

    return wb_filter_enter(&filter);
}

int wb_confine_program(const char *name, const int *fds, size_t count)
{
    int r = wb_capabilities_keep(WB_CAP(CAP_DAC_READ_SEARCH)), next = enter_landlock(name, fds, count);

    r = r < 0 ? r : next;
    next = enter_filter();
    return r < 0 ? r : next;
}
