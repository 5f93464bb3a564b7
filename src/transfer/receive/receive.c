/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stream is read to its end before anything is done: what was cut off or altered on the way changes nothing. What
 * came of it is kept, so that the rest is enough.
 */
#include "wayback/copy.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/directory/signpost.h"
#include "store/parts.h"
#include "transfer/receive/receiving.h"
#include "transfer/receive/unchanged.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the copy ----------------------------------------------------------------------------------------- */

/* A directory that has nothing in it but, perhaps, a copy that was begun. */
static int check_new(struct wb_receiving *receiving)
{
    _cleanup_closedir_ DIR *dir = wb_opendir_at(receiving->src_fd, ".");
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (!dir)
        return -errno;
    while (wb_next_entry(dir, &entry, &r))
        if (strcmp(entry->d_name, WB_STORE_NAME) != 0 && strcmp(entry->d_name, "lost+found") != 0)
            return -ENOTEMPTY;
    if (r < 0)
        return r;
    return fstatat(receiving->src_fd, WB_STORE_NAME "/" WB_HEADER_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 ? -ENOTEMPTY : 0;
}

static int read_received(struct wb_receiving *receiving, struct wb_problem *why)
{
    _cleanup_close_ int dir_fd = openat(receiving->src_fd, WB_STORE_NAME,
                                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct wb_signpost signpost;
    int r = dir_fd < 0 ? -errno : wb_received_read(dir_fd, &receiving->received);

    if (r == -ENOENT && wb_signpost_read(dir_fd, &signpost) > 0)
        return wb_problem_set(why, -EXDEV, "its store was moved to %s (vstore), and a copy must contain its store; "
                              "move it back first", signpost.path);
    if (r == -ENOENT) {
        receiving->is_new = true;
        r = check_new(receiving);
        return r < 0 ? wb_problem_set(why, r, "it is neither empty nor a copy; choose an empty or a new directory") : 0;
    }
    return r < 0 ? wb_problem_set(why, r, "the position of this copy cannot be read: %s", g_strerror(-r)) : 0;
}

static int look_at_copy(struct wb_receiving *receiving, const char *path, struct wb_problem *why)
{
    receiving->is_new = false;
    receiving->src_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return receiving->src_fd < 0 ? wb_problem_set(why, -errno, "%s", g_strerror(errno)) : read_received(receiving, why);
}

/* Until there is a stream, nothing is made: whoever sends may have failed. */
static int make_dir(struct wb_receiving *receiving, const char *path, struct wb_problem *why)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return wb_problem_set(why, -errno, "cannot be created: %s", g_strerror(errno));
    /* Something may have come into it while the stream was waited for. */
    if (receiving->src_fd >= 0)
        close(receiving->src_fd);
    return look_at_copy(receiving, path, why);
}

static int open_copy(struct wb_receiving *receiving, struct wb_problem *why)
{
    int r;

    receiving->dir_fd = r = wb_store_dir_open(receiving->src_fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE,
                                              WB_STORE_NAME, why);
    if (r >= 0)
        receiving->lock_fd = r = wb_store_dir_lock(receiving->dir_fd, WB_STORE_NAME, why);
    /* Where it was moved back, the deleted files may still be on their way. */
    if (r >= 0)
        r = wb_store_arrive(receiving->src_fd, receiving->dir_fd, WB_STORE_NAME, why);
    if (r < 0)
        return r;
    /* Somebody else may have been faster. */
    r = wb_received_read(receiving->dir_fd, &receiving->received);
    if (r == -ENOENT && receiving->is_new)
        r = wb_store_dir_fill(receiving->dir_fd);
    if (r == 0 && receiving->is_new)
        r = wb_received_write(receiving->dir_fd, &receiving->received);
    if (r == 0 && mkdirat(receiving->dir_fd, WB_RECEIVING_NAME, 0700) < 0 && errno != EEXIST)
        r = -errno;
    receiving->stage_fd = openat(receiving->dir_fd, WB_RECEIVING_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0 && receiving->stage_fd < 0)
        r = -errno;
    return r < 0 ? wb_problem_set(why, r, "the store of the copy cannot be written: %s", g_strerror(-r)) : 0;
}

static void close_copy(struct wb_receiving *receiving)
{
    wb_close_fd(&receiving->applying.spool_fd);
    wb_close_fd(&receiving->stage_fd);
    wb_close_fd(&receiving->dir_fd);
    wb_close_fd(&receiving->src_fd);
    wb_close_fd(&receiving->lock_fd);
}

/* What was left half made: nothing refers to it. The beginning of a stream may be gone on with. */
static void clear_stage(struct wb_receiving *receiving)
{
    static const char *const halves[] = {"." WB_RECEIVED_NAME ".new", "." WB_HEADER_NAME ".new",
                                         WB_IDENTITIES_NAME ".new"};
    _cleanup_closedir_ DIR *dir = wb_opendir_at(receiving->stage_fd, ".");
    struct dirent *entry;
    int r = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(halves); i++)
        unlinkat(receiving->dir_fd, halves[i], 0);
    /* A courtesy: what cannot be taken away here is looked over later. */
    while (dir && wb_next_entry(dir, &entry, &r))
        if (!(receiving->partial.frames > 0 && strcmp(entry->d_name, WB_SPOOL_NAME) == 0) &&
            unlinkat(receiving->stage_fd, entry->d_name, 0) < 0 && errno == EISDIR)
            (void)!unlinkat(receiving->stage_fd, entry->d_name, AT_REMOVEDIR);
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static int apply(struct wb_receiving *receiving, struct wb_copy_result *result, struct wb_problem *why)
{
    struct wb_applying *applying = &receiving->applying;
    int r;

    applying->result = result;
    applying->why = why;
    applying->tree = (struct wb_copy_tree){.root_fd = receiving->src_fd, .dir_fd = receiving->dir_fd,
                                           .stage_fd = receiving->stage_fd, .root = applying->hello.root};
    why->text[0] = '\0';
    r = wb_copy_tree_open(&applying->tree, why);
    memcpy(receiving->received.uuid, applying->hello.uuid, sizeof(receiving->received.uuid));
    if (r == 0)
        r = wb_apply(applying, &receiving->received);
    wb_copy_tree_close(&applying->tree);
    if (r < 0 && !*why->text)
        wb_problem_set(why, r, "the copy cannot be updated: %s", g_strerror(-r));
    result->since = applying->hello.since;
    receiving->partial.frames = 0;
    if (r == 0)
        clear_stage(receiving);
    return r;
}

/* What was interrupted between the first record and the last name. */
static int complete(struct wb_receiving *receiving, struct wb_copy_result *result, struct wb_problem *why)
{
    struct wb_applying *applying = &receiving->applying;
    struct wb_stream_body body;
    struct wb_frames frames;
    int r;

    if (receiving->received.phase == WB_RECEIVED_REST) {
        wb_partial_find(receiving->stage_fd, &receiving->received, &receiving->partial);
        clear_stage(receiving);
        return 0;
    }
    applying->spool_fd = wb_open_own(receiving->stage_fd, WB_SPOOL_NAME, O_RDONLY, 0);
    r = applying->spool_fd < 0 ? applying->spool_fd : wb_frames_init(&frames, applying->spool_fd, NULL);
    if (r == 0) {
        r = wb_frames_read(&frames, &body, NULL, NULL);
        wb_frames_deinit(&frames);
    }
    if (r < 0 || body.type != WB_FRAME_HELLO)
        return wb_problem_set(why, r < 0 ? r : -EBADMSG, "the last received stream, which has to be completed, "
                              "cannot be read");
    applying->hello = body.hello;
    r = apply(receiving, result, why);
    wb_close_fd(&applying->spool_fd);
    return r;
}

static struct wb_receiving closed(void)
{
    return (struct wb_receiving){.applying.spool_fd = -1, .src_fd = -1, .dir_fd = -1, .lock_fd = -1, .stage_fd = -1};
}

/* 1: there is no stream. */
static int look(struct wb_receiving *receiving, struct wb_frames *frames, const char *dir, struct wb_problem *why)
{
    int r = look_at_copy(receiving, dir, why);

    if (r == -ENOENT && receiving->src_fd < 0) {
        why->text[0] = '\0';
        receiving->is_new = true;
        r = 0;
    }
    if (r < 0 || !receiving->is_new)
        return r;
    r = wb_receiving_read_first(receiving, frames, why);
    return r == 0 ? make_dir(receiving, dir, why) : r;
}

int wb_copy_receive(const char *dir, int fd, const struct wb_copy_listener *listener, struct wb_copy_result *ret,
                    struct wb_problem *why)
{
    struct wb_receiving receiving = closed();
    struct wb_frames frames;
    int r = wb_frames_init(&frames, fd, listener);

    *ret = (struct wb_copy_result){0};
    why->text[0] = '\0';
    if (r == 0)
        r = look(&receiving, &frames, dir, why);
    if (r == 0)
        r = open_copy(&receiving, why);
    if (r == 0)
        r = complete(&receiving, ret, why);
    if (r == 0)
        r = wb_copy_check_unchanged(receiving.dir_fd, receiving.received.until, why);
    if (r == 0)
        r = wb_receiving_spool(&receiving, &frames, why);
    if (r == 0)
        r = apply(&receiving, ret, why);
    ret->until = receiving.received.until;
    ret->bytes = frames.bytes;
    ret->records = frames.records;
    memcpy(ret->uuid, receiving.received.uuid, sizeof(ret->uuid));
    wb_frames_deinit(&frames);
    close_copy(&receiving);
    return r;
}

int wb_copy_status(const char *dir, struct wb_copy_result *ret, struct wb_problem *why)
{
    struct wb_receiving receiving = closed();
    struct stat st;
    int r;

    *ret = (struct wb_copy_result){0};
    why->text[0] = '\0';
    if (stat(dir, &st) < 0 && errno == ENOENT)
        return 0;
    r = look_at_copy(&receiving, dir, why);
    if (r == 0 && !receiving.is_new)
        r = open_copy(&receiving, why);
    if (r == 0 && !receiving.is_new)
        r = complete(&receiving, ret, why);
    ret->until = receiving.received.until;
    memcpy(ret->uuid, receiving.received.uuid, sizeof(ret->uuid));
    ret->point = (struct wb_copy_point){.since = ret->until, .until = receiving.partial.hello.until,
                                        .frames = receiving.partial.frames, .check = receiving.partial.check};
    close_copy(&receiving);
    return r;
}
