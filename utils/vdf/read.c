/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdf.h"
#include "client/usage.h"
#include "common/cli.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SILENT (1 * G_USEC_PER_SEC)

/* One measurement. */
struct measuring {
    struct usage *usage;
    int64_t begun, shown;
    uint64_t held; /* bytes of the items */
};

static void show_progress(struct measuring *measuring, const struct wb_control_usage *sums)
{
    int64_t now = g_get_monotonic_time();

    if (!isatty(STDERR_FILENO) || now - measuring->begun < SILENT || now - measuring->shown < SILENT / 5)
        return;
    measuring->shown = now;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " files, %u %%", wb_cli_name(), sums->looked, sums->permille / 10);
}

static void begin(void *data)
{
    struct measuring *measuring = data;

    usage_clear(measuring->usage);
    *measuring->usage = (struct usage){.dirs = g_ptr_array_new_with_free_func(g_free),
                                       .files = g_ptr_array_new_with_free_func(g_free),
                                       .programs = g_ptr_array_new_with_free_func(g_free)};
    measuring->held = 0;
}

static int keep_items(void *data, const struct wb_control *reply)
{
    struct measuring *measuring = data;
    struct usage *usage = measuring->usage;
    size_t at = sizeof(struct wb_control_usage);

    if (reply->flags & WB_CONTROL_USAGE_BUILDING) {
        show_progress(measuring, (const void *)reply->data);
        return 0;
    }
    for (uint32_t i = 0; i < reply->count; i++) {
        const struct wb_control_usage_dir *item = (const void *)(reply->data + at);
        GPtrArray *list = item->kind == WB_CONTROL_USAGE_ITEM_DIR    ? usage->dirs
                          : item->kind == WB_CONTROL_USAGE_ITEM_FILE ? usage->files
                                                                     : usage->programs;

        measuring->held += item->size;
        if (measuring->held > WB_HELD_MAX)
            return -EOVERFLOW;
        g_ptr_array_add(list, g_memdup2(item, item->size));
        at += item->size;
    }
    return 0;
}

int usage_read(int dir_fd, const char *path, unsigned depth, unsigned most, struct usage *ret)
{
    struct measuring measuring = {.usage = ret, .begun = g_get_monotonic_time()};
    struct wb_usage_listener listener = {.begin = begin, .reply = keep_items, .data = &measuring};
    struct wb_control_usage sums;
    unsigned flags;
    int r = wb_request_usage(dir_fd, path, depth, most, &listener, &sums, &flags);

    ret->sums = sums;
    ret->flags = flags;
    if (measuring.shown)
        fputs("\r\033[K", stderr);
    return r;
}

void usage_clear(struct usage *usage)
{
    g_clear_pointer(&usage->dirs, g_ptr_array_unref);
    g_clear_pointer(&usage->files, g_ptr_array_unref);
    g_clear_pointer(&usage->programs, g_ptr_array_unref);
    g_clear_pointer(&usage->snapshots, g_ptr_array_unref);
}
