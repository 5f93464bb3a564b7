/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * VERSIONS: changes, newest first, a page at a time. A walk that has delivered a page is kept for a
 * while, so that the next page goes on where it stands instead of passing over all before it.
 */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "daemon/caller/creds.h"
#include "daemon/past/past_perm.h"
#include "daemon/past/milestones.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

#define WB_VERSIONS_PAGE (WB_CONTROL_DATA_MAX / sizeof(struct wb_control_version))

struct walk {
    struct wb_paged paged;
    struct wb_object dir;
    char *name;
    int64_t since, until;
    uint64_t cursor;          /* versions delivered or passed over */
    uint32_t uid, pid;
    bool ended;
    struct wb_versions *versions;
    struct wb_milestone_walk *milestones;
};

static void walk_free(struct walk *walk)
{
    wb_versions_free(walk->versions);
    wb_milestone_walk_free(walk->milestones);
    g_free(walk->name);
    g_free(walk);
}

static void free_paged(struct wb_paged *paged)
{
    walk_free((struct walk *)paged);
}

static bool continues(const struct wb_paged *paged, const struct wb_paged *other)
{
    const struct walk *walk = (const struct walk *)paged, *wanted = (const struct walk *)other;

    return wb_object_equal(walk->dir, wanted->dir) && strcmp(walk->name, wanted->name) == 0 &&
           walk->since == wanted->since && walk->until == wanted->until &&
           walk->cursor == wanted->cursor && walk->uid == wanted->uid && walk->pid == wanted->pid;
}

/* The next version, also one that is not asked for: 0, WB_END or -errno. */
static int step(struct wb_session *session, struct walk *walk, struct wb_version *version)
{
    struct wb_save_mark mark;
    struct wb_object object;
    int r;

    while ((r = wb_versions_next(walk->versions, version)) == WB_DAMAGED)
        /* Changes in a damaged record are lost; those before and after it are reported. */
        wb_past_result_of_tool(session, -EIO);
    if (r == 0 && wb_versions_is_plain(walk->versions, &object)) {
        mark = wb_versions_mark(walk->versions);
        wb_milestone_walk_met(walk->milestones, object, version, &mark);
    }
    return r;
}

/*
 * From `version` to the last one known that is later than `later` and has no number above `until`; to none where none
 * is known. 0 or -errno.
 */
static int leap(struct walk *walk, struct wb_version *version, int64_t later, uint32_t until)
{
    struct wb_save_mark mark;
    uint32_t change;
    int64_t when;

    if (!wb_milestone_walk_leap(walk->milestones, version->change, until, later, &when, &change, &mark))
        return 0;
    *version = (struct wb_version){.when = when, .change = change, .save = mark.save};
    return wb_versions_pass(walk->versions, when, change, &mark);
}

/* The next version that is asked for: 0, WB_END or -errno. */
static int next(struct wb_session *session, struct walk *walk, struct wb_version *version)
{
    int r;

    if (walk->ended)
        return WB_END;
    while ((r = step(session, walk, version)) == 0 && walk->until != 0 && version->when > walk->until) {
        r = leap(walk, version, walk->until, UINT32_MAX);
        if (r < 0)
            return r;
    }
    if (r == WB_END || (r == 0 && walk->since != 0 && version->when < walk->since)) {
        walk->ended = true;
        return WB_END;
    }
    return r;
}

/* Over `count` versions that are asked for; the number of each is one above that of the one before. */
static int pass_over(struct wb_session *session, struct walk *walk, uint64_t count)
{
    struct wb_version version;
    uint64_t last = 0;
    int r = count > 0 ? next(session, walk, &version) : 0;

    if (r == 0 && count > 0)
        last = MIN(version.change + count - 1, UINT32_MAX);
    while (r == 0 && count > 0 && version.change < last) {
        r = leap(walk, &version, walk->since > 0 ? walk->since - 1 : 0, (uint32_t)last);
        if (r == 0 && version.change < last)
            r = next(session, walk, &version);
    }
    return r == WB_END ? 0 : r;
}

static void add_listed(const struct wb_request *request, const struct wb_version *version,
                       struct wb_control_version *out)
{
    struct wb_session *session = request->session;
    struct wb_actor actor;

    *out = (struct wb_control_version){
        .when = MIN(version->when, wb_store_now(session->store)), /* a gap that has not ended goes on until now */
        .offset = version->offset,
        .length = version->length,
        .size_before = version->size_before,
        .size_after = version->size_after,
        .change = version->change,
        .save = version->save,
        .op = version->op,
        .existed_before = version->existed_before,
        .exists_after = version->exists_after,
        .mode_before = version->mode_before,
    };
    /* "To the end", as truncate is recorded, in bytes. */
    if (out->length > UINT64_MAX - out->offset - 1)
        out->length = MAX(MAX(out->size_before, out->size_after), out->offset) - out->offset;
    g_strlcpy(out->op_name, wb_op_name(version->op), sizeof(out->op_name));
    if (version->is_gap) {
        out->flags |= WB_CONTROL_VERSION_GAP | (version->gap_open ? WB_CONTROL_VERSION_OPEN : 0);
        out->offset = (uint64_t)version->gap_since;
        out->length = 0;
        g_strlcpy(out->op_name, "gap", sizeof(out->op_name));
    }
    if (version->thinned_since) {
        out->flags |= WB_CONTROL_VERSION_THINNED;
        out->thinned_since = version->thinned_since;
    }
    g_strlcpy(out->name, version->name, sizeof(out->name));
    g_strlcpy(out->other, version->other, sizeof(out->other));
    g_strlcpy(out->detail, version->detail, sizeof(out->detail));
    if (version->actor != 0 && wb_control_actor(request, version->actor, version->when, &actor) == 0) {
        out->uid = actor.uid;
        out->gid = actor.gid;
        out->pid = actor.pid;
        g_strlcpy(out->command, actor.command, sizeof(out->command));
    }
}

/* ---- who may ask ----------------------------------------------------------------------------- */

/* Whoever may read it, or what is known of it if it is gone; its owner in any case. */
int wb_control_may_read(const struct wb_request *request, struct wb_revision *dir, const char *name)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r;

    if (fuse_req_ctx(request->req)->uid == 0)
        return 0;
    r = wb_control_entry_or_last(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? 0 : r < 0 ? r : -EIO;
    r = wb_past_owns(request->session, request->req, revision);
    if (r != 0)
        return r < 0 ? r : 0;
    r = wb_past_could_then(request->session, request->req, revision, R_OK);
    return r < 0 ? r : wb_past_may_now(request->session, request->req, revision, R_OK);
}

int wb_control_strip_moment(const struct wb_request *request, struct wb_revision *dir, char *name, int64_t *until)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    size_t base = wb_past_base(request->session, name);
    int r;

    if (base == strlen(name))
        return 0;
    r = wb_revision_child(request->session->history, dir, name, &revision);
    if (r != WB_ABSENT)
        return r;
    r = wb_control_last_state(request, dir, name, &revision);
    if (r == WB_ABSENT)
        r = wb_control_entry(request, dir, name, &revision);
    else
        return r;
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    if (*until == 0 || *until > wb_revision_when(revision))
        *until = wb_revision_when(revision);
    name[base] = '\0';
    return 0;
}

/* ---- the request ----------------------------------------------------------------------------- */

/* A page that is being made. */
struct page {
    const struct wb_request *request;
    struct wb_revision *dir;
    struct walk *walk;
    struct wb_past_perm *perm;
};

static int begin(const struct wb_request *request, struct wb_revision *dir, const struct walk *wanted,
                 struct walk **ret)
{
    struct walk *walk = g_new0(struct walk, 1);
    int r;

    *walk = *wanted;
    walk->name = g_strdup(wanted->name);
    walk->cursor = 0;
    walk->milestones = wb_milestone_walk_new(request->session->past->milestones, walk->dir, walk->name,
                                             wb_history_quiet_since(request->session->history));
    r = wb_versions_open(request->session->history, dir, walk->name, &walk->versions);
    if (r == 0)
        r = pass_over(request->session, walk, wanted->cursor);
    walk->cursor = wanted->cursor;
    if (r != 0) {
        walk_free(walk);
        return r < 0 ? r : -EIO;
    }
    *ret = walk;
    return 0;
}

/* Whether the caller knows this name: he asked for it. */
static bool is_asked(const struct walk *walk, struct wb_object dir, const char *name)
{
    return *walk->name && wb_object_equal(dir, walk->dir) && strcmp(name, walk->name) == 0;
}

/* Whether a version may be shown: its name, if the caller could list it; the rest, if the caller could read it. */
static int may_show(const struct page *page, const struct wb_version *version)
{
    struct wb_object self = wb_versions_self(page->walk->versions);
    struct wb_past_perm_query access = {.hint = page->dir, .dir = version->dir, .mask = R_OK | X_OK};
    bool is_dir = !wb_object_is_none(self);
    int r = 1;

    if (is_dir && wb_object_equal(version->dir, self))
        return wb_past_perm_check(page->perm, page->request, &access, version->when);
    access.may_now = wb_past_owns_or_may_now;
    if (!wb_object_is_none(version->dir) && !is_asked(page->walk, version->dir, version->name))
        r = wb_past_perm_check(page->perm, page->request, &access, version->when);
    if (r != 1)
        return r;
    access = (struct wb_past_perm_query){
        .hint = page->dir,
        .dir = is_dir ? self : version->dir,
        .name = is_dir ? NULL : version->name,
        .object = version->object,
        .mask = R_OK,
        /* Present rights to a directory were checked at the beginning; a name may have led to other objects. */
        .may_now = is_dir ? NULL : wb_past_owns_or_may_now,
    };
    return wb_past_perm_check(page->perm, page->request, &access, version->when);
}

/* Leaves out the parts that the caller may not see, or for which the rights cannot be determined. */
static void censor(const struct page *page, const struct wb_version *version, struct wb_control_version *out)
{
    struct wb_past_perm_query other = {
        .hint = page->dir, .dir = version->other_dir, .mask = R_OK | X_OK, .may_now = wb_past_owns_or_may_now};
    int r;

    if (!page->perm)
        return;
    r = may_show(page, version);
    if (r != 1)
        *out = (struct wb_control_version){
            .when = out->when, .change = out->change, .save = out->save, .flags = WB_CONTROL_VERSION_WITHHELD};
    if (r != 1 || !*version->other || is_asked(page->walk, version->other_dir, version->other))
        return;
    if (wb_past_perm_check(page->perm, page->request, &other, version->when) != 1)
        g_strlcpy(out->other, "?", sizeof(out->other));
}

static int fill_page(const struct page *page, struct wb_control *out)
{
    struct wb_session *session = page->request->session;
    struct walk *walk = page->walk;
    struct wb_control_version *items = (struct wb_control_version *)(void *)out->data;
    struct wb_version version;
    int r = 0;

    while (out->count < WB_VERSIONS_PAGE) {
        r = next(session, walk, &version);
        if (r != 0)
            break;
        add_listed(page->request, &version, &items[out->count]);
        censor(page, &version, &items[out->count]);
        out->count++;
    }
    walk->cursor += out->count;
    out->flags |= WB_CONTROL_VERSIONS_COUNTED;
    /* Versions found before an error are returned first; the next request gets the error again. A walk that was given
     * up amid a step cannot go on. */
    return r == WB_END || (out->count > 0 && r != -EINTR) ? 0 : r;
}

/* Nothing is listed from the beginning on: has it just not changed, or was it never there? */
static int must_exist(const struct wb_request *request, struct wb_revision *dir, const char *name)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_control_entry_or_last(request, dir, name, &revision);

    return r == WB_ABSENT ? -ENOENT : r;
}

int wb_control_versions(const struct wb_request *request, struct wb_control *out)
{
    struct wb_past *past = request->session->past;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    const struct wb_control *in = request->in;
    struct page page;
    struct walk *walk, wanted = {.since = in->since, .until = in->until, .cursor = in->cursor,
                                 .uid = fuse_req_ctx(request->req)->uid,
                                 .pid = (uint32_t)fuse_req_ctx(request->req)->pid};
    int r;

    r = wb_control_find(request, in->path, &dir, &name);
    if (r == 0)
        r = wb_control_may_read(request, dir, name);
    if (r == 0)
        r = wb_control_strip_moment(request, dir, name, &wanted.until);
    if (r < 0)
        return r;
    wanted.paged.generation = wb_pages_generation(past);
    wanted.dir = wb_revision_object(dir);
    wanted.name = name;
    walk = in->cursor > 0 ? (struct walk *)wb_pages_take(&past->walks, &wanted.paged, continues) : NULL;
    if (!walk) {
        r = begin(request, dir, &wanted, &walk);
        if (r < 0)
            return r;
    }
    page = (struct page){request, dir, walk, wb_past_perm_acquire(request)};
    r = fill_page(&page, out);
    wb_past_perm_release(request, page.perm);
    if (r == 0 && out->count > 0) {
        wb_versions_rest(walk->versions);
        wb_pages_keep(&past->walks, &walk->paged, free_paged);
        return 0;
    }
    walk_free(walk);
    if (r == 0 && in->cursor == 0)
        r = must_exist(request, dir, name);
    return r;
}

/* ---- IDENTIFY -------------------------------------------------------------------------------- */

/* Lets tools leave a large file alone that was only moved, removed or brought back. */
static bool is_unchanged(struct wb_history *history, struct wb_revision *revision)
{
    struct wb_file_view *view = NULL;
    bool same;

    if (wb_revision_type(revision) != S_IFREG || wb_file_view_open(history, revision, &view) != 0)
        return false;
    same = wb_file_view_is_present(view);
    wb_file_view_free(view);
    return same;
}

/*
 * Where it is now, for the caller: what has moved behind a directory that is closed to him is as good as
 * gone, and whether it changed there is not for him either.
 */
static int locate_for(const struct wb_request *request, struct wb_revision *revision, struct wb_location *ret)
{
    int r = wb_revision_resolve(request->session->history, revision, ret);

    if (r < 0 || ret->state != WB_LINKED)
        return r;
    r = wb_past_may_now(request->session, request->req, revision, 0);
    if (r != -EACCES)
        return r;
    g_free(ret->path);
    *ret = (struct wb_location){.state = WB_LOST};
    return 0;
}

int wb_control_identify(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_identity *reply = (struct wb_control_identity *)(void *)out->data;
    struct wb_history *history = request->session->history;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_location location = {0};
    struct wb_attrs attrs;
    g_autofree char *name = NULL;
    int r;

    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r < 0)
        return r;
    r = wb_control_entry(request, dir, name, &revision);
    if (r == WB_ABSENT && !wb_past_is_moment(request->session, name) && wb_revision_when(dir) == WB_WHEN_PRESENT)
        r = wb_control_last_state(request, dir, name, &revision);
    if (r == 0)
        r = wb_revision_attrs(history, revision, &attrs);
    if (r == 0)
        r = locate_for(request, revision, &location);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    reply->ino = wb_revision_object(revision).ino;
    reply->birth = wb_revision_object(revision).birth;
    reply->number = location.ino;
    if (location.state == WB_UNLINKED && wb_revision_type(revision) != S_IFDIR && location.links > 1)
        reply->others = location.links - 1;
    reply->when = wb_revision_when(revision);
    reply->mode = attrs.mode;
    reply->unchanged = location.state != WB_LOST &&
                       wb_past_may_now(request->session, request->req, revision, R_OK) == 0 &&
                       is_unchanged(history, revision);
    reply->state = location.state == WB_LINKED     ? WB_CONTROL_ALIVE
                   : location.state == WB_UNLINKED ? WB_CONTROL_BURIED
                                                   : WB_CONTROL_GONE;
    if (location.path &&
        g_strlcpy(reply->path, location.path, sizeof(reply->path)) >= sizeof(reply->path))
        r = -ENAMETOOLONG;
    g_free(location.path);
    return r;
}
