/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tree as it was at `until`. Of all its directories are told: the entries where a record tells of a name in them;
 * and objects that a record tells of, or that have a name which did not lead to them at `since`. And whatever was
 * changed with no record of it.
 */
#include "transfer/send/send.h"

#include "format/object_key.h"
#include "history/locate/lookback.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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

static int send_list(struct wb_sending *sending, struct wb_spot *spot, struct wb_past_dir *dir)
{
    struct wb_stream_list list = {.object = wb_spot_object(spot)};
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

/* *ret_whole: the copy may not have it. NULL: nothing is to be told. */
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

static int fail_at(struct wb_sending *sending, int r, struct wb_spot *spot)
{
    GString *path = g_string_new("");
    int result;

    if (r == -ECANCELED || r == -EPIPE || *sending->why->text) {
        g_string_free(path, TRUE);
        return r > 0 ? -EIO : r;
    }
    for (; spot && wb_spot_parent(spot); spot = wb_spot_parent(spot)) {
        g_string_prepend(path, wb_spot_name(spot));
        g_string_prepend_c(path, '/');
    }
    result = wb_problem_set(sending->why, r > 0 ? -EIO : r, "%s: cannot be sent as it was: %s",
                            path->len ? path->str + 1 : ".",
                            *wb_history_problem() ? wb_history_problem() : g_strerror(r > 0 ? EIO : -r));
    g_string_free(path, TRUE);
    return result;
}

/* What somebody changed behind the mount is told whole, and of a directory what is in it. */
static int look_behind(struct wb_sending *sending, struct wb_spot *spot, bool listed)
{
    struct wb_object object = wb_spot_object(spot);
    struct wb_sent *sent = g_hash_table_lookup(sending->objects, &object);
    struct wb_attrs attrs;
    int r = wb_spot_attrs(sending->history, spot, &attrs);

    if (r < 0 || !wb_sending_is_behind(sending, sent, &attrs))
        return r;
    wb_sending_object(sending, object)->whole = true;
    if (wb_spot_type(spot) != S_IFDIR)
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

/* `listed`: what is in the directory is told. */
static int visit(struct wb_sending *sending, struct wb_spot *spot, struct wb_past_dir *dir, size_t index, bool listed,
                 GQueue *queue)
{
    struct wb_object object = wb_past_dir_object(dir, index);
    bool is_dir = wb_past_dir_type(dir, index) == S_IFDIR, whole = false;
    bool touched = sending->since > 0 && wb_past_dir_ctime(dir, index) > sending->floor;
    struct wb_spot *child __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_sent *sent;
    int r = 0;

    if (wb_sending_has_dir(sending->foreign, wb_spot_object(spot)))
        take_along(sending, object, is_dir);
    else if (touched && (r = wb_past_dir_spot(dir, index, &child)) == 0)
        r = look_behind(sending, child, listed);
    if (r != 0)
        return fail_at(sending, r < 0 ? r : -EIO, child ? child : spot);
    sent = judge(sending, wb_spot_object(spot), wb_past_dir_name(dir, index), object, &whole);
    if (sent && sent->told && !(whole && !sent->told_whole))
        sent = NULL;
    if (!sent && !is_dir)
        return 0;
    r = child ? 0 : wb_past_dir_spot(dir, index, &child);
    if (r != 0)
        return fail_at(sending, r < 0 ? r : -EIO, spot);
    r = sent ? wb_sending_tell(sending, child, sent, whole) : 0;
    if (r < 0)
        return fail_at(sending, r, child);
    if (is_dir)
        g_queue_push_tail(queue, wb_spot_ref(child));
    return 0;
}

static int walk_dir(struct wb_sending *sending, struct wb_spot *spot, GQueue *queue)
{
    bool listed = sending->since == 0 || wb_sending_has_dir(sending->dirs, wb_spot_object(spot));
    struct wb_past_dir *dir;
    int r = wb_past_dir_open(sending->history, spot, &dir);

    if (r < 0)
        return fail_at(sending, r, spot);
    if (listed)
        r = send_list(sending, spot, dir);
    g_hash_table_remove(sending->dirs, &(struct wb_sent_name){.dir = wb_spot_object(spot)});
    for (size_t i = 0; r == 0 && i < wb_past_dir_count(dir); i++)
        r = visit(sending, spot, dir, i, listed, queue);
    wb_past_dir_free(dir);
    if (r == 0 && (r = wb_sending_check_gap(sending, spot)) < 0)
        r = fail_at(sending, r, spot);
    return r;
}

static int walk_tree(struct wb_sending *sending)
{
    GQueue queue = G_QUEUE_INIT;
    struct wb_spot *spot;
    struct wb_sent *sent;
    int r = wb_spot_root(sending->history, sending->until, &spot);

    if (r < 0)
        return fail_at(sending, r, NULL);
    g_queue_push_tail(&queue, spot);
    r = look_behind(sending, spot, false);
    sent = sending->since == 0 ? wb_sending_object(sending, wb_spot_object(spot)) : NULL;
    if (!sent)
        sent = g_hash_table_lookup(sending->objects, &(struct wb_object){wb_spot_object(spot).ino,
                                                                         wb_spot_object(spot).birth});
    if (r == 0 && sent)
        r = wb_sending_tell(sending, spot, sent, sending->since == 0);
    if (r < 0)
        r = fail_at(sending, r, spot);
    while (!g_queue_is_empty(&queue)) {
        spot = g_queue_pop_head(&queue);
        if (r == 0)
            r = walk_dir(sending, spot, &queue);
        wb_spot_unref(spot);
    }
    return r;
}

/* ---- what has no name any more --------------------------------------------------------------------- */

/* What of it cannot be told: the copy, which knows it by a name, would show what it has as what it was at the end. */
static int tell_missing(struct wb_sending *sending, const struct wb_sent *sent, int r)
{
    const char *reason = *wb_history_problem() ? wb_history_problem() : g_strerror(r < 0 ? -r : EIO);

    if (sent->known && sent->changed && sending->since > 0)
        return wb_problem_set(sending->why, r < 0 ? r : -EIO, "the last state of a deleted file, '%s', which the copy "
                              "has, cannot be sent: %s; if this persists, create the copy again",
                              sent->lost.name, r == -ENOENT ? "its content is no longer in the store" : reason);
    if (r == -EACCES || r == -ENOMEM || r == -EMFILE || r == -ENFILE)
        return wb_problem_set(sending->why, r, "the deleted file '%s' cannot be sent: %s", sent->lost.name,
                              g_strerror(-r));
    sending->result->missing++;
    return 0;
}

/* As it was when it lost its last name. What the store has not kept, a copy that never had it cannot have either. */
static int tell_buried(struct wb_sending *sending, struct wb_sent *sent)
{
    struct wb_spot *dir __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_spot *spot __attribute__((cleanup(wb_spot_unrefp))) = NULL;
    struct wb_location where = {0};
    struct wb_attrs attrs;
    int r;

    wb_history_clear_problem();
    r = wb_lookback_dir(sending->history, sent->lost.dir, sent->lost_when - 1, &dir);
    if (r == 0)
        r = wb_spot_child(sending->history, dir, sent->lost.name, &spot);
    else if (r == -EIO)
        r = wb_lookback_lost(sending->history, sent->lost.dir, sent->lost.name, sent->lost_when, &spot);
    if (r == 0 && !wb_object_equal(wb_spot_object(spot), sent->object))
        r = -EIO;
    if (r == 0) {
        r = wb_spot_locate(sending->history, spot, &where);
        g_free(where.path);
        r = r == 0 && where.state == WB_GONE ? -ENOENT : r;
    }
    if (r == 0)
        r = wb_spot_attrs(sending->history, spot, &attrs);
    if (r != 0)
        return tell_missing(sending, sent, r);
    sent->whole |= sending->since == 0 || !sent->known || wb_sending_is_behind(sending, sent, &attrs);
    r = wb_sending_tell(sending, spot, sent, sent->whole);
    return r < 0 ? fail_at(sending, r, spot) : 0;
}

static int by_object(const void *a, const void *b)
{
    const struct wb_sent *x = *(struct wb_sent *const *)a, *y = *(struct wb_sent *const *)b;

    return wb_object_compare(x->object, y->object);
}

/* Directories that are not in the tree any more: nothing is in them. */
static int tell_empty(struct wb_sending *sending)
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

int wb_sending_tree(struct wb_sending *sending)
{
    g_autoptr(GPtrArray) buried = g_ptr_array_new();
    GHashTableIter iter;
    void *value;
    int r = walk_tree(sending);

    if (r == 0)
        r = tell_empty(sending);
    g_hash_table_iter_init(&iter, sending->objects);
    while (g_hash_table_iter_next(&iter, &value, NULL)) {
        const struct wb_sent *sent = value;

        if (sent->buried && !sent->told)
            g_ptr_array_add(buried, value);
    }
    g_ptr_array_sort(buried, by_object);
    for (guint i = 0; r == 0 && i < buried->len; i++)
        r = tell_buried(sending, buried->pdata[i]);
    return r;
}
