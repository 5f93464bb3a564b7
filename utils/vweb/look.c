/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/errno_text.h"
#include "client/fd.h"
#include "client/path.h"
#include "client/snapshots.h"
#include "common/cli.h"
#include "common/json.h"
#include "common/text.h"
#include "content/browse.h"
#include "content/version_text.h"
#include "vweb/request.h"
#include "wayback/when.h"
#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The names of a directory, the versions of a name, and times: by the model of `wayback browse`. */

#define ENTRIES_MAX 20000
#define MARKS_PIECES_MAX 400
#define VERSIONS_MAX 2000
#define VERSIONS_DEFAULT 100

/* ---- the session ------------------------------------------------------------------------------------- */

void web_get_session(const struct web_request *request, struct web_reply *reply)
{
    const struct web *web = request->web;
    const struct wb_mount *mount = web->place->mount;
    g_autofree char *user = web_user_name(geteuid());
    g_autoptr(JsonBuilder) builder = NULL;
    struct wb_control_hello hello;
    int r = wb_request_hello(mount->root_fd, &hello);

    if (r < 0) {
        web_reply_errno(reply, r, "the mount has ended; start 'wayback web' again once it is mounted");
        return;
    }
    builder = web_reply_begin();
    wb_json_string(builder, "version", WAYBACK_VERSION);
    web_add_text(builder, "path", web->shown);
    if (web->select)
        web_add_text(builder, "select", web->select);
    wb_json_string(builder, "user", user);
    wb_json_int(builder, "uid", geteuid());
    wb_json_bool(builder, "is_root", geteuid() == 0);
    wb_json_bool(builder, "read_only", web->read_only);
    if (web->why_read_only)
        wb_json_string(builder, "why_read_only", web->why_read_only);
    wb_json_bool(builder, "mounted", !mount->private);
    wb_json_time(builder, "began", hello.created);
    wb_json_time(builder, "now", MAX(hello.now, wb_mount_now(mount)));
    web_reply_end(reply, builder);
}

/* ---- a directory ------------------------------------------------------------------------------------- */

static bool is_stopped(void)
{
    return wb_cli_interrupted();
}

/* A model of its own for each request; browse_free. */
static struct browse *model_new(const struct web *web)
{
    struct wb_place *place = g_new0(struct wb_place, 1);
    struct browse *browse;

    place->mount = web->place->mount;
    place->path = g_strdup(web->place->path);
    place->given = g_strdup(web->place->given);
    browse = browse_new(place);
    browse->stopped = is_stopped;
    return browse;
}

static void fail_of_model(struct browse *browse, struct web_reply *reply)
{
    web_reply_error(reply, MHD_HTTP_NOT_FOUND, "absent", "%s", browse->error ? browse->error : "it cannot be read");
}

/*
 * When `path`, which is not there at `moment`, was there last, with all that was in it: that is where the model goes if
 * a user enters it. 0; or -errno.
 */
static int find_gone(struct browse *browse, const char *path, int64_t moment, int64_t *ret)
{
    const char *name;
    g_autofree char *parent = wb_path_parent(path, &name);
    const struct wb_control_name *found;
    int r;

    if (!*path || !browse_go(browse, parent, moment))
        return -ENOENT;
    _cleanup_name_walk_ struct wb_name_walk *walk =
        wb_name_walk_new(browse->mount->root_fd, browse_level(browse)->source, name, 0);
    while ((r = wb_name_walk_next(walk, &found)) == 0) {
        struct browse_entry entry = {.name = (char *)name, .mode = found->mode, .ended = found->last,
                                     .at = found->last - 1, .moved = found->moved, .actor = found->actor};

        if (found->index > 0 || found->replaced || !found->last)
            continue;
        if (!browse_find_whole(browse, &entry))
            return -EINTR;
        *ret = entry.at;
        return 0;
    }
    return r < 0 ? r : -ENOENT;
}

static void add_entry(JsonBuilder *builder, const struct browse *browse, const struct browse_entry *entry)
{
    static const char *const marks[] = {[BROWSE_SAME] = "same", [BROWSE_NEW] = "new", [BROWSE_CHANGED] = "changed",
                                        [BROWSE_DELETED] = "deleted", [BROWSE_MOVED] = "moved"};
    g_autofree char *mode = g_strdup_printf("%04o", (unsigned)(entry->mode & 07777));

    json_builder_begin_object(builder);
    web_add_text(builder, "name", entry->name);
    wb_json_string(builder, "type", wb_text_type(entry->mode));
    wb_json_string(builder, "mode", mode);
    wb_json_int(builder, "size", (int64_t)entry->size);
    wb_json_time(builder, "changed", entry->time);
    wb_json_time(builder, "first", entry->first);
    wb_json_time(builder, "at", entry->at);
    wb_json_string(builder, "status", marks[browse_mark_of(browse, entry)]);
    json_builder_end_object(builder);
}

/* Reads names, and as many changes as do not take long. True: all of the latter. */
static bool read_model(struct browse *browse)
{
    enum browse_progress progress = BROWSE_MORE;

    while (browse_entries_work(browse) != BROWSE_IDLE && !wb_cli_interrupted())
        continue;
    for (unsigned i = 0; i < MARKS_PIECES_MAX && progress == BROWSE_MORE && !wb_cli_interrupted(); i++)
        progress = browse_changes_work(browse);
    return progress == BROWSE_IDLE;
}

/* Of those that are shown, deleted ones where they were. */
static void add_entries(JsonBuilder *builder, const struct browse *browse, bool moved)
{
    guint count = 0, i;

    json_builder_set_member_name(builder, "entries");
    json_builder_begin_array(builder);
    for (i = 0; i < browse->entries->len && count < ENTRIES_MAX; i++) {
        const struct browse_entry *entry = browse->entries->pdata[i];

        if (entry->moved && !moved)
            continue;
        add_entry(builder, browse, entry);
        count++;
    }
    json_builder_end_array(builder);
    wb_json_bool(builder, "incomplete", browse->incomplete || i < browse->entries->len);
}

/* list?path=PATH[&epoch=TIME][&gone=1][&moved=1] */
void web_get_list(const struct web_request *request, struct web_reply *reply)
{
    g_autofree char *path = NULL;
    g_autoptr(JsonBuilder) builder = NULL;
    struct browse *browse;
    int64_t when, at, gone, moved;
    bool marked;
    int r = 0;

    if (!web_argument_path(request, reply, &path) ||
        !web_argument_time(request, reply, "epoch", WB_WHEN_PRESENT, &when) ||
        !web_argument_number(request, reply, "gone", 0, 1, 0, &gone) ||
        !web_argument_number(request, reply, "moved", 0, 1, 0, &moved))
        return;
    browse = model_new(request->web);
    at = when;
    if (gone)
        r = find_gone(browse, path, when, &at);
    if (r < 0) {
        web_reply_errno(reply, r, NULL);
    } else if (!browse_go(browse, path, at)) {
        fail_of_model(browse, reply);
    } else {
        browse_level(browse)->gone = gone;
        marked = read_model(browse);
        if (browse->error && browse->incomplete && browse->entries->len == 0) {
            web_reply_error(reply, MHD_HTTP_FORBIDDEN, "denied", "%s", browse->error);
            browse_free(browse);
            return;
        }
        builder = web_reply_begin();
        web_add_text(builder, "path", web_path_below(request->web, path));
        wb_json_time(builder, "at", at == WB_WHEN_PRESENT ? 0 : at);
        wb_json_bool(builder, "gone", gone);
        wb_json_time(builder, "since", browse->since);
        wb_json_bool(builder, "marked", marked);
        add_entries(builder, browse, moved);
        if (browse->error)
            wb_json_string(builder, "warning", browse->error);
        web_reply_end(reply, builder);
    }
    browse_free(browse);
}

/* ---- versions ---------------------------------------------------------------------------------------- */

/* The list of one name. */
struct versions {
    const struct web *web;
    JsonBuilder *builder;
    bool directory;
    const char *name;
    int64_t newer; /* the beginning of the version read before; 0: it cannot be said */
};

static void add_who(JsonBuilder *builder, const struct wb_control_version *change)
{
    g_autofree char *user = web_user_name(change->uid);

    if (change->pid == 0 && !*change->command)
        return;
    wb_json_string(builder, "user", user);
    wb_json_int(builder, "pid", change->pid);
    web_add_text(builder, "command", change->command);
}

static void add_version(struct versions *versions, const struct wb_save *save)
{
    struct wb_version_style style = {.directory = versions->directory, .name = versions->name};
    struct wb_control_version change = wb_version_describe(save, versions->directory ? NULL : versions->name);
    bool withheld = change.flags & WB_CONTROL_VERSION_WITHHELD, gap = change.flags & WB_CONTROL_VERSION_GAP;
    g_autofree char *operation = withheld ? g_strdup("withheld") : wb_version_operation(&style, &change);
    g_autofree char *size = withheld ? g_strdup("-") : wb_version_size(&style, &change);
    int64_t until = versions->newer > 0 && !versions->directory ? versions->newer - 1 : change.when;

    versions->newer = save->number > 0 ? save->oldest.when : 0;
    json_builder_begin_object(versions->builder);
    wb_json_int(versions->builder, "number", change.change);
    wb_json_when(versions->builder, change.when);
    wb_json_time(versions->builder, "until", MAX(until, change.when));
    wb_json_time(versions->builder, "before", save->oldest.when - 1);
    wb_json_bool(versions->builder, "exists", versions->directory || withheld || change.exists_after);
    wb_json_bool(versions->builder, "withheld", withheld);
    wb_json_bool(versions->builder, "gap", gap);
    web_add_text(versions->builder, "operation", operation);
    wb_json_string(versions->builder, "size", size);
    if (versions->directory && !withheld)
        web_add_text(versions->builder, "name", *change.name ? change.name : ".");
    if (!withheld)
        add_who(versions->builder, &change);
    json_builder_end_object(versions->builder);
}

/* The state before the oldest version. */
static void add_first(struct versions *versions, const struct wb_control_version *oldest)
{
    char size[WB_TEXT_SIZE_MAX];

    if (!oldest->existed_before || versions->directory ||
        oldest->flags & (WB_CONTROL_VERSION_WITHHELD | WB_CONTROL_VERSION_GAP))
        return;
    json_builder_begin_object(versions->builder);
    wb_json_int(versions->builder, "number", 0);
    wb_json_when(versions->builder, oldest->when - 1);
    wb_json_time(versions->builder, "until", oldest->when - 1);
    wb_json_bool(versions->builder, "exists", true);
    wb_json_bool(versions->builder, "withheld", false);
    wb_json_bool(versions->builder, "gap", false);
    wb_json_string(versions->builder, "operation", "before the first version");
    wb_json_string(versions->builder, "size", wb_text_size(oldest->size_before, size));
    json_builder_end_object(versions->builder);
}

/* 0, 1: there are more, or -errno. */
static int add_versions(struct versions *versions, const char *path, int64_t limit)
{
    _cleanup_save_walk_ struct wb_save_walk *walk =
        wb_save_walk_new(versions->web->place->mount->root_fd, path, 0, 0);
    struct wb_control_version *oldest = NULL;
    const struct wb_save *save;
    int64_t count = 0;
    int r;

    versions->newer = wb_mount_now(versions->web->place->mount) + 1;
    while ((r = wb_save_walk_next(walk, &save)) == 0 && count++ < limit) {
        add_version(versions, save);
        g_free(oldest);
        oldest = g_memdup2(&save->oldest, sizeof(save->oldest));
    }
    if (r == 1 && oldest)
        add_first(versions, oldest);
    g_free(oldest);
    return r == 1 ? 0 : r == 0 ? 1 : r;
}

/* The path under which the list is found: in a directory that is gone, the name may belong to another one by now. */
static int find_version_path(const struct web *web, const char *path, int64_t when, bool gone, char **ret)
{
    const char *name;
    g_autofree char *parent = wb_path_parent(path, &name);
    g_autofree char *source = NULL;
    int r;

    *ret = NULL;
    if (!gone || when == WB_WHEN_PRESENT) {
        *ret = g_strdup(path);
        return 0;
    }
    r = wb_moment_path(web->place->mount, parent, when, &source);
    if (r == 0)
        *ret = wb_path_join(source, name);
    return r;
}

/* versions?path=PATH[&epoch=TIME&gone=1][&directory=1][&limit=N]; `epoch`, `gone`: of the directory that has it. */
void web_get_versions(const struct web_request *request, struct web_reply *reply)
{
    g_autofree char *path = NULL;
    g_autofree char *source = NULL;
    g_autoptr(JsonBuilder) builder = NULL;
    struct versions versions = {.web = request->web};
    int64_t when, gone, directory, limit;
    const char *name;
    int r;

    if (!web_argument_path(request, reply, &path) ||
        !web_argument_time(request, reply, "epoch", WB_WHEN_PRESENT, &when) ||
        !web_argument_number(request, reply, "gone", 0, 1, 0, &gone) ||
        !web_argument_number(request, reply, "directory", 0, 1, 0, &directory) ||
        !web_argument_number(request, reply, "limit", 1, VERSIONS_MAX, VERSIONS_DEFAULT, &limit))
        return;
    r = find_version_path(request->web, path, when, gone, &source);
    if (r < 0) {
        web_reply_errno(reply, r, NULL);
        return;
    }
    g_free(wb_path_parent(path, &name));
    builder = web_reply_begin();
    versions.builder = builder;
    versions.directory = directory;
    versions.name = name;
    web_add_text(builder, "path", web_path_below(request->web, path));
    json_builder_set_member_name(builder, "versions");
    json_builder_begin_array(builder);
    r = add_versions(&versions, source, limit);
    json_builder_end_array(builder);
    wb_json_bool(builder, "has_more", r == 1);
    if (r < 0 && r != -ENOENT)
        web_reply_errno(reply, r, NULL);
    else
        web_reply_end(reply, builder);
}

/* ---- times ------------------------------------------------------------------------------------------- */

/* time?text=TEXT: the instant that a user means. */
void web_get_time(const struct web_request *request, struct web_reply *reply)
{
    const struct wb_place *place = request->web->place;
    g_autofree char *given = web_argument(request, "text");
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    _cleanup_moment_ struct wb_moment moment = {0};
    g_autoptr(JsonBuilder) builder = NULL;
    struct wb_error why = {""};
    struct wb_time time;
    int r;

    if (!given || !*g_strstrip(given)) {
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "'text' is missing");
        return;
    }
    r = wb_time_find(place->mount, place->path, given, &time, &snapshot);
    if (r < 0) {
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage",
                        r == -ENODATA ? "the snapshot %s does not cover this directory"
                                      : "'%s' is neither a time nor a snapshot; for example 14:03, yesterday, 2h30m",
                        given);
        return;
    }
    if (time.kind != WB_TIME_INSTANT) {
        r = wb_moment_before(place->mount, place->path, &time, &moment, &why);
        time.instant = moment.when;
    }
    if (r == 0)
        r = wb_moment_known(place->mount, given, time.instant, &why);
    if (r == 0 && time.instant > wb_mount_now(place->mount))
        r = wb_error_set(&why, -EINVAL, "'%s' is in the future", given);
    if (r < 0) {
        web_reply_error(reply, MHD_HTTP_BAD_REQUEST, "usage", "%s", why.text);
        return;
    }
    builder = web_reply_begin();
    wb_json_when(builder, time.instant);
    web_reply_end(reply, builder);
}

void web_get_snapshots(const struct web_request *request, struct web_reply *reply)
{
    const struct wb_place *place = request->web->place;
    g_autoptr(JsonBuilder) builder = NULL;
    g_autoptr(GPtrArray) found = NULL;
    int r = wb_request_snapshot_list(place->mount->root_fd, place->path, NULL, &found);

    if (r < 0) {
        web_reply_errno(reply, r, NULL);
        return;
    }
    builder = web_reply_begin();
    json_builder_set_member_name(builder, "snapshots");
    json_builder_begin_array(builder);
    for (guint i = 0; i < found->len; i++) {
        const struct wb_control_snapshot *snapshot = found->pdata[i];

        if (!(snapshot->flags & WB_CONTROL_SNAPSHOT_COVERS))
            continue;
        json_builder_begin_object(builder);
        web_add_text(builder, "name", wb_snapshot_name(snapshot));
        web_add_text(builder, "text", wb_snapshot_text(snapshot));
        wb_json_when(builder, snapshot->when);
        json_builder_end_object(builder);
    }
    json_builder_end_array(builder);
    web_reply_end(reply, builder);
}
