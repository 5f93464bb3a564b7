/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether a stream, each frame of which is as it was written, can be carried out: once the first record is in its log,
 * there is no way back. Whoever sends may say what is not so; he may not leave a copy that nobody can use.
 */
#include "transfer/apply.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct checking {
    struct wb_applying *applying;
    struct wb_stream_object last; /* the object told last; none: 0 */
    GHashTable *told;             /* struct wb_object -> its mode  */
    GHashTable *placed;           /* struct wb_object: directories */
};

static guint hash(const void *key)
{
    return g_int64_hash(&((const struct wb_object *)key)->ino);
}

static gboolean equal(const void *a, const void *b)
{
    return wb_object_equal(*(const struct wb_object *)a, *(const struct wb_object *)b);
}

/* *ret_dir: whether it is a directory. False: neither the copy nor the stream has it. */
static bool know(struct checking *checking, struct wb_object object, bool *ret_dir)
{
    struct wb_copy_tree *tree = &checking->applying->tree;
    struct wb_copied *copied = wb_copy_tree_know(tree, object, false);
    void *mode;

    if (!copied)
        copied = wb_copy_tree_know(tree, object, true);
    if (copied)
        *ret_dir = copied->is_dir;
    else if (g_hash_table_lookup_extended(checking->told, &object, NULL, &mode))
        *ret_dir = S_ISDIR(GPOINTER_TO_UINT(mode));
    else
        return false;
    return true;
}

static bool check_record(const struct checking *checking, const struct wb_stream_record *body)
{
    const struct wb_stream_hello *hello = &checking->applying->hello;
    struct wb_record record;

    if (body->log >= WB_STREAM_ACTORS)
        return true;
    /* What a stage keeps counts by the end of it. */
    return wb_record_decode(body->data, body->length, 0, &record) == 0 && record.when <= hello->until &&
           (record.when > hello->since || record.type == WB_REC_DATA);
}

/* What is taken from the copy's own file has to be in it. */
static int check_fill(const struct checking *checking, const struct wb_stream_record *body)
{
    if (!(body->flags & WB_STREAM_FILL) || wb_copy_tree_know(&checking->applying->tree, body->object, false))
        return 0;
    return wb_problem_set(checking->applying->why, -EXDEV, "versions were thinned out at the source of which this copy "
                          "has a part, and not the file: receive all of it into another directory");
}

static bool check_object(struct checking *checking, const struct wb_stream_object *body)
{
    bool is_dir = S_ISDIR(body->attrs.mode), was_dir;

    if (know(checking, body->object, &was_dir) ? was_dir != is_dir : !(body->flags & WB_STREAM_WHOLE))
        return false;
    g_hash_table_insert(checking->told, g_memdup2(&body->object, sizeof(body->object)),
                        GUINT_TO_POINTER(body->attrs.mode));
    checking->last = *body;
    return true;
}

static int each_object(const struct wb_stream_body *body, void *data)
{
    struct checking *checking = data;
    bool right = true;

    if (body->type == WB_FRAME_RECORD && check_fill(checking, &body->record) < 0)
        return -EXDEV;
    if (body->type == WB_FRAME_RECORD)
        right = check_record(checking, &body->record);
    else if (body->type == WB_FRAME_OBJECT)
        right = check_object(checking, &body->object);
    else if (body->type == WB_FRAME_XATTRS)
        right = wb_object_equal(body->list.object, checking->last.object);
    else if (body->type == WB_FRAME_CONTENT)
        right = S_ISREG(checking->last.attrs.mode) && wb_object_equal(body->bytes.object, checking->last.object) &&
                body->bytes.offset + body->bytes.length <= checking->last.attrs.size;
    return right ? 0 : -EBADMSG;
}

static bool is_hidden(const struct wb_stream_entry *entry)
{
    static const char *const names[] = {WB_STORE_NAME, WB_STAGING_NAME};

    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++)
        if (entry->length == strlen(names[i]) && memcmp(entry->name, names[i], entry->length) == 0)
            return true;
    return false;
}

static bool check_entry(struct checking *checking, struct wb_object dir, const struct wb_stream_entry *entry)
{
    struct wb_object root = checking->applying->tree.root;
    bool is_dir;

    if (wb_object_equal(entry->object, root) || (wb_object_equal(dir, root) && is_hidden(entry)) ||
        !know(checking, entry->object, &is_dir))
        return false;
    /* A directory has one name. */
    return !is_dir || g_hash_table_add(checking->placed, g_memdup2(&entry->object, sizeof(entry->object)));
}

static int each_listing(const struct wb_stream_body *body, void *data)
{
    struct checking *checking = data;
    size_t position = 0;
    bool is_dir;

    if (body->type != WB_FRAME_LISTING || body->list.count == 0)
        return 0;
    if (!know(checking, body->list.object, &is_dir) || !is_dir)
        return -EBADMSG;
    for (uint32_t i = 0; i < body->list.count; i++) {
        struct wb_stream_entry entry;

        wb_stream_next_entry(&body->list, &position, &entry);
        if (!check_entry(checking, body->list.object, &entry))
            return -EBADMSG;
    }
    return 0;
}

int wb_apply_check(struct wb_applying *applying)
{
    struct checking checking = {
        .applying = applying, .told = g_hash_table_new_full(hash, equal, g_free, NULL),
        .placed = g_hash_table_new_full(hash, equal, g_free, NULL),
    };
    int r = wb_apply_each(applying, each_object, &checking);

    if (r == 0)
        r = wb_apply_each(applying, each_listing, &checking);
    g_hash_table_unref(checking.told);
    g_hash_table_unref(checking.placed);
    if (r == -EBADMSG)
        wb_problem_set(applying->why, r, "the stream is whole, but says what cannot be so: the copy is as it was");
    return r;
}
