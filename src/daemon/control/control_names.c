/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * NAMES: all names that were ever in a directory, a page at a time. The list is made with the first page, and
 * kept for the pages that follow.
 */
#include "daemon/control/control.h"

#include "base/cleanup.h"
#include "daemon/past/pages.h"
#include "daemon/past/past.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_node.h"
#include "daemon/past/past_perm.h"
#include "format/object_key.h"
#include "history/state/lookback.h"
#include "history/versions/names.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

_Static_assert(sizeof(struct wb_control_name) + WB_NAME_MAX + WB_CONTROL_PATH_MAX + sizeof(struct wb_actor) + 16 <=
                   WB_CONTROL_DATA_MAX, "an item fits");

struct list {
    struct wb_paged paged;
    struct wb_object dir;
    int64_t when;
    uint64_t cursor; /* where the next page begins */
    uint32_t uid, pid, flags;
    char *only;
    struct wb_revision *revision;
    struct wb_names *names;
    GHashTable *places; /* directories that something moved to: object -> path, "" where it is not to be known */
};

static void list_free(struct list *list)
{
    wb_names_free(list->names);
    wb_revision_unref(list->revision);
    g_clear_pointer(&list->places, g_hash_table_unref);
    g_free(list->only);
    g_free(list);
}

static void free_paged(struct wb_paged *paged)
{
    list_free((struct list *)paged);
}

static bool continues(const struct wb_paged *paged, const struct wb_paged *other)
{
    const struct list *list = (const struct list *)paged, *wanted = (const struct list *)other;

    return wb_object_equal(list->dir, wanted->dir) && list->when == wanted->when &&
           list->cursor == wanted->cursor && list->uid == wanted->uid && list->pid == wanted->pid &&
           list->flags == wanted->flags && strcmp(list->only, wanted->only) == 0;
}

/* ---- who may ask ----------------------------------------------------------------------------- */

/* Whether the caller could list `dir` then, and come to it. */
static int could_list(void *data, struct wb_revision *dir)
{
    const struct wb_request *request = data;
    int r = wb_past_could_then(request->session, request->req, dir, R_OK | X_OK);

    for (dir = wb_revision_parent(dir); r == 0 && dir; dir = wb_revision_parent(dir))
        r = wb_past_could_then(request->session, request->req, dir, X_OK);
    return r;
}

static int find(const struct wb_request *request, struct wb_revision **ret)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    int r;

    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r < 0)
        return r;
    r = wb_control_entry_or_last(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    r = wb_control_may_list(request, revision);
    if (r == 0)
        *ret = g_steal_pointer(&revision);
    return r;
}

/* ---- where something went -------------------------------------------------------------------- */

static char *path_of(struct wb_revision *dir)
{
    GString *path = g_string_new("");

    for (; wb_revision_parent(dir); dir = wb_revision_parent(dir)) {
        g_string_prepend(path, wb_revision_name(dir));
        g_string_prepend_c(path, '/');
    }
    return g_string_free(path, FALSE);
}

/*
 * The path of a directory as it is called at the list's moment or, if it is gone by then, as it was when something
 * moved there. NULL where that is not known, or not for the caller: it could not go there then, or may not now.
 */
static char *place_of(const struct wb_request *request, const struct list *list, const struct wb_name *name)
{
    struct wb_session *session = request->session;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = wb_lookback_dir(session->history, name->to_dir, list->when, &dir);

    if (r < 0)
        r = wb_lookback_dir(session->history, name->to_dir, name->last, &dir);
    /* The path names what is in each of them: to be listed, not only to be passed through. */
    for (struct wb_revision *at = dir; r == 0 && at; at = wb_revision_parent(at)) {
        r = wb_past_could_then(session, request->req, at, R_OK | X_OK);
        if (r == 0)
            r = wb_past_may_now(session, request->req, at, R_OK | X_OK);
    }
    return r == 0 ? path_of(dir) : NULL;
}

static char *destination(const struct wb_request *request, struct list *list, const struct wb_name *name)
{
    const char *place;

    if (!name->moved)
        return g_strdup("");
    if (wb_object_equal(name->to_dir, list->dir))
        return g_strdup(name->to_name);
    place = g_hash_table_lookup(list->places, &name->to_dir);
    if (!place) {
        g_autofree char *path = place_of(request, list, name);

        place = path ? g_strdup_printf("%s/", path) : g_strdup("");
        g_hash_table_insert(list->places, g_memdup2(&name->to_dir, sizeof(name->to_dir)), (char *)place);
    }
    return *place ? g_strconcat(place, name->to_name, NULL) : g_strdup("");
}

/* ---- the request ----------------------------------------------------------------------------- */

static int begin(const struct wb_request *request, struct wb_revision *revision, const struct list *wanted,
                 struct list **ret)
{
    struct wb_names_options options = {
        .only = *wanted->only ? wanted->only : NULL,
        .spans = wanted->flags & WB_CONTROL_NAMES_SPANS ? WB_CONTROL_SPANS_MAX : 1,
        .may = fuse_req_ctx(request->req)->uid == 0 ? NULL : could_list,
        .data = (void *)request,
    };
    struct wb_names *names;
    int r = wb_names_open(request->session->history, revision, &options, &names);

    if (r != 0)
        return r < 0 ? r : -EIO;
    *ret = g_new(struct list, 1);
    **ret = *wanted;
    (*ret)->only = g_strdup(wanted->only);
    (*ret)->names = names;
    (*ret)->revision = wb_revision_ref(revision);
    (*ret)->places = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, g_free);
    return 0;
}

/* One item at `at`, if it fits: its length, or 0. */
static size_t pack(const struct wb_name *name, const char *to, const struct wb_actor *actor, uint8_t *at, size_t room)
{
    size_t name_size = strlen(name->name) + 1, to_size = strlen(to) + 1, command_size = strlen(actor->command) + 1;
    size_t length = (sizeof(struct wb_control_name) + name_size + to_size + command_size + 7) & ~(size_t)7;
    struct wb_control_name *out = (struct wb_control_name *)(void *)at;

    if (length > room)
        return 0;
    memset(at, 0, length);
    out->length = (uint32_t)length;
    out->mode = name->mode;
    out->index = name->index;
    out->spans = name->spans;
    out->ino = name->object.ino;
    out->birth = name->object.birth;
    out->first = name->first;
    out->last = name->present ? 0 : name->last;
    out->size = name->size;
    out->actor = name->actor;
    out->uid = actor->uid;
    out->gid = actor->gid;
    out->pid = actor->pid;
    out->moved = name->moved;
    out->replaced = name->replaced;
    memcpy(out->text, name->name, name_size);
    memcpy(out->text + name_size, to, to_size);
    memcpy(out->text + name_size + to_size, actor->command, command_size);
    return length;
}

static void fill_page(const struct wb_request *request, struct list *list, struct wb_control *out)
{
    size_t used = 0, count = wb_names_count(list->names);

    for (; list->cursor < count; list->cursor++) {
        const struct wb_name *name = wb_names_get(list->names, (size_t)list->cursor);
        g_autofree char *to = destination(request, list, name);
        struct wb_actor actor;
        size_t length;

        if (strlen(to) >= WB_CONTROL_PATH_MAX)
            *to = '\0';
        if (name->actor == 0 || wb_control_actor(request, name->actor, name->last, &actor) != 0)
            actor = (struct wb_actor){0};
        length = pack(name, to, &actor, out->data + used, sizeof(out->data) - used);
        if (length == 0)
            break;
        used += length;
        out->count++;
    }
}

int wb_control_names(const struct wb_request *request, struct wb_control *out)
{
    struct wb_past *past = request->session->past;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    const struct wb_control *in = request->in;
    struct list *list, wanted = {.cursor = in->cursor, .flags = in->flags & WB_CONTROL_NAMES_SPANS,
                                 .uid = fuse_req_ctx(request->req)->uid,
                                 .pid = (uint32_t)fuse_req_ctx(request->req)->pid, .only = (char *)in->source};
    int r = find(request, &revision);

    if (r < 0)
        return r;
    wanted.paged.generation = wb_pages_generation(past);
    wanted.dir = wb_revision_object(revision);
    wanted.when = wb_revision_when(revision);
    list = in->cursor > 0 ? (struct list *)wb_pages_take(&past->lists, &wanted.paged, continues) : NULL;
    if (!list) {
        r = begin(request, revision, &wanted, &list);
        if (r < 0)
            return r;
    }
    out->since = request->session->store->header.created;
    out->until = list->when;
    out->flags = wb_names_are_incomplete(list->names) ? WB_CONTROL_NAMES_INCOMPLETE : 0;
    fill_page(request, list, out);
    if (out->count > 0)
        wb_pages_keep(&past->lists, &list->paged, free_paged);
    else
        list_free(list);
    return 0;
}
