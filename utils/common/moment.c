/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/moment.h"
#include "common/cli.h"
#include "common/fd.h"
#include "common/path.h"
#include "common/snapshots.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "wayback/at_name.h"

#define NEVER_WAS "no such file or directory, now or at any time recorded"

char *wb_moment_name(const struct wb_mount *mount, const char *name, const char *time)
{
    g_autofree char *text = wb_at_join(name, mount->at_sign, time);

    if (!text)
        g_error("no memory");
    return g_steal_pointer(&text);
}

/* dir/name@when/rest. Where the suffix makes the name too long, dir/@when/name/rest says the same. */
static char *shifted(const struct wb_mount *mount, const char *dir, const char *name, int64_t when, const char *rest)
{
    char time[WB_WHEN_TEXT_MAX];
    g_autofree char *at = NULL;
    g_autofree char *head = NULL;

    wb_when_print_epoch(when, time);
    if (strlen(name) + 1 + strlen(time) <= NAME_MAX) {
        at = wb_moment_name(mount, name, time);
    } else {
        g_autofree char *self = wb_moment_name(mount, "", time);

        at = wb_path_join(self, name);
    }
    head = wb_path_join(dir, at);
    return wb_path_join(head, rest);
}

char *wb_moment_shift(const struct wb_mount *mount, const char *path, int64_t when)
{
    const char *name;
    g_autofree char *dir = wb_path_parent(path, &name);

    return shifted(mount, dir, name, when, "");
}

/* parts[from..to) joined by slashes. */
static char *join_parts(char **parts, guint from, guint to)
{
    GString *path = g_string_new(NULL);

    for (guint i = from; i < to; i++)
        g_string_append_printf(path, "%s%s", i > from ? "/" : "", parts[i]);
    return g_string_free(path, FALSE);
}

static int stat_beneath(int dir_fd, const char *path, struct stat *ret)
{
    const char *name;
    _cleanup_fd_ int fd = wb_fd_open_parent(dir_fd, path, &name);

    if (fd < 0)
        return fd;
    return fstatat(fd, name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int wb_moment_path(const struct wb_mount *mount, const char *path, int64_t when, char **ret)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    guint count = g_strv_length(parts);
    struct stat st;
    int r;

    *ret = NULL;
    for (guint i = count > 0 ? count - 1 : 0;; i--) {
        g_autofree char *dir = join_parts(parts, 0, i);
        g_autofree char *rest = i + 1 < count ? join_parts(parts, i + 1, count) : g_strdup("");
        g_autofree char *candidate = shifted(mount, dir, count > 0 ? parts[i] : "", when, rest);

        r = stat_beneath(mount->root_fd, candidate, &st);
        if (r == 0)
            *ret = g_steal_pointer(&candidate);
        /* Through what was a link then, nothing was there: it was where that led. */
        if (r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
            return r;
        /* The directory is gone, or another one had its name: the one above says what was there. */
        if (i == 0)
            return -ENOENT;
    }
}

/* The N-th most recent change, in *ret. 0 or an exit status. */
static int nth_change(const struct wb_place *place, int change, struct wb_control_version *ret)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, (uint64_t)change - 1);
    const struct wb_control_version *version;
    int r = wb_version_walk_next(walk, &version);
    uint64_t count = 0;

    if (r == 0) {
        *ret = *version;
        return 0;
    }
    if (r < 0)
        return wb_cli_fail(place->given, "%s", r == -ENOENT ? NEVER_WAS : wb_cli_errno(r));
    wb_version_walk_free(walk);
    walk = wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, 0);
    while (count < (uint64_t)change && wb_version_walk_next(walk, &version) == 0)
        count++;
    return wb_cli_fail(place->given, "has no change %d, only %" G_GUINT64_FORMAT "; 'vstat' lists them",
                       change, count);
}

/* Whether `path` at that instant was the object in *there; then ret->path and identity are set. */
static bool take(const struct wb_place *place, const char *path, const struct wb_control_identity *there,
                 struct wb_moment *ret)
{
    struct wb_control_identity identity;
    g_autofree char *source = NULL;

    if (wb_moment_path(place->mount, path, ret->when, &source) < 0 ||
        wb_control_identify(place->mount->root_fd, source, &identity) < 0 || identity.ino != there->ino ||
        identity.birth != there->birth)
        return false;
    g_free(ret->path);
    ret->path = g_steal_pointer(&source);
    ret->identity = identity;
    return true;
}

/*
 * What PATH@~N means. Usually that is what the name held at that instant; where the file had
 * another name then, it is the file under that name, as `cat PATH@~N` has it.
 */
static int find_change(const struct wb_place *place, int change, struct wb_moment *ret)
{
    g_autofree struct wb_control_version *version = g_new(struct wb_control_version, 1);
    g_autofree char *dir = NULL;
    g_autofree char *entry = NULL;
    g_autofree char *followed = NULL;
    g_autofree char *then = NULL;
    g_autofree char *before = NULL;
    struct wb_control_identity there;
    char count[16];
    const char *name;
    int r = nth_change(place, change, version);

    if (r != 0)
        return r;
    ret->when = version->when - 1;
    r = wb_moment_path(place->mount, place->path, ret->when, &ret->path);
    if (r == 0)
        r = wb_control_identify(place->mount->root_fd, ret->path, &ret->identity);
    if (r < 0 && r != -ENOENT)
        return wb_cli_fail(place->given, "%s", wb_cli_errno(r));
    dir = wb_path_parent(place->path, &name);
    g_snprintf(count, sizeof(count), "~%d", change);
    entry = wb_moment_name(place->mount, name, count);
    followed = wb_path_join(dir, entry);
    if (wb_control_identify(place->mount->root_fd, followed, &there) < 0 || there.when != ret->when ||
        (ret->path && there.ino == ret->identity.ino && there.birth == ret->identity.birth))
        return 0;
    then = wb_path_join(dir, version->name);
    before = wb_path_join(dir, version->other);
    if (take(place, then, &there, ret) || take(place, before, &there, ret) ||
        (there.state == WB_CONTROL_ALIVE && take(place, there.path, &there, ret)))
        return 0;
    return ret->path ? 0
                     : wb_cli_fail(place->given, "was in another directory before change %d; use its path there",
                                   change);
}

/* Whether anything is, or ever was, under that name. */
static bool ever_was(const struct wb_place *place)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(place->mount->root_fd, place->path, 0, 0, 0);
    const struct wb_control_version *version;
    struct stat st;

    return wb_place_stat(place, &st) == 0 || wb_version_walk_next(walk, &version) == 0;
}

static int find_instant(const struct wb_place *place, int64_t when, struct wb_moment *ret)
{
    int r;

    ret->when = when;
    r = wb_moment_path(place->mount, place->path, when, &ret->path);
    if (r == 0)
        r = wb_control_identify(place->mount->root_fd, ret->path, &ret->identity);
    if (r == -ENOENT) {
        g_clear_pointer(&ret->path, g_free);
        return ever_was(place) ? 0 : wb_cli_fail(place->given, NEVER_WAS);
    }
    return r == 0 ? 0 : wb_cli_fail(place->given, "%s", wb_cli_errno(r));
}

int wb_moment_known(const struct wb_place *place, const char *text, int64_t when)
{
    char then[WB_WHEN_TEXT_MAX], began[WB_WHEN_TEXT_MAX], epoch[WB_WHEN_TEXT_MAX];
    int64_t created = place->mount->hello.created;

    if (when >= created)
        return 0;
    return wb_cli_fail(place->given,
                       "%s (%s) is before the history begins; it begins at %s, so give %s or a later time",
                       text, wb_when_print(when, 0, then), wb_when_print(created, 0, began),
                       wb_when_print_epoch(created, epoch));
}

int wb_moment_resolve(const struct wb_place *place, const struct wb_moment_options *options,
                      struct wb_moment *ret)
{
    struct wb_time time = {.kind = WB_TIME_CHANGE, .change = (uint32_t)options->change};
    int r;

    memset(ret, 0, sizeof(*ret));
    if (options->time) {
        const char *name = options->name ? options->name : "--time";

        r = wb_time_of(place, name, options->time, &time);
        if (r == 0 && time.kind == WB_TIME_INSTANT && time.instant > wb_control_now()) {
            char text[WB_WHEN_TEXT_MAX];

            r = wb_cli_usage("%s: '%s' is in the future (%s); give a time in the past", name, options->time,
                             wb_when_print(time.instant, 0, text));
        }
        if (r == 0 && time.kind == WB_TIME_INSTANT)
            r = wb_moment_known(place, options->shown ?: options->time, time.instant);
        if (r != 0)
            return r;
    }
    if (time.kind == WB_TIME_CHANGE)
        r = find_change(place, (int)time.change, ret);
    else
        r = find_instant(place, time.instant, ret);
    if (r != 0)
        return r;
    ret->label = options->time ? g_strdup(wb_time_text(place, options->time))
                               : g_strdup_printf("~%d", options->change);
    g_strstrip(g_strdelimit(ret->label, "/", '-'));
    return 0;
}

int wb_moment_check(const struct wb_moment_options *options)
{
    if (options->time && options->change != WB_CHANGE_NONE)
        return wb_cli_usage("--time and --change exclude each other");
    if (options->change < 1 && options->change != WB_CHANGE_NONE)
        return wb_cli_usage("--change: %d is not the number of a change; 1 is the most recent, 'vstat' lists them",
                            options->change);
    return options->time && wb_time_check("--time", options->time) != 0 ? WB_EXIT_USAGE : 0;
}

void wb_moment_clear(struct wb_moment *moment)
{
    g_clear_pointer(&moment->path, g_free);
    g_clear_pointer(&moment->label, g_free);
}
