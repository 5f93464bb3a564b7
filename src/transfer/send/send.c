/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/send/send.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "format/object_key.h"
#include "history/state/lookback.h"
#include "store/directory/signpost.h"
#include "store/tables/pins.h"
#include "store/tables/received.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int sending_tree(struct wb_sending *sending);

/* ---- what has to be so ------------------------------------------------------------------------------ */

/* A moment at which nothing will still be changed, and that no power cut takes back. */
static int settle(struct wb_sending *sending)
{
    /* Until the moment itself is pinned: changes on both sides of it must not begin to count together. */
    _cleanup_close_ int pin = wb_store_pin_briefly(sending->store);
    char text[WB_WHEN_TEXT_MAX];
    int r;

    if (pin < 0)
        return wb_error_set(sending->why, pin, "thinning (vprune) takes very long; try again when it has ended");
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
        return wb_error_set(sending->why, -EINVAL,
                            "the copy has changes until %s, which is in the future here; it "
                            "is a copy of another tree",
                            wb_when_print(sending->since, 1, text));
    if (sending->since > 0 && sending->since < sending->horizon)
        return wb_error_set(sending->why, -ENOENT,
                            "part of the changes after %s was deleted meanwhile (vprune); "
                            "create the copy again",
                            wb_when_print(sending->since, 1, text));
    if (sending->since > 0 && sending->erased.named > sending->since)
        return wb_error_set(sending->why, -ESTALE,
                            "history was erased (vrm) after the last update of the copy, "
                            "which still has it; create the copy again");
    r = wb_history_wait_daemon(sending->history, sending->until);
    if (r == 0)
        r = wb_store_pin(sending->store, sending->until);
    if (r == 0)
        r = wb_store_pin(sending->store, sending->since);
    if (r < 0)
        return wb_error_set(sending->why, r,
                            "a change, or thinning (vprune), takes very long; try again when it has "
                            "ended");
    if (syncfs(sending->store->src_fd) < 0 || syncfs(sending->store->dir_fd) < 0)
        return wb_error_set(sending->why, -errno, "cannot sync the tree and its store: %s", g_strerror(errno));
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
    /* Names of moments are announced nowhere; the log's time is the `when` of its newest record (wb_log_set_mtime). */
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
        r = sending_tree(sending);
    if (r == 0 && (wb_store_horizon(sending->store) != sending->horizon ||
                   wb_erased_read(sending->store->dir_fd).named != sending->erased.named))
        r = wb_error_set(sending->why, -EAGAIN, "history was deleted while it was sent (vprune, vrm); try again");
    if (r == 0 && wb_signpost_leads_away(sending->store->dir_fd))
        r = wb_error_set(sending->why, -EAGAIN, "the store was moved while it was sent (vstore); try again");
    if (r == 0)
        r = wb_frames_write(&sending->frames, WB_FRAME_END, NULL, 0, NULL, 0);
    /* The same stream cannot be produced again; but a new one can be sent from the beginning. */
    if (sending->frames.known && r != -ECANCELED && (r == -ERANGE || sending->frames.sequence <= sending->frames.known))
        return -ERANGE;
    if (r == 0)
        r = wb_frames_flush(&sending->frames);
    if (r == -ECANCELED)
        return wb_error_set(sending->why, r, "stopped");
    if (r < 0 && !*sending->why->text)
        wb_error_set(sending->why, r, "cannot write the stream: %s", g_strerror(-r));
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
                     const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_error *why)
{
    _cleanup_close_ int src_fd = open(tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct wb_sending sending = {
        .since = from->since, .until = from->until, .result = ret, .why = why,
        .objects = wb_sending_objects_new(),
        .names = wb_sending_names_new(),
        .dirs = wb_sending_names_new(),
        .unknown = wb_sending_names_new(),
        .foreign = wb_sending_names_new(),
        .gaps = g_array_new(FALSE, FALSE, sizeof(struct wb_open_gap)),
        .data = g_try_malloc(WB_RECORD_MAX + WB_FRAME_BYTES_MAX),
    };
    int r = sending.data ? wb_frames_init(&sending.frames, fd, listener) : -ENOMEM;

    *ret = (struct wb_copy_result){.since = from->since};
    why->text[0] = '\0';
    sending.frames.known = from->frames;
    sending.frames.known_check = from->check;
    if (r == 0 && src_fd < 0)
        r = wb_error_set(why, -errno, "%s; SRC must be a directory you may read", g_strerror(errno));
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
        wb_error_set(why, r, "%s", g_strerror(-r));
    ret->until = sending.until;
    ret->bytes = sending.frames.bytes;
    ret->records = sending.frames.records;
    if (sending.store)
        memcpy(ret->uuid, sending.store->header.uuid, sizeof(ret->uuid));
    deinit(&sending);
    return r;
}

/*
 * A stream that was cut off is produced once more, and the frames that the receiver has are not written: the stream of
 * one moment is always the same, unless history was deleted meanwhile. In that case, or if the part that the receiver
 * has came from another tree, the whole stream is sent.
 */
int wb_copy_send(const char *tree, const char *store, const struct wb_copy_point *from, unsigned flags, int fd,
                 const struct wb_copy_listener *listener, struct wb_copy_result *ret, struct wb_error *why)
{
    struct wb_copy_point whole = {.since = from->since};
    int r = from->frames ? send_from(tree, store, from, 0, fd, listener, ret, why) : -ERANGE;

    return r == -ERANGE ? send_from(tree, store, &whole, flags, fd, listener, ret, why) : r;
}

/* One object as it was: attributes, extended attributes, and what of its content the copy does not have. */

#define XATTRS_MAX (1u << 20)

/* ---- extended attributes ------------------------------------------------------------------------ */

static int add_xattr(struct wb_sending *sending, struct wb_revision *revision, const char *name, GByteArray *list)
{
    struct wb_stream_xattr xattr = {.name_length = (uint8_t)strlen(name)};
    ssize_t length = wb_revision_getxattr(sending->history, revision, name, sending->data, 1 << 16);
    uint8_t head[WB_STREAM_XATTR_HEAD];

    if (length < 0)
        return (int)length;
    if (strlen(name) > WB_NAME_MAX || list->len + (size_t)length + sizeof(head) + WB_NAME_MAX > XATTRS_MAX)
        return wb_error_set(sending->why, -E2BIG, "a file has more extended attributes than the stream can hold");
    xattr.value_length = (uint32_t)length;
    wb_stream_encode_xattr(&xattr, head);
    g_byte_array_append(list, head, sizeof(head));
    g_byte_array_append(list, (const uint8_t *)name, xattr.name_length);
    g_byte_array_append(list, sending->data, (guint)length);
    return 0;
}

/* Under the name that they have in records, although no listing shows it. */
static int add_flags(struct wb_sending *sending, struct wb_revision *revision, GByteArray *list)
{
    struct wb_stream_xattr xattr = {.name_length = (uint8_t)strlen(WB_FLAGS_NAME), .value_length = WB_FLAGS_SIZE};
    uint8_t head[WB_STREAM_XATTR_HEAD], value[WB_FLAGS_SIZE];
    struct wb_flags flags;
    int r = wb_revision_flags(sending->history, revision, &flags);

    if (r < 0)
        return r;
    wb_flags_encode(&flags, value);
    wb_stream_encode_xattr(&xattr, head);
    g_byte_array_append(list, head, sizeof(head));
    g_byte_array_append(list, (const uint8_t *)WB_FLAGS_NAME, xattr.name_length);
    g_byte_array_append(list, value, sizeof(value));
    return 0;
}

static int send_xattrs(struct wb_sending *sending, struct wb_revision *revision)
{
    g_autofree char *names = g_try_malloc(1 << 16);
    GByteArray *list = g_byte_array_new();
    struct wb_stream_list body = {.object = wb_revision_object(revision), .last = true};
    uint8_t head[WB_STREAM_LIST_SIZE];
    ssize_t length = names ? wb_revision_listxattr(sending->history, revision, names, 1 << 16) : -ENOMEM;
    int r = length == -EOPNOTSUPP ? 0 : (int)MIN(length, 0);

    for (const char *name = names; r == 0 && name < names + MAX(length, 0); name += strlen(name) + 1) {
        r = add_xattr(sending, revision, name, list);
        body.count += r == 0;
        if (r == -ENODATA || r == -EOPNOTSUPP)
            r = 0;
    }
    if (r == 0) {
        r = add_flags(sending, revision, list);
        body.count += r == 0;
        r = r == -EOPNOTSUPP ? 0 : r;
    }
    if (r == 0) {
        wb_stream_encode_list(&body, head);
        r = wb_frames_write(&sending->frames, WB_FRAME_XATTRS, head, sizeof(head), list->data, list->len);
    }
    g_byte_array_unref(list);
    return r;
}

/* ---- content ------------------------------------------------------------------------------------ */

static int next_data(const struct wb_sent_bytes *bytes, uint64_t offset, uint64_t *ret)
{
    return wb_file_view_seek(bytes->view, offset, false, ret);
}

static int read_bytes(const struct wb_sent_bytes *bytes, uint8_t *data, size_t length, uint64_t offset)
{
    ssize_t got = wb_file_view_pread(bytes->view, data, length, offset);

    return got < 0 ? (int)got : (size_t)got < length ? -EIO : 0;
}

/* `sparse`: the copy has nothing there yet, so that zeros need not be sent. */
static int send_range(struct wb_sending *sending, struct wb_object object, struct wb_file_view *view, uint64_t from,
                      uint64_t to, bool sparse)
{
    struct wb_sent_bytes bytes = {.object = object, .type = WB_FRAME_CONTENT, .hole = sparse ? 0 : WB_FRAME_HOLE,
                                  .next_data = next_data, .read = read_bytes, .view = view};

    return wb_sending_bytes(sending, &bytes, from, to);
}

static int by_begin(const void *a, const void *b)
{
    const struct wb_sent_range *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

/* What was lost and overwritten, and what came behind the least end it had. */
static int send_changed(struct wb_sending *sending, struct wb_sent *sent, struct wb_file_view *view)
{
    uint64_t size = wb_file_view_size(view), done = 0;
    struct wb_sent_range end = {sent->least, size};
    int r = 0;

    if (!sent->ranges)
        sent->ranges = g_array_new(FALSE, FALSE, sizeof(end));
    g_array_append_val(sent->ranges, end);
    g_array_sort(sent->ranges, by_begin);
    for (guint i = 0; r == 0 && i < sent->ranges->len; i++) {
        struct wb_sent_range range = g_array_index(sent->ranges, struct wb_sent_range, i);

        range.from = MAX(range.from, done);
        range.to = MIN(range.to, size);
        if (range.from < range.to)
            r = send_range(sending, sent->object, view, range.from, range.to, false);
        done = MAX(done, range.to);
    }
    return r;
}

static int send_content(struct wb_sending *sending, struct wb_revision *revision, struct wb_sent *sent, bool whole)
{
    struct wb_file_view *view;
    int r = wb_file_view_open(sending->history, revision, &view);

    if (r < 0)
        return r;
    /* From the beginning of the history, the copy has nothing; else it may have the object by another name. */
    r = whole ? send_range(sending, sent->object, view, 0, wb_file_view_size(view), sending->since == 0)
              : send_changed(sending, sent, view);
    wb_file_view_free(view);
    return r;
}

/* Whether the copy must make it anew: it takes power (set-id bits, file capabilities) from no file that it has. */
static int has_power(struct wb_sending *sending, struct wb_revision *revision, const struct wb_attrs *attrs)
{
    uint8_t value[256];
    ssize_t length;

    if (!S_ISREG(attrs->mode) || attrs->mode & (S_ISUID | S_ISGID))
        return S_ISREG(attrs->mode);
    length = wb_revision_getxattr(sending->history, revision, "security.capability", value, sizeof(value));
    return length == -ENODATA || length == -EOPNOTSUPP ? 0 : length == -ERANGE || length >= 0 ? 1 : (int)length;
}

/* ---- the object --------------------------------------------------------------------------------- */

/* One object at its revision's moment. 0 or -errno, see wb_history_error. */
static int send_object(struct wb_sending *sending, struct wb_revision *revision, struct wb_sent *sent, bool whole)
{
    struct wb_stream_object body = {.object = sent->object};
    uint8_t head[WB_STREAM_OBJECT_SIZE];
    g_autofree char *target = NULL;
    int r;

    wb_history_clear_error();
    r = wb_revision_attrs(sending->history, revision, &body.attrs);
    if (r == 0 && S_ISLNK(body.attrs.mode))
        r = wb_revision_readlink(sending->history, revision, &target);
    if (r == 0)
        r = has_power(sending, revision, &body.attrs);
    if (r < 0)
        return r;
    whole = whole || r > 0;
    /* No record contains the time of access, and sending reads the file: the stream would differ each time. */
    body.attrs.atime = body.attrs.mtime;
    body.flags = (whole ? WB_STREAM_WHOLE : 0) | (sent->buried ? WB_STREAM_BURIED : 0);
    body.target_length = target ? strlen(target) : 0;
    wb_stream_encode_object(&body, head);
    r = wb_frames_write(&sending->frames, WB_FRAME_OBJECT, head, sizeof(head), target, body.target_length);
    if (r == 0)
        r = send_xattrs(sending, revision);
    if (r == 0 && S_ISREG(body.attrs.mode))
        r = send_content(sending, revision, sent, whole);
    if (r == 0)
        r = wb_sending_check_gap(sending, revision);
    sent->sent = true;
    sent->sent_whole |= whole;
    sending->result->objects++;
    return r;
}

/*
 * The tree as it was at `until`. The entries of a directory are sent if a record contains a name in it. An object is
 * sent if a record is about it, if it has a name that did not lead to it at `since`, or if it was changed without a
 * record.
 */

#define LIST_MAX (1u << 16)

/* ---- entries ------------------------------------------------------------------------------------- */

static int flush_list(struct wb_sending *sending, struct wb_stream_list *list, GByteArray *entries)
{
    uint8_t head[WB_STREAM_LIST_SIZE];
    int r;

    wb_stream_encode_list(list, head);
    r = wb_frames_write(&sending->frames, WB_FRAME_LISTING, head, sizeof(head), entries->data, entries->len);
    g_byte_array_set_size(entries, 0);
    list->count = 0;
    return r;
}

static int send_list(struct wb_sending *sending, struct wb_revision *revision, struct wb_past_dir *dir)
{
    struct wb_stream_list list = {.object = wb_revision_object(revision)};
    GByteArray *entries = g_byte_array_new();
    uint8_t data[WB_STREAM_ENTRY_MAX];
    int r = 0;

    for (size_t i = 0; r == 0 && i < wb_past_dir_count(dir); i++) {
        struct wb_stream_entry entry = {.object = wb_past_dir_object(dir, i), .mode = wb_past_dir_type(dir, i),
                                        .name = wb_past_dir_name(dir, i)};

        entry.length = (uint8_t)strlen(entry.name);
        g_byte_array_append(entries, data, (guint)wb_stream_encode_entry(&entry, data));
        list.count++;
        if (entries->len > LIST_MAX)
            r = flush_list(sending, &list, entries);
    }
    list.last = true;
    if (r == 0)
        r = flush_list(sending, &list, entries);
    g_byte_array_unref(entries);
    return r;
}

/* ---- objects -------------------------------------------------------------------------------------- */

/* *ret_whole: the copy may not have it. NULL: the object is not to be sent. */
static struct wb_sent *judge(struct wb_sending *sending, struct wb_object dir, const char *name,
                             struct wb_object object, bool *ret_whole)
{
    struct wb_sent *sent = g_hash_table_lookup(sending->objects, &object);
    bool named = wb_sending_has_name(sending, dir, name), unknown = wb_sending_has_dir(sending->unknown, dir);

    if (sending->since == 0 || named || unknown)
        sent = wb_sending_object(sending, object);
    if (!sent)
        return NULL;
    *ret_whole = sending->since == 0 || sent->whole || unknown || (named && !sent->known);
    return sent;
}

static int fail_at(struct wb_sending *sending, int r, struct wb_revision *revision)
{
    GString *path = g_string_new("");
    int result;

    if (r == -ECANCELED || r == -EPIPE || *sending->why->text) {
        g_string_free(path, TRUE);
        return r > 0 ? -EIO : r;
    }
    for (; revision && wb_revision_parent(revision); revision = wb_revision_parent(revision)) {
        g_string_prepend(path, wb_revision_name(revision));
        g_string_prepend_c(path, '/');
    }
    result = wb_error_set(sending->why, r > 0 ? -EIO : r, "%s: cannot be sent as it was: %s",
                          path->len ? path->str + 1 : ".",
                          *wb_history_error() ? wb_history_error() : g_strerror(r > 0 ? EIO : -r));
    g_string_free(path, TRUE);
    return result;
}

/* An object that was changed behind the mount is sent whole, a directory with its entries. */
static int look_behind(struct wb_sending *sending, struct wb_revision *revision, bool listed)
{
    struct wb_object object = wb_revision_object(revision);
    struct wb_sent *sent = g_hash_table_lookup(sending->objects, &object);
    struct wb_attrs attrs;
    int r = wb_revision_attrs(sending->history, revision, &attrs);

    if (r < 0 || !wb_sending_is_behind(sending, sent, &attrs))
        return r;
    wb_sending_object(sending, object)->whole = true;
    if (wb_revision_type(revision) != S_IFDIR)
        return 0;
    wb_sending_add_dir(sending->dirs, object);
    if (listed && wb_sending_may_be_foreign(sending, sent, object, &attrs))
        wb_sending_add_dir(sending->foreign, object);
    return 0;
}

/* It comes with all that is in it. */
static void take_along(struct wb_sending *sending, struct wb_object object, bool is_dir)
{
    wb_sending_object(sending, object)->whole = true;
    if (!is_dir)
        return;
    wb_sending_add_dir(sending->dirs, object);
    wb_sending_add_dir(sending->foreign, object);
}

/* `listed`: the entries of the directory are sent. */
static int visit(struct wb_sending *sending, struct wb_revision *revision, struct wb_past_dir *dir, size_t index,
                 bool listed, GQueue *queue)
{
    struct wb_object object = wb_past_dir_object(dir, index);
    bool is_dir = wb_past_dir_type(dir, index) == S_IFDIR, whole = false;
    bool touched = sending->since > 0 && wb_past_dir_ctime(dir, index) > sending->floor;
    struct wb_revision *child __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_sent *sent;
    int r = 0;

    if (wb_sending_has_dir(sending->foreign, wb_revision_object(revision)))
        take_along(sending, object, is_dir);
    else if (touched && (r = wb_past_dir_revision(dir, index, &child)) == 0)
        r = look_behind(sending, child, listed);
    if (r != 0)
        return fail_at(sending, r < 0 ? r : -EIO, child ? child : revision);
    sent = judge(sending, wb_revision_object(revision), wb_past_dir_name(dir, index), object, &whole);
    if (sent && sent->sent && !(whole && !sent->sent_whole))
        sent = NULL;
    if (!sent && !is_dir)
        return 0;
    r = child ? 0 : wb_past_dir_revision(dir, index, &child);
    if (r != 0)
        return fail_at(sending, r < 0 ? r : -EIO, revision);
    r = sent ? send_object(sending, child, sent, whole) : 0;
    if (r < 0)
        return fail_at(sending, r, child);
    if (is_dir)
        g_queue_push_tail(queue, wb_revision_ref(child));
    return 0;
}

static int walk_dir(struct wb_sending *sending, struct wb_revision *revision, GQueue *queue)
{
    bool listed = sending->since == 0 || wb_sending_has_dir(sending->dirs, wb_revision_object(revision));
    struct wb_past_dir *dir;
    int r = wb_past_dir_open(sending->history, revision, &dir);

    if (r < 0)
        return fail_at(sending, r, revision);
    if (listed)
        r = send_list(sending, revision, dir);
    g_hash_table_remove(sending->dirs, &(struct wb_sent_name){.dir = wb_revision_object(revision)});
    for (size_t i = 0; r == 0 && i < wb_past_dir_count(dir); i++)
        r = visit(sending, revision, dir, i, listed, queue);
    wb_past_dir_free(dir);
    if (r == 0 && (r = wb_sending_check_gap(sending, revision)) < 0)
        r = fail_at(sending, r, revision);
    return r;
}

static int walk_tree(struct wb_sending *sending)
{
    GQueue queue = G_QUEUE_INIT;
    struct wb_revision *revision;
    struct wb_sent *sent;
    int r = wb_revision_root(sending->history, sending->until, &revision);

    if (r < 0)
        return fail_at(sending, r, NULL);
    g_queue_push_tail(&queue, revision);
    r = look_behind(sending, revision, false);
    sent = sending->since == 0 ? wb_sending_object(sending, wb_revision_object(revision)) : NULL;
    if (!sent)
        sent = g_hash_table_lookup(sending->objects, &(struct wb_object){wb_revision_object(revision).ino,
                                                                         wb_revision_object(revision).birth});
    if (r == 0 && sent)
        r = send_object(sending, revision, sent, sending->since == 0);
    if (r < 0)
        r = fail_at(sending, r, revision);
    while (!g_queue_is_empty(&queue)) {
        revision = g_queue_pop_head(&queue);
        if (r == 0)
            r = walk_dir(sending, revision, &queue);
        wb_revision_unref(revision);
    }
    return r;
}

/* ---- what has no name any more --------------------------------------------------------------------- */

/* The last state of a deleted object cannot be sent. That is an error if the copy has the object, as it would show the
 * older state that it has as the last one. */
static int report_missing(struct wb_sending *sending, const struct wb_sent *sent, int r)
{
    const char *reason = *wb_history_error() ? wb_history_error() : g_strerror(r < 0 ? -r : EIO);

    if (sent->known && sent->changed && sending->since > 0)
        return wb_error_set(sending->why, r < 0 ? r : -EIO,
                            "the last state of a deleted file, '%s', which the copy "
                            "has, cannot be sent: %s; if this persists, create the copy again",
                            sent->lost.name, r == -ENOENT ? "its content is no longer in the store" : reason);
    if (r == -EACCES || r == -ENOMEM || r == -EMFILE || r == -ENFILE)
        return wb_error_set(sending->why, r, "the deleted file '%s' cannot be sent: %s", sent->lost.name,
                            g_strerror(-r));
    sending->result->missing++;
    return 0;
}

/* Sends an object as it was when it lost its last name. An object that the store has not kept is missing in the copy
 * too, if the copy never had it. */
static int send_buried(struct wb_sending *sending, struct wb_sent *sent)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_location where = {0};
    struct wb_attrs attrs;
    int r;

    wb_history_clear_error();
    r = wb_lookback_dir(sending->history, sent->lost.dir, sent->lost_when - 1, &dir);
    if (r == 0)
        r = wb_revision_child(sending->history, dir, sent->lost.name, &revision);
    else if (r == -EIO)
        r = wb_lookback_lost(sending->history, sent->lost.dir, sent->lost.name, sent->lost_when, &revision);
    if (r == 0 && !wb_object_equal(wb_revision_object(revision), sent->object))
        r = -EIO;
    if (r == 0) {
        r = wb_revision_resolve(sending->history, revision, &where);
        g_free(where.path);
        r = r == 0 && where.state == WB_LOST ? -ENOENT : r;
    }
    if (r == 0)
        r = wb_revision_attrs(sending->history, revision, &attrs);
    if (r != 0)
        return report_missing(sending, sent, r);
    sent->whole |= sending->since == 0 || !sent->known || wb_sending_is_behind(sending, sent, &attrs);
    r = send_object(sending, revision, sent, sent->whole);
    return r < 0 ? fail_at(sending, r, revision) : 0;
}

static int by_object(const void *a, const void *b)
{
    const struct wb_sent *x = *(struct wb_sent *const *)a, *y = *(struct wb_sent *const *)b;

    return wb_object_compare(x->object, y->object);
}

/* Directories that are no longer in the tree: an empty listing for each. */
static int send_empty(struct wb_sending *sending)
{
    uint8_t head[WB_STREAM_LIST_SIZE];
    GHashTableIter iter;
    void *key;
    int r = 0;

    g_hash_table_iter_init(&iter, sending->dirs);
    while (r == 0 && sending->since > 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        struct wb_stream_list list = {.object = ((const struct wb_sent_name *)key)->dir, .last = true};

        wb_stream_encode_list(&list, head);
        r = wb_frames_write(&sending->frames, WB_FRAME_LISTING, head, sizeof(head), NULL, 0);
    }
    return r;
}

/* The tree at `until`, then the objects that lost their names. The same. */
static int sending_tree(struct wb_sending *sending)
{
    g_autoptr(GPtrArray) buried = g_ptr_array_new();
    GHashTableIter iter;
    void *value;
    int r = walk_tree(sending);

    if (r == 0)
        r = send_empty(sending);
    g_hash_table_iter_init(&iter, sending->objects);
    while (g_hash_table_iter_next(&iter, &value, NULL)) {
        const struct wb_sent *sent = value;

        if (sent->buried && !sent->sent)
            g_ptr_array_add(buried, value);
    }
    g_ptr_array_sort(buried, by_object);
    for (guint i = 0; r == 0 && i < buried->len; i++)
        r = send_buried(sending, buried->pdata[i]);
    return r;
}
