/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline. It is derived: an entry is a hint, so what counts is that its files can be read, are in order, and
 * lead to records. Mending it is to put it away: it is made anew from the logs.
 */
#include "check/checking.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/timeline/timeline_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define BATCH 512

static const char *entry_wrong(const struct wb_times_entry *entry, int64_t last, bool moves)
{
    if (wb_object_is_none(entry->object))
        return "an entry of the timeline is damaged";
    if (entry->when < last || (!moves && entry->when == last))
        return "the timeline is not in order";
    return NULL;
}

/* NULL: sound. */
static const char *look(struct wb_checking *checking, int dir_fd, const char *name, bool pending)
{
    struct wb_times_entry entries[BATCH];
    struct wb_array array = WB_ARRAY_INIT;
    const char *text = NULL;
    int64_t last = 0;
    int r = wb_array_open(&array, dir_fd, name, false);

    /* One of an older version is made anew by the next mount. */
    if (r < 0)
        return r == -ENOENT || r == -ESTALE ? NULL : "a file of the timeline cannot be read";
    for (uint64_t i = 0; !text && i < array.count; i += BATCH) {
        size_t n = (size_t)MIN(array.count - i, BATCH);

        if (wb_array_read(array.fd, i, entries, n) < 0)
            text = "a file of the timeline cannot be read";
        for (size_t j = 0; !text && j < n; j++) {
            text = entry_wrong(&entries[j], pending ? -1 : last, pending || name[0] == 'm');
            last = entries[j].when;
        }
        if (!wb_check_progress(checking, 0, n * WB_TIMES_ENTRY_SIZE))
            break;
    }
    wb_array_close(&array);
    checking->result.files++;
    return text;
}

int wb_check_timeline(struct wb_checking *checking)
{
    static const char *const names[] = {"times", "moves", "pending"};
    _cleanup_close_ int dir_fd =
        openat(checking->dir_fd, WB_TIMELINE_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    /* A daemon replaces these as it goes along. */
    if (dir_fd < 0 || checking->online)
        return 0;
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_strdup_printf(WB_TIMELINE_NAME "/%s", names[i]);
        struct wb_check_where where = {.file = path};
        const char *text = look(checking, dir_fd, names[i], i == 2);
        int r;

        if (!text)
            continue;
        if (!wb_check_mends(checking, false)) {
            wb_check_report(checking, WB_CHECK_WRONG, "damaged-timeline", where, "can be rebuilt from the logs", "%s",
                            text);
            continue;
        }
        /* Without `pending` all is read again by the next mount. */
        r = unlinkat(dir_fd, "pending", 0) < 0 && errno != ENOENT ? -errno : 0;
        if (r == 0)
            r = unlinkat(dir_fd, names[i], 0) < 0 && errno != ENOENT ? -errno : 0;
        wb_check_report_mended(checking, r, "damaged-timeline", where, "removed; it is rebuilt from the logs", "%s",
                               text);
    }
    return 0;
}
