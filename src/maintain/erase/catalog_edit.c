/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "maintain/erase/catalog_edit.h"

#include "history/versions/versions_walk.h"
#include "maintain/rewrite/compact.h"
#include "store/object/object_log.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct wb_catalog_edit wb_catalog_edit_begin(struct wb_erasure *erasure, struct wb_object dir)
{
    return (struct wb_catalog_edit){
        .erasure = erasure,
        .dir = dir,
        .origin = wb_erasure_origin(erasure, dir),
        .held = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
        .aborted = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
        .actions = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
    };
}

void wb_catalog_edit_end(struct wb_catalog_edit *edit)
{
    g_hash_table_unref(edit->held);
    g_hash_table_unref(edit->aborted);
    g_hash_table_unref(edit->actions);
}

/* An object whose whole past is erased, whichever log records it; NULL: it is none. */
static struct wb_erase_victim *victim_past(const struct wb_erasure *erasure, struct wb_object object)
{
    struct wb_erase_victim *victim = wb_erasure_find(erasure, object);

    return victim && victim->scope == WB_ERASE_SCOPE_ALL ? victim : NULL;
}

static char *departure_key(int64_t when, struct wb_object dir, const char *name, uint8_t length)
{
    char text[WB_OBJECT_TEXT_MAX];

    wb_object_print(dir, text);
    return g_strdup_printf("%" PRId64 ":%s:%.*s", when, text, length, name);
}

static bool is_erased_name(const struct wb_erasure *erasure, struct wb_object dir, const char *name,
                           uint8_t length)
{
    return wb_erasure_is_name(wb_erasure_origin(erasure, dir), name, length);
}

bool wb_came_from_erased(const struct wb_erasure *erasure, const struct wb_record *record,
                             const struct wb_slot *slot)
{
    g_autofree char *key = NULL;

    if (slot->from_length == 0)
        return false;
    if (is_erased_name(erasure, slot->from_dir, slot->from_name, slot->from_length) ||
        victim_past(erasure, slot->from_dir))
        return true;
    key = departure_key(record->when, slot->from_dir, slot->from_name, slot->from_length);
    return g_hash_table_contains(erasure->departures, key);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Once the origin that leads to the victim is written anew, nothing finds the records of it in this catalog. */
static void note_crossed(struct wb_catalog_edit *edit, const struct wb_erase_victim *victim)
{
    if (edit->origin && victim && !wb_object_equal(victim->lead, edit->dir))
        edit->origin->crossed = true;
}

static enum wb_slot_action judge_slot(struct wb_catalog_edit *edit, const struct wb_record *record,
                                      const struct wb_slot *slot)
{
    g_autofree char *name = g_strndup(slot->name, slot->name_length);
    struct wb_erase_victim *lost = slot->present ? victim_past(edit->erasure, slot->object) : NULL;
    struct wb_erase_victim *gained = g_hash_table_lookup(edit->held, name);
    bool happened = !g_hash_table_contains(edit->aborted, &record->when);

    if (happened && lost)
        g_hash_table_insert(edit->held, g_steal_pointer(&name), lost);
    else if (happened)
        g_hash_table_remove(edit->held, name);
    if (happened && lost && record->when > lost->lost) {
        lost->lost = record->when;
        lost->kept = slot->unbind == WB_UNBIND_KEPT;
    }
    if (!wb_erasure_reaches(edit->erasure, record)) {
        if (lost && happened)
            lost->needed = true;
        return WB_SLOT_KEEP;
    }
    /* The catalog does not show any more which object had the name: reads of its states of that time have to fail. */
    if (lost && edit->erasure->before)
        lost->touched = true;
    if (gained && edit->erasure->before)
        gained->touched = true;
    /* Where the inode was born after the moment, it is by this record that it was there at it. */
    if (gained && edit->erasure->before && gained->object.birth > edit->erasure->before)
        gained = NULL;
    /* Everything that ever had the erased name is erased. */
    if (wb_erasure_is_name(edit->origin, slot->name, slot->name_length))
        return edit->leads ? WB_SLOT_KEEP : WB_SLOT_DROP;
    note_crossed(edit, lost);
    note_crossed(edit, gained);
    if (lost)
        return !gained && wb_slot_gains(record, slot) ? WB_SLOT_DROP_LOSS : WB_SLOT_DROP;
    if (gained)
        return slot->present ? WB_SLOT_DROP_ARRIVAL : WB_SLOT_DROP;
    return WB_SLOT_KEEP;
}

static bool concerns_victim(struct wb_catalog_edit *edit, const struct wb_record *record)
{
    struct wb_erase_victim *victim = NULL;

    if (!wb_erasure_reaches(edit->erasure, record))
        return false;
    if (record->type == WB_REC_ATTR)
        victim = victim_past(edit->erasure, record->attr.object);
    else if (record->type == WB_REC_XATTR)
        victim = victim_past(edit->erasure, record->xattr.object);
    if (victim)
        victim->touched = true;
    note_crossed(edit, victim);
    return victim != NULL;
}

static void judge_record(struct wb_catalog_edit *edit, const struct wb_record *record)
{
    struct wb_record_action action = {.offset = record->offset};
    bool any = false;

    if (record->type == WB_REC_ABORT) {
        g_hash_table_add(edit->aborted, g_memdup2(&record->abort.target, sizeof(int64_t)));
    } else if (record->type == WB_REC_NAME) {
        for (uint32_t i = 0; i < record->name.count; i++) {
            action.slots[i] = judge_slot(edit, record, &record->name.slots[i]);
            any |= action.slots[i] != WB_SLOT_KEEP;
        }
    } else {
        any = action.drop_record = concerns_victim(edit, record);
    }
    if (any) {
        struct wb_record_action *kept = g_memdup2(&action, sizeof(action));

        g_hash_table_insert(edit->actions, &kept->offset, kept);
    }
}

/* Hands every record of a log to `visit`, newest first; damaged ones are passed over. */
static int each_record(struct wb_erasure *erasure, struct wb_object object, enum wb_object_file file,
                       void (*visit)(void *data, const struct wb_record *record), void *data)
{
    _cleanup_object_log_ struct wb_object_log log = WB_OBJECT_LOG_CLOSED;
    struct wb_record record;
    int r = wb_object_log_open(&log, erasure->store, object, file);

    if (r <= 0)
        return r;
    while ((r = wb_log_reader_prev(&log.reader, &record)) == 0 || r == WB_DAMAGED) {
        if (r == 0)
            visit(data, &record);
        else
            erasure->blind |= file == WB_FILE_CATALOG;
    }
    return r < 0 ? r : 0;
}

static void plan_record(void *data, const struct wb_record *record)
{
    judge_record(data, record);
}

int wb_catalog_edit_plan(struct wb_catalog_edit *edit)
{
    return each_record(edit->erasure, edit->dir, WB_FILE_CATALOG, plan_record, edit);
}

/* ---- survey ---------------------------------------------------------------------------------- */

static void note_actor(struct wb_erasure *erasure, const struct wb_record *record)
{
    if (record->actor != 0)
        g_hash_table_add(erasure->actors, GUINT_TO_POINTER(record->actor));
}

/* The object of an erased slot was renamed to another name: records there must not point here. */
static void note_departure(struct wb_erasure *erasure, struct wb_object dir, const struct wb_record *record,
                           const struct wb_slot *slot)
{
    struct wb_origin *to = wb_erasure_origin(erasure, slot->to_dir);

    if (slot->unbind != WB_UNBIND_RENAMED)
        return;
    if (to && !wb_object_equal(dir, to->dir))
        to->crossed = true;
    g_hash_table_add(erasure->departures,
                     departure_key(record->when, dir, slot->name, slot->name_length));
    if (!victim_past(erasure, slot->to_dir))
        g_hash_table_add(erasure->catalogs, g_memdup2(&slot->to_dir, sizeof(slot->to_dir)));
}

/* Objects of newer states are needed, also if an erased directory has the records of them. */
static void note_needed(struct wb_catalog_edit *edit, const struct wb_record *record)
{
    if (record->type == WB_REC_ABORT)
        g_hash_table_add(edit->aborted, g_memdup2(&record->abort.target, sizeof(int64_t)));
    if (record->type != WB_REC_NAME || g_hash_table_contains(edit->aborted, &record->when))
        return;
    for (uint32_t i = 0; i < record->name.count; i++) {
        struct wb_erase_victim *victim = wb_erasure_find(edit->erasure, record->name.slots[i].object);

        if (victim)
            victim->needed = true;
    }
}

/* A log that goes as a whole, or up to the moment. */
static void survey_victim_record(void *data, const struct wb_record *record)
{
    struct wb_catalog_edit *edit = data;

    if (!wb_erasure_reaches(edit->erasure, record)) {
        note_needed(edit, record);
        return;
    }
    note_actor(edit->erasure, record);
    wb_erasure_note_names(edit->erasure, edit->dir, record);
    if (record->type == WB_REC_NAME) {
        for (uint32_t i = 0; i < record->name.count; i++)
            note_departure(edit->erasure, edit->dir, record, &record->name.slots[i]);
    }
}

static void note_came_from(struct wb_catalog_edit *edit, const struct wb_slot *slot)
{
    if (edit->origin && !wb_object_equal(slot->from_dir, edit->dir))
        edit->origin->crossed = true;
    g_hash_table_add(edit->erasure->catalogs, g_memdup2(&edit->dir, sizeof(edit->dir)));
}

static void survey_record(void *data, const struct wb_record *record)
{
    struct wb_catalog_edit *edit = data;
    const struct wb_record_action *action;

    judge_record(edit, record);
    wb_erasure_note_names(edit->erasure, edit->dir, record);
    action = g_hash_table_lookup(edit->actions, &record->offset);
    if (action) {
        note_actor(edit->erasure, record);
        g_hash_table_add(edit->erasure->catalogs, g_memdup2(&edit->dir, sizeof(edit->dir)));
    }
    if (record->type != WB_REC_NAME || !wb_erasure_reaches(edit->erasure, record))
        return;
    for (uint32_t i = 0; i < record->name.count; i++) {
        if (action && action->slots[i] != WB_SLOT_KEEP)
            note_departure(edit->erasure, edit->dir, record, &record->name.slots[i]);
        else if (wb_came_from_erased(edit->erasure, record, &record->name.slots[i]))
            note_came_from(edit, &record->name.slots[i]);
    }
}

static int survey_log(struct wb_erasure *erasure, struct wb_object object, enum wb_object_file file,
                      void (*visit)(void *data, const struct wb_record *record))
{
    struct wb_catalog_edit edit = wb_catalog_edit_begin(erasure, object);
    int r = each_record(erasure, object, file, visit, &edit);

    wb_catalog_edit_end(&edit);
    return r;
}

static int survey_entry(void *data, int dir_fd, const char *name)
{
    struct wb_erasure *erasure = data;
    enum wb_object_file file;
    struct wb_object object;

    /* What a crash left of a compaction may hold anything; none is under way now. */
    if (g_str_has_suffix(name, WB_COMPACT_SUFFIX))
        return unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
    if (wb_object_file_parse(name, &object, &file) < 0 || file != WB_FILE_CATALOG || victim_past(erasure, object))
        return 0;
    return survey_log(erasure, object, file, survey_record);
}

/*
 * Reads every catalog of the store: a name that some other directory gave to an
 * erased object is recorded nowhere else.
 */
int wb_erasure_survey(struct wb_erasure *erasure)
{
    GHashTableIter iter;
    void *key, *value;
    int r = 0;

    g_hash_table_iter_init(&iter, erasure->objects);
    while (r >= 0 && g_hash_table_iter_next(&iter, NULL, &value)) {
        const struct wb_erase_victim *victim = value;

        if (victim->scope == WB_ERASE_SCOPE_ALL)
            r = survey_log(erasure, victim->object, victim->is_dir ? WB_FILE_CATALOG : WB_FILE_UNDO,
                           survey_victim_record);
    }
    for (unsigned i = 0; r >= 0 && i < WB_SHARDS; i++)
        r = wb_shard_each(erasure->store->dir_fd, i, survey_entry, erasure);
    g_hash_table_iter_init(&iter, erasure->origins);
    while (g_hash_table_iter_next(&iter, &key, NULL))
        g_hash_table_remove(erasure->catalogs, key);
    return r < 0 ? r : wb_erasure_find_names(erasure);
}
