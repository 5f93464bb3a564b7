/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vrm.h"
#include "common/cli.h"
#include "client/control.h"
#include "common/moment.h"
#include "client/path.h"
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* A directory to be looked into; several may have one path, one after the other. */
struct source {
    char *path;  /* in the mount                 */
    char *below; /* from where the search began  */
    bool former;
};

struct search {
    const struct wb_place *place;
    const struct wb_patterns *patterns;
    GQueue sources;
    GPtrArray *hits;
    GHashTable *known; /* paths of hits, and directories met: "path" and "below:inode.birth" */
};

static void source_free(void *data)
{
    struct source *source = data;

    g_free(source->path);
    g_free(source->below);
    g_free(source);
}

static void hit_free(void *data)
{
    struct vrm_hit *hit = data;

    g_free(hit->path);
    g_free(hit->shown);
    g_free(hit);
}

/* Takes both strings. */
static struct source *source_new(char *path, char *below, bool former)
{
    struct source *source = g_new0(struct source, 1);

    *source = (struct source){path, below, former};
    return source;
}

static void add_hit(struct search *search, const struct source *source, const char *name, const char *below)
{
    g_autofree char *path = wb_path_join(source->path, name);
    struct vrm_hit *hit;

    if (!g_hash_table_add(search->known, g_strdup(path)))
        return;
    hit = g_new0(struct vrm_hit, 1);
    hit->path = g_steal_pointer(&path);
    hit->shown = wb_path_join(search->place->given, below);
    hit->former = source->former;
    g_ptr_array_add(search->hits, hit);
}

/* What had a name for some time: a hit, or a directory to go on in. */
static void take(struct search *search, const struct source *source, const struct wb_control_name *name,
                 GPtrArray *dirs)
{
    g_autofree char *below = wb_path_join(source->below, name->text);
    bool is_dir = S_ISDIR(name->mode), present = name->last == 0;
    g_autofree char *path = NULL;

    if (wb_patterns_match(search->patterns, below, is_dir)) {
        add_hit(search, source, name->text, below);
        return;
    }
    if (!is_dir || name->moved ||
        !g_hash_table_add(search->known, g_strdup_printf("%s:%" PRIu64 ".%" PRId64, below, name->ino, name->birth)))
        return;
    path = wb_path_join(source->path, name->text);
    if (!present) {
        char *then = wb_moment_shift(search->place->mount, path, name->last - 1);

        g_free(path);
        path = then;
    }
    g_ptr_array_add(dirs, source_new(g_steal_pointer(&path), g_steal_pointer(&below), source->former || !present));
}

static void look(struct search *search, const struct source *source)
{
    _cleanup_name_walk_ struct wb_name_walk *walk =
        wb_name_walk_new(search->place->mount->root_fd, source->path, "", WB_CONTROL_NAMES_SPANS);
    g_autoptr(GPtrArray) dirs = g_ptr_array_new();
    g_autofree char *shown = wb_path_join(search->place->given, source->below);
    const struct wb_control_name *name;
    int r = 0;

    while (!wb_cli_interrupted() && (r = wb_name_walk_next(walk, &name)) == 0)
        take(search, source, name, dirs);
    if (r < 0)
        wb_cli_fail(shown, "not searched: %s", wb_errno_text(r));
    else if (wb_name_walk_flags(walk) & WB_CONTROL_NAMES_INCOMPLETE)
        wb_cli_fail(shown, "part of its history is damaged or was not recorded; names may be missing");
    for (guint i = 0; i < dirs->len; i++) {
        struct source *dir = dirs->pdata[i];
        g_autofree char *whole = wb_path_join(source->path, strrchr(dir->below, '/') ? strrchr(dir->below, '/') + 1
                                                                                     : dir->below);

        /* A name that matches at any time goes with all that was ever in it. */
        if (g_hash_table_contains(search->known, whole))
            source_free(dir);
        else
            g_queue_push_tail(&search->sources, dir);
    }
}

GPtrArray *vrm_find(const struct wb_place *place, const struct wb_patterns *patterns)
{
    struct search search = {.place = place, .patterns = patterns, .sources = G_QUEUE_INIT};
    struct source *source;

    search.hits = g_ptr_array_new_with_free_func(hit_free);
    search.known = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_queue_push_tail(&search.sources, source_new(g_strdup(place->path), g_strdup(""), false));
    while ((source = g_queue_pop_head(&search.sources))) {
        if (!wb_cli_interrupted())
            look(&search, source);
        source_free(source);
    }
    g_hash_table_unref(search.known);
    return search.hits;
}
