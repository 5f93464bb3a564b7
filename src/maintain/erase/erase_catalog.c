/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Catalogs written anew without what is erased. A record that loses its last name stays as one of
 * the directory's own attributes, whose history is not concerned.
 */
#include "maintain/erase/catalog_edit.h"

#include "base/cleanup.h"
#include "maintain/rewrite/rewrite.h"
#include "store/object/catalog_path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void drop_from(struct wb_slot *slot)
{
    slot->from_dir = WB_OBJECT_NONE;
    slot->from_name = NULL;
    slot->from_length = 0;
}

static void drop_loss(struct wb_slot *slot)
{
    slot->present = 0;
    slot->unbind = WB_UNBIND_NONE;
    slot->object = WB_OBJECT_NONE;
    memset(&slot->attrs, 0, sizeof(slot->attrs));
    slot->to_dir = WB_OBJECT_NONE;
    slot->to_name = NULL;
    slot->to_length = 0;
}

/* What the one name that is left of a change seems to have gone through. */
static uint16_t remaining_op(const struct wb_record *record, const struct wb_slot *slot, bool from_gone)
{
    if (from_gone)
        return WB_OP_FORGET;
    if (slot->present && slot->from_length == 0 && slot->unbind == WB_UNBIND_KEPT)
        return S_ISDIR(slot->attrs.mode) ? WB_OP_RMDIR : WB_OP_UNLINK;
    return WB_OP_RENAME;
}

/* Only the directory's own attributes remain to be recorded. */
static void reduce_to_attrs(struct wb_record *record, struct wb_object dir)
{
    struct wb_attrs attrs = record->name.dir;

    record->type = WB_REC_ATTR;
    record->op = WB_OP_NONE;
    memset(&record->attr, 0, sizeof(record->attr));
    record->attr.object = dir;
    record->attr.attrs = attrs;
    record->attr.size_after = attrs.size;
}

static void execute(struct wb_erasure *erasure, struct wb_object dir, const struct wb_record_action *action,
                    struct wb_record *record)
{
    struct wb_rec_name *name = &record->name;
    uint32_t count = 0;
    bool altered = false, from_gone = false;

    for (uint32_t i = 0; i < name->count; i++) {
        struct wb_slot slot = name->slots[i];
        enum wb_slot_action slot_action = action ? action->slots[i] : WB_SLOT_KEEP;

        altered |= slot_action != WB_SLOT_KEEP;
        if (slot_action == WB_SLOT_DROP)
            continue;
        if (slot_action == WB_SLOT_DROP_LOSS)
            drop_loss(&slot);
        if (slot_action == WB_SLOT_DROP_ARRIVAL) {
            drop_from(&slot);
        } else if (wb_came_from_erased(erasure, record, &slot)) {
            drop_from(&slot);
            from_gone = true;
        }
        name->slots[count++] = slot;
    }
    name->count = count;
    /* The flag concerned the erased slots. */
    if (altered)
        record->flags &= (uint8_t)~WB_RECORD_THINNED;
    if (count == 0)
        reduce_to_attrs(record, dir);
    else if (count == 1 && (from_gone || (altered && (record->op == WB_OP_RENAME || record->op == WB_OP_EXCHANGE))))
        record->op = remaining_op(record, &name->slots[0], from_gone);
}

static int edit_record(void *data, struct wb_record *record)
{
    struct wb_catalog_edit *edit = data;
    const struct wb_record_action *action = g_hash_table_lookup(edit->actions, &record->offset);

    if (action && action->drop_record)
        return 0;
    if (record->type == WB_REC_NAME && wb_erasure_reaches(edit->erasure, record))
        execute(edit->erasure, edit->dir, action, record);
    return 1;
}

/* "Before this moment there was no such name." */
static int append_forget(struct wb_erasure *erasure, const struct wb_origin *origin, struct wb_rewrite *rewrite)
{
    _cleanup_close_ int fd = -1;
    struct wb_record record = {.type = WB_REC_NAME, .op = WB_OP_FORGET};
    GHashTableIter iter;
    void *value;
    int r = wb_catalog_path_open_dir(erasure->store, origin->dir, &fd);

    if (r != 0)
        return r < 0 ? r : -ENOENT;
    r = wb_object_stat(erasure->store, fd, NULL, NULL, &record.name.dir, NULL);
    g_hash_table_iter_init(&iter, origin->names);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erased_name *target = value;

        if (!target->present)
            continue;
        record.when = wb_store_tick(erasure->store);
        record.name.count = 1;
        record.name.slots[0].name = target->name;
        record.name.slots[0].name_length = (uint8_t)strlen(target->name);
        r = wb_rewrite_append(rewrite, &record, -1);
    }
    return r;
}

/* One by itself waits for less than all that the file system has to write. */
static int publish(struct wb_erasure *erasure, struct wb_rewrite *rewrite)
{
    if (erasure->targets->len == 1)
        return wb_rewrite_commit(rewrite);
    wb_rewrite_leave(rewrite);
    g_array_append_val(erasure->written, rewrite->object);
    return 0;
}

static int rewrite_catalog(struct wb_erasure *erasure, struct wb_object dir, bool leads,
                           const struct wb_origin *forget)
{
    _cleanup_close_ int fd =
        wb_store_open_file(erasure->store, dir, WB_FILE_CATALOG, O_RDONLY | O_CLOEXEC);
    struct wb_catalog_edit edit;
    struct wb_rewrite rewrite = {0};
    int r;

    if (fd < 0)
        return fd == -ENOENT && !forget ? 0 : fd;
    edit = wb_catalog_edit_begin(erasure, dir);
    edit.leads = leads;
    r = wb_catalog_edit_plan(&edit);
    if (r >= 0)
        r = wb_rewrite_begin(&rewrite, erasure->store, dir, WB_FILE_CATALOG);
    if (r >= 0)
        r = wb_rewrite_copy(&rewrite, fd,
                            &(struct wb_rewrite_copy){.edit = edit_record, .data = &edit, .gaps = true});
    if (r >= 0 && forget)
        r = append_forget(erasure, forget, &rewrite);
    if (r >= 0)
        r = publish(erasure, &rewrite);
    wb_rewrite_abandon(&rewrite);
    wb_catalog_edit_end(&edit);
    return r < 0 ? r : 0;
}

int wb_erasure_rewrite_catalog(struct wb_erasure *erasure, struct wb_object dir)
{
    return rewrite_catalog(erasure, dir, true, NULL);
}

int wb_erasure_rewrite_origin(struct wb_erasure *erasure, const struct wb_origin *origin)
{
    bool present = false;
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, origin->names);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        present |= ((const struct wb_erased_name *)value)->present;
    return rewrite_catalog(erasure, origin->dir, false, present && !erasure->before ? origin : NULL);
}
