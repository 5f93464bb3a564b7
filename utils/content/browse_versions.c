/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/browse.h"
#include "client/errno_text.h"
#include "client/path.h"
#include "common/text.h"
#include "content/version_text.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Versions in one piece, and how many more than the cursor needs are read. */
#define PIECE 16
#define AHEAD 60
#define CHANGES_PIECE 256
/* A version takes about 300 bytes. */
#define VERSIONS_MAX (WB_HELD_MAX / 300)

static void version_free(void *data)
{
    struct browse_version *version = data;

    g_free(version->operation);
    g_free(version->size);
    g_free(version->name);
    g_free(version->who);
    g_free(version);
}

void browse_versions_stop(struct browse *browse)
{
    browse->version_walk = wb_save_walk_free(browse->version_walk);
}

void browse_versions_begin(struct browse *browse)
{
    const struct browse_level *level = browse_level(browse);
    const struct browse_entry *entry = browse_current(browse);

    browse_versions_stop(browse);
    g_clear_pointer(&browse->versions, g_ptr_array_unref);
    browse->versions = g_ptr_array_new_with_free_func(version_free);
    browse->version = 0;
    browse->version_chosen = false;
    browse->versions_wanted = AHEAD;
    browse->version_seek = level->moment != WB_WHEN_PRESENT ? level->moment : 0;
    browse->newer = wb_mount_now(browse->mount) + 1;
    g_clear_pointer(&browse->oldest, g_free);
    g_clear_pointer(&browse->version_path, g_free);
    if (!entry)
        return;
    /* In a directory that is gone, the name may belong to another one by now. */
    browse->version_path = level->gone ? wb_path_join(level->source, entry->name) : browse_path_of(browse, entry);
    if (entry->at)
        browse->version_seek = entry->at;
    browse->version_directory = S_ISDIR(entry->mode);
    browse->version_walk = wb_save_walk_new(browse->mount->root_fd, browse->version_path, 0, 0);
}

/* A version that the caller may not see has its number and time only. */
static void add(struct browse *browse, const struct wb_save *save)
{
    const char *slash = strrchr(browse->version_path, '/');
    struct wb_version_style style = {.directory = browse->version_directory,
                                     .name = slash ? slash + 1 : browse->version_path};
    struct wb_control_version change = wb_version_describe(save, style.directory ? NULL : style.name);
    bool withheld = change.flags & WB_CONTROL_VERSION_WITHHELD;
    struct browse_version *version;
    g_autofree char *operation = NULL;

    int64_t until = browse->newer > 0 ? browse->newer - 1 : change.when;

    browse->newer = save->number > 0 ? save->oldest.when : 0;
    if (browse->command_filter && (withheld || !strstr(change.command, browse->command_filter)))
        return;
    version = g_new0(struct browse_version, 1);
    operation = withheld ? g_strdup("(withheld)") : wb_version_operation(&style, &change);
    version->when = change.when;
    version->until = style.directory ? change.when : MAX(until, change.when);
    version->number = change.change;
    version->exists = browse->version_directory || withheld || change.exists_after;
    version->operation = wb_text_printable(operation);
    version->name = browse->version_directory && !withheld
                        ? wb_text_printable(*change.name ? change.name : ".") : g_strdup("");
    version->size = withheld ? g_strdup("-") : wb_version_size(&style, &change);
    version->who = withheld ? g_strdup("-") : wb_version_who(&style, &change);
    g_ptr_array_add(browse->versions, version);
}

/* The state before the oldest version. */
static void add_first(struct browse *browse)
{
    const struct wb_control_version *oldest = browse->oldest;
    char size[WB_TEXT_SIZE_MAX];
    struct browse_version *version;

    if (!oldest || browse->command_filter || !oldest->existed_before || browse->version_directory ||
        oldest->flags & (WB_CONTROL_VERSION_WITHHELD | WB_CONTROL_VERSION_GAP))
        return;
    version = g_new0(struct browse_version, 1);
    version->when = version->until = oldest->when - 1;
    version->exists = true;
    version->operation = g_strdup("(before the first version)");
    version->size = g_strdup(wb_text_size(oldest->size_before, size));
    version->name = g_strdup("");
    version->who = g_strdup("");
    g_ptr_array_add(browse->versions, version);
}

/* Puts the cursor on the version of the time that is shown, once that is read. */
static void seek(struct browse *browse)
{
    for (guint i = 0; browse->version_seek && i < browse->versions->len; i++) {
        const struct browse_version *version = browse->versions->pdata[i];

        if (version->when > browse->version_seek)
            continue;
        browse->version = i;
        browse->version_seek = 0;
    }
}

enum browse_progress browse_versions_work(struct browse *browse)
{
    const struct wb_save *save;
    int r = 0;

    if (!browse->version_walk || (browse->versions->len >= browse->versions_wanted && !browse->version_seek))
        return BROWSE_IDLE;
    for (unsigned i = 0; i < PIECE && (r = wb_save_walk_next(browse->version_walk, &save)) == 0; i++) {
        add(browse, save);
        g_free(browse->oldest);
        browse->oldest = g_memdup2(&save->oldest, sizeof(save->oldest));
    }
    if (browse->versions->len > VERSIONS_MAX)
        r = -EOVERFLOW;
    if (r != 0) {
        browse_versions_stop(browse);
        if (r > 0)
            add_first(browse);
        else if (r != -ENOENT)
            browse_fail(browse, "%s", wb_errno_text(r));
    }
    seek(browse);
    /* The user went to the end. */
    if (browse->versions_wanted == G_MAXUINT && browse->versions->len > 0)
        browse->version = browse->versions->len - 1;
    return BROWSE_MORE;
}

const struct browse_version *browse_version(const struct browse *browse)
{
    return browse->version < browse->versions->len ? browse->versions->pdata[browse->version] : NULL;
}

void browse_version_move(struct browse *browse, int64_t steps)
{
    int64_t last = (int64_t)browse->versions->len - 1, to = (int64_t)browse->version + steps;

    browse->version = (guint)MAX(MIN(to, last), 0);
    browse->version_seek = 0;
    /* To the end: all of them, until a key stops that. */
    browse->versions_wanted = steps >= INT32_MAX ? G_MAXUINT : browse->version + AHEAD;
}

int64_t browse_time_of(const struct browse *browse, const struct browse_entry *entry)
{
    const struct browse_version *version = browse->version_chosen ? browse_version(browse) : NULL;
    const struct browse_level *level = browse_level(browse);

    if (version)
        return version->until;
    if (entry->at)
        return entry->at;
    return level->moment != WB_WHEN_PRESENT ? level->moment : 0;
}

/* Whether a change is of one of the entries, and before the time to which that is to be restored. */
static bool concerns(const struct browse *browse, GHashTable *entries, const char *path, int64_t when)
{
    g_autofree char *first = browse_first_component(path);
    const struct browse_entry *entry = first ? g_hash_table_lookup(entries, first) : NULL;

    /* A result of a search has a longer path. */
    entry = entry ? entry : g_hash_table_lookup(entries, path);
    return entry && when <= browse_time_of(browse, entry);
}

/* Whether no such entry changed from `since` until its time: 1, 0, or -EINTR. */
static int have_not_changed(const struct browse *browse, GHashTable *entries, int64_t since, int64_t until)
{
    struct wb_change_walk_options options = {.since = since + 1, .until = until, .no_wait = true};
    _cleanup_change_walk_ struct wb_change_walk *walk =
        wb_change_walk_new(browse->mount, browse_level(browse)->path, &options);
    struct wb_change change;
    unsigned count = 0;
    int r;

    while ((r = wb_change_walk_next(walk, &change)) == 0) {
        if (concerns(browse, entries, change.path, change.entry->when) ||
            concerns(browse, entries, change.other, change.entry->when))
            return 0;
        if (count++ % CHANGES_PIECE == 0 && browse->stopped && browse->stopped())
            return -EINTR;
    }
    return r == 1;
}

int64_t browse_common_time(const struct browse *browse, const GPtrArray *entries)
{
    g_autoptr(GHashTable) names = g_hash_table_new(g_str_hash, g_str_equal);
    int64_t first = INT64_MAX, last = 0;
    int r;

    for (guint i = 0; i < entries->len; i++) {
        struct browse_entry *entry = entries->pdata[i];
        int64_t when = browse_time_of(browse, entry);

        first = MIN(first, when);
        last = MAX(last, when);
        g_hash_table_insert(names, entry->name, entry);
    }
    for (guint i = 0; first != last && i < entries->len; i++)
        if (((const struct browse_entry *)entries->pdata[i])->first > first)
            return 0;
    r = first == last ? 1 : have_not_changed(browse, names, first, last);
    return r < 0 ? -1 : r > 0 ? first : 0;
}

int browse_version_at(const struct browse *browse, const struct browse_version *version, struct wb_moment *ret,
                      struct wb_error *why)
{
    const struct browse_entry *entry = browse_current(browse);
    g_autofree char *path = browse_path_of(browse, entry);
    int r = wb_moment_at(browse->mount, path, version->when, ret, why);

    if (r == 0 && ret->path)
        return 0;
    /* It had another name then. */
    if (version->number > 1) {
        struct wb_time newer = {.kind = WB_TIME_VERSION, .number = version->number - 1};

        wb_moment_clear(ret);
        r = wb_moment_before(browse->mount, browse->version_path, &newer, ret, why);
    }
    if (r == 0 && !ret->path)
        r = wb_error_set(why, -ENOENT, "nothing was there then");
    return r;
}
