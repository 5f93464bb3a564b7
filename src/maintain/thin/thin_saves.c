/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The catalog is walked from the tail, so that of a save its end is met first. Then it waits for the next record of one
 * name, which has to be the step before: that it was moved away, if it was; how it came to its name; its birth. Any
 * other record of that name ends the waiting.
 */
#include "maintain/thin/thin_saves.h"

#include "format/object_key.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Of so many at a time; those that go make room for older ones the next time. */
#define SAVES_MAX (1u << 17)
#define ATTRS_MAX (1u << 21)

struct finding {
    struct wb_thin_saves *saves;
    GHashTable *waiting;  /* name -> struct wb_thin_save, completed by the next record of this name */
    GHashTable *objects;  /* of those that wait, and those found                                     */
    GHashTable *compound; /* `when`s of changes that have several records here                       */
};

void wb_thin_saves_init(struct wb_thin_saves *saves, struct wb_object dir)
{
    *saves = (struct wb_thin_saves){.dir = dir,
                                    .list = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_save)),
                                    .attrs = g_array_new(FALSE, FALSE, sizeof(struct wb_thin_attr)),
                                    .strings = g_string_chunk_new(4096)};
}

void wb_thin_saves_deinit(struct wb_thin_saves *saves)
{
    g_array_unref(saves->list);
    g_array_unref(saves->attrs);
    g_string_chunk_free(saves->strings);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static bool is_file(const struct wb_slot *slot)
{
    return slot->present && S_ISREG(slot->attrs.mode) && slot->attrs.nlink == 1;
}

static bool is_newborn(const struct wb_record *record, const struct wb_slot *slot)
{
    return record->name.count == 1 && !slot->present && slot->from_length == 0;
}

static bool is_removed(const struct wb_record *record, const struct wb_slot *slot)
{
    return record->name.count == 1 && is_file(slot) && slot->unbind == WB_UNBIND_KEPT && slot->from_length == 0;
}

static const struct wb_slot *other_slot(const struct wb_record *record, const struct wb_slot *slot)
{
    return record->name.count == 2 ? &record->name.slots[slot == &record->name.slots[0]] : NULL;
}

static bool is_same(const char *name, size_t length, const char *other, size_t other_length)
{
    return length == other_length && memcmp(name, other, length) == 0;
}

/* Of a rename in one directory: `from` is the slot of the name that the file had, and `to` that of the one it gets. */
static bool is_rename(struct wb_object dir, const struct wb_slot *from, const struct wb_slot *to)
{
    return is_file(from) && from->unbind == WB_UNBIND_RENAMED && from->from_length == 0 &&
           wb_object_equal(from->to_dir, dir) && wb_object_equal(to->from_dir, dir) &&
           is_same(from->to_name, from->to_length, to->name, to->name_length) &&
           is_same(to->from_name, to->from_length, from->name, from->name_length);
}

/* A file was renamed over the one that had the slot's name: the other slot, of the name it had; or NULL. */
static const struct wb_slot *comer(struct wb_object dir, const struct wb_record *record, const struct wb_slot *slot)
{
    const struct wb_slot *from = other_slot(record, slot);

    return from && is_file(slot) && slot->unbind == WB_UNBIND_KEPT && is_rename(dir, from, slot) ? from : NULL;
}

/* The file that had the slot's name was moved to one that was free: the other slot, of that; or NULL. */
static const struct wb_slot *refuge(struct wb_object dir, const struct wb_record *record, const struct wb_slot *slot)
{
    const struct wb_slot *to = other_slot(record, slot);

    return to && !to->present && is_rename(dir, slot, to) ? to : NULL;
}

bool wb_thin_is_replacing(struct wb_object dir, const struct wb_record *record)
{
    if (record->type != WB_REC_NAME)
        return false;
    for (uint32_t i = 0; i < record->name.count; i++)
        if (comer(dir, record, &record->name.slots[i]) || refuge(dir, record, &record->name.slots[i]))
            return true;
    return false;
}

static const char *keep_name(struct finding *finding, const struct wb_slot *slot)
{
    char text[WB_NAME_MAX + 1];

    memcpy(text, slot->name, slot->name_length);
    text[slot->name_length] = '\0';
    return g_string_chunk_insert_const(finding->saves->strings, text);
}

/* ---- a change of names ----------------------------------------------------------------------- */

static void await(struct finding *finding, const struct wb_slot *slot, struct wb_thin_save *save)
{
    g_hash_table_replace(finding->waiting, (void *)(uintptr_t)keep_name(finding, slot), save);
}

/* What waits for the next record of the slot's name; g_free. */
static struct wb_thin_save *waiting_for(struct finding *finding, const struct wb_slot *slot)
{
    g_autofree char *name = g_strndup(slot->name, slot->name_length);
    struct wb_thin_save *save = NULL;

    g_hash_table_steal_extended(finding->waiting, name, NULL, (void **)&save);
    return save;
}

/* By this record a file was replaced, or it was removed from where it had been moved to: begins the search for the
 * older records of its save. */
static int open_save(struct finding *finding, const struct wb_record *record, const struct wb_slot *slot)
{
    bool removed = is_removed(record, slot);
    struct wb_thin_save *save;

    if ((!removed && !comer(finding->saves->dir, record, slot)) ||
        finding->saves->list->len + g_hash_table_size(finding->waiting) >= SAVES_MAX)
        return 0;
    save = g_try_new0(struct wb_thin_save, 1);
    if (!save)
        return -ENOMEM;
    save->object = slot->object;
    save->named = 1;
    if (removed) {
        save->moved = true;
        save->removed = record->when;
        save->removed_at = record->offset;
        save->removed_attrs = slot->attrs;
    } else {
        save->name = keep_name(finding, slot);
        save->lost = record->when;
        save->lost_at = record->offset;
    }
    g_hash_table_add(finding->objects, g_memdup2(&slot->object, sizeof(slot->object)));
    await(finding, slot, save);
    return 0;
}

static bool is_lost(const struct wb_thin_save *save)
{
    return save->lost > 0;
}

/* It was moved away from the name, which is the slot that it waits for now. */
static const struct wb_slot *take_moved(struct finding *finding, const struct wb_record *record,
                                        const struct wb_slot *slot, struct wb_thin_save *save)
{
    const struct wb_slot *from = other_slot(record, slot);

    if (!from || refuge(finding->saves->dir, record, from) != slot || !wb_object_equal(from->object, save->object))
        return NULL;
    save->name = keep_name(finding, from);
    save->lost = record->when;
    save->lost_at = record->offset;
    save->named++;
    return from;
}

static void take_before(struct wb_thin_save *save, const struct wb_record *record, const struct wb_slot *slot)
{
    save->took = record->when;
    save->took_at = record->offset;
    save->before = slot->object;
    save->before_attrs = slot->attrs;
}

/* It was renamed over another: the slot of the name it had before. */
static const struct wb_slot *take_over(struct finding *finding, const struct wb_record *record,
                                       const struct wb_slot *slot, struct wb_thin_save *save)
{
    const struct wb_slot *from = comer(finding->saves->dir, record, slot);

    if (!from || !wb_object_equal(from->object, save->object))
        return NULL;
    take_before(save, record, slot);
    save->named++;
    return from;
}

/* It was made after another had been moved away, which `removed` is, if that was removed there. */
static bool take_place(struct finding *finding, const struct wb_record *record, const struct wb_slot *slot,
                       struct wb_thin_save *save, const struct wb_thin_save *removed)
{
    if (!refuge(finding->saves->dir, record, slot) || !removed || !removed->moved || is_lost(removed) ||
        !wb_object_equal(removed->object, slot->object))
        return false;
    take_before(save, record, slot);
    save->before_removed = removed->removed;
    save->before_removed_at = removed->removed_at;
    save->before_removed_attrs = removed->removed_attrs;
    return true;
}

/*
 * The next step back: *ret_slot is that of the name whose next record continues the save; NULL: it is complete. False:
 * this is no save.
 */
static bool goes_on(struct finding *finding, const struct wb_record *record, const struct wb_slot *slot,
                    struct wb_thin_save *save, const struct wb_thin_save *other, const struct wb_slot **ret_slot)
{
    *ret_slot = NULL;
    if (save->in_place)
        return take_place(finding, record, slot, save, other);
    if (!is_lost(save)) {
        *ret_slot = take_moved(finding, record, slot, save);
        return *ret_slot;
    }
    if (is_newborn(record, slot)) {
        save->born = record->when;
        save->born_at = record->offset;
        save->in_place = save->took == 0;
        *ret_slot = save->in_place ? slot : NULL;
        return true;
    }
    *ret_slot = save->took == 0 ? take_over(finding, record, slot, save) : NULL;
    return *ret_slot;
}

static void step_back(struct finding *finding, struct wb_thin_save *save, const struct wb_slot *slot)
{
    if (slot) {
        await(finding, slot, save);
    } else {
        g_array_append_vals(finding->saves->list, save, 1);
        g_free(save);
    }
}

static int take_names(struct finding *finding, const struct wb_record *record)
{
    struct wb_thin_save *saves[WB_SLOTS_MAX] = {NULL}, was[WB_SLOTS_MAX];
    const struct wb_slot *next[WB_SLOTS_MAX] = {NULL};
    int r = 0;

    /* All that waited for either name first: what waits from now on waits for an older record. */
    for (uint32_t i = 0; i < record->name.count; i++) {
        saves[i] = waiting_for(finding, &record->name.slots[i]);
        if (saves[i])
            was[i] = *saves[i];
    }
    for (uint32_t i = 0; i < record->name.count; i++) {
        const struct wb_thin_save *other = record->name.count == 2 && saves[!i] ? &was[!i] : NULL;

        if (saves[i] && goes_on(finding, record, &record->name.slots[i], saves[i], other, &next[i]))
            step_back(finding, saves[i], next[i]);
        else
            g_free(saves[i]);
        if (r == 0)
            r = open_save(finding, record, &record->name.slots[i]);
    }
    return r;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int take(struct finding *finding, const struct wb_record *record)
{
    struct wb_thin_saves *saves = finding->saves;

    if (record->flags & WB_RECORD_MORE)
        g_hash_table_add(finding->compound, g_memdup2(&record->when, sizeof(record->when)));
    if (record->type == WB_REC_NAME)
        return take_names(finding, record);
    if (record->type != WB_REC_ATTR || !g_hash_table_contains(finding->objects, &record->attr.object))
        return 0;
    if (saves->attrs->len >= ATTRS_MAX)
        return -E2BIG;
    g_array_append_val(saves->attrs, ((struct wb_thin_attr){record->attr.object, record->offset}));
    return 0;
}

/* Whether states before this record are unknown. */
static bool ends_all(const struct wb_record *record)
{
    return record->type == WB_REC_GAP || record->type == WB_REC_FILLER;
}

static int walk(struct finding *finding, int fd, bool (*stop)(void *data), void *data)
{
    struct wb_log_skip skip = {0};
    struct wb_log_reader reader;
    struct wb_record record;
    int r = wb_log_reader_init(&reader, fd);

    if (r < 0)
        return r;
    while ((r = wb_log_reader_prev_effective(&reader, &skip, &record)) == 0 && !ends_all(&record)) {
        r = take(finding, &record);
        if (r == 0 && stop && stop(data))
            r = -ECANCELED;
        if (r < 0)
            break;
    }
    wb_log_reader_deinit(&reader);
    return r == WB_DAMAGED ? -EBADMSG : MIN(r, 0);
}

static gint by_name(const void *a, const void *b)
{
    const struct wb_thin_save *one = a, *other = b;
    int r = strcmp(one->name, other->name);

    return r != 0 ? r : one->lost > other->lost ? -1 : one->lost < other->lost;
}

static gint by_object(const void *a, const void *b)
{
    const struct wb_thin_attr *one = a, *other = b;
    int r = wb_object_compare(one->object, other->object);

    return r != 0 ? r : one->offset > other->offset ? -1 : one->offset < other->offset;
}

static guint find_attrs(const struct wb_thin_saves *saves, struct wb_object object)
{
    guint low = 0, high = saves->attrs->len;

    while (low < high) {
        guint middle = low + (high - low) / 2;

        if (wb_object_compare(g_array_index(saves->attrs, struct wb_thin_attr, middle).object, object) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static guint count_attrs(const struct wb_thin_saves *saves, struct wb_object object)
{
    guint first = find_attrs(saves, object), i = first;

    while (i < saves->attrs->len &&
           wb_object_equal(g_array_index(saves->attrs, struct wb_thin_attr, i).object, object))
        i++;
    return i - first;
}

const struct wb_thin_attr *wb_thin_saves_attrs(const struct wb_thin_saves *saves, struct wb_object object)
{
    guint first = find_attrs(saves, object);

    return first < saves->attrs->len ? &g_array_index(saves->attrs, struct wb_thin_attr, first) : NULL;
}

/* Keeps the saves whose changes have only one record here each, and counts their ATTR records. */
static void settle(struct finding *finding)
{
    struct wb_thin_saves *saves = finding->saves;
    guint n = 0;

    g_array_sort(saves->attrs, by_object);
    for (guint i = 0; i < saves->list->len; i++) {
        struct wb_thin_save *save = &g_array_index(saves->list, struct wb_thin_save, i);

        if (g_hash_table_contains(finding->compound, &save->born) ||
            g_hash_table_contains(finding->compound, &save->took) ||
            g_hash_table_contains(finding->compound, &save->lost) ||
            (save->moved && g_hash_table_contains(finding->compound, &save->removed)) ||
            (save->in_place && g_hash_table_contains(finding->compound, &save->before_removed)))
            continue;
        save->attr_records = count_attrs(saves, save->object);
        g_array_index(saves->list, struct wb_thin_save, n++) = *save;
    }
    g_array_set_size(saves->list, n);
    g_array_sort(saves->list, by_name);
}

int wb_thin_saves_find(struct wb_thin_saves *saves, int fd, bool (*stop)(void *data), void *data)
{
    struct finding finding = {.saves = saves,
                              .waiting = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, g_free),
                              .objects = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL),
                              .compound = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL)};
    int r = walk(&finding, fd, stop, data);

    if (r == 0)
        settle(&finding);
    g_hash_table_unref(finding.waiting);
    g_hash_table_unref(finding.objects);
    g_hash_table_unref(finding.compound);
    return r;
}
