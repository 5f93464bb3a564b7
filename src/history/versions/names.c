/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "history/versions/names.h"

#include "format/object_key.h"
#include "history/internal.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* State of a name while the walk goes back in time. */
struct state {
    bool bound;              /* at the present moment of the walk                  */
    struct wb_object holder; /* the object that had it then; differs from span.object if another object took it over */
    struct wb_name span;     /* the open span                                      */
    char *to_name;           /* of the span                                        */
    unsigned spans;
    GArray *items;            /* of struct wb_name; NULL: none yet                  */
    GHashTable *directories; /* objects reported, for a name that had many         */
    char name[];
};

struct wb_names {
    GHashTable *states; /* owns the texts */
    GStringChunk *texts;
    GArray *items;
    bool incomplete;
};

struct walk {
    struct wb_names *names;
    const struct wb_names_options *options;
    struct wb_access_intervals *seen;
};

/* Up to this many objects reported for one name are compared one by one. */
#define FEW_ITEMS 16

static void state_free(void *data)
{
    struct state *state = data;

    if (state->items)
        g_array_unref(state->items);
    if (state->directories)
        g_hash_table_unref(state->directories);
    g_free(state->to_name);
    g_free(state);
}

static struct state *state_of(struct walk *walk, const char *name, size_t length)
{
    char text[WB_NAME_MAX + 1];
    struct state *state;

    memcpy(text, name, length);
    text[length] = '\0';
    if (walk->options->only && strcmp(walk->options->only, text) != 0)
        return NULL;
    state = g_hash_table_lookup(walk->names->states, text);
    if (!state) {
        state = g_malloc0(sizeof(*state) + length + 1);
        memcpy(state->name, text, length + 1);
        g_hash_table_insert(walk->names->states, state->name, state);
    }
    return state;
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* Whether it is a directory that was not reported yet under this name. */
static bool is_new_directory(struct state *state, const struct wb_name *span)
{
    if (!S_ISDIR(span->mode))
        return false;
    if (!state->directories && state->items && state->items->len > FEW_ITEMS) {
        state->directories = g_hash_table_new_full(wb_object_hash, wb_object_is_key, g_free, NULL);
        for (guint i = 0; i < state->items->len; i++) {
            struct wb_object *object = &g_array_index(state->items, struct wb_name, i).object;

            g_hash_table_add(state->directories, g_memdup2(object, sizeof(*object)));
        }
    }
    if (state->directories)
        return g_hash_table_add(state->directories, g_memdup2(&span->object, sizeof(span->object)));
    for (guint i = 0; state->items && i < state->items->len; i++)
        if (wb_object_equal(g_array_index(state->items, struct wb_name, i).object, span->object))
            return false;
    return true;
}

static void add_listed(struct walk *walk, struct state *state, struct wb_name *span)
{
    int64_t last = span->present ? INT64_MAX : span->last;

    if (walk->seen && !wb_access_intervals_meet(walk->seen, span->first, last))
        return;
    span->index = state->spans;
    span->name = state->name;
    if (!span->replaced)
        state->spans++;
    if ((span->replaced || span->index >= walk->options->spans) && !is_new_directory(state, span))
        return;
    if (span->moved)
        span->to_name = g_string_chunk_insert_const(walk->names->texts, state->to_name);
    if (!state->items)
        state->items = g_array_sized_new(FALSE, FALSE, sizeof(*span), 1);
    g_array_append_val(state->items, *span);
}

/* The name was absent before `when`: the object that had it later got it then. */
static void begin_span(struct walk *walk, struct state *state, int64_t when)
{
    state->span.first = when;
    add_listed(walk, state, &state->span);
    state->bound = false;
}

/* Another object took the name over from a directory, without a time at which the name was absent. */
static void take_over(struct walk *walk, struct state *state, const struct wb_record *record,
                      const struct wb_slot *slot)
{
    struct wb_name span = {.replaced = true, .object = slot->object, .mode = slot->attrs.mode, .last = record->when};

    state->holder = slot->object;
    if (S_ISDIR(span.mode) && slot->unbind != WB_UNBIND_RENAMED)
        add_listed(walk, state, &span);
}

static void end_span(struct walk *walk, struct state *state, const struct wb_record *record,
                     const struct wb_slot *slot)
{
    struct wb_name *span = &state->span;

    *span = (struct wb_name){
        .object = slot->object,
        .mode = slot->attrs.mode,
        .size = slot->attrs.size,
        .last = record->when,
        .actor = record->actor,
        .moved = slot->unbind == WB_UNBIND_RENAMED,
        .to_dir = slot->to_dir,
    };
    g_free(state->to_name);
    state->to_name = span->moved ? g_strndup(slot->to_name, slot->to_length) : NULL;
    state->holder = slot->object;
    state->bound = true;
}

static void go_back(struct walk *walk, const struct wb_record *record)
{
    for (uint32_t i = 0; record->type == WB_REC_NAME && i < record->name.count; i++) {
        const struct wb_slot *slot = &record->name.slots[i];
        struct state *state = state_of(walk, slot->name, slot->name_length);

        if (!state)
            continue;
        if (!slot->present && state->bound)
            begin_span(walk, state, record->when);
        else if (slot->present && !state->bound)
            end_span(walk, state, record, slot);
        else if (slot->present && !wb_object_equal(state->holder, slot->object))
            take_over(walk, state, record, slot);
        /* Otherwise the record's change never happened, or it is newer than the present state that was read. */
    }
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void add_present(struct walk *walk, const char *name, struct wb_object object, uint32_t mode)
{
    struct state *state = state_of(walk, name, strlen(name));

    if (!state)
        return;
    state->bound = true;
    state->holder = object;
    state->span = (struct wb_name){.present = true, .object = object, .mode = mode};
}

/* The entries at T; read before the catalog is opened, as always. */
static int read_state(struct walk *walk, struct wb_history *history, struct wb_revision *dir)
{
    struct wb_listing *listing;
    int r;

    if (walk->options->only) {
        struct wb_revision *child __attribute__((cleanup(wb_revision_unrefp))) = NULL;

        r = wb_revision_child(history, dir, walk->options->only, &child);
        if (r == 0)
            add_present(walk, walk->options->only, child->object, child->type);
        return r == WB_ABSENT ? 0 : r;
    }
    r = wb_listing_open(history, dir, &listing);
    if (r < 0)
        return r;
    for (guint i = 0; i < listing->entries->len; i++) {
        const struct wb_listing_entry *entry = &g_array_index(listing->entries, struct wb_listing_entry, i);

        add_present(walk, entry->name, entry->object, entry->mode);
    }
    wb_listing_unref(listing);
    return 0;
}

static int read_catalog(struct walk *walk, struct wb_history *history, struct wb_revision *dir)
{
    int64_t horizon = wb_store_horizon(history->store);
    struct wb_log_cursor source;
    int r;

    r = wb_log_cursor_open(&source, history->store, dir->object, WB_FILE_CATALOG);
    if (r < 0)
        return r;
    while ((r = wb_log_cursor_peek(&source)) == 0 || r == WB_DAMAGED) {
        if (r == WB_DAMAGED) {
            walk->names->incomplete = true;
            continue;
        }
        /* Older records were pruned, even if they still exist. */
        if (source.head.when <= horizon)
            break;
        if (source.head.type == WB_REC_GAP && source.head.gap.reason != WB_GAP_ERASED)
            walk->names->incomplete = true;
        if (source.head.when <= dir->when)
            go_back(walk, &source.head);
        wb_log_cursor_take(&source);
    }
    wb_log_cursor_close(&source);
    return r < 0 ? r : 0;
}

static int compare_states(const void *a, const void *b)
{
    return strcmp((*(const struct state *const *)a)->name, (*(const struct state *const *)b)->name);
}

/* Keeps only the items, in order. */
static void settle(struct walk *walk)
{
    struct wb_names *names = walk->names;
    g_autoptr(GPtrArray) order = g_ptr_array_sized_new(g_hash_table_size(names->states));
    GHashTableIter iter;
    void *value;

    g_hash_table_iter_init(&iter, names->states);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        g_ptr_array_add(order, value);
    g_ptr_array_sort(order, compare_states);
    for (guint i = 0; i < order->len; i++) {
        struct state *state = order->pdata[i];

        if (state->bound)
            begin_span(walk, state, 0);
        for (guint j = 0; state->items && j < state->items->len; j++) {
            struct wb_name item = g_array_index(state->items, struct wb_name, j);

            item.spans = state->spans;
            g_array_append_val(names->items, item);
        }
        g_clear_pointer(&state->items, g_array_unref);
        g_clear_pointer(&state->directories, g_hash_table_unref);
    }
}

int wb_names_open(struct wb_history *history, struct wb_revision *dir, const struct wb_names_options *options,
                  struct wb_names **ret)
{
    struct wb_names *names;
    struct walk walk = {.options = options};
    int r = 0;

    if (dir->type != S_IFDIR)
        return -ENOTDIR;
    names = g_new0(struct wb_names, 1);
    names->states = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, state_free);
    names->texts = g_string_chunk_new(4096);
    names->items = g_array_new(FALSE, FALSE, sizeof(struct wb_name));
    walk.names = names;
    if (options->may)
        r = wb_access_intervals_new(history, dir, options->may, options->data, NULL, &walk.seen);
    if (r == 0)
        r = read_state(&walk, history, dir);
    if (r == 0)
        r = read_catalog(&walk, history, dir);
    if (r == 0)
        settle(&walk);
    wb_access_intervals_free(walk.seen);
    if (r < 0) {
        wb_names_free(names);
        return r;
    }
    *ret = names;
    return 0;
}

struct wb_names *wb_names_free(struct wb_names *names)
{
    if (names) {
        g_array_unref(names->items);
        g_string_chunk_free(names->texts);
        g_hash_table_unref(names->states);
        g_free(names);
    }
    return NULL;
}

size_t wb_names_count(const struct wb_names *names)
{
    return names->items->len;
}

const struct wb_name *wb_names_get(const struct wb_names *names, size_t index)
{
    return &g_array_index(names->items, struct wb_name, index);
}

bool wb_names_are_incomplete(const struct wb_names *names)
{
    return names->incomplete;
}
