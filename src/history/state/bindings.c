/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/state/bindings.h"

#include "base/cleanup.h"
#include "history/internal.h"
#include "history/log_cursor.h"
#include "history/state/lookback.h"
#include <errno.h>
#include <glib.h>
#include <stdatomic.h>
#include <string.h>

/* So many catalogs are held open: a path longer than that is read again at each moment. */
#define WALKS_MAX 64
/* By all threads together: 1024 descriptors must do, and most are for what users have open. */
#define CATALOGS_MAX 128

static atomic_uint catalogs;

/* What a name was bound to. */
struct binding {
    bool present;
    struct wb_object object;
    uint32_t mode;
};

/* One name of one directory, on the way back. */
struct walk {
    struct wb_object dir;
    char *name;
    uint64_t used;
    int64_t when;          /* the moment it has reached */
    struct binding now;    /* at that moment */
    bool has_older;        /* the newest change at or before that moment: when, and what it was bound to before */
    int64_t older_when;
    struct binding older;
    int64_t unknown_before; /* of moments before this one the records alone do not say it; 0: they say all */
    struct wb_log_cursor catalog;
};

struct wb_bindings {
    struct wb_history *history;
    GPtrArray *walks;
    uint64_t clock; /* of `used` */
};

static void close_catalog(struct walk *walk)
{
    if (walk->catalog.fd >= 0)
        atomic_fetch_sub(&catalogs, 1);
    wb_log_cursor_close(&walk->catalog);
}

static void walk_free(void *data)
{
    struct walk *walk = data;

    close_catalog(walk);
    g_free(walk->name);
    g_free(walk);
}

struct wb_bindings *wb_bindings_new(struct wb_history *history)
{
    struct wb_bindings *bindings = g_try_new0(struct wb_bindings, 1);

    if (!bindings)
        return NULL;
    bindings->history = history;
    bindings->walks = g_ptr_array_new_with_free_func(walk_free);
    return bindings;
}

struct wb_bindings *wb_bindings_free(struct wb_bindings *bindings)
{
    if (!bindings)
        return NULL;
    g_ptr_array_unref(bindings->walks);
    g_free(bindings);
    return NULL;
}

void wb_bindings_rest(struct wb_bindings *bindings)
{
    g_ptr_array_set_size(bindings->walks, 0);
}

/* ---- one walk ------------------------------------------------------------------------------------ */

/* Reads on to the next older change of the name. 0 or -errno. Behind a gap, a filler or damage nothing is certain. */
static int read_older(struct wb_history *history, struct walk *walk)
{
    int64_t horizon = wb_store_horizon(history->store);
    const struct wb_record *head = &walk->catalog.head;
    const struct wb_slot *slot;
    int r;

    walk->has_older = false;
    for (; (r = wb_log_cursor_peek(&walk->catalog)) == 0; wb_log_cursor_take(&walk->catalog)) {
        if (head->type == WB_REC_GAP || head->type == WB_REC_FILLER) {
            walk->unknown_before = head->when;
            return 0;
        }
        if (head->when <= horizon)
            return 0;
        slot = head->type == WB_REC_NAME ? wb_record_slot(head, walk->name) : NULL;
        if (!slot)
            continue;
        walk->has_older = true;
        walk->older_when = head->when;
        walk->older = (struct binding){slot->present, slot->object, slot->attrs.mode};
        wb_log_cursor_take(&walk->catalog);
        return 0;
    }
    if (r == WB_DAMAGED)
        walk->unknown_before = WB_WHEN_PRESENT;
    return MIN(r, 0);
}

/* Passes over so many records that are about other names: most logs end there, and need not be held open. */
#define AHEAD 16

static void look_ahead(struct wb_history *history, struct walk *walk)
{
    int64_t horizon = wb_store_horizon(history->store);
    const struct wb_record *head = &walk->catalog.head;
    int r = 0;

    for (unsigned i = 0; i < AHEAD && walk->has_older && (r = wb_log_cursor_peek(&walk->catalog)) == 0; i++) {
        if (head->type == WB_REC_GAP || head->type == WB_REC_FILLER || head->when <= horizon ||
            (head->type == WB_REC_NAME && wb_record_slot(head, walk->name)))
            return;
        wb_log_cursor_take(&walk->catalog);
    }
    if (r == WB_DAMAGED)
        walk->unknown_before = WB_WHEN_PRESENT;
    if (!walk->has_older || r == WB_END || r == WB_DAMAGED)
        close_catalog(walk); /* nothing is read any more */
}

/* Goes back to `when`. 0 or -errno. */
static int go_back(struct wb_history *history, struct walk *walk, int64_t when)
{
    int r = 0;

    while (r == 0 && walk->has_older && walk->older_when > when) {
        walk->now = walk->older;
        r = read_older(history, walk);
    }
    look_ahead(history, walk);
    walk->when = when;
    return r;
}

/* The present is read before the catalog, which has a record of every change before it happens. */
static int begin(struct wb_history *history, struct walk *walk, struct wb_revision *dir)
{
    _cleanup_close_ int fd = -1;
    struct wb_attrs attrs;
    int r;

    r = wb_resolve(history, dir, &fd, NULL);
    if (r < 0)
        return r;
    r = fd < 0 ? -ENOENT : wb_object_stat(history->store, fd, walk->name, &walk->now.object, &attrs, NULL);
    if (r < 0 && r != -ENOENT)
        return r;
    walk->now.present = r == 0;
    walk->now.mode = r == 0 ? attrs.mode : 0;
    r = wb_log_cursor_open(&walk->catalog, history->store, walk->dir, WB_FILE_CATALOG);
    if (walk->catalog.fd >= 0)
        atomic_fetch_add(&catalogs, 1);
    return r < 0 ? r : read_older(history, walk);
}

/* ---- all of them --------------------------------------------------------------------------------- */

static struct walk *find(struct wb_bindings *bindings, struct wb_object dir, const char *name)
{
    for (guint i = 0; i < bindings->walks->len; i++) {
        struct walk *walk = bindings->walks->pdata[i];

        if (wb_object_equal(walk->dir, dir) && strcmp(walk->name, name) == 0)
            return walk;
    }
    return NULL;
}

static void make_room(struct wb_bindings *bindings)
{
    guint oldest = 0;

    if (bindings->walks->len < WALKS_MAX)
        return;
    for (guint i = 1; i < bindings->walks->len; i++)
        if (((struct walk *)bindings->walks->pdata[i])->used < ((struct walk *)bindings->walks->pdata[oldest])->used)
            oldest = i;
    g_ptr_array_remove_index_fast(bindings->walks, oldest);
}

static struct walk *add(struct wb_bindings *bindings, struct wb_revision *dir, const char *name)
{
    struct walk *walk;
    int64_t settled = wb_history_quiet_since(bindings->history);

    /* A later change may be under way, and its record of no account in the end. */
    if (dir->when >= settled || strlen(name) > WB_NAME_MAX || atomic_load(&catalogs) >= CATALOGS_MAX)
        return NULL;
    walk = g_try_new0(struct walk, 1);
    if (!walk)
        return NULL;
    walk->dir = dir->object;
    walk->name = g_strdup(name);
    walk->when = settled;
    walk->catalog = (struct wb_log_cursor)WB_LOG_CURSOR_INIT;
    /* Whatever prevents it: the general way reports it. */
    if (begin(bindings->history, walk, dir) < 0) {
        walk_free(walk);
        return NULL;
    }
    make_room(bindings);
    g_ptr_array_add(bindings->walks, walk);
    return walk;
}

/* The walk of dir/name, at the moment of `dir`; NULL where the general way is to be taken. */
static struct walk *reach(struct wb_bindings *bindings, struct wb_revision *dir, const char *name)
{
    struct walk *walk;

    if (dir->type != S_IFDIR || !*name)
        return NULL;
    walk = find(bindings, dir->object, name);
    if (!walk)
        walk = add(bindings, dir, name);
    if (!walk || dir->when > walk->when)
        return NULL;
    walk->used = ++bindings->clock;
    if (go_back(bindings->history, walk, dir->when) < 0)
        walk->unknown_before = WB_WHEN_PRESENT;
    return dir->when < walk->unknown_before ? NULL : walk;
}

int wb_bindings_child(struct wb_bindings *bindings, struct wb_revision *dir, const char *name,
                      struct wb_revision **ret)
{
    struct wb_revision *found __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_history *history = bindings->history;
    struct walk *walk = wb_listing_hides(dir, name) ? NULL : reach(bindings, dir, name);
    int r;

    if (!walk || (walk->now.present && wb_born_after(walk->now.object, dir->when)) ||
        wb_history_check_log(history, dir->object, WB_FILE_CATALOG, dir->when) < 0)
        return wb_revision_child(history, dir, name, ret);
    r = walk->now.present ? wb_revision_below(dir, name, walk->now.object, walk->now.mode, &found) : WB_ABSENT;
    r = (int)wb_history_end(history, dir->when, r);
    if (r == 0)
        *ret = g_steal_pointer(&found);
    return r;
}

int wb_bindings_change(struct wb_bindings *bindings, struct wb_revision *dir, const char *name, int64_t *ret)
{
    struct walk *walk = reach(bindings, dir, name);

    if (!walk || (!walk->has_older && walk->unknown_before > 0))
        return wb_lookback_change(bindings->history->store, dir->object, name, dir->when, ret);
    if (!walk->has_older)
        return WB_ABSENT;
    *ret = walk->older_when;
    return 0;
}

bool wb_bindings_never_was(struct wb_bindings *bindings, struct wb_revision *dir, const char *name)
{
    struct walk *walk = reach(bindings, dir, name);

    return walk && !walk->now.present && !walk->has_older && walk->unknown_before == 0 &&
           wb_history_check_log(bindings->history, dir->object, WB_FILE_CATALOG, dir->when) == 0;
}
