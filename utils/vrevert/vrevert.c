/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "revert.h"
#include "common/cli.h"
#include "common/fd.h"
#include "common/moment.h"
#include "common/path.h"
#include "common/progress.h"
#include "common/snapshots.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/*
 * vrevert: makes a file, or a directory with all below it, what it was at a moment. revert.h says
 * how.
 */

static struct wb_moment_options moment_options = {.change = WB_CHANGE_NONE};
static gboolean dry_run, json, verbose, no_sync, all_links;

static const GOptionEntry options[] = {
    {"time", 't', 0, G_OPTION_ARG_STRING, &moment_options.time, "Revert to the state at TIME", "TIME"},
    {"change", 'c', 0, G_OPTION_ARG_INT, &moment_options.change,
     "Revert to the state before the N-th most recent change (1 is the last; see vstat)", "N"},
    {"all-links", 0, 0, G_OPTION_ARG_NONE, &all_links,
     "Change files with several names in place, which changes names outside PATH, too", NULL},
    {"no-sync", 0, 0, G_OPTION_ARG_NONE, &no_sync, "Do not wait until the changes are on stable storage", NULL},
    WB_CLI_DRY_RUN(&dry_run),
    WB_CLI_JSON(&json),
    WB_CLI_VERBOSE(&verbose, "Print each action"),
    WB_CLI_END,
};

static const struct wb_cli cli = {
    .name = "vrevert",
    .arguments = "PATH...",
    .summary = "Reverts files, and directories with everything below them, to a past state: content, names\n"
               "and attributes. Later changes are kept in the history; a revert can be reverted.",
    .examples = "  vrevert report.txt --change 1         undo the last change\n"
                "  vrevert src --time 14:03 -n           list what would be done\n"
                "  vrevert src --time \"2 hours ago\"      do it\n"
                "  vrevert deleted.txt --time yesterday  restore a deleted file\n"
                "  vrevert *.c doc --time 10m            several paths, all to the same time\n",
    .paths_min = 1,
};

static bool wrong_usage; /* found out only when a PATH was looked at */
static unsigned reports; /* begun */
static unsigned paths_done;

/* One PATH, looked at before anything is changed. */
struct request {
    struct wb_place *place;
    struct wb_moment moment;
    struct revert_set *set;
};

static void request_free(void *data)
{
    struct request *request = data;

    wb_place_free(request->place);
    wb_moment_clear(&request->moment);
    g_free(request);
}

/* A directory above PATH that is gone and had to come back first. */
struct parent {
    char *path, *source;
    struct stat brought;
};

static void parent_free(void *data)
{
    struct parent *parent = data;

    g_free(parent->path);
    g_free(parent->source);
    g_free(parent);
}

static int bring_parent(struct revert *revert, struct parent *parent)
{
    int root = revert->place->mount->root_fd;
    struct revision revision = {.source = parent->source, .path = parent->path, .found_dir = -1};
    _cleanup_fd_ int past_dir = wb_fd_open_parent(root, parent->source, &revision.past_name);
    _cleanup_fd_ int dir = wb_fd_open_parent(root, parent->path, &revision.name);
    int r;

    if (past_dir < 0)
        return past_dir;
    revision.past_dir = past_dir;
    revision.dir = dir;
    r = revert_look(revert, &revision);
    if (r == 0)
        r = revert_bring(revert, &revision);
    parent->brought = revision.have;
    revert_leave(&revision);
    return r;
}

/* Restores deleted directories above PATH, without their other entries. Returns 0, or -errno after an error line. */
static int bring_parents(struct revert *revert, GPtrArray *parents)
{
    const char *path = revert->place->path;

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        struct parent *parent;
        struct stat st;
        g_autofree char *prefix = g_strndup(path, (gsize)(slash - path));
        int r;

        if (fstatat(revert->place->mount->root_fd, prefix, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            if (S_ISDIR(st.st_mode))
                continue;
            revert->failed++;
            wb_cli_fail(revert->place->given, "%s is not a directory now; revert that first", prefix);
            return -ENOTDIR;
        }
        parent = g_new0(struct parent, 1);
        g_ptr_array_add(parents, parent);
        parent->path = g_steal_pointer(&prefix);
        r = wb_moment_path(revert->place->mount, parent->path, revert->when, &parent->source);
        if (r == 0)
            r = bring_parent(revert, parent);
        if (r < 0) {
            revert_fail(revert, parent->path, "cannot be restored", r);
            return r;
        }
    }
    return 0;
}

static void finish_parents(struct revert *revert, const GPtrArray *parents)
{
    int root = revert->place->mount->root_fd;

    for (guint i = revert->dry ? 0 : parents->len; i-- > 0;) {
        const struct parent *parent = parents->pdata[i];
        struct revision revision = {.path = parent->path};
        _cleanup_fd_ int past_dir = wb_fd_open_parent(root, parent->source, &revision.past_name);
        _cleanup_fd_ int dir = wb_fd_open_parent(root, parent->path, &revision.name);
        _cleanup_fd_ int held = dir < 0 ? -1 : wb_hold(dir, revision.name, &parent->brought);

        revision.past_dir = past_dir;
        if (past_dir < 0 || held < 0 || fstatat(past_dir, revision.past_name, &revision.want, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        revert_directory_attrs(revert, &revision, held);
        revert_sync(revert, dir, revision.name);
    }
}

/* Restores the state of PATH, which existed then. */
static void revert_to(struct revert *revert, const char *source)
{
    int root = revert->place->mount->root_fd;
    g_autoptr(GPtrArray) parents = g_ptr_array_new_with_free_func(parent_free);
    g_autofree char *parent_path = wb_path_parent(revert->place->path, NULL);
    struct revision revision = {.source = source, .path = revert->place->path, .found_dir = -1};
    _cleanup_fd_ int past_dir = -1;
    _cleanup_fd_ int dir = -1;
    int r = bring_parents(revert, parents);

    if (r < 0)
        return;
    past_dir = wb_fd_open_parent(root, source, &revision.past_name);
    dir = wb_fd_open_parent(root, revert->place->path, &revision.name);
    if (past_dir < 0 || (dir < 0 && !revert->dry)) {
        revert_fail(revert, revert->place->path, NULL, past_dir < 0 ? past_dir : dir);
        return;
    }
    revision.past_dir = past_dir;
    revision.dir = dir < 0 ? -1 : dir;
    r = revert_walk(revert, &revision);
    if (r == 0)
        r = revert_sweep(revert, &revision);
    if (r == 0 && dir >= 0 && *revert->place->path)
        r = revert_sweep_beside(revert, dir, parent_path);
    if (r == 0)
        r = revert_sweep_aside(revert);
    if (r == 0)
        finish_parents(revert, parents);
    if (dir >= 0)
        revert_sync(revert, dir, ".");
    if (revert->unplaced > 0 && !revert->dry)
        wb_cli_warn(revert->place->given, "some entries could not be restored, so nothing was removed; fix the errors "
                                          "above and run this again");
}

/* Removes PATH, which did not exist then. */
static void revert_to_nothing(struct revert *revert)
{
    const char *name;
    _cleanup_fd_ int dir = wb_fd_open_parent(revert->place->mount->root_fd, revert->place->path, &name);

    if (dir < 0)
        return;
    if (revert_remove(revert, dir, name, revert->place->path) == 0 && revert->sync && !revert->dry) {
        _cleanup_fd_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
            fsync(fd);
    }
}

void revert_aside_prefix(const char *path, char prefix[REVERT_ASIDE_MAX])
{
    snprintf(prefix, REVERT_ASIDE_MAX, ".vrevert-%08x-", g_str_hash(path));
}

static void begin(struct revert *revert, struct wb_place *place, int64_t when)
{
    revert->place = place;
    revert->when = when;
    revert->dry = dry_run;
    revert->json = json;
    revert->verbose = verbose || dry_run;
    revert->sync = !no_sync;
    revert->touched = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->walked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    revert->moved = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->done = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->aside_of = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    revert->broken = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    revert->all_links = all_links;
    revert->builder = json_builder_new();
    revert_aside_prefix(place->path, revert->aside);
}

static void end(struct revert *revert)
{
    g_hash_table_unref(revert->touched);
    if (revert->directories)
        g_hash_table_unref(revert->directories);
    g_hash_table_unref(revert->walked);
    g_hash_table_unref(revert->moved);
    g_hash_table_unref(revert->done);
    g_hash_table_unref(revert->aside_of);
    g_hash_table_unref(revert->broken);
    g_object_unref(revert->builder);
}

/* Whether --time is a time, and not the name of a snapshot. */
static bool is_time(const struct wb_place *place, const char *given, struct wb_time *ret)
{
    const char *text = wb_time_text(place, given);
    g_autoptr(GPtrArray) found = NULL;

    if (wb_time_parse_words(text, wb_control_now(), ret) == 0)
        return true;
    return wb_time_parse_free(text, wb_control_now(), ret) == 0 &&
           (wb_snapshot_list(place->mount->root_fd, place->path, text, &found) < 0 || found->len == 0);
}

/* An age means one instant for all, however long the first of them takes. */
static void fix_time(const struct wb_place *place)
{
    static bool fixed;
    char text[WB_WHEN_TEXT_MAX];
    struct wb_time time;

    if (!fixed && moment_options.time && is_time(place, moment_options.time, &time) &&
        time.kind == WB_TIME_INSTANT && time.instant <= wb_control_now()) {
        moment_options.shown = moment_options.time;
        moment_options.time = g_strdup(wb_when_print_epoch(time.instant, text));
    }
    fixed = true;
}

/* Finds PATH and the moment. 0, or the exit status after an error line. */
static int look_for(const char *path, GPtrArray *requests)
{
    _cleanup_place_ struct wb_place *place = wb_place_find(path, dry_run ? WB_MOUNT_READ : WB_MOUNT_WRITE);
    _cleanup_moment_ struct wb_moment moment = {0};
    struct request *request;
    struct stat st;
    int r;

    if (!place)
        return WB_EXIT_FAILED;
    if (wb_place_stat(place, &st) == 0 && (st.st_ino & WB_PAST_INODE))
        return wb_cli_fail(path, "is a past state, which cannot change; name the present path and give the time with "
                                 "--time");
    fix_time(place);
    r = wb_moment_resolve(place, &moment_options, &moment);
    if (r == 0 && !moment.path && !*place->path)
        r = wb_cli_fail(path, "did not exist then; give a later time");
    if (r != 0)
        return r;
    request = g_new0(struct request, 1);
    request->place = g_steal_pointer(&place);
    request->moment = moment;
    moment = (struct wb_moment){0};
    g_ptr_array_add(requests, request);
    return 0;
}

/* PATHs of one mount that are reverted to the same time are one set. */
static GPtrArray *make_sets(const GPtrArray *requests)
{
    GPtrArray *sets = g_ptr_array_new_with_free_func(revert_set_free);

    for (guint i = 0; i < requests->len; i++) {
        struct request *request = requests->pdata[i];

        for (guint j = 0; j < i && !request->set; j++) {
            const struct request *other = requests->pdata[j];

            if (other->place->mount == request->place->mount && other->moment.when == request->moment.when)
                request->set = other->set;
        }
        if (!request->set) {
            request->set = revert_set_new();
            g_ptr_array_add(sets, request->set);
        }
        revert_set_add(request->set, request->place->path);
    }
    return sets;
}

static void run(const struct request *request)
{
    struct wb_place *place = request->place;
    const struct wb_moment *moment = &request->moment;
    struct wb_control_hello hello;
    struct revert revert = {.set = request->set, .source = moment->path};
    int64_t before;

    /* After all that was changed so far, and before what follows. */
    if (wb_control_hello(place->mount->root_fd, &hello) < 0) {
        wb_cli_fail(place->given, "the daemon does not answer");
        return;
    }
    before = wb_control_now();
    begin(&revert, place, moment->when);
    if (json && reports++ > 0)
        putchar(',');
    revert_report_begin(&revert);
    wb_progress_begin();
    if (moment->path)
        revert_to(&revert, moment->path);
    else
        revert_to_nothing(&revert);
    wb_progress_clear();
    if (!moment->path && !json && revert.counts[REVERT_REMOVE] > 0)
        printf("%s did not exist then and %s removed\n", place->given, dry_run ? "would be" : "was");
    /* An incomplete dry run is not printed. */
    if (json || !dry_run || !wb_cli_interrupted())
        revert_report_end(&revert, before);
    if (!wb_cli_interrupted())
        paths_done++;
    end(&revert);
}

int main(int argc, char **argv)
{
    g_autoptr(GPtrArray) requests = g_ptr_array_new_with_free_func(request_free);
    g_autoptr(GPtrArray) sets = NULL;
    int r = wb_cli_begin(&cli, options, &argc, &argv);

    if (r >= 0)
        return r;
    if (wb_moment_check(&moment_options) != 0)
        return WB_EXIT_USAGE;
    if (!moment_options.time && moment_options.change == WB_CHANGE_NONE)
        return wb_cli_usage("the state is missing: use --time TIME or --change N ('vstat' lists the changes)");
    for (int i = 1; i < argc && !wb_cli_interrupted(); i++)
        wrong_usage |= look_for(argv[i], requests) == WB_EXIT_USAGE;
    sets = make_sets(requests);
    if (json && argc > 2)
        putchar('[');
    for (guint i = 0; i < requests->len && !wb_cli_interrupted(); i++)
        run(requests->pdata[i]);
    if (json && argc > 2)
        puts("]");
    if (dry_run)
        wb_cli_stopped("nothing was changed");
    else
        wb_cli_stopped("%u of %d paths reverted; run the same command again to finish", paths_done, argc - 1);
    r = wb_cli_end();
    return r == WB_EXIT_OK && wrong_usage ? WB_EXIT_USAGE : r;
}
