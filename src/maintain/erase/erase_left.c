/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names that a file keeps when its past is erased: a hard link at another name, or the name itself with --history. Its
 * new log says where the file is, because all records that said so go; without that, a copy of the tree could not be
 * bound to the copy of its store. Names are collected from the records that go, and count when the tree confirms them.
 */
#include "maintain/erase/erase_set.h"

#include "base/cleanup.h"
#include "format/object_key.h"
#include "maintain/rewrite/rewrite.h"
#include "store/object/locate.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The newest are met first; a file that was renamed more often than this has its name among them. */
#define CANDIDATES_MAX (1u << 16)

guint wb_left_name_hash(const void *key)
{
    const struct wb_left_name *name = key;

    return wb_object_hash(&name->dir) * 33 ^ g_str_hash(name->name);
}

gboolean wb_left_name_equal(const void *a, const void *b)
{
    const struct wb_left_name *x = a, *y = b;

    return wb_object_equal(x->dir, y->dir) && strcmp(x->name, y->name) == 0;
}

static void note(struct wb_erasure *erasure, struct wb_object dir, const char *name, size_t length)
{
    struct wb_left_name *candidate;

    if (length == 0 || wb_object_is_none(dir) || g_hash_table_size(erasure->candidates) >= CANDIDATES_MAX)
        return;
    candidate = g_malloc0(sizeof(*candidate) + length + 1);
    candidate->dir = dir;
    memcpy(candidate->name, name, length);
    g_hash_table_add(erasure->candidates, candidate);
}

static bool may_live(struct wb_erasure *erasure, struct wb_object object)
{
    struct wb_doomed *doomed = wb_erasure_find(erasure, object);

    if (!doomed || doomed->is_dir || doomed->doom != WB_DOOM_PAST)
        return false;
    if (doomed->lives == 0)
        doomed->lives = wb_erasure_lives_on(erasure, object) != 0 ? 1 : -1;
    return doomed->lives > 0;
}

static void note_via(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record)
{
    const struct wb_via *via = &record->via;
    struct wb_object object = record->type == WB_REC_ATTR    ? record->attr.object
                              : record->type == WB_REC_XATTR ? record->xattr.object
                                                             : log;

    if (via->length > 0 && may_live(erasure, object))
        note(erasure, wb_object_is_none(via->dir) ? log : via->dir, via->name, via->length);
}

/* Where a file went from a name, and which name was linked to which. */
static void note_slot(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record,
                      const struct wb_slot *slot)
{
    struct wb_origin *origin = wb_erasure_origin(erasure, log), *from;

    if (slot->present && slot->fate == WB_FATE_MOVED && may_live(erasure, slot->object))
        note(erasure, slot->to_dir, slot->to_name, slot->to_length);
    if (record->op != WB_OP_LINK || slot->from_length == 0)
        return;
    from = wb_erasure_origin(erasure, slot->from_dir);
    if (wb_erasure_is_name(origin, slot->name, slot->name_length))
        note(erasure, slot->from_dir, slot->from_name, slot->from_length);
    if (wb_erasure_is_name(from, slot->from_name, slot->from_length))
        note(erasure, log, slot->name, slot->name_length);
}

void wb_erasure_note_names(struct wb_erasure *erasure, struct wb_object log, const struct wb_record *record)
{
    switch (record->type) {
    case WB_REC_ATTR:
    case WB_REC_XATTR:
    case WB_REC_DATA:
        note_via(erasure, log, record);
        break;
    case WB_REC_PLACE:
        if (may_live(erasure, record->place.self))
            note(erasure, record->place.parent, record->place.name, record->place.name_length);
        break;
    case WB_REC_NAME:
        for (uint32_t i = 0; i < record->name.count; i++)
            note_slot(erasure, log, record, &record->name.slots[i]);
        break;
    default:
        break;
    }
}

/* What has the name now: 0, WB_ABSENT or -errno. */
static int look(struct wb_erasure *erasure, const struct wb_left_name *name, struct wb_object *ret)
{
    _cleanup_close_ int fd = -1;
    int r = wb_store_locate_dir(erasure->store, name->dir, &fd);

    if (r == 0)
        r = wb_object_stat(erasure->store, fd, name->name, ret, NULL, NULL);
    return r == -ENOENT || r == -ENOTDIR || r == -EXDEV || r == -EIO || r == -ESTALE ? WB_ABSENT : r;
}

int wb_erasure_find_names(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key;
    int r = 0;

    for (guint i = 0; i < erasure->targets->len; i++) {
        const struct wb_erased_name *target = erasure->targets->pdata[i];

        if (target->present)
            note(erasure, wb_spot_object(target->dir), target->name, strlen(target->name));
    }
    g_hash_table_iter_init(&iter, erasure->candidates);
    while (r >= 0 && g_hash_table_iter_next(&iter, &key, NULL)) {
        struct wb_left_name *name = key;
        struct wb_object object;
        struct wb_doomed *doomed;

        r = look(erasure, name, &object);
        if (r != 0 || !may_live(erasure, object))
            continue;
        doomed = wb_erasure_find(erasure, object);
        name->next = doomed->left;
        doomed->left = name;
    }
    return MIN(r, 0);
}

int wb_erasure_append_places(struct wb_erasure *erasure, const struct wb_doomed *doomed, int64_t when,
                             struct wb_rewrite *rewrite)
{
    struct wb_record record = {.type = WB_REC_PLACE, .place.self = doomed->object};
    int r = 0;

    for (const struct wb_left_name *name = doomed->left; r >= 0 && name; name = name->next) {
        record.when = when ? when : wb_store_tick(erasure->store);
        record.flags = when && name->next ? WB_RECORD_MORE : 0;
        record.place.parent = name->dir;
        record.place.name = name->name;
        record.place.name_length = (uint8_t)strlen(name->name);
        r = wb_rewrite_append(rewrite, &record, -1);
    }
    return r;
}
