/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "content/states.h"

#include "client/past_path.h"
#include "common/cli.h"
#include <errno.h>
#include <string.h>

struct wb_states {
    const struct wb_mount *mount;
    struct wb_text_search *search;
    GArray *states;      /* struct wb_state                                                   */
    char *path;          /* whose states they are                                             */
    GHashTable *renamed; /* time of a rename -> struct renamed                                */
};

/* A file at the time of a rename, and whether it had the text. */
struct renamed {
    int64_t when;
    uint64_t ino;
    int64_t birth;
    int has;
};

/* No longer list of states is kept. */
#define STATES_MAX (WB_HELD_MAX / sizeof(struct wb_state))
/* The same for renames, which are kept for all names of a search. */
#define RENAMED_MAX 1000000

const char *wb_version_name_after(const struct wb_control_version *version, const char *name)
{
    if (!*version->name || strcmp(version->name, name) == 0 || strcmp(version->other, name) == 0)
        return name;
    return strcmp(version->op_name, "rename") == 0 ? version->other : version->name;
}

bool wb_version_empties(const struct wb_control_version *version)
{
    return version->flags == 0 && version->size_after == 0 &&
           (strcmp(version->op_name, "truncate") == 0 || strcmp(version->op_name, "create") == 0);
}

struct wb_states *wb_states_new(const struct wb_mount *mount, struct wb_text_search *search)
{
    struct wb_states *states = g_new0(struct wb_states, 1);

    states->mount = mount;
    states->search = search;
    states->states = g_array_new(FALSE, TRUE, sizeof(struct wb_state));
    states->renamed = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
    return states;
}

struct wb_states *wb_states_free(struct wb_states *states)
{
    if (states) {
        g_array_unref(states->states);
        g_free(states->path);
        g_hash_table_unref(states->renamed);
        g_free(states);
    }
    return NULL;
}

unsigned wb_states_count(const struct wb_states *states)
{
    return states->states->len;
}

static struct wb_state *get(const struct wb_states *states, unsigned index)
{
    return &g_array_index(states->states, struct wb_state, index);
}

const struct wb_state *wb_states_get(const struct wb_states *states, unsigned index)
{
    return get(states, index);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* What is known while the list of changes is read, newest first. */
struct progress {
    int64_t end;    /* of the next older state: the time of the last change that was read   */
    int64_t left;   /* if that was a rename to another name, the same; else 0               */
    int64_t before; /* a time just before that change                                       */
    bool existed;   /* before it                                                            */
    uint32_t number; /* of the version met last; 0: none was                                */
    bool any;       /* a change was read                                                    */
};

static void append(struct wb_states *states, const struct wb_state *state)
{
    g_array_append_vals(states->states, state, 1);
}

static void add_version(struct wb_states *states, struct progress *progress, const struct wb_control_version *version)
{
    bool withheld = version->flags & WB_CONTROL_VERSION_WITHHELD, gap = version->flags & WB_CONTROL_VERSION_GAP;
    bool is_rename = strcmp(version->op_name, "rename") == 0 && *version->other;
    bool amid = version->save != 0 && version->save == progress->number;

    /* Attributes alone make no other state of the content. */
    if (version->save == 0 && !gap)
        return;
    /* While a version is being written is no state that anybody looks for. */
    if ((withheld || version->exists_after) && !amid)
        append(states, &(struct wb_state){.when = version->when, .at = version->when, .end = progress->end,
                                          .change = version->save, .gap = gap,
                                          .came = is_rename ? version->when : 0, .left = progress->left,
                                          .has = wb_version_empties(version) ? 0 : WB_STATE_UNREAD,
                                          .size = withheld ? 0 : version->size_after});
    progress->end = version->when;
    progress->left = is_rename && !version->exists_after ? version->when : 0;
    progress->before = (version->flags & WB_CONTROL_VERSION_THINNED ? version->thinned_since
                        : gap                                       ? (int64_t)version->offset
                                                                    : version->when) - 1;
    progress->existed = !withheld && version->existed_before;
    progress->number = version->save ?: progress->number;
    progress->any = true;
}

int wb_states_read(struct wb_states *states, const char *path, int64_t until, int64_t end)
{
    _cleanup_walk_ struct wb_version_walk *walk = wb_version_walk_new(states->mount->root_fd, path, 0, until, 0);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    struct progress progress = {.end = end, .existed = true};
    const struct wb_control_version *version;
    int r = -EINTR;

    wb_text_search_begin(states->search);
    g_array_set_size(states->states, 0);
    g_free(states->path);
    states->path = g_strdup(path);
    while (!wb_cli_interrupted() && (r = wb_version_walk_next(walk, &version)) == 0) {
        if (wb_version_name_after(version, name) == name)
            add_version(states, &progress, version);
        if (states->states->len >= STATES_MAX)
            return -EOVERFLOW;
    }
    if (wb_cli_interrupted())
        return -EINTR;
    if (r < 0)
        return r;
    /* The state before all recorded changes; a gap that has no beginning leaves none. */
    if (progress.existed && (!progress.any || progress.before > 0))
        append(states, &(struct wb_state){.at = progress.any ? progress.before : end - 1,
                                          .end = progress.end, .left = progress.left, .has = WB_STATE_UNREAD});
    return 0;
}

/* ---- content --------------------------------------------------------------------------------- */

/* Where the state is found; g_free. */
static char *path_of(const struct wb_states *states, const struct wb_state *state)
{
    return state->end ? wb_moment_shift(states->mount, states->path, state->at) : g_strdup(states->path);
}

static int look(struct wb_states *states, struct wb_state *state)
{
    g_autofree char *path = path_of(states, state);

    return wb_text_search_file(states->search, states->mount->root_fd, path, &state->size);
}

/* A file that was renamed has the same content just before and just after, under either name. */
static bool is_known(const struct wb_states *states, const struct wb_state *state, int64_t when, int *ret)
{
    const struct renamed *renamed = when ? g_hash_table_lookup(states->renamed, &when) : NULL;
    g_autofree char *path = renamed ? path_of(states, state) : NULL;
    struct wb_control_identity identity;

    if (!renamed || wb_request_identify(states->mount->root_fd, path, &identity) < 0 ||
        identity.ino != renamed->ino || identity.birth != renamed->birth)
        return false;
    *ret = renamed->has;
    return true;
}

static void remember(struct wb_states *states, const struct wb_state *state, int64_t when, int has)
{
    g_autofree char *path = NULL;
    struct wb_control_identity identity;
    struct renamed *renamed;

    if (!when || has < 0 || g_hash_table_size(states->renamed) >= RENAMED_MAX ||
        g_hash_table_contains(states->renamed, &when))
        return;
    path = path_of(states, state);
    if (wb_request_identify(states->mount->root_fd, path, &identity) < 0)
        return;
    renamed = g_memdup2(&(struct renamed){when, identity.ino, identity.birth, has}, sizeof(*renamed));
    g_hash_table_insert(states->renamed, &renamed->when, renamed);
}

int wb_states_has(struct wb_states *states, unsigned index)
{
    struct wb_state *state = get(states, index);
    int has;

    if (state->has != WB_STATE_UNREAD)
        return state->has;
    if (!is_known(states, state, state->left, &has) && !is_known(states, state, state->came, &has))
        has = look(states, state);
    if (has == -EINTR)
        return has;
    remember(states, state, state->left, has);
    remember(states, state, state->came, has);
    state->has = has;
    return has;
}
