/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "client/control.h"
#include "client/fd.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/progress.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/*
 * vcompact: stores the history of the paths named in fewer bytes. The daemon does it, a log or a part of the store per
 * request, so that it can be interrupted; nothing that can be read changes.
 */

/* Limits of the wait for an erasure: microseconds, and how often. */
#define PAUSE 50000
#define TRIES 1200

static gboolean undo, stats, dry_run, json;
static char *before_text;
static int64_t before;

static const GOptionEntry options[] = {
    {"before", 0, 0, G_OPTION_ARG_STRING, &before_text, "Pack only history from before TIME", "TIME"},
    {"undo", 0, 0, G_OPTION_ARG_NONE, &undo, "Unpack packed history", NULL},
    {"stats", 0, 0, G_OPTION_ARG_NONE, &stats, "Only show how much is packed and what that saves", NULL},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vcompact",
    .arguments = "PATH...",
    .summary = "Packs (compresses) the history of files, of directories with everything below them, or,\n"
               "for the root of a mount, the whole history. No version changes.",
    .examples = "  vcompact ~/work              pack everything now instead of when it is idle\n"
                "  vcompact --before 4w .       pack only history older than that\n"
                "  vcompact --stats ~/work      show how much is packed and what that saves\n"
                "  vcompact --undo database     unpack it\n",
    .paths_min = 1,
};

struct sums {
    struct wb_control_compacted all;
    uint64_t failed;
};

static void add(struct sums *sums, const struct wb_control_compacted *one)
{
    sums->all.logs += one->logs;
    sums->all.changed += one->changed;
    sums->all.packed += one->packed;
    sums->all.old_size += one->old_size;
    sums->all.new_size += one->new_size;
    sums->all.length += one->length;
    sums->all.files += one->files;
    sums->all.files_changed += one->files_changed;
    sums->all.files_packed += one->files_packed;
    sums->all.files_old_size += one->files_old_size;
    sums->all.files_new_size += one->files_new_size;
    sums->all.files_length += one->files_length;
}

/* One request; *cursor moves on. 1: there is more to ask for, 0, -ECANCELED: it is to be asked again, or -errno. */
static int ask_once(const struct wb_place *place, const char *path, unsigned flags, uint64_t *cursor, struct sums *sums)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    const struct wb_control_compacted *reply = (const struct wb_control_compacted *)(const void *)request->data;
    int r = wb_request_prepare(request, WB_CONTROL_COMPACT, path);

    if (r < 0)
        return r;
    request->flags = flags | (undo ? WB_CONTROL_COMPACT_UNDO : 0) | (dry_run ? WB_CONTROL_COMPACT_DRY : 0) |
                     (stats ? WB_CONTROL_COMPACT_STATS : 0);
    request->until = before;
    request->cursor = *cursor;
    r = wb_request_call(place->mount->root_fd, request);
    if (r < 0)
        return r;
    add(sums, reply);
    /* An older daemon continued after the part that it aborted. */
    if (reply->error == ECANCELED && request->cursor == *cursor)
        return -ECANCELED;
    *cursor = request->cursor;
    if (reply->error) {
        sums->failed++;
        wb_cli_fail(place->given, "part of its history was not changed: %s", wb_errno_text((int)reply->error));
    }
    return request->count > 0;
}

/* As ask_once, but repeats a request that the daemon aborted because an erase has priority. */
static int ask(const struct wb_place *place, const char *path, unsigned flags, uint64_t *cursor, struct sums *sums)
{
    uint64_t changed = sums->all.changed;
    unsigned tries = 0;
    int r;

    while ((r = ask_once(place, path, flags, cursor, sums)) == -ECANCELED && tries++ < TRIES && !wb_cli_interrupted()) {
        if (sums->all.changed > changed)
            tries = 0;
        changed = sums->all.changed;
        g_usleep(PAUSE);
    }
    return r;
}

static void complain(const struct wb_place *place, const char *path, int error)
{
    g_autofree char *full = g_build_filename(place->mount->point, path, NULL);

    switch (-error) {
    case EPERM:
    case EACCES:
        wb_cli_fail(full, "not permitted: only the owner, root and the user who mounted may pack its history");
        break;
    case ECANCELED:
        if (!wb_cli_interrupted())
            wb_cli_fail(full, "stopped (other requests kept erasing history); run this again later");
        break;
    case EAGAIN:
        wb_cli_fail(full, "changes too fast to be packed now; run this again when it is idle");
        break;
    case EROFS:
        wb_cli_fail(full, "the mount is read-only; use a mount without -o ro");
        break;
    default:
        wb_cli_fail(full, "%s", wb_errno_text(error));
    }
}

/* A path and, of a directory, all below it. */
static void walk(const struct wb_place *place, int dir_fd, const char *name, const char *path, struct sums *sums)
{
    _cleanup_fd_ int fd = -1;
    g_autoptr(GPtrArray) names = NULL;
    uint64_t cursor = 0;
    struct stat st;
    int r;

    if (wb_cli_interrupted())
        return;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return;
    r = ask(place, path, 0, &cursor, sums);
    /* What has gone since the directory was read is not missing. */
    if (r < 0 && r != -ENOENT)
        complain(place, path, r);
    if (!S_ISDIR(st.st_mode))
        return;
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    names = fd < 0 ? NULL : wb_fd_names(fd);
    if (!names && errno != ENOENT)
        complain(place, path, -errno);
    for (guint i = 0; names && i < names->len; i++) {
        g_autofree char *below = g_build_filename(path, names->pdata[i], NULL);

        walk(place, fd, names->pdata[i], below, sums);
    }
}

static void report_json(const struct wb_place *place, const struct sums *sums)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", dry_run);
    wb_json_bool(builder, "undo", undo);
    wb_json_bool(builder, "stats", stats);
    wb_json_int(builder, "logs", (int64_t)sums->all.logs);
    wb_json_int(builder, "changed", (int64_t)sums->all.changed);
    wb_json_int(builder, "packed", (int64_t)sums->all.packed);
    wb_json_int(builder, "bytes_before", (int64_t)sums->all.old_size);
    wb_json_int(builder, "bytes_after", (int64_t)sums->all.new_size);
    wb_json_int(builder, "bytes_unpacked", (int64_t)sums->all.length);
    wb_json_int(builder, "files", (int64_t)sums->all.files);
    wb_json_int(builder, "files_changed", (int64_t)sums->all.files_changed);
    wb_json_int(builder, "files_packed", (int64_t)sums->all.files_packed);
    wb_json_int(builder, "files_bytes_before", (int64_t)sums->all.files_old_size);
    wb_json_int(builder, "files_bytes_after", (int64_t)sums->all.files_new_size);
    wb_json_int(builder, "files_bytes_unpacked", (int64_t)sums->all.files_length);
    json_builder_end_object(builder);
    wb_json_document(builder);
}

static void report(const struct wb_place *place, const struct sums *sums)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *files = wb_text_count(sums->all.files, "deleted file", "deleted files");
    g_autofree char *logs = wb_text_count(sums->all.logs, "log", "logs");
    char from[WB_TEXT_SIZE_MAX], to[WB_TEXT_SIZE_MAX];
    const char *verb = undo ? "unpacked" : "packed";

    if (json) {
        report_json(place, sums);
        return;
    }
    if (stats) {
        printf("%s: %s, %" PRIu64 " of them packed; %s, unpacked %s\n", name, logs, sums->all.packed,
               wb_text_size(sums->all.new_size, to), wb_text_size(sums->all.length, from));
        printf("%s: %s, %" PRIu64 " of them packed; %s, unpacked %s\n", name, files, sums->all.files_packed,
               wb_text_size(sums->all.files_new_size, to), wb_text_size(sums->all.files_length, from));
        return;
    }
    if (sums->all.files > 0)
        printf("%s: %s%" PRIu64 " of %s %s, %s -> %s\n", name, dry_run ? "would be: " : "", sums->all.files_changed,
               files, verb, wb_text_size(sums->all.files_old_size, from),
               wb_text_size(sums->all.files_new_size, to));
    printf("%s: %s%" PRIu64 " of %s %s, %s -> %s\n", name, dry_run ? "would be: " : "", sums->all.changed, logs, verb,
           wb_text_size(sums->all.old_size, from), wb_text_size(sums->all.new_size, to));
}

/* 0, or WB_EXIT_USAGE. */
static int compact_path(const char *path)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_WRITE);
    struct sums sums = {0};
    uint64_t cursor = 0;
    struct stat st;
    int r = 0;

    if (!place)
        return 0;
    if (before_text && wb_time_past(place, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    if (!*place->path && !*place->mount->prefix) {
        while (!wb_cli_interrupted() && (r = ask(place, "", WB_CONTROL_COMPACT_ALL, &cursor, &sums)) > 0)
            ;
        if (r < 0)
            complain(place, "", r);
    } else if (*place->path && wb_place_stat(place, &st) == 0) {
        walk(place, place->mount->root_fd, place->path, place->path, &sums);
    } else if (!*place->path) {
        walk(place, place->mount->root_fd, ".", "", &sums);
    } else {
        /* Gone: what is left of it is one log. */
        r = ask(place, place->path, 0, &cursor, &sums);
        if (r < 0) {
            complain(place, place->path, r);
            return 0;
        }
    }
    /* A part is no figure to show. */
    if (!wb_cli_interrupted() || !(dry_run || stats))
        report(place, &sums);
    return 0;
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (undo && stats)
        return wb_cli_usage("--undo and --stats exclude each other");
    if (undo && before_text)
        return wb_cli_usage("--undo and --before exclude each other");
    if (before_text && wb_time_past(NULL, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++) {
        wb_json_separate();
        if (compact_path(argv[i]) != 0)
            return WB_EXIT_USAGE;
    }
    wb_cli_stopped("%s", dry_run || stats ? "nothing was changed" : "run the same command again to finish");
    return wb_cli_end();
}
