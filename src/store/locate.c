/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "store/locate.h"
#include "base/cleanup.h"
#include "store/object_log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>

/*
 * One directory on the way up. `tried`: how many of its places were found wrong. Place 0 is the one
 * its catalog begins with: right for all that never moved, and met without a walk through the
 * catalog; place N is the N-th newest.
 */
struct step {
    struct wb_object self;
    struct wb_object parent;
    unsigned tried;
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

/* The place number step->tried of the directory; WB_END: it has no more. */
static int find_place(const struct wb_store *store, struct step *step)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    unsigned left = step->tried;
    int r = wb_object_log_open(&log, store, step->self, WB_FILE_CATALOG);

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    if (left == 0) {
        wb_log_reader_seek(&log.reader, 0);
        r = wb_log_reader_next(&log.reader, &record);
        return r == 0 && record.type == WB_REC_PLACE ? take_place(&record, step) : r < 0 ? r : -EIO;
    }
    /* damage costs the places in it, not the others: what is found is verified anyway */
    while ((r = wb_log_reader_prev(&log.reader, &record)) == 0 || r == WB_DAMAGED)
        if (r == 0 && record.type == WB_REC_PLACE && --left == 0)
            return take_place(&record, step);
    return r;
}

/* Places of different times can form a ring: a was in b once, and later b in a. */
static bool contains(const GArray *chain, struct wb_object dir)
{
    for (unsigned i = 0; i < chain->len; i++)
        if (wb_object_equal(g_array_index(chain, struct step, i).self, dir))
            return true;
    return false;
}

/*
 * Completes `chain` from its last directory up to the root. The last may have several places to
 * try; those above it begin with their first. WB_END or -EIO: its places are used up.
 */
static int climb(const struct wb_store *store, GArray *chain, unsigned *budget)
{
    for (;;) {
        struct step *top = &g_array_index(chain, struct step, chain->len - 1);
        struct step next = {0};
        int r;

        if ((*budget)-- == 0)
            return -ELOOP;
        r = find_place(store, top);
        if (r == -EIO && top->tried == 0) { /* a damaged beginning: the newer places are left */
            top->tried++;
            continue;
        }
        if (r != 0)
            return r;
        if (wb_object_equal(top->parent, store->header.root))
            return 0;
        if (wb_object_is_none(top->parent))
            return -EIO;
        if (contains(chain, top->parent)) {
            top->tried++;
            continue;
        }
        next.self = top->parent;
        g_array_append_val(chain, next);
    }
}

/*
 * Walks down the chain from the root. 0; or WB_ABSENT with *ret_wrong: the first directory that is
 * not where its place says.
 */
static int descend(const struct wb_store *store, GArray *chain, int *ret_fd, unsigned *ret_wrong)
{
    _cleanup_close_ int fd = openat(store->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    for (unsigned i = chain->len; i-- > 0;) {
        struct step *step = &g_array_index(chain, struct step, i);
        struct wb_object found;
        int next = openat(fd, step->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = next < 0 ? -errno : wb_object_stat(store, next, NULL, &found, NULL, NULL);

        if (next >= 0) {
            close(fd);
            fd = next;
        }
        if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -EXDEV)
            return r;
        if (r < 0 || !wb_object_equal(found, step->self)) {
            *ret_wrong = i;
            return WB_ABSENT;
        }
    }
    *ret_fd = wb_steal_fd(&fd);
    return 0;
}

/* One search through the places of `dir` and of whatever they name as parents. */
static int search(const struct wb_store *store, struct wb_object dir, GArray *chain, int *ret_fd,
                  unsigned *budget)
{
    struct step first = {.self = dir};
    unsigned wrong = 0;
    int r;

    g_array_set_size(chain, 0);
    g_array_append_val(chain, first);
    for (;;) {
        r = climb(store, chain, budget);
        if (r == 0)
            r = descend(store, chain, ret_fd, &wrong);
        else if (r == WB_END || r == -ENOENT || r == -EIO)
            wrong = chain->len - 1; /* the topmost is nowhere: another place of the one below */
        else
            return r;
        if (r == 0)
            return 0;
        if (r != WB_ABSENT) {
            if (wrong == 0)
                return r == -ENOENT && g_array_index(chain, struct step, 0).tried == 0 ? -ENOENT : -EIO;
            wrong--;
        }
        g_array_set_size(chain, wrong + 1);
        g_array_index(chain, struct step, wrong).tried++;
    }
}

int wb_store_locate_path(const struct wb_store *store, struct wb_object dir, int *ret_fd, char **ret_path)
{
    g_autoptr(GArray) chain = g_array_new(FALSE, FALSE, sizeof(struct step));
    _cleanup_close_ int fd = -1;
    unsigned budget = WB_LOCATE_STEPS_MAX;
    int r = -EIO;

    if (wb_object_equal(dir, store->header.root)) {
        fd = openat(store->src_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    } else {
        /* A directory that moves while it is sought can be missed at both its places, once. */
        for (int attempt = 0; attempt < 3 && r == -EIO; attempt++)
            r = search(store, dir, chain, &fd, &budget);
        if (r == -EIO || r == -ENOENT) {
            int buried = wb_grave_has(store, dir, true);

            if (buried != 0)
                return buried < 0 ? buried : WB_ABSENT;
        }
    }
    if (r < 0)
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

int wb_store_locate_dir(const struct wb_store *store, struct wb_object dir, int *ret_fd)
{
    return wb_store_locate_path(store, dir, ret_fd, NULL);
}
