/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/control/changes_below.h"

#include "daemon/control/control.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "format/object_key.h"
#include "store/object/locate.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Directories remembered within one request. */
#define DIRS_MAX 4096

struct step {
    struct wb_object object;
    char name[WB_NAME_MAX + 1];
};

/* A directory at some time, seen from the path asked for. */
struct place {
    int below;
    char *path;
    GArray *above; /* struct wb_object: those whose entries the path names */
};

static void place_free(void *data)
{
    struct place *place = data;

    g_free(place->path);
    g_array_unref(place->above);
    g_free(place);
}

/* ---- what is asked for ----------------------------------------------------------------------------- */

static char *path_of(struct wb_spot *dir, const char *name)
{
    GString *path = g_string_new(name);

    for (; dir && wb_spot_parent(dir); dir = wb_spot_parent(dir)) {
        if (path->len > 0)
            g_string_prepend_c(path, '/');
        g_string_prepend(path, wb_spot_name(dir));
    }
    return g_string_free(path, FALSE);
}

int wb_below_init(struct wb_below *below, const struct wb_request *request, int64_t *until)
{
    struct wb_spot *dir __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r;

    *below = (struct wb_below){.request = request, .doors = wb_doors_take(request)};
    below->dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, place_free);
    below->allowed = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r == 0)
        r = wb_control_may_read(request, dir, name);
    if (r == 0)
        r = wb_control_strip_moment(request, dir, name, until);
    if (r < 0)
        return r;
    r = wb_control_entry_or_last(request, dir, name, &below->spot);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    below->object = wb_spot_object(below->spot);
    below->is_dir = wb_spot_type(below->spot) == S_IFDIR;
    below->path = path_of(dir, name);
    return 0;
}

void wb_below_deinit(struct wb_below *below)
{
    wb_doors_give(below->request, below->doors);
    wb_spot_unref(below->spot);
    g_free(below->path);
    g_hash_table_unref(below->dirs);
    g_hash_table_unref(below->allowed);
}

/* ---- where a directory was --------------------------------------------------------------------------- */

/* From `dir` up to what was asked for, or to the root, whose step is left out. *ret_met: it was met. */
static int climb(struct wb_below *below, struct wb_change_reader *reader, struct wb_object dir, int64_t when,
                 GArray *steps, bool *ret_met, bool *ret_settled)
{
    struct wb_object root = below->request->session->store->header.root;

    *ret_settled = true;
    for (struct wb_object at = dir, parent;; at = parent) {
        struct step step = {.object = at};
        bool settled;
        int r;

        *ret_met = below->is_dir && wb_object_equal(at, below->object);
        if (*ret_met || wb_object_equal(at, root))
            return 0;
        if (steps->len == WB_LOCATE_STEPS_MAX)
            return WB_ABSENT;
        r = wb_change_place(reader, at, when, &parent, step.name, &settled);
        if (r != 0)
            return r == -EIO ? WB_ABSENT : r;
        if (wb_object_is_none(parent))
            return WB_ABSENT;
        *ret_settled &= settled;
        g_array_append_val(steps, step);
    }
}

/* The directories in which the names of these steps are. */
static GArray *above_of(const struct wb_below *below, const GArray *steps, bool met)
{
    GArray *above = g_array_new(FALSE, FALSE, sizeof(struct wb_object));

    for (guint i = 1; i < steps->len; i++)
        g_array_append_val(above, g_array_index(steps, struct step, i).object);
    if (steps->len > 0)
        g_array_append_val(above, *(met ? &below->object : &below->request->session->store->header.root));
    return above;
}

static char *join_steps(const GArray *steps)
{
    GString *path = g_string_new("");

    for (guint i = steps->len; i-- > 0;) {
        if (path->len > 0)
            g_string_append_c(path, '/');
        g_string_append(path, g_array_index(steps, struct step, i).name);
    }
    return g_string_free(path, FALSE);
}

/* ---- rights -------------------------------------------------------------------------------------------- */

static int may(struct wb_below *below, struct wb_spot *spot, int mask, bool *ret)
{
    struct wb_object object = wb_spot_object(spot);
    unsigned known = GPOINTER_TO_UINT(g_hash_table_lookup(below->allowed, &object));
    unsigned shift = mask & R_OK ? 0 : 2;
    int r;

    if (!(known >> shift & 3)) {
        r = wb_past_may_now(below->request->session, below->request->req, spot, mask);
        if (r < 0 && r != -EACCES && r != -EPERM && r != -EIO)
            return r;
        known |= (r == 0 ? 1u : 2u) << shift;
        g_hash_table_insert(below->allowed, g_memdup2(&object, sizeof(object)), GUINT_TO_POINTER(known));
    }
    *ret = (known >> shift & 3) == 1;
    return 0;
}

/* Whether the caller may list the last directory, and those on the way to it from `top` (NULL: the root): the path
 * names what is in them. */
static int may_list(struct wb_below *below, struct wb_spot *top, const GArray *steps, bool *ret)
{
    struct wb_history *history = below->request->session->history;
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    int r;

    *ret = true;
    if (fuse_req_ctx(below->request->req)->uid == 0)
        return 0;
    if (top)
        spot = wb_spot_ref(top);
    r = top ? 0 : wb_spot_root(history, WB_WHEN_PRESENT, &spot);
    if (r == 0)
        r = may(below, spot, R_OK | X_OK, ret);
    for (guint i = steps->len; r == 0 && *ret && i-- > 0;) {
        const struct step *step = &g_array_index(steps, struct step, i);
        struct wb_spot *child;

        r = wb_spot_present(history, spot, step->name, step->object, S_IFDIR, &child);
        if (r != 0)
            break;
        wb_spot_unref(spot);
        spot = child;
        r = may(below, spot, R_OK | X_OK, ret);
    }
    return r;
}

/* ---- a change ------------------------------------------------------------------------------------------- */

/* The part of `path` (from the root) below what was asked for; NULL: it is not. "" is itself. */
static const char *strip(const struct wb_below *below, const char *path)
{
    size_t length = strlen(below->path);

    if (strncmp(path, below->path, length) != 0 || (length > 0 && path[length] && path[length] != '/'))
        return NULL;
    path += length;
    return *path == '/' ? path + 1 : path;
}

/* What `dir` was at `when`, to be given back; NULL and *error, or NULL and 0 where it cannot be told. */
static struct place *find_dir(struct wb_below *below, struct wb_change_reader *reader, struct wb_object dir,
                              int64_t when, bool *ret_kept, int *error)
{
    g_autoptr(GArray) steps = NULL;
    struct place *place = g_hash_table_lookup(below->dirs, &dir);
    g_autofree char *path = NULL;
    bool met, settled, allowed;
    const char *rest;

    *error = 0;
    *ret_kept = true;
    if (place)
        return place;
    steps = g_array_new(FALSE, FALSE, sizeof(struct step));
    *error = climb(below, reader, dir, when, steps, &met, &settled);
    if (*error != 0) {
        *error = MIN(*error, 0);
        return NULL;
    }
    path = join_steps(steps);
    rest = met ? path : strip(below, path);
    *error = may_list(below, met ? below->spot : NULL, steps, &allowed);
    place = g_new0(struct place, 1);
    place->below = !allowed ? WB_BELOW_HIDDEN : rest ? WB_BELOW_YES : WB_BELOW_NOT;
    place->path = g_strdup(rest ?: path);
    place->above = above_of(below, steps, met);
    *ret_kept = settled && *error == 0;
    if (*ret_kept) {
        if (g_hash_table_size(below->dirs) == DIRS_MAX)
            g_hash_table_remove_all(below->dirs);
        g_hash_table_insert(below->dirs, g_memdup2(&dir, sizeof(dir)), place);
    } else if (*error < 0) {
        place_free(place);
        place = NULL;
    }
    return place;
}

static char *join(const char *above, const char *name)
{
    return *above && *name ? g_strconcat(above, "/", name, NULL) : g_strdup(*name ? name : above);
}

static int was_open(struct wb_below *below, struct wb_object dir, int64_t when)
{
    struct wb_door door = {.hint = below->spot, .dir = dir, .mask = R_OK | X_OK};

    return wb_doors_open(below->doors, below->request, &door, when);
}

/* A file that was asked for, whatever it was called: WB_BELOW_YES where it could be read then. */
static int is_asked(struct wb_below *below, const struct wb_change_told *told)
{
    struct wb_door door = {.hint = below->spot, .dir = below->object, .mask = R_OK};
    int r;

    if (below->is_dir || !wb_object_equal(told->object, below->object))
        return WB_BELOW_NOT;
    r = wb_doors_open(below->doors, below->request, &door, told->when);
    return r < 0 ? r : r == 1 ? WB_BELOW_YES : WB_BELOW_HIDDEN;
}

int wb_below_find(struct wb_below *below, struct wb_change_reader *reader, const struct wb_change_told *told,
                  const struct wb_change_name *name, char **ret_path)
{
    bool root = fuse_req_ctx(below->request->req)->uid == 0;
    g_autofree char *path = NULL;
    struct place *place;
    const char *rest;
    bool kept;
    int error, where, r;

    *ret_path = NULL;
    r = is_asked(below, told);
    if (r < 0 || r == WB_BELOW_HIDDEN)
        return r;
    if (wb_object_is_none(name->dir)) {
        /* Nothing tells where it was: it was somewhere below the root. */
        if (r == WB_BELOW_YES || (root && !*below->path))
            *ret_path = g_strdup(r == WB_BELOW_YES ? "." : "?");
        return *ret_path ? WB_BELOW_YES : WB_BELOW_NOT;
    }
    place = find_dir(below, reader, name->dir, told->when, &kept, &error);
    if (!place)
        return error < 0 ? error : r;
    path = join(place->path, name->unknown ? "?" : name->name);
    where = place->below;
    error = where == WB_BELOW_HIDDEN ? 1 : was_open(below, name->dir, told->when);
    for (guint i = 0; error == 1 && where != WB_BELOW_HIDDEN && i < place->above->len; i++)
        error = was_open(below, g_array_index(place->above, struct wb_object, i), told->when);
    if (!kept)
        place_free(place);
    if (error < 0)
        return error;
    where = error == 1 ? where : WB_BELOW_HIDDEN;
    if (where == WB_BELOW_YES)
        *ret_path = g_strdup(*path ? path : ".");
    if (where != WB_BELOW_NOT)
        return where == WB_BELOW_HIDDEN ? r : where;
    rest = strip(below, path);
    *ret_path = rest ? g_strdup(*rest ? rest : ".") : g_strconcat("/", path, NULL);
    return rest ? WB_BELOW_YES : r;
}
