/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/branch/overlay.h"

#include "base/cleanup.h"
#include "daemon/session/daemonize.h"
#include "daemon/system/detach.h"
#include "daemon/system/mount_limits.h"
#include "wayback/control.h"
#include "wayback/quote.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- layers ---------------------------------------------------------------------------------- */

int wb_layers_init(struct wb_layers *layers, struct wb_error *why)
{
    static const char *const names[WB_LAYERS] = {"lower", "upper"};

    *layers = (struct wb_layers){0};
    /* mkdtemp's mode is 0700. The name is how a dead branch is recognised (detach.c). */
    layers->home = g_strdup_printf("%s/" WB_LAYERS_PREFIX "XXXXXX", access("/run", W_OK) == 0 ? "/run" : "/tmp");
    if (!mkdtemp(layers->home)) {
        int r = wb_error_set(why, -errno, "cannot create a directory for the layers: %s: %s", layers->home,
                             g_strerror(errno));

        g_clear_pointer(&layers->home, g_free);
        return r;
    }
    for (int i = 0; i < WB_LAYERS; i++) {
        layers->points[i] = g_build_filename(layers->home, names[i], NULL);
        if (mkdir(layers->points[i], 0700) < 0)
            return wb_error_set(why, -errno, "%s: %s", layers->points[i], g_strerror(errno));
    }
    return 0;
}

int wb_layer_start(struct wb_layers *layers, int layer, struct wb_options *options)
{
    pid_t pid;
    int fd;

    g_free(options->mountpoint);
    options->mountpoint = g_strdup(layers->points[layer]);
    options->plain = true;
    fflush(NULL);
    pid = wb_run_start(options, &fd);
    if (pid < 0) {
        fprintf(stderr, "wayback: cannot start a daemon: %s\n", g_strerror(-pid));
        return pid;
    }
    layers->daemons[layer] = pid;
    return wb_run_wait(fd) < 0 ? -EIO : 0;
}

int wb_layer_ask(const struct wb_layers *layers, int layer, uint32_t command, void *ret)
{
    _cleanup_close_ int fd = open(layers->points[layer], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g_autofree struct wb_control *control = g_new0(struct wb_control, 1);

    control->version = WB_CONTROL_VERSION;
    control->command = command;
    if (fd < 0 || ioctl(fd, WB_CONTROL_IOCTL, control) < 0)
        return -errno;
    memcpy(ret, control->data, sizeof(control->data));
    return wb_control_check(command, 0, control);
}

void wb_layers_detach(struct wb_layers *layers)
{
    for (int i = 0; i < WB_LAYERS; i++) {
        if (!layers->points[i])
            continue;
        umount2(layers->points[i], MNT_DETACH | UMOUNT_NOFOLLOW);
        rmdir(layers->points[i]);
    }
    if (layers->home)
        rmdir(layers->home);
}

int wb_layers_wait(struct wb_layers *layers, const char *point)
{
    int result = WB_RUN_DONE, signal_number, left = 0;
    sigset_t set;

    wb_run_signals(&set);
    for (int i = 0; i < WB_LAYERS; i++)
        left += layers->daemons[i] > 0;
    while (left > 0) {
        int status;

        for (int i = 0; i < WB_LAYERS; i++) {
            if (layers->daemons[i] <= 0 || waitpid(layers->daemons[i], &status, WNOHANG) != layers->daemons[i])
                continue;
            layers->daemons[i] = 0;
            left--;
            if (status == 0)
                continue;
            result = WB_RUN_FAILED;
            if (point) {
                g_autofree char *shown = wb_quote_text(point);

                fprintf(stderr, "wayback: %s: the daemon of its %s layer died; unmount it and mount it again\n", shown,
                        i == WB_LAYER_LOWER ? "lower" : "upper");
            }
        }
        if (left > 0 && sigwait(&set, &signal_number) == 0 && signal_number != SIGCHLD && point)
            wb_detach(point);
    }
    return result;
}

void wb_layers_deinit(struct wb_layers *layers)
{
    for (int i = 0; i < WB_LAYERS; i++)
        g_free(layers->points[i]);
    g_free(layers->home);
    *layers = (struct wb_layers){0};
}

/* ---- the overlay ----------------------------------------------------------------------------- */

/* What mount(2) takes as a flag of the words that were meant for libfuse. */
static unsigned long flags_of(const struct wb_options *options, const struct wb_mount_limits *limits)
{
    static const struct {
        const char *word;
        unsigned long flag;
    } words[] = {
        {"noatime", MS_NOATIME}, {"nodiratime", MS_NODIRATIME},
        {"sync", MS_SYNCHRONOUS}, {"dirsync", MS_DIRSYNC}, {"nosymfollow", MS_NOSYMFOLLOW},
    };
    g_auto(GStrv) given = g_strsplit(options->fuse->str, ",", -1);
    unsigned long flags = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(words); i++)
        if (g_strv_contains((const char *const *)given, words[i].word))
            flags |= words[i].flag;
    flags |= limits->nodev ? MS_NODEV : 0;
    flags |= limits->nosuid ? MS_NOSUID : 0;
    flags |= limits->noexec ? MS_NOEXEC : 0;
    return flags | (options->read_only ? MS_RDONLY : 0);
}

/* The layers are mounted with the limits of what they show; the overlay itself knows nothing of them. */
static int find_limits(const struct wb_layers *layers, const struct wb_options *options,
                       struct wb_mount_limits *limits)
{
    for (int i = 0; i < WB_LAYERS; i++) {
        _cleanup_close_ int fd = open(layers->points[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? -errno : wb_mount_limits_add(limits, fd);

        if (r < 0)
            return r;
    }
    wb_mount_limits_finish(limits, options);
    return 0;
}

int wb_overlay_mount(const struct wb_layers *layers, const struct wb_options *options, const char *name,
                     const char *point, const char *data, struct wb_error *why)
{
    struct wb_mount_limits limits = {0};
    int r = find_limits(layers, options, &limits);

    if (r < 0)
        return wb_error_set(why, r, "%s: cannot read the mount flags of the branch's layers (%s)", point,
                            g_strerror(-r));
    if (mount(name, point, "overlay", flags_of(options, &limits), data) == 0)
        return 0;
    if (errno == ENODEV)
        return wb_error_set(why, -ENODEV,
                            "cannot mount on %s: the kernel has no overlayfs; try `modprobe "
                            "overlay`",
                            point);
    return wb_error_set(why, -errno, "cannot mount an overlay on %s: %s; see the kernel log", point, g_strerror(errno));
}
