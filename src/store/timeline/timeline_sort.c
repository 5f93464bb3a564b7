/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sorting in bounded memory: full buffers are sorted and written to a temporary file as runs, which are then merged.
 */
#include "store/timeline/timeline_parts.h"

#include "base/cleanup.h"
#include "base/io.h"
#include <errno.h>
#include <stdlib.h>

#define BUFFER 65536
#define RUN_BUFFER 64

struct wb_run {
    uint64_t begin, end; /* entries in the file that are not loaded yet */
    unsigned at, loaded;
    struct wb_ranked *entries;
};

void wb_sorter_init(struct wb_sorter *sorter, bool by_object)
{
    *sorter = (struct wb_sorter){.fd = -1, .by_object = by_object, .last = -1};
}

void wb_sorter_deinit(struct wb_sorter *sorter)
{
    for (guint i = 0; sorter->runs && i < sorter->runs->len; i++)
        g_free(g_array_index(sorter->runs, struct wb_run, i).entries);
    if (sorter->runs)
        g_array_free(sorter->runs, TRUE);
    wb_close_fd(&sorter->fd);
    g_free(sorter->buffer);
}

static int compare(const void *a, const void *b)
{
    const struct wb_ranked *x = a, *y = b;

    if (x->entry.when != y->entry.when)
        return x->entry.when < y->entry.when ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->entry.object.ino != y->entry.object.ino)
        return x->entry.object.ino < y->entry.object.ino ? -1 : 1;
    return x->entry.offset < y->entry.offset ? -1 : x->entry.offset > y->entry.offset;
}

static int flush(struct wb_sorter *sorter)
{
    struct wb_run run = {.begin = sorter->written, .end = sorter->written + sorter->used};
    int r;

    if (sorter->fd < 0) {
        r = sorter->fd = wb_timeline_temporary(-1);
        if (r < 0)
            return r;
        sorter->runs = g_array_new(FALSE, FALSE, sizeof(struct wb_run));
    }
    qsort(sorter->buffer, sorter->used, sizeof(sorter->buffer[0]), compare);
    r = wb_pwrite_full(sorter->fd, sorter->buffer, sorter->used * sizeof(sorter->buffer[0]),
                       sorter->written * sizeof(sorter->buffer[0]));
    if (r < 0)
        return r;
    g_array_append_val(sorter->runs, run);
    sorter->written = run.end;
    sorter->used = 0;
    return 0;
}

int wb_sorter_add(struct wb_sorter *sorter, const struct wb_times_entry *entry, unsigned rank)
{
    int r;

    if (!sorter->buffer) {
        sorter->buffer = g_try_new(struct wb_ranked, BUFFER);
        if (!sorter->buffer)
            return -ENOMEM;
    }
    if (sorter->used == BUFFER) {
        r = flush(sorter);
        if (r < 0)
            return r;
    }
    sorter->buffer[sorter->used++] = (struct wb_ranked){*entry, (uint8_t)rank};
    return 0;
}

int wb_sorter_finish(struct wb_sorter *sorter)
{
    if (sorter->runs)
        return sorter->used > 0 ? flush(sorter) : 0;
    if (sorter->used > 0)
        qsort(sorter->buffer, sorter->used, sizeof(sorter->buffer[0]), compare);
    return 0;
}

/* Its next entry, or NULL at its end with *error. */
static struct wb_ranked *run_peek(struct wb_sorter *sorter, struct wb_run *run, int *error)
{
    if (run->at == run->loaded) {
        unsigned n = (unsigned)MIN(run->end - run->begin, RUN_BUFFER);

        if (n == 0)
            return NULL;
        if (!run->entries)
            run->entries = g_try_new(struct wb_ranked, RUN_BUFFER);
        *error = run->entries ? wb_pread_exact(sorter->fd, run->entries, n * sizeof(run->entries[0]),
                                               run->begin * sizeof(run->entries[0]))
                              : -ENOMEM;
        if (*error < 0)
            return NULL;
        run->begin += n;
        run->loaded = n;
        run->at = 0;
    }
    return &run->entries[run->at];
}

/* 0, WB_END or -errno */
static int next_of_all(struct wb_sorter *sorter, struct wb_times_entry *ret)
{
    struct wb_ranked *smallest = NULL;
    struct wb_run *from = NULL;
    int error = 0;

    if (!sorter->runs) {
        if (sorter->next == sorter->used)
            return WB_END;
        *ret = sorter->buffer[sorter->next++].entry;
        return 0;
    }
    for (guint i = 0; i < sorter->runs->len; i++) {
        struct wb_run *run = &g_array_index(sorter->runs, struct wb_run, i);
        struct wb_ranked *entry = run_peek(sorter, run, &error);

        if (error < 0)
            return error;
        if (entry && (!smallest || compare(entry, smallest) < 0)) {
            smallest = entry;
            from = run;
        }
    }
    if (!smallest)
        return WB_END;
    *ret = smallest->entry;
    from->at++;
    return 0;
}

int wb_sorter_next(struct wb_sorter *sorter, struct wb_times_entry *ret)
{
    int r;

    do {
        r = next_of_all(sorter, ret);
    } while (r == 0 && ret->when == sorter->last &&
             (!sorter->by_object || wb_object_equal(ret->object, sorter->last_object)));
    if (r == 0) {
        sorter->last = ret->when;
        sorter->last_object = ret->object;
    }
    return r;
}
