/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/live/recording.h"

#include "base/cleanup.h"
#include "daemon/keeper/enospc_retry.h"
#include "daemon/options/config_file.h"
#include "daemon/system/report.h"
#include "policy/config.h"
#include "store/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>

/* ---- the rules ------------------------------------------------------------------------------- */

void wb_recording_set(struct wb_session *session, struct wb_recording_rules *rules)
{
    struct wb_recording_state *state = &session->rules;
    bool closes = false;

    pthread_mutex_lock(&state->lock);
    wb_recording_rules_deinit(&state->rules);
    state->rules = *rules;
    *rules = (struct wb_recording_rules){0};
    for (guint i = 0; state->rules.list && i < state->rules.list->len; i++) {
        const struct wb_path_rule *rule = g_ptr_array_index(state->rules.list, i);

        if (rule->setting == WB_RECORDING_CLOSE)
            closes = true;
        if (rule->setting == WB_RECORDING_NONE)
            atomic_store(&state->leaves_out, true);
    }
    if (closes && session->options->no_open)
        wb_log_msg("wayback.conf: history=close has no effect with no_open; every change is recorded");
    else if (closes)
        atomic_store(&state->closes, true);
    atomic_store(&state->any, state->rules.list != NULL);
    atomic_fetch_add(&state->generation, 1);
    pthread_mutex_unlock(&state->lock);
}

bool wb_recording_leaves_out(const struct wb_session *session)
{
    return atomic_load(&session->rules.leaves_out);
}

static void ignore_mistake(const char *line, void *data)
{
}

void wb_recording_load(struct wb_session *session)
{
    struct wb_config config;

    if (wb_config_file_read(session->store->dir_fd, WB_CONFIG_NAME, "", &config, ignore_mistake, NULL) == 0)
        wb_recording_set(session, &config.recording);
    /* A mistake in another line must not make command lines known. */
    wb_store_set_commands(session->store, config.commands);
    atomic_store(&session->user_snapshots, config.user_snapshots);
    wb_config_deinit(&config);
}

void wb_recording_deinit(struct wb_session *session)
{
    wb_recording_rules_deinit(&session->rules.rules);
}

/* ---- of a node ------------------------------------------------------------------------------- */

static enum wb_recording unsaid(const struct wb_session *session)
{
    return session->by_close ? WB_RECORDING_CLOSE : WB_RECORDING_WRITE;
}

/* From the top of the tree; g_free. NULL: it has no name. */
static char *path_of(struct wb_session *session, struct wb_inode *inode)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new();
    GString *path = NULL;

    pthread_mutex_lock(&session->nodes.lock);
    for (; inode != session->nodes.root && inode->parent && inode->name; inode = inode->parent)
        g_ptr_array_add(names, inode->name);
    if (inode == session->nodes.root) {
        path = g_string_new(NULL);
        for (guint i = names->len; i-- > 0;)
            g_string_append_printf(path, "%s%s", (const char *)names->pdata[i], i > 0 ? "/" : "");
    }
    pthread_mutex_unlock(&session->nodes.lock);
    return path ? g_string_free(path, FALSE) : NULL;
}

static enum wb_recording find(struct wb_session *session, const char *path, bool is_directory)
{
    struct wb_recording_state *state = &session->rules;
    enum wb_recording recording = unsaid(session);
    const struct wb_path_rule *rule;

    pthread_mutex_lock(&state->lock);
    rule = wb_recording_rules_find(&state->rules, path, is_directory);
    if (rule)
        recording = rule->setting;
    pthread_mutex_unlock(&state->lock);
    /* What is recorded at a close cannot be let through where it cannot be recorded. */
    return recording == WB_RECORDING_CLOSE && session->options->lets_through ? WB_RECORDING_WRITE : recording;
}

static struct wb_inode *parent_of(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_inode *parent;

    pthread_mutex_lock(&session->nodes.lock);
    parent = inode->parent;
    if (parent)
        parent->refs++;
    pthread_mutex_unlock(&session->nodes.lock);
    return parent;
}

/*
 * It is recorded: then so are all directories above it, whose names may have been left out before. Where the store
 * takes no record, that stays as it is, and costs states that would be refused anyway.
 */
static void settle(struct wb_session *session, struct wb_inode *inode)
{
    struct wb_inode *parent = parent_of(session, inode);

    if (parent)
        (void)wb_recording_of(session, parent);
    wb_inode_unref(session, parent);
    if (wb_inode_is_dir(inode))
        (void)wb_capture_recorded_again(session->store, inode->node.object, WB_FILE_CATALOG);
}

enum wb_recording wb_recording_of(struct wb_session *session, struct wb_inode *inode)
{
    g_autofree char *path = NULL;
    enum wb_recording recording = unsaid(session);
    uint32_t generation, known;

    if (!session->recording)
        return recording;
    generation = atomic_load(&session->rules.generation);
    known = atomic_load(&inode->recording);
    if (known / WB_RECORDINGS == generation)
        return known % WB_RECORDINGS;
    if (atomic_load(&session->rules.any)) {
        path = path_of(session, inode);
        /* Of what has no name any more, the last one counts. */
        if (!path)
            return known > 0 ? known % WB_RECORDINGS : recording;
        recording = find(session, path, wb_inode_is_dir(inode));
    }
    atomic_store(&inode->recording, generation * WB_RECORDINGS + recording);
    if (recording != WB_RECORDING_NONE)
        settle(session, inode);
    return recording;
}

void wb_recording_renamed(struct wb_session *session, struct wb_inode *inode)
{
    if (inode && wb_inode_is_dir(inode))
        atomic_fetch_add(&session->rules.generation, 1);
    if (!inode || wb_inode_is_dir(inode))
        return;
    atomic_store(&inode->recording, 0);
    if (session->recording && atomic_load(&session->rules.any) && wb_recording_of(session, inode) != WB_RECORDING_NONE)
        (void)wb_capture_recorded_again(session->store, inode->node.object, WB_FILE_UNDO);
}

/* ---- what is not recorded ---------------------------------------------------------------------- */

/* Whether the store has a log of it, or that is unknown. */
static bool has_log(const struct wb_session *session, struct wb_object object, bool is_directory)
{
    _cleanup_close_ int fd = wb_store_open_file(session->store, object, is_directory ? WB_FILE_CATALOG : WB_FILE_UNDO,
                                                O_PATH | O_CLOEXEC);

    return fd != -ENOENT;
}

static bool is_covered_by(const struct wb_session *session, const struct wb_inode *dir, struct wb_object object,
                          bool is_directory)
{
    /* Smaller values are generations, not times. */
    return atomic_load(&dir->covered) == wb_log_gaps_ended() + 1 && object.birth > UINT32_MAX &&
           object.birth > atomic_load(&dir->cover_when) &&
           !has_log(session, object, is_directory);
}

/* 1: the directory above speaks for it; 0; or -errno. */
static int is_covered_above(struct wb_session *session, struct wb_inode *inode, struct wb_change *change)
{
    struct wb_inode *parent = parent_of(session, inode);
    int r = 0;

    if (parent && wb_recording_of(session, parent) == WB_RECORDING_NONE) {
        r = wb_recording_cover_dir(session, parent, -1, change);
        wb_capture_end(change, 0);
        if (r == 0 && is_covered_by(session, parent, inode->node.object, wb_inode_is_dir(inode))) {
            atomic_store(&inode->cover_when, atomic_load(&parent->cover_when));
            r = 1;
        }
    }
    wb_inode_unref(session, parent);
    return r;
}

int wb_recording_cover(struct wb_session *session, struct wb_inode *inode, struct wb_target *target, int fd,
                       struct wb_change *change)
{
    uint64_t ended = wb_log_gaps_ended() + 1;
    int64_t when = 0;
    int r;

    *change = (struct wb_change){.store = session->store, .slot = -1, .fd = -1};
    if (atomic_load(&inode->covered) == ended)
        return 0;
    r = target->unborn ? 0 : is_covered_above(session, inode, change);
    if (r == 0) {
        r = wb_enospc_retry_recorded(wb_capture_unrecorded(session->store, change, target, fd, &when));
        if (when > 0)
            atomic_store(&inode->cover_when, when);
    } else if (r > 0) {
        when = atomic_load(&inode->cover_when);
    }
    if (r < 0)
        return r;
    if (when > 0)
        atomic_store(&inode->covered, ended);
    session->dirty = true;
    return 0;
}

int wb_recording_cover_dir(struct wb_session *session, struct wb_inode *dir, int fd, struct wb_change *change)
{
    struct wb_dir self = wb_inode_dir(dir, fd);
    struct wb_target target = {.object = dir->node.object, .self = &self};
    int r = wb_recording_cover(session, dir, &target, fd, change);

    wb_inode_learn(dir, &self);
    return r;
}

bool wb_recording_is_pastless(struct wb_session *session, const struct wb_inode *dir, struct wb_object object,
                              const struct stat *st)
{
    return (S_ISDIR(st->st_mode) || st->st_nlink == 1) && is_covered_by(session, dir, object, S_ISDIR(st->st_mode)) &&
           wb_grave_has(session->store, object, S_ISDIR(st->st_mode)) == 0;
}
