/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/model.h"
#include "client/errno_text.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

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
