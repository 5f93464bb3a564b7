/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CHANGES: the timeline, newest first, a page at a time. The cursor is a `when`, so nothing is kept
 * between two pages; a request that has looked for long enough replies with what it has, and says
 * that there may be more.
 */
#include "daemon/control/control.h"
#include "daemon/control/parents.h"
#include "daemon/live/recording.h"
#include "daemon/past/pages.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "format/object_key.h"
#include "history/versions/changes.h"
#include "store/cache/gaps.h"
#include "store/inflight/stages.h"
#include "store/object/catalog_path.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

struct wb_below {
    const struct wb_request *request;
    struct wb_revision *revision;
    struct wb_object object; /* what was asked for; none: there was never anything */
    char *path;              /* from the root, "" for the root itself */
    bool is_dir;
    struct wb_past_perm *perm; /* NULL: root asks */
    GHashTable *dirs;        /* struct wb_object -> what is known of a directory that never moved */
    size_t dirs_steps;       /* the depths of these, summed up */
    struct wb_parents *parents; /* of directories that have not moved, as far as this request knows */
    uint64_t generation;     /* of the past, when the request began */
    GHashTable *allowed;     /* struct wb_object -> whether the caller may list it: 1, or search it: 2 */
};

enum { WB_BELOW_NOT, WB_BELOW_YES, WB_BELOW_HIDDEN };

/* Directories remembered within one request. */
#define DIRS_MAX 4096
#define DIRS_STEPS_MAX (256u << 10)

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

static char *path_of(struct wb_revision *dir, const char *name)
{
    GString *path = g_string_new(name);

    for (; dir && wb_revision_parent(dir); dir = wb_revision_parent(dir)) {
        if (path->len > 0)
            g_string_prepend_c(path, '/');
        g_string_prepend(path, wb_revision_name(dir));
    }
    return g_string_free(path, FALSE);
}

/* Resolves the request's path; NAME@TIME lowers *until. 0 or -errno (-ENOENT: never was there). */
static int below_init(struct wb_below *below, const struct wb_request *request, int64_t *until)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r;

    *below = (struct wb_below){.request = request, .perm = wb_past_perm_acquire(request)};
    below->dirs = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, place_free);
    below->allowed = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
    below->generation = wb_pages_generation(request->session->past);
    below->parents = wb_parents_new();
    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r == 0)
        r = wb_control_may_read(request, dir, name);
    if (r == 0)
        r = wb_control_strip_moment(request, dir, name, until);
    if (r < 0)
        return r;
    r = wb_control_entry_or_last(request, dir, name, &below->revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    below->object = wb_revision_object(below->revision);
    below->is_dir = wb_revision_type(below->revision) == S_IFDIR;
    below->path = path_of(dir, name);
    return 0;
}

static void below_deinit(struct wb_below *below)
{
    wb_past_perm_release(below->request, below->perm);
    wb_revision_unref(below->revision);
    g_free(below->path);
    g_hash_table_unref(below->dirs);
    g_hash_table_unref(below->allowed);
    wb_parents_free(below->parents);
}

/* ---- where a directory was --------------------------------------------------------------------------- */

/* One step up: wb_change_place, unless it is known from another way up, in this request or in an earlier one. */
static int step_up(struct wb_below *below, struct wb_change_reader *reader, int64_t when, struct step *step,
                   struct wb_object *ret_parent, bool *ret_settled)
{
    struct wb_session *session = below->request->session;
    int r = 0;

    *ret_settled = true;
    if (wb_parents_find(below->parents, below->generation, step->object, ret_parent, step->name))
        return 0;
    /* The first place of a directory is where it is, if it never moved. */
    if (!wb_parents_find(session->parents, wb_pages_generation(session->past), step->object, ret_parent, step->name) ||
        wb_change_has_moved(reader, step->object) != 0)
        r = wb_change_place(reader, step->object, when, ret_parent, step->name, ret_settled);
    if (r == 0 && *ret_settled) {
        wb_parents_keep(session->parents, below->generation, step->object, *ret_parent, step->name);
        wb_parents_keep(below->parents, below->generation, step->object, *ret_parent, step->name);
    }
    return r;
}

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
        if (steps->len == WB_RESOLVE_STEPS_MAX)
            return WB_ABSENT;
        r = step_up(below, reader, when, &step, &parent, &settled);
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

static int may(struct wb_below *below, struct wb_revision *revision, int mask, bool *ret)
{
    struct wb_object object = wb_revision_object(revision);
    unsigned known = GPOINTER_TO_UINT(g_hash_table_lookup(below->allowed, &object));
    unsigned shift = mask & R_OK ? 0 : 2;
    int r;

    if (!(known >> shift & 3)) {
        r = wb_past_may_now(below->request->session, below->request->req, revision, mask);
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
static int may_list(struct wb_below *below, struct wb_revision *top, const GArray *steps, bool *ret)
{
    struct wb_history *history = below->request->session->history;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r;

    *ret = true;
    if (fuse_req_ctx(below->request->req)->uid == 0)
        return 0;
    if (top)
        revision = wb_revision_ref(top);
    r = top ? 0 : wb_revision_root(history, WB_WHEN_PRESENT, &revision);
    if (r == 0)
        r = may(below, revision, R_OK | X_OK, ret);
    for (guint i = steps->len; r == 0 && *ret && i-- > 0;) {
        const struct step *step = &g_array_index(steps, struct step, i);
        struct wb_revision *child;

        r = wb_revision_present(history, revision, step->name, step->object, S_IFDIR, &child);
        if (r != 0)
            break;
        wb_revision_unref(revision);
        revision = child;
        r = may(below, revision, R_OK | X_OK, ret);
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

/* The place of `dir` at `when`; the caller frees it unless *ret_kept. NULL and *error; NULL and 0: it is unknown. */
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
    *error = may_list(below, met ? below->revision : NULL, steps, &allowed);
    place = g_new0(struct place, 1);
    place->below = !allowed ? WB_BELOW_HIDDEN : rest ? WB_BELOW_YES : WB_BELOW_NOT;
    place->path = g_strdup(rest ?: path);
    place->above = above_of(below, steps, met);
    *ret_kept = settled && *error == 0;
    if (*ret_kept) {
        below->dirs_steps += steps->len;
        if (g_hash_table_size(below->dirs) == DIRS_MAX || below->dirs_steps > DIRS_STEPS_MAX) {
            g_hash_table_remove_all(below->dirs);
            below->dirs_steps = steps->len;
        }
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
    struct wb_past_perm_query access = {.hint = below->revision, .dir = dir, .mask = R_OK | X_OK};

    return wb_past_perm_check(below->perm, below->request, &access, when);
}

/* A file that was asked for, whatever it was called: WB_BELOW_YES where it could be read then. */
static int is_asked(struct wb_below *below, const struct wb_listed_change *listed)
{
    struct wb_past_perm_query access = {.hint = below->revision, .dir = below->object, .mask = R_OK};
    int r;

    if (below->is_dir || !wb_object_equal(listed->object, below->object))
        return WB_BELOW_NOT;
    r = wb_past_perm_check(below->perm, below->request, &access, listed->when);
    return r < 0 ? r : r == 1 ? WB_BELOW_YES : WB_BELOW_HIDDEN;
}

/*
 * *ret_path: relative to the requested path ("." for that path itself); for a name that is not below it, with a leading
 * "/", from the root of the mount; NULL if it is unknown, or must not be shown. WB_BELOW_YES, WB_BELOW_NOT or -errno.
 */
static int below_find(struct wb_below *below, struct wb_change_reader *reader, const struct wb_listed_change *listed,
                      const struct wb_change_name *name, char **ret_path)
{
    bool root = fuse_req_ctx(below->request->req)->uid == 0;
    g_autofree char *path = NULL;
    struct place *place;
    const char *rest;
    bool kept;
    int error, where, r;

    *ret_path = NULL;
    r = is_asked(below, listed);
    if (r < 0 || r == WB_BELOW_HIDDEN)
        return r;
    if (wb_object_is_none(name->dir)) {
        /* No record shows where it was; it was somewhere below the root. */
        if (r == WB_BELOW_YES || (root && !*below->path))
            *ret_path = g_strdup(r == WB_BELOW_YES ? "." : "?");
        return *ret_path ? WB_BELOW_YES : WB_BELOW_NOT;
    }
    place = find_dir(below, reader, name->dir, listed->when, &kept, &error);
    if (!place)
        return error < 0 ? error : r;
    path = join(place->path, name->unknown ? "?" : name->name);
    where = place->below;
    error = where == WB_BELOW_HIDDEN ? 1 : was_open(below, name->dir, listed->when);
    for (guint i = 0; error == 1 && where != WB_BELOW_HIDDEN && i < place->above->len; i++)
        error = was_open(below, g_array_index(place->above, struct wb_object, i), listed->when);
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

#define WINDOW 256
#define PATIENCE (50 * G_TIME_SPAN_MILLISECOND)
/* No path in a reply is longer; of a longer one, its end. */
#define PATH_SHOWN_MAX 2000
#define ACTORS 1024
#define HEAD offsetof(struct wb_control_change, strings)

struct page {
    const struct wb_request *request;
    struct wb_control *out;
    struct wb_change_reader *reader;
    struct wb_below below;
    size_t used;
    uint32_t last_actor;
    GHashTable *actors; /* actor -> whether its changes are wanted */
    int64_t since;
    bool by_user, full;
    const char *commands; /* of struct wb_control_changes; NULL: all are wanted */
    bool whole; /* WB_CONTROL_CHANGES_WHOLE */
    uint32_t uid;
};

_Static_assert(sizeof(struct wb_control_change) + 2 * (PATH_SHOWN_MAX + 4) + 24 + WB_NAME_MAX + 1 + WB_COMMAND_MAX + 8 <
                   WB_CONTROL_DATA_MAX, "a change fits into a reply");

/* ---- an entry of the reply ----------------------------------------------------------------------- */

static uint16_t put(uint8_t *data, size_t *used, const char *text)
{
    size_t length = strlen(text) + 1;
    uint16_t at = (uint16_t)*used;

    memcpy(data + *used, text, length);
    *used += length;
    return at;
}

static uint16_t put_path(uint8_t *data, size_t *used, const char *path)
{
    g_autofree char *cut = NULL;

    if (strlen(path) <= PATH_SHOWN_MAX)
        return put(data, used, path);
    path += strlen(path) - PATH_SHOWN_MAX;
    path = strchr(path, '/') ?: path;
    cut = g_strconcat("...", path, NULL);
    return put(data, used, cut);
}

static uint64_t bytes_of(const struct wb_listed_change *listed)
{
    /* "To the end", as truncate is recorded. */
    if (listed->length > UINT64_MAX - listed->offset - 1)
        return MAX(MAX(listed->size_before, listed->size_after), listed->offset) - listed->offset;
    return listed->length;
}

/* Whether it fitted in. */
static bool add_listed(struct page *page, const struct wb_listed_change *listed, const char *path, const char *other)
{
    uint8_t data[WB_CONTROL_DATA_MAX] = {0};
    struct wb_control_change change = {
        .when = listed->when,
        .ino = listed->object.ino,
        .birth = listed->object.birth,
        .offset = listed->offset,
        .length = bytes_of(listed),
        .size_before = listed->size_before,
        .size_after = listed->size_after,
        .mode_before = listed->mode_before,
        .op = listed->op,
        .existed_before = listed->existed_before,
        .exists_after = listed->exists_after,
        .actor = listed->actor,
        .flags = (listed->at.unknown ? WB_CONTROL_CHANGE_UNKNOWN : 0) |
                 (listed->linked ? WB_CONTROL_CHANGE_LINKED : 0) | (listed->begins ? WB_CONTROL_CHANGE_BEGINS : 0),
    };
    size_t used = 1; /* "" */

    if (listed->is_gap) {
        change.flags |= WB_CONTROL_CHANGE_GAP | (listed->gap_open ? WB_CONTROL_CHANGE_OPEN : 0);
        change.offset = (uint64_t)listed->gap_since;
    }
    change.op_name = put(data, &used, listed->is_gap ? "gap" : wb_op_name(listed->op));
    change.path = put_path(data, &used, path);
    if (other)
        change.other = put_path(data, &used, other);
    if (*listed->detail)
        change.detail = put(data, &used, listed->detail);
    if (listed->actor != 0 && (listed->actor != page->last_actor || page->out->count == 0)) {
        struct wb_actor actor;

        if (wb_control_actor(page->request, listed->actor, listed->when, &actor) == 0) {
            change.uid = actor.uid;
            change.gid = actor.gid;
            change.pid = actor.pid;
            change.command = put(data, &used, actor.command);
        }
    } else if (listed->actor != 0) {
        change.flags |= WB_CONTROL_CHANGE_SAME;
    }
    change.size = (uint32_t)((HEAD + used + 7) & ~(size_t)7);
    if (change.size > sizeof(page->out->data) - page->used)
        return false;
    memcpy(page->out->data + page->used, &change, HEAD);
    memcpy(page->out->data + page->used + HEAD, data, used);
    page->used += change.size;
    page->out->count++;
    page->last_actor = listed->actor;
    return true;
}

/* ---- which ------------------------------------------------------------------------------------------ */

/* Whether the command line contains one of the texts that were asked for. */
static bool has_command(const struct page *page, const char *command)
{
    for (const char *text = page->commands; *text; text += strlen(text) + 1)
        if (strstr(command, text))
            return true;
    return false;
}

static bool is_by_wanted(struct page *page, uint32_t index, int64_t when)
{
    struct wb_actor actor;
    void *known;
    bool wanted;

    if (!page->by_user && !page->commands)
        return true;
    if (g_hash_table_lookup_extended(page->actors, GUINT_TO_POINTER(index), NULL, &known))
        return GPOINTER_TO_UINT(known);
    if (wb_control_actor(page->request, index, when, &actor) != 0)
        return false;
    wanted = (!page->by_user || actor.uid == page->uid) && (!page->commands || has_command(page, actor.command));
    if (g_hash_table_size(page->actors) == ACTORS)
        g_hash_table_remove_all(page->actors);
    g_hash_table_insert(page->actors, GUINT_TO_POINTER(index), GUINT_TO_POINTER(wanted));
    return wanted;
}

/* Whether a change may be missing in the list, or is there with a part of its path. One that was found elsewhere is not
 * a part of the list. */
static bool is_uncertain(int found, const char *path)
{
    return (found != WB_BELOW_YES && !path) || (path && strlen(path) > PATH_SHOWN_MAX);
}

/* 0, also where it is not for this list; or -errno. page->full where there was no room for it. */
static int consider(struct page *page, const struct wb_times_entry *entry)
{
    g_autofree char *path = NULL;
    g_autofree char *other = NULL;
    struct wb_listed_change listed;
    int r, at, to;

    if (wb_object_is_none(entry->object))
        page->whole = false;
    if (wb_object_is_none(entry->object) || !is_by_wanted(page, entry->actor, entry->when))
        return 0;
    r = wb_change_read(page->reader, entry, &listed);
    if (r == WB_ABSENT)
        page->whole = false;
    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    at = below_find(&page->below, page->reader, &listed, &listed.at, &path);
    to = listed.has_other ? below_find(&page->below, page->reader, &listed, &listed.other, &other) : 0;
    if (at < 0 || to < 0)
        return at < 0 ? at : to;
    /* No path leads to a file without names. */
    if (!listed.at.unknown || listed.linked)
        page->whole &= !is_uncertain(at, path) && (!listed.has_other || !is_uncertain(to, other));
    /* A move is listed if one of its ends is below; the other end is "?" if it may not be shown. */
    if (at != WB_BELOW_YES && to != WB_BELOW_YES)
        return 0;
    page->full = !add_listed(page, &listed, path ?: "?", listed.has_other ? other ?: "?" : NULL);
    return 0;
}

/* ---- whether all changes are in the list ------------------------------------------------------------- */

#define SETTLE_STEP_US 1000
#define SETTLE_STEPS 50

static int is_under_way(int slot, const struct wb_stage_entry *entry, void *data)
{
    return 1;
}

/* The list has changes that have ended: waits briefly for those that began before the request. */
static bool have_ended(struct wb_store *store, int64_t until)
{
    int64_t now = wb_store_tick(store);

    for (unsigned step = 0; step < SETTLE_STEPS; step++) {
        int64_t low = wb_inflight_low_water(store);

        if (low >= now || low > until)
            return true;
        g_usleep(SETTLE_STEP_US);
    }
    return false;
}

/*
 * Whether every change from `since` to `until` is in the timeline, or will be with the next pass. Not so are versions
 * under way (history=close), gaps that no log has yet, changes by others before the mount that the survey has not met
 * yet, and those of paths that are left out. Before the mount a path may have been left out by a rule that is gone: its
 * GAP is open, from before `since`, until something of it is recorded.
 */
static bool is_all_recorded(const struct wb_session *session, int64_t since, int64_t until)
{
    struct wb_store *store = session->store;

    return session->recording && since > session->recorded_since && atomic_load(&session->surveyed) &&
           !wb_recording_leaves_out(session) && have_ended(store, until) && wb_gaps_count(store) == 0 &&
           wb_gap_state(store, store->header.root, WB_FILE_CATALOG) == WB_GAP_NONE &&
           wb_stages_each(store, is_under_way, NULL) == 0;
}

/* ---- the request --------------------------------------------------------------------------------------- */

static int fill(struct page *page, uint64_t index)
{
    const struct wb_times *times = wb_change_reader_times(page->reader);
    int64_t deadline = g_get_monotonic_time() + PATIENCE;
    struct wb_times_entry window[WINDOW];
    struct wb_control *out = page->out;
    int r = 0;

    while (index > 0) {
        size_t count = MIN(index, WINDOW);

        r = wb_times_read(times, index - count, window, count);
        for (size_t i = count; r == 0 && i-- > 0;) {
            if (window[i].when > 0 && window[i].when < page->since)
                return 0;
            r = consider(page, &window[i]);
            if (page->full) {
                out->flags = WB_CONTROL_CHANGES_MORE;
                return 0;
            }
            if (window[i].when > 0)
                out->cursor = (uint64_t)window[i].when;
            /* What was open to the caller may take long to find out. */
            if (r == 0 && page->below.perm && window[i].when > 0 && g_get_monotonic_time() > deadline) {
                out->flags = WB_CONTROL_CHANGES_MORE;
                return 0;
            }
        }
        if (r < 0)
            return r;
        index -= count;
        if (g_get_monotonic_time() > deadline) {
            out->flags = WB_CONTROL_CHANGES_MORE;
            return 0;
        }
    }
    return 0;
}

static int begin(struct page *page, int64_t until)
{
    const struct wb_control *in = page->request->in;
    struct wb_session *session = page->request->session;
    uint64_t index;
    unsigned permille;
    int r = 0;

    if (until == 0)
        until = WB_WHEN_PRESENT - 1;
    page->whole = in->cursor > 0 || is_all_recorded(session, in->since, until);
    /* The first page has everything that is over. */
    if (in->cursor == 0 && (!session->store->writable || !wb_timeline_is_building(session->store, &permille)))
        r = wb_timeline_pass(session->store);
    if (r >= 0)
        r = wb_change_reader_new(session->history, &page->reader);
    if (r == -EAGAIN) {
        wb_timeline_is_building(session->store, &permille);
        page->out->flags = WB_CONTROL_CHANGES_BUILDING | WB_CONTROL_CHANGES_MORE;
        page->out->cursor = permille;
        return 0;
    }
    if (r < 0)
        return r;
    if (in->cursor > 0)
        until = MIN(until, (int64_t)in->cursor - 1);
    page->out->cursor = (uint64_t)until + 1;
    r = wb_times_find(wb_change_reader_times(page->reader), until + 1, &index);
    r = r < 0 ? r : fill(page, index);
    if (page->whole && in->since > wb_store_forgotten(session->store))
        page->out->flags |= WB_CONTROL_CHANGES_WHOLE;
    return r;
}

int wb_control_changes(const struct wb_request *request, struct wb_control *out)
{
    const struct wb_control *in = request->in;
    const struct wb_control_changes *asked = (const struct wb_control_changes *)(const void *)in->data;
    struct page page = {.request = request, .out = out, .since = in->since};
    struct wb_session *session = request->session;
    int64_t until = in->until;
    int r;

    if (in->cursor > INT64_MAX || until < 0)
        return -EINVAL;
    /* Two NULs at the end, so that the list of texts ends. */
    if (asked->flags & WB_CONTROL_CHANGES_BY_COMMAND &&
        (asked->commands[WB_CONTROL_CHANGES_COMMANDS_MAX - 1] || asked->commands[WB_CONTROL_CHANGES_COMMANDS_MAX - 2]))
        return -EINVAL;
    if (session->moment != WB_WHEN_PRESENT && (until == 0 || until > session->moment))
        until = session->moment;
    /* What was forgotten may still be in the lists. */
    page.since = MAX(page.since, wb_store_horizon(session->store) + 1);
    page.by_user = asked->flags & WB_CONTROL_CHANGES_BY_USER;
    page.uid = asked->uid;
    if (asked->flags & WB_CONTROL_CHANGES_BY_COMMAND)
        page.commands = asked->commands;
    page.actors = g_hash_table_new(NULL, NULL);
    r = below_init(&page.below, request, &until);
    if (r == 0)
        r = begin(&page, until);
    below_deinit(&page.below);
    page.reader = wb_change_reader_free(page.reader);
    g_hash_table_unref(page.actors);
    return r;
}
