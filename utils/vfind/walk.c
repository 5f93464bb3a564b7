/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vfind.h"
#include "common/cli.h"
#include "client/control.h"
#include "client/path.h"
#include "wayback/when.h"
#include <inttypes.h>
#include <string.h>

/*
 * The removal of a directory begins with its entries. The moment to bring it back to is the one before that
 * began: before the first removal, by the same process, of anything in it.
 */
struct removal {
    uint32_t actor; /* 0: not within a removed directory */
    int64_t began;
};

static void walk(struct find *find, GString *out, const GPtrArray *sources, const char *path, int depth,
                 struct removal *removal);

/* ---- what is shown --------------------------------------------------------------------------- */

enum find_status find_status_of(const struct span *span)
{
    return span->last == 0 ? FIND_PRESENT : span->moved ? FIND_MOVED : FIND_DELETED;
}

static bool is_wanted(const struct find *find, const struct span *span, bool newest)
{
    const struct find_match *match = &find->match;
    bool typed = match->type_count == 0;

    for (unsigned i = 0; i < match->type_count; i++)
        typed = typed || (span->mode & S_IFMT) == match->types[i];
    if (!typed || span->replaced)
        return false;
    if (match->until && span->first > match->until)
        return false;
    if (match->since && span->last != 0 && span->last <= match->since)
        return false;
    /* A name that was created again is not deleted; its earlier periods are shown on request only. */
    return !match->status || ((newest || find->all) && (match->status & find_status_of(span)));
}

static void show_entry(struct find *find, GString *out, const char *path, const struct entry *entry, int64_t whole)
{
    unsigned index = 0;

    if (find->states) {
        if (find->muted == 0)
            find_content(find, out, path, entry);
        return;
    }
    for (guint i = 0; i < entry->spans->len; i++) {
        const struct span *span = entry->spans->pdata[i];
        int64_t back = span->last == 0 ? 0 : span->last - 1;

        if (span->replaced)
            continue;
        if (index == 0 && whole)
            back = whole;
        if (is_wanted(find, span, index == 0)) {
            find_show(find, out, path, entry, span, index, back);
            if (!find->all)
                return;
        }
        index++;
    }
}

/* ---- going down ------------------------------------------------------------------------------ */

/* All that was a directory under this name and did not move away, each once. */
static GPtrArray *sources_below(const struct find *find, const struct entry *entry)
{
    GPtrArray *sources = g_ptr_array_new_with_free_func(source_free);
    g_autoptr(GHashTable) known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);

    for (guint i = 0; i < entry->spans->len; i++) {
        const struct span *span = entry->spans->pdata[i];
        struct source *source;

        if (!S_ISDIR(span->mode) || span->moved ||
            !g_hash_table_add(known, g_strdup_printf("%" PRIu64 ".%" PRId64, span->ino, span->birth)))
            continue;
        source = g_new0(struct source, 1);
        source->present = span->last == 0;
        source->end = span->last;
        source->path = source->present ? wb_path_join(span->source->path, entry->name)
                                       : find_path_before(find, span->source, entry->name, span->last);
        g_ptr_array_add(sources, source);
    }
    return sources;
}

/* A removed directory is shown when it is known what was in it: its row comes first all the same. */
static void walk_entry(struct find *find, GString *out, const struct entry *entry, const char *path, int depth,
                       struct removal *removal)
{
    const struct span *newest = entry->spans->pdata[0];
    g_autoptr(GPtrArray) sources = sources_below(find, entry);
    g_autofree char *below = wb_path_join(path, entry->name);
    bool is_gone = S_ISDIR(newest->mode) && find_status_of(newest) == FIND_DELETED && !newest->replaced;
    bool matches = find_match_name(&find->match, below, entry->name);
    struct removal own = {is_gone ? newest->actor : 0, newest->last};
    GString *inside = is_gone ? g_string_new(NULL) : out;

    if (!is_gone && matches)
        show_entry(find, out, below, entry, 0);
    if (sources->len > 0 && (find->maxdepth < 0 || depth < find->maxdepth || (is_gone && matches))) {
        bool muted = find->maxdepth >= 0 && depth >= find->maxdepth;

        find->held += is_gone;
        find->muted += muted;
        walk(find, inside, sources, below, depth + 1, &own);
        find->muted -= muted;
        find->held -= is_gone;
    }
    if (is_gone) {
        if (matches)
            show_entry(find, out, below, entry, own.began - 1);
        g_string_append_len(out, inside->str, (gssize)inside->len);
        g_string_free(inside, TRUE);
    }
    if (out->len > WB_HELD_MAX && !find->full) {
        find->full = true;
        wb_cli_fail(find->place->given, "%s", wb_errno_text(EOVERFLOW));
    }
    if (find_status_of(newest) == FIND_DELETED && removal->actor && newest->actor == removal->actor)
        removal->began = MIN(removal->began, is_gone ? own.began : newest->last);
}

static void show_gaps(struct find *find, GString *out, const GPtrArray *sources, const char *path)
{
    g_autoptr(GPtrArray) gaps = find_read_gaps(find, sources);

    for (guint i = 0; gaps && i < gaps->len; i++)
        find_show_gap(find, out, path, gaps->pdata[i]);
}

static void walk(struct find *find, GString *out, const GPtrArray *sources, const char *path, int depth,
                 struct removal *removal)
{
    g_autofree char *shown = wb_path_join(find->place->given, path);
    bool incomplete = false;
    g_autoptr(GPtrArray) entries = find_read(find, sources, "", shown, &incomplete);

    if (incomplete)
        show_gaps(find, out, sources, path);
    for (guint i = 0; i < entries->len && !find->full && !wb_cli_interrupted() && !ferror(stdout); i++) {
        walk_entry(find, out, entries->pdata[i], path, depth, removal);
        if (find->held == 0)
            find_flush(find, out);
    }
}

/* ---- PATH itself ----------------------------------------------------------------------------- */

static GPtrArray *one_source(const char *path)
{
    GPtrArray *sources = g_ptr_array_new_with_free_func(source_free);
    struct source *source = g_new0(struct source, 1);

    source->path = g_strdup(path);
    source->present = true;
    g_ptr_array_add(sources, source);
    return sources;
}

/* What `name` was below the sources; NULL: nothing is known of a directory of that name. */
static GPtrArray *step(struct find *find, const GPtrArray *sources, const char *name)
{
    g_autoptr(GPtrArray) entries = find_read(find, sources, name, NULL, NULL);
    g_autoptr(GPtrArray) below = NULL;
    struct entry *entry;

    if (entries->len == 0)
        return NULL;
    entry = entries->pdata[0];
    below = sources_below(find, entry);
    if (below->len == 0) {
        /* Where all that is known of the name has moved away, the last of it is what is meant. */
        ((struct span *)entry->spans->pdata[0])->moved = false;
        g_ptr_array_unref(below);
        below = sources_below(find, entry);
    }
    return below->len > 0 ? g_steal_pointer(&below) : NULL;
}

/*
 * All that PATH ever was, step by step. If that cannot be found out (a step names a past state, or a directory above is
 * closed to the caller), PATH is taken as it is.
 */
static GPtrArray *all_sources(struct find *find)
{
    g_auto(GStrv) parts = g_strsplit(find->place->path, "/", -1);
    GPtrArray *sources = one_source("");

    for (char **part = parts; *part; part++) {
        GPtrArray *below = step(find, sources, *part);

        g_ptr_array_unref(sources);
        if (!below)
            return one_source(find->place->path);
        sources = below;
    }
    return sources;
}

void find_run(struct find *find)
{
    g_autoptr(GPtrArray) sources = all_sources(find);
    GString *out = g_string_new(NULL);
    struct removal none = {0};

    walk(find, out, sources, "", 1, &none);
    g_string_free(out, TRUE);
}
