/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdf.h"
#include "common/cli.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SILENT (1 * G_USEC_PER_SEC)
/* Requests in a row that bring nothing on, each of a tenth of a second. */
#define STANDING_STILL 36000

struct progress {
    int64_t begun, shown;
    uint64_t looked;
    uint32_t permille;
    unsigned still;
};

static void say(struct progress *progress, const struct wb_control_usage *sums)
{
    int64_t now = g_get_monotonic_time();
    bool still = sums->looked == progress->looked && sums->permille == progress->permille;

    progress->still = still ? progress->still + 1 : 0;
    progress->looked = sums->looked;
    progress->permille = sums->permille;
    if (!isatty(STDERR_FILENO) || now - progress->begun < SILENT || now - progress->shown < SILENT / 5)
        return;
    progress->shown = now;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " files, %u %%", wb_cli_name(), sums->looked, sums->permille / 10);
}

static int keep_dirs(const struct wb_control *reply, struct usage *usage, uint64_t *held)
{
    size_t at = sizeof(struct wb_control_usage);

    for (uint32_t i = 0; i < reply->count; i++) {
        const struct wb_control_usage_dir *dir = (const void *)(reply->data + at);

        *held += dir->size;
        if (*held > WB_HELD_MAX)
            return -EOVERFLOW;
        g_ptr_array_add(usage->dirs, g_memdup2(dir, dir->size));
        at += dir->size;
    }
    return 0;
}

static int read_once(int dir_fd, const char *path, unsigned depth, struct usage *usage, struct progress *progress)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    struct wb_control_usage_ask *ask = (struct wb_control_usage_ask *)(void *)request->data;
    uint64_t cursor = 0, held = 0;
    int r;

    do {
        if (wb_cli_interrupted())
            return -EINTR;
        r = wb_control_prepare(request, WB_CONTROL_USAGE, path);
        if (r < 0)
            return r;
        ask->depth = depth;
        request->cursor = cursor;
        r = wb_control_call(dir_fd, request);
        if (r < 0)
            return r;
        cursor = request->cursor;
        usage->flags |= request->flags;
        memcpy(&usage->sums, request->data, sizeof(usage->sums));
        if (request->flags & WB_CONTROL_USAGE_BUILDING)
            say(progress, &usage->sums);
        else
            r = keep_dirs(request, usage, &held);
        if (progress->still > STANDING_STILL)
            r = -ETIMEDOUT;
    } while (r == 0 && request->flags & WB_CONTROL_USAGE_MORE);
    return r;
}

int usage_read(int dir_fd, const char *path, unsigned depth, struct usage *ret)
{
    struct progress progress = {.begun = g_get_monotonic_time()};
    int r = -ESTALE;

    /* Something was erased, or many asked at once. */
    for (unsigned i = 0; r == -ESTALE && i < 5; i++) {
        usage_clear(ret);
        *ret = (struct usage){.dirs = g_ptr_array_new_with_free_func(g_free)};
        r = read_once(dir_fd, path, depth, ret, &progress);
    }
    if (progress.shown)
        fputs("\r\033[K", stderr);
    return r;
}

void usage_clear(struct usage *usage)
{
    if (usage->dirs)
        g_ptr_array_unref(usage->dirs);
    usage->dirs = NULL;
    g_clear_pointer(&usage->snapshots, g_ptr_array_unref);
}
