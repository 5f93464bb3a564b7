/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/send/send.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "store/directory/signpost.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tables --------------------------------------------------------------------------------------- */

static guint name_hash(const void *key)
{
    const struct wb_sent_name *name = key;

    return wb_object_hash(&name->dir) * 33 ^ g_str_hash(name->name);
}

static gboolean name_equal(const void *a, const void *b)
{
    const struct wb_sent_name *x = a, *y = b;

    return wb_object_equal(x->dir, y->dir) && strcmp(x->name, y->name) == 0;
}

static void sent_free(void *data)
{
    struct wb_sent *sent = data;

    if (sent->ranges)
        g_array_unref(sent->ranges);
    if (sent->times)
        g_array_unref(sent->times);
    g_free(sent);
}

struct wb_sent *wb_sending_object(struct wb_sending *sending, struct wb_object object)
{
    struct wb_sent *sent = g_hash_table_lookup(sending->objects, &object);

    if (sent)
        return sent;
    sent = g_new0(struct wb_sent, 1);
    sent->object = object;
    sent->least = UINT64_MAX;
    g_hash_table_add(sending->objects, sent);
    return sent;
}

bool wb_sending_has_name(const struct wb_sending *sending, struct wb_object dir, const char *name)
{
    struct wb_sent_name key = {.dir = dir};

    g_strlcpy(key.name, name, sizeof(key.name));
    return g_hash_table_contains(sending->names, &key);
}

void wb_sending_add_dir(GHashTable *table, struct wb_object dir)
{
    struct wb_sent_name *key = g_new0(struct wb_sent_name, 1);

    key->dir = dir;
    g_hash_table_add(table, key);
}

bool wb_sending_has_dir(GHashTable *table, struct wb_object dir)
{
    struct wb_sent_name key = {.dir = dir};

    return g_hash_table_contains(table, &key);
}

/* ---- what has to be so ------------------------------------------------------------------------------ */

/* A moment at which nothing will still be changed, and that no power cut takes back. */
static int settle(struct wb_sending *sending)
{
    /* Until the moment itself is pinned: changes on both sides of it must not begin to count together. */
    _cleanup_close_ int pin = wb_store_pin_briefly(sending->store);
    char text[WB_WHEN_TEXT_MAX];
    int r;

    if (pin < 0)
        return wb_problem_set(sending->why, pin, "thinning (vprune) takes very long; try again when it has ended");
    /* Whatever is forgotten from now on is noticed at the end. */
    sending->horizon = wb_store_horizon(sending->store);
    sending->erased = wb_erased_read(sending->store->dir_fd);
    r = wb_sending_read_gaps(sending);
    if (r < 0)
        return r;
    sending->clock = wb_when_now();
    sending->until = sending->frames.known ? sending->until : wb_store_now(sending->store);
    if (sending->frames.known && sending->until > wb_store_now(sending->store))
        return -ERANGE;
    if (sending->until <= sending->since)
        return wb_problem_set(sending->why, -EINVAL, "the copy has changes until %s, which is in the future here; it "
                              "is a copy of another tree", wb_when_print(sending->since, 1, text));
    if (sending->since > 0 && sending->since < sending->horizon)
        return wb_problem_set(sending->why, -ENOENT, "part of the changes after %s was deleted meanwhile (vprune); "
                              "create the copy again", wb_when_print(sending->since, 1, text));
    if (sending->since > 0 && sending->erased.named > sending->since)
        return wb_problem_set(sending->why, -ESTALE, "history was erased (vrm) after the last update of the copy, "
                              "which still has it; create the copy again");
    r = wb_history_await(sending->history, sending->until);
    if (r == 0)
        r = wb_store_pin(sending->store, sending->until);
    if (r == 0)
        r = wb_store_pin(sending->store, sending->since);
    if (r < 0)
        return wb_problem_set(sending->why, r, "a change, or thinning (vprune), takes very long; try again when it has "
                              "ended");
    if (syncfs(sending->store->src_fd) < 0 || syncfs(sending->store->dir_fd) < 0)
        return wb_problem_set(sending->why, -errno, "cannot sync the tree and its store: %s",
                              g_strerror(errno));
    wb_history_accept_gaps(sending->history, sending->until, (const struct wb_open_gap *)sending->gaps->data,
                           sending->gaps->len);
    return 0;
}

/* Whether there may be anything to send, at the cost of some small reads: who follows asks twice a second. */
static bool is_changed(const struct wb_sending *sending)
{
    const struct wb_store *store = sending->store;
    struct wb_received received;
    struct stat st;

    if (wb_store_look_for_change(store) > sending->since)
        return true;
    /* What a copy received was changed elsewhere. */
    if (wb_received_read(store->dir_fd, &received) == 0 && received.until > sending->since)
        return true;
    /* Names of moments are announced nowhere; the log's time is the `when` of its newest record (wb_log_stamp). */
    return fstatat(store->dir_fd, WB_SNAPSHOTS_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec > sending->since;
}

/* What will be otherwise soon, and no stream has begun that would have to be ended. */
static bool may_be_repeated(const struct wb_sending *sending, int r)
{
    return (r == -EBUSY || r == -EAGAIN || r == -EINPROGRESS) && !sending->frames.written;
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static int send_all(struct wb_sending *sending, unsigned flags)
{
    const struct wb_header *header = &sending->store->header;
    struct wb_stream_hello hello = {
        .version = WB_STREAM_VERSION, .format = WB_FORMAT_VERSION, .root = header->root,
        .since = sending->since, .until = sending->until, .erased = MIN(sending->erased.named, sending->until),
        .thinned = MIN(sending->erased.last, sending->until),
    };
    uint8_t data[WB_HELLO_SIZE];
    int r;

    memcpy(hello.uuid, header->uuid, sizeof(hello.uuid));
    sending->floor = wb_sending_floor(sending);
    hello.forgotten = sending->horizon > 0;
    hello.created = sending->horizon > 0 ? sending->horizon : header->created;
    wb_stream_encode_hello(&hello, data);
    r = wb_frames_write(&sending->frames, WB_FRAME_HELLO, data, sizeof(data), NULL, 0);
    if (r == 0)
        r = wb_sending_records(sending);
    /* Then all there is fits into the buffer. */
    if (r == 0 && flags & WB_COPY_CHANGES && sending->frames.records == 0 && sending->since > 0)
        return 1;
    if (r == 0)
        r = wb_sending_tree(sending);
    if (r == 0 && (wb_store_horizon(sending->store) != sending->horizon ||
                   wb_erased_read(sending->store->dir_fd).named != sending->erased.named))
        r = wb_problem_set(sending->why, -EAGAIN, "history was deleted while it was sent (vprune, vrm); try again");
    if (r == 0 && wb_signpost_leads_away(sending->store->dir_fd))
        r = wb_problem_set(sending->why, -EAGAIN, "the store was moved while it was sent (vstore); try again");
    if (r == 0)
        r = wb_frames_write(&sending->frames, WB_FRAME_END, NULL, 0, NULL, 0);
    /* It cannot be told as it was: what is told from the beginning can be. */
    if (sending->frames.known && r != -ECANCELED && (r == -ERANGE || sending->frames.sequence <= sending->frames.known))
        return -ERANGE;
    if (r == 0)
        r = wb_frames_flush(&sending->frames);
    if (r == -ECANCELED)
        return wb_problem_set(sending->why, r, "stopped");
    if (r < 0 && !*sending->why->text)
        wb_problem_set(sending->why, r, "cannot write the stream: %s", g_strerror(-r));
    return r;
}

static void deinit(struct wb_sending *sending)
{
    g_hash_table_unref(sending->objects);
    g_hash_table_unref(sending->names);
    g_hash_table_unref(sending->dirs);
    g_hash_table_unref(sending->unknown);
    g_hash_table_unref(sending->foreign);
    g_array_unref(sending->gaps);
    wb_frames_deinit(&sending->frames);
    g_free(sending->data);
    if (sending->history)
        wb_history_free(sending->history);
    wb_store_free(sending->store);
}

static int send_from(const char *tree, const char *store, const struct wb_copy_point *from, unsigned flags, int fd,
                     const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_problem *why)
{
    _cleanup_close_ int src_fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct wb_sending sending = {
        .since = from->since, .until = from->until, .result = ret, .why = why,
        .objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, sent_free, NULL),
        .names = g_hash_table_new_full(name_hash, name_equal, g_free, NULL),
        .dirs = g_hash_table_new_full(name_hash, name_equal, g_free, NULL),
        .unknown = g_hash_table_new_full(name_hash, name_equal, g_free, NULL),
        .foreign = g_hash_table_new_full(name_hash, name_equal, g_free, NULL),
        .gaps = g_array_new(FALSE, FALSE, sizeof(struct wb_open_gap)),
        .data = g_try_malloc(WB_RECORD_MAX + WB_FRAME_BYTES_MAX),
    };
    int r = sending.data ? wb_frames_init(&sending.frames, fd, listener) : -ENOMEM;

    *ret = (struct wb_copy_result){.since = from->since};
    why->text[0] = '\0';
    sending.frames.known = from->frames;
    sending.frames.known_check = from->check;
    if (r == 0 && src_fd < 0)
        r = wb_problem_set(why, -errno, "%s; SRC must be a directory you may read", g_strerror(errno));
    if (r == 0)
        r = wb_store_open(&sending.store, src_fd, store, 0, why);
    if (r == 0)
        r = wb_history_open(&sending.history, sending.store);
    if (r == 0 && flags & WB_COPY_CHANGES && from->since > 0 && !is_changed(&sending))
        r = 1;
    if (r == 0)
        r = settle(&sending);
    if (r == 0)
        r = send_all(&sending, flags);
    if (may_be_repeated(&sending, r))
        r = -EAGAIN;
    if (r < 0 && !*why->text)
        wb_problem_set(why, r, "%s", g_strerror(-r));
    ret->until = sending.until;
    ret->bytes = sending.frames.bytes;
    ret->records = sending.frames.records;
    if (sending.store)
        memcpy(ret->uuid, sending.store->header.uuid, sizeof(ret->uuid));
    deinit(&sending);
    return r;
}

/*
 * A stream that was cut off is made once more and its beginning kept back: what is as of one moment is the same
 * whenever it is told, unless history was forgotten meanwhile. Then, or where it was another tree's, all of it is sent.
 */
int wb_copy_send(const char *tree, const char *store, const struct wb_copy_point *from, unsigned flags, int fd,
                 const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_problem *why)
{
    struct wb_copy_point whole = {.since = from->since};
    int r = from->frames ? send_from(tree, store, from, 0, fd, listener, ret, why) : -ERANGE;

    return r == -ERANGE ? send_from(tree, store, &whole, flags, fd, listener, ret, why) : r;
}
