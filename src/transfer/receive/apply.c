/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/receive/apply.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "store/parts.h"
#include "store/inflight/spans.h"
#include "transfer/wire/partial.h"
#include "store/tables/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a crash comes, what was done before is on the disk, and only that. */
static int enter(struct wb_applying *applying, struct wb_received *received, enum wb_received_phase phase)
{
    if (syncfs(applying->tree.dir_fd) < 0)
        return -errno;
    /* A step later on the way to rest would be gone back to nowhere. */
    received->phase = phase;
    return wb_received_write(applying->tree.dir_fd, received);
}

/* It is derived from the logs, and made anew. */
static void drop_timeline(struct wb_applying *applying)
{
    static const char *const names[] = {"pending", "times", "moves"};

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        g_autofree char *path = g_build_filename(WB_TIMELINE_NAME, names[i], NULL);

        unlinkat(applying->tree.dir_fd, path, 0);
    }
}

/* No `when` that was received is given out once more. */
static int raise_clock(struct wb_applying *applying)
{
    struct wb_inflight *inflight;
    int r = wb_inflight_open(&inflight, applying->tree.dir_fd);

    if (r < 0)
        return r;
    wb_inflight_raise(inflight, applying->hello.until);
    r = wb_inflight_mark_open(inflight, applying->tree.dir_fd);
    if (r == 0)
        r = wb_inflight_sync(inflight);
    wb_inflight_free(inflight);
    return r;
}

static int write_header(struct wb_applying *applying)
{
    struct wb_header header = {.version = WB_FORMAT_VERSION, .root = applying->hello.root,
                               .created = applying->hello.created, .forgotten = applying->hello.forgotten};
    uint8_t data[WB_HEADER_SIZE];

    if (applying->hello.since > 0)
        return 0;
    /* Whoever makes a copy of this one has to know, too. */
    if (applying->hello.erased > 0) {
        int r = wb_erased_mark(applying->tree.dir_fd, applying->hello.erased);

        if (r < 0)
            return r;
    }
    memcpy(header.uuid, applying->hello.uuid, sizeof(header.uuid));
    wb_header_encode(&header, data);
    return wb_replace_file(applying->tree.dir_fd, WB_HEADER_NAME, data, sizeof(data), 0600);
}

int wb_apply(struct wb_applying *applying, struct wb_received *received)
{
    /* Deleted files get content here, too. */
    int r = wb_manifest_forget_bodies(applying->tree.dir_fd);

    if (r == 0 && received->phase == WB_RECEIVED_REST) {
        r = wb_apply_check(applying);
        /* Of that stream nothing is gone on with. */
        if (r == -EBADMSG)
            unlinkat(applying->tree.stage_fd, WB_SPOOL_NAME, 0);
        if (r == 0)
            r = wb_apply_new_objects(applying);
        if (r == 0)
            r = wb_copy_tree_bind(&applying->tree);
        if (r == 0)
            r = enter(applying, received, WB_RECEIVED_RECORDS);
    } else if (r == 0) {
        applying->again = true;
    }
    if (r == 0 && received->phase == WB_RECEIVED_RECORDS) {
        drop_timeline(applying);
        r = wb_apply_records(applying);
        if (r == 0)
            r = enter(applying, received, WB_RECEIVED_TREE);
    }
    if (r == 0)
        r = wb_apply_names(applying);
    if (r == 0)
        r = wb_apply_objects(applying);
    /* What was made of the tree here is what the records say. */
    if (r == 0)
        r = wb_spans_begin_anew(applying->tree.dir_fd);
    if (r == 0)
        r = write_header(applying);
    if (r == 0)
        r = raise_clock(applying);
    if (r == 0) {
        received->until = applying->hello.until;
        r = enter(applying, received, WB_RECEIVED_REST);
    }
    return r;
}
