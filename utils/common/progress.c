/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/progress.h"
#include "common/cli.h"
#include "common/text.h"
#include <stdio.h>
#include <unistd.h>

#define FIRST_US 1000000
#define STEP_US 200000

static struct {
    bool on, shown;
    int64_t next;
    uint64_t files, bytes;
    uint64_t stream; /* of `bytes` */
} progress;

void wb_progress_begin(void)
{
    progress.on = isatty(STDERR_FILENO);
    progress.shown = false;
    progress.next = g_get_monotonic_time() + FIRST_US;
    progress.files = progress.bytes = progress.stream = 0;
}

void wb_progress_add(uint64_t files, uint64_t bytes)
{
    int64_t now;
    char size[WB_TEXT_SIZE_MAX];

    progress.files += files;
    progress.bytes += bytes;
    if (!progress.on)
        return;
    now = g_get_monotonic_time();
    if (now < progress.next)
        return;
    progress.next = now + STEP_US;
    progress.shown = true;
    fprintf(stderr, "\r\033[K%s: %" G_GUINT64_FORMAT " files, %s", wb_cli_name(), progress.files,
            wb_text_size(progress.bytes, size));
}

bool wb_progress_stream(uint64_t bytes, uint64_t changes, void *data)
{
    (void)data;
    (void)changes;
    wb_progress_add(0, bytes > progress.stream ? bytes - progress.stream : 0);
    progress.stream = bytes;
    return !wb_cli_interrupted();
}

void wb_progress_clear(void)
{
    if (progress.shown)
        fputs("\r\033[K", stderr);
    progress.shown = false;
}
