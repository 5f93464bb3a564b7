/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vprune.h"
#include "common/cli.h"
#include "client/control.h"
#include "common/json.h"
#include "common/mount.h"
#include "common/snapshots.h"
#include "common/text.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * vprune: forgets everything before a moment, or single versions of files (thin.c). The daemon does it, a part at each
 * request, so that it can be interrupted, and finished by doing it again. This program asks before, because nothing
 * brings it back.
 */

gboolean vprune_dry_run, vprune_yes, vprune_json;
static char *before_text;
static int64_t before;
static struct vprune_policy policy;

static const GOptionEntry options[] = {
    {"before", 0, 0, G_OPTION_ARG_STRING, &before_text, "Delete all history before TIME", "TIME"},
    {"keep", 0, 0, G_OPTION_ARG_STRING, &policy.keep,
     "Keep versions that were replaced less than AGE ago", "AGE"},
    {"thin", 0, 0, G_OPTION_ARG_STRING, &policy.thin,
     "Of older versions, keep the last of each STEP for SPAN", "STEP:SPAN ..."},
    {"keep-versions", 0, 0, G_OPTION_ARG_STRING, &policy.versions,
     "Keep at least the newest MIN, and at most MAX of those that no other rule keeps", "MIN..MAX"},
    {"pattern", 0, 0, G_OPTION_ARG_STRING_ARRAY, &policy.patterns,
     "Only files below PATH that match GLOB (as in .gitignore)", "GLOB"},
    {"policy", 0, 0, G_OPTION_ARG_NONE, &policy.from_file, "Use the rules of wayback.conf", NULL},
    WB_CLI_DRY_RUN(&vprune_dry_run),
    {"yes", 'y', 0, G_OPTION_ARG_NONE, &vprune_yes, "Do not ask", NULL},
    WB_CLI_JSON(&vprune_json),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vprune",
    .arguments = "PATH...",
    .summary = "Deletes history permanently and frees its space: the history of a whole tree before TIME\n"
               "(--before), or single versions of files, with rules as in wayback.conf(5). Kept states do not\n"
               "change; at the time of a deleted version, the one before it is shown. States that snapshots\n"
               "show are kept.",
    .examples = "  vprune --before 90d ~/work           ask, then keep only the last 90 days\n"
                "  vprune -n --before 1y ~/work         only show how much space it would free\n"
                "  vprune --thin '1h:2d 1d:30d' ~/work  keep one version per hour for 2 days, per day for 30\n"
                "  vprune --keep-versions ..20 a.log    keep the newest 20 versions of a file\n"
                "  vprune --keep 7d --pattern '*.o' .   object files: keep versions replaced in the last week\n"
                "  vprune -y --policy ~/work            apply the rules of wayback.conf now\n",
    .paths_min = 1,
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

void vprune_show(uint32_t permille, uint64_t bytes, bool over)
{
    char text[WB_TEXT_SIZE_MAX];

    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r\033[K");
    if (!over)
        fprintf(stderr, "%s: %u%%, %s %s", wb_cli_name(), permille / 10, wb_text_size(bytes, text),
                vprune_dry_run ? "would be freed" : "freed");
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
        r = wb_request_prepare(request, WB_CONTROL_PRUNE, "");
        if (r < 0)
            return r;
        request->flags = vprune_dry_run ? WB_CONTROL_PRUNE_DRY : 0;
        request->until = before;
        request->cursor = cursor;
        r = wb_request_call(place->mount->root_fd, request);
        if (r < 0)
            break;
        add(sums, reply);
        cursor = request->cursor;
        vprune_show(sums->all.permille, bytes_of(sums), false);
    } while (request->count > 0);
    vprune_show(0, 0, true);
    return r;
}

bool vprune_confirmed(const struct wb_place *place, const char *question)
{
    return vprune_yes || vprune_dry_run || wb_cli_confirm(place->given, question, "not pruned");
}

void vprune_complain(const struct wb_place *place, int error)
{
    switch (-error) {
    case EPERM:
    case EACCES:
        wb_cli_fail(place->given, "not permitted: only root and the user who mounted may prune history");
        break;
    case EREMOTE:
        wb_cli_fail(place->given, "%s", wb_errno_text(error));
        break;
    case ECANCELED:
    case EINTR:
        if (!wb_cli_interrupted())
            wb_cli_fail(place->given, "stopped (another process began to prune it); run this again to finish");
        break;
    case EBUSY:
        wb_cli_fail(place->given, "another process is pruning it; run this again later");
        break;
    case EROFS:
        wb_cli_fail(place->given, "the mount is read-only; use a mount without -o ro");
        break;
    case ENOTTY:
    case EINVAL:
        wb_cli_fail(place->given, "history before that time cannot be pruned, or the daemon is too old");
        break;
    default:
        wb_cli_fail(place->given, "%s; run this again to finish", wb_errno_text(error));
    }
}

static void report_json(const struct wb_place *place, const struct sums *sums)
{
    g_autoptr(JsonBuilder) builder = json_builder_new();

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", place->given);
    wb_json_bool(builder, "dry_run", vprune_dry_run);
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
    wb_json_document(builder);
}

static void report(const struct wb_place *place, const struct sums *sums)
{
    g_autofree char *name = wb_text_printable(place->given);
    g_autofree char *files = wb_text_count(sums->all.bodies, "deleted file", "deleted files");
    g_autofree char *logs = wb_text_count(sums->all.changed, "log", "logs");
    char bytes[WB_TEXT_SIZE_MAX], text[WB_WHEN_TEXT_MAX];

    if (!vprune_json && sums->all.snapshots == 0)
        printf("%s: history %s at %s; %s %s (%s, %s)\n", name, vprune_dry_run ? "would begin" : "begins",
               wb_when_print(sums->all.horizon, 0, text), wb_text_size(bytes_of(sums), bytes),
               vprune_dry_run ? "would be freed" : "freed", logs, files);
    if (sums->all.snapshots > 0) {
        g_autofree char *oldest = wb_text_printable(sums->all.snapshot);
        g_autofree char *count = wb_text_count(sums->all.snapshots, "snapshot is", "snapshots are");

        wb_cli_fail(place->given, "not pruned: %s of earlier times (the oldest: %s); delete them (%s delete), or "
                    "choose an earlier TIME", count, oldest, wb_cli_tool("vsnap"));
    } else if (sums->all.kept > 0) {
        wb_cli_fail(place->given, "%" PRIu64 " logs or deleted files could not be pruned: %s; run %s, then run this "
                    "again", sums->all.kept, wb_errno_text((int)sums->all.error), wb_cli_tool("vfsck"));
    }
    /* With these errors. */
    if (vprune_json)
        report_json(place, sums);
}

/* g_free. */
static char *question_of(const struct wb_place *place)
{
    g_autofree char *name = wb_text_printable(place->given);
    char text[WB_WHEN_TEXT_MAX];

    return g_strdup_printf("delete the history of %s before %s", name, wb_when_print(before, 0, text));
}

/* 0, or WB_EXIT_USAGE. */
static int prune_tree(const char *path)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, WB_MOUNT_WRITE);
    struct sums sums = {0};
    g_autofree char *question = NULL;
    int r;

    if (!place)
        return 0;
    if (*place->path || *place->mount->prefix) {
        g_autofree char *text = wb_text_shell(before_text), *word = wb_text_shell(path);

        wb_cli_fail(path, "--before works on whole trees (root: %s). For one path: wayback rm --before %s %s",
                    *place->mount->prefix ? place->mount->hello.source : place->mount->point, text, word);
        return 0;
    }
    if (wb_time_past(place, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    question = question_of(place);
    if (!vprune_confirmed(place, question))
        return 0;
    r = prune(place, &sums);
    if (r < 0)
        vprune_complain(place, r);
    else
        report(place, &sums);
    return 0;
}

int main(int argc, char **argv)
{
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (!before_text == !vprune_says_something(&policy))
        return wb_cli_usage(before_text ? "--before cannot be combined with --keep, --thin, --keep-versions, --pattern "
                                          "or --policy"
                                        : "use --before TIME, or one of --keep, --thin, --keep-versions, --policy");
    if (!before_text && vprune_policy_check(&policy) != 0)
        return WB_EXIT_USAGE;
    if (before_text && wb_time_past(NULL, "--before", before_text, &before) != 0)
        return WB_EXIT_USAGE;
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++) {
        wb_json_separate();
        if (before_text)
            r = prune_tree(argv[i]);
        else
            r = vprune_thin(argv[i], &policy);
        if (r == WB_EXIT_USAGE)
            return r;
    }
    wb_cli_stopped("%s", vprune_dry_run ? "nothing was changed" : "run the same command again to finish");
    return wb_cli_end();
}
