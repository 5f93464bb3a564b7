/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The past: what names mean in it. */
#include "daemon/past/past.h"

#include "daemon/core/entry.h"
#include "daemon/core/number.h"
#include "daemon/past/moment.h"
#include "daemon/past/past_access.h"
#include "daemon/past/past_name.h"
#include "daemon/past/past_node.h"
#include "daemon/past/snapdir.h"
#include <errno.h>
#include <glib.h>
#include <linux/limits.h>
#include <string.h>

struct question {
    struct wb_session *session;
    fuse_req_t req;
    struct wb_node *parent;
    const char *name;
    bool fixed; /* answer: it will never be anything else, for nobody */
};

/* Found by a path that enters the past here: were the directories above open to the caller then? */
static int enter(const struct question *question, uint64_t process, int64_t instant, struct wb_revision *revision,
                 struct wb_past_node **ret)
{
    struct wb_past_node *node;
    int r = wb_past_may_enter(question->session, question->req, revision, question->parent->object);

    if (r < 0)
        return r;
    node = wb_past_intern(question->session, question->parent, question->name, process, instant, revision);
    *ret = node;
    return node ? 0 : -ENOMEM;
}

/* base@TIME in the parent, anew. 0, WB_ABSENT or -errno. */
static int resolve(const struct question *question, const struct wb_past_moment *moment, struct wb_revision **ret)
{
    struct wb_session *session = question->session;
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    char base[WB_NAME_MAX + 1];
    int r;

    if (moment->base >= sizeof(base))
        return WB_ABSENT;
    g_strlcpy(base, question->name, moment->base + 1);
    r = wb_past_revision_of(session, question->parent, &dir);
    if (r == 0)
        r = wb_revision_at(session->history, dir, base, &moment->time, moment->scope, &revision);
    if (r == 0)
        *ret = g_steal_pointer(&revision);
    return r;
}

/* A file whose attributes did not change in between has not changed: the process keeps the inode
 * it knows, or cp(1) would think that it was replaced under its hands. */
static bool is_same_state(struct wb_session *session, struct wb_past_node *node, struct wb_revision *revision)
{
    struct wb_attrs before, after;

    if (S_ISDIR(node->node.type) || !wb_object_equal(node->node.object, wb_revision_object(revision)) ||
        wb_past_attrs(session, node, &before) != 0 || wb_revision_attrs(session->history, revision, &after) != 0)
        return false;
    /* Blocks may be given out long after the bytes were written. */
    before.blocks = after.blocks;
    return memcmp(&before, &after, sizeof(before)) == 0;
}

/* A process may act for several users: what one of them found is asked for again. */
static int take_known(const struct question *question, struct wb_past_node *known, struct wb_past_node **ret)
{
    int r = wb_past_may_enter(question->session, question->req, known->revision, question->parent->object);

    *ret = r < 0 ? NULL : known;
    if (r < 0)
        wb_past_unref(question->session, known);
    return r;
}

static int find_relative(const struct question *question, const struct wb_past_moment *moment,
                         struct wb_past_node **ret)
{
    struct wb_session *session = question->session;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    uint64_t process = wb_past_process(question->req);
    struct wb_past_node *known;
    bool pinned;
    int r;

    known = wb_past_find_relative(session, question->parent, question->name, process, &pinned);
    if (known && pinned && process != 0)
        return take_known(question, known, ret);
    r = resolve(question, moment, &revision);
    if (r == 0 && known && is_same_state(session, known, revision))
        return take_known(question, known, ret);
    wb_past_unref(session, known);
    return r == 0 ? enter(question, process, 0, revision, ret) : r;
}

/* As `moment` has it. 0, WB_ABSENT or -errno. */
static int find_one(const struct question *question, const struct wb_past_moment *moment, struct wb_past_node **ret)
{
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    const struct wb_time *time = &moment->time;
    int r;

    if (time->relative || time->kind != WB_TIME_INSTANT)
        return find_relative(question, moment, ret);
    *ret = wb_past_find(question->session, question->parent, question->name, time->instant);
    if (*ret)
        return take_known(question, *ret, ret);
    r = resolve(question, moment, &revision);
    return r == 0 ? enter(question, 0, time->instant, revision, ret) : r;
}

static int find_moment(const struct question *question, struct wb_past_node **ret)
{
    struct wb_past_node *snapdir = wb_snapdir_of(question->parent);
    struct wb_past_moment moment;
    int r = snapdir ? wb_snapdir_may(question->session, question->req, snapdir, X_OK) : 0;

    if (r < 0)
        return r;
    for (unsigned nth = 0;; nth++) {
        r = wb_past_moment_of(question->session, snapdir != NULL, question->name, nth, &moment);
        if (r != 0)
            return r == WB_NOT_TIME ? WB_ABSENT : r;
        r = find_one(question, &moment, ret);
        /* A snapshot of another directory means nothing here; another one of that name may. */
        if (r != WB_ABSENT || wb_object_is_none(moment.scope))
            return r;
    }
}

/* The node, referenced: 0, WB_ABSENT or -errno. */
static int find(struct question *question, struct wb_past_node **ret)
{
    struct wb_session *session = question->session;
    struct wb_past_node *past = wb_past_of(question->parent);
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    int r = WB_ABSENT;

    if (past) {
        r = wb_past_may_now(session, question->req, past->revision, X_OK);
        if (r < 0)
            return r;
        question->fixed = wb_moment_is_fixed(session);
        /* What an entry of the past was does not change any more. */
        *ret = wb_past_find(session, question->parent, question->name, wb_revision_when(past->revision));
        if (*ret)
            return 0;
        r = wb_revision_child(session->history, past->revision, question->name, &revision);
        if (r == 0) {
            *ret = wb_past_intern(session, question->parent, question->name, 0, wb_revision_when(past->revision),
                                  revision);
            return *ret ? 0 : -ENOMEM;
        }
    }
    if (r != WB_ABSENT || (!wb_past_may_be_moment(session, question->name) && !wb_snapdir_of(question->parent)))
        return r;
    question->fixed = false;
    return find_moment(question, ret);
}

bool wb_past_exists(struct wb_session *session, fuse_req_t req, struct wb_node *dir, const char *name)
{
    struct question question = {.session = session, .req = req, .parent = dir, .name = name};
    struct wb_past_node *found = NULL;

    if (!wb_past_is_moment(session, name) || find_moment(&question, &found) != 0)
        return false;
    wb_past_unref(session, found);
    return true;
}

void wb_past_lookup(struct wb_session *session, fuse_req_t req, struct wb_node *parent,
                    const char *name)
{
    struct question question = {.session = session, .req = req, .parent = parent, .name = name};
    /* Every name is asked for again: who may pass now, and what a relative time means, changes; but for
     * the mount of a moment that one user has for himself. */
    struct fuse_entry_param entry = {.attr_timeout = WB_TIMEOUT};
    struct wb_past_node *node = NULL;
    int r;

    r = find(&question, &node);
    /* Where a link leads is its content, and the kernel shows it to all once one has read it: so it is asked here. */
    if (r == 0 && S_ISLNK(node->node.type))
        r = wb_past_may_now(session, req, node->revision, 0);
    if (r == 0)
        r = wb_past_may_have_device(req, node);
    if (r == 0)
        r = wb_past_stat(session, node, &entry.attr);
    entry.entry_timeout = question.fixed ? WB_TIMEOUT : 0;
    if (r == 0 && !wb_past_is_settled(session, node))
        entry.attr_timeout = 0;
    if (r == WB_ABSENT && question.fixed) {
        fuse_reply_entry(req, &entry);
        return;
    }
    if (r != 0) {
        wb_past_unref(session, node);
        /* Not cached: it may mean something soon. */
        fuse_reply_err(req, r == WB_ABSENT ? ENOENT : -wb_past_result(session, r));
        return;
    }
    entry.ino = wb_node_ino(session, &node->node);
    entry.generation = wb_node_generation(node->node.object, wb_revision_when(node->revision));
    wb_past_give(session, node);
    if (fuse_reply_entry(req, &entry) == -ENOENT)
        wb_past_forget(session, &node->node, 1);
}
