/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The files that were versions of a name, once no record tells of them any more. */
#include "maintain/thin/thin_replaced.h"

#include "maintain/prune/prune_parts.h"
#include "store/directory/folder.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>

/* The note has to be there for as long as the file is. */
static void forget_gone(const struct wb_thinner *thinner, struct wb_object object)
{
    if (wb_grave_has(thinner->store, object, false) == 0)
        wb_grave_forget_gone(thinner->store, object);
}

int wb_thin_remove_bodies(struct wb_thinner *thinner, GArray *bodies)
{
    const struct wb_thin_options *options = &thinner->options;
    struct wb_prune_count count = {0};
    struct wb_prune prune = {.store = thinner->store, .bodies = bodies, .count = &count,
                             .held = g_array_new(FALSE, FALSE, sizeof(int)),
                             .bundles = wb_bundle_objects_new(),
                             .options = {.before = WB_WHEN_PRESENT, .dry_run = options->dry_run,
                                         .stop = options->stop, .own = options->own, .release = options->release,
                                         .in_use = options->in_use, .data = options->data}};
    int r = wb_prune_remove_bodies(&prune);

    for (guint i = 0; !options->dry_run && i < bodies->len; i++)
        forget_gone(thinner, g_array_index(bodies, struct wb_prune_body, i).object);
    thinner->count->bodies += count.bodies;
    thinner->count->body_bytes += count.body_bytes;
    thinner->count->log_bytes += count.log_bytes;
    thinner->count->image_bytes += count.image_bytes;
    thinner->count->kept += count.kept;
    if (count.error)
        thinner->count->error = count.error;
    g_array_unref(prune.held);
    g_hash_table_unref(prune.bundles);
    return r;
}

/* ---- what a crash left ----------------------------------------------------------------------- */

struct rest {
    struct wb_thinner *thinner;
    GArray *bodies;
};

static int take_noted(void *data, int fd, const char *name)
{
    struct rest *rest = data;
    struct wb_thinner *thinner = rest->thinner;
    struct wb_prune_body body = {0};
    char path[WB_OBJECT_PATH_MAX];
    enum wb_object_file file;
    struct stat st;
    guint moments;

    if (wb_object_file_parse(name, &body.object, &file) < 0 || file != WB_FILE_GONE)
        return 0;
    wb_object_path(body.object, WB_FILE_DATA, path);
    wb_thin_told_of(&thinner->told, body.object, &moments);
    if (moments == 0 && !thinner->options.dry_run)
        forget_gone(thinner, body.object);
    if (moments > 0 || fstatat(thinner->store->grave_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    body.ctime = st.st_ctim;
    g_array_append_val(rest->bodies, body);
    return 0;
}

int wb_thin_replaced_rest(struct wb_thinner *thinner, unsigned folder)
{
    struct rest rest = {thinner, NULL};
    int r;

    /* Only who knows what all catalogs tell knows of what none does. */
    if (thinner->told.blind || thinner->told.lacks->len > 0 || thinner->store->grave_fd < 0)
        return 0;
    rest.bodies = g_array_new(FALSE, FALSE, sizeof(struct wb_prune_body));
    r = wb_folder_each(thinner->store->dir_fd, folder, take_noted, &rest);
    if (r == 0 && rest.bodies->len > 0 && !thinner->options.dry_run)
        r = wb_thin_remove_bodies(thinner, rest.bodies);
    g_array_unref(rest.bodies);
    return r;
}
