/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vundo.h"
#include "overlap.h"
#include "client/past_path.h"
#include "client/path.h"
#include "common/cli.h"
#include "common/progress.h"
#include "common/revert_report.h"
#include "common/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Overlaps that are printed one by one. */
#define SHOWN_MAX 10

/* What a restore changed, seen at the time before it. */
struct inversion {
    const struct vundo *vundo;
    const struct restore *restore;
    struct wb_place top;
    struct wb_moment then;
    struct revert_set *set;
};

static void inversion_end(struct inversion *inversion)
{
    g_free(inversion->top.given);
    wb_moment_clear(&inversion->then);
    if (inversion->set)
        wb_revert_set_free(inversion->set);
}

/* 0, or WB_EXIT_FAILED after an error line. */
static int inversion_begin(struct inversion *inversion, const struct vundo *vundo, const struct restore *restore)
{
    const struct wb_mount *mount = vundo->place->mount;
    char id[WB_WHEN_TEXT_MAX];
    struct wb_error why;
    int r;

    *inversion = (struct inversion){.vundo = vundo, .restore = restore};
    inversion->top = (struct wb_place){.mount = vundo->place->mount, .path = restore->top};
    inversion->top.given = vundo_shown(vundo, restore->top);
    if (restore->outside)
        return wb_cli_fail(inversion->top.given, "the restore changed names outside of %s, where you may not look; ask "
                                                 "a user who may", mount->point);
    r = wb_moment_known(mount, restore_id(restore, id), restore->first - 1, &why);
    if (r == 0)
        r = wb_moment_at(mount, restore->top, restore->first - 1, &inversion->then, &why);
    if (r == 0 && !inversion->then.path && !*restore->top)
        return wb_cli_fail(inversion->top.given, "the tree did not exist before that restore");
    if (r < 0)
        return wb_cli_fail(inversion->top.given, "%s", why.text);
    inversion->set = wb_revert_set_new();
    wb_revert_set_add(inversion->set, restore->top);
    return WB_EXIT_OK;
}

static struct revert_request request_of(const struct inversion *inversion, bool dry,
                                        const struct revert_listener *listener)
{
    const struct restore *restore = inversion->restore;

    return (struct revert_request){.mount = inversion->top.mount, .path = restore->top,
                                   .source = inversion->then.path, .when = inversion->then.when,
                                   .set = inversion->set, .dry = dry, .sync = inversion->vundo->sync,
                                   .all_links = strstr(restore_base(restore)->command, " --all-links"),
                                   .listener = listener, .extent = wb_changed_extent,
                                   .extent_data = restore->paths};
}

struct remaining {
    const struct inversion *inversion;
    const struct wb_changed *covered; /* paths that others changed since then */
    uint64_t actions;
};

/* Attributes that cannot be set now could not be set then: for a user, those of others, and the owner of a file. */
static bool can_set(const struct inversion *inversion, const char *path)
{
    const struct wb_mount *mount = inversion->top.mount;
    g_autofree char *source = NULL;
    struct stat now, then;

    if (geteuid() == 0)
        return true;
    return wb_moment_path(mount, path, inversion->then.when, &source) == 0 &&
           fstatat(mount->root_fd, *path ? path : ".", &now, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(mount->root_fd, source, &then, AT_SYMLINK_NOFOLLOW) == 0 && now.st_uid == geteuid() &&
           now.st_uid == then.st_uid && now.st_gid == then.st_gid;
}

static void count_remaining(void *data, const struct revert_event *event)
{
    struct remaining *remaining = data;

    if (event->kind == REVERT_EVENT_ACTION &&
        wb_changed_extent(remaining->covered, event->path) != REVERT_ITSELF &&
        (event->action != REVERT_SET || can_set(remaining->inversion, event->path)))
        remaining->actions++;
}

bool is_unfinished(const struct vundo *vundo, struct restore *restore)
{
    struct wb_changed *covered = wb_changed_new();
    struct inversion inversion;
    struct remaining remaining = {&inversion, covered, 0};
    struct revert_listener listener = {.event = count_remaining, .data = &remaining};
    g_autoptr(GPtrArray) later = NULL;
    struct revert_request request;
    struct revert_result result = {.interrupted = false};
    bool known;
    int error;

    restore_find_links(vundo->place->mount, restore);
    later = overlaps_find(vundo->place->mount, vundo->restores, restore, covered, &error);
    known = later != NULL;
    /* Which paths a change by another name, or one that was not recorded, concerns is not known. */
    for (guint i = 0; known && i < later->len; i++) {
        const struct overlap *overlap = later->pdata[i];

        known = !overlap->by_object && !overlap->gap;
    }
    if (known && inversion_begin(&inversion, vundo, restore) == WB_EXIT_OK) {
        request = request_of(&inversion, true, &listener);
        wb_revert_run(&request, &result);
    }
    if (known)
        inversion_end(&inversion);
    wb_changed_free(covered);
    return known && remaining.actions > 0 && !result.interrupted;
}

/* ---- later changes -------------------------------------------------------------------------------- */

static void report_overlap(const struct vundo *vundo, const struct overlap *overlap)
{
    g_autofree char *shown = vundo_shown(vundo, overlap->path);
    char time[WB_WHEN_TEXT_MAX];

    wb_text_time(overlap->when, false, time);
    if (overlap->gap)
        wb_cli_fail(shown, "may have changed since (nothing was recorded until %s); --force overwrites that", time);
    else
        wb_cli_fail(shown, "changed since (%s, %s by %s: %s); --force overwrites that", time, overlap->op,
                    wb_text_user(overlap->uid), *overlap->command ? overlap->command : "unknown command");
}

/* 0, or WB_EXIT_FAILED after error lines. */
static int check_overlaps(const struct vundo *vundo, const struct restore *restore)
{
    g_autoptr(GPtrArray) found = NULL;
    int error;

    if (vundo->force)
        return WB_EXIT_OK;
    found = overlaps_find(vundo->place->mount, vundo->restores, restore, NULL, &error);
    if (!found)
        return error == -EINTR ? WB_EXIT_FAILED : wb_cli_fail(vundo->place->given, "%s", wb_errno_text(error));
    for (guint i = 0; i < MIN(found->len, SHOWN_MAX); i++)
        report_overlap(vundo, found->pdata[i]);
    if (found->len > SHOWN_MAX)
        wb_cli_fail(NULL, "%u more paths changed since", found->len - SHOWN_MAX);
    if (found->len == 0)
        return WB_EXIT_OK;
    wb_cli_warn(NULL, "nothing was changed");
    return WB_EXIT_FAILED;
}

/* ---- doing it -------------------------------------------------------------------------------------- */

static void announce(const struct vundo *vundo, const struct restore *restore)
{
    g_autofree char *command = wb_text_printable(restore->command);
    char time[WB_WHEN_TEXT_MAX];

    if (!vundo->json)
        printf("%s%s of %s: %s\n", vundo->dry ? "would take back the " : "taking back the ",
               restore_depth(restore) % 2 ? "undo" : "restore", wb_text_time(restore->first, false, time), command);
}

/* The command that takes this undo or redo back; g_free. */
static char *reverse_of(const struct inversion *inversion)
{
    bool is_undo = restore_depth(inversion->restore) % 2 == 0;
    const struct wb_place *place = inversion->vundo->place;
    bool is_in_reach = wb_path_below(inversion->top.path, place->path, NULL);
    g_autofree char *quoted = wb_text_shell(is_in_reach ? place->given : inversion->top.given);

    return g_strdup_printf("%s %s", wb_cli_tool(is_undo ? "vundo --redo" : "vundo"), quoted);
}

void invert(const struct vundo *vundo, struct restore *restore)
{
    g_autofree char *reverse = NULL;
    char id[WB_WHEN_TEXT_MAX];
    struct inversion inversion;
    struct wb_revert_report report = {.dry = vundo->dry, .json = vundo->json,
                                      .verbose = vundo->verbose || vundo->dry, .op = restore_id(restore, id)};
    struct revert_listener listener = {.event = wb_revert_report_event, .data = &report};
    struct revert_request request;
    struct revert_result result;

    restore_find_links(vundo->place->mount, restore);
    if (check_overlaps(vundo, restore) != WB_EXIT_OK)
        return;
    if (inversion_begin(&inversion, vundo, restore) == WB_EXIT_OK) {
        request = request_of(&inversion, vundo->dry, &listener);
        report.reverse = reverse = reverse_of(&inversion);
        report.reverse_word = restore_depth(restore) % 2 ? "undo" : "redo";
        report.place = &inversion.top;
        report.when = inversion.then.when;
        announce(vundo, restore);
        /* Files may change while the question waits for its answer. */
        if (!vundo->ask ||
            (wb_revert_confirm(&report, &request) && check_overlaps(vundo, restore) == WB_EXIT_OK)) {
            wb_revert_report_begin(&report);
            wb_progress_begin();
            wb_revert_run(&request, &result);
            wb_progress_clear();
            if (vundo->json || !vundo->dry || !wb_cli_interrupted())
                wb_revert_report_end(&report, &result, 0);
            g_object_unref(report.builder);
        }
    }
    wb_cli_stopped(vundo->dry ? "nothing was changed" : "run the same command again to finish");
    inversion_end(&inversion);
}
