/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Thinning on request: single versions of files go, as a policy says that comes with the request, or as wayback.conf
 * does. A part of it at each request, like pruning (control_prune.c), and not beside it.
 */
#include "daemon/control/control.h"

#include "daemon/keeper/forget.h"
#include "daemon/options/config_file.h"
#include "daemon/past/pages.h"
#include "daemon/past/past_node.h"
#include "wayback/when.h"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct wb_control_thinned) <= WB_CONTROL_DATA_MAX, "a reply fits");

/* A request does as many steps as there is time for, in microseconds. */
#define TURN 200000

struct wb_thinning {
    struct wb_thin_driver driver;
    struct wb_config config;
    char *only_name; /* of the file that is meant, NULL: all are */
    char *below; /* the directory that is meant, from the root of the tree; "" for all of it */
    bool whole;  /* patterns are of paths from the root, and not from there                  */
    struct wb_thinner *thinner;
    unsigned step; /* the next one */
};

void wb_control_thin_drop(struct wb_session *session)
{
    struct wb_thinning *thinning = session->thinning;

    if (!thinning)
        return;
    wb_thinner_free(thinning->thinner);
    wb_config_deinit(&thinning->config);
    g_free(thinning->below);
    g_free(thinning->only_name);
    g_free(thinning);
    session->thinning = NULL;
}

/* ---- what the thinner asks ------------------------------------------------------------------- */

/* The caller went away, or was interrupted; or the mount ends. */
static bool is_over(void *data)
{
    const struct wb_session *session = ((const struct wb_thin_driver *)data)->session;

    return fuse_req_interrupted(session->pruner->req) || fuse_session_exited(session->fuse);
}

static const struct wb_retention *rule_of(void *data, const char *path)
{
    const struct wb_thinning *thinning = data;
    size_t length = strlen(thinning->below);
    const char *rest = path;

    if (length > 0) {
        if (strncmp(path, thinning->below, length) != 0 || path[length] != '/')
            return NULL;
        rest = path + length + 1;
    }
    return &wb_policy_find(&thinning->config.policy, thinning->whole ? path : rest, false)->retention;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

static void take_mistake(const struct wb_config_mistake *mistake, void *data)
{
    struct wb_control_thinned *reply = data;

    if (!*reply->mistake)
        g_strlcpy(reply->mistake, mistake->text, sizeof(reply->mistake));
}

static void take_line(const char *line, void *data)
{
    struct wb_control_thinned *reply = data;

    if (!*reply->mistake)
        g_strlcpy(reply->mistake, line, sizeof(reply->mistake));
}

/* 0; 1: it has a mistake, which is in the reply; or -errno. */
static int read_policy(const struct wb_request *request, struct wb_thinning *thinning, struct wb_control_thinned *reply)
{
    const struct wb_control *in = request->in;
    const char *text = (const char *)in->data;
    size_t length = strnlen(text, sizeof(in->data));
    int r;

    wb_config_deinit(&thinning->config);
    if (in->flags & WB_CONTROL_THIN_POLICY)
        r = wb_config_file_read(request->session->store->dir_fd, WB_CONFIG_NAME, WB_CONFIG_NAME, &thinning->config,
                                take_line, reply);
    else
        r = wb_config_parse(&thinning->config, text, length, take_mistake, reply);
    if (r == -ENOENT || (r == 0 && !wb_policy_says_something(&thinning->config.policy)))
        g_strlcpy(reply->mistake, "nothing is said of which versions may go", sizeof(reply->mistake));
    return *reply->mistake ? 1 : MIN(r, 0);
}

/* A directory: all below it; or a file. 0 or -errno. */
static int find_scope(const struct wb_request *request, struct wb_thinning *thinning,
                      struct wb_thin_options *options)
{
    struct wb_revision *dir __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    struct wb_revision *revision __attribute__((cleanup(wb_revision_unrefp))) = NULL;
    g_autofree char *name = NULL;
    GString *path;
    int r;

    r = wb_control_find(request, request->in->path, &dir, &name);
    if (r == 0)
        r = wb_control_entry_or_last(request, dir, name, &revision);
    if (r != 0)
        return r == WB_ABSENT ? -ENOENT : r;
    path = g_string_new(wb_revision_parent(revision) ? wb_revision_name(revision) : "");
    for (struct wb_revision *up = wb_revision_parent(revision); up && wb_revision_parent(up);
         up = wb_revision_parent(up)) {
        g_string_prepend_c(path, '/');
        g_string_prepend(path, wb_revision_name(up));
    }
    thinning->below = g_string_free(path, FALSE);
    if (wb_revision_type(revision) == S_IFDIR)
        return 0;
    options->only = wb_revision_object(revision);
    options->only_dir = wb_revision_object(wb_revision_parent(revision));
    options->only_name = thinning->only_name = g_strdup(wb_revision_name(revision));
    return wb_revision_type(revision) == S_IFREG ? 0 : -EINVAL;
}

static int begin(const struct wb_request *request, struct wb_control_thinned *reply)
{
    struct wb_session *session = request->session;
    struct wb_thinning *thinning;
    struct wb_thin_options options;
    int r;

    wb_control_thin_drop(session);
    thinning = session->thinning = g_new0(struct wb_thinning, 1);
    thinning->driver.session = session;
    thinning->whole = request->in->flags & WB_CONTROL_THIN_POLICY;
    wb_config_init(&thinning->config);
    r = read_policy(request, thinning, reply);
    if (r != 0)
        return r;
    wb_forget_init_thin(&thinning->driver, &options);
    r = find_scope(request, thinning, &options);
    if (r < 0 || request->in->flags & WB_CONTROL_THIN_CHECK)
        return r < 0 ? r : 1;
    /* Of a file that was named, all versions are meant, whatever it was called. */
    if (!wb_object_is_none(options.only) && !thinning->whole)
        options.retention = thinning->config.policy.everything.retention;
    else
        options.rule = rule_of;
    if (!wb_object_is_none(options.only))
        *thinning->below = '\0';
    options.dry_run = request->in->flags & WB_CONTROL_THIN_DRY;
    options.stop = is_over;
    return wb_thinner_begin(&thinning->thinner, session->store, &options, wb_store_now(session->store));
}

/* ---- the request ----------------------------------------------------------------------------- */

static int go_on(struct wb_thinning *thinning, struct wb_control_thinned *reply)
{
    int64_t until = g_get_monotonic_time() + TURN;
    struct wb_thin_count count = {0};
    int r = 0;

    while (r == 0 && thinning->step < WB_THIN_STEPS && g_get_monotonic_time() < until) {
        r = wb_thinner_step(thinning->thinner, thinning->step, &count);
        if (r == 0)
            thinning->step++;
    }
    if (count.dropped > 0)
        wb_control_pages_drop(thinning->driver.session->past);
    reply->logs = count.logs;
    reply->changed = count.changed;
    reply->versions = count.dropped;
    reply->log_bytes = count.log_bytes;
    reply->image_bytes = count.image_bytes;
    reply->kept = count.kept;
    reply->error = (uint32_t)-count.error;
    reply->permille = thinning->step * 1000 / WB_THIN_STEPS;
    reply->body_bytes = count.body_bytes;
    reply->held = count.held;
    if (count.held > 0)
        wb_thin_name_unknown(thinning->driver.session->store, count.lacking, reply->directory,
                             sizeof(reply->directory));
    return r;
}

static int thin(const struct wb_request *request, struct wb_control *out)
{
    struct wb_control_thinned *reply = (struct wb_control_thinned *)(void *)out->data;
    struct wb_session *session = request->session;
    const struct wb_control *in = request->in;
    unsigned step;
    int r = 0;

    if (in->cursor == 0)
        r = begin(request, reply);
    else if (!session->thinning || in->cursor != session->thinning->step + 1u)
        r = -ECANCELED; /* another one took its place */
    if (r == 0)
        r = go_on(session->thinning, reply);
    step = r == 0 ? session->thinning->step : WB_THIN_STEPS;
    out->cursor = step + 1u;
    out->count = step < WB_THIN_STEPS;
    if (out->count == 0 && r != -ECANCELED)
        wb_control_thin_drop(session);
    return MIN(r, 0);
}

int wb_control_thin(const struct wb_request *request, struct wb_control *out)
{
    struct wb_session *session = request->session;
    int r;

    if (request->in->cursor > WB_THIN_STEPS)
        return -EINVAL;
    if (pthread_mutex_trylock(&session->prune_lock) != 0)
        return -EBUSY;
    session->pruner = request;
    r = thin(request, out);
    session->pruner = NULL;
    pthread_mutex_unlock(&session->prune_lock);
    return r;
}
