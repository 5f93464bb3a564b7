/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CHANGES: the timeline, newest first, a page at a time. The cursor is a `when`, so nothing is kept
 * between two pages; a request that has looked for long enough replies with what it has, and says
 * that there may be more.
 */
#include "daemon/control/changes_below.h"

#include "daemon/control/control.h"
#include "daemon/past/past.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>

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
    GHashTable *users; /* actor -> uid */
    int64_t since;
    bool by_user, full;
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

static uint64_t bytes_of(const struct wb_change_told *told)
{
    /* "To the end", as truncate is recorded. */
    if (told->length > UINT64_MAX - told->offset - 1)
        return MAX(MAX(told->size_before, told->size_after), told->offset) - told->offset;
    return told->length;
}

/* Whether it fitted in. */
static bool tell(struct page *page, const struct wb_change_told *told, const char *path, const char *other)
{
    uint8_t data[WB_CONTROL_DATA_MAX] = {0};
    struct wb_control_change change = {
        .when = told->when,
        .ino = told->object.ino,
        .birth = told->object.birth,
        .offset = told->offset,
        .length = bytes_of(told),
        .size_before = told->size_before,
        .size_after = told->size_after,
        .mode_before = told->mode_before,
        .op = told->op,
        .existed_before = told->existed_before,
        .exists_after = told->exists_after,
        .actor = told->actor,
        .flags = told->at.unknown ? WB_CONTROL_CHANGE_UNKNOWN : 0,
    };
    size_t used = 1; /* "" */

    if (told->is_gap) {
        change.flags |= WB_CONTROL_CHANGE_GAP | (told->gap_open ? WB_CONTROL_CHANGE_OPEN : 0);
        change.offset = (uint64_t)told->gap_since;
    }
    change.op_name = put(data, &used, told->is_gap ? "gap" : wb_op_name(told->op));
    change.path = put_path(data, &used, path);
    if (other)
        change.other = put_path(data, &used, other);
    if (*told->detail)
        change.detail = put(data, &used, told->detail);
    if (told->actor != 0 && (told->actor != page->last_actor || page->out->count == 0)) {
        struct wb_actor actor;

        if (wb_control_actor(page->request, told->actor, told->when, &actor) == 0) {
            change.uid = actor.uid;
            change.gid = actor.gid;
            change.pid = actor.pid;
            change.command = put(data, &used, actor.command);
        }
    } else if (told->actor != 0) {
        change.flags |= WB_CONTROL_CHANGE_SAME;
    }
    change.size = (uint32_t)((HEAD + used + 7) & ~(size_t)7);
    if (change.size > sizeof(page->out->data) - page->used)
        return false;
    memcpy(page->out->data + page->used, &change, HEAD);
    memcpy(page->out->data + page->used + HEAD, data, used);
    page->used += change.size;
    page->out->count++;
    page->last_actor = told->actor;
    return true;
}

/* ---- which ------------------------------------------------------------------------------------------ */

static bool is_by_user(struct page *page, uint32_t index, int64_t when)
{
    struct wb_actor actor;
    void *known;

    if (!page->by_user)
        return true;
    if (g_hash_table_lookup_extended(page->users, GUINT_TO_POINTER(index), NULL, &known))
        return GPOINTER_TO_UINT(known) == page->uid;
    if (wb_store_actor_info(page->request->session->store, index, when, &actor) != 0)
        return false;
    if (g_hash_table_size(page->users) == ACTORS)
        g_hash_table_remove_all(page->users);
    g_hash_table_insert(page->users, GUINT_TO_POINTER(index), GUINT_TO_POINTER(actor.uid));
    return actor.uid == page->uid;
}

/* 0, also where it is not for this list; or -errno. page->full where there was no room for it. */
static int consider(struct page *page, const struct wb_times_entry *entry)
{
    g_autofree char *path = NULL;
    g_autofree char *other = NULL;
    struct wb_change_told told;
    int r, at, to;

    if (wb_object_is_none(entry->object) || !is_by_user(page, entry->actor, entry->when))
        return 0;
    r = wb_change_read(page->reader, entry, &told);
    if (r != 0)
        return r == WB_ABSENT ? 0 : r;
    at = wb_below_find(&page->below, page->reader, &told, &told.at, &path);
    to = told.has_other ? wb_below_find(&page->below, page->reader, &told, &told.other, &other) : 0;
    if (at < 0 || to < 0)
        return at < 0 ? at : to;
    /* A move is told if one of its ends is below; what of the other may not be told is "?". */
    if (at != WB_BELOW_YES && to != WB_BELOW_YES)
        return 0;
    page->full = !tell(page, &told, path ?: "?", told.has_other ? other ?: "?" : NULL);
    return 0;
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
            if (r == 0 && page->below.doors && window[i].when > 0 && g_get_monotonic_time() > deadline) {
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
    if (until == 0)
        until = WB_WHEN_PRESENT - 1;
    if (in->cursor > 0)
        until = MIN(until, (int64_t)in->cursor - 1);
    page->out->cursor = (uint64_t)until + 1;
    r = wb_times_find(wb_change_reader_times(page->reader), until + 1, &index);
    return r < 0 ? r : fill(page, index);
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
    if (session->moment != WB_WHEN_PRESENT && (until == 0 || until > session->moment))
        until = session->moment;
    /* What was forgotten may still be in the lists. */
    page.since = MAX(page.since, wb_store_horizon(session->store) + 1);
    page.by_user = asked->flags & WB_CONTROL_CHANGES_BY_USER;
    page.uid = asked->uid;
    page.users = g_hash_table_new(NULL, NULL);
    r = wb_below_init(&page.below, request, &until);
    if (r == 0)
        r = begin(&page, until);
    wb_below_deinit(&page.below);
    page.reader = wb_change_reader_free(page.reader);
    g_hash_table_unref(page.users);
    return r;
}
