/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/browse.h"
#include "client/errno_text.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* So much is read in one piece. */
#define NAMES_PIECE 128
#define CHANGES_PIECE 256

static void level_free(void *data)
{
    struct browse_level *level = data;

    g_free(level->path);
    g_free(level->source);
    g_free(level->below);
    g_free(level);
}

struct browse *browse_new(struct wb_place *place)
{
    struct browse *browse = g_new0(struct browse, 1);

    browse->place = place;
    browse->mount = place->mount;
    browse->when = WB_WHEN_PRESENT;
    browse->levels = g_ptr_array_new_with_free_func(level_free);
    browse->entries = g_ptr_array_new_with_free_func(browse_entry_free);
    browse->shown = g_ptr_array_new();
    return browse;
}

struct browse *browse_free(struct browse *browse)
{
    if (!browse)
        return NULL;
    browse_stop(browse);
    browse_changes_stop(browse);
    g_ptr_array_unref(browse->levels);
    g_ptr_array_unref(browse->shown);
    g_ptr_array_unref(browse->entries);
    g_clear_pointer(&browse->changed, g_hash_table_unref);
    g_clear_pointer(&browse->by_command, g_hash_table_unref);
    g_clear_pointer(&browse->versions, g_ptr_array_unref);
    g_free(browse->wanted);
    g_free(browse->name_filter);
    g_free(browse->command_filter);
    g_free(browse->search);
    g_free(browse->version_path);
    g_free(browse->oldest);
    g_free(browse->error);
    wb_place_free(browse->place);
    g_free(browse);
    return NULL;
}

void browse_fail(struct browse *browse, const char *format, ...)
{
    va_list arguments;

    g_free(browse->error);
    va_start(arguments, format);
    browse->error = g_strdup_vprintf(format, arguments);
    va_end(arguments);
}

struct browse_level *browse_level(const struct browse *browse)
{
    return browse->levels->pdata[browse->levels->len - 1];
}

/* Where the directory `path` is found as at `moment`; g_free. NULL, with browse->error: it was none. */
static char *find_directory(struct browse *browse, const char *path, int64_t moment)
{
    g_autofree char *source = NULL;
    g_autofree char *shown = wb_text_printable(*path ? path : ".");
    char then[WB_WHEN_TEXT_MAX];
    struct stat st;
    int r = 0;

    if (moment == WB_WHEN_PRESENT)
        source = g_strdup(path);
    else
        r = wb_moment_path(browse->mount, path, moment, &source);
    if (r == 0 && fstatat(browse->mount->root_fd, *source ? source : ".", &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == 0 && !S_ISDIR(st.st_mode))
        r = -ENOTDIR;
    if (r == 0)
        return g_steal_pointer(&source);
    if (r == -ENOENT && moment != WB_WHEN_PRESENT)
        browse_fail(browse, "%s did not exist at %s", shown, wb_text_time(moment, false, then));
    else
        browse_fail(browse, "%s: %s", shown, wb_errno_text(r));
    return NULL;
}

/* False, with browse->error: it is no directory. */
static bool push(struct browse *browse, const char *path, int64_t moment, bool gone)
{
    char *source = find_directory(browse, path, moment);
    struct browse_level *level;

    if (!source)
        return false;
    level = g_new0(struct browse_level, 1);
    level->path = g_strdup(path);
    level->source = source;
    level->moment = moment;
    level->gone = gone;
    g_ptr_array_add(browse->levels, level);
    return true;
}

bool browse_go(struct browse *browse, const char *path, int64_t when)
{
    guint before = browse->levels->len;

    if (!push(browse, path, when, false))
        return false;
    if (before > 0)
        g_ptr_array_remove_range(browse->levels, 0, before);
    browse->when = when;
    browse_reload(browse);
    return true;
}

/* What the user looked for in one directory is not looked for in another. */
static void end_filters(struct browse *browse)
{
    g_clear_pointer(&browse->name_filter, g_free);
    g_clear_pointer(&browse->search, g_free);
}

bool browse_enter(struct browse *browse)
{
    struct browse_level *level = browse_level(browse);
    struct browse_entry *entry = browse_current(browse);
    g_autofree char *path = NULL;

    if (!entry || !S_ISDIR(entry->mode))
        return false;
    if (!browse_find_whole(browse, entry)) {
        browse_fail(browse, "stopped");
        return true;
    }
    path = browse_path_of(browse, entry);
    if (!push(browse, path, entry->ended ? entry->at : level->moment, level->gone || entry->ended))
        return true;
    g_free(level->below);
    level->below = g_strdup(entry->name);
    end_filters(browse);
    browse_reload(browse);
    g_clear_pointer(&browse->wanted, g_free);
    return true;
}

bool browse_up(struct browse *browse)
{
    g_autofree char *below = NULL;
    const char *name;

    if (browse->levels->len > 1) {
        g_ptr_array_set_size(browse->levels, (gint)browse->levels->len - 1);
        below = g_strdup(browse_level(browse)->below);
    } else if (*browse_level(browse)->path) {
        g_autofree char *path = g_strdup(browse_level(browse)->path);
        g_autofree char *parent = wb_path_parent(path, &name);

        if (!push(browse, parent, browse->when, false))
            return true;
        g_ptr_array_remove_index(browse->levels, 0);
        below = g_strdup(name);
    } else {
        return false;
    }
    end_filters(browse);
    browse_reload(browse);
    g_free(browse->wanted);
    browse->wanted = g_steal_pointer(&below);
    return true;
}

/* A directory that was gone, and is there again since a restore, is shown as it is now. */
static void find_returned(struct browse *browse)
{
    for (guint i = 0; i < browse->levels->len; i++) {
        struct browse_level *level = browse->levels->pdata[i];
        struct stat st;

        if (!level->gone || browse->when != WB_WHEN_PRESENT ||
            fstatat(browse->mount->root_fd, level->path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        g_free(level->source);
        level->source = g_strdup(level->path);
        level->moment = WB_WHEN_PRESENT;
        level->gone = false;
    }
}

void browse_reload(struct browse *browse)
{
    struct browse_entry *entry = browse_current(browse);
    char *wanted = g_strdup(entry ? entry->name : NULL);

    g_free(browse->wanted);
    browse->wanted = wanted;
    g_clear_pointer(&browse->search, g_free);
    browse_stop(browse);
    browse_changes_stop(browse);
    find_returned(browse);
    browse_entries_begin(browse);
    browse_changes_begin(browse);
    if (browse->command_filter)
        browse_commands_begin(browse, browse->command_filter);
}

enum browse_progress browse_work(struct browse *browse)
{
    enum browse_progress progress = browse_entries_work(browse);

    if (progress == BROWSE_IDLE)
        progress = browse_versions_work(browse);
    return progress == BROWSE_IDLE ? browse_changes_work(browse) : progress;
}

void browse_stop(struct browse *browse)
{
    if (browse->names) {
        browse->names = wb_name_walk_free(browse->names);
        browse->incomplete = true;
        browse_entries_show(browse);
    }
    browse_versions_stop(browse);
    browse_changes_stop(browse);
}

/* ---- entries ------------------------------------------------------------------------------------- */

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
    browse->names_size = 0;
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

static void add_name(struct browse *browse, const struct wb_control_name *name)
{
    struct browse_entry *entry;

    /* Only the newest object of each name. */
    if (name->index > 0 || name->replaced)
        return;
    entry = g_new0(struct browse_entry, 1);
    entry->name = g_strdup(name->text);
    browse->names_size += sizeof(*entry) + strlen(entry->name);
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
    for (unsigned i = 0; i < NAMES_PIECE && (r = wb_name_walk_next(browse->names, &name)) == 0; i++)
        add_name(browse, name);
    if (browse->names_size > WB_HELD_MAX)
        r = -EOVERFLOW;
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

        if (count++ % NAMES_PIECE == 0 && browse->stopped && browse->stopped())
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

/* ---- changes ------------------------------------------------------------------------------------- */

/*
 * Which entries changed since a time, and which ones a command changed: from the list of all changes below the
 * directory, in pieces.
 */

void browse_changes_stop(struct browse *browse)
{
    browse->changes = wb_change_walk_free(browse->changes);
    browse->commands = wb_change_walk_free(browse->commands);
}

static GHashTable *new_names(void)
{
    return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
}

/* 0:00 today, or the time that is shown: marks are about what changed after it. */
static int64_t since_when(const struct browse *browse)
{
    struct wb_time today = {0};

    if (browse->when != WB_WHEN_PRESENT)
        return browse->when;
    wb_time_today(browse->mount, "today", &today);
    return today.instant;
}

void browse_changes_begin(struct browse *browse)
{
    const struct browse_level *level = browse_level(browse);
    struct wb_change_walk_options options = {.no_wait = true};

    g_clear_pointer(&browse->changed, g_hash_table_unref);
    browse->changed = new_names();
    browse->since = since_when(browse);
    /* No change comes after the end of a directory. */
    if (level->gone)
        return;
    options.since = browse->since + 1;
    browse->changes = wb_change_walk_new(browse->mount, level->path, &options);
}

void browse_commands_begin(struct browse *browse, const char *text)
{
    struct wb_change_walk_options options = {.no_wait = true, .commands = browse->command_words};

    browse->commands = wb_change_walk_free(browse->commands);
    g_clear_pointer(&browse->by_command, g_hash_table_unref);
    if (text != browse->command_filter) {
        g_free(browse->command_filter);
        browse->command_filter = g_strdup(text);
    }
    if (text) {
        browse->command_words[0] = browse->command_filter;
        browse->by_command = new_names();
        browse->commands = wb_change_walk_new(browse->mount, browse_level(browse)->path, &options);
    }
    browse_entries_show(browse);
    browse_versions_begin(browse);
}

char *browse_first_component(const char *path)
{
    if (*path == '/' || !*path || strcmp(path, ".") == 0)
        return NULL;
    return g_strndup(path, strcspn(path, "/"));
}

static void note(GHashTable *names, const char *path)
{
    char *name = browse_first_component(path);

    if (name)
        g_hash_table_add(names, name);
}

/* A piece of one of the two lists; *walk is freed at its end. */
static enum browse_progress walk_piece(struct browse *browse, struct wb_change_walk **walk, GHashTable *names)
{
    struct wb_change change;
    int r = 0;

    for (unsigned i = 0; i < CHANGES_PIECE && (r = wb_change_walk_next(*walk, &change)) == 0; i++) {
        note(names, change.path);
        note(names, change.other);
    }
    if (r == -EAGAIN)
        return BROWSE_WAITING;
    if (r == 0)
        return BROWSE_MORE;
    /* A directory of the past that is not there now has no list. */
    if (r < 0 && r != -ENOENT && !browse->error)
        browse_fail(browse, "%s", wb_errno_text(r));
    *walk = wb_change_walk_free(*walk);
    return BROWSE_MORE;
}

enum browse_progress browse_changes_work(struct browse *browse)
{
    if (browse->commands) {
        guint before = g_hash_table_size(browse->by_command);
        enum browse_progress progress = walk_piece(browse, &browse->commands, browse->by_command);

        if (g_hash_table_size(browse->by_command) != before)
            browse_entries_show(browse);
        return progress;
    }
    return browse->changes ? walk_piece(browse, &browse->changes, browse->changed) : BROWSE_IDLE;
}

enum browse_mark browse_mark_of(const struct browse *browse, const struct browse_entry *entry)
{
    if (entry->ended)
        return entry->moved ? BROWSE_MOVED : BROWSE_DELETED;
    if (browse_level(browse)->gone || browse->search)
        return BROWSE_SAME;
    if (entry->first > browse->since)
        return BROWSE_NEW;
    return g_hash_table_contains(browse->changed, entry->name) ? BROWSE_CHANGED : BROWSE_SAME;
}
