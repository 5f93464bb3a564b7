/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/session/privileges.h"

#include "base/cleanup.h"
#include "base/sandbox/capabilities.h"
#include "base/sandbox/landlock.h"
#include "daemon/system/report.h"
#include "daemon/system/seccomp.h"
#include "wayback/mounts.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Files of all users, whatever their modes; owners, modes and times as users change them. All that CAP_DAC_READ_SEARCH
 * would add is to open any file of a file system by its handle. */
#define FILES (WB_CAP(CAP_DAC_OVERRIDE) | WB_CAP(CAP_CHOWN) | WB_CAP(CAP_FOWNER) | WB_CAP(CAP_FSETID))
/* What is created is created as the caller (creds.h), devices among it. */
#define CREATION (WB_CAP(CAP_SETUID) | WB_CAP(CAP_SETGID) | WB_CAP(CAP_MKNOD))
/* security.capability; immutable and append-only files. */
#define ATTRIBUTES (WB_CAP(CAP_SETFCAP) | WB_CAP(CAP_LINUX_IMMUTABLE))
/* To unmount, whatever the path leads through; trusted.* and the rest of security.*. */
#define HELPER (WB_CAP(CAP_SYS_ADMIN) | WB_CAP(CAP_DAC_READ_SEARCH))

/* Where /proc hides the processes of others, who a caller is can be read by who might trace him. */
static bool proc_hides(void)
{
    g_autoptr(GPtrArray) list = wb_listed_mounts();
    bool hides = false;

    for (guint i = 0; i < list->len && !hides; i++) {
        const struct wb_listed *listed = list->pdata[i];
        bool is_proc = strcmp(listed->type, "proc") == 0 && strcmp(listed->point, "/proc") == 0;
        g_autofree char *value = is_proc ? wb_listed_option(listed, "hidepid") : NULL;

        hides = value && strcmp(value, "0") != 0 && strcmp(value, "off") != 0;
    }
    return hides;
}

int wb_privileges_drop_of_helper(void)
{
    return wb_capabilities_keep(HELPER);
}

/*
 * SRC and the store, and of the rest what the daemon reads of callers, of its own descriptors, of the file system below
 * and of the time zone, and the devices that it opens. The mount itself is not among them: the helper writes it back.
 */
static int enter_landlock(const struct wb_session *session)
{
    static const struct {
        const char *path;
        enum wb_landlock_access access;
    } paths[] = {
        {"/proc", WB_LANDLOCK_READ},           {"/sys/fs/ext4", WB_LANDLOCK_READ},
        {"/etc/localtime", WB_LANDLOCK_READ},  {"/usr/share/zoneinfo", WB_LANDLOCK_READ},
        {"/dev/null", WB_LANDLOCK_DEVICE},     {"/dev/fuse", WB_LANDLOCK_DEVICE},
    };
    struct wb_landlock_place places[G_N_ELEMENTS(paths) + 2] = {
        {session->src_fd, WB_LANDLOCK_CHANGE},
        {session->store ? session->store->dir_fd : -1, WB_LANDLOCK_CHANGE},
    };
    int r;

    /* The C library loads it when a thread is cancelled, which libfuse does at the end; then it cannot be found. */
    (void)!dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_GLOBAL);
    for (unsigned i = 0; i < G_N_ELEMENTS(paths); i++)
        places[i + 2] = (struct wb_landlock_place){open(paths[i].path, O_PATH | O_CLOEXEC), paths[i].access};
    r = wb_landlock_enter(places, G_N_ELEMENTS(places));
    for (unsigned i = 0; i < G_N_ELEMENTS(paths); i++)
        wb_close_fd(&places[i + 2].fd);
    return r;
}

/*
 * Not given up with the rest: being dumpable. Only root could look into a process of root, and where a container's root
 * may not trace, whoever mounts a moment of a covered tree would no longer find the way below (control.h, pid).
 */
int wb_privileges_drop(const struct wb_session *session, struct wb_error *why)
{
    const struct wb_options *options = session->options;
    uint64_t kept = FILES | CREATION | ATTRIBUTES;
    int r;

    if (geteuid() != 0)
        return 0;
    if (proc_hides())
        kept |= WB_CAP(CAP_SYS_PTRACE);
    r = wb_capabilities_keep(kept);
    if (r < 0)
        wb_log_msg("cannot drop unused capabilities: %s", strerror(-r));
    r = options->landlock ? enter_landlock(session) : 0;
    if (r < 0)
        return wb_error_set(why, r,
                            "%s: the mount option landlock is not available (%s); it needs Linux 5.19 or "
                            "later, "
                            "with Landlock enabled",
                            session->mountpoint, strerror(-r));
    r = options->noseccomp ? 0 : wb_seccomp_enter(session->transport != NULL);
    if (r < 0)
        wb_log_msg("system calls are not filtered: %s", strerror(-r));
    return 0;
}
