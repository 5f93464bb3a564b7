/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/cli.h"
#include "common/control.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/text.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * vprune: forgets everything before a moment. The daemon does it, a part at each request, so that it can be
 * interrupted, and finished by doing it again. This program asks before, because nothing brings it back.
 */

static gboolean dry_run, yes, json;
static char *before_text;
static int64_t before;

static const GOptionEntry options[] = {
    {"before", 'b', 0, G_OPTION_ARG_STRING, &before_text, "Forget what was before TIME", "TIME"},
    WB_CLI_DRY_RUN(&dry_run),
    {"yes", 'y', 0, G_OPTION_ARG_NONE, &yes, "Do not ask", NULL},
    WB_CLI_JSON(&json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vprune",
    .arguments = "TREE...",
    .summary = "Forgets what a whole tree was before TIME, for good, and gives the room back. What it was\n"
               "at TIME and later stays as it is. Snapshots of earlier moments have to be deleted before.",
    .examples = "  vprune --before 90d ~/work       asks, then keeps the last 90 days\n"
                "  vprune -n --before 1y ~/work     only says what that would bring\n"
                "  vprune -y --before 2026-01-01 .  does not ask\n",
    .paths_min = 1,
    .path_word = "TREE",
};

struct sums {
    struct wb_control_pruned all;
};

static uint64_t bytes_of(const struct sums *sums)
{
    return sums->all.log_bytes + sums->all.image_bytes + sums->all.body_bytes;
}

static void add(struct sums *sums, const struct wb_control_pruned *one)
{
    sums->all.horizon = one->horizon;
    sums->all.snapshots = one->snapshots;
    memcpy(sums->all.snapshot, one->snapshot, sizeof(one->snapshot));
    sums->all.logs += one->logs;
    sums->all.changed += one->changed;
    sums->all.log_bytes += one->log_bytes;
    sums->all.image_bytes += one->image_bytes;
    sums->all.body_bytes += one->body_bytes;
    sums->all.bodies += one->bodies;
    sums->all.kept += one->kept;
    sums->all.permille = one->permille;
    if (one->error)
        sums->all.error = one->error;
}

/* How far it is: on a terminal only. */
static void show(const struct sums *sums, bool over)
{
    char bytes[WB_TEXT_SIZE_MAX];

    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K");
    if (!over)
        fprintf(stderr, "%s: %u%%, %s freed", wb_cli_name(), sums->all.permille / 10,
                wb_text_size(bytes_of(sums), bytes));
    fflush(stderr);
}

/* 0, or -errno. */
static int prune(const struct wb_place *place, struct sums *sums)
{
    g_autofree struct wb_control *request = g_new(struct wb_control, 1);
    const struct wb_control_pruned *reply = (const struct wb_control_pruned *)(const void *)request->data;
    uint64_t cursor = 0;
    int r;

    do {
        if (wb_cli_interrupted())
            return -ECANCELED;
        r = wb_control_prepare(request, WB_CONTROL_PRUNE, "");
        if (r < 0)
            return r;
        request->flags = dry_run ? WB_CONTROL_PRUNE_DRY : 0;
        request->until = before;
        request->cursor = cursor;
        r = wb_control_call(place->mount->root_fd, request);
        if (r < 0)
            break;
        add(sums, reply);
        cursor = request->cursor;
        show(sums, false);
    } while (request->count > 0);
    show(sums, true);
    return r;
}

static bool confirmed(const struct wb_place *place)
{
    g_autofree char *name = wb_text_printable(place->given);
    char answer[16] = "", text[WB_WHEN_TEXT_MAX];

    if (yes || dry_run)
        return true;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        wb_cli_fail(place->given, "not pruned: this cannot be undone, and there is no terminal to ask on; use -y");
        return false;
    }
    fprintf(stderr, "vprune: forget what %s was before %s? [y/N] ", name, wb_when_print(before, 0, text));
    if (!fgets(answer, sizeof(answer), stdin) || wb_cli_interrupted())
        answer[0] = '\0';
    if (g_ascii_tolower(answer[0]) == 'y')
        return true;
    wb_cli_fail(place->given, "not pruned");
    return false;
}

static void complain(const struct wb_place *place, int error)
{
    switch (-error) {
    case EPERM:
    case EACCES:
        wb_cli_fail(place->given, "not permitted: only root, and who mounted it, may prune a history");
        break;
    case ECANCELED:
    case EINTR:
        wb_cli_fail(place->given, "given up: interrupted, or begun anew by somebody else; do it again to finish");
        break;
    case EBUSY:
        wb_cli_fail(place->given, "is being pruned just now");
        break;
    case EROFS:
        wb_cli_fail(place->given, "is read-only; use a mount without -o ro");
        break;
    case ENOTTY:
    case EINVAL:
        wb_cli_fail(place->given, "cannot be pruned before that moment, or its daemon is too old");
        break;
    default:
        wb_cli_fail(place->given, "%s; do it again to finish", wb_cli_errno(error));
    }
}

static void report_json(const struct wb_place *place, const struct sums *sums)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", dry_run);
    wb_json_when(builder, sums->all.horizon);
    wb_json_int(builder, "logs", (int64_t)sums->all.logs);
    wb_json_int(builder, "changed", (int64_t)sums->all.changed);
    wb_json_int(builder, "deleted", (int64_t)sums->all.bodies);
    wb_json_int(builder, "bytes_logs", (int64_t)sums->all.log_bytes);
    wb_json_int(builder, "bytes_images", (int64_t)sums->all.image_bytes);
    wb_json_int(builder, "bytes_deleted", (int64_t)sums->all.body_bytes);
    wb_json_int(builder, "bytes", (int64_t)bytes_of(sums));
    wb_json_int(builder, "kept", (int64_t)sums->all.kept);
    wb_json_int(builder, "snapshots", (int64_t)sums->all.snapshots);
    json_builder_end_object(builder);
    wb_json_print(stdout, builder);
    putchar('\n');
}

static void report(const struct wb_place *place, const struct sums *sums)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *files = wb_text_count(sums->all.bodies, "deleted file", "deleted files");
    g_autofree char *logs = wb_text_count(sums->all.changed, "log", "logs");
    char bytes[WB_TEXT_SIZE_MAX], text[WB_WHEN_TEXT_MAX];

    if (json)
        report_json(place, sums);
    else if (sums->all.snapshots == 0)
        printf("%s: history %s at %s; %s %s (%s, %s)\n", name, dry_run ? "would begin" : "begins",
               wb_when_print(sums->all.horizon, 0, text), wb_text_size(bytes_of(sums), bytes),
               dry_run ? "would be freed" : "freed", logs, files);
    if (sums->all.snapshots > 0) {
        g_autofree char *oldest = wb_text_printable(sums->all.snapshot);
        g_autofree char *count = wb_text_count(sums->all.snapshots, "snapshot is", "snapshots are");

        wb_cli_fail(place->given, "not pruned: %s of earlier moments (the oldest: %s); delete them (vsnap delete), or "
                    "choose an earlier TIME", count, oldest);
    } else if (sums->all.kept > 0) {
        wb_cli_fail(place->given, "%" PRIu64 " logs or deleted files were left as they are: %s; see vfsck, and do it "
                    "again", sums->all.kept, wb_cli_errno((int)sums->all.error));
    }
}

static void prune_tree(const char *path)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_WRITE);
    struct sums sums = {0};
    int r;

    if (!place)
        return;
    if (*place->path || *place->mount->prefix) {
        wb_cli_fail(path, "is a part of a tree; only the history of all of it can be pruned: name its root");
        return;
    }
    if (!confirmed(place))
        return;
    r = prune(place, &sums);
    if (r < 0)
        complain(place, r);
    else
        report(place, &sums);
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (!before_text)
        return wb_cli_usage("--before TIME: from when on is history to be kept?");
    if (wb_cli_past("--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++)
        prune_tree(argv[i]);
    return wb_cli_end();
}
