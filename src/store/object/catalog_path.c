/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "store/object/catalog_path.h"
#include "base/cleanup.h"
#include "format/object_key.h"
#include "store/object/object_log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/*
 * One directory on the way up. `rank` selects one of its places. Rank 0 is the one with which its catalog begins: right
 * for every directory that never moved, and read without a walk through the catalog; rank N is the N-th newest.
 */
struct step {
    struct wb_object self;
    struct wb_object parent;
    unsigned rank;
    char name[WB_NAME_MAX + 1];
};

static int take_place(const struct wb_record *record, struct step *step)
{
    const struct wb_rec_place *place = &record->place;

    if (!wb_object_equal(place->self, step->self))
        return -EIO;
    memcpy(step->name, place->name, place->name_length);
    step->name[place->name_length] = '\0';
    step->parent = place->parent;
    return memchr(step->name, '/', place->name_length) || !place->name_length ? -EIO : 0;
}

/* Reads the place of rank step->rank. `all`: includes those of aborted moves. WB_END: there is none. */
static int read_place(const struct wb_store *store, struct step *step, bool all)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_log_skip skip = {0};
    struct wb_record record;
    unsigned left = step->rank;
    int r = wb_object_log_open(&log, store, step->self, WB_FILE_CATALOG);

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    if (left == 0) {
        wb_log_reader_seek(&log.reader, 0);
        r = wb_log_reader_next(&log.reader, &record);
        return r == 0 && record.type == WB_REC_PLACE ? take_place(&record, step) : r < 0 ? r : -EIO;
    }
    /* Damage only loses the places in it: each place is verified. */
    do {
        r = all ? wb_log_reader_prev(&log.reader, &record)
                : wb_log_reader_prev_effective(&log.reader, &skip, &record);
        if (r == 0 && record.type == WB_REC_PLACE && --left == 0)
            return take_place(&record, step);
    } while (r == 0 || r == WB_DAMAGED);
    return r;
}

/* Opens the next directory of a chain below *fd. 0, WB_ABSENT (not found there), or -errno. */
static int enter(const struct wb_store *store, const struct step *step, int *fd)
{
    _cleanup_close_ int next = openat(*fd, step->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct wb_object found;
    int r = next < 0 ? -errno : wb_object_stat(store, next, NULL, &found, NULL, NULL);

    if (r < 0)
        return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV ? WB_ABSENT : r;
    if (!wb_object_equal(found, step->self))
        return WB_ABSENT;
    close(*fd);
    *fd = wb_steal_fd(&next);
    return 0;
}

/* Walks down the chain from the root. WB_ABSENT: *ret_wrong is the first directory that is not at its place. */
static int descend(const struct wb_store *store, GArray *chain, int *ret_fd, unsigned *ret_wrong)
{
    _cleanup_close_ int fd = openat(store->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : 0;

    for (unsigned i = chain->len; r == 0 && i-- > 0;) {
        r = enter(store, &g_array_index(chain, struct step, i), &fd);
        *ret_wrong = i;
    }
    if (r == 0)
        *ret_fd = wb_steal_fd(&fd);
    return r;
}

/* The index of `dir` in the chain, or its length. */
static unsigned find_in(const GArray *chain, struct wb_object dir)
{
    unsigned i = 0;

    while (i < chain->len && !wb_object_equal(g_array_index(chain, struct step, i).self, dir))
        i++;
    return i;
}

/* ---- the newest places ----------------------------------------------------------------------- */

/*
 * Every directory has one place at a time. The search assumes the first one until the directory is not found there,
 * then the newest one; it never tries a refuted place again, so the number of steps grows with the number of
 * directories on the way, not with the number of their moves. A newest place may belong to a move that has not happened
 * yet (the record precedes it) or whose failure has not been recorded yet: hence one or two more.
 */
#define RANK_MAX 4

/* Selects the next older place. 0; -EAGAIN: no more places to try; or -errno. */
static int advance(const struct wb_store *store, struct step *step)
{
    int r = -EIO;

    while (r == -EIO && step->rank < RANK_MAX) {
        step->rank++;
        r = read_place(store, step, false);
    }
    return r == WB_END || r == -EIO || r == -ENOENT ? -EAGAIN : r;
}

static void remember(GHashTable *places, const struct step *step)
{
    struct step *own = g_memdup2(step, sizeof(*step));

    g_hash_table_replace(places, &own->self, own);
}

/* The place to try for `dir`, given the places refuted so far. 0, -ENOENT (no catalog) or -errno. */
static int known_place(const struct wb_store *store, GHashTable *places, struct wb_object dir, struct step *ret)
{
    const struct step *known = g_hash_table_lookup(places, &dir);
    int r;

    if (known) {
        *ret = *known;
        return 0;
    }
    *ret = (struct step){.self = dir};
    r = read_place(store, ret, false);
    if (r == -EIO || r == WB_END)
        r = advance(store, ret);
    if (r == 0)
        remember(places, ret);
    return r;
}

/* Selects the next place for step `i` of the chain. */
static int refute(const struct wb_store *store, GHashTable *places, GArray *chain, unsigned i)
{
    struct step *step = &g_array_index(chain, struct step, i);
    int r = advance(store, step);

    if (r == 0)
        remember(places, step);
    return r;
}

/* A ring from step `from` on: a was once in b, and later b in a. Directories in it that still have their first place
 * have moved. */
static int break_ring(const struct wb_store *store, GHashTable *places, GArray *chain, unsigned from)
{
    int r = -EAGAIN;

    for (unsigned i = from; i < chain->len; i++) {
        if (g_array_index(chain, struct step, i).rank > 0)
            continue;
        r = refute(store, places, chain, i);
        if (r < 0)
            return r;
    }
    return r;
}

/* The chain from `dir` up to the root. 0; -EAGAIN: the places tried so far do not lead there. */
static int climb_known(const struct wb_store *store, GHashTable *places, struct wb_object dir, GArray *chain)
{
    struct step step;
    unsigned ring;
    int r;

    g_array_set_size(chain, 0);
    for (struct wb_object at = dir; !wb_object_equal(at, store->header.root);) {
        if (chain->len == WB_RESOLVE_STEPS_MAX)
            return -ELOOP;
        ring = find_in(chain, at);
        if (ring < chain->len) {
            r = break_ring(store, places, chain, ring);
            if (r < 0)
                return r;
            g_array_set_size(chain, 0);
            at = dir;
            continue;
        }
        r = wb_object_is_none(at) ? -ENOENT : known_place(store, places, at, &step);
        if ((r == -ENOENT || r == -EAGAIN) && chain->len > 0) { /* it cannot be inside that directory */
            r = refute(store, places, chain, chain->len - 1);
            if (r == 0) {
                at = g_array_index(chain, struct step, chain->len - 1).parent;
                continue;
            }
        }
        if (r < 0)
            return r;
        g_array_append_val(chain, step);
        at = step.parent;
    }
    return 0;
}

/* 0; WB_ABSENT: in the graveyard; -ENOENT: it has no catalog; -EAGAIN: not found; or -errno. */
static int search_newest(const struct wb_store *store, struct wb_object dir, GArray *chain, int *ret_fd)
{
    g_autoptr(GHashTable) places = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    unsigned wrong = 0;
    int r, buried;

    /* Terminates: every round but the last refutes a place. */
    for (;;) {
        r = climb_known(store, places, dir, chain);
        if (r == 0)
            r = descend(store, chain, ret_fd, &wrong);
        if (r != WB_ABSENT)
            return r;
        buried = wb_grave_has(store, g_array_index(chain, struct step, wrong).self, true);
        if (buried < 0 || (buried > 0 && wrong == 0))
            return buried < 0 ? buried : WB_ABSENT;
        /* A removed directory is empty: the one below it has moved. */
        r = refute(store, places, chain, buried > 0 ? wrong - 1 : wrong);
        if (r < 0)
            return r;
    }
}

/* ---- all places ------------------------------------------------------------------------------ */

/*
 * Completes `chain` from its last directory up to the root. The last may have several places to try; those above it
 * begin with their newest. WB_END or -EIO: its places are exhausted.
 */
static int climb(const struct wb_store *store, GArray *chain, unsigned *budget)
{
    for (;;) {
        struct step *top = &g_array_index(chain, struct step, chain->len - 1);
        struct step next = {.rank = 1};
        int r;

        if ((*budget)-- == 0)
            return -ELOOP;
        r = read_place(store, top, true);
        if (r != 0)
            return r;
        if (wb_object_equal(top->parent, store->header.root))
            return 0;
        if (wb_object_is_none(top->parent))
            return -EIO;
        if (find_in(chain, top->parent) < chain->len) {
            top->rank++;
            continue;
        }
        next.self = top->parent;
        g_array_append_val(chain, next);
    }
}

/* If damage destroyed the newest places: tries every place of `dir` and of every directory they name, newest first. */
static int search_all(const struct wb_store *store, struct wb_object dir, GArray *chain, int *ret_fd)
{
    struct step first = {.self = dir, .rank = 1};
    unsigned budget = WB_RESOLVE_STEPS_MAX, wrong = 0;
    int r;

    g_array_set_size(chain, 0);
    g_array_append_val(chain, first);
    for (;;) {
        r = climb(store, chain, &budget);
        if (r == 0)
            r = descend(store, chain, ret_fd, &wrong);
        else if (r == WB_END || r == -ENOENT || r == -EIO)
            wrong = chain->len - 1; /* the topmost was not found: try another place of the one below */
        else
            return r;
        if (r == 0)
            return 0;
        if (r < 0 && r != -EIO && r != -ENOENT)
            return r;
        if (r != WB_ABSENT) {
            if (wrong == 0)
                return -EIO;
            wrong--;
        }
        g_array_set_size(chain, wrong + 1);
        g_array_index(chain, struct step, wrong).rank++;
    }
}

/* Finds a directory other than the root. As wb_catalog_path_open_dir. */
static int search(const struct wb_store *store, struct wb_object dir, GArray *chain, int *ret_fd)
{
    int r = -EAGAIN, buried;

    /* A search can miss a directory that moves meanwhile at both its places, once. */
    for (int attempt = 0; attempt < 3 && r == -EAGAIN; attempt++)
        r = search_newest(store, dir, chain, ret_fd);
    if (r != -EAGAIN && r != -ENOENT)
        return r;
    buried = wb_grave_has(store, dir, true);
    if (buried != 0)
        return buried < 0 ? buried : WB_ABSENT;
    return r == -EAGAIN ? search_all(store, dir, chain, ret_fd) : r;
}

int wb_catalog_path_of(const struct wb_store *store, struct wb_object dir, int *ret_fd, char **ret_path)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, FALSE, sizeof(struct step));
    _cleanup_close_ int fd = -1;
    int r;

    if (wb_object_equal(dir, store->header.root)) {
        fd = openat(store->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    } else {
        r = search(store, dir, chain, &fd);
    }
    if (r != 0)
        return r == -ELOOP ? -EIO : r;

    if (ret_path) {
        GString *path = g_string_new("");

        for (unsigned i = chain->len; i-- > 0;) {
            g_string_append(path, g_array_index(chain, struct step, i).name);
            if (i > 0)
                g_string_append_c(path, '/');
        }
        *ret_path = g_string_free(path, FALSE);
    }
    if (ret_fd)
        *ret_fd = wb_steal_fd(&fd);
    return 0;
}

int wb_catalog_path_open_dir(const struct wb_store *store, struct wb_object dir, int *ret_fd)
{
    return wb_catalog_path_of(store, dir, ret_fd, NULL);
}
