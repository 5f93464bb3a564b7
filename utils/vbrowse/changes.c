/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/model.h"
#include "client/errno_text.h"
#include <errno.h>
#include <string.h>

/*
 * Which entries changed since a time, and which ones a command changed: from the list of all changes below the
 * directory, in pieces.
 */

/* Changes in one piece. */
#define PIECE 256

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

    for (unsigned i = 0; i < PIECE && (r = wb_change_walk_next(*walk, &change)) == 0; i++) {
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
