/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SNAPSHOT_*: making, listing, renaming and deleting named moments.
 *
 * Names belong to their owners (store/tables/snapshots.h); who may do what is said by the directory a snapshot is of.
 * Root and the user who runs the daemon may do everything. The owner of a directory may make
 * snapshots of it and rename and delete them, but not those that a schedule or one of these two made:
 * nobody takes an administrator's snapshot away from under him. Everybody sees their own, and those of directories that
 * they could list then and can list now.
 */
#include "daemon/control/control.h"

#include "daemon/jobs/snapshot.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_perm.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

_Static_assert(sizeof(struct wb_control_open_files) <= WB_CONTROL_DATA_MAX, "a reply fits");
_Static_assert(sizeof(struct wb_control_snapshot) + WB_NAME_MAX + WB_SNAPSHOT_TEXT_MAX + WB_SNAPSHOT_PATH_MAX +
                   16 <= WB_CONTROL_DATA_MAX,
               "a reply fits");

#define _cleanup_revision_ __attribute__((cleanup(wb_revision_unrefp)))
#define _cleanup_snapshots_ __attribute__((cleanup(wb_snapshots_unrefp)))

/* ---- who may --------------------------------------------------------------------------------- */

static bool is_master(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

static uid_t caller(const struct wb_request *request)
{
    return fuse_req_ctx(request->req)->uid;
}

/* The directory above what is at `path` from the root at `when`, and its last name (g_free). */
static int find_then(const struct wb_request *request, int64_t when, const char *path, struct wb_revision **ret_dir,
                     char **ret_name)
{
    struct wb_history *history = request->session->history;
    struct wb_revision *root _cleanup_revision_ = NULL;
    int r = wb_revision_root(history, when, &root);

    return r == 0 ? wb_history_find(history, root, path, ret_dir, ret_name) : r;
}

/* The directory a snapshot is of, as it was then. 0, WB_ABSENT or -errno. */
static int scope_of(const struct wb_request *request, const struct wb_snapshot *snapshot, struct wb_revision **ret)
{
    struct wb_revision *revision _cleanup_revision_ = NULL;
    struct wb_revision *dir _cleanup_revision_ = NULL;
    g_autofree char *name = NULL;
    int r = find_then(request, snapshot->when, snapshot->path, &dir, &name);

    if (r == 0 && *name)
        r = wb_revision_child(request->session->history, dir, name, &revision);
    else if (r == 0)
        revision = g_steal_pointer(&dir);
    if (r == 0 && !wb_object_equal(wb_revision_object(revision), snapshot->scope))
        r = WB_ABSENT;
    if (r == 0)
        *ret = g_steal_pointer(&revision);
    return r;
}

/* Whether the caller could pass through `dir` and all above it then, and can now. `mask`: of `dir` itself. */
static bool may_pass(const struct wb_request *request, struct wb_revision *dir, int mask)
{
    for (; dir; dir = wb_revision_parent(dir), mask = X_OK)
        if (wb_past_may_now(request->session, request->req, dir, mask) < 0 ||
            wb_past_could_then(request->session, request->req, dir, mask) < 0)
            return false;
    return true;
}

/* In doubt (a damaged record) it is not shown. */
static bool may_see(const struct wb_request *request, const struct wb_snapshot *snapshot)
{
    struct wb_revision *scope _cleanup_revision_ = NULL;

    if (wb_control_is_keeper(request) ||
        wb_object_equal(snapshot->scope, request->session->store->header.root))
        return true;
    if (scope_of(request, snapshot, &scope) != 0)
        return false;
    /* Modes do not keep anything from root in a container; but all it was given is below where it asks. */
    if (wb_control_has_keepers_uid(request) && !wb_revision_is_within(scope, request->start->object))
        return false;
    /* Its name and text are for its maker, and for those who can list the directory: .snapshot in it shows them. */
    if (snapshot->uid == caller(request))
        return may_pass(request, wb_revision_parent(scope), X_OK);
    return may_pass(request, scope, R_OK | X_OK);
}

/* 1, 0 or -errno. */
static int may_change(const struct wb_request *request, const struct wb_snapshot *snapshot)
{
    struct wb_revision *scope _cleanup_revision_ = NULL;
    int r;

    if (wb_control_is_keeper(request))
        return 1;
    if (snapshot->automatic || is_master(snapshot->uid))
        return 0;
    r = scope_of(request, snapshot, &scope);
    return r == 0 ? wb_past_owns(request->session, request->req, scope) : r == WB_ABSENT ? 0 : r;
}

/*
 * The one of that name, if the caller can see it: their own, else the first there is; lives as long as *ret_all. 0,
 * -ENOENT or -errno. -ENOTUNIQ: `alone`, and several users have one, and the caller has none.
 */
static int find_named(const struct wb_request *request, const char *name, bool alone, struct wb_snapshots **ret_all,
                      const struct wb_snapshot **ret)
{
    const struct wb_snapshot *snapshot;
    unsigned others = 0;
    int r = wb_snapshots_get(request->session->store, ret_all);

    if (r < 0)
        return r;
    *ret = NULL;
    for (unsigned nth = 0; (snapshot = wb_snapshots_find(*ret_all, name, nth)); nth++) {
        if (!may_see(request, snapshot))
            continue;
        others += !wb_snapshot_is_keepers(snapshot);
        if (!*ret || (snapshot->uid == caller(request) && (*ret)->uid != caller(request)))
            *ret = snapshot;
    }
    if (!*ret)
        return -ENOENT;
    return alone && others > 1 && !wb_snapshot_is_keepers(*ret) && (*ret)->uid != caller(request) ? -ENOTUNIQ : 0;
}

static int find_to_change(const struct wb_request *request, const char *name, int64_t *ret_when)
{
    struct wb_snapshots *all _cleanup_snapshots_ = NULL;
    const struct wb_snapshot *snapshot;
    int r = find_named(request, name, true, &all, &snapshot);

    if (r == 0)
        r = may_change(request, snapshot);
    if (r <= 0)
        return r < 0 ? r : -EPERM;
    *ret_when = snapshot->when;
    return 0;
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Behind what `data` has at `used`; its size, 0 where there is no room. */
static size_t put_entry(const struct wb_snapshot *snapshot, unsigned flags, uint8_t *data, size_t used)
{
    struct wb_control_snapshot *entry = (struct wb_control_snapshot *)(void *)(data + used);
    size_t name = strlen(snapshot->name) + 1, text = strlen(snapshot->text) + 1;
    size_t path = strlen(snapshot->path) + 1;
    size_t size = (sizeof(*entry) + name + text + path + 7) / 8 * 8;

    if (used + size > WB_CONTROL_DATA_MAX)
        return 0;
    *entry = (struct wb_control_snapshot){
        .size = (uint32_t)size,
        .flags = flags | (snapshot->automatic ? WB_CONTROL_SNAPSHOT_AUTOMATIC : 0),
        .when = snapshot->when,
        .scope_ino = snapshot->scope.ino,
        .scope_birth = snapshot->scope.birth,
        .uid = snapshot->uid,
        .text = (uint16_t)name,
        .path = (uint16_t)(name + text),
    };
    memcpy(entry->strings, snapshot->name, name);
    memcpy(entry->strings + name, snapshot->text, text);
    memcpy(entry->strings + name + text, snapshot->path, path);
    return size;
}

/* ---- making one ------------------------------------------------------------------------------ */

static char *path_of(struct wb_revision *revision)
{
    GString *path = g_string_new(NULL);

    for (; wb_revision_parent(revision); revision = wb_revision_parent(revision)) {
        if (path->len > 0)
            g_string_prepend_c(path, '/');
        g_string_prepend(path, wb_revision_name(revision));
    }
    return g_string_free(path, FALSE);
}

/* The directory of the present that `path` names, if the caller may make snapshots of it. */
static int find_scope(const struct wb_request *request, struct wb_revision **ret)
{
    struct wb_revision *revision _cleanup_revision_ = NULL;
    struct wb_revision *dir _cleanup_revision_ = NULL;
    g_autofree char *name = NULL;
    int r = wb_control_find(request, request->in->path, &dir, &name);

    if (r == 0)
        r = wb_control_entry(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    if (wb_revision_when(revision) != WB_WHEN_PRESENT)
        return -EROFS;
    if (wb_revision_type(revision) != S_IFDIR)
        return -ENOTDIR;
    r = wb_control_is_keeper(request) ? 1 : wb_past_owns(request->session, request->req, revision);
    if (r <= 0)
        return r < 0 ? r : -EPERM;
    *ret = g_steal_pointer(&revision);
    return 0;
}

static int check_share(const struct wb_request *request)
{
    struct wb_snapshots *all _cleanup_snapshots_ = NULL;
    unsigned count = 0;
    int r;

    if (wb_control_is_keeper(request))
        return 0;
    r = wb_snapshots_get(request->session->store, &all);
    for (size_t i = 0; r == 0 && i < all->count; i++)
        count += all->list[i].uid == caller(request);
    return r < 0 ? r : count < atomic_load(&request->session->user_snapshots) ? 0 : -EDQUOT;
}

/* The error is the same if there are as many snapshots as possible; but then no history is deleted for it. */
static int take(const struct wb_request *request, struct wb_snapshot *snapshot)
{
    struct wb_snapshots *all _cleanup_snapshots_ = NULL;
    int r = wb_snapshot_take(request->session, snapshot);

    if (r < 0 && wb_snapshots_get(request->session->store, &all) == 0 && !wb_snapshots_are_all(all))
        wb_enospc_retry_recorded(r);
    return r;
}

/* -ESTALE: the directory was renamed, or one above it, before the moment was taken. */
static int create(const struct wb_request *request, const struct wb_control_snapshot_new *wanted,
                  struct wb_control *out)
{
    struct wb_snapshot snapshot = {.uid = caller(request), .name = wanted->name, .text = wanted->text};
    struct wb_revision *scope _cleanup_revision_ = NULL;
    g_autofree char *path = NULL;
    int r = find_scope(request, &scope);

    if (r == 0)
        r = check_share(request);
    if (r < 0)
        return r;
    snapshot.path = path = path_of(scope);
    if (strlen(path) > WB_SNAPSHOT_PATH_MAX)
        return -ENAMETOOLONG;
    snapshot.scope = wb_revision_object(scope);
    r = take(request, &snapshot);
    if (r < 0)
        return r;
    out->count = 1;
    put_entry(&snapshot, WB_CONTROL_SNAPSHOT_COVERS | WB_CONTROL_SNAPSHOT_MAY, out->data, 0);
    return 0;
}

/* How often a directory may be renamed while a snapshot of it is taken. */
#define MOVES_MAX 16

int wb_control_snapshot_create(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_control_snapshot_new *wanted = (const void *)request->in->data;
    int r = -ESTALE;

    if (!memchr(wanted->name, '\0', sizeof(wanted->name)) || !memchr(wanted->text, '\0', sizeof(wanted->text)))
        return -EINVAL;
    for (int i = 0; r == -ESTALE && i < MOVES_MAX; i++)
        r = create(request, wanted, out);
    return r == -ESTALE ? -EBUSY : r;
}

/* ---- listing them ---------------------------------------------------------------------------- */

/* What `path` means at present, or meant when it was last there; the deepest directory if it never was. */
static int find_place(const struct wb_request *request, struct wb_revision **ret)
{
    struct wb_revision *dir _cleanup_revision_ = NULL;
    g_autofree char *name = NULL;
    int r = wb_control_find(request, request->in->path, &dir, &name);

    if (r < 0)
        return r;
    r = wb_control_entry_or_last(request, dir, name, ret);
    if (r == WB_ABSENT)
        *ret = g_steal_pointer(&dir);
    return r == WB_ABSENT ? 0 : r;
}

static unsigned flags_of(const struct wb_request *request, const struct wb_snapshot *snapshot,
                         const struct wb_revision *place)
{
    unsigned flags = wb_revision_is_within(place, snapshot->scope) ? WB_CONTROL_SNAPSHOT_COVERS : 0;

    return flags | (may_change(request, snapshot) == 1 ? WB_CONTROL_SNAPSHOT_MAY : 0);
}

/* Whether FILE@NAME of the place means it: no other one of its name comes first that is of a directory above, too. */
static bool is_meant(const struct wb_request *request, const struct wb_snapshots *all,
                     const struct wb_snapshot *snapshot, const struct wb_revision *place)
{
    bool covers = wb_revision_is_within(place, snapshot->scope), before = true;
    const struct wb_snapshot *other;

    for (unsigned nth = 0; (other = wb_snapshots_find(all, snapshot->name, nth)); nth++) {
        bool other_covers = wb_revision_is_within(place, other->scope);

        if (other == snapshot)
            before = false;
        else if ((before ? other_covers >= covers : other_covers > covers) && may_see(request, other))
            return false;
    }
    return true;
}

int wb_control_snapshot_list(const struct wb_request *request, struct wb_control *out)
{
    struct wb_snapshots *all _cleanup_snapshots_ = NULL;
    struct wb_revision *place _cleanup_revision_ = NULL;
    const struct wb_control *in = request->in;
    size_t used = 0, size;
    int r = find_place(request, &place);

    if (r == 0)
        r = wb_snapshots_get(request->session->store, &all);
    if (r < 0)
        return r;
    out->cursor = in->cursor;
    for (size_t i = 0; i < all->count; i++) {
        const struct wb_snapshot *snapshot = &all->list[i];

        if ((uint64_t)snapshot->when <= in->cursor || (*in->source && strcmp(in->source, snapshot->name) != 0))
            continue;
        if (may_see(request, snapshot)) {
            unsigned meant = is_meant(request, all, snapshot, place) ? WB_CONTROL_SNAPSHOT_MEANT : 0;

            size = put_entry(snapshot, flags_of(request, snapshot, place) | meant, out->data, used);
            if (size == 0)
                break;
            used += size;
            out->count++;
        }
        out->cursor = (uint64_t)snapshot->when;
    }
    return 0;
}

/* ---- renaming and deleting ------------------------------------------------------------------- */

int wb_control_snapshot_rename(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_control_snapshot_names *names = (const void *)request->in->data;
    int64_t when;
    int r;

    (void)out;
    if (!memchr(names->name, '\0', sizeof(names->name)) || !memchr(names->new_name, '\0', sizeof(names->new_name)))
        return -EINVAL;
    r = find_to_change(request, names->name, &when);
    if (r == 0)
        r = wb_enospc_retry_recorded(wb_snapshots_rename(request->session->store, when, names->new_name));
    return r == WB_ABSENT ? -ENOENT : r;
}

int wb_control_snapshot_delete(const struct wb_request *request, struct wb_control *out)
{
    int64_t when;
    int r = find_to_change(request, request->in->source, &when);

    (void)out;
    if (r == 0)
        r = wb_enospc_retry_recorded(wb_snapshots_delete(request->session->store, when));
    return r == WB_ABSENT ? -ENOENT : r;
}

/* ---- what was open --------------------------------------------------------------------------- */

/* Whether the caller could see the names in the directory of `path` then, and can now. The last
 * answer is kept: paths come in order. */
struct sight {
    char *dir;
    bool may;
};

static bool may_see_file(const struct wb_request *request, int64_t when, const char *path, struct sight *last)
{
    const char *slash = strrchr(path, '/');
    g_autofree char *above = g_strndup(path, slash ? (gsize)(slash - path) : 0);
    struct wb_revision *dir _cleanup_revision_ = NULL;
    g_autofree char *name = NULL;

    if (wb_control_is_keeper(request))
        return true;
    if (last->dir && strcmp(last->dir, above) == 0)
        return last->may;
    g_free(last->dir);
    last->dir = g_steal_pointer(&above);
    last->may = find_then(request, when, path, &dir, &name) == 0 && may_pass(request, dir, R_OK | X_OK);
    return last->may;
}

static void fill_files(const struct wb_request *request, int64_t when, char **paths, struct wb_control *out)
{
    struct wb_control_open_files *reply = (struct wb_control_open_files *)(void *)out->data;
    struct sight sight = {0};
    size_t used = 0, length;

    for (uint64_t i = 0; paths[i]; i++) {
        if (i < request->in->cursor)
            continue;
        length = strlen(paths[i]) + 1;
        if (!may_see_file(request, when, paths[i], &sight)) {
            reply->hidden++;
        } else if (used + length <= sizeof(reply->paths)) {
            memcpy(reply->paths + used, paths[i], length);
            used += length;
            out->count++;
        } else {
            break;
        }
        out->cursor = i + 1;
    }
    g_free(sight.dir);
}

int wb_control_snapshot_files(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_open_files *reply = (struct wb_control_open_files *)(void *)out->data;
    struct wb_snapshots *all _cleanup_snapshots_ = NULL;
    const struct wb_snapshot *snapshot;
    g_auto(GStrv) paths = NULL;
    int r = find_named(request, request->in->source, false, &all, &snapshot);

    if (r == 0)
        r = wb_snapshots_open_files(request->session->store, snapshot->when, &paths, &reply->more);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    out->cursor = request->in->cursor;
    fill_files(request, snapshot->when, paths, out);
    return 0;
}
