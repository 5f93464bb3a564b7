/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "source.h"
#include "client/control.h"
#include "client/fd.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/snapshots.h"
#include "wayback/at_name.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

void source_clear(struct source *source)
{
    source->place = wb_place_free(source->place);
    wb_moment_clear(&source->moment);
}

/* "dir/f" of "dir/f@TIME", "dir" of "dir/@TIME", with *time in `given`. g_free; NULL: no name with a mark. */
static char *without_time(const struct wb_place *place, const char **time)
{
    const char *given = place->given, *slash = strrchr(given, '/');
    const char *name = slash ? slash + 1 : given;
    size_t length;

    *time = wb_at_split(name, place->mount->at_sign, NULL);
    if (!*time || !**time)
        return NULL;
    length = (size_t)(*time - 1 - given);
    while (length > 1 && given[length - 1] == '/')
        length--;
    return length > 0 ? g_strndup(given, length) : g_strdup(".");
}

/* The kernel knows no such state: TIME is a form that only tools understand, or that state is not known. */
static int unknown_name(struct source *source, int error)
{
    const char *time = NULL;
    g_autofree char *path = error == -ENOENT || error == -EIO ? without_time(source->place, &time) : NULL;
    _cleanup_place_ struct wb_place *place = path ? wb_place_find(path, WB_MOUNT_READ) : NULL;
    struct wb_moment_options options = {.time = (char *)time, .change = WB_CHANGE_NONE, .name = "TIME"};
    g_autofree struct wb_control_snapshot *snapshot = NULL;
    struct wb_time instant;
    struct stat st;
    int r;

    if (!place || (wb_place_stat(place, &st) < 0 &&
                   wb_time_find(place->mount, place->path, time, &instant, &snapshot) < 0))
        return wb_cli_fail(source->place->given, "%s", wb_errno_text(error));
    r = wb_moment_resolve(place, &options, &source->moment);
    if (r == 0) {
        wb_place_free(source->place);
        source->place = g_steal_pointer(&place);
    }
    return r;
}

/* No time was given, and it does not exist now. */
static int gone(const struct wb_place *place, int error)
{
    static const struct wb_time newest = {.kind = WB_TIME_VERSION, .number = 1};
    _cleanup_moment_ struct wb_moment last = {0};
    struct wb_error why;

    if (error == -ENOENT && wb_moment_before(place->mount, place->path, &newest, &last, &why) < 0)
        return wb_cli_fail(place->given, "%s", why.text);
    return wb_cli_fail(place->given, "%s now; add @TIME, or --change 1 for the state before its last version",
                       wb_errno_text(error));
}

/* PATH may have its time in it: src@yesterday/lib. */
static int moment_in_path(struct source *source, bool present)
{
    struct wb_place *place = source->place;
    struct wb_moment *moment = &source->moment;
    struct stat st;
    int r = wb_place_stat(place, &st);

    if (r < 0 && present && wb_at_split(place->path, place->mount->at_sign, NULL) == NULL)
        return gone(place, r);
    if (r < 0)
        return unknown_name(source, r);
    if (!(st.st_ino & WB_PAST_INODE) && !present)
        return wb_cli_usage("the state is missing: use --time TIME or --change N ('%s' lists the versions)",
                            wb_cli_tool("vstat"));
    moment->path = g_strdup(place->path);
    source->present = !(st.st_ino & WB_PAST_INODE);
    if (source->present)
        return 0;
    source->in_path = true;
    r = wb_request_identify(place->mount->root_fd, place->path, &moment->identity);
    if (r < 0)
        return wb_cli_fail(place->given, "%s", wb_errno_text(r));
    moment->when = moment->identity.when;
    return 0;
}

int source_find(struct source *source, const char *path, const struct wb_moment_options *options, bool present)
{
    char when[WB_WHEN_TEXT_MAX];
    int r;

    *source = (struct source){.place = wb_place_find(path, WB_MOUNT_READ)};
    if (!source->place)
        return WB_EXIT_FAILED;
    if (options->time || options->change != WB_CHANGE_NONE)
        r = wb_moment_resolve(source->place, options, &source->moment);
    else
        r = moment_in_path(source, present);
    if (r != 0 || source->moment.path)
        return r;
    return wb_cli_fail(source->place->given, "did not exist at %s; '%s' shows when it did",
                       wb_when_print(source->moment.when, 1, when), wb_cli_tool("vstat"));
}

/* Whether the directory of PATH is of the past, too. */
static bool is_below_past(const struct wb_place *place)
{
    g_autofree char *parent = wb_path_parent(place->path, NULL);
    struct stat st;

    return fstatat(place->mount->root_fd, *parent ? parent : ".", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino & WB_PAST_INODE;
}

char *source_beside(const struct source *source)
{
    /* To the minute, to the second, and exactly. */
    static const size_t lengths[] = {16, 19, 29};
    const struct wb_place *place = source->place;
    const char *time, *name;
    g_autofree char *path = source->in_path ? without_time(place, &time) : g_strdup(place->given);
    char iso[WB_WHEN_TEXT_MAX];
    char *beside = NULL;
    struct stat st;

    name = path && strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (!path || (source->in_path && is_below_past(place))) {
        wb_cli_fail(place->given, "lies in a directory of the past; name the present path, and the time with --time");
        return NULL;
    }
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        wb_cli_fail(place->given, "has no name for a copy beside it; choose one with vextract -o");
        return NULL;
    }
    g_strdelimit((char *)wb_when_print_iso(source->moment.when, iso), ":", '.');
    for (unsigned i = 0; i < G_N_ELEMENTS(lengths); i++) {
        g_free(beside);
        beside = g_strdup_printf("%s.%.*s", path, (int)lengths[i], iso);
        if (lstat(beside, &st) < 0)
            return beside;
    }
    wb_cli_fail(beside, "exists, and has the name for this very state; choose another name with vextract -o");
    g_free(beside);
    return NULL;
}
