/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/model.h"
#include "client/errno_text.h"
#include "client/path.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* Names in one piece. */
#define PIECE 128

void browse_entry_free(void *data)
{
    struct browse_entry *entry = data;

    g_free(entry->name);
    g_free(entry);
}

struct browse_entry *browse_current(const struct browse *browse)
{
    return browse->cursor < browse->shown->len ? browse->shown->pdata[browse->cursor] : NULL;
}

char *browse_path_of(const struct browse *browse, const struct browse_entry *entry)
{
    return wb_path_join(browse_level(browse)->path, entry->name);
}

char *browse_top(const struct browse *browse)
{
    return g_strdup(browse->mount->private ? browse->mount->hello.source : browse->mount->point);
}

char *browse_word(const char *path)
{
    return g_strdup(*path ? path : ".");
}

char *browse_absolute(const struct browse *browse, const char *path)
{
    g_autofree char *top = browse_top(browse);
    g_autofree char *whole = wb_path_join(strcmp(top, "/") == 0 ? "" : top, path);

    return *whole == '/' ? g_steal_pointer(&whole) : g_strconcat("/", whole, NULL);
}

void browse_move(struct browse *browse, int64_t steps)
{
    int64_t last = (int64_t)browse->shown->len - 1, to = (int64_t)browse->cursor + steps;
    guint cursor = (guint)MAX(MIN(to, last), 0);

    if (cursor == browse->cursor)
        return;
    browse->cursor = cursor;
    browse_versions_begin(browse);
}

/* ---- reading ----------------------------------------------------------------------------------- */

void browse_clear(struct browse *browse)
{
    g_ptr_array_set_size(browse->shown, 0);
    g_ptr_array_set_size(browse->entries, 0);
    browse->cursor = 0;
    browse->incomplete = false;
}

void browse_entries_begin(struct browse *browse)
{
    struct browse_level *level = browse_level(browse);

    browse_clear(browse);
    browse->names = wb_name_walk_new(browse->mount->root_fd, level->source, "", 0);
    browse_versions_begin(browse);
}

/* Size and time of an existing entry. */
static void look(const struct browse *browse, struct browse_entry *entry)
{
    g_autofree char *path = wb_path_join(browse_level(browse)->source, entry->name);
    struct stat st;

    if (fstatat(browse->mount->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    entry->size = (uint64_t)st.st_size;
    entry->time = st.st_mtim.tv_sec * WB_WHEN_SECOND + st.st_mtim.tv_nsec;
}

static void add(struct browse *browse, const struct wb_control_name *name)
{
    struct browse_entry *entry;

    /* Only the newest object of each name. */
    if (name->index > 0 || name->replaced)
        return;
    entry = g_new0(struct browse_entry, 1);
    entry->name = g_strdup(name->text);
    entry->mode = name->mode;
    entry->size = name->size;
    entry->first = name->first;
    entry->ended = name->last;
    entry->moved = name->moved;
    entry->actor = name->actor;
    entry->time = name->last;
    if (entry->ended)
        entry->at = entry->ended - 1;
    else
        look(browse, entry);
    g_ptr_array_add(browse->entries, entry);
}

enum browse_progress browse_entries_work(struct browse *browse)
{
    const struct wb_control_name *name;
    int r = 0;

    if (!browse->names)
        return BROWSE_IDLE;
    for (unsigned i = 0; i < PIECE && (r = wb_name_walk_next(browse->names, &name)) == 0; i++)
        add(browse, name);
    if (r == 0)
        return BROWSE_MORE;
    if (r < 0)
        browse_fail(browse, "%s", wb_errno_text(r));
    browse->incomplete = r < 0 || wb_name_walk_flags(browse->names) & WB_CONTROL_NAMES_INCOMPLETE;
    browse->names = wb_name_walk_free(browse->names);
    browse_entries_show(browse);
    return BROWSE_MORE;
}

/* ---- the removal of a directory ---------------------------------------------------------------- */

/*
 * The time of the first removal by the process `actor` in the former directory `path` and below it, if that is before
 * *began. 0, or -EINTR. A part that cannot be read changes nothing.
 */
static int find_first_removal(const struct browse *browse, const char *path, uint32_t actor, int64_t *began)
{
    _cleanup_name_walk_ struct wb_name_walk *walk = wb_name_walk_new(browse->mount->root_fd, path, "", 0);
    const struct wb_control_name *name;
    unsigned count = 0;
    int r = 0;

    while (r == 0 && wb_name_walk_next(walk, &name) == 0) {
        g_autofree char *entry = NULL;
        g_autofree char *below = NULL;

        if (count++ % PIECE == 0 && browse->stopped && browse->stopped())
            return -EINTR;
        if (name->index > 0 || name->replaced || name->moved || name->last == 0 || name->actor != actor)
            continue;
        *began = MIN(*began, name->last);
        if (!S_ISDIR(name->mode))
            continue;
        entry = wb_path_join(path, name->text);
        below = wb_moment_shift(browse->mount, entry, name->last - 1);
        r = find_first_removal(browse, below, actor, began);
    }
    return r;
}

bool browse_find_whole(struct browse *browse, struct browse_entry *entry)
{
    g_autofree char *path = wb_path_join(browse_level(browse)->source, entry->name);
    g_autofree char *source = NULL;
    int64_t began = entry->ended;

    if (!S_ISDIR(entry->mode) || !entry->ended || entry->moved || entry->whole || !entry->actor)
        return true;
    source = wb_moment_shift(browse->mount, path, entry->ended - 1);
    if (find_first_removal(browse, source, entry->actor, &began) < 0)
        return false;
    entry->at = began - 1;
    entry->whole = true;
    return true;
}

/* ---- the list that is shown ------------------------------------------------------------------------------ */

gint browse_entry_compare(gconstpointer a, gconstpointer b)
{
    const struct browse_entry *one = *(const struct browse_entry *const *)a;
    const struct browse_entry *other = *(const struct browse_entry *const *)b;

    if (S_ISDIR(one->mode) != S_ISDIR(other->mode))
        return S_ISDIR(one->mode) ? -1 : 1;
    return strcmp(one->name, other->name);
}

bool browse_name_matches(const char *filter, const char *name)
{
    g_autofree char *text = g_utf8_make_valid(filter, -1);
    g_autofree char *bytes = g_utf8_make_valid(name, -1);
    g_autofree char *wanted = g_utf8_casefold(text, -1);
    g_autofree char *folded = g_utf8_casefold(bytes, -1);

    if (strpbrk(wanted, "*?"))
        return g_pattern_match_simple(wanted, folded);
    return strstr(folded, wanted) != NULL;
}

static bool is_shown(const struct browse *browse, const struct browse_entry *entry)
{
    if (entry->ended && !browse->search &&
        (browse->gone == BROWSE_GONE_NONE || (entry->moved && browse->gone == BROWSE_GONE_DELETED)))
        return false;
    if (browse->name_filter && !browse_name_matches(browse->name_filter, entry->name))
        return false;
    if (browse->command_filter && !browse->search) {
        g_autofree char *first = browse_first_component(entry->name);

        return browse->by_command && first && g_hash_table_contains(browse->by_command, first);
    }
    return true;
}

void browse_add_result(struct browse *browse, struct browse_entry *entry)
{
    g_ptr_array_add(browse->entries, entry);
    g_ptr_array_add(browse->shown, entry);
    if (browse->shown->len == 1)
        browse_versions_begin(browse);
}

void browse_entries_show(struct browse *browse)
{
    struct browse_entry *current = browse_current(browse);
    g_autofree char *wanted = browse->wanted ? g_steal_pointer(&browse->wanted)
                                             : g_strdup(current ? current->name : NULL);
    bool same = false;

    if (!browse->search)
        g_ptr_array_sort(browse->entries, browse_entry_compare);
    g_ptr_array_set_size(browse->shown, 0);
    browse->cursor = 0;
    for (guint i = 0; i < browse->entries->len; i++) {
        struct browse_entry *entry = browse->entries->pdata[i];

        if (!is_shown(browse, entry))
            continue;
        if (wanted && strcmp(entry->name, wanted) == 0) {
            browse->cursor = browse->shown->len;
            same = entry == current;
        }
        g_ptr_array_add(browse->shown, entry);
    }
    if (!same || !browse->version_path)
        browse_versions_begin(browse);
}
