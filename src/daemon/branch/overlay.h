/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Layers that nobody sees, and the kernel's overlayfs over them. Each layer is a mount of ours with
 * a daemon of its own, made in a directory that only root may enter. Once the overlay is mounted the
 * layers are detached: the overlay keeps them alive, and when it is unmounted their daemons end.
 */

#include "daemon/options/options.h"
#include "wayback/control.h"
#include <sys/types.h>

enum { WB_LAYER_LOWER, WB_LAYER_UPPER, WB_LAYERS };

struct wb_layers {
    char *home;               /* the private directory */
    char *points[WB_LAYERS];  /* where the layers are mounted in it */
    pid_t daemons[WB_LAYERS]; /* 0: not started */
};

/* 0, or -errno with a line in `why`. */
int wb_layers_init(struct wb_layers *layers, struct wb_error *why);

/*
 * Mounts a layer, with the mount point in `options` replaced; `cover` is the mount that is unmounted when the daemon is
 * asked to end. 0, or -errno after a line on standard error.
 */
int wb_layer_start(struct wb_layers *layers, int layer, struct wb_options *options);

/* Asks the layer's daemon. `ret` holds WB_CONTROL_DATA_MAX bytes. 0 or -errno. */
int wb_layer_ask(const struct wb_layers *layers, int layer, uint32_t command, void *ret);

/* Mounts `data` (options of overlayfs) at `point`, called `name`, with the limits of the layers (mount_limits.h). 0, or
 * -errno with a line in `why`. */
int wb_overlay_mount(const struct wb_layers *layers, const struct wb_options *options, const char *name,
                     const char *point, const char *data, struct wb_error *why);

/*
 * The layers leave sight: they end when what was mounted over them does, or, if nothing was, now.
 * The daemons go on.
 */
void wb_layers_detach(struct wb_layers *layers);

/* Until they have ended; a signal unmounts `point`. The exit status. `point` NULL: they are ending, and what they
 * had to say was said. */
int wb_layers_wait(struct wb_layers *layers, const char *point);

/* Frees what it holds. */
void wb_layers_deinit(struct wb_layers *layers);
