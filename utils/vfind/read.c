/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include "client/control.h"
#include "common/moment.h"
#include "common/progress.h"
#include "client/path.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

void source_free(void *data)
{
    struct source *source = data;

    g_free(source->path);
    g_free(source);
}

static void span_free(void *data)
{
    struct span *span = data;

    g_free(span->to);
    g_free(span->command);
    g_free(span);
}

static void entry_free(void *data)
{
    struct entry *entry = data;

    g_free(entry->name);
    g_ptr_array_unref(entry->spans);
    g_free(entry);
}

char *find_path_before(const struct find *find, const struct source *source, const char *name, int64_t when)
{
    g_autofree char *path = wb_path_join(source->path, name);

    return wb_moment_shift(find->place->mount, path, when - 1);
}

static struct entry *entry_of(GHashTable *entries, const char *name)
{
    struct entry *entry = g_hash_table_lookup(entries, name);

    if (!entry) {
        entry = g_new0(struct entry, 1);
        entry->name = g_strdup(name);
        entry->spans = g_ptr_array_new_with_free_func(span_free);
        g_hash_table_insert(entries, entry->name, entry);
    }
    return entry;
}

uint64_t find_size(const struct find *find, const struct entry *entry, const struct span *span)
{
    g_autofree char *path = NULL;
    struct stat st;

    if (span->last != 0 || !span->source->present)
        return span->size;
    path = wb_path_join(span->source->path, entry->name);
    return fstatat(find->place->mount->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static void add(struct find *find, GHashTable *entries, const struct source *source,
                const struct wb_control_name *name)
{
    struct entry *entry = entry_of(entries, name->text);
    struct span *span = g_new0(struct span, 1);

    if (name->index == 0 && !name->replaced)
        entry->count += name->spans;
    *span = (struct span){
        .source = source,
        .mode = name->mode,
        .ino = name->ino,
        .birth = name->birth,
        .first = name->first,
        .last = name->last,
        .actor = name->actor,
        .uid = name->uid,
        .pid = name->pid,
        .size = name->size,
        .moved = name->moved,
        .replaced = name->replaced,
        .to = g_strdup(wb_name_to(name)),
        .command = g_strdup(wb_name_command(name)),
    };
    /* With its directory gone, it cannot be there. */
    if (name->last == 0 && !source->present)
        span->last = source->end;
    g_ptr_array_add(entry->spans, span);
}

static int read_source(struct find *find, GHashTable *entries, struct source *source, const char *only,
                       bool *incomplete)
{
    unsigned flags = find->all || *only || find->match.since || find->match.until ? WB_CONTROL_NAMES_SPANS : 0;
    _cleanup_name_walk_ struct wb_name_walk *walk =
        wb_name_walk_new(find->place->mount->root_fd, source->path, only, flags);
    const struct wb_control_name *name;
    int r = 0;

    while (!wb_cli_interrupted() && (r = wb_name_walk_next(walk, &name)) == 0)
        add(find, entries, source, name);
    if (r < 0)
        return r;
    find->began = wb_name_walk_began(walk);
    source->moment = wb_name_walk_moment(walk);
    if (wb_name_walk_flags(walk) & WB_CONTROL_NAMES_INCOMPLETE)
        *incomplete = true;
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp((*(const struct entry *const *)a)->name, (*(const struct entry *const *)b)->name);
}

static void gap_free(void *data)
{
    struct gap *gap = data;

    g_free(gap->reason);
    g_free(gap);
}

static bool is_wanted(const struct find *find, const struct wb_control_version *version)
{
    const struct find_match *match = &find->match;

    return version->flags & WB_CONTROL_VERSION_GAP && (!match->since || version->when > match->since) &&
           (!match->until || (int64_t)version->offset < match->until);
}

static int read_gaps(struct find *find, const struct source *source, GPtrArray *gaps)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(find->place->mount->root_fd, source->path, 0, 0, 0);
    const struct wb_control_version *version;
    int r = 0;

    while (!wb_cli_interrupted() && (r = wb_version_walk_next(walk, &version)) == 0) {
        struct gap *gap;

        if (!is_wanted(find, version))
            continue;
        gap = g_new0(struct gap, 1);
        *gap = (struct gap){(int64_t)version->offset, version->when, version->flags & WB_CONTROL_VERSION_OPEN,
                            g_strdup(*version->detail ? version->detail : "unknown reason")};
        g_ptr_array_add(gaps, gap);
    }
    return MIN(r, 0);
}

GPtrArray *find_read_gaps(struct find *find, const GPtrArray *sources)
{
    g_autoptr(GPtrArray) gaps = g_ptr_array_new_with_free_func(gap_free);
    int r = 0;

    for (guint i = 0; i < sources->len && r == 0; i++)
        r = read_gaps(find, sources->pdata[i], gaps);
    return r < 0 ? NULL : g_steal_pointer(&gaps);
}

GPtrArray *find_read(struct find *find, const GPtrArray *sources, const char *only, const char *shown,
                     bool *ret_incomplete)
{
    g_autoptr(GHashTable) entries = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, NULL);
    GPtrArray *sorted = g_ptr_array_new_with_free_func(entry_free);
    bool incomplete = false;
    GHashTableIter iter;
    void *value;
    int error = 0;

    for (guint i = 0; i < sources->len; i++) {
        int r = read_source(find, entries, sources->pdata[i], only, &incomplete);

        /* If one cannot be read, or has no history, the others are still shown. */
        if (r < 0 && error == 0)
            error = r;
    }
    if ((error < 0 || incomplete) && shown)
        wb_progress_clear();
    if (error < 0 && shown)
        wb_cli_fail(shown, "%s", wb_errno_text(error));
    if (incomplete && shown)
        wb_cli_fail(shown, "part of its history is damaged or was not recorded; names may be missing");
    if (ret_incomplete)
        *ret_incomplete = incomplete;
    g_hash_table_iter_init(&iter, entries);
    while (g_hash_table_iter_next(&iter, NULL, &value))
        g_ptr_array_add(sorted, value);
    g_ptr_array_sort(sorted, compare_entries);
    return sorted;
}
