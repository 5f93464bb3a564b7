/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrm.h"
#include "common/cli.h"
#include "client/control.h"
#include <errno.h>

/* One that waits to be erased. */
struct pending {
    struct wb_place place;
    unsigned flags;
    bool hit;
};

static struct wb_erase_batch *batch; /* NULL: none is begun */
static struct wb_mount *mount;       /* of it               */
static GPtrArray *pending;

static void pending_free(void *data)
{
    struct pending *one = data;

    g_free(one->place.given);
    g_free(one->place.path);
    g_free(one);
}

/* As a daemon does it that knows no other way, or one that is alone. */
static void erase_alone(const struct pending *one)
{
    struct wb_control_erased erased = {0};
    int r = wb_request_erase(one->place.mount->root_fd, one->place.path, one->flags, 0, &erased);

    vrm_report(&one->place, one->hit, r, &erased);
}

static void carry_out(void)
{
    const struct wb_control_erased_name *names = NULL;
    int r = pending->len > 1 ? wb_erase_batch_carry_out(batch, &names) : -ENOTTY;
    bool alone = r == -ENOTTY || r == -EINVAL;

    for (guint i = 0; i < pending->len && !(alone && wb_cli_interrupted()); i++) {
        const struct pending *one = pending->pdata[i];

        if (alone) {
            erase_alone(one);
        } else if (r < 0) {
            vrm_report(&one->place, one->hit, r, NULL);
        } else {
            struct wb_control_erased erased = {names[i].objects, names[i].bytes};

            vrm_report(&one->place, one->hit, -(int)names[i].error, &erased);
        }
    }
}

void vrm_batch_end(void)
{
    if (!batch)
        return;
    if (!wb_cli_interrupted())
        carry_out();
    batch = wb_erase_batch_free(batch);
    g_clear_pointer(&pending, g_ptr_array_unref);
}

static void begin(struct wb_mount *of)
{
    batch = wb_erase_batch_new(of->root_fd);
    mount = of;
    pending = g_ptr_array_new_with_free_func(pending_free);
}

void vrm_batch_add(const struct wb_place *place, bool hit, unsigned flags)
{
    struct pending *one = g_new0(struct pending, 1);
    bool added;

    *one = (struct pending){{place->mount, g_strdup(place->given), g_strdup(place->path)}, flags, hit};
    if (batch && mount != place->mount)
        vrm_batch_end();
    if (!batch)
        begin(place->mount);
    added = wb_erase_batch_add(batch, place->path, flags);
    if (!added) {
        vrm_batch_end();
        begin(place->mount);
        added = wb_erase_batch_add(batch, place->path, flags);
    }
    if (added) {
        g_ptr_array_add(pending, one);
    } else {
        /* Longer than any path in a request: that is said. */
        erase_alone(one);
        pending_free(one);
    }
}
