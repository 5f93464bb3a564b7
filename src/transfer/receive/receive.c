/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stream is read to its end before anything is done: what was cut off or altered on the way changes nothing. What
 * came of it is kept, so that the rest is enough.
 */
#include "wayback/copy.h"

#include "base/cleanup.h"
#include "base/dir.h"
#include "base/io.h"
#include "store/directory/shard.h"
#include "store/directory/signpost.h"
#include "store/parts.h"
#include "store/tables/received.h"
#include "transfer/receive/receiving.h"
#include "wayback/error.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The stream as it comes: whether it is one for this copy, and its frames into the spool. */

/* The root has been that of the copy from the first stream on. */
static bool has_root(const struct wb_receiving *receiving, struct wb_object root)
{
    _cleanup_close_ int fd = wb_open_own(receiving->dir_fd, WB_HEADER_NAME, O_RDONLY, 0);
    uint8_t data[WB_HEADER_SIZE];
    struct wb_header header;
    size_t length;

    return fd >= 0 && wb_pread_full(fd, data, sizeof(data), 0, &length) == 0 &&
           wb_header_decode(data, length, &header) == 0 && wb_object_equal(header.root, root);
}

static int check_hello(struct wb_receiving *receiving, const struct wb_stream_hello *hello, struct wb_error *why)
{
    char here[WB_WHEN_TEXT_MAX], there[WB_WHEN_TEXT_MAX];
    const struct wb_received *received = &receiving->received;

    if (hello->format > WB_FORMAT_VERSION)
        return wb_error_set(why, -EPROTONOSUPPORT, "the stream was made by a newer program; receive it with that");
    if (received->until > 0 && memcmp(received->uuid, hello->uuid, sizeof(hello->uuid)) != 0)
        return wb_error_set(why, -EXDEV,
                            "the stream is of another tree than this copy; receive it into another "
                            "directory");
    if (received->until > 0 && !has_root(receiving, hello->root))
        return wb_error_set(why, -EXDEV,
                            "the root of the stream is not that of this copy; receive it into another "
                            "directory");
    if (hello->since == received->until)
        return 0;
    if (received->until == 0)
        return wb_error_set(why, -EXDEV,
                            "the stream begins at %s, but there is nothing here yet; send it from the "
                            "beginning (vsend without --since)",
                            wb_when_print_epoch(hello->since, there));
    if (hello->since == 0)
        return wb_error_set(why, -EEXIST,
                            "the stream begins with the history, but there is a copy here; send only "
                            "new changes (vsend --since %s), or receive it into an empty directory",
                            wb_when_print_epoch(received->until, here));
    return wb_error_set(why, -EXDEV, "the stream begins at %s, but this copy ends at %s; send it with --since %s",
                        wb_when_print_epoch(hello->since, there), wb_when_print_epoch(received->until, here), here);
}

static int write_full(int fd, const void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = write(fd, (const char *)data + done, length - done);

        if (n < 0 && errno != EINTR)
            return -errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int begin_spool(struct wb_receiving *receiving, const struct wb_frames *frames, struct wb_error *why)
{
    struct wb_applying *applying = &receiving->applying;
    int r;

    if (frames->resumed) {
        applying->spool_fd = r = wb_open_own(receiving->stage_fd, WB_SPOOL_NAME, O_RDWR, 0);
        if (r >= 0 && (ftruncate(r, (off_t)receiving->partial.length) < 0 || lseek(r, 0, SEEK_END) < 0))
            r = -errno;
    } else {
        applying->spool_fd = r = wb_create_own(receiving->stage_fd, WB_SPOOL_NAME, O_RDWR);
    }
    return r < 0 ? wb_error_set(why, r, "the stream cannot be stored: %s", g_strerror(-r)) : 0;
}

static int fail_frame(const struct wb_frames *frames, int r, struct wb_error *why)
{
    if (r == -ENODATA || r == -EBADMSG)
        return wb_error_set(
            why, -EBADMSG,
            "the stream was cut off or altered after %" G_GUINT64_FORMAT " bytes; the copy was not changed%s",
            frames->bytes,
            frames->sequence > 1 ? ", and the received part is kept; send the rest (vsend --since `vreceive --status`)"
                                 : "; send it again");
    if (r == -EPROTONOSUPPORT)
        return wb_error_set(why, r, "the stream was made by a newer program; receive it with that");
    if (r == -ECANCELED)
        return wb_error_set(why, r, "stopped; the copy was not changed");
    return wb_error_set(why, r, "the stream cannot be read: %s", g_strerror(-r));
}

/* What was read before is judged once more: by now it may be another copy. */
static int receiving_read_first(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_error *why)
{
    struct wb_stream_hello *hello = &receiving->applying.hello;
    struct wb_stream_body *first = &receiving->first;
    int r = 0;

    if (!first->type)
        r = wb_frames_read(frames, first, receiving->first_head, &receiving->first_length);
    if (r < 0)
        return r == -ENODATA ? 1 : fail_frame(frames, r, why);
    if (frames->resumed == (first->type == WB_FRAME_HELLO))
        return wb_error_set(why, -EBADMSG, "this is not a stream of vsend");
    *hello = frames->resumed ? receiving->partial.hello : first->hello;
    return check_hello(receiving, hello, why);
}

static int write_frame(const struct wb_receiving *receiving, const struct wb_frames *frames, const uint8_t *head,
                       size_t length, struct wb_error *why)
{
    int r = write_full(receiving->applying.spool_fd, head, WB_FRAME_HEAD);

    if (r == 0)
        r = write_full(receiving->applying.spool_fd, frames->buffer, length);
    return r < 0 ? wb_error_set(why, r, "the stream cannot be stored: %s", g_strerror(-r)) : 0;
}

/* Everything up to the end mark into the spool: the same results. */
static int receiving_spool(struct wb_receiving *receiving, struct wb_frames *frames, struct wb_error *why)
{
    uint8_t head[WB_FRAME_HEAD];
    struct wb_stream_body body;
    size_t length;
    int r;

    frames->known = receiving->partial.frames;
    frames->known_check = receiving->partial.check;
    r = receiving_read_first(receiving, frames, why);
    if (r == 0)
        r = begin_spool(receiving, frames, why);
    if (r == 0)
        r = write_frame(receiving, frames, receiving->first_head, receiving->first_length, why);
    body = receiving->first;
    while (r == 0 && body.type != WB_FRAME_END) {
        r = wb_frames_read(frames, &body, head, &length);
        if (r < 0)
            return fail_frame(frames, r, why);
        if (body.type == WB_FRAME_HELLO)
            return wb_error_set(why, -EBADMSG, "this is not a stream of vsend");
        r = write_frame(receiving, frames, head, length, why);
    }
    if (r == 0 && fsync(receiving->applying.spool_fd) < 0)
        r = wb_error_set(why, -errno, "the stream cannot be stored: %s", g_strerror(errno));
    return r;
}

/* A log that was written to since has a newer record: of a change, not of who compacted it. */
static int check_log(int dir_fd, const char *path, int64_t until, struct wb_error *why)
{
    _cleanup_close_ int fd = wb_open_own(dir_fd, path, O_RDONLY, 0);
    struct wb_log_reader reader;
    struct wb_record record;
    char text[WB_WHEN_TEXT_MAX];
    int r = fd < 0 ? fd : wb_log_reader_init(&reader, fd);

    if (r < 0)
        return wb_error_set(why, r, "%s in the store of the copy cannot be read: %s", path, g_strerror(-r));
    while ((r = wb_log_reader_prev(&reader, &record)) == 0 && record.when > until)
        if (record.type != WB_REC_INDEX && record.type != WB_REC_FILLER) {
            r = wb_error_set(why, -EXDEV,
                             "the copy was changed locally (at %s), which the source does not know; "
                             "receive into another directory",
                             wb_when_print(record.when, 1, text));
            break;
        }
    wb_log_reader_deinit(&reader);
    return r < 0 ? r : 0;
}

struct unchanged {
    int dir_fd;
    int64_t until;
    struct wb_error *why;
};

static int check_entry(void *data, int fd, const char *name)
{
    const struct unchanged *unchanged = data;
    char path[WB_OBJECT_PATH_MAX];
    struct wb_object object;
    enum wb_object_file file;
    struct stat st;

    /* Its time of modification is the `when` of its newest record (wb_log_set_mtime). */
    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG) ||
        fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec <= unchanged->until)
        return 0;
    wb_object_path(object, file, path);
    return check_log(unchanged->dir_fd, path, unchanged->until, unchanged->why);
}

/* Since `until`, the last moment that was received; 0: nothing was. 0; -EXDEV with a line in `why`: it was; -errno. */
static int copy_check_unchanged(int dir_fd, int64_t until, struct wb_error *why)
{
    static const char *const common[] = {WB_ACTORS_NAME, WB_SNAPSHOTS_NAME};
    struct unchanged unchanged = {dir_fd, until, why};
    struct stat st;
    int r = 0;

    if (until > 0 && wb_erased_read(dir_fd).named > until)
        return wb_error_set(why, -EXDEV,
                            "history was erased in the copy itself (vrm), which the source does not "
                            "know; receive into another directory");
    /* What others refer to by its place, or a moment that was named here. */
    for (unsigned i = 0; r == 0 && i < G_N_ELEMENTS(common) && until > 0; i++)
        if (fstatat(dir_fd, common[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            r = check_log(dir_fd, common[i], until, why);
    for (unsigned i = 0; r == 0 && i < WB_SHARDS && until > 0; i++)
        r = wb_shard_each(dir_fd, i, check_entry, &unchanged);
    return r < 0 && !*why->text ? wb_error_set(why, r, "the copy cannot be read: %s", g_strerror(-r)) : r;
}

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

static int read_received(struct wb_receiving *receiving, struct wb_error *why)
{
    _cleanup_close_ int dir_fd = openat(receiving->src_fd, WB_STORE_NAME,
                                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct wb_signpost signpost;
    int r = dir_fd < 0 ? -errno : wb_received_read(dir_fd, &receiving->received);

    if (r == -ENOENT && wb_signpost_read(dir_fd, &signpost) > 0)
        return wb_error_set(why, -EXDEV,
                            "its store was moved to %s (vstore), and a copy must contain its store; "
                            "move it back first",
                            signpost.path);
    if (r == -ENOENT) {
        receiving->is_new = true;
        r = check_new(receiving);
        return r < 0 ? wb_error_set(why, r, "it is neither empty nor a copy; choose an empty or a new directory") : 0;
    }
    return r < 0 ? wb_error_set(why, r, "the position of this copy cannot be read: %s", g_strerror(-r)) : 0;
}

static int look_at_copy(struct wb_receiving *receiving, const char *path, struct wb_error *why)
{
    receiving->is_new = false;
    receiving->src_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return receiving->src_fd < 0 ? wb_error_set(why, -errno, "%s", g_strerror(errno)) : read_received(receiving, why);
}

/* Until there is a stream, nothing is made: whoever sends may have failed. */
static int make_dir(struct wb_receiving *receiving, const char *path, struct wb_error *why)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return wb_error_set(why, -errno, "cannot be created: %s", g_strerror(errno));
    /* Something may have come into it while the stream was waited for. */
    if (receiving->src_fd >= 0)
        close(receiving->src_fd);
    return look_at_copy(receiving, path, why);
}

static int open_copy(struct wb_receiving *receiving, struct wb_error *why)
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
    return r < 0 ? wb_error_set(why, r, "the store of the copy cannot be written: %s", g_strerror(-r)) : 0;
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

static int apply(struct wb_receiving *receiving, struct wb_copy_result *result, struct wb_error *why)
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
        wb_error_set(why, r, "the copy cannot be updated: %s", g_strerror(-r));
    result->since = applying->hello.since;
    receiving->partial.frames = 0;
    if (r == 0)
        clear_stage(receiving);
    return r;
}

/* What was interrupted between the first record and the last name. */
static int complete(struct wb_receiving *receiving, struct wb_copy_result *result, struct wb_error *why)
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
        return wb_error_set(why, r < 0 ? r : -EBADMSG,
                            "the last received stream, which has to be completed, "
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
static int look(struct wb_receiving *receiving, struct wb_frames *frames, const char *dir, struct wb_error *why)
{
    int r = look_at_copy(receiving, dir, why);

    if (r == -ENOENT && receiving->src_fd < 0) {
        why->text[0] = '\0';
        receiving->is_new = true;
        r = 0;
    }
    if (r < 0 || !receiving->is_new)
        return r;
    r = receiving_read_first(receiving, frames, why);
    return r == 0 ? make_dir(receiving, dir, why) : r;
}

int wb_copy_receive(const char *dir, int fd, const struct wb_copy_listener *listener, struct wb_copy_result *ret,
                    struct wb_error *why)
{
    struct wb_receiving receiving = closed();
    struct wb_frames frames;
    int r = wb_frames_init(&frames, fd, listener);

    *ret = (struct wb_copy_result){0};
    why->text[0] = '\0';
    /* Without the lock: the sender may be asking for the state of this copy first. */
    if (r == 0)
        r = wb_frames_wait(&frames);
    if (r < 0)
        wb_error_set(why, r, "the stream cannot be read: %s", g_strerror(-r));
    if (r >= 0)
        r = look(&receiving, &frames, dir, why);
    if (r == 0)
        r = open_copy(&receiving, why);
    if (r == 0)
        r = complete(&receiving, ret, why);
    if (r == 0)
        r = copy_check_unchanged(receiving.dir_fd, receiving.received.until, why);
    if (r == 0)
        r = receiving_spool(&receiving, &frames, why);
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

int wb_copy_status(const char *dir, struct wb_copy_result *ret, struct wb_error *why)
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
