/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "client/past_path.h"

#include "client/errno_text.h"
#include "client/fd.h"
#include "client/path.h"
#include "client/saves.h"
#include "client/snapshots.h"
#include "wayback/at_name.h"
#include "wayback/when.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define NEVER_WAS "no such file or directory, now or at any time recorded"

char *wb_moment_entry(const struct wb_mount *mount, const char *name, const char *time)
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
        at = wb_moment_entry(mount, name, time);
    } else {
        g_autofree char *self = wb_moment_entry(mount, "", time);

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
        if (r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -EXDEV)
            return r;
        /* The directory is gone, another one had its name, or a mount covers it: the one above has what was there. */
        if (i == 0)
            return -ENOENT;
    }
}

/* The N-th most recent version. */
static int nth_save(const struct wb_mount *mount, const char *path, uint32_t number, struct wb_save *ret,
                    struct wb_error *why)
{
    _cleanup_save_walk_ struct wb_save_walk *walk = wb_save_walk_new(mount->root_fd, path, 0, 0);
    const struct wb_save *save;
    uint32_t count = 0;
    int r;

    while ((r = wb_save_walk_next(walk, &save)) == 0) {
        if (save->number == number) {
            *ret = *save;
            return 0;
        }
        count = MAX(count, save->number);
    }
    if (r < 0)
        return wb_error_set(why, r, "%s", r == -ENOENT ? NEVER_WAS : wb_errno_text(r));
    return wb_error_set(why, -ENOENT, "has no version %u, only %u; 'vstat' lists them", number, count);
}

/* The N-th most recent change, as the only one of a version. */
static int nth_change(const struct wb_mount *mount, const char *path, uint32_t number, struct wb_save *ret,
                      struct wb_error *why)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(mount->root_fd, path, 0, 0, (uint64_t)number - 1);
    const struct wb_control_version *change;
    int r = wb_version_walk_next(walk, &change);

    if (r == 0)
        *ret = (struct wb_save){.oldest = *change};
    if (r < 0)
        return wb_error_set(why, r, "%s", r == -ENOENT ? NEVER_WAS : wb_errno_text(r));
    return r == 0 ? 0 : wb_error_set(why, -ENOENT, "has no change %u; 'vstat --operations' lists them", number);
}

/* Whether `path` at that instant was the object in *there; then ret->path and identity are set. */
static bool take(const struct wb_mount *mount, const char *path, const struct wb_control_identity *there,
                 struct wb_moment *ret)
{
    struct wb_control_identity identity;
    g_autofree char *source = NULL;

    if (wb_moment_path(mount, path, ret->when, &source) < 0 ||
        wb_request_identify(mount->root_fd, source, &identity) < 0 || identity.ino != there->ino ||
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
int wb_moment_before(const struct wb_mount *mount, const char *path, const struct wb_time *time, struct wb_moment *ret,
                     struct wb_error *why)
{
    g_autofree struct wb_save *save = g_new(struct wb_save, 1);
    const struct wb_control_version *version = &save->oldest;
    g_autofree char *dir = NULL;
    g_autofree char *entry = NULL;
    g_autofree char *followed = NULL;
    g_autofree char *then = NULL;
    g_autofree char *before = NULL;
    struct wb_control_identity there;
    bool single = time->kind == WB_TIME_CHANGE;
    char count[16];
    const char *name;
    int r;

    *ret = (struct wb_moment){0};
    r = (single ? nth_change : nth_save)(mount, path, time->number, save, why);
    if (r != 0)
        return r;
    ret->when = version->when - 1;
    r = wb_moment_path(mount, path, ret->when, &ret->path);
    if (r == 0)
        r = wb_request_identify(mount->root_fd, ret->path, &ret->identity);
    if (r < 0 && r != -ENOENT)
        return wb_moment_unknown(mount, path, ret->when, r, why);
    dir = wb_path_parent(path, &name);
    g_snprintf(count, sizeof(count), "%s%u", single ? "~~" : "~", time->number);
    entry = wb_moment_entry(mount, name, count);
    followed = wb_path_join(dir, entry);
    if (wb_request_identify(mount->root_fd, followed, &there) < 0 || there.when != ret->when ||
        (ret->path && there.ino == ret->identity.ino && there.birth == ret->identity.birth))
        return 0;
    then = wb_path_join(dir, version->name);
    before = wb_path_join(dir, version->other);
    if (take(mount, then, &there, ret) || take(mount, before, &there, ret) ||
        (there.state == WB_CONTROL_ALIVE && take(mount, there.path, &there, ret)))
        return 0;
    return ret->path ? 0
                     : wb_error_set(why, -EXDEV, "was in another directory before %s %u; use its path there",
                                    single ? "change" : "version", time->number);
}

/* ---- states that are not known ------------------------------------------------------------------- */

/* The newest gap in the history of `path` or of a directory above it. False: there is none after `when`. */
static bool find_gap(const struct wb_mount *mount, const char *path, int64_t when, struct wb_control_version *ret)
{
    g_autofree char *at = g_strdup(path);
    bool found = false;

    for (;;) {
        _cleanup_walk_ struct wb_version_walk *walk = wb_version_walk_new(mount->root_fd, at, when, 0, 0);
        const struct wb_control_version *version;

        while (wb_version_walk_next(walk, &version) == 0) {
            if (!(version->flags & WB_CONTROL_VERSION_GAP) || version->when <= when)
                continue;
            if (!found || version->when > ret->when)
                *ret = *version;
            found = true;
            break;
        }
        if (!*at)
            return found;
        *(strrchr(at, '/') ?: at) = '\0';
    }
}

static bool is_usable(const struct wb_mount *mount, const char *path, int64_t when)
{
    g_autofree char *source = NULL;
    int r = wb_moment_path(mount, path, when, &source);

    return r == 0 || r == -ENOENT;
}

int wb_moment_unknown(const struct wb_mount *mount, const char *path, int64_t when, int error, struct wb_error *why)
{
    char then[WB_WHEN_TEXT_MAX], since[WB_WHEN_TEXT_MAX] = "the beginning", until[WB_WHEN_TEXT_MAX];
    char epoch[WB_WHEN_TEXT_MAX], before[WB_WHEN_TEXT_MAX];
    g_autofree struct wb_control_version *gap = g_new(struct wb_control_version, 1);
    GString *usable;
    int64_t begin;

    if (error != -EIO || !find_gap(mount, path, when, gap))
        return wb_error_set(why, error, "%s", wb_errno_text(error));
    begin = (int64_t)gap->offset;
    if (begin > 0)
        wb_when_print(begin, 0, since);
    usable = g_string_new(NULL);
    if (begin > mount->hello.created && is_usable(mount, path, begin - 1))
        g_string_append_printf(usable, "; give a time before that (%s)", wb_when_print_epoch(begin - 1, before));
    if (!(gap->flags & WB_CONTROL_VERSION_OPEN) && is_usable(mount, path, gap->when))
        g_string_append_printf(usable, "%s %s or a later time", usable->len > 0 ? ", or" : "; give",
                               wb_when_print_epoch(gap->when, epoch));
    wb_error_set(why, error, "the state at %s is not known: the history has a gap from %s to %s%s%s%s%s",
                 wb_when_print(when, 0, then), since,
                 gap->flags & WB_CONTROL_VERSION_OPEN ? "now" : wb_when_print(gap->when, 0, until),
                 *gap->detail ? " (" : "", gap->detail, *gap->detail ? ")" : "", usable->str);
    g_string_free(usable, TRUE);
    return error;
}

/* Whether anything is, or ever was, under that name. */
static bool ever_was(const struct wb_mount *mount, const char *path)
{
    _cleanup_walk_ struct wb_version_walk *walk =
        wb_version_walk_new(mount->root_fd, path, 0, 0, 0);
    const struct wb_control_version *version;
    struct stat st;

    return fstatat(mount->root_fd, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) == 0 ||
           wb_version_walk_next(walk, &version) == 0;
}

int wb_moment_at(const struct wb_mount *mount, const char *path, int64_t when, struct wb_moment *ret,
                 struct wb_error *why)
{
    int r;

    *ret = (struct wb_moment){0};
    ret->when = when;
    r = wb_moment_path(mount, path, when, &ret->path);
    if (r == 0)
        r = wb_request_identify(mount->root_fd, ret->path, &ret->identity);
    if (r == -ENOENT) {
        g_clear_pointer(&ret->path, g_free);
        return ever_was(mount, path) ? 0 : wb_error_set(why, -ENOENT, NEVER_WAS);
    }
    return r == 0 ? 0 : wb_moment_unknown(mount, path, when, r, why);
}

int wb_moment_known(const struct wb_mount *mount, const char *text, int64_t when, struct wb_error *why)
{
    char then[WB_WHEN_TEXT_MAX], began[WB_WHEN_TEXT_MAX];
    int64_t created = mount->hello.created;

    if (when >= created)
        return 0;
    return wb_error_set(why, -ENODATA,
                        "%s (%s) is before the history begins; it begins at %s, so give begin or a later time",
                        text, wb_when_print(when, 0, then), wb_when_print(created, 0, began));
}

void wb_moment_clear(struct wb_moment *moment)
{
    g_clear_pointer(&moment->path, g_free);
    g_clear_pointer(&moment->label, g_free);
}

/* "begin" or "first": when the history began. False: another word. */
static bool is_begin(const struct wb_mount *mount, const char *text, struct wb_time *ret)
{
    if (g_ascii_strcasecmp(text, "begin") != 0 && g_ascii_strcasecmp(text, "first") != 0)
        return false;
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .instant = mount->hello.created};
    return true;
}

bool wb_time_today(const struct wb_mount *mount, const char *text, struct wb_time *ret)
{
    int64_t now = wb_mount_now(mount), created = mount->hello.created;

    if (g_ascii_strcasecmp(text, "today") != 0 || wb_time_parse_words(text, now, ret) != 0)
        return false;
    if (created <= now)
        ret->instant = MAX(ret->instant, created);
    return true;
}

int wb_time_find(const struct wb_mount *mount, const char *path, const char *text, struct wb_time *ret,
                 struct wb_control_snapshot **snapshot)
{
    g_autoptr(GPtrArray) found = NULL;
    g_autofree char *then = NULL;
    const struct wb_control_snapshot *meant;
    struct wb_control_identity identity;

    *snapshot = NULL;
    if (wb_time_today(mount, text, ret) || wb_time_parse_words(text, wb_mount_now(mount), ret) == 0)
        return 0;
    /* A daemon of before there were snapshots, or a mount without a history, has none. */
    if (wb_request_snapshot_list(mount->root_fd, path, text, &found) < 0 || found->len == 0)
        return is_begin(mount, text, ret) || wb_time_parse_free(text, wb_mount_now(mount), ret) == 0 ? 0 : -ENOENT;
    meant = wb_snapshot_meant(found);
    *ret = (struct wb_time){.kind = WB_TIME_INSTANT, .instant = meant->when};
    then = wb_moment_entry(mount, path, text);
    if (!(meant->flags & WB_CONTROL_SNAPSHOT_COVERS) &&
        wb_request_identify(mount->root_fd, then, &identity) == -ENOENT) {
        *snapshot = g_memdup2(meant, meant->size);
        return -ENODATA;
    }
    return 0;
}
