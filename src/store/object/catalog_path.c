/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "store/object/catalog_path.h"
#include "base/cleanup.h"
#include "format/object_key.h"
#include "store/object/object_log.h"
#include "wayback/held.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

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

/* A place that was read, and where the chain that is being climbed has it. */
struct known_place {
    struct step step;
    uint64_t climb;
    unsigned index;
};

struct wb_catalog_places {
    GHashTable *by_object; /* of struct known_place */
    uint64_t climbs;
};

/* More are not kept for the next search: a few MiB. A single search may need as many. */
#define KNOWN_MAX (2 * WB_RESOLVE_STEPS_MAX)

struct wb_catalog_places *wb_catalog_places_new(void)
{
    struct wb_catalog_places *places = g_new0(struct wb_catalog_places, 1);

    places->by_object = g_hash_table_new_full(wb_object_hash, wb_object_is_key, NULL, g_free);
    return places;
}

void wb_catalog_places_free(struct wb_catalog_places *places)
{
    if (!places)
        return;
    g_hash_table_unref(places->by_object);
    g_free(places);
}

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

/* ---- down the chain --------------------------------------------------------------------------- */

/* The names from step *i - 1 on downward to step `end`, as many as a system call takes; *i: the step after them. */
static void take_names(const GArray *chain, unsigned *i, unsigned end, char path[PATH_MAX])
{
    size_t length = 0;

    while (*i > end) {
        const char *name = g_array_index(chain, struct step, *i - 1).name;
        size_t more = strlen(name);

        if (length + 1 + more >= PATH_MAX)
            break;
        if (length > 0)
            path[length++] = '/';
        memcpy(path + length, name, more);
        length += more;
        --*i;
    }
    path[length] = '\0';
}

static bool is_elsewhere(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EXDEV || error == -EAGAIN;
}

/* Opens the directory of step `end` by the names of those above it and its own. 0, WB_ABSENT (not found there), or
 * -errno. */
static int open_step(const struct wb_store *store, const GArray *chain, unsigned end, int *ret_fd)
{
    _cleanup_close_ int fd = -1;
    struct wb_object found;
    char path[PATH_MAX];
    int r = 0;

    for (unsigned i = chain->len; r == 0 && i > end;) {
        int next;

        take_names(chain, &i, end, path);
        next = wb_open_beneath(fd < 0 ? store->src_fd : fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
        r = MIN(next, 0);
        wb_close_fd(&fd);
        fd = next;
    }
    if (r == 0)
        r = wb_object_stat(store, fd, NULL, &found, NULL, NULL);
    if (r < 0)
        return is_elsewhere(r) ? WB_ABSENT : r;
    if (!wb_object_equal(found, g_array_index(chain, struct step, end).self))
        return WB_ABSENT;
    *ret_fd = wb_steal_fd(&fd);
    return 0;
}

/*
 * Opens the first directory of the chain. WB_ABSENT: *ret_wrong is a directory that is not at its place, while the one
 * that the place is in (or the root) was found. That is found by halving: few system calls, however long the chain is.
 */
static int descend(const struct wb_store *store, const GArray *chain, int *ret_fd, unsigned *ret_wrong)
{
    unsigned absent = 0, present = chain->len;
    int error = open_step(store, chain, 0, ret_fd);

    /* Another directory that has the name of one above may be closed to this process. */
    while ((error == WB_ABSENT || error == -EACCES) && present - absent > 1) {
        _cleanup_close_ int fd = -1;
        unsigned middle = absent + (present - absent) / 2;
        int r = open_step(store, chain, middle, &fd);

        if (r == 0) {
            present = middle;
        } else {
            absent = middle;
            error = r;
        }
    }
    *ret_wrong = absent;
    return error;
}

/* ---- up the chain ------------------------------------------------------------------------------ */

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

/* `step`, which becomes step `index` of the chain. */
static void remember(struct wb_catalog_places *places, const struct step *step, unsigned index)
{
    struct known_place *known = g_new(struct known_place, 1);

    *known = (struct known_place){*step, places->climbs, index};
    g_hash_table_replace(places->by_object, &known->step.self, known);
}

/* Selects the next place for step `i` of the chain. */
static int refute(const struct wb_store *store, struct wb_catalog_places *places, GArray *chain, unsigned i)
{
    struct step *step = &g_array_index(chain, struct step, i);
    int r = advance(store, step);

    if (r == 0)
        remember(places, step, i);
    return r;
}

/* A ring from step `from` on: a was once in b, and later b in a. Directories in it that still have their first place
 * have moved. */
static int break_ring(const struct wb_store *store, struct wb_catalog_places *places, GArray *chain, unsigned from)
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

/* Appends the place to try for `dir`, given the places refuted so far. 0; 1: the chain has it at *ret_ring; -ENOENT (no
 * catalog) or -errno. */
static int append_place(const struct wb_store *store, struct wb_catalog_places *places, struct wb_object dir,
                        GArray *chain, unsigned *ret_ring)
{
    struct known_place *known = g_hash_table_lookup(places->by_object, &dir);
    struct step step = {.self = dir};
    int r;

    if (known && known->climb == places->climbs) {
        *ret_ring = known->index;
        return 1;
    }
    if (known) {
        known->climb = places->climbs;
        known->index = chain->len;
        g_array_append_val(chain, known->step);
        return 0;
    }
    r = read_place(store, &step, false);
    if (r == -EIO || r == WB_END)
        r = advance(store, &step);
    if (r == 0) {
        remember(places, &step, chain->len);
        g_array_append_val(chain, step);
    }
    return r;
}

/* The chain from `dir` up to the root. 0; -EAGAIN: the places tried so far do not lead there. */
static int climb_known(const struct wb_store *store, struct wb_catalog_places *places, struct wb_object dir,
                       GArray *chain)
{
    unsigned ring = 0;
    int r;

    g_array_set_size(chain, 0);
    places->climbs++;
    for (struct wb_object at = dir; !wb_object_equal(at, store->header.root);) {
        if (chain->len == WB_RESOLVE_STEPS_MAX)
            return -ELOOP;
        r = wb_object_is_none(at) ? -ENOENT : append_place(store, places, at, chain, &ring);
        if (r > 0) {
            r = break_ring(store, places, chain, ring);
            if (r < 0)
                return r;
            g_array_set_size(chain, 0);
            places->climbs++;
            at = dir;
            continue;
        }
        if ((r == -ENOENT || r == -EAGAIN) && chain->len > 0) /* it cannot be inside that directory */
            r = refute(store, places, chain, chain->len - 1);
        if (r < 0)
            return r;
        at = g_array_index(chain, struct step, chain->len - 1).parent;
    }
    return 0;
}

/* 0; WB_ABSENT: in the graveyard; -ENOENT: it has no catalog; -EAGAIN: not found; or -errno. */
static int search_newest(const struct wb_store *store, struct wb_catalog_places *places, struct wb_object dir,
                         GArray *chain, int *ret_fd)
{
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

/*
 * With places that earlier searches read. One that they refuted may be right after another move, and the way by one
 * that is no longer right may be closed or too long: if this finds nothing, a new search decides (-EAGAIN). Else as
 * search_newest.
 */
static int search_known(const struct wb_store *store, struct wb_catalog_places *known, struct wb_object dir,
                        GArray *chain, int *ret_fd)
{
    int r = wb_grave_has(store, dir, true);

    if (r != 0)
        return r < 0 ? r : WB_ABSENT;
    r = search_newest(store, known, dir, chain, ret_fd);
    if (r < 0 || g_hash_table_size(known->by_object) > KNOWN_MAX)
        g_hash_table_remove_all(known->by_object);
    return r < 0 ? -EAGAIN : r;
}

static int search_anew(const struct wb_store *store, struct wb_object dir, GArray *chain, int *ret_fd)
{
    struct wb_catalog_places *places = wb_catalog_places_new();
    int r = search_newest(store, places, dir, chain, ret_fd);

    wb_catalog_places_free(places);
    return r;
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

/* Finds a directory other than the root. As wb_catalog_path_find. */
static int search(const struct wb_store *store, struct wb_catalog_places *known, struct wb_object dir, GArray *chain,
                  int *ret_fd)
{
    int r = known ? search_known(store, known, dir, chain, ret_fd) : -EAGAIN, buried;

    /* A search can miss a directory that moves meanwhile at both its places, once. */
    for (int attempt = 0; attempt < 3 && r == -EAGAIN; attempt++)
        r = search_anew(store, dir, chain, ret_fd);
    if (r != -EAGAIN && r != -ENOENT)
        return r;
    buried = wb_grave_has(store, dir, true);
    if (buried != 0)
        return buried < 0 ? buried : WB_ABSENT;
    return r == -EAGAIN ? search_all(store, dir, chain, ret_fd) : r;
}

static char *path_of_chain(const GArray *chain)
{
    GString *path = g_string_new("");

    for (unsigned i = chain->len; i-- > 0;) {
        g_string_append(path, g_array_index(chain, struct step, i).name);
        if (i > 0)
            g_string_append_c(path, '/');
    }
    return g_string_free(path, FALSE);
}

int wb_catalog_path_find(const struct wb_store *store, struct wb_catalog_places *known, struct wb_object dir,
                         int *ret_fd, char **ret_path)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, FALSE, sizeof(struct step));
    _cleanup_close_ int fd = -1;
    int r;

    if (wb_object_equal(dir, store->header.root)) {
        fd = openat(store->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    } else {
        r = search(store, known, dir, chain, &fd);
    }
    if (r != 0)
        return r == -ELOOP ? -EIO : r;
    if (ret_path)
        *ret_path = path_of_chain(chain);
    if (ret_fd)
        *ret_fd = wb_steal_fd(&fd);
    return 0;
}

int wb_catalog_path_of(const struct wb_store *store, struct wb_object dir, int *ret_fd, char **ret_path)
{
    return wb_catalog_path_find(store, NULL, dir, ret_fd, ret_path);
}

int wb_catalog_path_open_dir(const struct wb_store *store, struct wb_object dir, int *ret_fd)
{
    return wb_catalog_path_find(store, NULL, dir, ret_fd, NULL);
}
